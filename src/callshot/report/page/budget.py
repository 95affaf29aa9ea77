"""What the next example of each class is worth → sorted bars in plain words."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import isfinite
from statistics import fmean

from callshot.fewshot.label_budget import WITHIN, most_to_gain
from callshot.records import BudgetRow
from callshot.report.page.html import Markup, element, join
from callshot.report.page.words import class_metric_name, count, number, signed

NOTE = (
    "What one exemplar more is worth to a class, by a curve a − b/k through its own points; at each step every class "
    "gets one more. A long bar is where the next label helps most."
)


def show_budget(budget: Sequence[BudgetRow]) -> Markup:
    """Return a list of classes for each encoder and metric, the encoder that scores best first, and open."""
    order = sorted(budget, key=lambda w: (w.encoder, w.metric))
    lists = [list(rows) for _, rows in groupby(order, key=lambda w: (w.encoder, w.metric))]
    lists.sort(key=lambda rows: -_mean([w.value for w in rows]))
    note = element("p", NOTE, class_="quiet") if lists else ""
    return join(note, *(_show_list(rows, first=at == 0) for at, rows in enumerate(lists)))


def tell_next(rows: Sequence[BudgetRow]) -> str:
    """Say which class of an encoder gains most from its next example, where that is more than noise."""
    best, metric = most_to_gain(rows), class_metric_name(rows[0].metric)
    if best is None:
        return f"With {rows[0].encoder}, no class is known to gain {WITHIN} of {metric} by twice as many examples."
    return (
        f"With {best.encoder}, “{best.label}” gains most from its next example: about {signed(best.next_gain, 4)} "
        f"on an {metric} of {number(best.value)} with {best.k}."
    )


def _show_list(rows: Sequence[BudgetRow], *, first: bool) -> Markup:
    ordered = sorted(rows, key=lambda w: (-_gain(w), w.label))
    most = max(_gain(ordered[0]), 0.0)
    bars = element("ol", *(_show_worth(w, most) for w in ordered), class_="budget")
    return element(
        "details", element("summary", tell_next(ordered)), bars, open=first, data_testid="budget"
    )


def _show_worth(w: BudgetRow, most: float) -> Markup:
    share = 100 * max(_gain(w), 0.0) / most if most > 0 else 0.0
    bar = element("rect", width=f"{share:.1f}%", height="100%", rx="2")
    return element(
        "li",
        element("span", w.label, class_="label"),
        element(
            "span", signed(w.next_gain, 4) if isfinite(w.next_gain) else "not known", class_="gain"
        ),
        element("svg", bar, class_="bar", aria_hidden="true"),
        element("small", "; ".join(_details(w))),
    )


def _details(w: BudgetRow) -> Iterator[str]:
    if not w.k:
        yield f"{count(w.exemplars, 'exemplar')}, and no evaluated shot that all splits can give"
        return
    yield f"{class_metric_name(w.metric)} {number(w.value)} with {w.k} of {count(w.exemplars, 'exemplar')}"
    if not isfinite(w.next_gain):
        yield "too few complete shots for a curve"
        return
    yield f"twice as many: {signed(w.double_gain)}"
    yield f"the curve levels off at {number(w.limit)}"
    if w.error > w.double_gain:
        yield f"too noisy to tell: its points lie {number(w.error)} off the curve"


def _gain(w: BudgetRow) -> float:
    return w.next_gain if isfinite(w.next_gain) else float("-inf")


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if isfinite(value)]
    return fmean(known) if known else float("-inf")
