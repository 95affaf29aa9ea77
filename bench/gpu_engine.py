"""The evaluation on a GPU: sweeps with the shapes of the paper, beside the CPU, and their limits.

Shapes as in bench/engine.py: LDC (Q = 3,985, 10 classes, 10 folds) and Elephant Voices (Q = 257, 12
classes, 5 folds), k = 1 … 40, R = 100, B = 5,000, 1,000 shared draws. Times are medians of five
after a first run, from arrays in the memory of the host to summaries there. The whole paper is both
shapes with vectors of 40, 768, 1,280 and 1,536 dimensions. Then where the time goes, which limit of
the card each kernel is nearer to, agreement with the CPU on both shapes, memory, and growth.
--only means: what the interval of the mean costs, and whether it is that of the CPU.
Needs an NVIDIA GPU, torch and Triton.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.episodes import Episodes, make_splits, open_engine
from callshot.fewshot.gpu.device import Gpu, choose_device
from callshot.fewshot.mean_interval import sample_means
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import sweep
from callshot.records.frames import summarise_samples
from engine import (
    COUNTS,
    FOLDS,
    GROWTH,
    VOICES,
    Row,
    make_corpus,
    numpy_loop,
    sklearn_loop,
)
from table import parser, show

DIMENSIONS = (40, 768, 1280, 1536)  # of MFCC, HuBERT, Perch 1 and 2
BOTH = ("per-query", "shared")
LARGE = {40_000: tuple(range(1, 41)), 100_000: (1, 10, 40)}  # queries: shots
COMPARISONS_PER_CLOCK = 64  # of float64, on one multiprocessor of an H100 or H200
CPU_THREADS = 2


def run(
    episodes: Episodes,
    protocol: Protocol,
    spread: str,
    gpu: Gpu | None,
    classifier: str = "centroid",
    *,
    with_means: bool = False,
    threads: int = CPU_THREADS,
) -> MetricSums:
    """Run one spread and summarise its values; of `shared`, also those of the mean if asked."""
    rule = CLASSIFIERS[classifier]
    with open_engine(
        episodes, protocol, threads, 2**33, classifier=rule, gpu=gpu
    ) as engine:
        _, sums = sweep(engine, spread, without_groups=with_means)
        sums.means = sample_means(engine, sums)
    tables = [sums.values] if sums.means is None else [sums.values, sums.means.values]
    for values in tables:
        for samples in values.values():
            summarise_samples(samples)
    return sums


def seconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Return the median time of some calls after a first one."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def fresh(episodes: Episodes) -> Episodes:
    """Return the episodes without what earlier runs stored with them."""
    return replace(episodes)


def run_paper(
    corpora: Sequence[Episodes], spreads: Sequence[str], gpu: Gpu | None
) -> None:
    """Run every corpus and spread of the paper."""
    for episodes in corpora:
        one = fresh(episodes)
        for spread in spreads:
            run(one, Protocol(), spread, gpu)


def time_sweeps(gpu: Gpu) -> list[Row]:
    """Time the two shapes and the whole paper on the GPU."""
    shapes = {"LDC": (COUNTS, FOLDS), "Elephant Voices": (VOICES, 5)}
    rows: list[Row] = []
    corpora = []
    for name, (counts, folds) in shapes.items():
        encoders = [make_corpus(counts, folds, size) for size in DIMENSIONS]
        corpora += encoders
        for spread in Protocol().spreads:
            spent = seconds(partial(run_paper, encoders[-1:], [spread], gpu))
            rows.append({"what": f"{name}, {spread}", "seconds": spent})
    for spreads in (BOTH[:1], BOTH, Protocol().spreads):
        spent = seconds(partial(run_paper, corpora, spreads, gpu), 3)
        rows.append({"what": f"the paper, {', '.join(spreads)}", "seconds": spent})
    return rows


def compare_with_cpu(gpu: Gpu) -> list[Row]:
    """Time the CPU engine, the NumPy opponent and scikit-learn; compare values with the CPU's."""
    rows: list[Row] = []
    for name, episodes in (
        ("LDC", make_corpus()),
        ("Elephant Voices", make_corpus(VOICES, 5)),
    ):
        run(episodes, Protocol(shots=(1, 2), draws=4, bootstraps=16), "per-query", None)
        for spread in BOTH:
            on_gpu = run(fresh(episodes), Protocol(), spread, gpu)
            start = time.perf_counter()
            on_cpu = run(fresh(episodes), Protocol(), spread, None)
            cpu_s = time.perf_counter() - start
            gpu_s = seconds(partial(run_paper, [episodes], [spread], gpu), 3)
            rows.append(
                {
                    "what": f"{name}, {spread}: CPU, {CPU_THREADS} threads",
                    "seconds": cpu_s,
                    "× GPU": cpu_s / gpu_s,
                    "difference": difference(on_cpu, on_gpu),
                }
            )
    ldc = make_corpus()
    gpu_s = seconds(partial(run_paper, [ldc], BOTH[:1], gpu), 3)
    for name, work in (
        ("NumPy opponent", numpy_loop),
        ("scikit-learn loop", sklearn_loop),
    ):
        spent = work(ldc)
        what = f"LDC, per-query: {name}, one thread, scaled from a slice"
        rows.append({"what": what, "seconds": spent, "× GPU": spent / gpu_s})
    return rows


def time_means(gpu: Gpu) -> list[Row]:
    """Time `shared` and `total` without and with the interval of the mean; compare with the CPU.

    Each row is printed as it comes.
    """
    rows: list[Row] = []

    def add(what: str, value: float) -> None:
        """Add a row, and print it."""
        rows.append({"what": what, "value": value})
        print(f"{what}: {value:.4g}", flush=True)

    shapes = {"LDC": (COUNTS, FOLDS), "Elephant Voices": (VOICES, 5)}
    protocol = Protocol()
    corpora = {name: make_corpus(*shape) for name, shape in shapes.items()}
    cores = os.cpu_count() or 1
    for (name, episodes), threads in product(corpora.items(), (CPU_THREADS, cores)):

        def work(
            with_means: bool, one: Episodes = episodes, threads: int = threads
        ) -> None:
            """Run both spreads on episodes without what earlier runs stored."""
            again = fresh(one)
            shared = {"with_means": with_means, "threads": threads}
            run(again, protocol, "shared", gpu, **shared)
            run(again, protocol, "total", gpu, threads=threads)

        what = f"{name}, {threads} threads"
        without = seconds(partial(work, False))
        with_means = seconds(partial(work, True))
        add(f"{what}, shared and total: seconds", without)
        add(f"{what}, shared and total, with the mean: seconds", with_means)
        add(f"{what}: ratio", with_means / without)
        with open_engine(fresh(episodes), protocol, threads, 2**33, gpu=gpu) as engine:
            _, sums = sweep(engine, "shared", without_groups=True)
            spent = seconds(partial(sample_means, engine, sums))
            add(f"{what}, samples of the mean, on the CPU: seconds", spent)
    few = Protocol(shots=(1, 5, 10, 40), shared_draws=200)
    for name, episodes in corpora.items():
        on_gpu = run(fresh(episodes), few, "shared", gpu, with_means=True).means
        on_cpu = run(
            fresh(episodes), few, "shared", None, with_means=True, threads=cores
        ).means
        pairs = [(on_cpu.values[key], on_gpu.values[key]) for key in on_cpu.values]
        pairs.append((on_cpu.ap, on_gpu.ap))
        largest = max(np.abs(one - other).max() for one, other in pairs)
        add(f"{name}: largest difference of a sample of the mean", float(largest))
    return rows


def difference(one: MetricSums, other: MetricSums) -> float:
    """Return the largest difference between the values of two sweeps."""
    pairs = [(one.values[key], other.values[key]) for key in one.values]
    pairs += [(one.per_class[key], other.per_class[key]) for key in one.per_class]
    return float(max(np.nanmax(np.abs(a - b)) for a, b in pairs))


def split_time(gpu: Gpu) -> list[Row]:
    """Return where the time of the LDC-shaped sweeps goes, and how far it is from the limits."""
    episodes = make_corpus()
    rows: list[Row] = []
    for spread in BOTH:
        run(episodes, Protocol(), spread, gpu)
        with profile(activities=[ProfilerActivity.CUDA]) as events:
            run(episodes, Protocol(), spread, gpu)
        found = sorted(
            events.key_averages(), key=lambda one: -one.self_device_time_total
        )
        for event in found[:6]:
            spent = event.self_device_time_total / 1e6
            row: Row = {"what": f"{spread}: {event.key[:40]}", "seconds": spent}
            if event.key == "_measure":
                row["of the limit"] = comparison_floor(episodes, spread) / spent
            rows.append(row)
    return rows


def find_limits(gpu: Gpu) -> list[Row]:
    """Return which limit each kernel of the LDC-shaped sweep is nearer to, and how far away it is.

    Bytes and operations are counted: the least that the task of a kernel needs. Times are the
    profiler's. The limits are a large copy, and 64 operations in float64 per clock and
    multiprocessor.
    """
    episodes = make_corpus()
    run(episodes, Protocol(), "per-query", gpu)
    with profile(activities=[ProfilerActivity.CUDA]) as events:
        run(episodes, Protocol(), "per-query", gpu)
    spent = {
        event.key: event.self_device_time_total / 1e6 for event in events.key_averages()
    }
    bandwidth = copy_bandwidth()
    rate = arithmetic_rate()
    rows: list[Row] = [
        {"what": "limit: copy, GB/s", "seconds": bandwidth / 1e9},
        {"what": "limit: float64, Gop/s", "seconds": rate / 1e9},
    ]
    for name, (size, count) in kernel_work(episodes).items():
        of_bandwidth = size / bandwidth / spent[name]
        of_arithmetic = count / rate / spent[name]
        rows.append(
            {
                "what": f"limit: {name}",
                "seconds": spent[name],
                "GB": size / 1e9,
                "Gop": count / 1e9,
                "of bandwidth": of_bandwidth,
                "of arithmetic": of_arithmetic,
                "nearer": "memory" if of_bandwidth > of_arithmetic else "arithmetic",
            }
        )
    return rows


def kernel_work(episodes: Episodes) -> dict[str, tuple[float, float]]:
    """Return the bytes and operations of each kernel in a sweep of each query's own draws."""
    protocol = Protocol()
    shots = len(protocol.shots)
    chosen = pairs = lanes = 0.0
    for split in make_splits(episodes):
        steps = np.minimum(shots, split.pool_sizes)
        draws = len(split.rows) * protocol.draws
        chosen += draws * float(steps.sum())
        pairs += draws * float((steps**2).sum()) / 2
        lanes += draws * len(steps)
    scores = lanes * shots
    queries = lanes / protocol.draws
    picked = queries * shots * protocol.bootstraps
    comparisons = comparison_floor(episodes, "per-query") * arithmetic_rate()
    return {
        "_draw_supports": (12 * chosen, 2 * pairs),
        "_fill_squares": (8 * pairs, pairs),
        "_fill_logits": (12 * chosen + 16 * scores, 4 * scores),
        "_to_scores": (16 * scores, 60 * scores),
        "_measure": (8 * picked, comparisons),
    }


def copy_bandwidth() -> float:
    """Return the bytes per second of a large copy on the card, read and written."""
    source = torch.ones(2**28, dtype=torch.float64, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)
        torch.cuda.synchronize()

    return 2 * 8 * len(source) / seconds(copy)


def arithmetic_rate() -> float:
    """Return the float64 operations per second of the card, without matrix units."""
    properties = torch.cuda.get_device_properties(0)
    clock_hz = torch.cuda.clock_rate(0) * 1e6
    return float(properties.multi_processor_count * COMPARISONS_PER_CLOCK * clock_hz)


def comparison_floor(episodes: Episodes, spread: str) -> float:
    """Return the seconds that the comparisons of scores take at the rate of the card."""
    protocol = Protocol()
    pairs = 0
    for split in make_splits(episodes):
        queries = len(split.rows)
        anchors = split.positives
        if spread == "per-query":
            anchors = np.minimum(anchors, queries - anchors)
        pairs += int((anchors * (queries + anchors)).sum())
    if spread == "shared":
        pairs *= 2  # below, and not above
    return pairs * len(protocol.shots) * protocol.samples(spread) / arithmetic_rate()


def measure_memory(gpu: Gpu) -> list[Row]:
    """Run large corpora; report the peak memory of the GPU."""
    rows: list[Row] = []
    for queries, shots in LARGE.items():
        counts = tuple(round(count * queries / sum(COUNTS)) for count in COUNTS)
        episodes = make_corpus(counts, FOLDS, 256)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        run(episodes, Protocol(shots=shots), "per-query", gpu)
        what = f"Q = {queries:,}, {len(shots)} shots, per-query, once"
        peak = torch.cuda.max_memory_allocated() / 1e9
        spent = time.perf_counter() - start
        rows.append({"what": what, "seconds": spent, "GB": peak})
    return rows


def growth(gpu: Gpu) -> list[Row]:
    """Time the sweep as one size doubles at a time."""
    start = {name: size for name, (_, size) in GROWTH.items()} | {"Q": 4000}
    rows: list[Row] = []

    def time_sizes(size: dict[str, Any]) -> float:
        counts = (size["Q"] // size["N"],) * size["N"]
        episodes = make_corpus(counts, folds=5, dimensions=64)
        shots = tuple(range(1, size["k"] + 1))
        protocol = Protocol(shots=shots, draws=size["R"], bootstraps=size["B"])
        return seconds(lambda: run(episodes, protocol, "per-query", gpu), 2)

    for name, (description, _) in GROWTH.items():
        times = [time_sizes(start | {name: start[name] * by}) for by in (1, 2, 4)]
        rows.append(
            {
                "what": f"growth with {name} ({description})",
                "seconds": times[0],
                "× 2": times[1] / times[0],
                "× 4": times[2] / times[0],
            }
        )
    return rows


def main() -> None:
    """Run everything and print one table."""
    options = parser(__doc__)
    options.add_argument(
        "--quick", action="store_true", help="only the times of sweeps"
    )
    options.add_argument("--only", choices=["means"])
    chosen = options.parse_args()
    choice = choose_device("cuda")
    if choice.gpu is None:
        raise SystemExit(choice.describe())
    if chosen.only == "means":
        rows = time_means(choice.gpu)
        show(f"bench/gpu_engine: {choice.gpu.name}", rows, chosen.json)
        return
    rows = time_sweeps(choice.gpu)
    if not chosen.quick:
        rows += split_time(choice.gpu)
        rows += find_limits(choice.gpu)
        rows += compare_with_cpu(choice.gpu)
        rows += measure_memory(choice.gpu)
        rows += growth(choice.gpu)
    show(f"bench/gpu_engine: {choice.gpu.name}", rows, chosen.json)


if __name__ == "__main__":
    main()
