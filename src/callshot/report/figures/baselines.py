"""Rivals → lines across a panel, each named at its right end, and what a legend says of them."""

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

from callshot.records import Baseline
from callshot.report.figures.figure_io import freeze
from callshot.report.figures.style import BASELINE, SMALL_PT
from callshot.report.figures.text_fit import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

KINDS = {
    "logistic": "logistic regression on all labels",
    "recurrent": "recurrent network on all labels",
    "end-to-end": "end-to-end network on all labels",
}
ROOM_PT, LINE_PT = 58.0, 8.4


def draw_baselines(at: "Axes", baselines: Sequence[Baseline]) -> None:
    """Draw a line for each rival, with its name beyond the right end; `name_apart` moves names that touch."""
    for baseline in _drawable(baselines):
        look = BASELINE[baseline.kind]
        at.axhline(baseline.value, **look)
        at.annotate(
            shorten(baseline.name, ROOM_PT, SMALL_PT),
            xy=(1, baseline.value),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            color=look["color"],
            fontsize=SMALL_PT,
            gid="rival",
        )


def legend_baselines(baselines: Sequence[Baseline]) -> dict[str, Any]:
    """Return the entries of a legend: one for each kind that is there."""
    from matplotlib.lines import Line2D

    kinds = {r.kind for r in _drawable(baselines)}
    return {
        words: Line2D([], [], **BASELINE[kind]) for kind, words in KINDS.items() if kind in kinds
    }


def name_apart(figure: "Figure", panels: Sequence["Axes"]) -> None:
    """Move the names of lines that are close together up and down, until none touch."""
    from matplotlib.text import Annotation

    if not any(text.get_gid() == "rival" for at in panels for text in at.texts):
        return
    freeze(figure)
    for at in panels:
        _spread_names(
            at, [t for t in at.texts if isinstance(t, Annotation) and t.get_gid() == "rival"]
        )


def _drawable(baselines: Sequence[Baseline]) -> list[Baseline]:
    return [r for r in baselines if r.kind in BASELINE and isfinite(r.value)]


def _spread_names(at: "Axes", texts: Sequence["Annotation"]) -> None:
    texts = sorted(texts, key=lambda text: float(text.xy[1]))
    per_point = at.figure.dpi / 72
    wanted = [float(at.transData.transform((0, text.xy[1]))[1]) / per_point for text in texts]
    for text, want, got in zip(texts, wanted, _spread(wanted), strict=True):
        text.set_position((3, got - want))


def _spread(places: Sequence[float]) -> list[float]:
    """Return ascending places, a line apart at least: those that are too close push each other away."""
    found = list(places)
    for _ in range(100):
        for i in range(1, len(found)):
            push = max(LINE_PT - (found[i] - found[i - 1]), 0.0) / 2
            found[i - 1 : i + 1] = found[i - 1] - push, found[i] + push
    return found
