"""The sweeps of an evaluation as a job: an item is some shots of a table, classifier and spread.

Supports of k examples do not depend on the other shots: rows of blocks are those of one sweep.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from callshot.errors import InputError, OptionError
from callshot.fewshot.classifiers import find_classifier
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.gpu.device import Choice, choose_device
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import Categories, sweep
from callshot.jobs import Cluster, Job
from callshot.records import ClassCount, Folds, IntArray
from callshot.vectors import Vectors

BLOCKS = 4  # of shots, in a sweep

SweepKey = tuple[str, str, str]
"""Encoder, classifier and spread."""
Swept = tuple[IntArray, MetricSums]
"""k of each row, and the values."""
Block = tuple[Vectors, str, str, Protocol]
"""A table, a classifier, a spread, and a protocol with some of the shots."""


@dataclass(frozen=True)
class SweepWork:
    """What all sweeps of an evaluation have in common; `memory` is in bytes."""

    protocol: Protocol
    folds: Folds
    counts: Sequence[ClassCount]
    categories: Categories
    memory: int
    threads: int


def sweep_on_cluster(
    cluster: Cluster,
    work: SweepWork,
    tables: Sequence[Vectors],
    report: Callable[[str, int], None],
) -> dict[SweepKey, Swept]:
    """Return every sweep of tables; `report` is called with an encoder and a number of shots.

    The values of `total` are raw samples.
    """
    blocks = [block for table in tables for block in _cut(table, work.protocol)]
    keys = [(table.encoder, name, spread) for table, name, spread, _ in blocks]
    shots = [len(protocol.shots) for *_, protocol in blocks]
    titles = [" ".join(key) for key in keys]
    sizes = [float(1 + count) for count in shots]
    job = Job(
        "evaluate",
        use_threads,
        sweep_block,
        work,
        blocks,
        titles,
        sizes,
    )
    parts = {}
    for outcome in cluster.run(job):
        number = outcome.number
        if outcome.reason:
            raise InputError(f"{titles[number]}: {outcome.reason}")
        parts[number] = outcome.value
        report(keys[number][0], shots[number])
    sweeps = defaultdict(list)
    for number, key in enumerate(keys):
        sweeps[key].append(parts[number])
    return {key: _join(swept) for key, swept in sweeps.items()}


def choose_sweep_device(device: str, cluster: Cluster | None) -> Choice:
    """Return where sweeps run: on a cluster on CPUs, else where the user wants it."""
    if cluster is not None and device == "cuda":
        raise OptionError("device: on a cluster, evaluations run on CPUs; use cpu")
    return choose_device(device if cluster is None else "cpu")


def _cut(table: Vectors, protocol: Protocol) -> list[Block]:
    """Return blocks of the shots of every classifier and spread; the last has the whole pool."""
    count = max(1, min(BLOCKS, len(protocol.shots)))
    blocks = []
    for classifier in protocol.classifiers:
        for spread in protocol.spreads:
            parts = np.array_split(np.array(protocol.shots, np.int64), count)
            for number, part in enumerate(parts, 1):
                has_pool = protocol.whole_pool and number == count
                shots = tuple(part.tolist())
                cut = replace(protocol, shots=shots, whole_pool=has_pool)
                blocks.append((table, classifier, spread, cut))
    return blocks


def use_threads(work: SweepWork, threads: int) -> SweepWork:
    """Return the work with the threads of a worker."""
    return replace(work, threads=threads)


def sweep_block(work: SweepWork, block: Block) -> Swept:
    """Sweep some shots."""
    table, classifier, spread, protocol = block
    episodes = plan_episodes(table, work.folds, work.counts)
    rule = find_classifier(classifier)
    with open_engine(
        episodes, protocol, work.threads, work.memory, classifier=rule
    ) as engine:
        return sweep(engine, spread, work.categories)


def _join(parts: Sequence[Swept]) -> Swept:
    """Return the blocks of a sweep as one, in place of the first."""
    k = np.concatenate([shots for shots, _ in parts])
    # The pool may be one of the shots.
    kept = np.sort(np.unique(k, return_index=True)[1])
    sums = [part for _, part in parts]
    whole = sums[0]
    for name in ("tied", "decisions"):
        rows = np.concatenate([getattr(part, name) for part in sums])
        setattr(whole, name, rows[kept])
    for name in ("values", "per_class", "chance"):
        tables = getattr(whole, name)
        for key in tables:
            rows = np.concatenate([getattr(part, name)[key] for part in sums])
            tables[key] = rows[kept]
    return k[kept], whole
