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

# Label, start and end of each call, its recording, and whether its times count frames.
Calls = Iterable[tuple[Any, Any, Any, str | None, bool]]
# From what crowsetta read.
CallReader = Callable[[Any], Calls]

EXTRA = "annotations"
MISSING = ("<NA>", "nan", "None")


def make_format(
    name: str,
    read_calls: CallReader,
    *,
    suffixes: tuple[str, ...] = (),
    pattern: str = "",
    reason: str = "",
) -> Format:
    """Return a format, recognised by suffix and first bytes; without `pattern` it never is."""

    def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
        """Return the reason if the suffix and the first bytes of a file fit."""
        has_suffix = path.name.lower().endswith(suffixes)
        return reason if pattern and has_suffix and re.match(pattern, head) else None

    read = partial(_read, name, read_calls)
    return Format(name, suffixes, recognise, read, package="crowsetta")


def _read(name: str, read_calls: CallReader, file: AnnotationFile) -> None:
    """Add the calls of a file; all errors of crowsetta become InputError."""
    path = file.path
    with warnings.catch_warnings(action="ignore"):
        try:
            formats = import_module("crowsetta.formats")
        except ImportError as error:
            raise InputError(
                f"{path}: format {name} needs crowsetta ({error}); "
                f"install it with: pip install 'callshot[{EXTRA}]'"
            ) from error
        arguments = {}
        if name == "birdsong-recognition-dataset":
            # Else it joins sequences to songs; notes are read from single sequences.
            arguments["concat_seqs_into_songs"] = False
        try:
            content = formats.by_name(name).from_file(local_copy(path), **arguments)
            rows = [
                (label, float(start), float(end), audio, in_frames)
                for label, start, end, audio, in_frames in read_calls(content)
            ]
        except Exception as error:
            raise InputError(
                f"{path}: crowsetta cannot read it as {name} ({error_reason(error)})"
            ) from error
    for number, (label, start, end, audio, in_frames) in enumerate(rows, start=1):
        text = str(label)
        if not isinstance(label, str) and text in MISSING:
            text = ""
        with file.rejecting(number):
            file.add(number, text, start, end, path=audio, in_frames=in_frames)


def _list_notes(birdsong: Any) -> Calls:
    """Yield the notes of Koumura's Annotation.xml; their times count from a sequence's start."""
    for sequence in birdsong.sequences:
        for note in sequence.syls:
            start = sequence.position + note.position
            end = start + note.length
            in_frames = True
            yield note.label, start, end, sequence.wav_file, in_frames


def _list_columns(song: Any, *, names: tuple[str, str, str], in_frames: bool) -> Calls:
    """Yield calls from the attributes `names` of `song`: labels, starts and ends, an array each."""
    columns = [getattr(song, name) for name in names]
    for label, start, end in zip(*columns, strict=True):
        yield label, start, end, None, in_frames


def _list_sequences(songs: Any) -> Calls:
    """Yield the calls of crowsetta's own table, or those that SongAnnotationGUI wrote."""
    if hasattr(songs, "annots"):  # crowsetta's own table
        pairs = [(song.notated_path, song.seq) for song in songs.annots]
    else:
        sequences = songs.to_seq(round_times=False)
        pairs = list(zip(songs.audio_paths, sequences, strict=True))
    for audio, sequence in pairs:
        name = None if audio is None else str(audio)
        for call in sequence.segments:
            in_frames = call.onset_s is None
            start = call.onset_sample if in_frames else call.onset_s
            end = call.offset_sample if in_frames else call.offset_s
            yield call.label, start, end, name, in_frames


FORMATS = (
    make_format(
        "birdsong-recognition-dataset",
        _list_notes,
        suffixes=(".xml",),
        # The first element is <Sequences>.
        pattern=r"[^<]*(?:<[^A-Za-z_][^<]*)*<Sequences(?![\w.-])",
        reason="it is XML that begins with <Sequences>",
    ),
    make_format(
        "notmat",
        partial(_list_columns, names=("labels", "onsets", "offsets"), in_frames=False),
        suffixes=(".not.mat",),
        pattern="MATLAB",
        reason="it is a MATLAB file called .not.mat",
    ),
    make_format(
        "timit",
        partial(
            _list_columns,
            names=("text", "begin_samples", "end_samples"),
            in_frames=True,
        ),
        suffixes=(".phn", ".wrd"),
        pattern=r"[0-9]+ [0-9]+ \S",
        reason="its lines are two samples and a text, and it is called .phn or .wrd",
    ),
    make_format("generic-seq", _list_sequences),
    make_format(
        "simple-seq",
        partial(
            _list_columns, names=("labels", "onsets_s", "offsets_s"), in_frames=False
        ),
    ),
    make_format("yarden", _list_sequences, suffixes=(".mat",)),
)
