"""Embeddings of one corpus, by several encoders → what the k-shot protocol found. Arrays in, records out."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from callshot.errors import InputError
from callshot.fewshot.classifiers import find_classifier
from callshot.fewshot.engine import Engine, machine_memory, open_engine
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.folds import audit, choose_folds, complete_shots, count_classes
from callshot.fewshot.gram import gram_bytes
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.summary import Summary, tell_ties
from callshot.fewshot.sweep import sweep
from callshot.records import (
    ClassCount,
    Embeddings,
    Evaluation,
    Folds,
    Progress,
    no_progress,
)


def evaluate(
    tables: Sequence[Embeddings] | Embeddings,
    protocol: Protocol | None = None,
    *,
    folds: Folds | None = None,
    categories: Mapping[str, str] | None = None,
    corpus: str = "corpus",
    threads: int | None = None,
    memory: int | None = None,
    progress: Progress = no_progress,
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
    tables = [tables] if isinstance(tables, Embeddings) else tables
    if not tables:
        raise InputError("no table of embeddings was given")
    protocol, first = protocol or Protocol(), tables[0]
    for table in tables:
        _check(table, first)
    folds = folds or choose_folds(first)
    if len(folds.fold) != len(first):
        raise InputError(
            f"{first.source}: {len(folds.fold)} folds were given for {len(first)} segments"
        )
    audit(first.recording, folds.fold)
    counts = count_classes(first.label, folds, first.recording)
    room = machine_memory() // 4 if memory is None else memory
    notes = [*doubtful_labels(first), *_outside(categories, counts)]
    result = Evaluation(
        corpus, complete_shots(counts), 0, [], [], [], [], [], counts, folds, first, notes
    )
    sweeps = len(protocol.classifiers) + (protocol.score == "softmax")
    parts = len(tables) * len(protocol.spreads) * sweeps * len(protocol.shots)
    for table in tables:
        with _naming(table):
            episodes = plan_episodes(table, folds, counts)
        step = partial(_pass_on, progress, table.encoder, max(parts, 1))
        if gram_bytes(episodes) > room:
            result.notes.append(_direct_note(table, gram_bytes(episodes), room))
        for name in protocol.classifiers:
            with _naming(table):
                engine = open_engine(
                    episodes,
                    protocol,
                    threads or os.cpu_count() or 1,
                    room,
                    step,
                    find_classifier(name),
                )
            with engine:
                for spread in protocol.spreads:
                    _run_spread(engine, spread, table.encoder, categories, result)
    return replace(result, queries=int((episodes.fold >= 0).sum()))


def _check(table: Embeddings, first: Embeddings) -> None:
    """Refuse what would give numbers without meaning; a table from a file has been checked before, with its rows."""
    if len(set(table.segment)) != len(table):
        raise InputError(
            f"{table.source}: column segment: two segments have the same id; ids must differ"
        )
    for name in ("segment", "recording", "label"):
        if getattr(table, name) != getattr(first, name):
            raise InputError(
                f"{table.source}: column {name}: not that of {first.source}, row by row; all must agree"
            )
    bad = np.flatnonzero(~np.isfinite(table.vectors).all(axis=1))
    if bad.size:
        raise InputError(
            f"{table.source}: column embedding, row {bad[0] + 1}: wanted finite numbers"
        )


def doubtful_labels(table: Embeddings) -> Iterator[str]:
    """Yield a note on labels that differ only in space or case, and on labels that are no segment's own.

    >>> table = Embeddings("e", [[0.0], [1.0]], "ab", "xy", ["roar", "Roar "], [("roar, rumble",), ()])
    >>> for note in doubtful_labels(table): print(note)
    the labels 'Roar ', 'roar' differ only in space or case, and are taken for different classes
    in labels, and no segment's label: 'roar, rumble'
    """
    alike: dict[str, list[str]] = {}
    for name in sorted(set(table.label)):
        alike.setdefault(" ".join(name.split()).casefold(), []).append(name)
    for names in alike.values():
        if len(names) > 1:
            yield f"the labels {_listed(names)} differ only in space or case, and are taken for different classes"
    strange = {name for names in table.labels for name in names} - set(table.label)
    if strange:
        yield f"in labels, and no segment's label: {_listed(sorted(strange))}"


def _outside(categories: Mapping[str, str] | None, counts: Sequence[ClassCount]) -> list[str]:
    """Return a note on the eligible classes that reduced scoring leaves out."""
    out = (
        []
        if categories is None
        else [c.label for c in counts if c.eligible and c.label not in categories]
    )
    return [f"in no category, so not in the reduced scoring: {_listed(out)}"] if out else []


def _listed(names: Sequence[str], most: int = 8) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + rest


def _pass_on(progress: Progress, encoder: str, parts: int, share: float) -> None:
    """Turn the engine's steps, in shots, into shares of the whole."""
    progress(share / parts, encoder)


def _run_spread(
    engine: Engine,
    spread: str,
    encoder: str,
    categories: Mapping[str, str] | None,
    into: Evaluation,
) -> None:
    """Sweep one spread of one encoder and add its records; literal softmax runs beside log-odds, to price its ties.

    Confusion and ties are those of the reference alone.
    """
    protocol, classifier = engine.protocol, engine.classifier.name
    k, tally = sweep(engine, spread, categories)
    summary = Summary(
        into.corpus, encoder, spread, k, tally, engine.episodes, into.classes, classifier
    )
    summary.tell(into)
    if classifier != protocol.reference:
        return
    log = None
    if protocol.score == "softmax":
        log = sweep(replace(engine, protocol=replace(protocol, score="log")), spread)[1]
    ties = list(summary.ties(protocol.supports(spread), log))
    into.ties.extend(ties)
    into.notes.extend(tell_ties(ties))
    if spread == protocol.spreads[0]:
        into.confusion.extend(summary.confusion())
        into.notes.extend(summary.notes())


@contextmanager
def _naming(table: Embeddings) -> Iterator[None]:
    """Say whose vectors an error is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{table.source}: {error}") from None


def _direct_note(table: Embeddings, needed: int, room: int) -> str:
    return (
        f"{table.encoder}: the Gram matrix would take {needed / 2**30:.1f} GiB and {room / 2**30:.1f} GiB are allowed; "
        "scoring directly from the vectors: the same numbers, more slowly"
    )
