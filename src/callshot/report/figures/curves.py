"""Curves → small panels with several lines: each class by encoder, each encoder by classifier."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from callshot.records import ClassCount, CorpusResults
from callshot.report.classifiers import all_curves, classifier_name, list_classifiers
from callshot.report.figures.figure_io import FigurePage, make_pages
from callshot.report.figures.layout import (
    METRIC_NAMES,
    Limits,
    PageLayout,
    add_legend,
    axis_limits,
    draw_band,
    draw_line,
    label_axes,
    label_shots,
    line_handle,
    mark_last_complete,
    patch_handle,
)
from callshot.report.figures.style import (
    CHANCE,
    LAST_COMPLETE,
    PALE_BLUE,
    SMALL_PT,
    TITLE_PT,
    Style,
    series_style,
)
from callshot.report.figures.text_fit import shorten_all, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASS_METRIC_NAMES = {**METRIC_NAMES, "map": "AP"}
CLASSES = PageLayout(columns=5, rows=6, row_in=1.35, left_in=0.6, above_in=0.7, fewest_columns=3)
CLASSIFIERS = PageLayout(columns=3, rows=3, row_in=2.3, left_in=0.5, above_in=0.8)


@dataclass(frozen=True)
class ClassPanel:
    """One class, and its curve with each encoder."""

    count: ClassCount
    curves: Sequence[pl.DataFrame]

    @property
    def shots(self) -> list[int]:
        """The k of the curves."""
        return self.curves[0]["k"].to_list()

    @property
    def complete(self) -> int:
        """The number of shots at which the class is complete."""
        return sum(k <= self.count.complete_to_k for k in self.shots)


def plan_classes(results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield the curves of all eligible classes, thirty to a page, those with most exemplars first.

    Accuracy has no curve by class; the AP is drawn instead.
    """
    evaluation = results.evaluation
    if metric not in evaluation.per_class["metric"]:
        metric = "map"
    rows = evaluation.per_class.filter(metric=metric, scoring="all")
    if rows.is_empty():
        return
    spread = rows["spread"][0]
    rows = rows.filter(spread=spread).sort("k", maintain_order=True)
    panels = []
    for count in evaluation.classes:
        if count.eligible:
            curves = rows.filter(label=count.label).partition_by("encoder", maintain_order=True)
            panels.append(ClassPanel(count, curves))
    limits = axis_limits(rows.select("p01", "p99"))
    label = f"{CLASS_METRIC_NAMES[metric]} ({spread})"
    yield from make_pages("classes", panels, CLASSES.panels, _compose_classes, limits, label)


def _compose_classes(
    figure: "Figure", panels: Sequence[ClassPanel], limits: Limits, label: str
) -> None:
    stacks, width_in = CLASSES.add_panels(figure, len(panels))
    for ax, panel in zip(stacks[:, 0], panels, strict=True):
        for number, curve in enumerate(panel.curves):
            style = series_style(number)
            draw_band(ax, curve, style["color"], 0.16)
            draw_line(ax, curve["mean"], {**style, "zorder": 3})
        mark_last_complete(ax, panel.complete, len(panel.shots))
        label_shots(ax, panel.shots, width_in - 0.25)
        name = wrap(panel.count.label, width_in * 72 - 16, SMALL_PT, "bold")
        ax.set_title(f"{name}\n{panel.count.exemplars} exemplars", fontsize=SMALL_PT, pad=2)
        ax.set_ylim(limits)
    label_axes(figure, label)
    add_legend(figure, _class_entries(panels))


def _class_entries(panels: Sequence[ClassPanel]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for number, curve in enumerate(panels[0].curves):
        style = series_style(number)
        band = patch_handle({"facecolor": style["color"], "alpha": 0.16})
        entries[curve["encoder"][0]] = (band, line_handle(style))
    if any(panel.complete < len(panel.shots) for panel in panels):
        entries["last k at which the class is complete"] = line_handle(LAST_COMPLETE)
    return entries


def plan_classifiers(results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield the mean of every classifier for each encoder, nine to a page, if there are several."""
    rows = all_curves(results).filter(scoring="all", metric=metric)
    spread = "shared" if "shared" in rows["spread"] else rows["spread"][0]
    rows = rows.filter(spread=spread).sort("k", maintain_order=True)
    names = [name for name in list_classifiers(results) if name in rows["classifier"]]
    if len(names) == 1:
        return
    styles = {name: {**series_style(i), "linewidth": 0.9} for i, name in enumerate(names)}
    styles[names[0]]["linewidth"] = 1.4
    panels = rows.partition_by("encoder", maintain_order=True)
    label = f"{METRIC_NAMES[metric]} ({spread})"
    options = (styles, label)
    yield from make_pages("classifiers", panels, CLASSIFIERS.panels, _compose_classifiers, *options)


def _compose_classifiers(
    figure: "Figure", panels: Sequence[pl.DataFrame], styles: dict[str, Style], label: str
) -> None:
    stacks, width_in = CLASSIFIERS.add_panels(figure, len(panels))
    encoders = [panel["encoder"][0] for panel in panels]
    titles = shorten_all(encoders, (width_in - 0.3) * 72, TITLE_PT, "bold")
    reference = next(iter(styles))
    rows = pl.concat(panels)
    intervals = rows.filter(classifier=reference).select("p01", "p99", "chance")
    limits = axis_limits(rows["mean"], intervals)
    for ax, panel, title in zip(stacks[:, 0], panels, titles, strict=True):
        _draw_classifiers(ax, panel, styles, width_in - 0.4)
        ax.set_title(title)
        ax.set_ylim(limits)
    label_axes(figure, label)
    entries: dict[str, Any] = {
        classifier_name(name): line_handle(style) for name, style in styles.items()
    }
    band = patch_handle({"facecolor": PALE_BLUE, "edgecolor": "none"})
    entries[f"{classifier_name(reference)}: 1st–99th percentile"] = band
    add_legend(figure, entries | {"chance": line_handle(CHANCE)})


def _draw_classifiers(
    ax: "Axes", panel: pl.DataFrame, styles: dict[str, Style], room_in: float
) -> None:
    reference = panel.filter(classifier=next(iter(styles)))
    draw_band(ax, reference, PALE_BLUE)
    ax.axhline(reference["chance"][0], **CHANCE)
    for name, style in styles.items():
        curve = panel.filter(classifier=name)
        means = reference.select("k").join(curve, on="k", how="left", maintain_order="left")
        draw_line(ax, means["mean"], {**style, "zorder": 3})
    mark_last_complete(ax, reference["complete"].sum(), len(reference))
    label_shots(ax, reference["k"].to_list(), room_in)
