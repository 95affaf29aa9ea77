"""What all writers of annotations share: numbers as text, and what a format cannot hold is refused."""

from collections.abc import Sequence
from pathlib import Path

from callshot.corpus.annotations.rows import fault
from callshot.errors import OutputError
from callshot.records import Annotation, Cell


def float_text(value: Cell, missing: str = "") -> str:
    """Write a number with as few digits as read back the same.

    >>> float_text(0.1), float_text(None)
    ('0.1', '')
    """
    return missing if value is None else repr(float(value))


def refuse_unfit(annotations: Sequence[Annotation], path: Path) -> None:
    """Raise for the first annotation that no reader would take."""
    for i, annotation in enumerate(annotations, start=1):
        reason = fault(annotation.label, annotation.start_s, annotation.end_s)
        if annotation.end_s is None and annotation.start_s != 0.0:
            reason = f"starts at {annotation.start_s!r} and has no end"
        if reason is not None:
            raise OutputError(f"{path}: annotation {i} cannot be written: {reason}")


def refuse_strangers(
    annotations: Sequence[Annotation], path: Path, kind: str, *, recordings: int | None
) -> None:
    """Raise for what Raven and Audacity have no place for."""
    for i, annotation in enumerate(annotations, start=1):
        if annotation.end_s is None:
            raise OutputError(
                f"{path}: annotation {i} is on a whole recording; {kind} needs start and end, CSV does not"
            )
        if annotation.in_frames:
            raise OutputError(f"{path}: annotation {i} counts frames; {kind} needs seconds")
    found = len({annotation.path for annotation in annotations})
    if recordings is not None and found > recordings:
        raise OutputError(
            f"{path}: {kind} is of one recording, but the annotations are of {found}; write one for each"
        )


def refuse_taken(names: Sequence[str], more: Sequence[str], path: Path) -> None:
    """Raise where a column that is only carried along has the name of one of the table's own."""
    for name in more:
        if name in names or not name.strip():
            raise OutputError(
                f"{path}: a column {name!r} cannot be carried along beside the table's own; rename it"
            )


def carried(annotations: Sequence[Annotation]) -> list[str]:
    """Name the columns that some annotation carries along, in the order in which they turn up."""
    return list(dict.fromkeys(name for annotation in annotations for name in annotation.extra))
