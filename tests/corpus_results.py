"""Results of a corpus for tables, figures and pages: a real evaluation of random vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from callshot import Protocol, Vectors
from callshot.baselines.centroid_to_logistic import refine_centroid
from callshot.baselines.logistic import score_logistic, sweep_logistic
from callshot.baselines.scoring import measure
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.differences import add_baselines
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.metrics import summarise_sweep
from callshot.records import CorpusResults, CorpusStats, DurationStats
from callshot.records.frames import BASELINES, REFINEMENT, Schema

SMALL = Protocol(
    shots=(1, 2, 3, 4, 5, 10, 20),
    draws=10,
    bootstraps=100,
    shared_draws=50,
    permutations=19,
    total_samples=50,
)


def make_durations(seconds: Sequence[float]) -> DurationStats:
    array = np.asarray(seconds, float)
    return DurationStats(
        len(array),
        float(array.sum()),
        float(array.mean()),
        float(array.min()),
        float(array.max()),
        float(array.std()),
    )


def make_baselines(*rows: Sequence[Any]) -> pl.DataFrame:
    """Return a frame of baselines: corpus, encoder, kind, name, scoring, metric, value, how."""
    whole = []
    for *key, value, how in [row if len(row) == 8 else (*row, "") for row in rows]:
        whole.append((*key, value, np.nan, np.nan, how, [], []))
    return make_rows(BASELINES, *whole)


def make_rows(schema: Schema, *rows: Sequence[Any]) -> pl.DataFrame:
    """Return a frame of a schema from rows with all its columns."""
    return pl.DataFrame(rows, schema=dict(schema), orient="row")


def replace_frames(results: CorpusResults, **frames: Any) -> CorpusResults:
    """Return results with other fields of the evaluation."""
    return replace(results, evaluation=replace(results.evaluation, **frames))


def make_tables(
    labels: Sequence[str] = ("rumble", "roar", "trumpet"),
    encoders: Mapping[str, float] | Sequence[str] = ("one", "two"),
    recordings: int = 12,
    each: int = 2,
    seed: int = 0,
) -> list[Vectors]:
    """Return a table per encoder: `each` segments of every label in every recording.

    A mapping gives the separation of the classes by each encoder.
    """
    if not isinstance(encoders, Mapping):
        encoders = {name: 1.5 - 0.5 * i for i, name in enumerate(encoders)}
    rng = np.random.default_rng(seed)
    label = [name for _ in range(recordings) for name in labels for _ in range(each)]
    recording = [f"recording {i // (len(labels) * each):02}" for i in range(len(label))]
    segment = [f"{recording[i]}@{i}" for i in range(len(label))]
    centres = rng.normal(size=(len(labels), 8))
    class_numbers = np.array([labels.index(name) for name in label])
    overlapping = [(name,) for name in label]
    tables = []
    for name, separation in encoders.items():
        vectors = separation * centres[class_numbers] + rng.normal(size=(len(label), 8))
        tables.append(
            Vectors.from_columns(name, vectors, segment, recording, label, overlapping)
        )
    return tables


def make_corpus_results(
    tables: Sequence[Vectors] | None = None,
    *,
    corpus: str = "corpus",
    protocol: Protocol = SMALL,
    baselines: pl.DataFrame | None = None,
    categories: Mapping[str, str] | None = None,
) -> CorpusResults:
    """Return the results of a corpus, compared with baselines where these are given."""
    tables = make_tables() if tables is None else tables
    baselines = make_baselines() if baselines is None else baselines
    evaluation = evaluate_tables(tables, protocol, corpus=corpus, categories=categories)
    durations = make_durations([1.0 + 0.1 * i for i in range(len(tables[0]))])
    recordings = make_durations([60.0] * 12)
    stats = CorpusStats(
        (16000.0,),
        (1,),
        ("WAV PCM_16",),
        len(set(tables[0].label)),
        1.0,
        0.0,
        recordings,
        recordings,
        durations,
        durations,
    )
    return CorpusResults(
        add_baselines(evaluation, baselines),
        stats,
        durations,
        tables,
        categories,
        baselines=baselines,
    )


def make_trained_results(
    tables: Sequence[Vectors] | None = None,
    *,
    protocol: Protocol = SMALL,
    corpus: str = "corpus",
    categories: Mapping[str, str] | None = None,
    more_baselines: pl.DataFrame | None = None,
    classifiers: Sequence[str] = tuple(CLASSIFIERS),
) -> CorpusResults:
    """Return results with other classifiers, logistic regression on all labels and at every k."""
    tables = make_tables() if tables is None else tables
    others = [name for name in classifiers if name != "centroid"]
    results = make_corpus_results(
        tables,
        corpus=corpus,
        protocol=replace(protocol, classifiers=("centroid", *others)),
        categories=categories,
    )
    evaluation = results.evaluation
    baselines = [make_baselines() if more_baselines is None else more_baselines]
    refinement = []
    sweeps = []
    for table in tables:
        episodes = plan_episodes(table, evaluation.folds, evaluation.classes)
        trained, steps = _train(table, episodes, corpus, categories)
        baselines.append(trained)
        refinement.append(steps)
        k, sums = sweep_logistic(episodes, protocol, categories=categories)
        key = {"corpus": corpus, "encoder": table.encoder}
        key |= {"classifier": "logistic", "spread": "shared"}
        sweeps.append(summarise_sweep(key, k, sums, evaluation.classes))
    untrained = evaluation.select_classifiers(others)
    trained_values = pl.concat([sweep["values"] for sweep in sweeps])
    all_baselines = pl.concat(baselines)
    reference = evaluation.select_classifiers(["centroid"])
    return replace(
        results,
        evaluation=add_baselines(reference, all_baselines, trained_values),
        other_classifiers=replace(
            untrained,
            curve=pl.concat([untrained.curve, *(sweep["curve"] for sweep in sweeps)]),
            values=pl.concat([untrained.values, trained_values]),
            per_class=pl.concat(
                [untrained.per_class, *(sweep["per_class"] for sweep in sweeps)]
            ),
        ),
        baselines=all_baselines,
        refinement=pl.concat(refinement),
    )


def _train(
    table: Vectors,
    episodes: Episodes,
    corpus: str,
    categories: Mapping[str, str] | None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the baselines and the refinement steps of logistic regression on one encoder."""
    scores, c_values = score_logistic(episodes, c=0.1)
    measured = measure(episodes, scores, categories)
    numbers, values, temperatures = refine_centroid(
        episodes, c_values, categories=categories
    )
    keys = [key for key in measured if key[1] in ("map", "auroc")]
    rows = [
        (
            corpus,
            table.encoder,
            "logistic",
            "LR",
            *key,
            measured[key],
            "C = 0.1 in every split",
        )
        for key in keys
    ]
    temperature = float(temperatures.mean())
    steps = [
        (corpus, table.encoder, *key, int(step), float(value), temperature)
        for key in keys
        for step, value in zip(numbers, values[key], strict=True)
    ]
    return make_baselines(*rows), make_rows(REFINEMENT, *steps)
