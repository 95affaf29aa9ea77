"""The table of annotation formats: a file comes in, its annotations go out with how it was recognised, and back.

A format is one row of FORMATS; they are tried in this order.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from callshot.corpus.annotations import audacity, crowsetta_formats, delimited, raven, textgrid
from callshot.corpus.annotations.columns import nearest
from callshot.corpus.annotations.rows import Hints, Rows
from callshot.corpus.annotations.text import read_head, shown, split_lines
from callshot.corpus.annotations.writing import refuse_unfit
from callshot.errors import InputError, OptionError, OutputError
from callshot.records import Annotation, Reject

NO_HINTS = Hints()


@dataclass(frozen=True)
class Format:
    """One format: `recognise` says why a file with that name and head is in it; `extra` is what must be installed."""

    name: str
    title: str
    recognise: Callable[[Path, str, Hints], str | None]
    read: Callable[[Rows, Hints], None]
    write: Callable[[Sequence[Annotation], Path], str] | None = None
    extra: str | None = None


@dataclass(frozen=True)
class Reading:
    """What was read of one file: how it was recognised, each row as an annotation or a reject, and what was decided."""

    format: str
    why: str
    annotations: list[Annotation]
    rejects: list[Reject]
    notes: list[str]


# fmt: off
FORMATS = (
    Format("textgrid", "Praat TextGrid", textgrid.recognise, textgrid.read),
    Format("raven", "Raven selection table", raven.recognise, raven.read, raven.write),
    Format("audacity", "Audacity label track", audacity.recognise, audacity.read, audacity.write),
    Format("birdsong-recognition-dataset", "Annotation.xml of BirdsongRecognition", crowsetta_formats.is_birdsong,
           crowsetta_formats.reader("birdsong-recognition-dataset", crowsetta_formats.birdsong), extra=crowsetta_formats.EXTRA),
    Format("notmat", ".not.mat of evsonganaly", crowsetta_formats.is_notmat,
           crowsetta_formats.reader("notmat", crowsetta_formats.notmat), extra=crowsetta_formats.EXTRA),
    Format("timit", "TIMIT transcription", crowsetta_formats.is_timit,
           crowsetta_formats.reader("timit", crowsetta_formats.timit), extra=crowsetta_formats.EXTRA),
    Format("generic-seq", "crowsetta's generic-seq", crowsetta_formats.never,
           crowsetta_formats.reader("generic-seq", crowsetta_formats.generic_seq), extra=crowsetta_formats.EXTRA),
    Format("simple-seq", "crowsetta's simple-seq", crowsetta_formats.never,
           crowsetta_formats.reader("simple-seq", crowsetta_formats.simple_seq), extra=crowsetta_formats.EXTRA),
    Format("yarden", ".mat of SongAnnotationGUI", crowsetta_formats.never,
           crowsetta_formats.reader("yarden", crowsetta_formats.yarden), extra=crowsetta_formats.EXTRA),
    Format("csv", "CSV, TSV or semicolons", delimited.recognise, delimited.read, delimited.write),
)
# fmt: on


def recognise(path: Path, hints: Hints = NO_HINTS) -> tuple[Format, str] | None:
    """Find the format of a file by its name and its first 64 KiB, and say why; None where none fits.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x.Table.1.selections.txt"
    >>> _ = path.write_text("Selection\\tBegin Time (s)\\tEnd Time (s)\\tSpecies\\n")
    >>> format, why = recognise(path)
    >>> format.name, why
    ('raven', 'its header has Selection and Begin Time (s)')
    """
    head = read_head(Path(path))
    found = ((form, form.recognise(Path(path), head, hints)) for form in FORMATS)
    return next(((form, why) for form, why in found if why is not None), None)


def read_annotations(path: Path, format: str = "auto", hints: Hints = NO_HINTS) -> Reading:
    """Read an annotation file; every row becomes an annotation or a reject.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = path.write_text("0.5\\t2.5\\trumble\\n3\\t3\\troar\\n")
    >>> reading = read_annotations(path)
    >>> reading.format, reading.annotations[0].label, reading.rejects[0].reason
    ('audacity', 'rumble', 'starts and ends at 3.0: a point in time; a segment needs a span')
    """
    path = Path(path)
    form, why = _recognised(path, hints) if format == "auto" else (find_format(format), "asked for")
    rows = Rows(path)
    form.read(rows, hints)
    return Reading(form.name, why, rows.annotations, rows.rejects, rows.notes)


def write_annotations(annotations: Sequence[Annotation], path: Path, format: str) -> None:
    """Write an annotation file: the whole of it, or nothing."""
    form, path = find_format(format), Path(path)
    if form.write is None:
        names = ", ".join(form.name for form in FORMATS if form.write is not None)
        raise OptionError(f"format {format!r} can be read, not written; wanted one of {names}")
    refuse_unfit(annotations, path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(form.write(annotations, path).encode())
        unfinished.replace(path)
    except OutputError:
        raise
    except (OSError, ValueError) as error:
        raise OutputError(
            f"{path}: cannot be written ({getattr(error, 'strerror', None) or error})"
        ) from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _recognised(path: Path, hints: Hints) -> tuple[Format, str]:
    found = recognise(path, hints)
    if found is None:
        first = split_lines(read_head(path))[0]
        text = f"no annotation format fits, found {shown(first)}" if first else "the file is empty"
        raise InputError(f"{path}: line 1: {text}; name the format, or name its columns")
    return found


def find_format(name: str) -> Format:
    """Return a format by its name; an unknown one is answered with the nearest."""
    for form in FORMATS:
        if form.name == name:
            return form
    raise OptionError(
        f"there is no annotation format {name!r}; {nearest(name, [form.name for form in FORMATS])}"
    )
