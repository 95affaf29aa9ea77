"""An evaluation → its k-shot curves, one panel per encoder, with boxes.

A box has the quartiles, whiskers from the 1st to the 99th percentile, and a marker at the mean. In
the sweep a band shows the spread `shared`, and below are the new exemplars of each k, and k*. The
inset shows the few-shot regime, with the distribution of the samples as a violin.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from callshot.records import CorpusResults, Evaluation, FloatArray
from callshot.records.frames import CURVE_KEY
from callshot.report.figures.baselines import separate_names
from callshot.report.figures.figure_io import FigurePage, render
from callshot.report.figures.layout import (
    K_LABEL,
    METRIC_NAMES,
    add_legend,
    add_panels,
    draw_band,
    draw_line,
    label_shots,
    label_stacks,
    mark_last_complete,
    patch_handle,
)
from callshot.report.figures.panels import (
    Panel,
    draw_boxes,
    make_panels,
    panel_entries,
    panel_limits,
    set_title,
)
from callshot.report.figures.style import BAND, GREY, LINE, PAGE_WIDTH_IN, SILVER, VIOLIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW_SHOTS = 7
DENSITY_LEVELS = 101


def draw_sweep(
    evaluation: Evaluation,
    path_stem: Path,
    metric: str = "map",
    spread: str = "per-query",
    *,
    scoring: str = "all",
    baselines: pl.DataFrame | None = None,
) -> list[Path]:
    """Draw one metric against k for every encoder, and write it as PDF and PNG.

    Equal evaluations give equal bytes.

    Parameters
    ----------
    evaluation : Evaluation
    path_stem : Path
        The path of both files, without suffix.
    metric : str
    spread : str
        If it was not evaluated, the other one is drawn.
    scoring : str
    baselines : polars.DataFrame, optional
        Rows of the BASELINES schema; those of the same corpus, metric and scoring are drawn.

    Returns
    -------
    list of Path
        The paths of both files.

    Raises
    ------
    OptionError
        If there is no curve of the metric.
    """
    panels = make_panels(evaluation, metric, spread, scoring, baselines)
    page = _sweep_page(path_stem.name, panels, evaluation.complete_shots)
    return render(page, path_stem.parent)


def plan_sweep(results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield the sweep of all classes, and that of reduced scoring if there is one."""
    evaluation = results.evaluation
    for stem, scoring in (("sweep", "all"), ("reduced", "reduced")):
        if not evaluation.curve.filter(scoring=scoring, metric=metric).is_empty():
            panels = make_panels(evaluation, metric, "per-query", scoring, results.baselines)
            yield _sweep_page(stem, panels, evaluation.complete_shots)


def plan_inset(results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield the inset, if at least two shots are few."""
    panels = make_panels(results.evaluation, metric, baselines=results.baselines)
    few_shots = [_few_shots(panel, results.evaluation.values) for panel in panels]
    if len(few_shots[0].curve) >= 2:
        yield FigurePage("inset", _compose_inset, (few_shots,))


def density(samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return levels from the 1st to the 99th percentile, and a Gaussian kernel estimate there.

    The width of the kernel is Scott's. Samples without spread give two empty arrays.
    """
    low, high = np.percentile(samples, (1, 99))
    width = samples.std() * len(samples) ** -0.2
    if not (high > low and width > 0):
        return np.empty(0), np.empty(0)
    levels = np.linspace(low, high, DENSITY_LEVELS)
    distance = (levels[:, None] - samples) / width
    kernel = np.exp(-0.5 * distance**2)
    return levels, kernel.mean(axis=1) / (width * np.sqrt(2 * np.pi))


def _sweep_page(stem: str, panels: Sequence[Panel], complete_shots: int) -> FigurePage:
    return FigurePage(stem, _compose_sweep, (panels, f"k* = {complete_shots}"))


def _compose_sweep(figure: "Figure", panels: Sequence[Panel], complete_shots: str) -> None:
    """Lay out one column of panels, or two from four encoders on, with new exemplars below."""
    columns = 2 if len(panels) > 3 else 1
    rows = ceil(len(panels) / columns)
    row_in = 1.5 if columns == 2 else 1.75
    figure.set_size_inches(PAGE_WIDTH_IN, 1.2 + rows * row_in)
    stacks = add_panels(figure, columns, columns, [1.0] * rows + [0.36])
    axes = stacks[:, :-1].T.ravel()
    limits = panel_limits(panels)
    for ax, panel in zip(axes, panels, strict=False):
        _draw_panel(ax, panel)
        set_title(ax, panel.encoder, 6.3 / columns - 0.3)
        ax.set_ylim(limits)
    for ax in axes[len(panels) :]:
        ax.set_visible(False)
    curve = panels[0].curve
    for ax in stacks.flat:
        mark_last_complete(ax, curve["complete"].sum(), len(curve))
        label_shots(ax, panels[0].shots, 5.8 / columns)
    for ax in stacks[:, -1]:
        _draw_new_exemplars(ax, curve)
        _write_last_complete(ax, curve, complete_shots)
    label_stacks(figure, stacks, [_metric_label(curve)] * rows + ["new\nexemplars"])
    add_legend(figure, panel_entries(panels))
    separate_names(figure, axes[: len(panels)])


def _metric_label(curve: pl.DataFrame) -> str:
    name = METRIC_NAMES[curve["metric"][0]]
    return f"{name}\nof categories" if curve["scoring"][0] == "reduced" else name


def _draw_panel(ax: "Axes", panel: Panel) -> None:
    if not panel.shared.is_empty():
        draw_band(ax, panel.shared, BAND["shared"])
        draw_line(ax, panel.shared["mean"], {**LINE["shared"], "marker": "none", "zorder": 2})
    draw_boxes(ax, panel, _half_width(panel.curve))


def _half_width(curve: pl.DataFrame) -> float:
    """Return half the width of a box in steps of k; boxes of few shots are not broad."""
    return min(0.31, 0.025 * len(curve) + 0.015)


def _draw_new_exemplars(ax: "Axes", curve: pl.DataFrame) -> None:
    exemplars = curve["new_exemplars"].to_numpy()
    colours = np.where(curve["complete"], GREY, SILVER)
    ax.bar(range(len(curve)), exemplars, 2 * _half_width(curve), color=colours)
    most = max(exemplars.max(), 1)
    ax.set_ylim(0, most * 1.7)
    ax.set_yticks([0, most])
    ax.set_xlabel(K_LABEL)


def _write_last_complete(ax: "Axes", curve: pl.DataFrame, text: str) -> None:
    """Write k* behind the last complete shot, or before its line if there is no room behind."""
    complete = curve["complete"].sum()
    is_last = complete > 0.8 * len(curve)
    ax.annotate(
        text,
        xy=(complete - 0.5, 0.98),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if is_last else 4, 0),
        textcoords="offset points",
        ha="right" if is_last else "left",
        va="top",
    )


def _few_shots(panel: Panel, values: pl.DataFrame) -> Panel:
    """Return a panel with few shots, and with the samples of each in the column `value`."""
    few = panel.curve.filter(pl.col("k") <= FEW_SHOTS)
    curve = few.join(values, on=[*CURVE_KEY, "k"], how="left", maintain_order="left")
    return replace(panel, curve=curve, shared=panel.shared.clear())


def _compose_inset(figure: "Figure", panels: Sequence[Panel]) -> None:
    columns = 2 if len(panels) == 4 else min(len(panels), 3)
    row_in = 1.9 if columns == 3 else 2.1
    figure.set_size_inches(PAGE_WIDTH_IN, 0.75 + ceil(len(panels) / columns) * row_in)
    stacks = add_panels(figure, len(panels), columns)
    limits = panel_limits(panels)
    for ax, panel in zip(stacks[:, 0], panels, strict=True):
        _draw_violins(ax, panel.curve)
        draw_boxes(ax, panel, 0.09)
        set_title(ax, panel.encoder, 6.3 / columns - 0.2)
        label_shots(ax, panel.shots, 5.8 / columns)
        ax.set_ylim(limits)
    for ax in stacks[-columns:, 0]:
        ax.set_xlabel(K_LABEL)
    label_stacks(figure, stacks, [_metric_label(panels[0].curve)])
    add_legend(figure, panel_entries(panels) | {"density of the samples": patch_handle(VIOLIN)})
    separate_names(figure, stacks[:, 0])


def _draw_violins(ax: "Axes", curve: pl.DataFrame) -> None:
    for x, samples in enumerate(curve["value"]):
        levels, height = density(samples.to_numpy())
        half_width = 0.42 * height / max(height.max(initial=0.0), 1e-300)
        ax.fill_betweenx(levels, x - half_width, x + half_width, **VIOLIN)
