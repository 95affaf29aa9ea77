"""Results whose truth is known, for tests of what a summary says."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from callshot.fewshot.differences import find_crossovers
from callshot.records import ClassCount, CorpusResults, CorpusStats, Evaluation, Folds
from callshot.records.frames import (
    BUDGET,
    CHANCE_TEST,
    CURVE,
    CURVE_KEY,
    make_frame,
    summarise_samples,
    value_matrix,
    values_frame,
)
from callshot.vectors import Vectors
from corpus_results import (
    add_baselines,
    make_baselines,
    make_durations,
    make_rows,
    replace_frames,
)

SHOTS = (1, 2, 3, 4, 5, 10)
NOISE = np.linspace(
    -0.1, 0.1, 101
)  # of the draws: the 1st and 99th percentile are ∓0.098
RISING = (0.40, 0.50, 0.55, 0.58, 0.60, 0.64)
LATE = (0.2, 0.3, 0.4, 0.5, 0.58, 0.80)
COMMON = [
    ClassCount("roar", 30, 20, True, "", (10, 10)),
    ClassCount("rumble", 40, 25, True, "", (20, 20)),
]
ONE = make_durations([1.0])
STATS = CorpusStats((16000.0,), (1,), ("WAV PCM_16",), 2, 1.0, 0.0, ONE, ONE, ONE, ONE)


def with_rare(complete_to_k: int, exemplars: int = 9) -> list[ClassCount]:
    """Return the common classes and one that has few exemplars."""
    return [*COMMON, ClassCount("bark", exemplars, complete_to_k, True, "", (12, 12))]


def make(
    means: Mapping[str, Sequence[float]],
    *,
    noise: Mapping[str, np.ndarray] | None = None,
    shots: Sequence[int] = SHOTS,
    spread: str = "total",
    scorings: Sequence[str] = ("all",),
    chance: float = 0.2,
    classes: Sequence[ClassCount] = tuple(COMMON),
    baselines: Sequence[tuple[Any, ...]] = (),
    budget: Sequence[tuple[Any, ...]] = (),
    permutations: int = 199,
) -> CorpusResults:
    """Return results whose curves have these means and, around each, the noise of the encoder."""
    complete_shots = min(count.complete_to_k for count in classes if count.eligible)
    k = np.array(shots)
    curves = []
    values = []
    tests = []
    for number, (encoder, mean) in enumerate(means.items()):
        own_noise = NOISE * (1 + 1e-5 * number)  # so that no difference is constant
        samples = np.array(mean)[:, None] + (noise or {}).get(encoder, own_noise)
        tested = make_tests(encoder, k[k <= complete_shots], samples, chance)
        tests.append(tested.with_columns(permutations=permutations))
        for scoring in scorings:
            key = {"corpus": "herd", "encoder": encoder, "classifier": "centroid"}
            key |= {"scoring": scoring, "metric": "map", "spread": spread}
            columns = {
                "k": k,
                "complete": k <= complete_shots,
                **summarise_samples(samples),
            }
            constants = key | {"chance": chance, "new_exemplars": 0, "ties": 0}
            curves.append(make_frame(CURVE, columns, constants))
            values.append(values_frame(key, k, samples))
    segments = Vectors.from_columns(
        "e", np.zeros((2, 1)), "ab", "xy", ["roar", "rumble"], [(), ()]
    )
    evaluation = Evaluation(
        "herd",
        complete_shots,
        60,
        list(classes),
        Folds(np.array([0, 1]), 2, "given"),
        segments.spans,
        curve=pl.concat(curves),
        values=pl.concat(values),
        chance_test=pl.concat(tests).cast(dict(CHANCE_TEST)),
        budget=make_rows(BUDGET, *budget),
    )
    rows = make_baselines(*baselines)
    return CorpusResults(
        add_baselines(evaluation, rows), STATS, ONE, [], baselines=rows
    )


def make_tests(
    encoder: str, k: np.ndarray, samples: np.ndarray, chance: float
) -> pl.DataFrame:
    """Return tests that are passed where the 1st percentile is above chance."""
    low = np.percentile(samples[: len(k)], 1, axis=1)
    columns = {"k": k, "p": np.where(low > chance, 0.005, 0.5)}
    key = {"corpus": "herd", "encoder": encoder, "classifier": "centroid"}
    constants = key | {"metric": "map", "value": 0.5, "permuted": chance}
    return make_frame(CHANCE_TEST, columns, constants | {"permutations": 199})


def baseline(
    value: float,
    kind: str = "logistic",
    name: str = "LR",
    encoder: str = "mfcc",
    scoring: str = "all",
    metric: str = "map",
) -> tuple[Any, ...]:
    """Return a row of baselines."""
    return "herd", encoder, kind, name, scoring, metric, value


def end_to_end(value: float, scoring: str = "all") -> tuple[Any, ...]:
    return baseline(value, "end-to-end", "AERD", "", scoring)


def class_budget(
    label: str,
    next_gain: float,
    *,
    encoder: str = "mfcc",
    recommended: bool = False,
    judged: bool = True,
    k: int = 4,
) -> tuple[Any, ...]:
    """Return a row of the BUDGET schema."""
    double_gain = next_gain * (k + 1) / 2
    key = ("herd", encoder, label, "map", 9, k, 0.5)
    interval = (next_gain - 0.01, next_gain + 0.01)
    shares = (0.98, 0.9) if judged else (math.nan, math.nan)
    return *key, next_gain, double_gain, 0.9, 0.001, *interval, *shares, recommended


def make_trained(
    lead: Sequence[float],
    *,
    draws: int = 101,
    name: str = "logistic",
    noise: np.ndarray = NOISE,
    classes: Sequence[ClassCount] = tuple(COMMON),
) -> CorpusResults:
    """Return results with another classifier that leads by this much at each k."""
    results = make({"mfcc": RISING}, classes=classes)
    evaluation = results.evaluation
    values = evaluation.values
    samples = value_matrix(values)[:, :draws] + np.array(lead)[:, None] + noise[:draws]
    key = {column: values[column][0] for column in CURVE_KEY} | {"classifier": name}
    others = replace(
        evaluation,
        curve=evaluation.curve.clear(),
        values=values_frame(key, np.array(SHOTS), samples),
    )
    trained_values = others.values.filter(classifier="logistic")
    crossovers = find_crossovers(
        values, make_baselines(), trained_values, evaluation.complete_shots
    )
    return replace(
        replace_frames(results, crossovers=crossovers), other_classifiers=others
    )
