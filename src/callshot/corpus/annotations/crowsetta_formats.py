"""Formats that callshot reads with crowsetta.

Formats that count samples give frames: the rate is that of the recording. Raw values are taken from
crowsetta, not its rounded seconds, for which it would open the audio.

All elements of MATLAB files are checked first: SciPy trusts the types and sizes in a file, and 1 of
60 damaged files crashes the whole process. Contents that no annotation needs (objects, sparse
matrices, functions) are rejected.
"""

import math
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.parsers import expat

from callshot.corpus.annotations.rows import AnnotationFile, AnnotationOptions, Format
from callshot.corpus.annotations.text import read_bytes, read_table, read_text
from callshot.errors import CallshotError, InputError, count_text
from callshot.files import error_reason
from callshot.storage import local_copy

# Label, start and end of each call; in some formats also its recording, and whether its times
# count frames.
Calls = Iterable[tuple[Any, ...]]
CallReader = Callable[[Any, Path, AnnotationOptions], Calls]

EXTRA = "annotations"
MISSING = ("<NA>", "nan", "None")
SIMPLE_COLUMNS = {"start_s": "onset_s", "end_s": "offset_s", "label": "label"}
HEADER_BYTES = 128
BYTE_ORDERS = {b"IM": "<", b"MI": ">"}
MAX_UNPACKED_BYTES = 2**26  # of one compressed variable
MAX_DEPTH = 32
# Types of elements, with the bytes of a number.
INT8 = 1
INT32 = 5
UINT32 = 6
MATRIX = 14
COMPRESSED = 15
NUMBER_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
TEXTS = (1, 2, 4, 16, 17, 18)
# Classes of variables.
CELL = 1
STRUCT = 2
CHAR = 4
NUMERIC = range(6, 16)
COMPLEX = 0x0800

Element = tuple[int, memoryview]


def make_format(
    name: str,
    read_calls: CallReader,
    help: str,
    suffixes: tuple[str, ...] = (),
    pattern: str = "",
    reason: str = "",
) -> Format:
    """Return a format that crowsetta reads; without a pattern it is never recognised."""

    def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
        has_suffix = path.name.lower().endswith(suffixes)
        if pattern and has_suffix and re.match(pattern, head):
            return reason
        return None

    read = partial(_read, name, read_calls)
    return Format(name, help, suffixes, recognise, read)


def _read(name: str, read_calls: CallReader, file: AnnotationFile) -> None:
    """Let crowsetta's class of a name read a file; turn all its errors into InputError."""
    path = file.path
    with warnings.catch_warnings(action="ignore"):
        try:
            formats = import_module("crowsetta.formats")
        except ImportError as error:
            raise InputError(
                f"{path}: format {name} needs crowsetta ({error}); "
                f"install it with: pip install 'callshot[{EXTRA}]'"
            ) from error
        try:
            reader = formats.by_name(name)
            calls = read_calls(reader, local_copy(path), file.options)
            rows = [
                (label, float(start), float(end), *more)
                for label, start, end, *more in calls
            ]
        except CallshotError:
            raise
        except Exception as error:
            reason = error_reason(error)
            raise InputError(
                f"{path}: crowsetta cannot read it as {name} ({reason})"
            ) from error
    for number, (label, start, end, *more) in enumerate(rows, start=1):
        text = str(label)
        if not isinstance(label, str) and text in MISSING:
            text = ""
        audio, in_frames = more or (None, False)
        with file.rejecting(number):
            file.add(number, text, start, end, path=audio, in_frames=in_frames)


def check_mat(path: Path) -> None:
    """Raise InputError if a MATLAB file is damaged."""
    raw = read_bytes(path)
    try:
        order = BYTE_ORDERS.get(raw[126:HEADER_BYTES])
        if not raw.startswith(b"MATLAB 5.0") or order is None:
            raise ValueError("expected the header of a MATLAB 5.0 file")
        for kind, data in _split(memoryview(raw)[HEADER_BYTES:], order):
            if kind == COMPRESSED:
                ((kind, data),) = _split(_unpack(data), order)
            _check_variable(kind, data, order, 0)
    except (ValueError, struct.error, zlib.error) as error:
        raise InputError(
            f"{path}: not a MATLAB file that crowsetta can read ({error}); "
            "save it again, as version 6 or 7"
        ) from None


def _unpack(data: memoryview) -> memoryview:
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(data, MAX_UNPACKED_BYTES)
    if not unpacker.eof:
        raise ValueError(f"a variable does not end in {MAX_UNPACKED_BYTES} bytes")
    return memoryview(raw)


def _split(raw: memoryview, order: str) -> list[Element]:
    """Return the elements of some bytes; the padding after the last one may be cut off."""
    elements = []
    while raw:
        kind, size = struct.unpack(f"{order}II", raw[:8])
        end = 8 + size
        data = raw[8:end]
        if kind != COMPRESSED:
            end += -size % 8
        if kind >> 16:  # up to 4 bytes are written into the tag
            kind, size = kind & 0xFFFF, kind >> 16
            data = raw[4:8][:size]
            end = 8
        if len(data) != size:
            raise ValueError(f"type {kind}: expected {size} bytes, got {len(data)}")
        elements.append((kind, data))
        raw = raw[end:]
    return elements


def _check_variable(kind: int, data: memoryview, order: str, depth: int) -> None:
    """Check a variable and everything in it."""
    if kind != MATRIX or depth > MAX_DEPTH:
        raise ValueError(f"type {kind} at depth {depth}")
    if not data:
        return
    flags, shape, name, *content = _split(data, order)
    (attributes, _) = _read_integers(flags, UINT32, f"{order}2I")
    sizes = _read_integers(shape, INT32, f"{order}{len(shape[1]) // 4}i")
    if name[0] != INT8 or not 2 <= len(sizes) <= 32 or min(sizes) < 0:
        raise ValueError(f"a variable of shape {sizes[:4]}")
    count = math.prod(sizes)
    variable_class = attributes & 0xFF
    if variable_class in NUMERIC:
        if len(content) != (2 if attributes & COMPLEX else 1):
            raise ValueError(f"numbers in {len(content)} parts")
        for kind, data in content:
            is_number = kind in NUMBER_BYTES
            if not is_number or len(data) != count * NUMBER_BYTES[kind]:
                raise ValueError(
                    f"expected {count} numbers, got type {kind} of {len(data)} bytes"
                )
    elif variable_class == CHAR:
        if [kind in TEXTS for kind, _ in content] != [True]:
            raise ValueError("expected a text")
    elif variable_class in (CELL, STRUCT):
        if variable_class == STRUCT:
            width, (names_kind, names), *content = content
            (name_bytes,) = _read_integers(width, INT32, f"{order}i")
            if names_kind != INT8 or name_bytes <= 0 or len(names) % name_bytes:
                raise ValueError("the names of fields do not fit")
            count *= len(names) // name_bytes
        if len(content) != count:
            raise ValueError(f"expected {count} variables, got {len(content)}")
        for kind, data in content:
            _check_variable(kind, data, order, depth + 1)
    else:
        raise ValueError(f"class {variable_class}, which no annotation needs")


def _read_integers(element: Element, kind: int, code: str) -> tuple[int, ...]:
    if element[0] != kind:
        raise ValueError(f"expected type {kind}, got type {element[0]}")
    return struct.unpack(code, element[1])


def _read_birdsong(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Yield the notes of Koumura's Annotation.xml, which count from the start of their sequence."""
    _check_xml(path)
    for sequence in crowsetta.from_file(path, concat_seqs_into_songs=False).sequences:
        for note in sequence.syls:
            start = sequence.position + note.position
            end = start + note.length
            yield note.label, start, end, sequence.wav_file, True


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


def _read_notmat(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Return the calls that evsonganaly wrote beside one recording."""
    check_mat(path)
    song = crowsetta.from_file(path)
    return zip(song.labels, song.onsets, song.offsets, strict=True)


def _read_timit(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Yield the phones or words of one recording."""
    speech = crowsetta.from_file(path)
    spans = zip(speech.begin_samples, speech.end_samples, strict=True)
    for label, (start, end) in zip(speech.text, spans, strict=True):
        yield label, start, end, None, True


def _read_generic_seq(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Yield the calls of crowsetta's own table, in seconds if it has them."""
    _check_widths(path)
    for annotation in crowsetta.from_file(path).annots:
        audio: str | None = str(annotation.notated_path)
        if audio == "None":
            audio = None
        yield from _read_segments(annotation.seq, audio)


def _read_segments(sequence: Any, audio: str | None) -> Calls:
    for segment in sequence.segments:
        start = segment.onset_s
        end = segment.offset_s
        in_frames = start is None
        if in_frames:
            start = segment.onset_sample
            end = segment.offset_sample
        yield segment.label, start, end, audio, in_frames


def _read_simple_seq(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
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
    return zip(song.labels, song.onsets_s, song.offsets_s, strict=True)


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


def _read_yarden(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Yield the calls that SongAnnotationGUI wrote, in seconds; its samples derive from them."""
    check_mat(path)
    songs = crowsetta.from_file(path)
    sequences = songs.to_seq(round_times=False)
    for audio, sequence in zip(songs.audio_paths, sequences, strict=True):
        yield from _read_segments(sequence, str(audio))


FORMATS = (
    make_format(
        "birdsong-recognition-dataset",
        _read_birdsong,
        "Koumura's Annotation.xml",
        (".xml",),
        r"[^<]*(?:<[^A-Za-z_][^<]*)*<Sequences(?![\w.-])",  # the first element
        "it is XML that begins with <Sequences>",
    ),
    make_format(
        "notmat",
        _read_notmat,
        "evsonganaly",
        (".not.mat",),
        "MATLAB",
        "it is a MATLAB file called .not.mat",
    ),
    make_format(
        "timit",
        _read_timit,
        "TIMIT transcripts",
        (".phn", ".wrd"),
        r"[0-9]+ [0-9]+ \S",
        "its lines are two samples and a text, and it is called .phn or .wrd",
    ),
    make_format("generic-seq", _read_generic_seq, "crowsetta's own table"),
    make_format("simple-seq", _read_simple_seq, "onsets, offsets and labels"),
    make_format("yarden", _read_yarden, "SongAnnotationGUI", (".mat",)),
)
