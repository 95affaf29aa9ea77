"""Logistic regression at every k on a GPU, beside the CPU, with the shape of the finch syllables.

601 vectors of 1,024 dimensions, 11 classes, 5 folds, k = 1 … 40, 100 draws: 20,000 fits for each
spread. The GPU runs whole, a median of three after a first run, from arrays in the memory of the
host to metrics there. The CPU runs a tenth of the draws on two threads, and is scaled up. `J above`
is the largest difference between the objectives that the two reach on all fits of two draws;
`metrics` is the largest difference between the metrics of the draws that both ran. With
--table FILE, on embeddings of a corpus. Needs an NVIDIA GPU, torch and Triton (for the metrics).
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from callshot.baselines.gpu_logistic import BatchedSolver, GpuTrainer
from callshot.baselines.logistic import (
    DEFAULT_C,
    DRAWS,
    ENGINE_BYTES,
    fit_nested,
    standardise,
    support_rows,
    sweep_logistic,
)
from callshot.fewshot.episodes import Episodes, make_split, open_engine, plan_episodes
from callshot.fewshot.folds import choose_folds, count_classes
from callshot.fewshot.gpu.device import Gpu, choose_device
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import make_spread
from callshot.records import FloatArray, IntArray
from callshot.tables.embedding_tables import read_table
from engine import Row, make_corpus
from table import parser, show

FINCH = (128, 90, 47, 46, 45, 45, 45, 41, 38, 38, 38)
CPU_DRAWS = 10
CPU_THREADS = 2


def read_episodes(path: Path) -> Episodes:
    """Return the episodes of a table."""
    table = read_table(path)
    folds = choose_folds(table.spans)
    counts = count_classes(table.label, folds, table.recording)
    return plan_episodes(table, folds, counts)


def run(
    episodes: Episodes, spread: str, gpu: Gpu | None, draws: int = DRAWS
) -> MetricSums:
    """Train at every k on the draws of one spread."""
    protocol = Protocol(shared_draws=DRAWS, total_samples=DRAWS)
    return sweep_logistic(
        episodes, protocol, spread, draws=draws, threads=CPU_THREADS, gpu=gpu
    )[1]


def seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the median time of some calls after a first one."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def compare(name: str, episodes: Episodes, gpu: Gpu, *, with_cpu: bool) -> list[Row]:
    """Time both spreads on the GPU and on the CPU."""
    rows: list[Row] = []
    for spread in ("shared", "total"):
        torch.cuda.reset_peak_memory_stats()
        gpu_s = seconds(partial(run, episodes, spread, gpu), 3)
        row: Row = {"what": f"{name}, {spread}", "GPU s": gpu_s}
        row["GB"] = torch.cuda.max_memory_allocated() / 1e9
        if with_cpu:
            run(episodes, spread, None, 2)
            start = time.perf_counter()
            on_cpu = run(episodes, spread, None, CPU_DRAWS)
            cpu_s = (time.perf_counter() - start) * DRAWS / CPU_DRAWS
            on_gpu = run(episodes, spread, gpu, CPU_DRAWS)
            row |= {"CPU s": cpu_s, "CPU / GPU": cpu_s / gpu_s}
            row["metrics"] = difference(on_cpu, on_gpu)
        if spread == "shared":
            row["J above"] = optimum_difference(episodes, gpu)
        rows.append(row)
    return rows


def difference(one: MetricSums, other: MetricSums) -> float:
    """Return the largest difference between the values of two sweeps."""
    pairs = [(one.values[key], other.values[key]) for key in one.values]
    return float(max(np.nanmax(np.abs(a - b)) for a, b in pairs))


def optimum_difference(episodes: Episodes, gpu: Gpu) -> float:
    """Return the largest difference between the objectives of CPU and GPU on two draws."""
    protocol = Protocol()
    shots = np.array(protocol.shots)
    split = make_split(episodes, 0)
    classes = len(episodes.classes)
    largest = 0.0
    with open_engine(episodes, protocol, 1, ENGINE_BYTES, gpu=gpu) as engine:
        spread = make_spread("shared", episodes, protocol)
        trainer = GpuTrainer(
            engine, split, shots, spread, solver=BatchedSolver(DEFAULT_C)
        )
        draws = [
            support_rows(make_spread("shared", episodes, protocol), 0, draw, shots)
            for draw in (0, 1)
        ]
        table = torch.from_numpy(np.stack([rows for rows, _ in draws]))
        fits = [
            torch.cat(layers, 2).cpu()
            for layers in trainer.fit_nested(table.to(gpu.torch_device))
        ]
    for draw, (rows, sizes) in enumerate(draws):
        vectors = episodes.vectors[rows]
        label = episodes.label[rows]
        sizes = sizes[: len(fits)]
        weights, biases = fit_nested(vectors, label, sizes, classes, DEFAULT_C)
        for s, size in enumerate(sizes.tolist()):
            layer = fits[s][draw].numpy()
            ours = objective(vectors[:size], label[:size], layer[:, :-1], layer[:, -1])
            golden = objective(vectors[:size], label[:size], weights[s], biases[s])
            largest = max(largest, abs(ours - golden))
    return largest


def objective(
    vectors: FloatArray, label: IntArray, weight: FloatArray, bias: FloatArray
) -> float:
    """Return J of a layer for vectors that are not standardised."""
    rows, mean, deviation = standardise(vectors)
    scaled = weight * deviation
    logits = rows @ scaled.T + bias + weight @ mean
    loss = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(label)), label]
    return float(loss.sum() + (scaled**2).sum() / (2 * DEFAULT_C))


def split_time(episodes: Episodes, gpu: Gpu) -> list[Row]:
    """Return where the time of the spread `shared` goes."""
    activities = [ProfilerActivity.CUDA]
    with profile(activities=activities) as events:
        run(episodes, "shared", gpu)
    found = sorted(events.key_averages(), key=lambda one: -one.self_device_time_total)
    rows: list[Row] = []
    busy = sum(event.self_device_time_total for event in found) / 1e6
    rows.append({"what": "shared: GPU busy", "GPU s": busy})
    for event in found[:8]:
        spent = event.self_device_time_total / 1e6
        what = f"shared: {event.key[:70]}"
        rows.append({"what": what, "GPU s": spent, "launches": event.count})
    return rows


def main() -> None:
    """Run everything and print one table."""
    options = parser(__doc__)
    options.add_argument("--table", type=Path, metavar="FILE", help="embeddings")
    options.add_argument("--quick", action="store_true", help="without the CPU")
    chosen = options.parse_args()
    choice = choose_device("cuda")
    if choice.gpu is None:
        raise SystemExit(choice.describe())
    corpora = {"finch shape": make_corpus(FINCH, 5, 1024)}
    if chosen.table is not None:
        corpora[chosen.table.stem] = read_episodes(chosen.table)
    rows: list[Row] = []
    for name, episodes in corpora.items():
        rows += compare(name, episodes, choice.gpu, with_cpu=not chosen.quick)
    rows += split_time(next(iter(corpora.values())), choice.gpu)
    show(f"bench/gpu_logistic: {choice.gpu.name}", rows, chosen.json)


if __name__ == "__main__":
    main()
