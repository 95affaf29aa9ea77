"""Scores of all labels → what the page shows of each item."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from callshot.records import FloatArray, IntArray


@dataclass(frozen=True)
class Ranking:
    """Of each item: the score of its label, the best other label, and the nearest distance."""

    score: FloatArray
    distance: FloatArray
    runner_up: IntArray
    runner_up_score: FloatArray


def rank_columns(
    all_scores: Any,
    distances: Any,
    columns: Sequence[str],
    labels: Sequence[str],
    label: IntArray,
) -> Ranking:
    """Return the ranking of items by scores, items × columns; NaN: a label without a score.

    `label` has the number of the label of each item in `labels`, −1 for none.
    """
    places = [_find(name, columns) for name in labels]
    own = np.array([*places, -1])[label]
    rows = np.arange(len(own))
    score = np.where(own >= 0, all_scores[rows, own], np.nan)
    other, other_score = _find_best_other(all_scores, own)
    to_label = np.array([_find(name, labels) for name in columns])
    return Ranking(
        score.astype(np.float64),
        _find_nearest(distances),
        np.where(np.isnan(other_score), -1, to_label[other]),
        other_score,
    )


def _find(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else -1


def _find_nearest(distances: Any) -> FloatArray:
    """Return the least distance of each item, NaN if it has none."""
    nearest = np.where(np.isnan(distances), np.inf, distances).min(axis=1)
    return np.where(np.isfinite(nearest), nearest, np.nan).astype(np.float64)


def _find_best_other(all_scores: Any, own: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the best column of each item beside its own, and the score; NaN if there is none."""
    rows = np.arange(len(own))
    has_own = own >= 0
    others = np.where(np.isnan(all_scores), -np.inf, all_scores)
    others[rows[has_own], own[has_own]] = -np.inf
    best = others.argmax(axis=1)
    score = others[rows, best].astype(np.float64)
    score[np.isneginf(score)] = np.nan
    return best, score
