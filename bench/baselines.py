# ruff: noqa: E402 (threads are set before NumPy is imported)
"""Logistic regression at every k against a loop over scikit-learn, on input with the shape of Elephant Voices.

12 call types, 257 queries, 5 folds, k = 1 … 40, 100 shared draws: 20,000 fits. One thread each, CPU seconds, side by
side in one run, scaled up by the counts: ours from a few draws, scikit-learn's from some k of them. Both standardise by
the same rule and score the queries; ours takes the metrics as well. scikit-learn runs twice: with a tolerance at which
it comes within a millionth of the optimum, and as it comes out of the box. Gaps are of J, the sum over rows.

With --table FILE …, embeddings of a corpus: what logistic regression scores on all labels, from which k on it is ahead
of the centroid on the same draws, and at which k the centroid passes what all labels taught it.
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
from callshot.baselines.logistic import DEFAULT_C, fit, score_logistic
from callshot.baselines.logistic_per_k import DRAWS, climb, drawn_rows, sweep_logistic
from callshot.baselines.scoring import measure
from callshot.baselines.standardize import standardise
from callshot.fewshot.crossover import passes_at, pays_from, surely_from
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import choose_folds, count_classes
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import sweep
from callshot.records import Embeddings
from callshot.tables.embedding_tables import read_table
from table import parser, show

SHOTS = np.arange(1, 41)
SAMPLED = np.array([1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40])
LOOPS = {
    "scikit-learn, tol 1e-6": {"tol": 1e-6, "max_iter": 10_000},
    "scikit-learn, out of the box": {},
}


def shaped(dimensions: int) -> Episodes:
    """Return episodes with the counts and folds of Elephant Voices."""
    paper_shapes.DIMENSIONS = dimensions
    return planned(paper_shapes.imitate("elephant-voices", "synthetic-strong"))


def planned(table: Embeddings) -> Episodes:
    """Return the episodes of a table."""
    folds = choose_folds(table)
    return plan_episodes(table, folds, count_classes(table.label, folds, table.recording))


def seconds(work: Callable[[], object]) -> float:
    """Time one call, in CPU seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def objective(rows, label, weight, bias, strength) -> float:
    """Return J."""
    logits = rows @ weight.T + bias
    loss = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(label)), label]
    return float(loss.sum() + (weight**2).sum() / (2 * strength))


def loop(
    episodes: Episodes, fold: int, draw: int, strength: float
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Return the seconds of scikit-learn's ways at each sampled k, and how far J is above its optimum at most."""
    rows, sizes = drawn_rows(episodes, fold, draw, SAMPLED, Protocol())
    vectors, label, queries = (
        episodes.vectors[rows],
        episodes.label[rows],
        episodes.vectors[episodes.fold == fold],
    )
    weights, biases = climb(vectors, label, sizes, len(episodes.classes), strength)
    spent, gap = (
        {name: np.empty(len(sizes)) for name in LOOPS},
        dict.fromkeys(("callshot", *LOOPS), 0.0),
    )
    for s, size in enumerate(sizes):
        few, own = vectors[:size], label[:size]
        table, mean, deviation = standardise(few)

        def height(weight: np.ndarray, bias: np.ndarray) -> float:
            return objective(table, own, weight, bias, strength)  # noqa: B023 (called inside the loop)

        best = fit(few, own, episodes.classes, strength)
        lowest = height(best.weight * deviation, best.bias + best.weight @ mean)
        heights = {"callshot": height(weights[s] * deviation, biases[s] + weights[s] @ mean)}
        for name, options in LOOPS.items():
            model = LogisticRegression(C=strength, **options)
            spent[name][s] = seconds(partial(fit_and_score, model, few, own, queries))
            heights[name] = height(model.coef_, model.intercept_)
        gap = {name: max(gap[name], heights[name] - lowest) for name in gap}
    return spent, gap


def fit_and_score(
    model: LogisticRegression, vectors: np.ndarray, label: np.ndarray, queries: np.ndarray
) -> None:
    """Do what the loop does for one support."""
    table, mean, deviation = standardise(vectors)
    model.fit(table, label)
    model.decision_function((queries - mean) / deviation)


def compare(dimensions: int, strength: float, rounds: int, draws: int) -> list[dict[str, object]]:
    """Time both, in turn, and return a row for each."""
    episodes = shaped(dimensions)
    fits = episodes.folds * DRAWS * len(SHOTS)
    ours, spent, gaps = 0.0, {name: np.zeros(len(SAMPLED)) for name in LOOPS}, []
    for turn in range(rounds):
        for fold in range(episodes.folds):
            times, gap = loop(episodes, fold, turn, strength)
            gaps.append(gap)
            for name in LOOPS:
                spent[name] += times[name] / (rounds * episodes.folds)
        ours += seconds(
            lambda: sweep_logistic(episodes, Protocol(), strength=strength, draws=draws, threads=1)
        )
    totals = {"callshot": ours * DRAWS / draws / rounds}
    for name, times in spent.items():
        totals[name] = float(np.interp(SHOTS, SAMPLED, times).sum()) * episodes.folds * DRAWS
    return [
        {
            "what": f"d = {dimensions}, C = {strength:g}: {name}",
            "seconds": total,
            "ms a fit": 1000 * total / fits,
            "× callshot": total / totals["callshot"],
            "J above optimum, most": max(gap[name] for gap in gaps),
        }
        for name, total in totals.items()
    ]


def real(path: Path) -> list[dict[str, object]]:
    """Return what logistic regression does on a table of embeddings."""
    table = read_table(path)
    episodes = planned(table)
    order = sorted(range(len(table)), key=lambda i: (table.label[i], table.segment[i]))
    kept = [i for i in order if table.label[i] in episodes.classes]
    groups = np.unique(table.recording, return_inverse=True)[1][kept]
    start = time.perf_counter()
    scores, c_values = score_logistic(episodes, groups)
    took = time.perf_counter() - start
    fixed = measure(episodes, score_logistic(episodes, groups, strength=DEFAULT_C)[0])
    full, way = measure(episodes, scores), refine_centroid(episodes, c_values)
    start = time.perf_counter()
    _, logistic = sweep_logistic(episodes, Protocol())
    swept = time.perf_counter() - start
    with open_engine(episodes, Protocol(shared_draws=DRAWS), 2, 2**30) as engine:
        _, centroid = sweep(engine, "shared")
    rows = []
    for metric in ("map", "auroc"):
        key, best = ("all", metric), int(np.argmax(way.values["all", metric]))
        ours, theirs = logistic.values[key], centroid.values[key]
        mean, k_clear = pays_from(SHOTS, ours, theirs), surely_from(SHOTS, ours - theirs)
        passed = passes_at(SHOTS, theirs.mean(axis=1), full[key])
        rows.append(
            {
                "what": f"{table.encoder}, {metric}",
                "centroid": float(way.values[key][0]),
                "logistic": full[key],
                f"C = {DEFAULT_C:g}": fixed[key],
                "best step": f"{way.values[key][best]:.4f} at {way.steps[best]}",
                "pays from k": mean,
                "surely": k_clear,
                "centroid passes": passed,
                **{
                    f"k = {k}": f"{theirs[k - 1].mean():.3f} / {ours[k - 1].mean():.3f}"
                    for k in (1, 2, 5, 10, 20, 40)
                },
            }
        )
    rows[0]["seconds"], rows[1]["seconds"] = f"{took:.1f} (all)", f"{swept:.1f} (k)"
    print(
        f"{table.encoder}: C of the splits {', '.join(f'{c:g}' for c in c_values)}; steps to the end {way.steps[-1]}"
    )
    return rows


def main() -> None:
    """Print the tables."""
    options = parser(__doc__)
    options.add_argument(
        "--table", type=Path, nargs="*", default=[], metavar="FILE", help="embeddings of a corpus"
    )
    options.add_argument("--quick", action="store_true", help="one round of ten draws")
    chosen = options.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    rounds, draws = (1, 10) if chosen.quick else (2, 50)
    sweep_logistic(shaped(8), Protocol(shots=(1, 2)), draws=1)  # compiles
    rows = [
        row for d in (40, 1536) for c in (DEFAULT_C, 1.0) for row in compare(d, c, rounds, draws)
    ]
    show(
        "bench/rivals: logistic regression, k = 1 … 40, 100 shared draws, one thread",
        rows,
        chosen.json,
    )
    if chosen.table:
        real_rows = [row for path in chosen.table for row in real(path)]
        show("centroid / logistic, all labels and 100 shared draws", real_rows)


if __name__ == "__main__":
    main()
