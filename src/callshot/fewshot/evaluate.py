"""Embeddings of one corpus by several encoders → the results of the k-shot protocol, as frames.

Each encoder is swept with every classifier and spread; the reference classifier is tested against
chance, and evaluated in other partitions and samples. The streams have no state, so one episode can
be repeated without the others: the support set of a query in one draw, and its scores.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import cast

import numpy as np
import polars as pl

from callshot.errors import InputError, OptionError
from callshot.fewshot.centroid import log_odds, softmax
from callshot.fewshot.classifiers import find_classifier, unit
from callshot.fewshot.dataset import (
    describe_doubtful_labels,
    describe_equal_tables,
    describe_leaks,
    describe_uncategorised,
    distinct_tables,
    list_duplicates,
)
from callshot.fewshot.differences import compare_encoders
from callshot.fewshot.engine import (
    Engine,
    Step,
    gram_bytes,
    machine_memory,
    open_engine,
    transform_split,
)
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.finished_sweeps import SweepStore, Swept
from callshot.fewshot.folds import check_tables, complete_shots, count_classes
from callshot.fewshot.gpu.device import Choice, Gpu, gpu_if_large_enough
from callshot.fewshot.label_budget import Gains, label_budget
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.permutation import (
    LARGEST_P,
    TOO_FEW_ORDERS,
    chance_test,
    count_orders,
    shots_to_test,
)
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.summary import SweepSummary, describe_ties
from callshot.fewshot.sweep import (
    make_spread,
    sweep,
    sweep_folds,
    sweep_with_fallback,
    widen_total,
)
from callshot.fewshot.sweep_on_cluster import (
    SweepKey,
    SweepWork,
    choose_sweep_device,
    sweep_on_cluster,
)
from callshot.fewshot.variation import (
    cross_samples,
    describe_partitions,
    other_partitions,
    partition_frame,
    partition_spread,
    sensitivity_frames,
)
from callshot.jobs import Cluster
from callshot.records import (
    ClassCount,
    Embeddings,
    Episode,
    Evaluation,
    FloatArray,
    Folds,
    IntArray,
    Progress,
    no_progress,
)
from callshot.records.frames import (
    CHANCE_TEST,
    CONFUSION,
    CURVE,
    DUPLICATES,
    PARTITIONS,
    PER_CLASS,
    SENSITIVITY,
    SENSITIVITY_MEANS,
    TIES,
    VALUES,
    concat_frames,
)

SCHEMAS = {
    "curve": CURVE,
    "values": VALUES,
    "per_class": PER_CLASS,
    "confusion": CONFUSION,
    "ties": TIES,
    "chance_test": CHANCE_TEST,
    "partitions": PARTITIONS,
    "sensitivity": SENSITIVITY,
    "sensitivity_means": SENSITIVITY_MEANS,
    "duplicates": DUPLICATES,
}
Categories = Mapping[str, str] | None


@dataclass
class CollectedFrames:
    """Frames and notes, collected sweep by sweep."""

    frames: dict[str, list[pl.DataFrame]] = field(
        default_factory=lambda: {name: [] for name in SCHEMAS}
    )
    notes: list[str] = field(default_factory=list)
    gains: dict[str, Gains] = field(default_factory=dict)  # by encoder

    def add(self, **frames: pl.DataFrame) -> None:
        """Add rows to frames, by their names."""
        for name, frame in frames.items():
            self.frames[name].append(frame)

    def joined(self) -> dict[str, pl.DataFrame]:
        """Return every frame as a whole."""
        return {
            name: concat_frames(parts, SCHEMAS[name])
            for name, parts in self.frames.items()
        }


@dataclass(frozen=True)
class EvaluationRun:
    """What is the same for all encoders of an evaluation."""

    corpus: str
    protocol: Protocol
    folds: Folds
    counts: list[ClassCount]
    categories: Categories
    threads: int
    memory: int
    partitions: dict[int, Folds]
    device: Choice
    finished: Mapping[SweepKey, Swept]  # by a cluster

    def describe_tables(self, tables: Sequence[Embeddings]) -> list[str]:
        """Return notes on tables and their labels, on partitions and on the device."""
        return [
            *(table.note for table in tables if table.note),
            *describe_doubtful_labels(tables[0]),
            *describe_uncategorised(self.categories, self.counts),
            *describe_partitions(self.partitions, self.protocol),
            *self.device.notes,
        ]

    def summarise(
        self, results: CollectedFrames, table: Embeddings, queries: int
    ) -> Evaluation:
        """Return the results of all encoders; `table` is that of the first one."""
        frames = results.joined()
        results.notes += describe_leaks(frames["duplicates"], self.folds)
        reference = pl.col("classifier") == self.protocol.reference
        per_class = frames["per_class"].filter(reference)
        values = frames["values"].filter(reference)
        last = complete_shots(self.counts)
        return Evaluation(
            corpus=self.corpus,
            complete_shots=last,
            queries=queries,
            classes=self.counts,
            folds=self.folds,
            segments=table,
            notes=results.notes,
            settings=asdict(self.protocol),
            **frames,
            differences=compare_encoders(values, last),
            budget=label_budget(per_class, self.counts, results.gains),
        )

    def evaluate_table(
        self, table: Embeddings, results: CollectedFrames, step: Step
    ) -> int:
        """Collect the results of one encoder; return the number of queries."""
        with _named_errors(table):
            episodes = plan_episodes(table, self.folds, self.counts)
        needed = gram_bytes(episodes)
        gpu = gpu_if_large_enough(self.device.gpu, episodes, results.notes)
        if needed > self.memory and gpu is None:
            results.notes.append(_describe_direct_scoring(table, needed, self.memory))
        for name in self.protocol.classifiers:
            with _named_errors(table):
                engine = self.open(episodes, step, name, gpu)
            with engine:
                self.add_sweeps(results, engine, table.encoder)
                if name == self.protocol.reference:
                    self.add_chance_test(results, engine, table.encoder)
        self.add_partitions(results, table, step)
        if self.protocol.seeds > 1:
            self.add_sensitivity(results, table, step)
        return int((episodes.fold >= 0).sum())

    def open(
        self, episodes: Episodes, step: Step, classifier: str, gpu: Gpu | None
    ) -> Engine:
        """Start the threads for one classifier."""
        rule = find_classifier(classifier)
        return open_engine(
            episodes, self.protocol, self.threads, self.memory, step, rule, gpu
        )

    def add_sweeps(
        self, results: CollectedFrames, engine: Engine, encoder: str
    ) -> None:
        """Collect the frames of every spread; `total` is predicted with the help of `shared`."""
        shared = None
        for spread in self.protocol.spreads:
            k, sums = self.sweep(engine, encoder, spread, results.notes, shared)
            if spread == "shared":
                shared = sums
            summary = SweepSummary(
                self.corpus,
                encoder,
                spread,
                k,
                sums,
                engine.episodes,
                self.counts,
                engine.classifier.name,
            )
            results.add(
                curve=summary.curve, values=summary.values, per_class=summary.per_class
            )
            if summary.classifier == self.protocol.reference:
                self.add_reference_frames(results, engine, summary)

    def sweep(
        self,
        engine: Engine,
        encoder: str,
        spread: str,
        notes: list[str],
        shared: MetricSums | None,
    ) -> Swept:
        """Return a sweep that a cluster made, or make it."""
        key = (encoder, engine.classifier.name, spread)
        if key not in self.finished:
            work = partial(
                sweep, spread=spread, categories=self.categories, shared=shared
            )
            return cast(Swept, sweep_with_fallback(engine, notes, work))
        k, sums = self.finished[key]
        if spread == "total" and shared is not None:
            widen_total(sums, shared, engine.episodes)
        return k, sums

    def add_reference_frames(
        self, results: CollectedFrames, engine: Engine, summary: SweepSummary
    ) -> None:
        """Collect gains, ties, partitions and confusion of a sweep of the reference.

        Beside the literal softmax, log-odds are swept, to measure what its ties cost.
        """
        spread = summary.spread
        protocol = self.protocol
        if spread == "total":
            results.gains[summary.encoder] = summary.gains()
            return
        log_sums = None
        if protocol.score == "softmax":
            log_engine = replace(engine, protocol=replace(protocol, score="log"))
            work = partial(sweep, spread=spread)
            _, log_sums = sweep_with_fallback(log_engine, results.notes, work)
        ties = summary.ties(protocol.supports(spread), log_sums)
        results.add(ties=ties)
        results.notes.extend(describe_ties(ties))
        if self.partitions and spread == partition_spread(protocol):
            results.add(partitions=partition_frame(summary.curve, 0))
        if spread == protocol.spreads[0]:
            results.add(confusion=summary.confusion())
            results.notes.extend(summary.notes())

    def add_chance_test(
        self, results: CollectedFrames, engine: Engine, encoder: str
    ) -> None:
        """Collect the test of the reference against permuted labels."""
        last = complete_shots(self.counts)
        shots = shots_to_test(self.protocol, last)
        if shots and count_orders(engine.episodes) < 1 / LARGEST_P:
            engine.step(len(shots))
            if TOO_FEW_ORDERS not in results.notes:
                results.notes.append(TOO_FEW_ORDERS)
            return
        results.add(chance_test=chance_test(engine, last, self.corpus, encoder))

    def add_partitions(
        self, results: CollectedFrames, table: Embeddings, step: Step
    ) -> None:
        """Collect the mAP of the reference in the other partitions."""
        spread = partition_spread(self.protocol)
        name = self.protocol.reference
        for number, folds in self.partitions.items():
            counts = count_classes(table.label, folds)
            episodes = plan_episodes(table, folds, counts)
            gpu = gpu_if_large_enough(self.device.gpu, episodes, results.notes)
            with self.open(episodes, step, name, gpu) as engine:
                work = partial(sweep, spread=spread)
                k, sums = sweep_with_fallback(engine, results.notes, work)
            summary = SweepSummary(
                self.corpus, table.encoder, spread, k, sums, episodes, counts, name
            )
            results.add(partitions=partition_frame(summary.curve, number))

    def add_sensitivity(
        self, results: CollectedFrames, table: Embeddings, step: Step
    ) -> None:
        """Collect where the spread of the reference's mAP comes from."""
        shots = np.array(self.protocol.shots, np.int64)
        name = self.protocol.reference
        values = []
        for folds in (self.folds, *self.partitions.values()):
            episodes = plan_episodes(table, folds, count_classes(table.label, folds))
            samples = cross_samples(episodes, self.protocol)
            gpu = gpu_if_large_enough(self.device.gpu, episodes, results.notes)
            with self.open(episodes, step, name, gpu) as engine:
                work = partial(sweep_folds, k=shots, spread=samples)
                sums = sweep_with_fallback(engine, results.notes, work)
            values.append(sums.values["all", "map"].T)
        size = (len(values), self.protocol.seeds, self.protocol.seeds, len(shots))
        key = {"corpus": self.corpus, "encoder": table.encoder, "classifier": name}
        sources, means = sensitivity_frames(np.stack(values).reshape(size), shots, key)
        results.add(sensitivity=sources, sensitivity_means=means)


@contextmanager
def _named_errors(table: Embeddings) -> Iterator[None]:
    """Name the table in errors about its vectors."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{table.source}: {error}") from None


def _describe_direct_scoring(table: Embeddings, needed: int, memory: int) -> str:
    return (
        f"{table.encoder}: the Gram matrix needs {needed / 2**30:.1f} GiB, and "
        f"{memory / 2**30:.1f} GiB are allowed; scoring from the vectors directly: "
        "the same numbers, more slowly"
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
    choice = choose_sweep_device(device, cluster)
    limit = machine_memory() // 4 if memory is None else memory
    shots = _sweep_count(protocol, complete_shots(counts), len(partitions))
    total = max(len(tables) * shots, 1)
    finished = {}
    if cluster is not None:
        for table in tables:
            with _named_errors(table):
                plan_episodes(table, folds, counts)
        work = SweepWork(protocol, folds, counts, categories, limit)
        report = partial(_report_share, progress, total=total)
        finished = sweep_on_cluster(cluster, work, tables, report, store)
    run = EvaluationRun(
        corpus=corpus,
        protocol=protocol,
        folds=folds,
        counts=counts,
        categories=categories,
        threads=threads or os.cpu_count() or 1,
        memory=limit,
        partitions=partitions,
        device=choice,
        finished=finished,
    )
    results = CollectedFrames(notes=[*equal, *run.describe_tables(tables)])
    queries = 0
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


def rerun_episode(
    embeddings: Embeddings,
    folds: Folds,
    segment: str,
    k: int,
    draw: int,
    protocol: Protocol,
    spread: str = "per-query",
    classifier: str = "centroid",
) -> Episode:
    """Return the support set of a query in one draw of a sweep, and its scores by a classifier.

    Parameters
    ----------
    embeddings : Embeddings
        The table of the sweep.
    folds : Folds
        Its folds.
    segment : str
        The id of the query.
    k : int
        Exemplars per class.
    draw : int
        The number of the draw, from 0.
    protocol : Protocol
        The protocol of the sweep.
    spread : {"per-query", "shared"}
        Whether the draw is the query's own, or that of all queries.
    classifier : str
        The rule that scores the query.

    Returns
    -------
    Episode

    Raises
    ------
    InputError
        If the segment is no query.
    OptionError
        If k or the draw is out of range.

    Examples
    --------
    >>> vectors = np.array([[0.0], [0.1], [1.0], [1.2]] * 2)
    >>> label = ["rumble", "rumble", "roar", "roar"] * 2
    >>> table = Embeddings("mine", vectors, "abcdefgh", "xxxxyyyy", label, [()] * 8)
    >>> folds = Folds(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 2, "given")
    >>> rerun_episode(table, folds, "a", k=1, draw=0, protocol=Protocol()).support
    {'roar': ('g',), 'rumble': ('e',)}
    """
    if k < 1 or draw < 0:
        raise OptionError(
            f"an episode has k ≥ 1 and a draw ≥ 0, got k = {k} and draw = {draw}"
        )
    if segment not in embeddings.segment:
        raise InputError(
            f"{embeddings.source}: column segment: no segment is called {segment!r}"
        )
    episodes = plan_episodes(embeddings, folds, count_classes(embeddings.label, folds))
    queries = np.flatnonzero(episodes.fold >= 0).tolist()
    rows_of_queries = {episodes.segment[row]: row for row in queries}
    if segment not in rows_of_queries:
        raise InputError(
            f"segment {segment!r} is no query: its label is not eligible, "
            "or it is in the common fold"
        )
    query = rows_of_queries[segment]
    drawn = make_spread(spread, episodes, protocol)
    place = query if drawn.has_own_draws else int(episodes.fold[query])
    rows = [
        drawn.support(episodes, place, n, k, draw, protocol)
        for n in range(len(episodes.classes))
    ]
    to_scores = softmax if protocol.score == "softmax" else log_odds
    scores = to_scores(_evidence(episodes, query, rows, classifier, protocol))
    segments = [tuple(episodes.segment[row] for row in support) for support in rows]
    return Episode(
        segment,
        k,
        draw,
        support=dict(zip(episodes.classes, segments, strict=True)),
        scores=dict(zip(episodes.classes, scores.tolist(), strict=True)),
    )


def _evidence(
    episodes: Episodes,
    query: int,
    rows: list[IntArray],
    name: str,
    protocol: Protocol,
) -> FloatArray:
    """Return a_n of a query by the support rows of each class, straight from the definitions."""
    classifier = find_classifier(name)
    rule = classifier.rule
    fold = int(episodes.fold[query])
    if not classifier.centred:
        episodes = episodes.uncentred()
    vectors = transform_split(episodes, classifier, fold).vectors
    z = vectors[query]
    if protocol.distinct:
        # A whole pool is one set, whatever order it was drawn in.
        sizes = np.bincount(episodes.label[episodes.is_support(fold)])
        pairs = zip(rows, sizes, strict=True)
        rows = [np.sort(row) if len(row) == size else row for row, size in pairs]
    supports = [vectors[support] for support in rows]
    if rule == "nearest":
        evidence = [2.0 * x @ z - (x**2).sum(axis=1) for x in supports]
        return np.array([one.max() for one in evidence])
    if rule == "medoid":
        centres = np.stack([_medoid(x) for x in supports])
    else:
        centres = np.stack([x.mean(axis=0) for x in supports])
    if rule == "cosine":
        return np.asarray(unit(centres) @ unit(z[None])[0])
    squares = np.einsum("nd,nd->n", centres, centres)
    return np.asarray(z @ (2.0 * centres).T - squares)


def _medoid(support: FloatArray) -> FloatArray:
    """Return the exemplar with the least sum of distances to the others."""
    sums = [np.sqrt(((support - x) ** 2).sum(axis=1)).sum() for x in support]
    return np.asarray(support[np.argmin(sums)])
