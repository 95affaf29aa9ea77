"""An evaluation → its k-shot curves, one panel per encoder.

At each k a box of the quartiles with whiskers from the 1st to the 99th percentile and a marker at the mean, over a band
for the `shared` spread, with lines for the rivals and for chance. At the foot: the new exemplars of each k, and k*.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callshot.records import Baseline, CorpusResults, Curve, Evaluation
from callshot.report.figures.baselines import draw_baselines, legend_baselines, name_apart
from callshot.report.figures.figure_io import FigurePage, render
from callshot.report.figures.legends import put_legend
from callshot.report.figures.panels import (
    METRIC_NAMES,
    SHOTS,
    Panel,
    draw_band,
    draw_line,
    limits,
    make_panels,
    mark_edge,
    number_shots,
    title,
)
from callshot.report.figures.style import (
    BAND,
    BLUE,
    BOX,
    CHANCE,
    GREY,
    LINE,
    MEAN,
    MEDIAN,
    SILVER,
    WHISKER,
    WIDE_IN,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_sweep(
    evaluation: Evaluation,
    path_stem: Path,
    metric: str = "map",
    spread: str = "per-query",
    *,
    scoring: str = "all",
    baselines: Sequence[Baseline] = (),
) -> list[Path]:
    """Draw one metric against k for every encoder; write `path_stem` with .pdf and .png, and return both paths.

    Shots stand at equal distances, whatever their k. A spread that was not evaluated gives way to the one that was.
    Of the rivals, those of the same corpus, metric and scoring are drawn. Equal evaluations give equal bytes.
    """
    panels = make_panels(evaluation, metric, spread, scoring, baselines)
    return render(
        _plate(path_stem.name, panels, evaluation.complete_shots, metric, scoring), path_stem.parent
    )


def sweep_plates(corpus_results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield the sweep of all classes, and that of reduced scoring where there is one."""
    evaluation = corpus_results.evaluation
    for stem, scoring in (("sweep", "all"), ("reduced", "reduced")):
        if any(c.scoring == scoring and c.metric == metric for c in evaluation.curve):
            panels = make_panels(
                evaluation, metric, scoring=scoring, baselines=corpus_results.baselines
            )
            yield _plate(stem, panels, evaluation.complete_shots, metric, scoring)


def draw_boxes(at: "Axes", points: Sequence[Curve], half: float) -> None:
    """Draw whiskers, quartiles, median and mean at every k; `half` a box is so many steps of k wide."""
    x = range(len(points))
    at.vlines(x, [c.p01 for c in points], [c.p99 for c in points], **WHISKER)
    at.bar(x, [c.p75 - c.p25 for c in points], 2 * half, [c.p25 for c in points], **BOX)
    at.hlines([c.p50 for c in points], [i - half for i in x], [i + half for i in x], **MEDIAN)
    at.plot(x, [c.mean for c in points], markersize=max(1.7, min(4.0, 68 / len(points))), **MEAN)


def legend_boxes(panels: Sequence[Panel]) -> dict[str, Any]:
    """Return the entries of a legend for boxes, rivals and chance."""
    from matplotlib.lines import Line2D

    whisker = Line2D(
        [], [], marker="|", markersize=11, markeredgewidth=0.7, color=BLUE, linestyle="none"
    )
    box = Line2D(
        [],
        [],
        marker="s",
        markersize=6,
        color=BOX["facecolor"],
        markeredgecolor=BLUE,
        markeredgewidth=0.6,
    )
    box.set_linestyle("none")
    mean, spread = Line2D([], [], markersize=2.5, **MEAN), panels[0].points[0].spread
    return {
        f"{spread}: mean, quartiles, 1st–99th percentile": (whisker, box, mean),
        "chance": Line2D([], [], **CHANCE),
        **legend_baselines([r for panel in panels for r in panel.baselines]),
    }


def _plate(stem: str, panels: Sequence[Panel], best: int, metric: str, scoring: str) -> FigurePage:
    name = METRIC_NAMES.get(metric, metric) + ("\nof categories" if scoring == "reduced" else "")
    return FigurePage(stem, partial(_compose, panels=panels, best=best, metric=name))


def _compose(figure: "Figure", panels: Sequence[Panel], best: int, metric: str) -> None:
    """Lay the panels out in one column, in two from four encoders on, each column with new exemplars at its foot."""
    wide = 2 if len(panels) > 3 else 1
    high = -(-len(panels) // wide)
    figure.set_size_inches(WIDE_IN, 1.2 + high * (1.5 if wide == 2 else 1.75))
    grid = figure.subplots(
        high + 1, wide, squeeze=False, sharex=True, height_ratios=[1] * high + [0.36]
    )
    for at in grid[:, 0]:
        at.set_ylabel(metric)
    grid[-1, 0].set_ylabel("new\nexemplars")
    for at in grid[:, 1:].flat:
        at.tick_params(labelleft=False)
    axes = list(grid[:-1].flat)
    _draw_panels(axes, panels, 6.3 / wide - 0.3)
    for at in grid[-1]:
        _draw_foot(at, panels[0].points, 5.8 / wide)
    for at in grid.flat:
        _mark_best(at, panels[0].points, f"k* = {best}" if at in grid[-1] else "")
    figure.align_ylabels(grid[:, 0])
    put_legend(figure, _legend(panels))
    name_apart(figure, axes[: len(panels)])


def _draw_panels(axes: Sequence["Axes"], panels: Sequence[Panel], room_in: float) -> None:
    ends = limits(panels)
    for at, panel in zip(axes, panels, strict=False):
        _draw_panel(at, panel)
        title(at, panel.encoder, room_in)
        at.set_ylim(ends)
    for at in axes[len(panels) :]:
        at.set_visible(False)


def _draw_panel(at: "Axes", panel: Panel) -> None:
    if panel.shared:
        look = {"facecolor": BAND["shared"], "zorder": 1.5}
        draw_band(at, [c.p01 for c in panel.shared], [c.p99 for c in panel.shared], look)
        draw_line(
            at, [c.mean for c in panel.shared], {**LINE["shared"], "marker": "none", "zorder": 2}
        )
    at.axhline(panel.points[0].chance, **CHANCE)
    draw_baselines(at, panel.baselines)
    draw_boxes(at, panel.points, _half_width(panel.points))


def _half_width(points: Sequence[Curve]) -> float:
    """Return half the width of a box, in steps of k: few shots do not make broad ones."""
    return min(0.31, 0.025 * len(points) + 0.015)


def _draw_foot(at: "Axes", points: Sequence[Curve], room_in: float) -> None:
    colours = [GREY if c.complete else SILVER for c in points]
    at.bar(
        range(len(points)),
        [c.new_exemplars for c in points],
        2 * _half_width(points),
        color=colours,
    )
    most = max(max(c.new_exemplars for c in points), 1)
    at.set_ylim(0, most * 1.7)
    at.set_yticks([0, most])
    number_shots(at, [c.k for c in points], room_in)
    at.set_xlabel(SHOTS)


def _mark_best(at: "Axes", points: Sequence[Curve], label: str) -> None:
    """Draw a line behind the last complete shot, and name it; where every shot is complete, the name alone."""
    complete = sum(c.complete for c in points)
    left = complete > 0.8 * len(points)
    mark_edge(at, complete, len(points))
    at.annotate(
        label,
        xy=(complete - 0.5, 0.98),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if left else 4, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
    )


def _legend(panels: Sequence[Panel]) -> dict[str, Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries = legend_boxes(panels)
    if any(panel.shared for panel in panels):
        line = Line2D([], [], **{**LINE["shared"], "marker": "none"})
        first = next(iter(entries))
        shared = {
            "shared: mean, 1st–99th percentile": (
                Patch(facecolor=BAND["shared"], edgecolor="none"),
                line,
            )
        }
        entries = {first: entries.pop(first), **shared, **entries}
    return entries
