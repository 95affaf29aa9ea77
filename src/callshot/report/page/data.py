"""Results of corpora → what the charts of the page read, as JSON that can be put inside HTML.

The key of a line has the positions of its metric, spread, encoder and, if it has one, class:
`lines["0.1.2"]` is the first metric in the second spread of the third encoder, as mean, p01 and p99
over `shots`. `lines["0.1.2.c0"]` is the same for the first of `classifiers`.
"""

import json
from collections.abc import Sequence
from itertools import product
from math import isfinite
from typing import Any

import numpy as np
import polars as pl

from callshot.fewshot.metrics import chance_average_precision
from callshot.records import (
    CLASS_METRICS,
    DECISION_METRICS,
    METRIC_NAMES,
    METRICS,
    CorpusResults,
    Evaluation,
)
from callshot.records.frames import Frame, Shots
from callshot.report.choices import (
    classifier_name,
    largest_shot,
    list_classifiers,
    main_spread,
)
from callshot.report.figures.confusion import fill_matrix
from callshot.report.summary import Summary
from callshot.report.templates import clean

DIGITS = 4  # rounded once, so that a shown number equals the one in `curve.csv`
ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
INTERVAL = ("mean", "p01", "p99")
MEAN_CHANCE = "chance, mean over k and encoders"

Data = dict[str, Any]  # as the scripts of the page read it
Lines = dict[str, list[list[float | None]]]

NO_CALLS: Data = {"labels": [], "calls": [], "encoder_calls": []}


def answer_data(evaluation: Evaluation, summary: Summary, shots: Shots) -> Data:
    """Return what charts open with, what the first curve marks, and confusions at some shots."""
    headline = summary.headline
    curve = evaluation.curve.filter(
        pl.col("k").is_in([headline.k, headline.next_k]),
        encoder=summary.best,
        scoring="all",
        metric="map",
        spread=main_spread(evaluation),
    )
    points = curve.sort("k").select("k", "mean", "chance").rows()
    chance = points[0][2]  # it may differ between k
    return {
        "best": evaluation.encoders.index(summary.best),
        "k": headline.k,
        "headline": {
            "marks": [(k, mean, f"{mean:.2f} with {k}") for k, mean, _ in points],
            "chance": {"name": f"chance {chance:.2f}", "value": chance},
        },
        "confusion": confusion_data(evaluation, shots, headline.k),
    }


def to_json(value: Any) -> str:
    r"""Return JSON that cannot end the script element around it.

    >>> print(to_json({"label": "</script>"}))
    {"label":"\u003c/script\u003e"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(ESCAPES)


def class_chances(evaluation: Evaluation) -> dict[str, float]:
    """Return the expected AP of a random ranking for each eligible class, averaged over folds."""
    segments = evaluation.segments
    folds = evaluation.folds
    classes = sorted(count.label for count in evaluation.eligible_classes)
    is_query = (folds.fold >= 0) & np.isin(segments["label"], classes)
    queries = np.bincount(folds.fold[is_query], minlength=folds.count)
    pairs = zip(segments["label"], segments["labels"], strict=True)
    labels = [{label, *others} for label, others in pairs]
    chances = {}
    for name in classes:
        has_label = np.array([name in names for names in labels])
        positives = np.bincount(folds.fold[is_query & has_label], minlength=folds.count)
        chances[name] = float(chance_average_precision(positives, queries).mean())
    return chances


def corpus_data(results: CorpusResults) -> Data:
    """Return the numbers of all charts of a corpus."""
    evaluation = results.evaluation
    curve = evaluation.curve
    shots = sorted(set(curve["k"]))
    new_exemplars = dict(curve.select("k", "new_exemplars").iter_rows())
    metrics = _number_rows(curve, "scoring", "metric")
    spreads = _number_rows(curve, "spread")
    encoders = _number_rows(curve, "encoder")
    classes = _number_rows(evaluation.per_class, "label")
    pairs = _number_rows(evaluation.differences, "one", "other")
    others = [n for n in list_classifiers(results) if n not in curve["classifier"]]
    axes = [metrics, spreads, encoders]
    lines = _make_lines(curve, axes, shots)
    lines |= _make_lines(evaluation.per_class, [*axes, classes], shots)
    if results.other_classifiers is not None:
        classifiers = pl.Series("classifier", others, pl.String).to_frame()
        axes.append(classifiers.with_row_index())
        lines |= _make_lines(results.other_classifiers.curve, axes, shots, "c")
    differences = _make_lines(
        evaluation.differences,
        [metrics, spreads, pairs],
        shots,
        fields=(*INTERVAL, "wins", "clear"),
    )
    positions = dict(encoders.select("encoder", "index").iter_rows())
    by_metric = ["scoring", "metric"]
    baselines = results.baselines.join(metrics, on=by_metric, maintain_order="left")
    return {
        "name": clean(evaluation.corpus),
        "complete_shots": evaluation.complete_shots,
        "shots": shots,
        "new_exemplars": [new_exemplars[k] for k in shots],
        "metrics": _describe_metrics(evaluation, metrics, classes["label"]),
        "spreads": evaluation.spreads,
        "encoders": list(map(clean, encoders["encoder"])),
        "classes": list(map(clean, classes["label"])),
        "classifiers": [clean(classifier_name(name)) for name in others],
        "lines": lines,
        "baselines": [
            {
                "name": clean(baseline["name"]),
                "kind": baseline["kind"],
                "encoder": positions.get(baseline["encoder"]),
                "metric": baseline["index"],
                "value": _round(baseline["value"]),
            }
            for baseline in baselines.iter_rows(named=True)
        ],
        "pairs": [list(map(clean, names)) for _, *names in pairs.iter_rows()],
        "differences": differences,
    }


def _number_rows(frame: Frame, *columns: str) -> Frame:
    """Return the different values of some columns, in order, with their position as `index`."""
    return frame.select(columns).unique(maintain_order=True).with_row_index()


def _make_lines(
    points: Frame,
    axes: Sequence[Frame],
    shots: Shots,
    prefix: str = "",
    fields: Sequence[str] = INTERVAL,
) -> Lines:
    """Return the fields of each line over all shots, by its position on each axis.

    `prefix` precedes the last position. Points that are not on an axis are left out.
    """
    positions = [f"position {number}" for number in range(len(axes))]
    for axis, position in zip(axes, positions, strict=True):
        on_axis = points.join(axis, on=axis.columns[1:], maintain_order="left")
        points = on_axis.rename({"index": position})
    all_shots = pl.DataFrame({"k": shots})
    lines = {}
    for (*first, last), line in points.group_by(positions, maintain_order=True):
        key = ".".join([*map(str, first), f"{prefix}{last}"])
        columns = all_shots.join(line, on="k", how="left", maintain_order="left")
        lines[key] = [list(map(_round, columns[field])) for field in fields]
    return lines


def _describe_metrics(
    evaluation: Evaluation,
    metrics: Frame,
    classes: pl.Series,
) -> list[Data]:
    """Return the names and chance levels of metrics; reduced scoring has neither for a class.

    The chance of decisions differs a little between k and encoders: their level is the mean.
    """
    chances_of_classes = {
        "map": class_chances(evaluation),
        "auroc": dict.fromkeys(classes, 0.5),
    }
    descriptions = []
    for _, scoring, metric in metrics.iter_rows():
        points = evaluation.curve.filter(scoring=scoring, metric=metric)
        chances = chances_of_classes.get(metric, {})
        name = METRIC_NAMES[metric]
        if scoring != "all":
            name = f"{scoring} {name}"
        if metric in DECISION_METRICS:
            name += f" among these {len(classes)} call types"
        has_classes = scoring == "all" and metric in CLASS_METRICS
        description = {
            "name": name,
            "of_class": METRICS[metric].of_class if has_classes else None,
            "chance": _round(points["chance"].to_numpy().mean()),
            "chance_name": MEAN_CHANCE if metric in DECISION_METRICS else "chance",
            "chances": [_round(chances.get(name)) for name in classes],
        }
        descriptions.append(description)
    return descriptions


def _round(value: float | None) -> float | None:
    if value is None or not isfinite(value):
        return None
    return round(value, DIGITS) + 0.0  # no negative zero


def confusion_data(evaluation: Evaluation, shots: Shots, few: int) -> Data:
    """Return the shares of decisions by encoder and k, in percent; rows are the true call types.

    The heat map opens at the k of the headline, `few`, whatever other shots there are to choose.
    """
    labels = [count.label for count in evaluation.eligible_classes]
    evaluated = set(evaluation.confusion["k"])
    first = largest_shot(evaluated, few) if evaluated else few
    shown = sorted(evaluated & {*shots, first})
    matrices = {}
    for (number, encoder), k in product(enumerate(evaluation.encoders), shown):
        cells = evaluation.confusion.filter(encoder=encoder, k=k)
        percent = 100 * fill_matrix(cells, "recall", labels)
        rows = [[round(share, 1) for share in row] for row in percent.tolist()]
        matrices[f"{number}.{k}"] = rows
    names = list(map(clean, labels))
    return {"labels": names, "shots": shown, "first": first, "matrices": matrices}
