"""New names for labels, from a file that the user wrote.

    label,new_label
    Rmbl,rumble
    wind,                 calls without a new label are left out

Labels that are not in the file stay as they are.
"""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from callshot.corpus.annotations.rows import AnnotationOptions, find_columns
from callshot.corpus.annotations.text import (
    list_names,
    quote,
    read_table,
    read_text,
    split_off_separator,
)
from callshot.errors import InputError, count_text

Renames = Path | str | Mapping[str, str]

COLUMNS = {
    "label": ("label", "old_label", "old"),
    "new_label": ("new_label", "new", "name"),
}


def read_renames(path: Path) -> dict[str, str]:
    """Return the new label of each label in a file; empty for labels that are left out."""
    renames: dict[str, str] = {}
    for line, label, new_label in _read_pairs(path):
        first = renames.setdefault(label, new_label)
        if first != new_label:
            raise InputError(
                f"{path}: line {line}: {quote(label)} becomes {quote(new_label)} here "
                f"but {quote(first)} above; keep one"
            )
    return renames


def _read_pairs(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the label and the new label of each row."""
    delimiter, text, first_line = split_off_separator(read_text(path, []))
    lines = read_table(path, text, delimiter, first_line)
    line, header = next(lines, (1, []))
    columns = find_columns(header, COLUMNS)
    if len(columns) < len(COLUMNS):
        raise InputError(
            f"{path}: line {line}: expected the columns label and new_label, "
            f"got {list_names(header)}"
        )
    for line, cells in lines:
        if len(cells) < len(header):
            raise InputError(
                f"{path}: line {line}: expected {count_text(len(header), 'field')} as in "
                f"the header, got {len(cells)}"
            )
        label = _normalize(cells[columns["label"]])
        yield line, label, cells[columns["new_label"]].strip()


def make_annotation_options(
    *,
    columns: Mapping[str, str] | None = None,
    tiers: Sequence[str] = (),
    label: str | None = None,
    rename: Renames | None = None,
    time_unit: str | None = None,
    follow_links: bool = False,
    exclude: Sequence[Path] = (),
) -> AnnotationOptions:
    """Return how annotations are read; `rename` may be a file, which is then no annotation file."""
    excluded = tuple(exclude)
    if isinstance(rename, str | Path):
        excluded += (Path(rename),)
        rename = read_renames(Path(rename))
    return AnnotationOptions(
        columns=dict(columns or {}),
        tiers=tuple(tiers),
        label=label,
        exclude=excluded,
        time_unit=time_unit,
        rename=rename or {},
        follow_links=follow_links,
    )


def _normalize(label: str) -> str:
    """Return a label without space around it, and with composed accents."""
    return unicodedata.normalize("NFC", label.strip())


class Renaming:
    """Renames labels, and remembers which were renamed.

    >>> rename = Renaming({"Rmbl": "rumble"})
    >>> rename(" Rmbl"), rename("roar")
    ('rumble', 'roar')
    """

    def __init__(self, renames: Mapping[str, str]) -> None:
        self._renames = {_normalize(old): new for old, new in renames.items()}
        self._used: set[str] = set()

    def __call__(self, label: str) -> str:
        """Return the new label; raise InputError if it is empty."""
        old = _normalize(label)
        if old not in self._renames:
            return label.strip()
        self._used.add(old)
        new = self._renames[old].strip()
        if not new:
            raise InputError(
                f"left out: label {quote(old)} has no new label in --rename"
            )
        return new

    def describe(self) -> Iterator[str]:
        """Describe what was renamed, and what may be a typing error in the list."""
        if self._used:
            yield f"labels renamed: {list_names(sorted(self._used))}"
        unused = sorted(self._renames.keys() - self._used)
        if unused:
            yield f"labels to rename that no call has: {list_names(unused)}"
