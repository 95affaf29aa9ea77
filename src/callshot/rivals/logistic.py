"""Episodes → the scores of multinomial logistic regression, trained on the whole support side of every split.

Columns are standardised by the rows that a model is trained on and by nothing else (`scaling`); the intercept is not
penalised. The strength C of the L2 penalty is given, or chosen for each split by inner folds. These are the other folds
of the episodes, a few together where there are many: no recording is in two of them, and each has every class.

scikit-learn is the golden of the tests, and not used here: `solver` finds the same optimum to more digits in a fraction
of the time, and needs no extra.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from callshot.errors import OptionError
from callshot.fewshot.centroid import LinearLayer, score
from callshot.fewshot.episodes import Episodes
from callshot.fewshot.folds import audit
from callshot.records import COMMON_FOLD, FloatArray, IntArray
from callshot.rivals.measuring import measure
from callshot.rivals.scaling import standardise
from callshot.rivals.solver import gram_matrix, solve

Report = Callable[[float, str], None]

GRID = tuple(10.0**power for power in range(-4, 3))  # of C
STRENGTH = 0.1  # where there is nothing to choose it by
SMALLEST, LARGEST = 1e-6, 1e6
INNER_FOLDS = 4
EXACT, CLOSE = 1e-15, 1e-8  # how far J may be above its optimum


def score_logistic(
    episodes: Episodes,
    groups: IntArray,
    *,
    strength: float | None = None,
    threads: int | None = None,
    report: Report = lambda share, what: None,
) -> tuple[FloatArray, tuple[float, ...]]:
    """Return the log-odds of every query, (rows, classes), and the strength C of each split.

    `groups` is the number of each row's recording. Without a strength, each split takes the C of the grid with the best
    AUROC on its inner folds (AP has more noise where a fold holds few of a class), of equals that with the best
    accuracy, then the smallest. Two folds leave no inner ones: then it is 0.1. Nothing is random.
    """
    if strength is not None:
        check_strength(strength)
    audit([str(group) for group in groups], episodes.fold)
    scores = np.full(episodes.relevant.shape, np.nan)

    def run(number: int) -> float:
        chosen = choose_strength(episodes, number) if strength is None else strength
        queries = episodes.fold == number
        scores[queries] = score(score_split(episodes, number, (chosen,))[0])
        report(1 / episodes.folds, "logistic")
        return chosen

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return scores, tuple(pool.map(run, range(episodes.folds)))


def choose_strength(episodes: Episodes, number: int) -> float:
    """Return the strength of the grid that ranks best on the inner folds of one split."""
    if episodes.folds == 2:
        return STRENGTH
    inner = support_side(episodes, number)
    tables = np.full((len(GRID), *inner.relevant.shape), np.nan)
    for fold in range(inner.folds):
        tables[:, inner.fold == fold] = score_split(inner, fold, GRID, CLOSE)
    found = [measure(inner, score(table)) for table in tables]
    best = max(range(len(GRID)), key=lambda i: (found[i]["all", "auroc"], found[i]["all", "accuracy"]))
    return GRID[best]


def score_split(episodes: Episodes, number: int, strengths: tuple[float, ...], tolerance: float = EXACT) -> FloatArray:
    """Return a_n of the queries of one fold by each strength, (strengths, queries, classes), each from the one before.

    Each distinct query is multiplied once, so that equal ones tie.
    """
    outside = episodes.fold != number
    queries, place = episodes.distinct_at(np.flatnonzero(~outside))
    layer, found = None, []
    for strength in strengths:
        layer = fit(
            episodes.vectors[outside], episodes.label[outside], episodes.classes, strength, start=layer,
            tolerance=tolerance,
        )  # fmt: skip
        found.append(layer(queries)[place])
    return np.stack(found)


def support_side(episodes: Episodes, number: int) -> Episodes:
    """Return what one split may learn from, as episodes of its own: inner folds, and the centre label alone."""
    rows = np.flatnonzero(episodes.fold != number)
    label, fold = episodes.label[rows], episodes.fold[rows]
    count = min(episodes.folds - 1, INNER_FOLDS)
    inner = np.where(fold == COMMON_FOLD, COMMON_FOLD, (fold - (fold > number)) % count)
    return replace(
        episodes,
        vectors=episodes.vectors[rows],
        class_start=np.searchsorted(label, np.arange(len(episodes.classes) + 1)),
        fold=inner,
        folds=count,
        relevant=label[:, None] == np.arange(len(episodes.classes)),
        segment_key=episodes.segment_key[rows],
    )


def fit(
    vectors: FloatArray,
    label: IntArray,
    classes: tuple[str, ...],
    strength: float,
    *,
    start: LinearLayer | None = None,
    tolerance: float = EXACT,
) -> LinearLayer:
    """Train a layer on rows and their class numbers, from nothing or from another layer.

    >>> layer = fit(np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1]), ("roar", "rumble"), 1.0)
    >>> layer([[0.0], [9.0]]).argmax(axis=1)
    array([0, 1])
    """
    rows, mean, deviation = standardise(vectors)
    gram, bias = len(rows) <= rows.shape[1], np.zeros(len(classes))
    weight = np.zeros((len(classes), min(rows.shape)))
    if start is not None and not gram:
        weight, bias = start.weight * deviation, start.bias + start.weight @ mean
    table = gram_matrix(rows) if gram else rows
    left = solve(table, np.ascontiguousarray(table.T), gram, label, strength, tolerance, weight, bias)
    check_optimum(left, strength)
    weight = (weight @ rows if gram else weight) / deviation
    return LinearLayer(classes, weight, bias - weight @ mean)


def check_strength(strength: float) -> None:
    """Refuse a strength that no fit can have."""
    if not SMALLEST <= strength <= LARGEST:
        raise OptionError(f"strength: C is {SMALLEST:g} to {LARGEST:g}, got {strength:g}")


def check_optimum(left: float, strength: float) -> None:
    """Refuse a fit that stopped short of its optimum."""
    if not left <= 1e-6:
        raise OptionError(
            f"strength: with C = {strength:g} a fit stopped {left:.1g} above its optimum; try a smaller C"
        )
