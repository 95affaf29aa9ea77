"""The engine against a scikit-learn loop and the vectorised NumPy version, on input with the shape of the LDC corpus.

"Score and bootstrap both metrics": draw R = 100 supports for each of Q = 3,985 queries at every k = 1 … 40, score them
against 10 classes, and take mAP and AUROC of B = 5,000 bootstrap samples over 10 folds. One thread each. The slow ones
run on a slice (one fold, a few k, fewer samples) and are scaled up by the counts; ours runs whole. Then the rules
without training beside the centroid, both spreads, on the shapes of both paper corpora.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

import numpy_engine
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import Episodes, plan_episodes, split
from callshot.fewshot.folds import count_classes, check_folds
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import sweep
from callshot.records import Embeddings
from table import parser, show

COUNTS = (2949, 253, 178, 149, 140, 87, 77, 73, 45, 36)
VOICES = (51, 40, 37, 32, 23, 21, 17, 13, 7, 6, 6, 5)
FOLDS, DIMENSIONS, DRAWS, SAMPLES, SHOTS = 10, 1536, 100, 5000, 40


def corpus(counts=COUNTS, folds=FOLDS, dimensions=DIMENSIONS, seed=0) -> Episodes:
    """Return episodes of Gaussian classes that overlap as the paper's do (mAP about 0.1 at k = 1, 0.4 at k = 40)."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(counts)), counts)
    vectors = rng.normal(size=(len(counts), dimensions))[label] * 0.08 + rng.normal(
        size=(len(label), dimensions)
    )
    fold = np.concatenate([(np.arange(count) + n) % folds for n, count in enumerate(counts)])
    names = [f"s{i:06d}" for i in range(len(label))]
    labels = [f"class {n:02d}" for n in label]
    table = Embeddings(
        "bench", vectors.astype(np.float32), names, names, labels, [()] * len(names), fold
    )
    given = check_folds(table.recording, fold)
    return plan_episodes(table, given, count_classes(labels, given))


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def run(
    episodes: Episodes,
    protocol: Protocol,
    threads: int = 1,
    spread: str = "per-query",
    classifier: str = "centroid",
) -> float:
    """Time a whole sweep, the Gram matrix included."""

    def work() -> None:
        with open_engine(
            episodes, protocol, threads, 2**33, classifier=CLASSIFIERS[classifier]
        ) as engine:
            sweep(engine, spread)

    return seconds(work)


def sklearn_loop(episodes: Episodes) -> float:
    """Time the plain loop on a slice and return the seconds that a whole sweep would take.

    Scoring: a few queries and draws at k = 1, 20 and 40, means and distances in NumPy. Bootstrap: a few samples of one
    fold, average_precision_score and roc_auc_score of each class.
    """
    part = split(episodes, 0)
    rng = np.random.default_rng(0)
    pools = _pools(episodes, part)

    def score(k: int, pairs: int) -> float:
        def work() -> None:
            for i in range(pairs):
                z = episodes.vectors[part.rows[i % len(part.rows)]]
                chosen = [rng.choice(pool, min(k, len(pool)), replace=False) for pool in pools]
                centroids = np.stack([episodes.vectors[rows].mean(axis=0) for rows in chosen])
                distance = -((z - centroids) ** 2).sum(axis=1)
                np.exp(distance - distance.max()) / np.exp(distance - distance.max()).sum()

        return seconds(work) / pairs

    def resample(samples: int) -> float:
        scores = rng.normal(size=(len(part.rows), DRAWS, len(pools)))

        def work() -> None:
            for _ in range(samples):
                chosen = scores[np.arange(len(part.rows)), rng.integers(0, DRAWS, len(part.rows))]
                for n in range(len(pools)):
                    average_precision_score(part.relevant[n], chosen[:, n])
                    roc_auc_score(part.relevant[n], chosen[:, n])

        return seconds(work) / samples

    queries = int((episodes.fold >= 0).sum())
    per_pair = np.interp(np.arange(1, SHOTS + 1), [1, 20, 40], [score(k, 150) for k in (1, 20, 40)])
    return float(per_pair.sum() * queries * DRAWS + resample(25) * SAMPLES * FOLDS * SHOTS)


def numpy_loop(episodes: Episodes) -> float:
    """Time the NumPy version on one fold at k = 1, 10, 20, 30, 40, and return the seconds of a whole sweep."""
    part = split(episodes, 0)
    gram = episodes.vectors @ episodes.vectors.T
    pools, rng = _pools(episodes, part), np.random.default_rng(0)
    at = (1, 10, 20, 30, 40)
    spent = []
    for k in at:
        scores = None

        def score(k: int = k) -> None:
            nonlocal scores
            scores = numpy_engine.score(gram, pools, part.rows, k, DRAWS, rng)

        first = seconds(score)
        second = seconds(
            lambda scores=scores: numpy_engine.bootstrap(scores, part.relevant.T, 400, rng)
        )
        spent.append(first + second * SAMPLES / 400)
    return float(np.interp(np.arange(1, SHOTS + 1), at, spent).sum() * FOLDS)


def growth() -> list[dict[str, object]]:
    """Time the engine as one size doubles at a time: 1.0 would be free, 2.0 is in proportion."""
    base = {"Q": 1000, "R": 100, "B": 2000, "k": 10, "N": 8}

    def timed(size: dict[str, int]) -> float:
        counts = [size["Q"] // size["N"]] * size["N"]
        episodes = corpus(counts, folds=5, dimensions=64)
        protocol = Protocol(
            shots=tuple(range(1, size["k"] + 1)), draws=size["R"], bootstraps=size["B"]
        )
        return min(run(episodes, protocol) for _ in range(2))

    timed(base)
    rows = []
    for name in base:
        once, twice, four = (timed(base | {name: base[name] * f}) for f in (1, 2, 4))
        what = {
            "Q": "queries",
            "R": "draws",
            "B": "samples",
            "k": "longest k",
            "N": "classes, same Q",
        }[name]
        rows.append(
            {
                "what": f"growth with {name} ({what})",
                "seconds": once,
                "× 2": twice / once,
                "× 4": four / once,
            }
        )
    return rows


def rules(rounds: int = 3) -> list[dict[str, object]]:
    """Time every classifier on one thread with both spreads, turn about with the centroid; ratios are medians."""
    rows = []
    for shape, episodes in (("Elephant Voices", corpus(VOICES, folds=5)), ("LDC", corpus())):
        shots = Protocol(shots=tuple(range(1, SHOTS + 1)))
        times: dict[str, list[float]] = {name: [] for name in CLASSIFIERS}
        for _ in range(rounds):
            for name, spent in times.items():
                spent.append(sum(run(episodes, shots, 1, spread, name) for spread in shots.spreads))
        for name, spent in times.items():
            ratio = float(np.median(np.divide(spent, times["centroid"])))
            rows.append(
                {
                    "what": f"{name}, both spreads, {shape}",
                    "seconds": min(spent),
                    "× centroid": ratio,
                }
            )
    return rows


def peak_memory() -> float:
    """Return the peak resident memory, in MB, of a process that runs the whole sweep with both spreads."""
    code = (
        "import resource, engine\n"
        "from callshot.fewshot.protocol import Protocol\n"
        "episodes = engine.corpus()\n"
        "for spread in ('per-query', 'shared'): engine.run(episodes, Protocol(), 2, spread)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    path = os.pathsep.join(
        [str(Path(__file__).parent.absolute()), os.environ.get("PYTHONPATH", "")]
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(out.stdout)


def side_by_side(episodes: Episodes, protocol: Protocol, rounds: int = 3) -> dict[str, float]:
    """Time one thread, the NumPy version, two threads and the scikit-learn loop, turn about; return the medians."""
    work = {
        "one": lambda: run(episodes, protocol, 1),
        "numpy": lambda: numpy_loop(episodes),
        "two": lambda: run(episodes, protocol, 2),
        "sklearn": lambda: sklearn_loop(episodes),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, task in work.items():
            times[name].append(task())
    return {name: float(np.median(spent)) for name, spent in times.items()}


def _pools(episodes, part):
    outside = np.flatnonzero(episodes.fold != part.number)
    return [
        outside[part.pool_start[n] : part.pool_start[n + 1]] for n in range(len(episodes.classes))
    ]


def main() -> None:
    """Run everything and print one table."""
    options = parser(__doc__)
    options.add_argument(
        "--quick", action="store_true", help="without growth, other rules and memory"
    )
    chosen = options.parse_args()
    episodes = corpus()
    warm = Protocol(shots=(1, 2), draws=4, bootstraps=16)
    run(corpus([20, 20], folds=2, dimensions=8), warm)
    full = Protocol()
    times = side_by_side(episodes, full)
    one, two, loop, vectorised = times["one"], times["two"], times["sklearn"], times["numpy"]
    rows: list[dict[str, object]] = [
        {"what": "callshot, one thread", "seconds": one, "× slower than callshot": 1.0},
        {
            "what": "NumPy opponent, scaled from a slice",
            "seconds": vectorised,
            "× slower than callshot": vectorised / one,
        },
        {
            "what": "scikit-learn loop, scaled from a slice",
            "seconds": loop,
            "× slower than callshot": loop / one,
        },
        {"what": "callshot, two threads", "seconds": two, "gain": one / two},
        {
            "what": "callshot, shared spread, two threads",
            "seconds": run(episodes, full, 2, "shared"),
        },
    ]
    if not chosen.quick:
        rows += growth()
        rows += rules()
        rows.append({"what": "peak memory, both spreads, MB", "seconds": "", "MB": peak_memory()})
    show(
        f"bench/engine: sweep k = 1 … {SHOTS}, R = {DRAWS}, B = {SAMPLES}, Q = {int((episodes.fold >= 0).sum())}",
        rows,
        chosen.json,
    )


if __name__ == "__main__":
    main()
