"""Results of a corpus → its calls as the page shows them: a map, confusions, calls to play."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import zip_longest

import numpy as np

from callshot.records import CorpusResults, Embeddings, FloatArray
from callshot.report.call_scores import Picks, pick_calls, rank_confused, score_calls
from callshot.report.figures.projection import principal_plane
from callshot.report.sounds import Clip
from callshot.report.summary.context import is_random

EXTRA = 36  # calls with a sound besides those that are picked, over all types
MIN_EXTRA = 3  # of each type
MIN_FOR_UMAP = 20
SEED = 0


@dataclass(frozen=True)
class EncoderCalls:
    """The calls of one encoder: places in the plane, the calls behind confusions, and picks."""

    plane: FloatArray
    confused: Sequence[Sequence[Sequence[int]]]
    picks: Sequence[Picks]


@dataclass(frozen=True)
class CorpusCalls:
    """The calls of a corpus; `labels` are the evaluated ones, `clips` are by segment."""

    labels: Sequence[str]
    encoders: Sequence[EncoderCalls]
    method: str
    clips: Mapping[str, Clip] = field(default_factory=dict)


def find_calls(results: CorpusResults) -> CorpusCalls:
    """Return where the calls are, and which ones stand out, for every encoder."""
    evaluation = results.evaluation
    labels = [count.label for count in evaluation.eligible_classes]
    encoders = []
    for table in results.tables:
        scores = score_calls(table, evaluation.folds, labels)
        confused = rank_confused(scores, table.label, labels)
        picks = pick_calls(table, scores, labels)
        encoders.append(EncoderCalls(place_calls(table), confused, picks))
    method = "UMAP" if _has_umap() else "principal components"
    return CorpusCalls(labels, encoders, method)


def place_calls(table: Embeddings) -> FloatArray:
    """Return calls in the plane, (calls, 2), by UMAP if it is installed, else by variance."""
    if _has_umap() and len(table) >= MIN_FOR_UMAP:
        import umap

        reducer = umap.UMAP(random_state=SEED, n_jobs=1)
        return np.asarray(reducer.fit_transform(table.vectors), np.float64)
    points, _ = principal_plane(table.vectors)
    return points


def _has_umap() -> bool:
    return find_spec("umap") is not None


def choose_sounds(calls: CorpusCalls, results: CorpusResults) -> list[str]:
    """Return the segments to play, the most important first: picks, then others of each label."""
    rows: list[int] = []
    for table, encoder in zip(results.tables, calls.encoders, strict=True):
        if not is_random(table.encoder):
            for pick in encoder.picks:
                rows += [pick.typical, pick.nearest, pick.farthest]
    segments = results.evaluation.segments
    most = max(MIN_EXTRA, EXTRA // max(len(calls.labels), 1))
    members = [
        _standard_deviation(segments.label, label, most) for label in calls.labels
    ]
    for together in zip_longest(*members):
        rows += [row for row in together if row is not None]
    return [segments.segment[row] for row in dict.fromkeys(rows)]


def _standard_deviation(labels: Sequence[str], label: str, most: int) -> list[int]:
    """Return a few calls of a label, from the first to the last."""
    rows = [row for row, name in enumerate(labels) if name == label]
    step = max(1, len(rows) // most)
    return rows[::step][:most]
