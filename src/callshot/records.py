"""The nouns: what the rooms hand to each other.

Recording    one audio file
Annotation   a label on a span of a recording, as an annotation file has it
Call         an annotation in its place
Segment      a span that carries one label, and how its audio is to be read
Reject       a row or a file that was left out, and why
Segmentation all of that, for a corpus
Embeddings   what an encoder made of the segments of a corpus
EncoderState what an encoder needs before it runs
Folds        which fold each segment is in, and how that came about
ClassCount   one class: its exemplars, how far it is complete, and whether it is evaluated
Episode      one query against one draw, told whole
Inspection   what a folder holds, before anything is decided
Curve        one point of a k-shot curve, with ClassCurve, Values, Confusion and Ties behind it
Evaluation   all of that, for every encoder
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

COMMON_FOLD = -1


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
    more: Mapping[str, Cell] = field(default_factory=dict)


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
    more: Mapping[str, Cell] = field(default_factory=dict)


def name_segments(spans: Sequence[tuple[str, float, float | None, str]]) -> Iterator[str]:
    """Name segments by path and times, or by path alone where they are whole recordings (no end).

    Where two share these, their label and a number are added.

    >>> list(name_segments([("x.wav", 0.0, 1.5, "a"), ("x.wav", 0.0, 1.5, "b"), ("y.wav", 0.0, None, "a")]))
    ['x.wav@0-1.5 a', 'x.wav@0-1.5 b', 'y.wav']
    """
    names = [path if end is None else f"{path}@{_time(start)}-{_time(end)}" for path, start, end, _ in spans]
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


@dataclass(frozen=True)
class Segmentation:
    """What became of the annotations of a corpus: `read` of them are segments or rejects, none is neither.

    `calls` are all that have a place, also those that are too short; `refused` are whole files that were left out.
    """

    recordings: Sequence[Recording]
    annotated: frozenset[str]
    sources: Sequence[tuple[str, str, int]]  # format, how it was recognised, and how many files
    read: int
    calls: Sequence[Call]
    segments: Sequence[Segment]
    rejects: Sequence[Reject]
    refused: Sequence[Reject]
    notes: Sequence[str]


@dataclass(frozen=True)
class Embeddings:
    """Vectors of one encoder, a row per segment.

    `vectors` is (segments, dimensions); the other columns have one entry per row. `label` is the
    label at the segment's centre, `labels` all that overlap it (the centre label among them).
    `fold` is None where no folds were given.
    """

    encoder: str
    vectors: NDArray[np.floating[Any]]
    segment: Sequence[str]
    recording: Sequence[str]
    label: Sequence[str]
    labels: Sequence[tuple[str, ...]]
    fold: IntArray | None = None
    source: str = "memory"

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", _matrix(self.source, self.vectors))
        for name in ("segment", "recording", "label"):
            object.__setattr__(self, name, tuple(str(entry) for entry in getattr(self, name)))
        if any(isinstance(entry, str) for entry in self.labels):
            raise InputError(f"{self.source}: column labels: wanted a tuple of labels in each row, found text")
        columns = {"segment": self.segment, "recording": self.recording, "label": self.label, "labels": self.labels}
        if self.fold is not None:
            columns["fold"] = self.fold  # type: ignore[assignment]
        for name, column in columns.items():
            if len(column) != len(self.vectors):
                raise InputError(
                    f"{self.source}: column {name} has {len(column)} entries for {len(self.vectors)} vectors"
                )

    def __len__(self) -> int:
        return len(self.segment)


def _matrix(source: str, vectors: Any) -> NDArray[np.floating[Any]]:
    """Return vectors as a matrix of floats: float32 stays so, all others become float64."""
    try:
        table = np.asarray(vectors)
        table = table if table.dtype == np.float32 else np.asarray(table, np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"{source}: column embedding: wanted numbers, as many in every row ({error})") from None
    if table.ndim != 2 or table.shape[1] == 0:
        raise InputError(f"{source}: column embedding: wanted (segments, dimensions), found shape {table.shape}")
    return table


@dataclass(frozen=True)
class EncoderState:
    """An encoder, what its segments are cut into, and what is still to be done before it runs.

    `weights` are the name and the source of each file, and whether it is there.
    """

    name: str
    title: str
    dimension: int
    input: str
    licence: str
    level: str
    needs: tuple[str, ...]
    weights: tuple[tuple[str, str, bool], ...]


@dataclass(frozen=True)
class Folds:
    """The fold of each segment, 0 to count − 1, or −1 for the common fold.

    `origin` is "given" or "built"; `proof` says in words how good built folds are known to be.
    """

    fold: IntArray
    count: int
    origin: str
    proof: str = ""


@dataclass(frozen=True)
class ClassCount:
    """One class in the bookkeeping of folds; `reason` says why it is not eligible."""

    label: str
    exemplars: int
    complete_to_k: int
    eligible: bool
    reason: str = ""
    per_fold: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Episode:
    """One query, one draw: the support set, by label, and the query's scores."""

    segment: str
    k: int
    draw: int
    support: dict[str, tuple[str, ...]]
    scores: dict[str, float]


@dataclass(frozen=True)
class Curve:
    """One point of a curve: a metric at k, over the samples of a spread. The row of `curve.csv`."""

    corpus: str
    encoder: str
    classifier: str
    scoring: str
    metric: str
    spread: str
    k: int
    mean: float
    p01: float
    p25: float
    p50: float
    p75: float
    p99: float
    chance: float
    complete: bool
    new_exemplars: int
    ties: int


@dataclass(frozen=True)
class ClassCurve:
    """One point of one class's curve. The row of `per_class.csv`."""

    corpus: str
    encoder: str
    classifier: str
    scoring: str
    metric: str
    spread: str
    k: int
    label: str
    mean: float
    p01: float
    p99: float


@dataclass(frozen=True)
class Values:
    """Every value behind the points of one curve: `value` is (k, samples)."""

    corpus: str
    encoder: str
    classifier: str
    scoring: str
    metric: str
    spread: str
    k: IntArray
    value: FloatArray


@dataclass(frozen=True)
class Confusion:
    """Mean number of queries, over draws, with a label and a decision; a hit on any label is on the diagonal."""

    encoder: str
    k: int
    true: str
    predicted: str
    count: float


@dataclass(frozen=True)
class Ties:
    """How many scores of a class's positives equal another query's, which share that is, and what it cost.

    The cost is the metric with log-odds less the metric with the scores that tied, on the same draws.
    """

    encoder: str
    spread: str
    k: int
    label: str
    ties: int
    share: float
    cost_map: float
    cost_auroc: float


@dataclass(frozen=True)
class Inspection:
    """What a folder holds before anything is decided, and what the protocol could do with it.

    `minimum_s` is the shorter minimum that was tried, where the given one would drop most calls. `possible` tells how
    many labels are in enough recordings for a number of folds; `folds` is None where there are too few recordings.
    """

    segmentation: Segmentation
    minimum_s: float | None
    possible: Mapping[int, int]
    folds: Folds | None
    classes: Sequence[ClassCount]
    complete_shots: int


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found, for every encoder."""

    corpus: str
    complete_shots: int
    queries: int
    curve: list[Curve]
    values: list[Values]
    per_class: list[ClassCurve]
    confusion: list[Confusion]
    ties: list[Ties]
    classes: list[ClassCount]
    folds: Folds
    segments: Embeddings
    notes: list[str]
