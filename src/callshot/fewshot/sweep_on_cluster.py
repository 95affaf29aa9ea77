"""The sweeps of an evaluation as a job: an item is some shots of a table, classifier and spread.

Supports of k examples do not depend on the other shots: rows of blocks are those of one sweep. A
block is named arrays, which a store keeps for a run after this one, under the hash of everything
that decides them: the table, folds, classes, protocol and versions.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from typing import Protocol as Interface

import numba
import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError, OptionError
from callshot.fewshot.classifiers import find_classifier
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.folds import evaluated_classes
from callshot.fewshot.gpu.device import Choice, choose_device
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import Categories, sweep
from callshot.jobs import Cluster, Job
from callshot.records import ClassCount, Embeddings, Folds, IntArray
from callshot.version import __version__

BLOCKS = 4  # of shots, in a sweep
SWEEP_VERSION = 1  # raise it when the numbers of a sweep change

Arrays = Mapping[str, NDArray[Any]]
SweepKey = tuple[str, str, str]
"""Encoder, classifier and spread."""
Swept = tuple[IntArray, MetricSums]
"""k of each row, and the values."""
Block = tuple[Embeddings, str, str, Protocol]
"""A table, a classifier, a spread, and a protocol with some of the shots."""


class SweepStore(Interface):
    """Keeps arrays by name."""

    def find(self, name: str) -> Arrays | None:
        """Return what was added under a name; None if there is nothing, or it is damaged."""

    def add(self, name: str, arrays: Arrays) -> None:
        """Keep arrays under a name."""


@dataclass(frozen=True)
class SweepWork:
    """What all sweeps of an evaluation have in common; `memory` is in bytes."""

    protocol: Protocol
    folds: Folds
    counts: Sequence[ClassCount]
    categories: Categories
    memory: int
    threads: int = 1


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
    blocks: dict[str, Block] = {}
    for table in tables:
        dataset = hash_dataset(table, work)
        for block in _cut(table, work.protocol):
            facts = [dataset, *block[1:3], asdict(block[3])]
            blocks[_hash_facts(facts).hexdigest()] = block
    parts: dict[str, Arrays] = {}
    for name, (table, _, spread, protocol) in blocks.items():
        found = None if store is None else store.find(name)
        if found is not None and _is_whole(found, work, spread):
            parts[name] = found
            report(table.encoder, len(protocol.shots))
    missing = [name for name in blocks if name not in parts]
    items = [blocks[name] for name in missing]
    titles = [" ".join((item[0].encoder, *item[1:3])) for item in items]
    sizes = [float(1 + len(item[3].shots)) for item in items]
    job = Job("evaluate", use_threads, sweep_block, work, items, titles, sizes)
    for outcome in cluster.run(job):
        if outcome.reason:
            raise InputError(f"{titles[outcome.number]}: {outcome.reason}")
        name = missing[outcome.number]
        parts[name] = outcome.value
        if store is not None:
            store.add(name, outcome.value)
        report(blocks[name][0].encoder, len(blocks[name][3].shots))

    sweeps: dict[SweepKey, list[Arrays]] = {}
    for name, (table, classifier, spread, _) in blocks.items():
        key = (table.encoder, classifier, spread)
        sweeps.setdefault(key, []).append(parts[name])
    return {key: _join(arrays, work, key[2]) for key, arrays in sweeps.items()}


def hash_dataset(table: Embeddings, work: SweepWork) -> str:
    """Return the hash of what sweeps of a table read."""
    folds = work.folds
    facts = {
        "callshot": __version__,
        "sweep": SWEEP_VERSION,
        "numba": numba.__version__,
        "numpy": np.__version__,
        "encoder": table.encoder,
        "columns": [table.segment, table.recording, table.label, table.labels],
        "views": table.joined_dimensions,
        "folds": [folds.count, folds.only_common],
        "classes": [asdict(count) for count in work.counts],
        "categories": sorted(work.categories.items()) if work.categories else None,
        "vectors": [table.vectors.dtype.str, table.vectors.shape],
    }
    digest = _hash_facts(facts)
    digest.update(np.ascontiguousarray(folds.fold, np.int64).data)
    digest.update(np.ascontiguousarray(table.vectors).data)
    return digest.hexdigest()


def _hash_facts(facts: Any) -> "hashlib._Hash":
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode())


def choose_sweep_device(device: str, cluster: Cluster | None) -> Choice:
    """Return where sweeps run: on a cluster on CPUs, else where the user wants it."""
    if cluster is not None and device == "cuda":
        raise OptionError("device: on a cluster, evaluations run on CPUs; use cpu")
    choice = choose_device(device)
    is_other = cluster is not None and choice.gpu is not None
    return choose_device("cpu") if is_other else choice


def _cut(table: Embeddings, protocol: Protocol) -> list[Block]:
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


def sweep_block(work: SweepWork, block: Block) -> Arrays:
    """Sweep some shots."""
    table, classifier, spread, protocol = block
    episodes = plan_episodes(table, work.folds, work.counts)
    rule = find_classifier(classifier)
    with open_engine(
        episodes, protocol, work.threads, work.memory, classifier=rule
    ) as engine:
        return _name_arrays(*sweep(engine, spread, work.categories))


def _name_arrays(k: IntArray, sums: MetricSums) -> dict[str, NDArray[Any]]:
    """Return what summaries read of a sweep, under names; the arrays are its own."""
    arrays: dict[str, NDArray[Any]] = {
        "undefined": sums.undefined,
        "shots": k,
        "tied": sums.tied,
        "decisions": sums.decisions,
    }
    for name in ("values", "per_class", "chance"):
        for key, table in getattr(sums, name).items():
            words = (key,) if isinstance(key, str) else key
            arrays[" ".join((name, *words))] = table
    return arrays


def _empty_sums(k: IntArray, work: SweepWork, spread: str) -> MetricSums:
    samples = work.protocol.samples(spread)
    classes = evaluated_classes(work.counts)
    return MetricSums(len(k), samples, classes, work.categories)


def _is_whole(arrays: Arrays, work: SweepWork, spread: str) -> bool:
    """Return whether a block that was found has every array in its size."""
    k = np.ravel(arrays.get("shots", 0))
    expected = _name_arrays(k, _empty_sums(k, work, spread))
    sizes = [
        {name: (array.dtype, array.shape) for name, array in block.items()}
        for block in (arrays, expected)
    ]
    return sizes[0] == sizes[1]


def _join(parts: Sequence[Arrays], work: SweepWork, spread: str) -> Swept:
    """Return the blocks of a sweep as one."""
    k = np.concatenate([part["shots"] for part in parts])
    # The pool may be one of the shots.
    kept = np.sort(np.unique(k, return_index=True)[1])
    k = k[kept]
    sums = _empty_sums(k, work, spread)
    for name, array in _name_arrays(k, sums).items():
        whole = np.concatenate([part[name] for part in parts])
        array[:] = parts[0][name] if name == "undefined" else whole[kept]
    return k, sums
