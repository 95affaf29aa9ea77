"""Curves → small panels with several lines: each class by encoder, each encoder by classifier."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from callshot.errors import count_text
from callshot.records import CorpusResults
from callshot.records.frames import Frame, unique_values
from callshot.report.classifiers import (
    all_curves,
    classifier_name,
    common_spread,
    list_classifiers,
)
from callshot.report.figures.figure_io import Pages, make_pages
from callshot.report.figures.layout import (
    Frames,
    Legend,
    Limits,
    PageLayout,
    add_legend,
    area_handle,
    axis_limits,
    draw_band,
    draw_line,
    draw_series,
    line_handle,
    list_series,
    mark_last_complete,
    set_titles,
)
from callshot.report.figures.style import (
    BOLD_SMALL_FONT,
    CHANCE,
    LAST_COMPLETE,
    PALE_BLUE,
    SMALL_PT,
    Style,
    series_style,
)
from callshot.report.figures.text_width import wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = PageLayout(columns=5, rows=6, row_in=1.35, left_in=0.6, above_in=0.7)
LABEL_IN = 0.05  # of the vertical axis, from the edge
CLASSIFIERS = PageLayout(columns=3, rows=3, row_in=2.3, left_in=0.5, above_in=0.8)


def plan_classes(results: CorpusResults) -> Pages:
    """Yield the AP of all eligible classes, thirty to a page, those with most exemplars first."""
    per_class = results.evaluation.per_class
    spread = per_class["spread"][0]
    rows = per_class.filter(metric="map", scoring="all", spread=spread)
    rows = rows.sort("k", maintain_order=True)
    panels = []
    for count in results.evaluation.eligible_classes:
        panel = rows.filter(label=count.label).with_columns(
            exemplars=pl.lit(count.exemplars),
            complete=pl.col("k") <= count.complete_to_k,
        )
        panels.append(panel)
    yield from make_pages(
        "classes",
        panels,
        CLASSES.capacity,
        _compose_classes,
        axis_limits(rows.select("p01", "p99")),
        f"AP ({spread})",
    )


def _compose_classes(
    figure: "Figure", panels: Frames, limits: Limits, label: str
) -> None:
    rows = pl.concat(panels)
    shots = unique_values(rows, "k")
    figure.set_layout_engine(None)  # all places are known
    axes, width_in = CLASSES.draw_panels(figure, panels, _draw_class, shots, [limits])
    room_pt = width_in * 72 - 16
    title_lines = []
    for ax, panel in zip(axes, panels, strict=True):
        name = wrap(panel["label"][0], room_pt, BOLD_SMALL_FONT)
        exemplars = count_text(panel["exemplars"][0], "exemplar")
        title = f"{name}\n{exemplars}"
        title_lines.append(title.count("\n") + 1)
        ax.set_title(title, fontsize=SMALL_PT, pad=2)
    figure.supylabel(label, x=LABEL_IN / figure.get_figwidth())
    legend_lines = add_legend(figure, _class_legend(rows))
    CLASSES.place_panels(axes, title_lines, legend_lines)


def _class_legend(rows: Frame) -> Legend:
    legend = list_series(unique_values(rows, "encoder"))
    if not rows["complete"].all():
        legend["last k at which the class is complete"] = line_handle(LAST_COMPLETE)
    return legend


def _draw_class(panel: Frame, ax: "Axes") -> None:
    for number, curve in enumerate(panel.partition_by("encoder")):
        draw_series(ax, number, curve)
    mark_last_complete(ax, curve["complete"])


def plan_classifiers(results: CorpusResults) -> Pages:
    """Yield the mean of every classifier for each encoder, nine to a page, if there are several."""
    spread = common_spread(results)
    curves = all_curves(results).filter(scoring="all", metric="map", spread=spread)
    rows = curves.sort("k", maintain_order=True)
    evaluated = rows["classifier"]
    classifiers = [name for name in list_classifiers(results) if name in evaluated]
    if len(classifiers) == 1:
        return
    reference = rows.filter(classifier=classifiers[0])
    yield from make_pages(
        "classifiers",
        rows.partition_by("encoder"),
        CLASSIFIERS.capacity,
        _compose_classifiers,
        classifiers,
        axis_limits(rows["mean"], reference.select("p01", "p99", "chance")),
        f"mAP ({spread})",
    )


def _compose_classifiers(
    figure: "Figure",
    panels: Frames,
    classifiers: Sequence[str],
    limits: Limits,
    label: str,
) -> None:
    draw = partial(_draw_classifiers, classifiers)
    shots = unique_values(panels[0], "k")
    axes, width_in = CLASSIFIERS.draw_panels(figure, panels, draw, shots, [limits])
    encoders = [panel["encoder"][0] for panel in panels]
    set_titles(axes, encoders, width_in - 0.3)
    figure.supylabel(label)
    names = [classifier_name(name) for name in classifiers]
    add_legend(figure, _classifier_legend(names))


def _classifier_legend(names: Sequence[str]) -> Legend:
    legend: Legend = {}
    for number, name in enumerate(names):
        legend[name] = line_handle(_classifier_style(number))
    band = {"facecolor": PALE_BLUE, "edgecolor": "none"}
    legend[f"{names[0]}: 1st–99th percentile"] = area_handle(band)
    legend["chance"] = line_handle(CHANCE)
    return legend


def _classifier_style(number: int) -> Style:
    width = 1.4 if number == 0 else 0.9
    return {**series_style(number), "linewidth": width}


def _draw_classifiers(classifiers: Sequence[str], panel: Frame, ax: "Axes") -> None:
    reference = panel.filter(classifier=classifiers[0])
    draw_band(ax, reference, PALE_BLUE)
    ax.axhline(reference["chance"][0], **CHANCE)
    shots = reference.select("k")
    for number, name in enumerate(classifiers):
        curve = panel.filter(classifier=name)
        aligned = shots.join(curve, on="k", how="left", maintain_order="left")
        draw_line(ax, aligned["mean"], _classifier_style(number))
    mark_last_complete(ax, reference["complete"])
