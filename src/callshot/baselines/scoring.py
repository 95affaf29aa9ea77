"""The scores of a rival, one row per segment → the metrics of the centroid: the same kernels, ties and means.

A rival gives every query a score for every class, by a model that never saw the query's fold. Rows of the common fold
are no queries: what stands there is not read.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.episodes import Episodes, Split, splits
from callshot.fewshot.kernels.ranks import FoldMetrics, measure_fold
from callshot.fewshot.metrics import auroc, average_precision
from callshot.fewshot.shared_resampling import empty_metrics
from callshot.records import FloatArray, IntArray


def measure(
    episodes: Episodes, scores: FloatArray, categories: Mapping[str, str] | None = None
) -> dict[tuple[str, str], float]:
    """Return the value of every scoring and metric; `scores` is (rows, classes).

    AUROC is NaN where no class of any fold has one.

    >>> from callshot.fewshot.folds import check_folds, count_classes
    >>> from callshot.fewshot.episodes import plan_episodes
    >>> from callshot.records import Embeddings
    >>> label, fold = ["roar", "rumble"] * 2, np.array([0, 0, 1, 1])
    >>> table = Embeddings("mine", [[0.0], [1.0]] * 2, "abcd", "wxyz", label, [()] * 4, fold)
    >>> folds = check_folds(table.recording, fold)
    >>> episodes = plan_episodes(table, folds, count_classes(label, folds))
    >>> measure(episodes, np.array([[2.0, 1.0], [3.0, 1.0], [2.0, 5.0], [2.0, 0.0]]))  # roar, roar, rumble, rumble
    {('all', 'map'): 0.75, ('all', 'auroc'): 0.625, ('all', 'accuracy'): 0.75}
    """
    values = tally_scores(episodes, scores, categories).values
    return {key: float(table[0, 0]) for key, table in values.items()}


def measure_outputs(
    targets: NDArray[np.bool_], fold: IntArray, scores: FloatArray
) -> dict[str, float]:
    """Return mAP and AUROC of outputs that may be true together, such as categories: means over outputs, then folds.

    All three are by row, `targets` and `scores` also by output. An output without a positive in a fold is left out of
    that fold's means; one with positives alone is left out of its AUROC, and has an AP of 1. A fold that this empties
    is left out, and NaN is returned where it empties all. Rows of the common fold are not read.

    >>> targets = np.array([[True, False], [False, True], [True, True], [False, True]])
    >>> measure_outputs(targets, np.array([0, 0, 1, 1]), np.array([[2.0, 1.0], [1.0, 2.0], [0.0, 1.0], [3.0, 4.0]]))
    {'map': 0.875, 'auroc': 0.5}
    """
    if targets.shape != scores.shape or len(fold) != len(targets):
        raise InputError(
            f"one score for each row and output: wanted shape {targets.shape}, got {scores.shape}"
        )
    parts = [
        (targets[fold == number], scores[fold == number]) for number in range(int(fold.max()) + 1)
    ]
    return {
        "map": _mean(
            [
                _mean([average_precision(s, t) for t, s in _columns(part) if t.any()])
                for part in parts
            ]
        ),
        "auroc": _mean(
            [_mean([auroc(s, t) for t, s in _columns(part) if t.any()]) for part in parts]
        ),
    }


def _columns(
    part: tuple[NDArray[np.bool_], FloatArray],
) -> Iterator[tuple[NDArray[np.bool_], FloatArray]]:
    return zip(part[0].T, part[1].T, strict=True)


def _mean(values: Sequence[float]) -> float:
    """Average what is defined."""
    defined = [value for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")


def tally_scores(
    episodes: Episodes, scores: FloatArray, categories: Mapping[str, str] | None = None
) -> MetricSums:
    """Return everything that the engine counts: one row of shots, one sample."""
    wanted = episodes.relevant.shape
    if scores.shape != wanted:
        raise InputError(
            f"one score for each row and class: wanted shape {wanted}, got {scores.shape}"
        )
    tally = MetricSums(1, 1, episodes.classes, categories)
    for part in splits(episodes):
        found = _measure_split(part, scores[part.rows])
        tally.decisions += found.decisions
        tally.tied += found.tied
        tally.add(0, part, *(x.reshape(-1, 1) for x in (found.ap, found.auroc, found.hits)))
        tally.close_fold(part)
    tally.finish(1)
    return tally


def _measure_split(part: Split, scores: FloatArray) -> FoldMetrics:
    """Take the metrics of one fold; `scores` is (queries, classes)."""
    bad = np.flatnonzero(np.isnan(scores).any(axis=1))
    if bad.size:
        raise InputError(
            f"the query in row {part.rows[bad[0]]} of the episodes has no score: wanted numbers"
        )
    table = np.ascontiguousarray(scores.T, np.float64)[None, None]
    found = empty_metrics(1, 1, len(part.relevant))
    measure_fold(table, table.argmax(axis=2).astype(np.uint16), part.truth, found)
    return found
