"""Curves → what more exemplars are worth: to each class, by a curve through its points, and to all, by their mean.

The variance of a mean of k exemplars goes as 1/k, and so does what it costs a class, once it is small: hence the form
a − b/k, laid through the later half of the shots. Through all of them it falls below what the last shots have reached.
No metric exceeds 1: neither does a limit, and no gain leads beyond it, however steep the curve.
"""

from collections.abc import Sequence

import numpy as np

from callshot.records import BudgetRow, ClassCount, ClassCurve, Curve, FloatArray

FEWEST = 3  # points through which a curve is laid: two would lie on it whatever they are
WITHIN = 0.01  # of a metric: less is called level


def label_budget(
    per_class: Sequence[ClassCurve],
    classes: Sequence[ClassCount],
    metric: str = "map",
    *,
    since: float = 0.5,
) -> list[BudgetRow]:
    """Tell what the next exemplar of each eligible class is worth to it, with each encoder.

    Read from the spread `shared`, where there is one: that is the labelling of a person. Only shots that the class can
    give in every split count; `k` is 0 where none of these was evaluated. The curve goes through those from the share
    `since` of the last one on (0: through all), three at least. On these curves every class gets one exemplar more at
    each step, so a gain is that of a step which all take.

    >>> rows = [ClassCurve("herd", "e", "centroid", "all", "map", "shared", k, "roar", 0.9 - 0.4 / k, 0, 1)
    ...         for k in (1, 2, 4, 8)]
    >>> (worth,) = label_budget(rows, [ClassCount("roar", 6, 4, True)])
    >>> worth.k, round(worth.value, 6), round(worth.limit, 6), round(worth.next_gain, 6), round(worth.double_gain, 6)
    (4, 0.8, 0.9, 0.02, 0.05)
    """
    rows = [c for c in per_class if c.metric == metric]
    spreads = {c.spread for c in rows}
    curves: dict[tuple[str, str, str], list[ClassCurve]] = {}
    for c in rows:
        if c.spread == "shared" or "shared" not in spreads:
            curves.setdefault((c.corpus, c.encoder, c.label), []).append(c)
    counts = {c.label: c for c in classes if c.eligible}
    return [
        _worth(curve, counts[key[-1]], since) for key, curve in curves.items() if key[-1] in counts
    ]


def most_to_gain(budget: Sequence[BudgetRow]) -> BudgetRow | None:
    """Return the class that gains most from its next exemplar; None where that is not worth telling.

    It is not where no curve was laid, where twice as many exemplars would add less than `WITHIN`, or where the points
    lie further from the curve than that rises: then it is noise that makes the class the first.

    >>> steady = Worth("herd", "e", "roar", "map", 9, 4, 0.5, 0.02, 0.05, 0.6, 0.001)
    >>> noisy = Worth("herd", "e", "bark", "map", 9, 4, 0.5, 0.03, 0.075, 0.6, 0.1)
    >>> most_to_gain([steady]).label, most_to_gain([steady, noisy])
    ('roar', None)
    """
    top = max(
        (w for w in budget if w.next_gain == w.next_gain), key=lambda w: w.next_gain, default=None
    )
    return None if top is None or top.double_gain < WITHIN or top.error > top.double_gain else top


def saturation(curve: Sequence[Curve], within: float = WITHIN) -> int | None:
    """Return the first k whose mean no later one exceeds by more than `within`; None where only the last is such.

    `curve` holds the points of one curve; those without a mean are left out.

    >>> from types import SimpleNamespace as Point
    >>> saturation([Point(k=k, mean=0.8 - 0.2 / k) for k in range(1, 41)])
    14
    """
    points = sorted((c.k, c.mean) for c in curve if c.mean == c.mean)
    for i, (k, mean) in enumerate(points[:-1]):
        if max(later for _, later in points[i + 1 :]) - mean <= within:
            return k
    return None


def _worth(curve: Sequence[ClassCurve], count: ClassCount, since: float) -> BudgetRow:
    points = sorted((c.k, c.mean) for c in curve if c.k <= count.complete_to_k)
    k, value = points[-1] if points else (0, np.nan)
    late = [
        point for i, point in enumerate(reversed(points)) if i < FEWEST or point[0] >= since * k
    ]
    limit, slope, error = _fit(np.array(late)) if len(late) >= FEWEST else (np.nan,) * 3
    room = max(1.0 - value, 0.0)
    gains = (
        (min(slope / (k * (k + 1)), room), min(slope / (2 * k), room)) if k else (np.nan, np.nan)
    )
    first, limit = (
        curve[0],
        value if slope == 0 else min(limit, 1.0),
    )  # a curve that does not rise has no other
    return BudgetRow(
        first.corpus,
        first.encoder,
        count.label,
        first.metric,
        count.exemplars,
        k,
        value,
        *gains,
        limit,
        error,
    )


def _fit(points: FloatArray) -> tuple[float, float, float]:
    """Lay a − b/k, b ≥ 0, through (k, mean) by least squares; return a, b and the root mean square distance."""
    x, y = 1.0 / points[:, 0], points[:, 1]
    off = x - x.mean()
    slope = max(-float(off @ y) / float(off @ off), 0.0)
    limit = float(y.mean() + slope * x.mean())
    return limit, slope, float(np.sqrt(np.mean((y - limit + slope * x) ** 2)))
