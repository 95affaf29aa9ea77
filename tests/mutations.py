"""Damaged annotation files for tests and benchmarks.

`seeds` returns a good file of every format, `damaged` damages them, reproducibly.
"""

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

from callshot.corpus.annotations import AnnotationFile, read_annotations
from callshot.errors import CallshotError

LIMIT_S = 2.0
TEXT = ("textgrid", "raven", "audacity", "csv")

RAVEN = (
    "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\t"
    "Low Freq (Hz)\tHigh Freq (Hz)\tBegin File\tFile Offset (s)\tSpecies\n"
    "1\tWaveform 1\t1\t1.5\t2.25\t\t\ta.wav\t1.5\trumble\n"
    "1\tSpectrogram 1\t1\t1.5\t2.25\t10.5\t200\ta.wav\t1.5\trumble\n"
    "2\tSpectrogram 1\t1\t61.5\t62.25\t10.5\t200\tb.wav\t1.5\troar\n"
)
GERMAN = (
    "Selection\tBegin Time (s)\tEnd Time (s)\tHigh Freq (Hz)\tAnmerkung\r\n"
    '1\t0,5\t2,5\t200,5\t"Löwe, jung"\r\n'
)
GRID = (
    'File type = "ooTextFile"\nObject class = "TextGrid"\n\nxmin = 0\nxmax = 9\n'
    "tiers? <exists>\nsize = 2\nitem []:\n"
    '  item [1]:\n    class = "IntervalTier"\n    name = "call"\n    xmin = 0\n'
    "    xmax = 9\n    intervals: size = 3\n"
    '    intervals [1]:\n      xmin = 0\n      xmax = 1.5\n      text = ""\n'
    "    intervals [2]:\n      xmin = 1.5\n      xmax = 3 ! a comment\n"
    '      text = "a ""deep"" rumble"\n'
    '    intervals [3]:\n      xmin = 3\n      xmax = 9\n      text = "roär\nagain"\n'
    '  item [2]:\n    class = "TextTier"\n    name = "notes"\n    xmin = 0\n'
    "    xmax = 9\n    points: size = 1\n"
    '    points [1]:\n      number = 2.5\n      mark = "wind"\n'
)
SHORT = (
    'File type = "ooTextFile"\n"TextGrid"\n\n0\n9\n<exists>\n1\n"IntervalTier"\n"call"\n0\n9\n2\n'
    '0\n1.5\n"rumble"\n1.5\n9\n"roar"\n'
)
XML = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<Sequences><NumSequence>1</NumSequence><Sequence>\n'
    "<WaveFileName>0.wav</WaveFileName><Position>32000</Position><Length>43168</Length>"
    "<NumNote>2</NumNote>\n"
    "<Note><Position>2240</Position><Length>2688</Length><Label>0</Label></Note>\n"
    "<Note><Position>8256</Position><Length>2784</Length><Label>1</Label></Note>"
    "</Sequence></Sequences>\n"
)
GENERIC = (
    "label,onset_s,offset_s,notated_path,annot_path,sequence,annotation\n"
    "1,0.003,0.1415,a.wav,a.mat,0,0\n1,0.279,0.504,a.wav,a.mat,0,0\n5,0.55,0.59,b.wav,a.mat,0,1\n"
)


@dataclass(frozen=True)
class Seed:
    """A good file: its format, name and content."""

    format: str
    name: str
    raw: bytes


def seeds() -> list[Seed]:
    """Return good files of every format; those of crowsetta only if it is installed."""
    table = (
        "recording,start_s,end_s,label,fold,note\n"
        'a.wav,0.5,2,rumble,0,"x, ""y"""\nb.wav,1,2.5,"ro\nar",1,\n'
    )
    tabs = "Sound_file\tStart_time\tEnd_time\tCall_type\na.wav\t0,5\t2\trürf\n"
    clips = "path;label;recording\r\na.wav;roar;g1\r\nb.wav;rumble;g2\r\n"
    excel = "Datei;Start (ms);Dauer;Art\r\na.wav;1234,5;0:01,5;Lö–we\r\n"
    r = '"sound.files"\t"start"\t"end"\t"label"\n"a.wav"\t0.5\t"00:00:02"\t"roar"\n'
    labels = "0.5\t2.5\trumble\n\\\t10.5\t200\n3\t4\troar\tagain\n5\t5\tpoint\n"
    builtin_seeds = [
        Seed("csv", "calls.csv", table.encode()),
        Seed("csv", "calls.tsv", tabs.encode("latin-1")),
        Seed("csv", "clips.csv", clips.encode("utf-8-sig")),
        Seed("csv", "excel.csv", excel.encode("cp1252")),
        Seed("csv", "r.txt", r.encode()),
        Seed("raven", "a.Table.1.selections.txt", RAVEN.encode()),
        Seed("raven", "b.selections.txt", GERMAN.encode()),
        Seed("audacity", "a.txt", labels.encode()),
        Seed("textgrid", "a.TextGrid", GRID.encode()),
        Seed("textgrid", "b.TextGrid", SHORT.encode("utf-16")),
        Seed("textgrid", "c.TextGrid", GRID.encode("latin-1")),
    ]
    if not find_spec("crowsetta"):
        return builtin_seeds
    notmat = _mat(onsets=[10.0, 20.0], offsets=[15.0, 30.0], labels="ab")
    simple = b"onset_s,offset_s,label\n0.5,1.25,a\n1.5,2.25,b\n"
    return [
        *builtin_seeds,
        Seed("birdsong-recognition-dataset", "Annotation.xml", XML.encode()),
        Seed("notmat", "a.cbin.not.mat", notmat),
        Seed("timit", "sa1.phn", b"0 7812 h#\n7812 9507 sh\n9507 10610 iy\n"),
        Seed("generic-seq", "bird1.csv", GENERIC.encode()),
        Seed("simple-seq", "simple.csv", simple),
        Seed("yarden", "annotation.mat", yarden_mat()),
    ]


def _mat(**variables: object) -> bytes:
    from scipy.io import savemat

    stream = BytesIO()
    savemat(stream, variables)
    header = b"MATLAB 5.0 MAT-file".ljust(116)  # without the time of writing
    return header + stream.getvalue()[116:]


def yarden_mat() -> bytes:
    """Return a file as SongAnnotationGUI writes it: two recordings of two calls."""
    import numpy as np

    names = ("segFileStartTimes", "segFileEndTimes", "segType", "fs")
    recordings = [
        ([0.51234 + i, 1.5], [0.75 + i, 2.0], [1 + i, 2], 48000.0) for i in range(2)
    ]
    elements = np.array(
        [dict(zip(names, values, strict=True)) for values in recordings], dtype=object
    )
    keys = np.array(["a.wav", "b.wav"], dtype=object)
    return _mat(keys=keys, elements=elements)


def mutate(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    """Damage a file in one to four ways."""
    for _ in range(rng.randint(1, 4)):
        raw = rng.choice(MUTATIONS)(raw, other, rng)
    return raw


def _flip(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(raw) + 1)
    return raw[:position] + bytes([rng.randrange(256)]) + raw[position + 1 :]


INSERTIONS = [b'"', b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\t", b",", b";"]
INSERTIONS += [b"\r", b"\n", b"\\", b"!", b"<", "\u2028\x85␛␉".encode()]


def _insert(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(raw) + 1)
    noise = bytes(rng.randrange(256) for _ in range(8))
    insertion = rng.choice([*INSERTIONS, noise])
    return raw[:position] + insertion * rng.choice((1, 1, 2, 1000)) + raw[position:]


def _delete(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(raw) + 1)
    return raw[:position] + raw[position + rng.choice((1, 2, 10, 100)) :]


def _double(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(raw) + 1)
    part = raw[position : position + rng.choice((1, 10, 100))]
    return raw[:position] + part * rng.choice((1, 2, 500)) + raw[position:]


def _truncate(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)]


def _swap_lines(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    lines = raw.split(b"\n")
    first = rng.randrange(len(lines))
    second = rng.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


def _splice(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    return raw[: rng.randrange(len(raw) + 1)] + other[rng.randrange(len(other) + 1) :]


NUMBERS = [b"9" * 400, b"1e999", b"-1", b"nan", b"inf", b"1e-99999999999", b"0x10"]
NUMBERS += ["１２".encode(), b"", b"1_0", b"7" * 200_000, b"-0.0", b"1,5", b"1e308"]


def _blow_up(raw: bytes, other: bytes, rng: random.Random) -> bytes:
    spans = [match.span() for match in re.finditer(rb"[0-9]+", raw)] or [(0, 0)]
    start, end = rng.choice(spans)
    return raw[:start] + rng.choice(NUMBERS) + raw[end:]


Mutation = Callable[[bytes, bytes, random.Random], bytes]
MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _insert,
    _delete,
    _double,
    _truncate,
    _swap_lines,
    _splice,
    _blow_up,
)


@dataclass(frozen=True)
class Outcome:
    """The result of one file: its content, None if it is an error, and the time it took."""

    format: str
    annotation_file: AnnotationFile | None
    seconds: float


def damaged(count: int, seeds: Sequence[Seed]) -> list[tuple[Seed, bytes]]:
    """Make `count` damaged files, from each good one in turn but not of MATLAB.

    SciPy may crash on damaged MATLAB files.
    """
    texts = [seed for seed in seeds if not seed.name.endswith(".mat")]
    return [_damage(texts, i) for i in range(count)]


def _damage(seeds: Sequence[Seed], i: int) -> tuple[Seed, bytes]:
    rng = random.Random(i)
    seed = seeds[i % len(seeds)]
    return seed, mutate(seed.raw, rng.choice(seeds).raw, rng)


def try_to_read(path: Path, format: str) -> Outcome:
    """Read a damaged file; raise unless it is read or gives an error with file and line."""
    start = time.perf_counter()
    annotation_file = None
    message = None
    try:
        annotation_file = read_annotations(path, format)
    except CallshotError as error:
        message = str(error)
    seconds = time.perf_counter() - start
    if message is not None:
        assert str(path) in message, message
        assert "\n" not in message, message
        assert "crowsetta" in message or re.search("(line|row) [0-9]", message), message
    return Outcome(format, annotation_file, seconds)
