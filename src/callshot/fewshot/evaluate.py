"""Embeddings of one corpus by several encoders → the results of the k-shot protocol, as frames.

Each encoder is swept with every classifier and spread; the reference classifier is tested against
chance, and evaluated in other partitions and samples. One episode can be repeated without the
others. A cluster sweeps blocks of shots: supports of k examples do not depend on the other shots.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import polars as pl

from callshot.errors import InputError, OptionError, check_range
from callshot.fewshot import dataset, metrics, permutation, variation
from callshot.fewshot.centroid import log_odds, softmax
from callshot.fewshot.classifiers import find_classifier
from callshot.fewshot.differences import compare_encoders
from callshot.fewshot.episodes import (
    Engine,
    Episodes,
    Step,
    gram_bytes,
    make_split,
    open_engine,
    plan_episodes,
)
from callshot.fewshot.folds import check_tables, complete_shots, count_classes
from callshot.fewshot.gpu.device import Choice, Gpu, add_note, choose_device, usable_gpu
from callshot.fewshot.label_budget import label_budget, sample_gains
from callshot.fewshot.mean_interval import mean_frame, sample_means
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import Spread, make_spread
from callshot.fewshot.sweep import (
    Categories,
    query_logits,
    shared_logits,
    sweep,
    sweep_folds,
    widen_total,
)
from callshot.jobs import Cluster, Job
from callshot.records import (
    COMMON_FOLD,
    ClassCount,
    Episode,
    Evaluation,
    FloatArray,
    Folds,
    IntArray,
    Progress,
    no_progress,
)
from callshot.records.frames import Frame
from callshot.records.terms import LARGEST_P
from callshot.vectors import Vectors

NamedFrames = Iterator[tuple[str, Frame]]


BLOCKS = 4  # of shots, in a sweep

SweepKey = tuple[str, str, str]
"""Encoder, classifier and spread."""
Swept = tuple[IntArray, MetricSums]
"""k of each row, and the values."""
Block = tuple[Vectors, str, str, Protocol]
"""A table, a classifier, a spread, and a protocol with some of the shots."""


@dataclass(frozen=True)
class SweepWork:
    """The inputs that all sweeps of an evaluation share, picklable for a cluster.

    `memory` limits the Gram matrix, in bytes; `threads` are those of one sweep.
    """

    protocol: Protocol
    folds: Folds
    counts: Sequence[ClassCount]
    categories: Categories
    memory: int
    threads: int


@dataclass(frozen=True, kw_only=True)
class _Evaluator(SweepWork):
    """Evaluates one encoder after another with the same folds, options and list of notes.

    `finished` are the sweeps that a cluster has run already.
    """

    corpus: str
    partitions: dict[int, Folds]
    gpu: Gpu | None
    finished: Mapping[SweepKey, Swept]
    notes: list[str]

    def open(
        self, episodes: Episodes, step: Step, classifier: str
    ) -> AbstractContextManager[Engine]:
        """Open the engine that runs one classifier, on the GPU if that has all kernels for it."""
        rule = find_classifier(classifier)
        gpu = usable_gpu(self.gpu, episodes, self.notes, rule.rule, self.protocol.score)
        return open_engine(
            episodes,
            self.protocol,
            self.threads,
            self.memory,
            step=step,
            classifier=rule,
            gpu=gpu,
            notes=self.notes,
        )

    def evaluate(self, table: Vectors, step: Step) -> NamedFrames:
        """Yield the result frames of one encoder with their names, and add notes on the way."""
        protocol = self.protocol
        episodes = plan_episodes(table, self.folds, self.counts)
        yield "duplicates", dataset.list_duplicates(self.corpus, table, self.folds)
        # The k of the test against chance.
        tested = permutation.shots_to_test(protocol, complete_shots(self.counts))
        for name in protocol.classifiers:
            key = {"corpus": self.corpus, "encoder": table.encoder, "classifier": name}
            with self.open(episodes, step, name) as engine:
                if engine.direct and engine.gpu is None:
                    needed = gram_bytes(episodes, engine.rule) / 2**30
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
                # With fewer orders of labels no p could be small enough.
                if permutation.count_orders(episodes) < 1 / LARGEST_P:
                    engine.step(len(tested))
                    add_note(self.notes, permutation.TOO_FEW_ORDERS)
                else:
                    yield "chance_test", permutation.chance_test(engine, tested, key)
        if self.partitions or protocol.repeat_samples > 1:
            yield from self.vary_folds(table, step)

    def sweep_spreads(self, engine: Engine, key: dict[str, str]) -> NamedFrames:
        """Yield the result frames of every spread of one classifier, with their names.

        `key` are the columns corpus, encoder and classifier. A spread says how supports are drawn:
        `per-query`, `shared` or `total`. `shared` must come before `total`, which is widened with
        it.
        """
        protocol = self.protocol
        episodes = engine.episodes
        encoder = key["encoder"]
        is_reference = key["classifier"] == protocol.reference
        shared = None
        gains = {}  # by encoder: of one more exemplar of each class, for the budget of labels
        per_class = []
        for spread in protocol.spreads:
            swept = self.finished.get((encoder, key["classifier"], spread))
            k, sums = swept or sweep(
                engine, spread, self.categories, without_groups=True
            )
            if spread == "shared":
                shared = sums
                means = sample_means(engine, sums)
                yield "values", mean_frame(key, protocol.shots, means)
                if is_reference and means is not None:
                    shots = np.array(protocol.shots)
                    gains[encoder] = sample_gains(
                        shots, means.ap, episodes.classes, self.counts
                    )
            if spread == "total" and shared is not None:
                widen_total(sums, shared, episodes)
            curve_key = {**key, "spread": spread}
            frames = metrics.summarise_sweep(curve_key, k, sums, self.counts)
            yield from frames.items()
            if not is_reference:
                continue
            per_class.append(frames["per_class"])
            if self.partitions and spread == protocol.partition_spread:
                # Partition 0 into folds is the one of the evaluation.
                yield "partitions", variation.partition_frame(frames["curve"], 0)
            if spread != "total":  # its weighted queries count no ties and no decisions
                ties = self.measure_ties(engine, curve_key, k, sums)
                yield "ties", ties
                self.notes.extend(metrics.describe_ties(ties))
                if spread == protocol.spreads[0]:
                    yield "confusion", metrics.confusion_frame(curve_key, k, sums)
                    self.notes.extend(metrics.describe_undefined(encoder, sums))
        if is_reference:
            yield "budget", label_budget(pl.concat(per_class), self.counts, gains)

    def measure_ties(
        self, engine: Engine, curve_key: dict[str, str], k: IntArray, sums: MetricSums
    ) -> Frame:
        """Return the ties of one sweep, as rows of TIES.

        Softmax rounds to exactly 0 or 1, so queries tie; log-odds hardly ever do. To measure what
        ties cost, the same draws are swept again with log-odds.
        """
        spread = curve_key["spread"]
        log_sums = None
        if self.protocol.score == "softmax":
            log_protocol = replace(self.protocol, score="log")
            _, log_sums = sweep(replace(engine, protocol=log_protocol), spread)
        draws = self.protocol.count_supports(spread)
        return metrics.ties_frame(curve_key, k, sums, log_sums, engine.episodes, draws)

    def vary_folds(self, table: Vectors, step: Step) -> NamedFrames:
        """Yield frames of how much mAP of the reference classifier varies.

        Partition 0 is the one of the evaluation, whose curve `sweep_spreads` yields.
        """
        protocol = self.protocol
        repeats = protocol.repeat_samples
        shots = np.array(protocol.shots, np.int64)
        key = {
            "corpus": self.corpus,
            "encoder": table.encoder,
            "classifier": protocol.reference,
        }
        curve_key = {**key, "spread": protocol.partition_spread}
        map_by_partition = []  # (samples, shots) of each
        for number, folds in {0: self.folds, **self.partitions}.items():
            counts = count_classes(table.label, folds)
            episodes = plan_episodes(table, folds, counts)
            with self.open(episodes, step, protocol.reference) as engine:
                if number > 0:
                    k, sums = sweep(engine, protocol.partition_spread)
                    frames = metrics.summarise_sweep(curve_key, k, sums, counts)
                    yield (
                        "partitions",
                        variation.partition_frame(frames["curve"], number),
                    )
                if repeats > 1:
                    samples = variation.cross_samples(episodes, protocol)
                    sums = sweep_folds(engine, shots, samples)
                    map_by_partition.append(sums.values["all", "map"].T)
        if repeats > 1:
            # Sample d · repeats + b has labelled set d and weighting b: see `cross_samples`.
            size = (len(map_by_partition), repeats, repeats, len(shots))
            crossed = np.stack(map_by_partition).reshape(size)
            yield from variation.sensitivity_frames(crossed, shots, key).items()


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

    Tables with the same vectors are evaluated once, under the first name; a note says so. `folds`
    are taken from the first table, or built, where they are not given. `threads`, `memory` (bytes
    for the Gram matrix, a quarter of the machine's by default) and `cluster` change the time, not
    the numbers; a GPU changes the last digits. `progress` is called with shares of all work.

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
    equal = dataset.equal_tables(tables)
    notes = [
        dataset.describe_equal(tables[position].encoder, tables[earlier].encoder)
        for position, earlier in equal.items()
    ]
    tables = [table for number, table in enumerate(tables) if number not in equal]
    first = tables[0]
    counts = count_classes(first.label, folds, first.recording)
    partitions = variation.other_partitions(first, folds, protocol)
    choice = choose_sweep_device(device, cluster)
    notes += [table.note for table in tables if table.note]
    notes += dataset.describe_labels(first, categories, counts)
    if 1 + len(partitions) < protocol.repeat_folds:
        notes.append(
            f"{1 + len(partitions)} of {protocol.repeat_folds} partitions into folds were "
            "evaluated: the others were not new, or other classes are eligible in them"
        )
    notes += choice.notes
    if memory is None:
        memory = machine_memory() // 4

    last = complete_shots(counts)  # k*
    shots_of_table = _count_shots(protocol, len(partitions), last)
    total = max(len(tables) * shots_of_table, 1)

    def report(encoder: str, shots: float) -> None:
        """Report that so many more shots of an encoder are done."""
        progress(shots / total, encoder)

    workers = threads or os.cpu_count() or 1
    work = SweepWork(protocol, folds, counts, categories, memory, workers)
    finished = {}
    if cluster is not None:
        for table in tables:
            plan_episodes(table, folds, counts)  # raise errors before jobs start
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
    frames = {name: pl.concat(by_encoder) for name, by_encoder in parts.items()}
    notes += dataset.describe_leaks(frames["duplicates"], folds)
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


def _count_shots(protocol: Protocol, other_partitions: int, last: int) -> int:
    """Return how many shots are swept or tested for one table, the unit of the progress.

    `last` is k*, the largest k that is tested.
    """
    sweeps = len(protocol.classifiers) * len(protocol.spreads) + other_partitions
    if protocol.repeat_samples > 1:  # samples are swept in every partition
        sweeps += 1 + other_partitions
    if protocol.score == "softmax":  # swept again with log-odds, to measure ties
        sweeps += len(set(protocol.spreads) - {"total"})
    tested = len(permutation.shots_to_test(protocol, last))
    return sweeps * len(protocol.shots) + tested


def machine_memory() -> int:
    """Return the memory of this machine in bytes; 8 GiB where the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # for example on Windows
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
    embeddings, folds, protocol
        Of the sweep.
    segment : str
        The id of the query.
    k : int
        Exemplars per class.
    draw : int
        The number of the draw, from 0.
    spread : {"per-query", "shared"}
        Whether the draw is the query's own, or shared by all queries.
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
    queries = np.flatnonzero(is_segment & (episodes.fold != COMMON_FOLD))
    if queries.size == 0:
        raise InputError(
            f"{embeddings.source}: column segment: {segment!r} is no query: there is no such "
            "segment, its label is not eligible, or it is in the common fold"
        )
    query = int(queries[0])
    drawn = make_spread(spread, episodes, protocol)
    query_or_fold = query if drawn.has_own_draws else int(episodes.fold[query])
    supports = drawn.supports(query_or_fold, k, draw)
    segments = [tuple(episodes.segment[row] for row in rows) for rows in supports]
    rule = find_classifier(classifier)
    # Without memory for a Gram matrix: one query needs few products.
    with open_engine(
        episodes, protocol, workers=1, memory=0, classifier=rule
    ) as engine:
        logits = _score_query(engine, drawn, query, k, draw)
    to_scores = softmax if protocol.score == "softmax" else log_odds
    return Episode(
        segment,
        k,
        draw,
        support=dict(zip(episodes.classes, segments, strict=True)),
        scores=dict(zip(episodes.classes, to_scores(logits).tolist(), strict=True)),
    )


def _score_query(
    engine: Engine, spread: Spread, query: int, k: int, draw: int
) -> FloatArray:
    """Return the logit of each class for one query, a row of the episodes."""
    fold = int(engine.episodes.fold[query])
    split = make_split(engine.episodes, fold)
    shots = np.array([k])
    position = int(np.searchsorted(split.rows, query))  # among the queries of its fold
    if not spread.has_own_draws:
        fitted = engine.for_split(split)
        compute = shared_logits(fitted, split, shots, spread)
        logits = compute(slice(draw, draw + 1))  # (1 draw, 1 k, classes, queries)
        return logits[0, 0, :, position]
    # Draws are made from the first on, up to the one that is wanted.
    draws = draw + 1
    protocol = replace(engine.protocol, draws=draws)
    fitted = replace(engine, protocol=protocol).for_split(split)
    classes = len(split.relevant)
    logits = np.empty((1, classes, len(split.rows), draws))  # of 1 k
    fill = query_logits(fitted, split, shots, logits)
    fill(slice(position, position + 1))
    return logits[0, :, position, draw]


def sweep_on_cluster(
    cluster: Cluster,
    work: SweepWork,
    tables: Sequence[Vectors],
    report: Callable[[str, int], None],
) -> dict[SweepKey, Swept]:
    """Run every sweep of the tables on a cluster, in blocks of shots that are joined again.

    `report` is called with the encoder and the number of shots of each block that is finished.
    """
    blocks = [block for table in tables for block in _cut_shots(table, work.protocol)]
    keys = [(table.encoder, name, spread) for table, name, spread, _ in blocks]
    shots = [len(protocol.shots) for *_, protocol in blocks]
    titles = [" ".join(key) for key in keys]
    sizes = [float(1 + count) for count in shots]  # of the work; 1 for its start
    job = Job(
        "evaluate",
        prepare=use_threads,
        function=sweep_block,
        common=work,
        items=blocks,
        names=titles,
        sizes=sizes,
    )
    parts = {}
    for outcome in cluster.run(job):
        number = outcome.number
        if outcome.reason:
            raise InputError(f"{titles[number]}: {outcome.reason}")
        parts[number] = outcome.value
        encoder, _, _ = keys[number]
        report(encoder, shots[number])
    sweeps = defaultdict(list)
    for number, key in enumerate(keys):
        sweeps[key].append(parts[number])
    return {key: _join_blocks(swept) for key, swept in sweeps.items()}


def choose_sweep_device(device: str, cluster: Cluster | None) -> Choice:
    """Return where sweeps run: on a cluster on CPUs, else where the user wants it."""
    if cluster is not None and device == "cuda":
        raise OptionError("device: on a cluster, evaluations run on CPUs; use cpu")
    return choose_device(device if cluster is None else "cpu")


def _cut_shots(table: Vectors, protocol: Protocol) -> list[Block]:
    """Cut the sweeps of a table into blocks of shots; the last of each has the whole pool."""
    count = max(1, min(BLOCKS, len(protocol.shots)))
    protocols = []
    for number, shots in enumerate(np.array_split(protocol.shots, count), start=1):
        part = replace(
            protocol,
            shots=tuple(shots.astype(int).tolist()),
            whole_pool=protocol.whole_pool and number == count,
        )
        protocols.append(part)
    return list(product([table], protocol.classifiers, protocol.spreads, protocols))


def use_threads(work: SweepWork, threads: int) -> SweepWork:
    """Return the work with the number of threads that a worker of the cluster has."""
    return replace(work, threads=threads)


def sweep_block(work: SweepWork, block: Block) -> Swept:
    """Run one block of a sweep on a worker; return the k and the metrics, as `sweep` does."""
    table, classifier, spread, protocol = block
    episodes = plan_episodes(table, work.folds, work.counts)
    rule = find_classifier(classifier)
    with open_engine(
        episodes, protocol, work.threads, work.memory, classifier=rule
    ) as engine:
        return sweep(engine, spread, work.categories, without_groups=True)


def _join_blocks(blocks: Sequence[Swept]) -> Swept:
    """Join the blocks of one sweep along the shots, into the sums of the first block.

    These are changed in place. A block has the k of its rows, and their sums.
    """
    # The same draws without the queries of some recordings.
    left_out = [(k, sums.left_out) for k, sums in blocks if sums.left_out]
    if left_out:
        _join_blocks(left_out)  # into the `left_out` of the first block
    k = np.concatenate([k_of_block for k_of_block, _ in blocks])
    # k of the whole pool may also be a shot of an earlier block: keep its first row.
    _, first_rows = np.unique(k, return_index=True)
    kept = np.sort(first_rows)
    sums_of_blocks = [sums for _, sums in blocks]
    joined = sums_of_blocks[0]
    for name in ("tied", "decisions"):
        rows = np.concatenate([getattr(sums, name) for sums in sums_of_blocks])
        setattr(joined, name, rows[kept])
    for name in ("values", "per_class", "chance"):
        tables = getattr(joined, name)
        for key in tables:
            rows = np.concatenate([getattr(sums, name)[key] for sums in sums_of_blocks])
            tables[key] = rows[kept]
    return k[kept], joined
