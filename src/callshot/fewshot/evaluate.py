"""Embeddings of one corpus by several encoders → the results of the k-shot protocol, as frames.

Each encoder is swept with every classifier and spread; the reference classifier is tested against
chance, and evaluated in other partitions and samples. The streams have no state, so one episode can
be repeated without the others: the support set of a query in one draw, and its scores.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial

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
from callshot.fewshot.gpu.device import Gpu, add_note, usable_gpu
from callshot.fewshot.label_budget import label_budget, sample_gains
from callshot.fewshot.permutation import (
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
    describe_undefined,
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
    Episode,
    Evaluation,
    Folds,
    Progress,
    no_progress,
)
from callshot.records.frames import Frame
from callshot.records.terms import LARGEST_P
from callshot.vectors import Vectors

NamedFrames = Iterator[tuple[str, Frame]]


@dataclass(frozen=True, kw_only=True)
class _Evaluator(SweepWork):
    """What is the same for all encoders: data, options, and the notes of all of them."""

    corpus: str
    partitions: dict[int, Folds]
    gpu: Gpu | None
    finished: Mapping[SweepKey, Swept]  # by a cluster
    notes: list[str]

    def open(
        self, episodes: Episodes, step: Step, classifier: str
    ) -> AbstractContextManager[Engine]:
        """Start the threads for one classifier."""
        rule = find_classifier(classifier)
        gpu = usable_gpu(self.gpu, episodes, self.notes, rule.rule, self.protocol.score)
        size = (self.threads, self.memory)
        return open_engine(episodes, self.protocol, *size, step, rule, gpu, self.notes)

    def evaluate(self, table: Vectors, step: Step) -> NamedFrames:
        """Yield the frames of one encoder."""
        protocol = self.protocol
        episodes = plan_episodes(table, self.folds, self.counts)
        yield "duplicates", list_duplicates(self.corpus, table, self.folds)
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
                yield from self.sweep_spreads(engine, key)
                if name != protocol.reference or not tested:
                    continue
                if count_orders(episodes) < 1 / LARGEST_P:
                    engine.step(len(tested))
                    add_note(self.notes, TOO_FEW_ORDERS)
                else:
                    yield "chance_test", chance_test(engine, tested, key)
        if self.partitions or protocol.seeds > 1:
            yield from self.vary_folds(table, step)

    def sweep_spreads(self, engine: Engine, key: dict[str, str]) -> NamedFrames:
        """Yield the frames of every spread of one classifier, and more of the reference.

        `total` is predicted with the help of `shared`. Beside the literal softmax, log-odds are
        swept, to measure what its ties cost.
        """
        protocol = self.protocol
        episodes = engine.episodes
        encoder = key["encoder"]
        is_reference = key["classifier"] == protocol.reference
        shared = None
        gains = {}
        per_class = []
        for spread in protocol.spreads:
            swept = self.finished.get((encoder, key["classifier"], spread))
            k, sums = swept or sweep(engine, spread, self.categories)
            if spread == "shared":
                shared = sums
            if spread == "total" and shared is not None:
                widen_total(sums, shared, episodes)
            curve_key = {**key, "spread": spread}
            frames = summarise_sweep(curve_key, k, sums, self.counts)
            yield from frames.items()
            if not is_reference:
                continue
            per_class.append(frames["per_class"])
            if self.partitions and spread == protocol.partition_spread:
                yield "partitions", partition_frame(frames["curve"], 0)
            if spread == "total":
                ap = sums.per_class["map"]
                gains[encoder] = sample_gains(k, ap, episodes.classes, self.counts)
                continue
            log_sums = None
            if protocol.score == "softmax":
                log_engine = replace(engine, protocol=replace(protocol, score="log"))
                _, log_sums = sweep(log_engine, spread)
            draws = protocol.supports(spread)
            ties = ties_frame(curve_key, k, sums, log_sums, episodes, draws)
            yield "ties", ties
            self.notes.extend(describe_ties(ties))
            if spread == protocol.spreads[0]:
                yield "confusion", confusion_frame(curve_key, k, sums)
                self.notes.extend(describe_undefined(encoder, sums))
        if is_reference:
            yield "budget", label_budget(pl.concat(per_class), self.counts, gains)

    def vary_folds(self, table: Vectors, step: Step) -> NamedFrames:
        """Yield mAP of the reference in other partitions, and where its spread comes from."""
        protocol = self.protocol
        seeds = protocol.seeds
        shots = np.array(protocol.shots, np.int64)
        key = {
            "corpus": self.corpus,
            "encoder": table.encoder,
            "classifier": protocol.reference,
        }
        curve_key = {**key, "spread": protocol.partition_spread}
        values = []
        for number, folds in {0: self.folds, **self.partitions}.items():
            counts = count_classes(table.label, folds)
            episodes = plan_episodes(table, folds, counts)
            with self.open(episodes, step, protocol.reference) as engine:
                if number > 0:
                    k, sums = sweep(engine, protocol.partition_spread)
                    frames = summarise_sweep(curve_key, k, sums, counts)
                    yield "partitions", partition_frame(frames["curve"], number)
                if seeds > 1:
                    samples = cross_samples(episodes, protocol)
                    sums = sweep_folds(engine, shots, samples)
                    values.append(sums.values["all", "map"].T)
        if seeds > 1:
            size = (len(values), seeds, seeds, len(shots))
            crossed = np.stack(values).reshape(size)
            yield from sensitivity_frames(crossed, shots, key).items()


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
        Where sweeps run. auto uses a GPU if a suitable one is available; a note says which.
        Between the two, scores differ in their last digits.
    cluster : Cluster, optional
        Workers that sweep, on their CPUs. They change the time, not the numbers.
    progress : callable
        Called as work is done, with its share of all work.

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

    workers = threads or os.cpu_count() or 1
    work = SweepWork(protocol, folds, counts, categories, memory, workers)
    finished = {}
    if cluster is not None:
        for table in tables:
            plan_episodes(table, folds, counts)  # errors first
        finished = sweep_on_cluster(cluster, work, tables, report)
    evaluator = _Evaluator(
        **vars(work),
        corpus=corpus,
        partitions=partitions,
        gpu=choice.gpu,
        finished=finished,
        notes=notes,
    )
    parts = defaultdict(list)
    for table in tables:
        for name, frame in evaluator.evaluate(table, partial(report, table.encoder)):
            parts[name].append(frame)
    frames = {name: pl.concat(one) for name, one in parts.items()}
    notes += describe_leaks(frames["duplicates"], folds)
    values = frames["values"].filter(classifier=protocol.reference)
    return Evaluation(
        corpus=corpus,
        complete_shots=last,
        queries=sum(sum(count.per_fold) for count in counts if count.eligible),
        classes=counts,
        folds=folds,
        segments=first.spans,
        notes=notes,
        settings=asdict(protocol),
        **frames,
        differences=compare_encoders(values, last),
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
    rows = drawn.supports(place, k, draw)
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
