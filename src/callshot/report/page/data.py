"""Chapters → what the charts of the page read, as JSON that can stand inside HTML.

Points of a curve are kept by the places of their metric, spread, encoder and, where there is one, class:
`lines["0.1.2"]` is the first metric in the second spread of the third encoder, as mean, p01 and p99 over `shots`. What
another classifier did there is `lines["0.1.2.c0"]`, with its place in `classifiers`.
"""

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, TypeVar

import numpy as np

from callshot.fewshot.metrics import chance_average_precision
from callshot.records import Baseline, CorpusResults, Evaluation
from callshot.report.classifiers import rule_name, rules_of
from callshot.report.page.html import clean
from callshot.report.page.words import class_metric_name, metric_name

DIGITS = 4  # kept and shown: a number that is rounded once equals the one in `curve.csv` to the digits shown
ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}

Name = TypeVar("Name", bound=Hashable)
Places = Mapping[Name, int]
Lines = dict[str, list[list[float | None]]]


def chart_data(all_results: Sequence[CorpusResults]) -> dict[str, Any]:
    """Return all that the charts show, with a corpus for each chapter."""
    return {
        "digits": DIGITS,
        "corpora": [_corpus(corpus_results) for corpus_results in all_results],
    }


def to_json(value: Any) -> str:
    r"""Write JSON that no part of can end the script element it stands in.

    >>> print(to_json({"label": "</script>"}))
    {"label":"\u003c/script\u003e"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(ESCAPES)


def class_chances(evaluation: Evaluation) -> dict[str, float]:
    """Return the expected AP of a random ranking for each eligible class, averaged over folds as its AP is."""
    classes = {c.label for c in evaluation.classes if c.eligible}
    table, fold = evaluation.segments, evaluation.folds.fold
    query = np.array([label in classes for label in table.label]) & (fold >= 0)
    folds = np.arange(evaluation.folds.count)
    queries = np.bincount(fold[query], minlength=len(folds))

    def chance(name: str) -> float:
        has = np.array(
            [
                name == own or name in more
                for own, more in zip(table.label, table.labels, strict=True)
            ]
        )
        positives = np.bincount(fold[query & has], minlength=len(folds))
        return float(np.mean(chance_average_precision(positives, queries)))

    return {name: chance(name) for name in sorted(classes)}


def _corpus(corpus_results: CorpusResults) -> dict[str, Any]:
    found = corpus_results.evaluation
    metrics, spreads = (
        _places((c.scoring, c.metric) for c in found.curve),
        _places(c.spread for c in found.curve),
    )
    encoders, classes = (
        _places(c.encoder for c in found.curve),
        _places(c.label for c in found.per_class),
    )
    shots = _places(sorted({c.k for c in found.curve}))
    new = {c.k: c.new_exemplars for c in found.curve}
    lines: Lines = {}
    for c in found.curve:
        key = f"{metrics[c.scoring, c.metric]}.{spreads[c.spread]}.{encoders[c.encoder]}"
        _put(lines, key, len(shots), shots[c.k], c.mean, c.p01, c.p99)
    for p in found.per_class:
        key = f"{metrics[p.scoring, p.metric]}.{spreads[p.spread]}.{encoders[p.encoder]}.{classes[p.label]}"
        _put(lines, key, len(shots), shots[p.k], p.mean, p.p01, p.p99)
    rules = _places(
        rule for rule in rules_of(corpus_results) if rule not in {c.classifier for c in found.curve}
    )
    for c in corpus_results.others.curve if corpus_results.others else ():
        if (
            (c.scoring, c.metric) in metrics
            and c.spread in spreads
            and c.encoder in encoders
            and c.k in shots
        ):
            key = f"{metrics[c.scoring, c.metric]}.{spreads[c.spread]}.{encoders[c.encoder]}.c{rules[c.classifier]}"
            _put(lines, key, len(shots), shots[c.k], c.mean, c.p01, c.p99)
    return {
        "name": clean(found.corpus),
        "complete_shots": found.complete_shots,
        "shots": list(shots),
        "new_exemplars": [new[k] for k in shots],
        "metrics": [_metric(scoring, metric, found, list(classes)) for scoring, metric in metrics],
        "spreads": list(spreads),
        "encoders": [clean(name) for name in encoders],
        "classes": [clean(name) for name in classes],
        "classifiers": [clean(rule_name(rule)) for rule in rules],
        "lines": lines,
        "baselines": [
            _rival(r, metrics, encoders)
            for r in corpus_results.baselines
            if (r.scoring, r.metric) in metrics
        ],
        **_differences(corpus_results, metrics, spreads, shots),
    }


def _metric(scoring: str, metric: str, found: Evaluation, classes: Sequence[str]) -> dict[str, Any]:
    """Return a metric's names and its levels of chance; a class has neither under reduced scoring."""
    chance = next(c.chance for c in found.curve if (c.scoring, c.metric) == (scoring, metric))
    own = {
        "map": class_chances(found) if metric == "map" else {},
        "auroc": dict.fromkeys(classes, 0.5),
    }.get(metric, {})
    return {
        "name": metric_name(scoring, metric),
        "of_class": class_metric_name(metric) if scoring == "all" else None,
        "chance": _rounded(chance),
        "chances": [_rounded(own.get(name, float("nan"))) for name in classes],
    }


def _rival(
    baseline: Baseline, metrics: Places[tuple[str, str]], encoders: Places[str]
) -> dict[str, Any]:
    return {
        "name": clean(baseline.name),
        "kind": baseline.kind,
        "encoder": encoders.get(baseline.encoder),
        "metric": metrics[baseline.scoring, baseline.metric],
        "value": _rounded(baseline.value),
    }


def _differences(
    corpus_results: CorpusResults,
    metrics: Places[tuple[str, str]],
    spreads: Places[str],
    shots: Places[int],
) -> dict[str, Any]:
    """Return the paired differences as lines of mean, p01, p99 and wins, by metric, spread and pair."""
    rows = [
        d
        for d in corpus_results.differences
        if (d.scoring, d.metric) in metrics and d.spread in spreads and d.k in shots
    ]
    pairs = _places((d.one, d.other) for d in rows)
    lines: Lines = {}
    for d in rows:
        key = f"{metrics[d.scoring, d.metric]}.{spreads[d.spread]}.{pairs[d.one, d.other]}"
        _put(lines, key, len(shots), shots[d.k], d.mean, d.p01, d.p99, d.wins)
    return {"pairs": [[clean(one), clean(other)] for one, other in pairs], "differences": lines}


def _places(names: Iterable[Name]) -> dict[Name, int]:
    return {name: at for at, name in enumerate(dict.fromkeys(names))}


def _put(lines: Lines, key: str, length: int, at: int, *values: float) -> None:
    line = lines.setdefault(key, [[None] * length for _ in values])
    for row, value in zip(line, values, strict=True):
        row[at] = _rounded(value)


def _rounded(value: float) -> float | None:
    return round(value, DIGITS) + 0.0 if isfinite(value) else None  # + 0.0: no negative zero
