"""The sweeps of an evaluation as a job: an item is some shots of a table, classifier and spread.

Supports of k examples do not depend on the other shots: rows of blocks are those of one sweep.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from callshot.errors import InputError, OptionError
from callshot.fewshot.classifiers import find_classifier
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.finished_sweeps import (
    ROWS_OF_SHOTS,
    TABLES_OF_SHOTS,
    SweepStore,
    Swept,
    from_arrays,
    hash_dataset,
    hash_part,
    to_arrays,
)
from callshot.fewshot.folds import evaluated_classes
from callshot.fewshot.gpu.device import Choice, choose_device
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import Categories, sweep
from callshot.jobs import Cluster, Job
from callshot.records import ClassCount, Embeddings, FloatArray, Folds, IntArray

BLOCKS = 4  # of shots, in a sweep

SweepKey = tuple[str, str, str]
"""Encoder, classifier and spread."""


@dataclass(frozen=True)
class SweepWork:
    """What all sweeps of an evaluation have in common; `memory` is in bytes."""

    protocol: Protocol
    folds: Folds
    counts: Sequence[ClassCount]
    categories: Categories
    memory: int
    threads: int = 1


@dataclass(frozen=True)
class SweepBlock:
    """Some of the shots of a sweep; `name` is a hash of all that decides it."""

    name: str
    table: Embeddings
    classifier: str
    spread: str
    protocol: Protocol

    @property
    def key(self) -> SweepKey:
        """The sweep that it is a part of."""
        return self.table.encoder, self.classifier, self.spread


def sweep_on_cluster(
    cluster: Cluster,
    work: SweepWork,
    tables: Sequence[Embeddings],
    report: Callable[[str, int], None],
    store: SweepStore | None = None,
) -> dict[SweepKey, Swept]:
    """Return every sweep of tables; `report` is called with an encoder and a number of shots.

    Each block is added to the store when it ends, and blocks that the store has are not swept
    again. The values of `total` are raw samples.
    """
    blocks = [block for table in tables for block in _cut(table, work)]
    parts: dict[str, Swept] = {}
    for block, swept in _find_or_sweep(cluster, work, blocks, store):
        parts[block.name] = swept
        report(block.table.encoder, len(block.protocol.shots))
    sweeps: dict[SweepKey, list[Swept]] = {}
    for block in blocks:
        sweeps.setdefault(block.key, []).append(parts[block.name])
    return {key: _join(swept) for key, swept in sweeps.items()}


def _find_or_sweep(
    cluster: Cluster,
    work: SweepWork,
    blocks: Sequence[SweepBlock],
    store: SweepStore | None,
) -> Iterator[tuple[SweepBlock, Swept]]:
    """Yield blocks with their values: first those that the store has, then the others."""
    missing = []
    for block in blocks:
        swept = None if store is None else _find(store, work, block)
        if swept is None:
            missing.append(block)
        else:
            yield block, swept
    for block, swept in _sweep_blocks(cluster, work, missing):
        if store is not None:
            store.add(block.name, to_arrays(swept))
        yield block, swept


def _sweep_blocks(
    cluster: Cluster, work: SweepWork, blocks: Sequence[SweepBlock]
) -> Iterator[tuple[SweepBlock, Swept]]:
    """Yield blocks with their values, which workers compute."""
    names = [" ".join(block.key) for block in blocks]
    sizes = [float(1 + len(block.protocol.shots)) for block in blocks]
    job = Job("evaluate", use_threads, sweep_block, work, blocks, names, sizes)
    for outcome in cluster.run(job):
        if outcome.reason:
            raise InputError(f"{names[outcome.number]}: {outcome.reason}")
        yield blocks[outcome.number], outcome.value


def _find(store: SweepStore, work: SweepWork, block: SweepBlock) -> Swept | None:
    """Return a block that an earlier run finished."""
    arrays = store.find(block.name)
    if arrays is None:
        return None
    samples = work.protocol.samples(block.spread)
    classes = evaluated_classes(work.counts)
    return from_arrays(arrays, samples, classes, work.categories)


def choose_sweep_device(device: str, cluster: Cluster | None) -> Choice:
    """Return where sweeps run: on a cluster on CPUs, else where the user wants it."""
    if cluster is None:
        return choose_device(device)
    if device == "cuda":
        raise OptionError("device: on a cluster, evaluations run on CPUs; use cpu")
    choice = choose_device(device)
    return choice if choice.gpu is None else choose_device("cpu")


def _cut(table: Embeddings, work: SweepWork) -> Iterator[SweepBlock]:
    """Yield blocks of the shots of every classifier and spread; the last has the whole pool."""
    protocol = work.protocol
    dataset = hash_dataset(table, work.folds, work.counts, work.categories)
    count = max(1, min(BLOCKS, len(protocol.shots)))
    parts = np.array_split(np.array(protocol.shots, np.int64), count)
    for classifier in protocol.classifiers:
        for spread in protocol.spreads:
            for number, part in enumerate(parts, 1):
                has_pool = protocol.whole_pool and number == count
                shots = tuple(part.tolist())
                cut = replace(protocol, shots=shots, whole_pool=has_pool)
                name = hash_part(dataset, classifier, spread, cut)
                yield SweepBlock(name, table, classifier, spread, cut)


def use_threads(work: SweepWork, threads: int) -> SweepWork:
    """Return the work with the threads of a worker."""
    return replace(work, threads=threads)


def sweep_block(work: SweepWork, block: SweepBlock) -> Swept:
    """Sweep some shots."""
    episodes = plan_episodes(block.table, work.folds, work.counts)
    rule = find_classifier(block.classifier)
    engine = open_engine(
        episodes, block.protocol, work.threads, work.memory, classifier=rule
    )
    with engine:
        return sweep(engine, block.spread, work.categories)


def _join(parts: Sequence[Swept]) -> Swept:
    """Return the blocks of a sweep as one."""
    rows = np.concatenate([rows for rows, _ in parts])
    first_of_each = np.unique(rows, return_index=True)[1]
    kept = np.sort(first_of_each)  # the pool may be one of the shots
    all_sums = [sums for _, sums in parts]
    joined = all_sums[0]
    for name in ROWS_OF_SHOTS:
        arrays = [getattr(sums, name) for sums in all_sums]
        setattr(joined, name, np.concatenate(arrays)[kept])
    for name in TABLES_OF_SHOTS:
        _join_tables([getattr(sums, name) for sums in all_sums], kept)
    return rows[kept], joined


def _join_tables(tables: Sequence[dict[Any, FloatArray]], kept: IntArray) -> None:
    """Give the arrays of the first table the rows of all."""
    first = tables[0]
    for key in first:
        whole = np.concatenate([table[key] for table in tables])
        first[key] = whole[kept]
