"""Chapters to make tables, figures and pages of: a real evaluation of made-up vectors, with what lies around it."""

from collections.abc import Mapping, Sequence

import numpy as np

from callshot import Embeddings, Protocol, evaluate
from callshot.records import Chapter, Facts, Lengths, Rival

SMALL = Protocol(shots=(1, 2, 3, 4, 5, 10, 20), draws=10, bootstraps=100, shared_draws=50)


def lengths(seconds: Sequence[float]) -> Lengths:
    s = np.asarray(seconds, float)
    return Lengths(len(s), float(s.sum()), float(s.mean()), float(s.min()), float(s.max()), float(s.std()))


def make_tables(
    labels: Sequence[str] = ("rumble", "roar", "trumpet"),
    encoders: Mapping[str, float] | Sequence[str] = ("one", "two"),
    recordings: int = 12,
    each: int = 2,
    seed: int = 0,
) -> list[Embeddings]:
    """Return a table for each encoder: `each` segments of every label in every recording; a value is its separation."""
    apart = (
        dict(encoders) if isinstance(encoders, Mapping) else {name: 1.5 - 0.5 * i for i, name in enumerate(encoders)}
    )
    rng = np.random.default_rng(seed)
    label = [name for _ in range(recordings) for name in labels for _ in range(each)]
    recording = [f"recording {i // (len(labels) * each):02}" for i in range(len(label))]
    segment = [f"{recording[i]}@{i}" for i in range(len(label))]
    own = rng.normal(size=(len(labels), 8))
    which = np.array([labels.index(name) for name in label])
    tables = []
    for name, distance in apart.items():
        vectors = distance * own[which] + rng.normal(size=(len(label), 8))
        tables.append(Embeddings(name, vectors, segment, recording, label, [(one,) for one in label]))
    return tables


def make_chapter(
    tables: Sequence[Embeddings] | None = None,
    *,
    corpus: str = "corpus",
    protocol: Protocol = SMALL,
    rivals: Sequence[Rival] = (),
    categories: Mapping[str, str] | None = None,
) -> Chapter:
    """Return a chapter; its comparisons and budget are left to who tests them."""
    tables = make_tables() if tables is None else tables
    evaluation = evaluate(tables, protocol, corpus=corpus, categories=categories)
    spans = lengths([1.0 + 0.1 * i for i in range(len(tables[0]))])
    facts = Facts(
        (16000.0,), (1,), ("WAV PCM_16",), len(set(tables[0].label)), 1.0, 0.0, lengths([60.0] * 12),
        lengths([60.0] * 12), spans, spans,
    )  # fmt: skip
    return Chapter(evaluation, facts, spans, tables, rivals, (), (), categories, (), ())
