"""Decisions → what they amount to: precision, agreement, and the k-shot curve.

The curve shows how well k confirmed calls name the others. Examples and queries are of different
recordings: these are split into as many folds as the label in the fewest recordings allows, up to
10. Mean and interval (98 %) are over draws of the examples, as in `evaluate(spread="shared")`.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from operator import eq
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import CallshotError
from callshot.records import IntArray
from callshot.review.decisions import SPAN, Decisions
from callshot.spans import Spans

SCORE_BINS = 4  # of equal size, in each class
Z = 1.959963984540054  # of a 95 % interval
AIM = 0.05  # half the width of the interval
MIN_CALLS = 4  # of a label, to be on the curve
MIN_LABELS = 2
MIN_RECORDINGS = 2
SHOTS = (1, 2, 3, 5, 8, 10, 15, 20, 30, 40)
MAX_FOLDS = 10
DRAWS = 200

Answer = dict[str, Any]


def wilson_interval(hits: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of the share of `hits` in `count` trials.

    >>> [round(limit, 4) for limit in wilson_interval(9, 10)]
    [0.5958, 0.9821]
    """
    share = hits / count
    square = Z * Z / count
    scale = 1 + square
    middle = (share + square / 2) / scale
    variance = share * (1 - share) / count
    variance += square / (4 * count)
    half = Z * math.sqrt(variance) / scale
    return max(0.0, middle - half), min(1.0, middle + half)


def draw_sample(items: Spans, seed: int) -> IntArray:
    """Return the items of a source in a random order; the first of a class are a fair sample.

    Each class is cut into bins of equal size by score. The order takes an item of each bin at
    random, then another of each, and so on; classes take turns. It is the same for the same seed.
    """
    # The raw output of Philox is the same in all versions of NumPy.
    generator = np.random.Philox(key=seed)
    first_key, second_key = generator.random_raw((2, len(items)))
    drawn = items.frame.select(
        pl.Series("first_key", first_key),
        pl.Series("second_key", second_key),
        "label",
        item="row",  # its number
        rank=pl.col("score").fill_null(0.0).rank("ordinal").over("label"),
        count=pl.len().over("label"),
    )
    items_below = pl.col("rank").cast(pl.Int64) - 1
    drawn = drawn.with_columns(bin=items_below * SCORE_BINS // pl.col("count"))
    # Within a class, one item of each bin after another, bins in random order
    bin_turn = pl.col("first_key").rank("ordinal").over("label", "bin")
    drawn = drawn.with_columns(bin_turn=bin_turn).sort("bin_turn", "second_key")
    # Then one item of each class after another
    class_turn = pl.int_range(pl.len()).over("label")
    drawn = drawn.with_columns(class_turn=class_turn).sort("class_turn", "first_key")
    return drawn["item"].to_numpy()


def estimate_precision(order: IntArray, label: str, decisions: Decisions) -> Answer:
    """Estimate the precision of a class from a random `order` of its items, as item numbers.

    Only items before the first undecided one count: later ones were decided in another order, such
    as best first, and are no fair sample.
    Skipped and split items, and open conflicts, are passed over.
    """
    reviewed = 0
    confirmed = 0
    for item in order.tolist():
        verdict = decisions.verdicts.get(item)
        if verdict is not None:
            reviewed += 1
            confirmed += verdict["label"] == label
            continue
        by_reviewer = decisions.find_all(item).values()
        # Nothing was decided, or reviewers only moved its start or end.
        if all(decision["action"] == SPAN for decision in by_reviewer):
            break
    return describe_precision(reviewed, confirmed, len(order))


def describe_precision(reviewed: int, confirmed: int, detections: int) -> Answer:
    """Return the precision of a class and its interval, from a fair sample of its detections.

    The interval is one number if all were reviewed. `more_for_5_percent` is how many more reviews
    make it ± 5 %, if the share stays as it is.
    """
    precision = None if reviewed == 0 else confirmed / reviewed
    low = high = precision
    if 0 < reviewed < detections:
        low, high = wilson_interval(confirmed, reviewed)
    # How many more reviews it takes until the interval is narrow: at most all that are left.
    share = 0.5 if precision is None else precision  # 0.5 has the widest interval
    more = detections - reviewed
    for total in range(max(reviewed, 1), detections):
        lower, upper = wilson_interval(share * total, total)
        if upper - lower <= 2 * AIM:
            more = total - reviewed
            break
    return {
        "detections": detections,
        "reviewed": reviewed,
        "confirmed": confirmed,
        "precision": precision,
        "low": low,
        "high": high,
        "more_for_5_percent": more,
    }


def cohen_kappa(first: Sequence[Any], second: Sequence[Any]) -> float | None:
    """Return Cohen's kappa of the labels of the same items; None if it is not defined.

    >>> cohen_kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    count = len(first)
    of_first = Counter(first)
    of_second = Counter(second)
    by_chance = sum(of_first[name] * of_second[name] for name in of_first)
    if by_chance == count**2:  # both gave one label only, or there are no items
        return None
    chance = by_chance / count**2
    agreed: int = sum(map(eq, first, second))
    return (agreed / count - chance) / (1 - chance)


def measure_agreement(decisions: Decisions) -> Answer:
    """Return how often two reviewers decided on one item, how often alike, and Cohen's kappa.

    An item counts once for each pair of reviewers who decided on it. Kappa is the mean over these
    pairs of reviewers, weighted by their common items.
    """
    labels: dict[str, dict[int, str | None]] = {}
    for item in decisions.touched:
        for verdict in decisions.find_verdicts(item):
            label_of_item = labels.setdefault(verdict["reviewer"], {})
            label_of_item[item] = verdict["label"]
    pairs = 0
    agreed = 0
    weight = 0
    weighted_kappas = 0.0
    for name, other_name in combinations(sorted(labels), 2):
        common = sorted(labels[name].keys() & labels[other_name].keys())
        first = [labels[name][item] for item in common]
        second = [labels[other_name][item] for item in common]
        pairs += len(common)
        agreed += sum(map(eq, first, second))
        kappa = cohen_kappa(first, second)
        if kappa is not None:
            weight += len(common)
            weighted_kappas += kappa * len(common)
    kappa = weighted_kappas / weight if weight else None
    return {"pairs": pairs, "agreed": agreed, "kappa": kappa}


def find_obstacle(confirmed: Mapping[str, Sequence[int]], recording: IntArray) -> str:
    """Return why there is no curve yet, empty if there can be one; see `compute_curve`."""
    labels = [name for name in confirmed if len(confirmed[name]) >= MIN_CALLS]
    if len(labels) < MIN_LABELS:
        return (
            f"confirm {MIN_CALLS} calls or more of {MIN_LABELS} labels; "
            f"{len(labels)} have that many"
        )
    for label in labels:
        recordings = np.unique(recording[confirmed[label]])
        if len(recordings) < MIN_RECORDINGS:
            return f"confirm calls of {label} in {MIN_RECORDINGS} recordings or more"
    return ""


def compute_curve(
    confirmed: Mapping[str, Sequence[int]],
    recording: IntArray,
    vectors: NDArray[np.float32],
) -> Answer:
    """Evaluate the confirmed calls; return k, mean average precision and its interval.

    `recommended` is the label that gains most from one more call; None if that is not clear.
    `confirmed` are items by label; `recording`, (items,), has the number of the recording of every
    item, `vectors`, (items, dimensions), its vector. The curve has the points at which all labels
    have enough calls; if there is none, return `why`.
    """
    from callshot.api import evaluate
    from callshot.fewshot.label_budget import recommended_class

    names = [name for name in sorted(confirmed) if len(confirmed[name]) >= MIN_CALLS]
    rows = []
    labels = []
    recording_counts = []
    for name in names:
        calls = sorted(confirmed[name])
        rows += calls
        labels += [name] * len(calls)
        recording_counts.append(len(np.unique(recording[calls])))
    # k examples must leave one more call, which is to be named.
    largest = max(len(confirmed[name]) for name in names) - 1
    try:
        result = evaluate(
            np.asarray(vectors[rows]),
            labels,
            groups=[str(recording[row]) for row in rows],
            shots=[k for k in SHOTS if k <= largest],
            spread="shared",
            folds=min(MAX_FOLDS, *recording_counts),
            shared_draws=DRAWS,
            permutations=0,
            threads=1,
        )
    except CallshotError as error:
        return {"why": str(error)}
    points = result.curve.filter(metric="map", spread="shared", complete=True)
    points = points.sort("k")
    if len(points) == 0:
        return {"why": "too few calls in different recordings"}
    best = recommended_class(result.budget)
    return {
        "k": points["k"].to_list(),
        "map": points["mean"].to_list(),
        "low": points["p01"].to_list(),
        "high": points["p99"].to_list(),
        "calls": len(rows),
        "recommended": None if best is None else best["label"],
    }
