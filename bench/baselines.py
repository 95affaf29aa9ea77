# ruff: noqa: E402 (threads are set before NumPy is imported)
"""Logistic regression at every k against a loop over scikit-learn, shaped like Elephant Voices.

12 call types, 257 queries, 5 folds, k = 1 … 40, 100 shared draws: 20,000 fits. One thread each, CPU
seconds in one run, scaled up by the counts: callshot's from a few draws, scikit-learn's from some k
of them. Both standardise by the same rule and score the queries; callshot also takes the metrics.
scikit-learn runs twice: with a tolerance that brings it within a millionth of the optimum, and with
its defaults. Gaps are of J, the sum over rows.

Then logistic regression on all labels, on 1,701 calls × 1,024 values of 10 call types: C is chosen
on the inner folds of every split (300 fits), and the split is trained with it. scikit-learn runs
the same fits on one split with --quick, on all splits otherwise.

With --table FILE …, embeddings of a corpus: the scores of logistic regression on all labels, the k
from which it is ahead of the centroid on the same draws, and the k at which the centroid passes
logistic regression on all labels.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

sys.path.append(str(Path(__file__).parents[1] / "examples"))

import paper_shapes

from callshot.baselines.centroid_to_logistic import refine_centroid
from callshot.baselines.logistic import (
    C_GRID,
    DEFAULT_C,
    DRAWS,
    INNER_FOLDS,
    choose_c,
    fit,
    fit_nested,
    score_each,
    score_logistic,
    standardise,
    support_rows,
    support_side,
    sweep_logistic,
)
from callshot.baselines.scoring import measure
from callshot.fewshot.centroid import log_odds
from callshot.fewshot.differences import find_crossovers
from callshot.fewshot.episodes import Episodes, open_engine, plan_episodes
from callshot.fewshot.folds import choose_folds, count_classes
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import make_spread
from callshot.fewshot.sweep import sweep
from callshot.records import FloatArray
from callshot.records.frames import BASELINES, make_frame, values_frame
from callshot.tables.embedding_tables import read_table
from callshot.vectors import Vectors
from table import parser, show

SHOTS = np.arange(1, 41)
SAMPLED_SHOTS = np.array([1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40])
SHOWN_SHOTS = (1, 2, 5, 10, 20, 40)
SCIKIT_LEARN = {
    "scikit-learn, tol 1e-6": {"tol": 1e-6, "max_iter": 10_000},
    "scikit-learn, defaults": {},
}

# Of the corpus of real size; shares of the call types, and how fast the deviations of the
# directions of its vectors fall.
CALLS = 1701
VALUES = 1024
SHARES = (0.25, 0.2, 0.15, 0.1, 0.08, 0.07, 0.05, 0.04, 0.03, 0.03)
DECAY = 0.7
CALLS_PER_RECORDING = 5
CONVERGED = {"tol": 1e-9, "max_iter": 100_000, "solver": "newton-cg"}

Row = dict[str, object]


def make_episodes(table: Vectors) -> Episodes:
    """Return the episodes of a table."""
    folds = choose_folds(table.spans)
    return plan_episodes(
        table, folds, count_classes(table.label, folds, table.recording)
    )


def synthetic_episodes(dimensions: int) -> Episodes:
    """Return episodes with the counts and folds of Elephant Voices."""
    paper_shapes.DIMENSIONS = dimensions
    return make_episodes(paper_shapes.imitate("elephant-voices", "synthetic-strong"))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def objective(rows, label, weight, bias, c) -> float:
    """Return J."""
    logits = rows @ weight.T + bias
    loss = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(label)), label]
    return float(loss.sum() + (weight**2).sum() / (2 * c))


def fit_and_score(
    model: LogisticRegression,
    vectors: np.ndarray,
    label: np.ndarray,
    queries: np.ndarray,
) -> None:
    """Standardise one support, train on it, and score the queries."""
    rows, mean, deviation = standardise(vectors)
    model.fit(rows, label)
    model.decision_function((queries - mean) / deviation)


def time_scikit_learn(
    episodes: Episodes, fold: int, draw: int, c: float
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Return the seconds of scikit-learn at each sampled k, and the largest gap of every solver."""
    rows, sizes = support_rows(
        make_spread("shared", episodes, Protocol()), fold, draw, SAMPLED_SHOTS
    )
    queries = episodes.vectors[episodes.fold == fold]
    classes = len(episodes.classes)
    weights, biases = fit_nested(
        episodes.vectors[rows], episodes.label[rows], sizes, classes, c
    )
    seconds = {name: np.empty(len(sizes)) for name in SCIKIT_LEARN}
    gaps = dict.fromkeys(("callshot", *SCIKIT_LEARN), 0.0)
    for s, size in enumerate(sizes):
        vectors = episodes.vectors[rows[:size]]
        label = episodes.label[rows[:size]]
        table, mean, deviation = standardise(vectors)
        value = partial(objective, table, label, c=c)
        best = fit(vectors, label, classes, c)
        lowest = value(best.weight * deviation, best.bias + best.weight @ mean)
        values = {
            "callshot": value(weights[s] * deviation, biases[s] + weights[s] @ mean)
        }
        for name, options in SCIKIT_LEARN.items():
            model = LogisticRegression(C=c, **options)
            seconds[name][s] = cpu_seconds(
                partial(fit_and_score, model, vectors, label, queries)
            )
            values[name] = value(model.coef_, model.intercept_)
        for name in gaps:
            gaps[name] = max(gaps[name], values[name] - lowest)
    return seconds, gaps


def compare(dimensions: int, c: float, rounds: int, draws: int) -> list[Row]:
    """Time callshot and scikit-learn in turn, and return a row for each."""
    episodes = synthetic_episodes(dimensions)
    sweep_draws = partial(
        sweep_logistic, episodes, Protocol(), c=c, draws=draws, threads=1
    )
    callshot_seconds = 0.0
    mean_seconds = {name: np.zeros(len(SAMPLED_SHOTS)) for name in SCIKIT_LEARN}
    gaps = []
    for draw in range(rounds):
        for fold in range(episodes.folds):
            seconds, gap = time_scikit_learn(episodes, fold, draw, c)
            gaps.append(gap)
            for name in SCIKIT_LEARN:
                mean_seconds[name] += seconds[name] / (rounds * episodes.folds)
        callshot_seconds += cpu_seconds(sweep_draws)
    totals = {"callshot": callshot_seconds * DRAWS / draws / rounds}
    for name, seconds in mean_seconds.items():
        per_draw = float(np.interp(SHOTS, SAMPLED_SHOTS, seconds).sum())
        totals[name] = per_draw * episodes.folds * DRAWS
    fits = episodes.folds * DRAWS * len(SHOTS)
    return [
        {
            "what": f"d = {dimensions}, C = {c:g}: {name}",
            "seconds": total,
            "ms per fit": 1000 * total / fits,
            "× callshot": total / totals["callshot"],
            "largest gap of J": max(gap[name] for gap in gaps),
        }
        for name, total in totals.items()
    ]


def real_size_table() -> Vectors:
    """Return vectors whose directions have unequal deviations, rectified as by a network."""
    rng = np.random.default_rng(0)
    label = rng.choice(len(SHARES), CALLS, p=SHARES)
    recording = np.arange(CALLS) // CALLS_PER_RECORDING
    class_mean = 0.6 * rng.normal(size=(len(SHARES), VALUES))
    shift = 0.5 * rng.normal(size=(recording[-1] + 1, VALUES))
    noise = rng.normal(size=(CALLS, VALUES))
    deviation = np.arange(1, VALUES + 1) ** -DECAY
    rotation, _ = np.linalg.qr(rng.normal(size=(VALUES, VALUES)))
    mixed = ((noise + shift[recording] + class_mean[label]) * deviation) @ rotation
    vectors = np.maximum(mixed + 0.3 * np.abs(mixed).mean(), 0.0)
    names = [f"type {n}" for n in label]
    return Vectors.from_columns(
        "synthetic",
        vectors.astype(np.float32),
        segment=[f"segment {i:04d}" for i in range(CALLS)],
        recording=[f"recording {n}" for n in recording],
        label=names,
        labels=[(name,) for name in names],
        fold=recording % 5,
    )


def score_with_scikit_learn(
    episodes: Episodes, fold: int, c: float, options: dict[str, object]
) -> FloatArray:
    """Train outside a fold, and return the log-odds of its queries."""
    support = episodes.fold != fold
    rows, mean, deviation = standardise(episodes.vectors[support])
    model = LogisticRegression(C=c, **options)
    model.fit(rows, episodes.label[support])
    queries = (episodes.vectors[~support] - mean) / deviation
    return log_odds(model.decision_function(queries))


def choose_with_scikit_learn(
    episodes: Episodes, number: int, options: dict[str, object]
) -> float:
    """Return the C of the grid with the best AUROC on the inner folds, then accuracy."""
    inner = support_side(episodes, number)
    ranks = []
    for c in C_GRID:
        scores = np.full(inner.relevant.shape, np.nan)
        for fold in range(inner.folds):
            queries = inner.fold == fold
            scores[queries] = score_with_scikit_learn(inner, fold, c, options)
        values = measure(inner, scores)
        auroc = round(values["all", "auroc"], 12)
        ranks.append((auroc, round(values["all", "accuracy"], 12)))
    return C_GRID[ranks.index(max(ranks))]


def compare_on_all_labels(splits: int) -> list[Row]:
    """Time the choice of C and the training of some splits; the rows say what was chosen."""
    episodes = make_episodes(real_size_table())
    seconds = dict.fromkeys(("callshot", *SCIKIT_LEARN), 0.0)
    chosen: dict[str, list[float]] = {name: [] for name in seconds}
    differences = dict.fromkeys(seconds, 0.0)
    for number in range(splits):
        scores = {}
        for name in seconds:
            start = time.process_time()
            if name == "callshot":
                c = choose_c(episodes, number)
                scores[name] = log_odds(next(score_each(episodes, number, (c,))))
            else:
                options = SCIKIT_LEARN[name]
                c = choose_with_scikit_learn(episodes, number, options)
                scores[name] = score_with_scikit_learn(episodes, number, c, options)
            seconds[name] += time.process_time() - start
            chosen[name].append(c)
        for name, found in scores.items():
            c = chosen[name][number]
            exact = score_with_scikit_learn(episodes, number, c, CONVERGED)
            difference = np.abs(expit(found) - expit(exact)).max()
            differences[name] = max(differences[name], float(difference))
    fits = splits * (len(C_GRID) * INNER_FOLDS + 1)
    return [
        {
            "what": f"{fits} fits: {name}",
            "seconds": total,
            "ms per fit": 1000 * total / fits,
            "× callshot": total / seconds["callshot"],
            "C": ", ".join(f"{c:g}" for c in chosen[name]),
            "error of probabilities": differences[name],
        }
        for name, total in seconds.items()
    ]


def evaluate_table(path: Path) -> list[Row]:
    """Return the scores of logistic regression on a table of embeddings."""
    table = read_table(path)
    episodes = make_episodes(table)
    start = time.perf_counter()
    scores, c_values = score_logistic(episodes)
    training_seconds = time.perf_counter() - start
    chosen = measure(episodes, scores)
    fixed = measure(episodes, score_logistic(episodes, c=DEFAULT_C)[0])
    steps, path, _ = refine_centroid(episodes, c_values)
    start = time.perf_counter()
    _, logistic = sweep_logistic(episodes, Protocol())
    sweep_seconds = time.perf_counter() - start
    with open_engine(episodes, Protocol(shared_draws=DRAWS), 2, 2**30) as engine:
        _, centroid = sweep(engine, "shared")
    rows = []
    for metric in ("map", "auroc"):
        key = ("all", metric)
        values = path[key]
        best = int(np.argmax(values))
        trained = logistic.values[key]
        untrained = centroid.values[key]
        row: Row = {
            "what": f"{table.encoder}, {metric}",
            "centroid": float(values[0]),
            "logistic": chosen[key],
            f"C = {DEFAULT_C:g}": fixed[key],
            "best step": f"{values[best]:.4f} at {steps[best]}",
            **cross(metric, trained, untrained, chosen[key]),
        }
        for k in SHOWN_SHOTS:
            row[f"k = {k}"] = (
                f"{untrained[k - 1].mean():.3f} / {trained[k - 1].mean():.3f}"
            )
        rows.append(row)
    rows[0]["seconds"] = f"{training_seconds:.1f} (all)"
    rows[1]["seconds"] = f"{sweep_seconds:.1f} (k)"
    c_text = ", ".join(f"{c:g}" for c in c_values)
    print(
        f"{table.encoder}: C of the splits {c_text}; {steps[-1]} steps to the optimum"
    )
    return rows


def cross(metric: str, trained: FloatArray, untrained: FloatArray, value: float) -> Row:
    """Return the k from which training is ahead, and that at which the centroid passes it."""
    names = {"corpus": "c", "encoder": "e", "scoring": "all", "metric": metric}
    key = names | {"spread": "shared", "classifier": "centroid"}
    centroid = values_frame(key, SHOTS, untrained)
    logistic = values_frame(key | {"classifier": "logistic"}, SHOTS, trained)
    baseline = {"kind": "logistic", "name": "LR", "how": ""}
    baselines = make_frame(BASELINES, {"value": [value]}, names | baseline)
    rows = find_crossovers(centroid, baselines, logistic)
    passes, ahead = rows["k_mean"]
    return {"k_mean": ahead, "centroid passes": passes}


def main() -> None:
    """Print the tables."""
    options = parser(__doc__)
    options.add_argument(
        "--table",
        type=Path,
        nargs="*",
        default=[],
        metavar="FILE",
        help="embeddings of a corpus",
    )
    options.add_argument(
        "--all-labels", action="store_true", help="time the fits on all labels alone"
    )
    options.add_argument("--quick", action="store_true", help="one round of ten draws")
    arguments = options.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    rounds = 1 if arguments.quick else 2
    draws = 10 if arguments.quick else 50
    small = synthetic_episodes(8)
    sweep_logistic(small, Protocol(shots=(1, 2)), draws=1)  # compiles
    choose_c(small, 0)
    if not arguments.all_labels:
        rows = []
        for dimensions in (40, 1536):
            for c in (DEFAULT_C, 1.0):
                rows += compare(dimensions, c, rounds, draws)
        title = (
            "bench/baselines: logistic regression, k = 1 … 40, 100 shared draws, one"
            " thread"
        )
        show(title, rows, arguments.json)
    show(
        f"logistic regression on all labels, {CALLS:,} × {VALUES:,}, one thread",
        compare_on_all_labels(1 if arguments.quick else 5),
    )
    table_rows = []
    for path in arguments.table:
        table_rows += evaluate_table(path)
    if table_rows:
        show("centroid / logistic, all labels and 100 shared draws", table_rows)


if __name__ == "__main__":
    main()
