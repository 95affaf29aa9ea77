"""Values behind curves → paired differences: one encoder less another, or the centroid less a rival.

No stream knows the encoder, so sample i of one encoder met the same draws as sample i of another, in both spreads:
what the draws do to both falls out of the difference.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from callshot.errors import InputError
from callshot.fewshot.summary import PERCENTILES
from callshot.records import Baseline, Curve, Difference, FloatArray, Values


def compare(values: Sequence[Values], baselines: Sequence[Baseline] = ()) -> list[Difference]:
    """Compare every pair of encoders of one corpus, in their order, and each encoder with the rivals on it.

    A rival has one value, whatever was drawn; one without an encoder meets all of them. Where a value is undefined, so
    is all that is said of its k. Refused: encoders that were not evaluated at the same k with as many samples.

    >>> key = ("centroid", "all", "map", "shared", np.array([1]))
    >>> one, other = np.array([[0.5, 0.75, 0.75]]), np.array([[0.25, 0.75, 0.25]])
    >>> (d,) = compare([Values("herd", "a", *key, one), Values("herd", "b", *key, other)])
    >>> d.one, d.other, d.k, d.mean, d.p50, round(d.wins, 3)
    ('a', 'b', 1, 0.25, 0.25, 0.833)
    """
    encoders = dict.fromkeys(v.encoder for v in values)
    found = [row for pair in combinations(encoders, 2) for row in _compare_pair(values, *pair)]
    for v in values:
        for baseline in baselines:
            if meets(baseline, v):
                found.extend(
                    summarise_differences(v, baseline_name(baseline), v.value - baseline.value)
                )
    return found


def _compare_pair(values: Sequence[Values], one: str, other: str) -> Iterator[Difference]:
    mine, theirs = ({_curve(v): v for v in values if v.encoder == name} for name in (one, other))
    for curve in mine | theirs:
        a, b = mine.get(curve), theirs.get(curve)
        if a is None or b is None or a.value.shape != b.value.shape or not np.array_equal(a.k, b.k):
            raise InputError(
                f"{values[0].corpus}: '{one}' and '{other}' cannot be compared ({', '.join(curve)}): wanted the same k "
                "and as many samples of both; evaluate both with the same options"
            )
        yield from summarise_differences(a, other, a.value - b.value)


def _curve(values: Values) -> tuple[str, ...]:
    return values.corpus, values.classifier, values.scoring, values.metric, values.spread


def meets(baseline: Baseline, values: Values | Curve) -> bool:
    """Tell whether a rival is held against a curve."""
    same = (baseline.corpus, baseline.scoring, baseline.metric) == (
        values.corpus,
        values.scoring,
        values.metric,
    )
    return same and baseline.encoder in ("", values.encoder)


def baseline_name(baseline: Baseline) -> str:
    """Return what a difference calls a rival: its name, and the encoder that it was trained on, if any."""
    return f"{baseline.name} on {baseline.encoder}" if baseline.encoder else baseline.name


def summarise_differences(
    values: Values, other: str, difference: FloatArray
) -> Iterator[Difference]:
    """Sum up differences from something, (shots, samples), at every k of the values."""
    levels = np.percentile(difference, PERCENTILES, axis=1).T
    wins = ((np.sign(difference) + 1.0) / 2.0).mean(axis=1)  # equal: half; undefined: undefined
    for s, k in enumerate(values.k.tolist()):
        low, quarter, half, three, high = levels[s].tolist()
        yield Difference(
            values.corpus,
            values.encoder,
            other,
            values.scoring,
            values.metric,
            values.spread,
            k,
            float(difference[s].mean()),
            low,
            quarter,
            half,
            three,
            high,
            float(wins[s]),
        )
