"""Formats that callshot reads with crowsetta.

Formats that count samples give frames: the rate is that of the recording. Raw values are taken from
crowsetta, not its rounded seconds, for which it would open the audio.
"""

import re
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from callshot.corpus.annotations.rows import AnnotationFile, AnnotationOptions, Format
from callshot.errors import InputError
from callshot.files import error_reason
from callshot.storage import local_copy

# Label, start and end of each call; in some formats also its recording, and whether its times
# count frames.
Calls = Iterable[tuple[Any, ...]]
CallReader = Callable[[Any, Path, AnnotationOptions], Calls]

EXTRA = "annotations"
MISSING = ("<NA>", "nan", "None")
SIMPLE_COLUMNS = {"start_s": "onset_s", "end_s": "offset_s", "label": "label"}


def make_format(
    name: str,
    read_calls: CallReader,
    suffixes: tuple[str, ...] = (),
    pattern: str = "",
    reason: str = "",
) -> Format:
    """Return a format that crowsetta reads; without a pattern it is never recognised."""

    def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
        has_suffix = path.name.lower().endswith(suffixes)
        return reason if pattern and has_suffix and re.match(pattern, head) else None

    return Format(name, suffixes, recognise, partial(_read, name, read_calls))


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
            calls = read_calls(formats.by_name(name), local_copy(path), file.options)
            rows = [
                (label, float(start), float(end), *more)
                for label, start, end, *more in calls
            ]
        except Exception as error:
            raise InputError(
                f"{path}: crowsetta cannot read it as {name} ({error_reason(error)})"
            ) from error
    for number, (label, start, end, *more) in enumerate(rows, start=1):
        text = str(label)
        if not isinstance(label, str) and text in MISSING:
            text = ""
        audio, in_frames = more or (None, False)
        with file.rejecting(number):
            file.add(number, text, start, end, path=audio, in_frames=in_frames)


def _read_birdsong(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Yield the notes of Koumura's Annotation.xml, which count from the start of their sequence."""
    for sequence in crowsetta.from_file(path, concat_seqs_into_songs=False).sequences:
        for note in sequence.syls:
            start = sequence.position + note.position
            end = start + note.length
            yield note.label, start, end, sequence.wav_file, True


def _read_notmat(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Return the calls that evsonganaly wrote beside one recording."""
    song = crowsetta.from_file(path)
    return zip(song.labels, song.onsets, song.offsets, strict=True)


def _read_timit(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Yield the phones or words of one recording."""
    speech = crowsetta.from_file(path)
    spans = zip(speech.text, speech.begin_samples, speech.end_samples, strict=True)
    for label, start, end in spans:
        yield label, start, end, None, True


def _read_sequences(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Yield the calls of crowsetta's own table, or those that SongAnnotationGUI wrote.

    Times are in seconds if the file has them; the samples of SongAnnotationGUI derive from them.
    """
    songs = crowsetta.from_file(path)
    if hasattr(songs, "annots"):
        pairs = [(one.notated_path, one.seq) for one in songs.annots]
    else:
        sequences = songs.to_seq(round_times=False)
        pairs = list(zip(songs.audio_paths, sequences, strict=True))
    for audio, sequence in pairs:
        name = None if audio is None else str(audio)
        for call in sequence.segments:
            if call.onset_s is None:
                yield call.label, call.onset_sample, call.offset_sample, name, True
            else:
                yield call.label, call.onset_s, call.offset_s, name, False


def _read_simple_seq(crowsetta: Any, path: Path, options: AnnotationOptions) -> Calls:
    """Return the calls of a table of onsets, offsets and labels; the user may give its columns."""
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


FORMATS = (
    make_format(
        "birdsong-recognition-dataset",
        _read_birdsong,
        (".xml",),
        r"[^<]*(?:<[^A-Za-z_][^<]*)*<Sequences(?![\w.-])",  # the first element
        "it is XML that begins with <Sequences>",
    ),
    make_format(
        "notmat",
        _read_notmat,
        (".not.mat",),
        "MATLAB",
        "it is a MATLAB file called .not.mat",
    ),
    make_format(
        "timit",
        _read_timit,
        (".phn", ".wrd"),
        r"[0-9]+ [0-9]+ \S",
        "its lines are two samples and a text, and it is called .phn or .wrd",
    ),
    make_format("generic-seq", _read_sequences),
    make_format("simple-seq", _read_simple_seq),
    make_format("yarden", _read_sequences, (".mat",)),
)
