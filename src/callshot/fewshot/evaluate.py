"""Embeddings of one corpus by several encoders → the results of the k-shot protocol, as frames."""

import os
from collections.abc import Sequence
from functools import partial

from callshot.fewshot.dataset import describe_equal_tables, distinct_tables
from callshot.fewshot.engine import machine_memory
from callshot.fewshot.evaluation_run import Categories, CollectedFrames, EvaluationRun
from callshot.fewshot.finished_sweeps import SweepStore
from callshot.fewshot.folds import check_tables, complete_shots, count_classes
from callshot.fewshot.notes import list_duplicates
from callshot.fewshot.partitions import other_partitions
from callshot.fewshot.permutation import shots_to_test
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep_on_cluster import choose_sweep_device
from callshot.jobs import Cluster
from callshot.records import (
    Embeddings,
    Evaluation,
    Folds,
    Progress,
    no_progress,
)


def evaluate_tables(
    tables: Sequence[Embeddings],
    protocol: Protocol | None = None,
    *,
    folds: Folds | None = None,
    categories: Categories = None,
    corpus: str = "corpus",
    threads: int | None = None,
    memory: int | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    store: SweepStore | None = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Run the k-shot protocol over several encoders' embeddings of the same segments.

    Parameters
    ----------
    tables : sequence of Embeddings
        One table per encoder, with the same segments in the same order. Tables with the same
        vectors are evaluated once, under the first name; a note says so.
    protocol : Protocol, optional
        The paper's by default.
    folds : Folds, optional
        Taken from the first table, or built, where they are not given.
    categories : mapping, optional
        The category of each label, for reduced scoring.
    corpus : str
        The name of the corpus in the results.
    threads, memory : int, optional
        Threads (all cores by default) and bytes for the Gram matrix (a quarter of the machine's
        memory by default). They change the time, not the numbers.
    device : {"auto", "cpu", "cuda"}
        Where sweeps run. auto is the GPU if there is one that can; a note says which. Between the
        two, scores differ in their last digits.
    cluster : Cluster, optional
        Workers that sweep, on their CPUs. They change the time, not the numbers.
    store : SweepStore, optional
        Keeps what workers finished; what it has is not computed again.
    progress : callable
        Called with each share of the work that is done.

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError
        If the tables disagree, hold values that are not finite, or allow no evaluation.

    Examples
    --------
    >>> import numpy as np
    >>> vectors = np.array([[0.0], [0.1], [1.0], [1.1]] * 5)
    >>> recording = [f"rec{i // 4}" for i in range(20)]
    >>> label = ["rumble", "rumble", "roar", "roar"] * 5
    >>> segment = [f"s{i:02}" for i in range(20)]
    >>> table = Embeddings("mine", vectors, segment, recording, label, [()] * 20)
    >>> protocol = Protocol(shots=(1, 2), draws=5, bootstraps=20, shared_draws=10)
    >>> result = evaluate_tables([table], protocol)
    >>> result.curve.filter(spread="shared", metric="map").select("k", "mean").rows()
    [(1, 1.0), (2, 1.0)]
    """
    protocol = protocol or Protocol()
    folds = check_tables(tables, folds)
    equal = describe_equal_tables(tables)
    tables = distinct_tables(tables)
    first = tables[0]
    counts = count_classes(first.label, folds, first.recording)
    partitions = other_partitions(first, folds, protocol)
    run = EvaluationRun(
        corpus=corpus,
        protocol=protocol,
        folds=folds,
        counts=counts,
        categories=categories,
        threads=threads or os.cpu_count() or 1,
        memory=machine_memory() // 4 if memory is None else memory,
        partitions=partitions,
        device=choose_sweep_device(device, cluster),
    )
    results = CollectedFrames(notes=[*equal, *run.describe_tables(tables)])
    shots = _sweep_count(protocol, complete_shots(counts), len(partitions))
    total = max(len(tables) * shots, 1)
    queries = 0
    if cluster is not None:
        report = partial(_report_share, progress, total=total)
        run.sweeps.update(run.sweep_on_cluster(cluster, tables, report, store))
    for table in tables:
        results.add(duplicates=list_duplicates(corpus, table, folds))
        step = partial(_report_share, progress, table.encoder, total=total)
        queries = run.evaluate_table(table, results, step)
    return run.summarise(results, first, queries)


def _sweep_count(protocol: Protocol, complete: int, partitions: int) -> int:
    """Return how many shots are swept or tested for one encoder, for progress."""
    sweeps = len(protocol.classifiers) * len(protocol.spreads) + partitions
    if protocol.seeds > 1:
        sweeps += 1 + partitions
    if protocol.score == "softmax":
        sweeps += len(set(protocol.spreads) - {"total"})
    tested = len(shots_to_test(protocol, complete))
    return sweeps * len(protocol.shots) + tested


def _report_share(progress: Progress, encoder: str, shots: float, total: int) -> None:
    progress(shots / total, encoder)
