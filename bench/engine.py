"""The engine against a scikit-learn loop and a vectorised NumPy version, with the shape of LDC.

Score and bootstrap both metrics: draw R = 100 supports for each of Q = 3,985 queries at every
k = 1 … 40, score them against 10 classes, and take mAP and AUROC of B = 5,000 bootstrap samples
over 10 folds. One thread each. The slow ones run on a slice (one fold, a few k, fewer samples) and
are scaled up by the counts; ours runs whole. Then the rules without training beside the centroid,
both spreads, and the test against chance, on the shapes of both paper corpora.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

import numpy_engine
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.episodes import (
    Episodes,
    Split,
    make_split,
    open_engine,
    plan_episodes,
)
from callshot.fewshot.folds import check_folds, count_classes
from callshot.fewshot.permutation import chance_test, shots_to_test
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import sweep
from callshot.records import IntArray
from callshot.vectors import Vectors
from table import parser, show

COUNTS = (2949, 253, 178, 149, 140, 87, 77, 73, 45, 36)
VOICES = (51, 40, 37, 32, 23, 21, 17, 13, 7, 6, 6, 5)
FOLDS = 10
DIMENSIONS = 1536
DRAWS = 100
SAMPLES = 5000
SHOTS = 40
SLICE_SAMPLES = 400  # bootstrap samples of the NumPy version
GROWTH = {  # the size that doubles, its name and its start
    "Q": ("queries", 1000),
    "R": ("draws", 100),
    "B": ("samples", 2000),
    "k": ("longest k", 10),
    "N": ("classes, same Q", 8),
}

Row = dict[str, object]


def make_corpus(
    counts: tuple[int, ...] = COUNTS,
    folds: int = FOLDS,
    dimensions: int = DIMENSIONS,
) -> Episodes:
    """Return Gaussian classes that overlap as the paper's do (mAP 0.1 at k = 1, 0.4 at k = 40)."""
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(len(counts)), counts)
    means = 0.08 * rng.normal(size=(len(counts), dimensions))
    vectors = means[label] + rng.normal(size=(len(label), dimensions))
    fold = np.concatenate(
        [(np.arange(count) + n) % folds for n, count in enumerate(counts)]
    )
    table = Vectors.from_columns(
        "bench",
        vectors.astype(np.float32),
        segment=[f"s{i:06d}" for i in range(len(label))],
        recording=[f"s{i:06d}" for i in range(len(label))],
        label=[f"class {n:02d}" for n in label],
        labels=[()] * len(label),
        fold=fold,
    )
    given = check_folds(table.recording, fold)
    return plan_episodes(table, given, count_classes(table.label, given))


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
    start = time.perf_counter()
    rule = CLASSIFIERS[classifier]
    with open_engine(episodes, protocol, threads, 2**33, classifier=rule) as engine:
        sweep(engine, spread)
    return time.perf_counter() - start


def sklearn_loop(episodes: Episodes) -> float:
    """Time the plain loop on a slice and return the seconds that a whole sweep would take.

    Scoring: a few queries and draws at k = 1, 20 and 40, means and distances in NumPy. Bootstrap: a
    few samples of one fold, average_precision_score and roc_auc_score of each class.
    """
    split = make_split(episodes, 0)
    rng = np.random.default_rng(0)
    pools = pool_rows(episodes, split)
    scores = rng.normal(size=(len(split.rows), DRAWS, len(pools)))

    def score(k: int, pairs: int) -> None:
        for i in range(pairs):
            z = episodes.vectors[split.rows[i % len(split.rows)]]
            chosen = [
                rng.choice(pool, min(k, len(pool)), replace=False) for pool in pools
            ]
            centroids = np.stack(
                [episodes.vectors[rows].mean(axis=0) for rows in chosen]
            )
            distance = -((z - centroids) ** 2).sum(axis=1)
            exponential = np.exp(distance - distance.max())
            exponential / exponential.sum()

    def resample(samples: int) -> None:
        for _ in range(samples):
            picks = rng.integers(0, DRAWS, len(split.rows))
            sample = scores[np.arange(len(split.rows)), picks]
            for n in range(len(pools)):
                average_precision_score(split.relevant[n], sample[:, n])
                roc_auc_score(split.relevant[n], sample[:, n])

    shots = (1, 20, 40)
    pair_s = [seconds(lambda k=k: score(k, 150)) / 150 for k in shots]
    sweep_s = np.interp(np.arange(1, SHOTS + 1), shots, pair_s).sum()
    sample_s = seconds(lambda: resample(25)) / 25
    return float(
        sweep_s * count_queries(episodes) * DRAWS + sample_s * SAMPLES * FOLDS * SHOTS
    )


def numpy_loop(episodes: Episodes) -> float:
    """Time the NumPy version on one fold at a few k, and return the seconds of a whole sweep."""
    split = make_split(episodes, 0)
    gram = episodes.vectors @ episodes.vectors.T
    pools = pool_rows(episodes, split)
    rng = np.random.default_rng(0)
    shots = (1, 10, 20, 30, 40)
    spent = []
    for k in shots:
        start = time.perf_counter()
        scores = numpy_engine.score(gram, pools, split.rows, k, DRAWS, rng)
        scored = time.perf_counter()
        numpy_engine.bootstrap(scores, split.relevant.T, SLICE_SAMPLES, rng)
        resampled = time.perf_counter()
        spent.append(scored - start + (resampled - scored) * SAMPLES / SLICE_SAMPLES)
    return float(np.interp(np.arange(1, SHOTS + 1), shots, spent).sum() * FOLDS)


def pool_rows(episodes: Episodes, split: Split) -> list[IntArray]:
    """Return the rows of each class outside a fold."""
    outside = np.flatnonzero(episodes.fold != split.fold)
    return np.split(outside, split.pool_start[1:-1])


def count_queries(episodes: Episodes) -> int:
    """Return the number of rows outside the common fold."""
    return int((episodes.fold >= 0).sum())


def growth() -> list[Row]:
    """Time the engine as one size doubles at a time: 1.0 would be free, 2.0 is in proportion."""
    start = {name: size for name, (_, size) in GROWTH.items()}

    def time_sizes(size: dict[str, int]) -> float:
        counts = (size["Q"] // size["N"],) * size["N"]
        episodes = make_corpus(counts, folds=5, dimensions=64)
        shots = tuple(range(1, size["k"] + 1))
        protocol = Protocol(shots=shots, draws=size["R"], bootstraps=size["B"])
        return min(run(episodes, protocol) for _ in range(2))

    time_sizes(start)  # compile first
    rows: list[Row] = []
    for name, (description, size) in GROWTH.items():
        once, twice, four = (
            time_sizes(start | {name: size * factor}) for factor in (1, 2, 4)
        )
        rows.append(
            {
                "what": f"growth with {name} ({description})",
                "seconds": once,
                "× 2": twice / once,
                "× 4": four / once,
            }
        )
    return rows


def rules(rounds: int = 3) -> list[Row]:
    """Time every classifier on one thread with both spreads, in turn; ratios are medians."""
    rows: list[Row] = []
    protocol = Protocol(shots=tuple(range(1, SHOTS + 1)))
    for shape, episodes in (
        ("Elephant Voices", make_corpus(VOICES, 5)),
        ("LDC", make_corpus()),
    ):
        times = np.zeros((rounds, len(CLASSIFIERS)))
        for spent in times:
            for i, name in enumerate(CLASSIFIERS):
                for spread in protocol.spreads:
                    spent[i] += run(episodes, protocol, 1, spread, name)
        ratio = np.median(times / times[:, :1], axis=0)
        for i, name in enumerate(CLASSIFIERS):
            rows.append(
                {
                    "what": f"{name}, both spreads, {shape}",
                    "seconds": float(times[:, i].min()),
                    "× centroid": float(ratio[i]),
                }
            )
    return rows


def chance_tests(rounds: int = 3) -> list[Row]:
    """Time the test against chance beside the per-query sweep, one thread; ratios are medians."""
    rows: list[Row] = []
    for shape, episodes, last in (
        ("Elephant Voices", make_corpus(VOICES, 5), 4),
        ("LDC", make_corpus(), 32),
    ):
        times = []
        for _ in range(rounds):
            sweep_s = run(episodes, Protocol(), 1)
            with open_engine(episodes, Protocol(), 1, 2**33) as engine:
                shots = shots_to_test(Protocol(), last)
                key = dict.fromkeys(("corpus", "encoder", "classifier"), "bench")
                test_s = seconds(partial(chance_test, engine, shots, key))
            times.append((test_s, test_s / sweep_s))
        test_s, ratio = np.median(times, axis=0).tolist()
        what = f"test against chance, one thread, {shape}"
        rows.append({"what": what, "seconds": test_s, "× per-query": ratio})
    return rows


def peak_memory() -> float:
    """Return the peak memory, in MB, of a process that runs the whole sweep with both spreads."""
    code = (
        "import resource, engine\n"
        "from callshot.fewshot.protocol import Protocol\n"
        "episodes = engine.make_corpus()\n"
        "for spread in ('per-query', 'shared'): engine.run(episodes, Protocol(), 2, spread)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
    )
    folders = [str(Path(__file__).parent.absolute()), os.environ.get("PYTHONPATH", "")]
    process = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(process.stdout)


def compare(episodes: Episodes, protocol: Protocol, rounds: int = 3) -> list[Row]:
    """Time one and two threads, the NumPy version and the scikit-learn loop, in turn: medians."""
    tasks = {
        "callshot, one thread": lambda: run(episodes, protocol, 1),
        "NumPy opponent, scaled from a slice": lambda: numpy_loop(episodes),
        "callshot, two threads": lambda: run(episodes, protocol, 2),
        "scikit-learn loop, scaled from a slice": lambda: sklearn_loop(episodes),
    }
    times = [[task() for task in tasks.values()] for _ in range(rounds)]
    median = np.median(times, axis=0).tolist()
    rows: list[Row] = []
    for name, spent in zip(tasks, median, strict=True):
        rows.append(
            {
                "what": name,
                "seconds": spent,
                "× callshot, one thread": spent / median[0],
            }
        )
    return rows


def main() -> None:
    """Run everything and print one table."""
    options = parser(__doc__)
    options.add_argument(
        "--quick", action="store_true", help="without growth, other rules and memory"
    )
    chosen = options.parse_args()
    episodes = make_corpus()
    warm_up = Protocol(shots=(1, 2), draws=4, bootstraps=16)
    run(make_corpus((20, 20), folds=2, dimensions=8), warm_up)
    rows = compare(episodes, Protocol())
    shared_s = run(episodes, Protocol(), 2, "shared")
    rows.append({"what": "callshot, shared spread, two threads", "seconds": shared_s})
    if not chosen.quick:
        rows += growth()
        rows += rules()
        rows += chance_tests()
        rows.append({"what": "peak memory, both spreads, MB", "MB": peak_memory()})
    sizes = f"R = {DRAWS}, B = {SAMPLES}, Q = {count_queries(episodes)}"
    show(f"bench/engine: sweep k = 1 … {SHOTS}, {sizes}", rows, chosen.json)


if __name__ == "__main__":
    main()
