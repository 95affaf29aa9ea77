"""Chapters to make tables, figures and pages of: a real evaluation of made-up vectors, with what lies around it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from callshot import Embeddings, Protocol, evaluate
from callshot.baselines.centroid_to_logistic import refine_centroid
from callshot.baselines.logistic import score_logistic
from callshot.baselines.logistic_per_k import sweep_logistic
from callshot.baselines.scoring import measure
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.crossover import find_crossovers
from callshot.fewshot.differences import compare
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.summary import Summary
from callshot.records import Baseline, CorpusResults, CorpusStats, DurationStats, RefinementStep

SMALL = Protocol(shots=(1, 2, 3, 4, 5, 10, 20), draws=10, bootstraps=100, shared_draws=50)


def lengths(seconds: Sequence[float]) -> DurationStats:
    s = np.asarray(seconds, float)
    return DurationStats(
        len(s), float(s.sum()), float(s.mean()), float(s.min()), float(s.max()), float(s.std())
    )


def make_tables(
    labels: Sequence[str] = ("rumble", "roar", "trumpet"),
    encoders: Mapping[str, float] | Sequence[str] = ("one", "two"),
    recordings: int = 12,
    each: int = 2,
    seed: int = 0,
) -> list[Embeddings]:
    """Return a table for each encoder: `each` segments of every label in every recording; a value is its separation."""
    apart = (
        dict(encoders)
        if isinstance(encoders, Mapping)
        else {name: 1.5 - 0.5 * i for i, name in enumerate(encoders)}
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
        tables.append(
            Embeddings(name, vectors, segment, recording, label, [(one,) for one in label])
        )
    return tables


def make_corpus_results(
    tables: Sequence[Embeddings] | None = None,
    *,
    corpus: str = "corpus",
    protocol: Protocol = SMALL,
    baselines: Sequence[Baseline] = (),
    categories: Mapping[str, str] | None = None,
) -> CorpusResults:
    """Return a chapter; its comparisons and budget are left to who tests them."""
    tables = make_tables() if tables is None else tables
    evaluation = evaluate(tables, protocol, corpus=corpus, categories=categories)
    spans = lengths([1.0 + 0.1 * i for i in range(len(tables[0]))])
    facts = CorpusStats(
        (16000.0,),
        (1,),
        ("WAV PCM_16",),
        len(set(tables[0].label)),
        1.0,
        0.0,
        lengths([60.0] * 12),
        lengths([60.0] * 12),
        spans,
        spans,
    )
    return CorpusResults(evaluation, facts, spans, tables, baselines, (), (), categories, (), ())


def make_trained(
    tables: Sequence[Embeddings] | None = None,
    *,
    protocol: Protocol = SMALL,
    corpus: str = "corpus",
    categories: Mapping[str, str] | None = None,
    more: Sequence[Baseline] = (),
    rules: Sequence[str] = tuple(CLASSIFIERS),
) -> CorpusResults:
    """Return a chapter with other rules, logistic regression on all labels and at every k, and the way to it."""
    tables = make_tables() if tables is None else tables
    ruled = replace(
        protocol, classifiers=("centroid", *(name for name in rules if name != "centroid"))
    )
    corpus_results = make_corpus_results(
        tables, corpus=corpus, protocol=ruled, categories=categories
    )
    found = corpus_results.evaluation
    reference, others = found.under(["centroid"]), found.under(set(CLASSIFIERS) - {"centroid"})
    baselines, refinement = list(more), []
    for table in tables:
        episodes = plan_episodes(table, found.folds, found.classes)
        trained, path = _train(table, episodes, corpus, categories)
        baselines, refinement = [*baselines, *trained], [*refinement, *path]
        at_k = Summary(
            corpus,
            table.encoder,
            "shared",
            *sweep_logistic(episodes, protocol, categories=categories),
            episodes,
            found.classes,
            "logistic",
        )
        for name, rows in (
            ("curve", at_k.curves()),
            ("values", at_k.values()),
            ("per_class", at_k.classes()),
        ):
            getattr(others, name).extend(rows)
    trained_values = [v for v in others.values if v.classifier == "logistic"]
    return replace(
        corpus_results,
        evaluation=reference,
        others=others,
        baselines=baselines,
        refinement=refinement,
        differences=compare(reference.values, baselines),
        crossovers=find_crossovers(
            reference.values, baselines, trained_values, found.complete_shots
        ),
    )


def _train(
    table: Embeddings, episodes: Episodes, corpus: str, categories: Mapping[str, str] | None
) -> tuple[list[Baseline], list[RefinementStep]]:
    scores, c_values = score_logistic(episodes, np.arange(len(episodes.label)), strength=0.1)
    measured, path = (
        measure(episodes, scores, categories),
        refine_centroid(episodes, c_values, categories=categories),
    )
    key, keys = (corpus, table.encoder), [key for key in measured if key[1] in ("map", "auroc")]
    baselines = [
        Baseline(*key, "logistic", "LR", *which, measured[which], "C = 0.1 in every split")
        for which in keys
    ]
    hot = float(path.temperature.mean())
    steps = [
        RefinementStep(*key, *which, int(step), float(value), hot)
        for which in keys
        for step, value in zip(path.steps, path.values[which], strict=True)
    ]
    return baselines, steps
