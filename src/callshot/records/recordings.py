"""The nouns of a corpus: recordings, what annotates them, and the segments that are cut."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

Cell = str | int | float | None  # what a column that callshot only carries along may hold


@dataclass(frozen=True, slots=True)
class Recording:
    """One audio file: `path` is relative to the audio folder, with `/`; the rate is the one it is read at.

    `missing_s` is how much its header promises beyond what is there.
    """

    path: str
    frames: int
    rate_hz: float
    channels: int
    kind: str
    missing_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """Its length in seconds."""
        return self.frames / self.rate_hz


@dataclass(frozen=True, slots=True)
class Annotation:
    """A label on a span of a recording, as row `row` (from 1) of `file` has it; None where a file is its own label.

    `path` names the audio file as the annotation does; None where the annotation file stands for one recording and is
    paired by its own name. `recording` is the group of recordings that must stay together, where one is given. `end_s`
    is None where the label is on the whole recording. With `in_frames` the times count frames, not seconds.
    """

    path: str | None
    start_s: float
    end_s: float | None
    label: str
    file: str
    row: int | None
    recording: str | None = None
    in_frames: bool = False
    extra: Mapping[str, Cell] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Segment:
    """A span of a recording with the label at its centre and all labels that overlap it. The row of `segments.parquet`.

    `start_s` and `end_s` are the annotated ones; its audio reaches `collar_s` further on both sides, where the
    recording does, is reduced to one channel by `channel_rule`, read at `rate_hz`, and peak-normalised to `level_dbfs`
    unless that is None. `source_rate_hz` replaces the rate in the file's header, where it is not None.
    """

    segment: str
    recording: str
    path: str
    start_s: float
    end_s: float
    collar_s: float
    label: str
    labels: tuple[str, ...]
    rate_hz: int
    channel_rule: str
    level_dbfs: float | None
    source_rate_hz: float | None = None
    extra: Mapping[str, Cell] = field(default_factory=dict)


def name_segments(spans: Sequence[tuple[str, float, float | None, str]]) -> Iterator[str]:
    """Name segments by path and times, or by path alone where they are whole recordings (no end).

    Where two share these, their label and a number are added.

    >>> list(name_segments([("x.wav", 0.0, 1.5, "a"), ("x.wav", 0.0, 1.5, "b"), ("y.wav", 0.0, None, "a")]))
    ['x.wav@0-1.5 a', 'x.wav@0-1.5 b', 'y.wav']
    """
    names = [
        path if end is None else f"{path}@{_time(start)}-{_time(end)}"
        for path, start, end, _ in spans
    ]
    taken, shared = set[str](), Counter(names)
    for (*_, label), name in zip(spans, names, strict=True):
        own = f"{name} {label}" if shared[name] > 1 else name
        free = next(n for n in chain([own], (f"{own} #{i}" for i in count(2))) if n not in taken)
        taken.add(free)
        yield free


def _time(seconds: float) -> str:
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True)
class Reject:
    """What was left out: a row of a file, or (`row` None) all of a file. The row of `rejects.csv`."""

    file: str
    row: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Call:
    """An annotation in its place: on a recording that is there, in seconds, with its label as the corpus spells it.

    `recording` is the group that its file is in, or the file's own path.
    """

    path: str
    recording: str
    start_s: float
    end_s: float
    label: str
    annotation: Annotation

    @property
    def duration_s(self) -> float:
        """Its length in seconds, without collar."""
        return self.end_s - self.start_s


@dataclass(frozen=True)
class Segmentation:
    """What became of the annotations of a corpus: `read` of them are segments or rejects, none is neither.

    `calls` are all that have a place, also those that are too short; `refused` are whole files that were left out.
    """

    recordings: Sequence[Recording]
    annotated: frozenset[str]
    sources: Sequence[tuple[str, str, int]]  # format, how it was recognised, and how many files
    annotation_count: int
    calls: Sequence[Call]
    segments: Sequence[Segment]
    rejects: Sequence[Reject]
    skipped_files: Sequence[Reject]
    notes: Sequence[str]
