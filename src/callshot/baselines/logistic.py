"""Episodes → the scores of multinomial logistic regression, trained on the whole support side of every split.

Columns are standardised by the rows that a model is trained on and by nothing else (`scaling`); the intercept is not
penalised. The strength C of the L2 penalty is given, or chosen for each split by inner folds. These are the other folds
of the episodes, a few together where there are many: no recording is in two of them, and each has every class.

scikit-learn is the golden of the tests, and not used here: `solver` finds the same optimum to more digits in a fraction
of the time, and needs no extra.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from callshot.baselines.kernels.solver import gram_matrix, solve
from callshot.baselines.scoring import measure
from callshot.baselines.standardize import standardise
from callshot.errors import OptionError
from callshot.fewshot.centroid import LinearLayer, log_odds
from callshot.fewshot.episodes import Episodes
from callshot.fewshot.folds import audit
from callshot.records import COMMON_FOLD, FloatArray, IntArray, Progress, no_progress

GRID = (
    *(float(f"{digit}e{power}") for power in range(-5, 2) for digit in (1, 3)),
    100.0,
)  # of C: 0.00001, 0.00003, …
WORSE = 0.01  # of AUROC
DEFAULT_C = 0.1  # where there is nothing to choose it by
SMALLEST, LARGEST = 1e-6, 1e6
INNER_FOLDS = 4
EXACT, CLOSE, NEAR = (
    1e-15,
    1e-7,
    1e-4,
)  # how far J may be above its optimum: all labels, at every k, to choose C


def score_logistic(
    episodes: Episodes,
    groups: IntArray,
    *,
    strength: float | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> tuple[FloatArray, tuple[float, ...]]:
    """Return the log-odds of every query, (rows, classes), and the strength C of each split.

    `groups` is the number of each row's recording. Without a strength, each split takes the C of the grid with the best
    AUROC on its inner folds (AP has more noise where a fold holds few of a class), of equals that with the best
    accuracy, then the smallest. Two folds leave no inner ones: then it is 0.1. Nothing is random.
    """
    if strength is not None:
        check_c(strength)
    audit([str(group) for group in groups], episodes.fold)
    scores = np.full(episodes.relevant.shape, np.nan)

    def run(number: int) -> float:
        chosen = choose_c(episodes, number) if strength is None else strength
        queries = episodes.fold == number
        scores[queries] = log_odds(next(score_each(episodes, number, (chosen,))))
        progress(1 / episodes.folds, "logistic")
        return chosen

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        return scores, tuple(pool.map(run, range(episodes.folds)))


def choose_c(episodes: Episodes, number: int) -> float:
    """Return the strength of the grid that ranks best on the inner folds of one split.

    The inner folds go through the grid side by side, from the strongest penalty on, until they rank clearly worse.
    """
    if episodes.folds == 2:
        return DEFAULT_C
    inner = support_side(episodes, number)
    ways = [score_each(inner, fold, GRID, NEAR) for fold in range(inner.folds)]
    best, chosen = (-np.inf, -np.inf), DEFAULT_C
    for strength, *tables in zip(GRID, *ways, strict=True):
        found = measure(inner, gather(inner, tables))
        rank = found["all", "auroc"], found["all", "accuracy"]
        if rank > best:
            best, chosen = rank, strength
        if rank[0] < best[0] - WORSE:
            break
    return chosen


def score_each(
    episodes: Episodes, number: int, c_values: tuple[float, ...], tolerance: float = EXACT
) -> Iterator[FloatArray]:
    """Yield a_n of the queries of one fold, (queries, classes), by each strength.

    Each distinct query is multiplied once, so that equal ones tie.
    """
    outside = episodes.fold != number
    queries, place = episodes.distinct_at(np.flatnonzero(~outside))
    for layer in fit_each(
        episodes.vectors[outside], episodes.label[outside], episodes.classes, c_values, tolerance
    ):
        yield layer(queries)[place]


def gather(episodes: Episodes, a: Sequence[FloatArray]) -> FloatArray:
    """Return the log-odds of every query, (rows, classes), from a_n of each split."""
    scores = np.full(episodes.relevant.shape, np.nan)
    for number, table in enumerate(a):
        scores[episodes.fold == number] = log_odds(table)
    return scores


def support_side(episodes: Episodes, number: int) -> Episodes:
    """Return what one split may learn from, as episodes of its own: inner folds, and the centre label alone."""
    rows = np.flatnonzero(episodes.fold != number)
    label, fold = episodes.label[rows], episodes.fold[rows]
    count = min(episodes.folds - 1, INNER_FOLDS)
    inner = np.where(fold == COMMON_FOLD, COMMON_FOLD, (fold - (fold > number)) % count)
    return replace(
        episodes,
        rows=episodes.rows[rows],
        segment=tuple(episodes.segment[row] for row in rows),
        recording=tuple(episodes.recording[row] for row in rows),
        vectors=episodes.vectors[rows],
        class_start=np.searchsorted(label, np.arange(len(episodes.classes) + 1)),
        fold=inner,
        folds=count,
        relevant=label[:, None] == np.arange(len(episodes.classes)),
        segment_key=episodes.segment_key[rows],
    )


def fit(
    vectors: FloatArray, label: IntArray, classes: tuple[str, ...], strength: float
) -> LinearLayer:
    """Train a layer on rows and their class numbers.

    >>> layer = fit(np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1]), ("roar", "rumble"), 1.0)
    >>> layer([[0.0], [9.0]]).argmax(axis=1)
    array([0, 1])
    """
    return next(fit_each(vectors, label, classes, (strength,), EXACT))


def fit_each(
    vectors: FloatArray,
    label: IntArray,
    classes: tuple[str, ...],
    c_values: tuple[float, ...],
    tolerance: float,
) -> Iterator[LinearLayer]:
    """Train a layer with each strength, from the one before."""
    rows, mean, deviation = standardise(vectors)
    gram = len(rows) <= rows.shape[1]
    table = gram_matrix(rows) if gram else rows
    columns = table if gram else np.ascontiguousarray(table.T)
    numbers, bias = np.zeros((len(classes), table.shape[1])), np.zeros(len(classes))
    for strength in c_values:
        left = solve(table, columns, gram, label, strength, tolerance, numbers, bias)
        check_optimum(left, strength, tolerance)
        weight = (numbers @ rows if gram else numbers) / deviation
        yield LinearLayer(classes, weight, bias - weight @ mean)


def check_c(strength: float) -> None:
    """Refuse a strength that no fit can have."""
    if not SMALLEST <= strength <= LARGEST:
        raise OptionError(f"strength: C is {SMALLEST:g} to {LARGEST:g}, got {strength:g}")


def check_optimum(left: float, strength: float, tolerance: float) -> None:
    """Refuse a fit that stopped short of its optimum."""
    if not left <= max(1e-6, tolerance):
        raise OptionError(
            f"strength: with C = {strength:g} a fit stopped {left:.1g} above its optimum; try a smaller C"
        )
