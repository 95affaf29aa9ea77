"""The paper on one page: embeddings → folds → episodes → both spreads → curves.

    tables = read_tables(paths)              vectors, with a label and a recording each
    folds = choose_folds(tables[0], …)       grouped by recording; audited
    result = evaluate(tables, protocol)      k-shot curves with intervals, for every encoder
    results.write(result, provenance)        plain files, all or nothing

`evaluate_files` is that path; `evaluate` is its middle, for Python: arrays in, records out.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from callshot.encoders.sidecars import read_categories, read_folds
from callshot.encoders.table import read_tables, table_corpus
from callshot.errors import InputError, LeakError, OptionError
from callshot.fewshot.engine import Engine, open_engine
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import complete_shots, count_classes, give_folds, make_folds
from callshot.fewshot.gram import gram_bytes
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.summary import Summary
from callshot.fewshot.sweep import sweep
from callshot.records import ClassCount, Embeddings, Evaluation, Folds, IntArray
from callshot.report.figures import draw_sweep
from callshot.report.provenance import tell_provenance
from callshot.report.results import open_results

Report = Callable[[float, str], None]


def evaluate_files(
    paths: Sequence[Path],
    out: Path,
    protocol: Protocol,
    *,
    folds: int | None = None,
    fold_file: Path | None = None,
    categories: Path | None = None,
    corpus: str | None = None,
    threads: int | None = None,
    memory: int | None = None,
    figure: bool = True,
    report: Report = lambda done, what: None,
) -> Evaluation:
    """Read tables, evaluate them, and write the results to a directory; see `evaluate` for the options."""
    with open_results(out) as results:
        tables = read_tables(paths)
        given = read_folds(fold_file, tables[0]) if fold_file is not None else None
        groups = read_categories(categories, tables[0]) if categories is not None else None
        name = corpus or table_corpus(paths[0]) or paths[0].absolute().parent.name or "corpus"
        chosen = choose_folds(tables[0], folds, given)
        result = evaluate(
            tables,
            protocol,
            folds=chosen,
            categories=groups,
            corpus=name,
            threads=threads,
            memory=memory,
            report=report,
        )
        others = [path for path in (fold_file, categories) if path is not None]
        options = {"folds": folds, "threads": threads, "memory": memory}
        results.write(result, tell_provenance(result, protocol, dict(zip(paths, tables, strict=True)), others, options))
    if figure:
        draw_sweep(result, out / "sweep")
    return result


def choose_folds(embeddings: Embeddings, count: int | None = None, given: IntArray | None = None) -> Folds:
    """Take the folds that are given, with the table or beside it, or build them: 5 if nothing says otherwise."""
    fold = given if given is not None else embeddings.fold
    try:
        folds = (
            make_folds(embeddings.label, embeddings.recording, count or 5)
            if fold is None
            else give_folds(embeddings.recording, fold)
        )
    except LeakError as leak:
        raise LeakError(f"{embeddings.source}: column fold: {leak}") from None
    if count is not None and folds.count != count:
        raise OptionError(
            f"{embeddings.source}: column fold has {folds.count} folds, the option says {count}; leave one out"
        )
    return folds


def evaluate(
    tables: Sequence[Embeddings],
    protocol: Protocol | None = None,
    *,
    folds: Folds | None = None,
    categories: Mapping[str, str] | None = None,
    corpus: str = "corpus",
    threads: int | None = None,
    memory: int | None = None,
    report: Report = lambda done, what: None,
) -> Evaluation:
    """Run the k-shot protocol over several encoders' embeddings of the same segments.

    `categories` maps labels to the categories of reduced scoring. `threads` and `memory` (bytes for the Gram matrix
    before the engine goes the direct way; a quarter of the machine's by default) change the time, not the numbers.
    `report` hears the share of the work that is done.

    >>> import numpy as np
    >>> vectors = np.array([[0.0], [0.1], [1.0], [1.1]] * 5)
    >>> recording = [f"rec{i // 4}" for i in range(20)]
    >>> label = ["rumble", "rumble", "roar", "roar"] * 5
    >>> table = Embeddings("mine", vectors, [f"s{i:02}" for i in range(20)], recording, label, [()] * 20)
    >>> result = evaluate([table], Protocol(shots=(1, 2), draws=5, bootstraps=20, shared_draws=10))
    >>> [(c.metric, c.k, c.mean) for c in result.curve if c.spread == "shared"][:3]
    [('map', 1, 1.0), ('map', 2, 1.0), ('auroc', 1, 1.0)]
    """
    if not tables:
        raise InputError("no table of embeddings was given")
    protocol, first = protocol or Protocol(), tables[0]
    folds = folds or choose_folds(first)
    counts = count_classes(first.label, folds, first.recording)
    workers = threads or os.cpu_count() or 1
    room = machine_memory() // 4 if memory is None else memory
    result = _empty(corpus, first, folds, counts)
    for i, table in enumerate(tables):
        episodes = _plan(table, folds, counts)
        if gram_bytes(episodes) > room:
            result.notes.append(_direct_note(table, gram_bytes(episodes), room))
        runs = len(protocol.spreads) * (1 + (protocol.score == "softmax")) * len(tables)

        def step(share: float, i: int = i, runs: int = runs, name: str = table.encoder) -> None:
            report(share / runs / max(len(protocol.shots), 1), name)

        engine = open_engine(episodes, protocol, workers, room, step)
        try:
            for spread in protocol.spreads:
                _run_spread(engine, spread, table.encoder, categories, result)
        finally:
            engine.close()
    return replace(result, queries=int((episodes.fold >= 0).sum()))


def _run_spread(
    engine: Engine, spread: str, encoder: str, categories: Mapping[str, str] | None, into: Evaluation
) -> None:
    """Sweep one spread of one encoder and add its records; literal softmax runs beside log-odds, to price its ties."""
    protocol = engine.protocol
    k, tally = sweep(engine, spread, categories)
    log = None
    if protocol.score == "softmax":
        log = sweep(replace(engine, protocol=replace(protocol, score="log")), spread)[1]
    summary = Summary(into.corpus, encoder, spread, k, tally, engine.episodes, into.classes)
    into.curve.extend(summary.curves())
    into.values.extend(summary.values())
    into.per_class.extend(summary.classes())
    into.ties.extend(summary.ties(protocol.draws if spread == "per-query" else protocol.shared_draws, log))
    if spread == protocol.spreads[0]:
        into.confusion.extend(summary.confusion())
    for n in range(len(engine.episodes.classes)):
        if tally.undefined[n] and spread == protocol.spreads[0]:
            name = engine.episodes.classes[n]
            into.notes.append(
                f"{encoder}: every query of {tally.undefined[n]} fold(s) is positive for '{name}': no AUROC there"
            )


def _empty(corpus: str, table: Embeddings, folds: Folds, counts: list[ClassCount]) -> Evaluation:
    best = complete_shots(counts)
    return Evaluation(corpus, best, 0, [], [], [], [], [], counts, folds, table, [])


def _plan(table: Embeddings, folds: Folds, counts: Sequence[ClassCount]) -> Episodes:
    try:
        return plan_episodes(table, folds, counts)
    except InputError as error:
        raise InputError(f"{table.source}: {error}") from None


def _direct_note(table: Embeddings, needed: int, room: int) -> str:
    return (
        f"{table.encoder}: the Gram matrix would take {needed / 2**30:.1f} GiB and {room / 2**30:.1f} GiB are allowed; "
        "scoring directly from the vectors: the same numbers, more slowly"
    )


def machine_memory() -> int:
    """Return the memory of this machine in bytes; 8 GiB where it cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30
