"""Embeddings of one corpus by several encoders → the results of the k-shot protocol, as frames.

Each encoder is swept with every classifier and spread; the reference classifier is tested against
chance, and evaluated in other partitions and samples. The streams have no state, so one episode can
be repeated without the others: the support set of a query in one draw, and its scores.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from callshot.errors import InputError, check_range
from callshot.fewshot.centroid import log_odds, softmax
from callshot.fewshot.classifiers import find_classifier
from callshot.fewshot.dataset import (
    describe_equal,
    describe_labels,
    describe_leaks,
    equal_tables,
    list_duplicates,
)
from callshot.fewshot.differences import compare_encoders
from callshot.fewshot.engine import (
    Engine,
    Step,
    gram_bytes,
    open_engine,
)
from callshot.fewshot.episodes import Episodes, make_split, plan_episodes
from callshot.fewshot.folds import check_tables, complete_shots, count_classes
from callshot.fewshot.gpu.device import (
    Choice,
    Gpu,
    add_note,
    run_with_fallback,
    usable_gpu,
)
from callshot.fewshot.label_budget import Gains, label_budget, sample_gains
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.permutation import (
    LARGEST_P,
    TOO_FEW_ORDERS,
    chance_test,
    count_orders,
    shots_to_test,
)
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import make_spread
from callshot.fewshot.summary import (
    confusion_frame,
    describe_ties,
    summarise_sweep,
    ties_frame,
)
from callshot.fewshot.sweep import (
    Categories,
    query_evidence,
    shared_evidence,
    sweep,
    sweep_folds,
    widen_total,
)
from callshot.fewshot.sweep_on_cluster import (
    SweepKey,
    SweepWork,
    Swept,
    choose_sweep_device,
    sweep_on_cluster,
)
from callshot.fewshot.variation import (
    cross_samples,
    other_partitions,
    partition_frame,
    sensitivity_frames,
)
from callshot.jobs import Cluster
from callshot.records import (
    METRIC_NAMES,
    ClassCount,
    Episode,
    Evaluation,
    Folds,
    IntArray,
    Progress,
    no_progress,
)
from callshot.records.frames import Frame
from callshot.vectors import Vectors


@dataclass
class _Evaluator:
    """What is the same for all encoders, and the frames, notes and gains of those that are done."""

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
    notes: list[str]
    frames: dict[str, list[Frame]] = field(default_factory=lambda: defaultdict(list))
    gains: dict[str, Gains] = field(default_factory=dict)  # by encoder

    def add(self, **frames: Frame) -> None:
        """Add rows to frames, by their names."""
        for name, frame in frames.items():
            self.frames[name].append(frame)

    def open(self, episodes: Episodes, step: Step, classifier: str) -> Engine:
        """Start the threads for one classifier."""
        rule = find_classifier(classifier)
        needed = (rule.rule, self.protocol.score)
        gpu = usable_gpu(self.device.gpu, episodes, self.notes, *needed)
        return open_engine(
            episodes, self.protocol, self.threads, self.memory, step, rule, gpu
        )

    def run(self, engine: Engine, work: Callable[[Engine], Any]) -> Any:
        """Do some work with an engine; on the CPU if its GPU runs out of memory."""

        def run_on(gpu: Gpu | None) -> Any:
            # The same engine keeps its matrices.
            return work(engine if gpu is engine.gpu else replace(engine, gpu=gpu))

        return run_with_fallback(engine.gpu, self.notes, run_on)

    def evaluate(self, table: Vectors, step: Step) -> int:
        """Collect the results of one encoder; return the number of queries."""
        protocol = self.protocol
        episodes = plan_episodes(table, self.folds, self.counts)
        self.add(duplicates=list_duplicates(self.corpus, table, self.folds))
        tested = shots_to_test(protocol, complete_shots(self.counts))
        for name in protocol.classifiers:
            key = {"corpus": self.corpus, "encoder": table.encoder, "classifier": name}
            with self.open(episodes, step, name) as engine:
                if engine.direct and engine.gpu is None:
                    needed = gram_bytes(episodes) / 2**30
                    allowed = self.memory / 2**30
                    note = (
                        f"{table.encoder}: the Gram matrix needs {needed:.1f} GiB, and "
                        f"{allowed:.1f} GiB are allowed; scoring from the vectors directly: "
                        "the same numbers, more slowly"
                    )
                    add_note(self.notes, note)
                self.sweep_spreads(engine, key)
                if name != protocol.reference or not tested:
                    continue
                if count_orders(episodes) < 1 / LARGEST_P:
                    engine.step(len(tested))
                    add_note(self.notes, TOO_FEW_ORDERS)
                else:
                    self.add(chance_test=chance_test(engine, tested, key))
        if self.partitions or protocol.seeds > 1:
            self.vary_folds(table, step)
        return int((episodes.fold >= 0).sum())

    def sweep_spreads(self, engine: Engine, key: dict[str, str]) -> None:
        """Collect the frames of every spread; `total` is predicted with the help of `shared`."""
        shared = None
        for spread in self.protocol.spreads:
            swept = self.finished.get((key["encoder"], key["classifier"], spread))
            if swept is None:
                work = partial(sweep, spread=spread, categories=self.categories)
                swept = self.run(engine, work)
            k, sums = swept
            if spread == "shared":
                shared = sums
            if spread == "total" and shared is not None:
                widen_total(sums, shared, engine.episodes)
            curve_key = {**key, "spread": spread}
            frames = summarise_sweep(curve_key, k, sums, engine.episodes, self.counts)
            self.add(**frames)
            if key["classifier"] == self.protocol.reference:
                self.add_reference(engine, curve_key, k, sums)
                if self.partitions and spread == self.protocol.partition_spread:
                    self.add(partitions=partition_frame(frames["curve"], 0))

    def add_reference(
        self, engine: Engine, key: dict[str, str], k: IntArray, sums: MetricSums
    ) -> None:
        """Collect gains, ties and confusion of a sweep of the reference.

        Beside the literal softmax, log-odds are swept, to measure what its ties cost.
        """
        protocol = self.protocol
        spread = key["spread"]
        classes = engine.episodes.classes
        if spread == "total":
            gains = sample_gains(k, sums.per_class["map"], classes, self.counts)
            self.gains[key["encoder"]] = gains
            return
        log_sums = None
        if protocol.score == "softmax":
            log_engine = replace(engine, protocol=replace(protocol, score="log"))
            _, log_sums = self.run(log_engine, partial(sweep, spread=spread))
        draws = protocol.supports(spread)
        ties = ties_frame(
            key,
            k,
            sums,
            log_sums,
            engine.episodes,
            draws,
        )
        self.add(ties=ties)
        self.notes += describe_ties(ties)
        if spread == protocol.spreads[0]:
            self.add(confusion=confusion_frame(key, k, sums, classes))
            for metric, undefined in sums.undefined.items():
                for name, folds in zip(classes, undefined.tolist(), strict=True):
                    if folds:
                        self.notes.append(
                            f"{key['encoder']}: no {METRIC_NAMES[metric]} for '{name}' in "
                            f"{folds} fold(s), where every query is positive for it"
                        )

    def vary_folds(self, table: Vectors, step: Step) -> None:
        """Collect mAP of the reference in other partitions, and where its spread comes from."""
        protocol = self.protocol
        seeds = protocol.seeds
        spread = protocol.partition_spread
        shots = np.array(protocol.shots, np.int64)
        key = {
            "corpus": self.corpus,
            "encoder": table.encoder,
            "classifier": protocol.reference,
        }
        values = []
        for number, folds in {0: self.folds, **self.partitions}.items():
            counts = count_classes(table.label, folds)
            episodes = plan_episodes(table, folds, counts)
            with self.open(episodes, step, protocol.reference) as engine:
                if number > 0:
                    k, sums = self.run(engine, partial(sweep, spread=spread))
                    curve_key = {**key, "spread": spread}
                    frames = summarise_sweep(curve_key, k, sums, episodes, counts)
                    self.add(partitions=partition_frame(frames["curve"], number))
                if seeds > 1:
                    samples = cross_samples(episodes, protocol)
                    work = partial(sweep_folds, k=shots, spread=samples)
                    sums = self.run(engine, work)
                    values.append(sums.values["all", "map"].T)
        if seeds > 1:
            size = (len(values), seeds, seeds, len(shots))
            table_of_values = np.stack(values).reshape(size)
            self.add(**sensitivity_frames(table_of_values, shots, key))


def evaluate_tables(
    tables: Sequence[Vectors],
    protocol: Protocol | None = None,
    *,
    folds: Folds | None = None,
    categories: Categories = None,
    corpus: str = "corpus",
    threads: int | None = None,
    memory: int | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Run the k-shot protocol over several encoders' embeddings of the same segments.

    Parameters
    ----------
    tables : sequence of Vectors
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
    >>> table = Vectors.from_columns("mine", vectors, segment, recording, label, [()] * 20)
    >>> protocol = Protocol(shots=(1, 2), draws=5, bootstraps=20, shared_draws=10)
    >>> result = evaluate_tables([table], protocol)
    >>> result.curve.filter(spread="shared", metric="map").select("k", "mean").rows()
    [(1, 1.0), (2, 1.0)]
    """
    protocol = protocol or Protocol()
    folds = check_tables(tables, folds)
    equal = equal_tables(tables)
    notes = [
        describe_equal(tables[position].encoder, tables[first].encoder)
        for position, first in equal.items()
    ]
    tables = [table for number, table in enumerate(tables) if number not in equal]
    first = tables[0]
    counts = count_classes(first.label, folds, first.recording)
    partitions = other_partitions(first, folds, protocol)
    choice = choose_sweep_device(device, cluster)
    notes += [table.note for table in tables if table.note]
    notes += describe_labels(first, categories, counts)
    if 1 + len(partitions) < protocol.repeat_folds:
        notes.append(
            f"{1 + len(partitions)} of {protocol.repeat_folds} partitions into folds were "
            "evaluated: the others were not new, or other classes are eligible in them"
        )
    notes += choice.notes
    if memory is None:
        memory = machine_memory() // 4

    # The shots that are swept or tested, for progress.
    last = complete_shots(counts)
    sweeps = len(protocol.classifiers) * len(protocol.spreads) + len(partitions)
    if protocol.seeds > 1:
        sweeps += 1 + len(partitions)
    if protocol.score == "softmax":
        sweeps += len(set(protocol.spreads) - {"total"})
    tested = len(shots_to_test(protocol, last))
    total = max(len(tables) * (sweeps * len(protocol.shots) + tested), 1)

    def report(encoder: str, shots: float) -> None:
        progress(shots / total, encoder)

    finished = {}
    if cluster is not None:
        for table in tables:
            plan_episodes(table, folds, counts)  # errors first
        work = SweepWork(protocol, folds, counts, categories, memory)
        finished = sweep_on_cluster(cluster, work, tables, report)
    evaluator = _Evaluator(
        corpus=corpus,
        protocol=protocol,
        folds=folds,
        counts=counts,
        categories=categories,
        threads=threads or os.cpu_count() or 1,
        memory=memory,
        partitions=partitions,
        device=choice,
        finished=finished,
        notes=notes,
    )
    queries = 0
    for table in tables:
        queries = evaluator.evaluate(table, partial(report, table.encoder))
    frames = {name: pl.concat(parts) for name, parts in evaluator.frames.items()}
    notes += describe_leaks(frames["duplicates"], folds)
    values = frames["values"].filter(classifier=protocol.reference)
    per_class = frames["per_class"].filter(classifier=protocol.reference)
    return Evaluation(
        corpus=corpus,
        complete_shots=last,
        queries=queries,
        classes=counts,
        folds=folds,
        segments=first.spans,
        notes=notes,
        settings=asdict(protocol),
        **frames,
        differences=compare_encoders(values, last),
        budget=label_budget(per_class, counts, evaluator.gains),
    )


def machine_memory() -> int:
    """Return the memory of this machine in bytes; 8 GiB where the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30


def rerun_episode(
    embeddings: Vectors,
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
    embeddings : Vectors
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
    >>> table = Vectors.from_columns("mine", vectors, "abcdefgh", "xxxxyyyy", label, [()] * 8)
    >>> folds = Folds(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 2, "given")
    >>> rerun_episode(table, folds, "a", k=1, draw=0, protocol=Protocol()).support
    {'roar': ('g',), 'rumble': ('e',)}
    """
    check_range("k", k, 1)
    check_range("draw", draw, 0)
    episodes = plan_episodes(embeddings, folds, count_classes(embeddings.label, folds))
    is_segment = np.array(episodes.segment) == segment
    queries = np.flatnonzero(is_segment & (episodes.fold >= 0))
    if queries.size == 0:
        raise InputError(
            f"{embeddings.source}: column segment: {segment!r} is no query: there is no such "
            "segment, its label is not eligible, or it is in the common fold"
        )
    query = int(queries[0])
    fold = int(episodes.fold[query])
    drawn = make_spread(spread, episodes, protocol)
    place = query if drawn.has_own_draws else fold
    rows = [
        drawn.support(episodes, place, n, k, draw, protocol)
        for n in range(len(episodes.classes))
    ]
    segments = [tuple(episodes.segment[row] for row in support) for support in rows]
    if drawn.has_own_draws:
        protocol = replace(protocol, draws=draw + 1)
    rule = find_classifier(classifier)
    shots = np.array([k])
    with open_engine(episodes, protocol, 1, 0, classifier=rule) as engine:
        split = make_split(engine.episodes, fold)
        fitted = engine.for_split(split)
        q = int(np.searchsorted(split.rows, query))
        if drawn.has_own_draws:
            size = (1, len(episodes.classes), len(split.rows), draw + 1)
            table = np.empty(size)
            query_evidence(fitted, split, shots, table)(slice(q, q + 1))
            evidence = table[0, :, q, draw]
        else:
            span = slice(draw, draw + 1)
            evidence = shared_evidence(fitted, split, shots, drawn)(span)[0, 0, :, q]
    to_scores = softmax if protocol.score == "softmax" else log_odds
    return Episode(
        segment,
        k,
        draw,
        support=dict(zip(episodes.classes, segments, strict=True)),
        scores=dict(zip(episodes.classes, to_scores(evidence).tolist(), strict=True)),
    )
