"""Embeddings and folds → how near each call is to each call type, and which calls stand out.

A call is compared with the mean of all examples of a call type in other folds: the classifier of
the evaluation, with all labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from callshot.records import Embeddings, FloatArray, Folds

MAX_CALLS = 12  # that a cell of the heat map lists


def score_calls(table: Embeddings, folds: Folds, labels: Sequence[str]) -> FloatArray:
    """Return the score of every call for every label, (calls, labels), as the centroid gives it.

    A score is 2 c·z − |c|², c the mean of all examples of the label in other folds: up to a
    constant of the call, minus its squared distance. NaN if other folds have no example.
    """
    vectors = np.asarray(table.vectors, np.float64)
    label = np.array(table.label)
    scores = np.full((len(vectors), len(labels)), np.nan)
    for fold in np.unique(folds.fold):
        is_query = folds.fold == fold
        is_support = ~is_query | (folds.fold < 0)
        for number, name in enumerate(labels):
            support = vectors[is_support & (label == name)]
            if len(support):
                centre = support.mean(axis=0)
                products = 2 * vectors[is_query] @ centre
                scores[is_query, number] = products - centre @ centre
    return scores


def rank_confused(
    scores: FloatArray, label: Sequence[str], labels: Sequence[str]
) -> list[list[list[int]]]:
    """Return for each pair of labels the calls of the first that are most like the second."""
    names = np.array(label)
    ranked = []
    for true, name in enumerate(labels):
        members = np.flatnonzero(names == name)
        rows = []
        for other in range(len(labels)):
            margin = scores[members, other] - scores[members, true]
            if other == true:
                margin = scores[members, true] - _best_other(scores[members], true)
            order = np.argsort(-np.nan_to_num(margin, nan=-np.inf), kind="stable")
            rows.append(members[order[:MAX_CALLS]].tolist())
        ranked.append(rows)
    return ranked


def _best_other(scores: FloatArray, true: int) -> FloatArray:
    other_scores = np.delete(scores, true, axis=1)
    if other_scores.shape[1] == 0:
        return np.zeros(len(scores))
    best: FloatArray = np.nan_to_num(other_scores, nan=-np.inf).max(axis=1)
    return best


@dataclass(frozen=True)
class Picks:
    """The calls of one type that are worth hearing, by their row.

    `nearest` is the call most like another type, `other` that type; it equals the type itself if
    there is no other.
    """

    typical: int
    nearest: int
    other: int
    farthest: int


def pick_calls(
    table: Embeddings, scores: FloatArray, labels: Sequence[str]
) -> list[Picks]:
    """Return for each label its most typical call, the one nearest to another, and the farthest."""
    vectors = np.asarray(table.vectors, np.float64)
    squares = np.einsum("ij,ij->i", vectors, vectors)
    names = np.array(table.label)
    finite_scores = np.nan_to_num(scores, nan=-np.inf)
    picks = []
    for true, name in enumerate(labels):
        members = np.flatnonzero(names == name)
        own = finite_scores[members, true]
        nearness = own - squares[members]  # minus the squared distance
        nearest, other = _most_like_another(finite_scores[members], true)
        pick = Picks(
            typical=int(members[nearness.argmax()]),
            nearest=int(members[nearest]),
            other=other,
            farthest=int(members[nearness.argmin()]),
        )
        picks.append(pick)
    return picks


def _most_like_another(scores: FloatArray, true: int) -> tuple[int, int]:
    """Return the row with the largest lead of another label, and that label."""
    margins = scores - scores[:, [true]]
    margins[:, true] = -np.inf
    margins = np.nan_to_num(margins, nan=-np.inf, neginf=-np.inf)
    row, other = np.unravel_index(margins.argmax(), margins.shape)
    is_known = np.isfinite(margins[row, other])
    return int(row), int(other) if is_known else true
