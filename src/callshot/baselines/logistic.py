"""Episodes → the scores of multinomial logistic regression, on all labels and at every k.

Columns are standardised by the rows that a model is trained on; the intercept is not penalised. C,
the inverse strength of the L2 penalty, is given, or chosen for each split on inner folds: the other
folds of the episodes, merged where there are many. `solver`, and `path_solver` for large tables,
find scikit-learn's optimum to more digits in a fraction of the time.

At every k, a fit sees the support set of its draw and nothing else. C is fixed: one exemplar of a
class leaves no inner fold to choose it on. The spreads `shared` and `total` have a fit for each
draw, split and k; `per-query` has one for each draw, query and k. With `total`, exemplars come in
the order of their recordings' weights, a fit does not weigh them, and queries have weights.

Supports are nested over k: each is the beginning of the next, and each fit starts from the one
before. A support that is the whole support side is trained on once.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from threadpoolctl import threadpool_limits

from callshot.baselines.path_solver import PathSolver
from callshot.baselines.scoring import measure
from callshot.baselines.solver import make_problem, multiply, solve
from callshot.errors import OptionError
from callshot.fewshot.centroid import LinearLayer, log_odds
from callshot.fewshot.episodes import Engine, Episodes, Split, open_engine
from callshot.fewshot.gpu.device import Gpu
from callshot.fewshot.mean_interval import sample_means
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.ridge import support_rows
from callshot.fewshot.spreads import Spread, make_spread
from callshot.fewshot.sweep import (
    Categories,
    ComputeLogits,
    FillLogits,
    Scorer,
    sweep,
    widen_total,
)
from callshot.jobs import Check, Pool, never_stop
from callshot.records import COMMON_FOLD, FloatArray, IntArray, Progress, no_progress

C_GRID = (
    *(1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3),
    *(0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    *(10.0, 30.0, 100.0),
)
DEFAULT_C = 0.1  # where no inner folds can choose it
SMALLEST_C = 1e-6
LARGEST_C = 1e6
INNER_FOLDS = 4
DIGITS = 12  # of the means that choose C
# Numbers in the table of rows from which `path_solver` is faster than `solver`.
LARGE_TABLE = 2**17
# How far the objective may be above its optimum.
EXACT = 1e-15  # on all labels
CLOSE = 1e-7  # at every k
# To choose C; times C where C is below 1: the weights shrink with it.
CHOICE_TOLERANCE = 1e-10


def score_logistic(
    episodes: Episodes,
    *,
    c: float | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> tuple[FloatArray, tuple[float, ...]]:
    """Train on all labels outside each fold; return log-odds of its queries, and each fold's C.

    The log-odds are (rows, classes), NaN in the common fold. If C is not given, each split takes
    the C of the grid with the best AUROC on its inner folds (AP has more noise where a fold holds
    few of a class); among equals the one with the best accuracy, then the smallest. With two folds
    C is 0.1.
    """
    if c is not None:
        check_c(c)

    def run(query_fold: int) -> tuple[float, FloatArray]:
        """Return the C of a split, and the logits of its queries."""
        split_c = c
        if split_c is None:
            split_c = choose_c(episodes, query_fold, pool.check_stopped)
        logits = next(score_each(episodes, query_fold, (split_c,)))
        progress(1 / episodes.folds, "logistic")
        return split_c, logits

    # Splits are the parallel work; threads inside each product would wait for each other.
    with threadpool_limits(1, "blas"), Pool(threads) as pool:
        c_values, logits = zip(*pool.map(run, range(episodes.folds)), strict=True)
    return gather_log_odds(episodes, logits), c_values


def choose_c(episodes: Episodes, query_fold: int, check: Check = never_stop) -> float:
    """Return the C of the grid with the best metrics on the inner folds outside one fold.

    AUROC and accuracy are rounded, so that the last digit of a sum does not decide between equals.
    """
    if episodes.folds == 2:  # one fold is left, and inner folds need two
        return DEFAULT_C
    inner = support_side(episodes, query_fold)
    logits_by_fold = []  # of each inner fold: (queries, classes) for each C
    for fold in range(inner.folds):
        logits_by_c = []
        for logits in score_each(inner, fold, C_GRID, CHOICE_TOLERANCE):
            check()
            logits_by_c.append(logits)
        logits_by_fold.append(logits_by_c)
    best_rank: tuple[float, ...] = (-np.inf,)  # AUROC, then accuracy
    best_c = DEFAULT_C  # where AUROC is NaN for every C
    for c, *logits_of_folds in zip(C_GRID, *logits_by_fold, strict=True):
        values = measure(inner, gather_log_odds(inner, logits_of_folds))
        metrics = ("auroc", "accuracy")
        rank = tuple(round(values["all", metric], DIGITS) for metric in metrics)
        if rank > best_rank:
            best_rank = rank
            best_c = c
    return best_c


def score_each(
    episodes: Episodes,
    query_fold: int,
    c_values: tuple[float, ...],
    tolerance: float = EXACT,
) -> Iterator[FloatArray]:
    """Train on the other folds with each C; yield the logits (queries, classes) of `query_fold`.

    The objective of a fit may be `tolerance` above its optimum.
    """
    is_support = episodes.fold != query_fold
    vectors = episodes.vectors[is_support]
    label = episodes.label[is_support]
    # Each distinct query is multiplied once, so that equal ones tie: `place` has its number.
    queries, place = episodes.distinct_at(np.flatnonzero(~is_support))
    classes = len(episodes.classes)
    for layer in fit_each(vectors, label, classes, c_values, tolerance):
        yield layer(queries)[place]


def score_whole_support(
    engine: Engine, split: Split, shots: IntArray, c: float
) -> FloatArray | None:
    """Train on all exemplars outside the fold of a split; return the logits, (classes, queries).

    None if no draw has all exemplars: the largest k leaves some out, or draws are with replacement.
    """
    reaches_all = shots[-1] >= split.largest_pool
    if not (reaches_all and engine.protocol.distinct):
        return None
    logits = next(score_each(engine.episodes, split.fold, (c,)))  # (queries, classes)
    return logits.T


def gather_log_odds(
    episodes: Episodes, logits_of_folds: Sequence[FloatArray]
) -> FloatArray:
    """Return log-odds (rows, classes) from each fold's logits (queries, classes).

    They are NaN in the common fold.
    """
    scores = np.full(episodes.relevant.shape, np.nan)
    for fold, logits in enumerate(logits_of_folds):
        scores[episodes.fold == fold] = log_odds(logits)
    return scores


def support_side(episodes: Episodes, query_fold: int) -> Episodes:
    """Return the rows outside a fold as episodes of their own, with at most four inner folds.

    On these C is chosen. Each row is relevant for its own label only.
    """
    rows = np.flatnonzero(episodes.fold != query_fold)
    label = episodes.label[rows]
    fold = episodes.fold[rows]
    count = min(episodes.folds - 1, INNER_FOLDS)
    is_later = fold > query_fold  # one less, as the fold of the queries is missing
    inner_fold = (fold - is_later) % count
    inner_fold[fold == COMMON_FOLD] = COMMON_FOLD
    classes = len(episodes.classes)
    return replace(
        episodes,
        rows=episodes.rows[rows],
        segment=tuple(episodes.segment[row] for row in rows),
        recording=tuple(episodes.recording[row] for row in rows),
        vectors=episodes.vectors[rows],
        class_start=np.searchsorted(label, np.arange(classes + 1)),  # rows are by class
        fold=inner_fold,
        folds=count,
        relevant=label[:, None] == np.arange(classes),
        segment_key=episodes.segment_key[rows],
        recording_key=episodes.recording_key[rows],
    )


def fit(vectors: FloatArray, label: IntArray, classes: int, c: float) -> LinearLayer:
    """Train a layer to the exact optimum, on vectors (rows, dimensions) and their class numbers."""
    return next(fit_each(vectors, label, classes, (c,), EXACT))


def fit_each(
    vectors: FloatArray,
    label: IntArray,
    classes: int,
    c_values: tuple[float, ...],
    tolerance: float,
) -> Iterator[LinearLayer]:
    """Yield a layer for each C, trained on vectors (rows, dimensions) and their class numbers.

    Each fit starts from the ones before. The objective may be `tolerance` above its optimum, times
    C where C is below 1. `path_solver` fits large tables, `solver` others.
    """
    rows, mean, deviation = standardise(vectors)
    if len(rows) * min(rows.shape) >= LARGE_TABLE:
        solver = PathSolver(rows, label, classes)
        for c in c_values:
            weight, bias, gap = solver.solve(c, tolerance * min(c, 1.0))
            check_optimum(gap, c, tolerance)
            # From standardised rows back to vectors.
            weight = weight / deviation
            yield LinearLayer(weight, bias - weight @ mean)
        return
    problem = make_problem(rows, label, DEFAULT_C)  # C is replaced below
    unknowns = np.zeros((classes, len(problem.columns)))
    bias = np.zeros(classes)
    for c in c_values:
        next_problem = problem._replace(c=c)
        # Changes `unknowns` and `bias` in place: the next fit starts there.
        gap = solve(next_problem, tolerance * min(c, 1.0), unknowns, bias)
        check_optimum(gap, c, tolerance)
        yield LinearLayer(*unscale(unknowns, bias, rows, mean, deviation))


def unscale(
    unknowns: FloatArray,
    bias: FloatArray,
    rows: FloatArray,
    mean: FloatArray,
    deviation: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Turn a fit on standardised rows into the weight and bias for vectors that are not.

    With few rows, `unknowns` are coefficients of the rows (classes, rows), else weights (classes,
    dimensions). Return the weight (classes, dimensions) and the bias (classes).
    """
    weight = unknowns
    if len(rows) <= len(mean):
        weight = np.empty((len(unknowns), len(mean)))
        columns = np.ascontiguousarray(rows.T)
        multiply(unknowns, columns, is_symmetric=False, out=weight)
    weight = weight / deviation
    logits_of_mean = (weight * mean).sum(axis=1)
    return weight, bias - logits_of_mean


def check_c(c: float) -> None:
    """Check that a fit can have this C."""
    if not SMALLEST_C <= c <= LARGEST_C:
        raise OptionError(f"C: expected {SMALLEST_C:g} to {LARGEST_C:g}, got {c:g}")


def check_optimum(gap: float, c: float, tolerance: float) -> None:
    """Check that `gap`, how far a fit's objective may be above its optimum, is small.

    It may be above `tolerance`, where only rounding was left.
    """
    is_near = gap <= max(1e-6, tolerance)  # false for NaN
    if not is_near:
        raise OptionError(
            f"C: with {c:g} a fit of logistic regression stopped {gap:.1g} above its optimum;"
            " try a smaller C"
        )


def standardise(vectors: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the standardised rows, and the mean and deviation of each column.

    The deviation is over n, and at least 1/√n of the median column's: where the few rows of a small
    support happen to agree in a column, dividing by their deviation would make that column the
    largest. (Real elephants, BirdNET, one exemplar of each of three call types: mAP 0.51 without
    the floor, 0.57 with it.) Hundreds of rows never meet it. A column that is constant in the rows
    is 0.
    """
    rows, columns = vectors.shape
    # Relative to the first row: a constant has exactly its value.
    first = vectors[0]
    from_first = vectors - first
    mean = first + from_first.sum(axis=0) / rows
    centred = vectors - mean
    variance = np.square(centred).sum(axis=0) / rows
    deviation = np.sqrt(variance)
    middle = columns // 2
    median = np.partition(deviation, middle)[middle]
    floor = median / np.sqrt(rows)
    np.maximum(deviation, floor, out=deviation)
    deviation[deviation == 0.0] = 1.0
    factor = 1.0 / deviation
    return centred * factor, mean, deviation


DRAWS = 100
ENGINE_BYTES = 2**28  # no matrices are built; this limits the logits of a task

Layers = tuple[FloatArray, FloatArray]  # weight (fits, classes, dimensions) and bias


def sweep_logistic(
    episodes: Episodes,
    protocol: Protocol | None = None,
    spread: str = "shared",
    *,
    c: float = DEFAULT_C,
    draws: int = DRAWS,
    categories: Categories = None,
    shared: MetricSums | None = None,
    threads: int | None = None,
    gpu: Gpu | None = None,
    notes: list[str] | None = None,
    progress: Progress = no_progress,
) -> tuple[IntArray, MetricSums]:
    """Train on the first draws at every k; return k of each row, and the values as `sweep` does.

    `draws` limits the draws of `shared` and the samples of `total`. Given the values of `shared`,
    the values of `total` are widened to predictions; else they are raw samples. With the whole
    pool, the last row has the largest pool as k. Scores are log-odds, whatever the protocol says.
    If a GPU cannot compute fits and metrics, a line is added to `notes`.
    """
    check_c(c)
    protocol = protocol or Protocol()
    protocol = replace(
        protocol,
        score="log",
        shared_draws=min(draws, protocol.shared_draws),
        total_samples=min(draws, protocol.total_samples),
    )
    scorer = Scorer(partial(shared_logits, c), partial(query_logits, c))
    if gpu is not None:
        from callshot.baselines.gpu_logistic import BatchedSolver, GpuTrainer

        scorer = scorer._replace(on_gpu=partial(GpuTrainer, solver=BatchedSolver(c)))
    workers = threads or os.cpu_count() or 1
    rows = len(protocol.shots) + protocol.whole_pool

    def step(share: float) -> None:
        progress(share / rows, "logistic")

    with open_engine(
        episodes, protocol, workers, ENGINE_BYTES, step=step, gpu=gpu, notes=notes
    ) as engine:
        k, sums = sweep(engine, spread, categories, scorer, without_groups=True)
        sums.means = sample_means(engine, sums)
    if spread == "total" and shared is not None:
        widen_total(sums, shared, episodes)
    return k, sums


def shared_logits(
    c: float, engine: Engine, split: Split, shots: IntArray, spread: Spread
) -> ComputeLogits:
    """Return a function that trains at every k on some of the draws that a split's queries share.

    It returns the logits (draws, shots, classes, queries).
    """
    whole, fit = draw_fitter(c, engine, split, shots, spread)
    # Each distinct query is multiplied once, so that equal ones tie: `place` has its number.
    queries, place = engine.episodes.distinct_at(split.rows)
    classes = len(engine.episodes.classes)

    def compute(span: slice) -> FloatArray:
        """Train on the draws in `span`; return the logits (draws, shots, classes, queries)."""
        draws = range(span.start, span.stop)
        logits = np.empty((len(draws), len(shots), classes, len(split.rows)))
        for draw, out in zip(draws, logits, strict=True):
            # Of the first shots; the later ones take all exemplars.
            weight, bias = fit(split.fold, draw)
            fitted_shots = len(bias)
            # One row for each k and class; there is none if every k takes all exemplars.
            dimensions = weight.shape[-1]
            weight_rows = weight.reshape(bias.size, dimensions)
            products = np.empty((bias.size, len(queries)))
            multiply(weight_rows, queries, is_symmetric=False, out=products)
            by_class = products.reshape(*bias.shape, len(queries))
            with_bias = by_class + bias[..., None]
            out[:fitted_shots] = with_bias[..., place]
            out[fitted_shots:] = whole
        return logits

    return compute


def query_logits(
    c: float, engine: Engine, split: Split, shots: IntArray, out: FloatArray
) -> FillLogits:
    """Return a function that trains at every k on each query's own draws.

    It fills in the logits of a slice of the queries in `out` (shots, classes, queries, draws).
    """
    spread = make_spread("per-query", engine.episodes, engine.protocol)
    whole, fit = draw_fitter(c, engine, split, shots, spread)

    def fill(span: slice) -> None:
        """Train on the draws of the queries in `span`, and fill in the logits of these queries."""
        for position in range(span.start, span.stop):
            query = int(split.rows[position])
            vector = engine.episodes.vectors[query]
            for draw in range(engine.protocol.draws):
                # Of the first shots; the later ones take all exemplars.
                weight, bias = fit(query, draw)
                fitted_shots = len(bias)
                out[:fitted_shots, :, position, draw] = weight @ vector + bias
                if whole is not None:
                    out[fitted_shots:, :, position, draw] = whole[:, position]

    return fill


def draw_fitter(
    c: float, engine: Engine, split: Split, shots: IntArray, spread: Spread
) -> tuple[FloatArray | None, Callable[[int, int], Layers]]:
    """Return logits by all exemplars outside the fold of a split, and a function that fits a draw.

    The function gets a query or a fold, as `support_rows` does, and the number of a draw. It trains
    at every k at which the draw leaves out an exemplar, and returns the `Layers` of these k. The
    logits (classes, queries) are for the other, larger k; None if there is no such k.
    """
    episodes = engine.episodes
    whole = score_whole_support(engine, split, shots, c)

    def fit(query_or_fold: int, draw: int) -> Layers:
        """Train on one draw, at every k at which it leaves out an exemplar."""
        rows, sizes = support_rows(spread, query_or_fold, draw, shots)
        if whole is not None:
            smaller = np.searchsorted(sizes, len(split.pool))  # number of sizes
            sizes = sizes[:smaller]
        vectors = episodes.vectors[rows]
        label = episodes.label[rows]
        classes = len(episodes.classes)
        return fit_nested(vectors, label, sizes, classes, c)

    return whole, fit


def fit_nested(
    vectors: FloatArray, label: IntArray, sizes: IntArray, classes: int, c: float
) -> Layers:
    """Train on the first rows of a draw, for each of the growing sizes; start from the fit before.

    `vectors` (rows, dimensions) and `label` (rows) are in the order of the draw. Return the weight
    (sizes, classes, dimensions) and the bias (sizes, classes) of every fit, for vectors that are
    not standardised.
    """
    weights = np.zeros((len(sizes), classes, vectors.shape[1]))
    biases = np.zeros((len(sizes), classes))
    # Of the fit before, for standardised rows.
    unknowns = np.zeros((classes, 0))
    bias = np.zeros(classes)
    for s, size in enumerate(sizes.tolist()):
        # Start from the fit before; at s = 0 this is the last one, still zeros.
        weights[s] = weights[s - 1]
        biases[s] = biases[s - 1]
        if s > 0 and size == sizes[s - 1]:  # no class had another exemplar
            continue
        rows, mean, deviation = standardise(vectors[:size])
        problem = make_problem(rows, label[:size], c)
        if problem.is_gram:  # unknowns are coefficients: new rows begin with zeros
            new_rows = size - unknowns.shape[1]
            zeros = np.zeros((classes, new_rows))
            unknowns = np.hstack([unknowns, zeros])
        else:  # unknowns are weights
            weight = weights[s]
            unknowns = weight * deviation
            logits_of_mean = (weight * mean).sum(axis=1)
            bias = biases[s] + logits_of_mean
        gap = solve(problem, CLOSE, unknowns, bias)  # changes both in place
        check_optimum(gap, c, CLOSE)
        weights[s], biases[s] = unscale(unknowns, bias, rows, mean, deviation)
    return weights, biases
