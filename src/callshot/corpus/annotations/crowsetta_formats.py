"""Formats that callshot reads with crowsetta.

Formats that count samples give frames: the rate is that of the recording. Raw values are taken from
crowsetta, not its rounded seconds, for which it would open the audio.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from callshot.corpus.annotations.mat_check import check_mat
from callshot.corpus.annotations.rows import AnnotationFile, AnnotationOptions
from callshot.corpus.annotations.text import read_table, read_text
from callshot.errors import CallshotError, InputError, count_text
from callshot.files import error_reason
from callshot.storage import local_copy

EXTRA = "annotations"
MISSING = ("<NA>", "nan", "None")
SIMPLE_COLUMNS = {"start_s": "onset_s", "end_s": "offset_s", "label": "label"}


class Call(NamedTuple):
    """One annotation, as crowsetta returns it."""

    label: Any
    start: Any
    end: Any
    path: str | None = None
    in_frames: bool = False


CallReader = Callable[[Any, Path, AnnotationOptions], Iterator[Call]]


def read(
    name: str,
    read_calls: CallReader,
    annotation_file: AnnotationFile,
    options: AnnotationOptions,
) -> None:
    """Read a file with `read_calls`, which gets crowsetta's class of that name."""
    calls = _read_calls(name, read_calls, annotation_file.path, options)
    for row, call in enumerate(calls, start=1):
        label = str(call.label)
        if not isinstance(call.label, str) and label in MISSING:
            label = ""
        with annotation_file.rejecting(row):
            annotation_file.add(
                row,
                label,
                call.start,
                call.end,
                path=call.path,
                in_frames=call.in_frames,
            )


def recognise(
    suffixes: tuple[str, ...],
    pattern: str,
    reason: str,
    path: Path,
    head: str,
    options: AnnotationOptions,
) -> str | None:
    """Recognise a file by its suffix and the pattern that it begins with."""
    has_suffix = path.name.lower().endswith(suffixes)
    if has_suffix and re.match(pattern, head):
        return reason
    return None


def _read_calls(
    name: str, read_calls: CallReader, path: Path, options: AnnotationOptions
) -> list[Call]:
    """Let crowsetta read a file; turn all its errors into InputError."""
    with warnings.catch_warnings(action="ignore"):
        try:
            formats = import_module("crowsetta.formats")
        except ImportError as error:
            raise InputError(
                f"{path}: format {name} needs crowsetta ({error}); "
                f"install it with: pip install 'callshot[{EXTRA}]'"
            ) from error
        try:
            calls = read_calls(formats.by_name(name), local_copy(path), options)
            return [
                call._replace(start=float(call.start), end=float(call.end))
                for call in calls
            ]
        except CallshotError:
            raise
        except Exception as error:
            reason = error_reason(error)
            raise InputError(
                f"{path}: crowsetta cannot read it as {name} ({reason})"
            ) from error


def read_birdsong(
    crowsetta: Any, path: Path, options: AnnotationOptions
) -> Iterator[Call]:
    """Yield the notes of Koumura's Annotation.xml, which count from the start of their sequence."""
    _check_xml(path)
    for sequence in crowsetta.from_file(path, concat_seqs_into_songs=False).sequences:
        for note in sequence.syls:
            start = sequence.position + note.position
            end = start + note.length
            yield Call(note.label, start, end, sequence.wav_file, in_frames=True)


def _check_xml(path: Path) -> None:
    """Raise InputError for broken XML and for entities, which may grow without bound."""
    parser = expat.ParserCreate()

    def reject_doctype(*_: object) -> None:
        line = parser.CurrentLineNumber
        raise InputError(f"{path}: line {line}: a DOCTYPE is not allowed; remove it")

    parser.StartDoctypeDeclHandler = reject_doctype
    try:
        with path.open("rb") as stream:
            parser.ParseFile(stream)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise InputError(
            f"{path}: line {error.lineno}: expected well-formed XML ({reason})"
        ) from None


def read_notmat(
    crowsetta: Any, path: Path, options: AnnotationOptions
) -> Iterator[Call]:
    """Return the calls that evsonganaly wrote beside one recording."""
    check_mat(path)
    song = crowsetta.from_file(path)
    return starmap(Call, zip(song.labels, song.onsets, song.offsets, strict=True))


def read_timit(
    crowsetta: Any, path: Path, options: AnnotationOptions
) -> Iterator[Call]:
    """Yield the phones or words of one recording."""
    speech = crowsetta.from_file(path)
    spans = zip(speech.begin_samples, speech.end_samples, strict=True)
    for label, (start, end) in zip(speech.text, spans, strict=True):
        yield Call(label, start, end, in_frames=True)


def read_generic_seq(
    crowsetta: Any, path: Path, options: AnnotationOptions
) -> Iterator[Call]:
    """Yield the calls of crowsetta's own table, in seconds if it has them."""
    _check_widths(path)
    for annotation in crowsetta.from_file(path).annots:
        audio: str | None = str(annotation.notated_path)
        if audio == "None":
            audio = None
        yield from _read_segments(annotation.seq, audio)


def _read_segments(sequence: Any, audio: str | None) -> Iterator[Call]:
    for segment in sequence.segments:
        start = segment.onset_s
        end = segment.offset_s
        in_frames = start is None
        if in_frames:
            start = segment.onset_sample
            end = segment.offset_sample
        yield Call(segment.label, start, end, audio, in_frames)


def read_simple_seq(
    crowsetta: Any, path: Path, options: AnnotationOptions
) -> Iterator[Call]:
    """Return the calls of a table of onsets, offsets and labels; the user may give its columns."""
    _check_widths(path)
    arguments: dict[str, Any] = {}
    columns = {
        options.columns[ours]: theirs
        for ours, theirs in SIMPLE_COLUMNS.items()
        if ours in options.columns
    }
    if columns:
        arguments["columns_map"] = columns
    if options.label is not None:
        arguments["default_label"] = options.label
    song = crowsetta.from_file(path, **arguments)
    return starmap(Call, zip(song.labels, song.onsets_s, song.offsets_s, strict=True))


def _check_widths(path: Path) -> None:
    """Raise InputError for rows wider than the header: pandas would shift their fields."""
    table = read_table(path, read_text(path, []), ",")
    _, header = next(table, (1, []))
    for line, cells in table:
        if len(cells) > len(header):
            raise InputError(
                f"{path}: line {line}: expected {count_text(len(header), 'field')} as in "
                f"the header, got {len(cells)}"
            )


def read_yarden(
    crowsetta: Any, path: Path, options: AnnotationOptions
) -> Iterator[Call]:
    """Yield the calls that SongAnnotationGUI wrote, in seconds; its samples derive from them."""
    check_mat(path)
    songs = crowsetta.from_file(path)
    sequences = songs.to_seq(round_times=False)
    for audio, sequence in zip(songs.audio_paths, sequences, strict=True):
        yield from _read_segments(sequence, str(audio))
