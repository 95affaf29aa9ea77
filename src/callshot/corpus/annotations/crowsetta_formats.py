"""The formats that crowsetta reads and callshot does not read itself: a file comes in, annotations go out.

Those that count samples give frames, since the rate is the recording's. crowsetta is asked for what it found in the
file, not for its own rounded seconds, for which it would open the audio.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from callshot.corpus.annotations.delimited import table_rows
from callshot.corpus.annotations.mat_check import check_mat
from callshot.corpus.annotations.rows import Hints, Rows
from callshot.corpus.annotations.text import read_text, split_lines
from callshot.errors import CallshotError, InputError

EXTRA = "annotations"


class Call(NamedTuple):
    """What crowsetta found of one annotation."""

    label: Any
    start: Any
    end: Any
    path: str | None = None
    in_frames: bool = False


Reader = Callable[[Any, Path, Hints], Iterator[Call]]


def reader(name: str, calls: Reader) -> Callable[[Rows, Hints], None]:
    """Make the reader of a format out of what takes the calls from crowsetta's class of that name."""
    return partial(_read, name, calls)


def _read(name: str, calls: Reader, rows: Rows, hints: Hints) -> None:
    found = _found(name, calls, rows.path, hints)
    for row, call in enumerate(found, start=1):
        with rows.judging(row):
            rows.add(
                row, call.label, call.start, call.end, path=call.path, in_frames=call.in_frames
            )


def _found(name: str, calls: Reader, path: Path, hints: Hints) -> list[Call]:
    """Let crowsetta read the file; turn whatever it throws into one InputError."""
    with warnings.catch_warnings(action="ignore"):
        formats = _crowsetta(path, name)
        try:
            return [_plain(call) for call in calls(formats.by_name(name), path, hints)]
        except CallshotError:
            raise
        except Exception as error:
            reason = (str(error).partition("\n")[0] or type(error).__name__)[:200]
            raise InputError(f"{path}: crowsetta cannot read it as {name} ({reason})") from error


def _crowsetta(path: Path, name: str) -> Any:
    try:
        return import_module("crowsetta.formats")
    except ImportError as error:
        mend = f"pip install 'callshot[{EXTRA}]'"
        raise InputError(
            f"{path}: the format {name} is read by crowsetta ({error}); to have it: {mend}"
        ) from error


def _plain(call: Call) -> Call:
    """Make plain text and numbers of NumPy's and pandas's; what pandas calls missing is no label."""
    label = (
        ""
        if not isinstance(call.label, str) and str(call.label) in ("<NA>", "nan", "None")
        else str(call.label)
    )
    return call._replace(label=label, start=float(call.start), end=float(call.end))


def birdsong(form: Any, path: Path, hints: Hints) -> Iterator[Call]:
    """Take the notes of Koumura's Annotation.xml, which count from the start of their sequence."""
    _refuse_doctype(path)
    for sequence in form.from_file(path, concat_seqs_into_songs=False).sequences:
        for note in sequence.syls:
            start = sequence.position + note.position
            yield Call(note.label, start, start + note.length, sequence.wav_file, in_frames=True)


def _refuse_doctype(path: Path) -> None:
    """Refuse a document that declares entities, which may grow without bound, or that is not well-formed."""
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise InputError(
            f"{path}: line {parser.CurrentLineNumber}: a DOCTYPE is refused; remove it"
        )

    parser.StartDoctypeDeclHandler = refuse
    try:
        with path.open("rb") as stream:
            parser.ParseFile(stream)
    except expat.ExpatError as error:
        text = expat.ErrorString(error.code)
        raise InputError(f"{path}: line {error.lineno}: wanted well-formed XML ({text})") from None


def notmat(form: Any, path: Path, hints: Hints) -> Iterator[Call]:
    """Take what evsonganaly wrote beside one recording."""
    check_mat(path)
    found = form.from_file(path)
    return starmap(Call, zip(found.labels, found.onsets, found.offsets, strict=True))


def timit(form: Any, path: Path, hints: Hints) -> Iterator[Call]:
    """Take the phones or words of one recording."""
    found = form.from_file(path)
    for label, start, end in zip(found.text, found.begin_samples, found.end_samples, strict=True):
        yield Call(label, start, end, in_frames=True)


def generic_seq(form: Any, path: Path, hints: Hints) -> Iterator[Call]:
    """Take crowsetta's own table, in seconds where it has them."""
    _refuse_ragged(path)
    for annotation in form.from_file(path).annots:
        place = None if str(annotation.notated_path) == "None" else str(annotation.notated_path)
        for one in annotation.seq.segments:
            if one.onset_s is not None:
                yield Call(one.label, one.onset_s, one.offset_s, place)
            else:
                yield Call(one.label, one.onset_sample, one.offset_sample, place, in_frames=True)


def simple_seq(form: Any, path: Path, hints: Hints) -> Iterator[Call]:
    """Take a table of onsets, offsets and labels, in whatever columns the user names."""
    _refuse_ragged(path)
    theirs = {"start_s": "onset_s", "end_s": "offset_s", "label": "label"}
    columns = {name: theirs[ours] for ours, name in hints.columns.items() if ours in theirs}
    label = {} if hints.label is None else {"default_label": hints.label}
    found = form.from_file(path, columns_map=columns or None, **label)
    return starmap(Call, zip(found.labels, found.onsets_s, found.offsets_s, strict=True))


def _refuse_ragged(path: Path) -> None:
    """Refuse rows with more fields than the header: pandas would take the first ones for names of rows, and shift."""
    width = None
    for line, cells in table_rows(path, read_text(path)[0], ","):
        width = len(cells) if width is None else width
        if len(cells) > width:
            raise InputError(
                f"{path}: line {line}: wanted {width} fields as in the header, found {len(cells)}"
            )


def yarden(form: Any, path: Path, hints: Hints) -> Iterator[Call]:
    """Take what SongAnnotationGUI wrote, which has seconds; its samples are made of them."""
    check_mat(path)
    found = form.from_file(path)
    for place, sequence in zip(found.audio_paths, found.to_seq(round_times=False), strict=True):
        for one in sequence.segments:
            yield Call(one.label, one.onset_s, one.offset_s, str(place))


def is_birdsong(path: Path, head: str, hints: Hints) -> str | None:
    """See whether the first element is <Sequences>."""
    first = re.search(r"<([A-Za-z_][\w.-]*)", head)
    named = path.suffix.lower() == ".xml" and first is not None and first[1] == "Sequences"
    return "it is XML that begins with <Sequences>" if named else None


def is_notmat(path: Path, head: str, hints: Hints) -> str | None:
    """See whether it is a MATLAB file and called .not.mat."""
    named = path.name.endswith(".not.mat") and head.startswith("MATLAB")
    return "it is a MATLAB file called .not.mat" if named else None


def is_timit(path: Path, head: str, hints: Hints) -> str | None:
    """See whether it is called .phn or .wrd and begins with two integers."""
    named = path.suffix.lower() in (".phn", ".wrd")
    first = re.match(r"[0-9]+ [0-9]+ \S", split_lines(head)[0])
    return (
        f"it is called {path.suffix} and its lines are two samples and a text"
        if named and first
        else None
    )


def never(path: Path, head: str, hints: Hints) -> str | None:
    """Recognise nothing: the format is read when it is asked for."""
    return None
