"""An evaluation → the curve of every class, small and side by side, those with most exemplars first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from callshot.records import ClassCount, ClassCurve, CorpusResults
from callshot.report.figures.figure_io import FigurePage, pages
from callshot.report.figures.legends import put_legend
from callshot.report.figures.panels import (
    SHOTS,
    draw_band,
    draw_line,
    mark_edge,
    number_shots,
    spaced,
)
from callshot.report.figures.style import EDGE, SMALL_PT, TEXT_PT, WIDE_IN, FigureStyle, series
from callshot.report.figures.text_fit import wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES = {"map": "AP", "auroc": "AUROC"}
WIDE, HIGH = 5, 6


@dataclass(frozen=True)
class ClassPanel:
    """One class, and its points by encoder, in the order of k."""

    count: ClassCount
    lines: dict[str, Sequence[ClassCurve]]


def classes_plates(corpus_results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield the curves of all eligible classes, thirty to a page; accuracy has none by class, and AP is drawn."""
    evaluation = corpus_results.evaluation
    metric = metric if any(c.metric == metric for c in evaluation.per_class) else "map"
    points = [c for c in evaluation.per_class if (c.metric, c.scoring) == (metric, "all")]
    spread = points[0].spread if points else ""
    panels = [_panel(count, points, spread) for count in evaluation.classes if count.eligible]
    ends = spaced(
        x for panel in panels for line in panel.lines.values() for c in line for x in (c.p01, c.p99)
    )
    words = f"{NAMES.get(metric, metric)} ({spread})"
    for stem, some in pages("classes", panels, WIDE * HIGH):
        yield FigurePage(stem, partial(_compose, panels=some, ends=ends, words=words))


def _panel(count: ClassCount, points: Sequence[ClassCurve], spread: str) -> ClassPanel:
    own = sorted(
        (c for c in points if (c.label, c.spread) == (count.label, spread)), key=lambda c: c.k
    )
    encoders = dict.fromkeys(c.encoder for c in points)
    return ClassPanel(count, {name: [c for c in own if c.encoder == name] for name in encoders})


def _compose(
    figure: "Figure", panels: Sequence[ClassPanel], ends: tuple[float, float], words: str
) -> None:
    wide = min(WIDE, len(panels))
    high = -(-len(panels) // wide)
    side = (WIDE_IN - 0.6) / max(wide, 3)
    figure.set_size_inches(side * wide + 0.6, 0.7 + high * max(1.35, 0.75 * side))
    axes = list(
        figure.subplots(high, wide, squeeze=False).flat
    )  # not shared: thirty would take seconds
    for i, at in enumerate(axes):
        at.set_visible(i < len(panels))
        at.set_ylim(ends)
        at.tick_params(labelbottom=i + wide >= len(panels), labelleft=i % wide == 0)
    for at, panel in zip(axes, panels, strict=False):
        _draw_class(at, panel, side)
    figure.supxlabel(SHOTS, fontsize=TEXT_PT)
    figure.supylabel(words, fontsize=TEXT_PT)
    put_legend(figure, _legend(panels))


def _draw_class(at: "Axes", panel: ClassPanel, side_in: float) -> None:
    shots = [c.k for c in next(iter(panel.lines.values()))]
    number_shots(at, shots, side_in - 0.25)
    for i, line in enumerate(panel.lines.values()):
        look = series(i)
        draw_band(at, [c.p01 for c in line], [c.p99 for c in line], _pale(look))
        draw_line(at, [c.mean for c in line], {**look, "linewidth": 0.9, "zorder": 3})
    mark_edge(at, sum(k <= panel.count.complete_to_k for k in shots), len(shots))
    name = wrap(panel.count.label, side_in * 72 - 16, SMALL_PT, "bold")
    at.set_title(f"{name}\n{panel.count.exemplars} exemplars", fontsize=SMALL_PT, pad=2)


def _pale(look: FigureStyle) -> FigureStyle:
    return {"facecolor": look["color"], "alpha": 0.16, "zorder": 1.5}


def _legend(panels: Sequence[ClassPanel]) -> dict[str, Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: dict[str, Any] = {
        name: (
            Patch(**_pale(series(i))),
            Line2D([], [], markersize=3, markeredgewidth=0, linewidth=0.9, **series(i)),
        )
        for i, name in enumerate(panels[0].lines)
    }
    if any(
        c.k > panel.count.complete_to_k
        for panel in panels
        for line in panel.lines.values()
        for c in line
    ):
        entries["last k at which the class is complete"] = Line2D([], [], **EDGE)
    return entries
