# ruff: noqa: E402 (threads are set before NumPy is imported)
"""Logistic regression at every k against a loop over scikit-learn, shaped like Elephant Voices.

12 call types, 257 queries, 5 folds, k = 1 … 40, 100 shared draws: 20,000 fits. One thread each, CPU
seconds in one run, scaled up by the counts: callshot's from a few draws, scikit-learn's from some k
of them. Both standardise by the same rule and score the queries; callshot also takes the metrics.
scikit-learn runs twice: with a tolerance that brings it within a millionth of the optimum, and with
its defaults. Gaps are of J, the sum over rows.

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
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

sys.path.append(str(Path(__file__).parents[1] / "examples"))

import paper_shapes

from callshot.baselines.centroid_to_logistic import refine_centroid
from callshot.baselines.logistic import DEFAULT_C, fit, score_logistic, standardise
from callshot.baselines.logistic_per_k import (
    DRAWS,
    fit_nested,
    support_rows,
    sweep_logistic,
)
from callshot.baselines.scoring import measure
from callshot.fewshot.differences import find_crossovers
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import choose_folds, count_classes
from callshot.fewshot.protocol import Protocol
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

Row = dict[str, object]


def make_episodes(table: Vectors) -> Episodes:
    """Return the episodes of a table."""
    folds = choose_folds(table)
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
    rows, sizes = support_rows(episodes, fold, draw, SAMPLED_SHOTS, Protocol())
    queries = episodes.vectors[episodes.fold == fold]
    classes = episodes.classes
    weights, biases = fit_nested(
        episodes.vectors[rows], episodes.label[rows], sizes, len(classes), c
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


def evaluate_table(path: Path) -> list[Row]:
    """Return the scores of logistic regression on a table of embeddings."""
    table = read_table(path)
    episodes = make_episodes(table)
    groups = np.unique(episodes.recording, return_inverse=True)[1]
    start = time.perf_counter()
    scores, c_values = score_logistic(episodes, groups)
    training_seconds = time.perf_counter() - start
    chosen = measure(episodes, scores)
    fixed = measure(episodes, score_logistic(episodes, groups, c=DEFAULT_C)[0])
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
    options.add_argument("--quick", action="store_true", help="one round of ten draws")
    arguments = options.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    rounds = 1 if arguments.quick else 2
    draws = 10 if arguments.quick else 50
    sweep_logistic(synthetic_episodes(8), Protocol(shots=(1, 2)), draws=1)  # compiles
    rows = []
    for dimensions in (40, 1536):
        for c in (DEFAULT_C, 1.0):
            rows += compare(dimensions, c, rounds, draws)
    title = (
        "bench/baselines: logistic regression, k = 1 … 40, 100 shared draws, one thread"
    )
    show(title, rows, arguments.json)
    table_rows = []
    for path in arguments.table:
        table_rows += evaluate_table(path)
    if table_rows:
        show("centroid / logistic, all labels and 100 shared draws", table_rows)


if __name__ == "__main__":
    main()
