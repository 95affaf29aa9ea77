"""An evaluation → the few-shot regime, k = 1 to 7, with the distribution of the values behind each box as a violin."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from callshot.records import CorpusResults, FloatArray, Values
from callshot.report.figures.baselines import draw_baselines, name_apart
from callshot.report.figures.figure_io import FigurePage
from callshot.report.figures.legends import put_legend
from callshot.report.figures.panels import (
    METRIC_NAMES,
    SHOTS,
    Panel,
    limits,
    make_panels,
    number_shots,
    title,
)
from callshot.report.figures.style import CHANCE, VIOLIN, WIDE_IN
from callshot.report.figures.sweep import draw_boxes, legend_boxes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW, LEVELS = 7, 101


def inset_plates(corpus_results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield the inset, where two shots or more are that few."""
    panels = make_panels(corpus_results.evaluation, metric, baselines=corpus_results.baselines)
    few = [replace(p, points=[c for c in p.points if c.k <= FEW], shared=()) for p in panels]
    if len(few[0].points) >= 2:
        values = {p.encoder: _values(corpus_results.evaluation.values, p) for p in few}
        yield FigurePage(
            "inset",
            partial(_compose, panels=few, values=values, metric=METRIC_NAMES.get(metric, metric)),
        )


def density(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return levels between the 1st and the 99th percentile, and a Gaussian kernel estimate there (Scott's width).

    Values that do not spread have none, and give two empty arrays.
    """
    low, high = np.percentile(values, (1, 99))
    width = values.std() * len(values) ** -0.2
    if not (high > low and width > 0):
        return np.empty(0), np.empty(0)
    levels = np.linspace(low, high, LEVELS)
    return levels, np.exp(-0.5 * ((levels[:, None] - values) / width) ** 2).mean(axis=1) / (
        width * np.sqrt(2 * np.pi)
    )


def _values(values: Sequence[Values], panel: Panel) -> dict[int, FloatArray]:
    """Return the values behind the points of a panel, by k."""
    point = panel.points[0]
    key = (point.encoder, point.scoring, point.metric, point.spread)
    (table,) = [v for v in values if (v.encoder, v.scoring, v.metric, v.spread) == key]
    return {int(k): row for k, row in zip(table.k, table.value, strict=True)}


def _compose(
    figure: "Figure", panels: Sequence[Panel], values: dict[str, dict[int, FloatArray]], metric: str
) -> None:
    from matplotlib.patches import Patch

    wide = min(len(panels), 2 if len(panels) == 4 else 3)
    high = -(-len(panels) // wide)
    figure.set_size_inches(WIDE_IN, 0.75 + high * (2.1 if wide < 3 else 1.9))
    grid = figure.subplots(high, wide, squeeze=False, sharex=True, sharey=True)
    axes = list(grid.flat)
    for at, panel in zip(axes, panels, strict=False):
        _draw_panel(at, panel, values[panel.encoder])
        title(at, panel.encoder, 6.3 / wide - 0.2)
        number_shots(at, [c.k for c in panel.points], 5.8 / wide)
    for i, at in enumerate(axes):
        at.set_visible(i < len(panels))
        at.tick_params(labelbottom=i + wide >= len(panels))
        at.set_xlabel(SHOTS if i + wide >= len(panels) else "")
    axes[0].set_ylim(limits(panels))
    for at in grid[:, 0]:
        at.set_ylabel(metric)
    put_legend(figure, legend_boxes(panels) | {"density of the values": Patch(**VIOLIN)})
    name_apart(figure, axes[: len(panels)])


def _draw_panel(at: "Axes", panel: Panel, values: dict[int, FloatArray]) -> None:
    for x, point in enumerate(panel.points):
        levels, height = density(values[point.k])
        half = 0.42 * height / max(height.max(initial=0.0), 1e-300)
        at.fill_betweenx(levels, x - half, x + half, **VIOLIN)
    at.axhline(panel.points[0].chance, **CHANCE)
    draw_baselines(at, panel.baselines)
    draw_boxes(at, panel.points, 0.09)
