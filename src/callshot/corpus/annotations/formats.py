"""The table of annotation formats, and functions that recognise, read and write files.

A format is one row of FORMATS; they are tried in this order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from callshot.corpus.annotations import (
    audacity,
    crowsetta_formats,
    delimited,
    raven,
    textgrid,
)
from callshot.corpus.annotations.rows import (
    AnnotationFile,
    AnnotationOptions,
    Annotations,
    check_annotations,
)
from callshot.corpus.annotations.text import quote, read_head, split_lines, suggest_name
from callshot.errors import InputError, OptionError
from callshot.files import atomic_path
from callshot.storage import to_path

Recogniser = Callable[[Path, str, AnnotationOptions], str | None]

NO_OPTIONS = AnnotationOptions()


@dataclass(frozen=True)
class Format:
    """An annotation format.

    `recognise` returns why a file with this name and head is in the format, None if it is not.
    """

    name: str
    recognise: Recogniser
    read: Callable[[AnnotationFile, AnnotationOptions], None]
    write: Callable[[Annotations, Path], str] | None = None


def _crowsetta_format(
    name: str,
    read_calls: crowsetta_formats.CallReader,
    suffixes: tuple[str, ...] = (),
    pattern: str = "",
    reason: str = "",
) -> Format:
    """Return a format that crowsetta reads; without suffixes it is never recognised."""
    recognise = partial(crowsetta_formats.recognise, suffixes, pattern, reason)
    read = partial(crowsetta_formats.read, name, read_calls)
    return Format(name, recognise, read)


FORMATS = (
    Format("textgrid", textgrid.recognise, textgrid.read),
    Format("raven", raven.recognise, raven.read, raven.write),
    Format("audacity", audacity.recognise, audacity.read, audacity.write),
    _crowsetta_format(
        "birdsong-recognition-dataset",
        crowsetta_formats.read_birdsong,
        (".xml",),
        r"[^<]*(?:<[^A-Za-z_][^<]*)*<Sequences(?![\w.-])",  # the first element
        "it is XML that begins with <Sequences>",
    ),
    _crowsetta_format(
        "notmat",
        crowsetta_formats.read_notmat,
        (".not.mat",),
        "MATLAB",
        "it is a MATLAB file called .not.mat",
    ),
    _crowsetta_format(
        "timit",
        crowsetta_formats.read_timit,
        (".phn", ".wrd"),
        r"[0-9]+ [0-9]+ \S",
        "its lines are two samples and a text, and it is called .phn or .wrd",
    ),
    _crowsetta_format("generic-seq", crowsetta_formats.read_generic_seq),
    _crowsetta_format("simple-seq", crowsetta_formats.read_simple_seq),
    _crowsetta_format("yarden", crowsetta_formats.read_yarden),
    Format("csv", delimited.recognise, delimited.read, delimited.write),
)


def recognise(
    path: Path, options: AnnotationOptions = NO_OPTIONS
) -> tuple[Format, str] | None:
    """Return the format of a file and how it was recognised; None if no format fits.

    Only the name and the first 64 KiB of the file count.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x.Table.1.selections.txt"
    >>> _ = path.write_text("Selection\\tBegin Time (s)\\tEnd Time (s)\\tSpecies\\n")
    >>> format, reason = recognise(path)
    >>> format.name, reason
    ('raven', 'its header has Selection and Begin Time (s)')
    """
    path = to_path(path)
    head = read_head(path)
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
        The annotations, the rejected rows with their reasons, and notes. Every row of the file
        is an annotation or a reject.

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
    >>> file.format, file.annotations[0].label, file.rejects[0].reason
    ('audacity', 'rumble', 'starts and ends at 3.0: a point in time; a segment needs a span')
    """
    path = to_path(path)
    if format == "auto":
        recognised = recognise(path, options)
        if recognised is None:
            first_line = split_lines(read_head(path))[0]
            text = "the file is empty"
            if first_line:
                text = f"no annotation format fits, got {quote(first_line)}"
            raise InputError(
                f"{path}: line 1: {text}; give its format (--format), or its columns (--columns)"
            )
        reader, reason = recognised
    else:
        reader = find_format(format)
        reason = "asked for"
    annotation_file = AnnotationFile(
        path, reader.name, reason, options.label, keep_early=options.keep_early
    )
    reader.read(annotation_file, options)
    annotation_file.notes += annotation_file.describe_filled()
    return annotation_file


def write_annotations(annotations: Annotations, path: Path, format: str) -> None:
    """Write an annotation file: the whole of it, or nothing.

    Parameters
    ----------
    annotations : sequence of Annotation
        The annotations to write.
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
    >>> from callshot.records import Annotation
    >>> path = Path(tempfile.mkdtemp()) / "calls.csv"
    >>> call = Annotation("a.wav", 0.5, 2.5, "rumble", "", None)
    >>> write_annotations([call], path, "csv")
    >>> print(path.read_text())
    recording,start_s,end_s,label
    a.wav,0.5,2.5,rumble
    <BLANKLINE>
    """
    path = to_path(path)
    write = find_format(format).write
    if write is None:
        writable = ", ".join([row.name for row in FORMATS if row.write is not None])
        raise OptionError(f"format {format!r} is read-only; expected one of {writable}")
    check_annotations(annotations, path)
    with atomic_path(path, errors=(ValueError,)) as temporary:
        temporary.write_bytes(write(annotations, path).encode())


def find_format(name: str) -> Format:
    """Return a format by its name; raise OptionError with the closest name if it is unknown."""
    for row in FORMATS:
        if row.name == name:
            return row
    suggestion = suggest_name(name, [row.name for row in FORMATS])
    raise OptionError(f"unknown annotation format {name!r}; {suggestion}")
