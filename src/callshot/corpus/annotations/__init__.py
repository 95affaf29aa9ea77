"""Annotation formats: functions that recognise, read and write files; each row becomes a span or a
reject.

A format is a module of this package with a tuple FORMATS, which has everything that is known about
it. `rows` decodes files, splits lines and tables, parses numbers and times, and makes rows and
rejects, the same for all formats.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from callshot.corpus.annotations.rows import (
    HEAD_BYTES,
    NO_LABEL,
    AnnotationFile,
    AnnotationOptions,
    Format,
    RowError,
    check_row,
    describe_annotation_options,
    read_text,
    split_lines,
)
from callshot.errors import InputError, OptionError, OutputError, check_choice, quote
from callshot.files import atomic_path
from callshot.spans import Row, Spans
from callshot.storage import to_path

__all__ = [
    "ANNOTATION_SUFFIXES",
    "FORMATS",
    "NO_LABEL",
    "AnnotationFile",
    "AnnotationOptions",
    "Format",
    "describe_annotation_options",
    "describe_formats",
    "find_format",
    "list_rows",
    "read_annotations",
    "recognise",
    "write_annotations",
]
NO_OPTIONS = AnnotationOptions()


# Of all modules, in the order in which they are tried.
FORMATS: list[Format] = []
for module in iter_modules(__path__):
    FORMATS += getattr(import_module(f"{__name__}.{module.name}"), "FORMATS", ())
FORMATS.sort(key=lambda format: format.order)
ANNOTATION_SUFFIXES = tuple({name for row in FORMATS for name in row.suffixes})


def recognise(
    path: Path, options: AnnotationOptions = NO_OPTIONS
) -> tuple[Format, str] | None:
    """Return the format of a file, by its name and first 64 KiB, and why; None if none fits."""
    path = to_path(path)
    head = read_text(path, [], HEAD_BYTES)
    for candidate in FORMATS:
        reason = candidate.recognise(path, head, options)
        if reason is not None:
            return candidate, reason
    return None


def read_annotations(
    path: Path, format: str = "auto", options: AnnotationOptions = NO_OPTIONS
) -> AnnotationFile:
    """Read an annotation file.

    Parameters
    ----------
    path : Path
        The file to read.
    format : str, optional
        The name of a format, such as "raven" or "csv"; "auto" recognises it by the content.
    options : AnnotationOptions, optional
        What you know about the file: its columns, tiers or label.

    Returns
    -------
    AnnotationFile
        Its `spans`, the rejected rows with their reasons, and notes. Every row of the file is a
        span or a reject. Spans have all columns of the file.

    Raises
    ------
    InputError
        If the file cannot be read, or its format is not recognised.
    OptionError
        If the format or a given column is unknown.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> _ = path.write_text("0.5\\t2.5\\trumble\\n3\\t3\\troar\\n")
    >>> file = read_annotations(path)
    >>> file.format, file.spans["label"], file.rejects[0].reason
    ('audacity', ['rumble'], 'starts and ends at 3.0: a point in time; a segment needs a span')
    """
    path = to_path(path)
    if format == "auto":
        recognised = recognise(path, options)
        if recognised is None:
            head = read_text(path, [], HEAD_BYTES)
            first, *_ = [*split_lines(head), ""]
            raise InputError(
                f"{path}: line 1: no annotation format fits, got {quote(first)}; "
                "give its format (--format), or its columns (--columns)"
            )
        reader, reason = recognised
    else:
        reader = find_format(format)
        reason = "asked for"
    file = AnnotationFile(path, reader.name, reason, options)
    reader.read(file)
    file.rejects.sort(key=lambda reject: reject.row or 0)
    if file.has_filled:
        note = f"rows without a label: labelled {options.label} (--label)"
        file.notes.append(note)
    return file


def write_annotations(spans: Spans, path: Path, format: str) -> None:
    """Write an annotation file: the whole of it, or nothing.

    Parameters
    ----------
    spans : Spans
        The annotations to write; other columns than recording, times and label are written too.
    path : Path
        The file to write; an existing one is replaced.
    format : str
        "csv", "raven" or "audacity".

    Raises
    ------
    OutputError
        If the file cannot be written, or the format cannot hold an annotation.
    OptionError
        If the format is unknown or can only be read.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "calls.csv"
    >>> call = {"recording": "a.wav", "start_s": 0.5, "end_s": 2.5, "label": "rumble"}
    >>> write_annotations(Spans.from_rows([call]), path, "csv")
    >>> print(path.read_text())
    recording,start_s,end_s,label
    a.wav,0.5,2.5,rumble
    <BLANKLINE>
    """
    path = to_path(path)
    write = find_format(format).write
    if write is None:
        writable = ", ".join(known.name for known in FORMATS if known.write is not None)
        raise OptionError(f"format {format!r} is read-only; expected one of {writable}")
    rows = list_rows(spans)
    for number, row in enumerate(rows, start=1):
        try:
            check_row(row)
        except RowError as error:
            raise OutputError(
                f"{path}: annotation {number} cannot be written: {error}"
            ) from None
    with atomic_path(path, errors=(ValueError,)) as temporary:
        temporary.write_bytes(write(rows, path).encode())


def list_rows(spans: Spans) -> list[Row]:
    """Return spans as rows for a writer: `path` is the audio file, `recording` a group of files.

    Spans without a column `path` name the file in `recording`, and have no groups.
    """
    rows = list(spans.frame.iter_rows(named=True))
    for row in rows:
        if "path" not in row:
            row["path"] = row["recording"]
            row["recording"] = None
        row["label"] = row.get("label") or ""
    return rows


def find_format(name: str) -> Format:
    """Return a format by its name; raise OptionError with the closest name if it is unknown."""
    formats = {known.name: known for known in FORMATS}
    check_choice("format", name, formats)
    return formats[name]


def describe_formats() -> str:
    """Return the names of all formats as the help lists them."""
    own = []  # formats that callshot reads without another package
    packages: dict[str, list[str]] = {}  # formats by the package that reads them
    for format in reversed(FORMATS):
        name = format.name
        if format.package:
            packages.setdefault(format.package, []).append(name)
        else:
            own.append(f"{name} ({format.program})" if format.program else name)
    own += ["folders (one folder of clips per label)", "or auto to recognise it"]
    text = ", ".join(own)
    for package, names in packages.items():
        text += f". Formats read with the package {package}: {', '.join(sorted(names))}"
    return text
