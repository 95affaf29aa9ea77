"""When training pays: a trained baseline beside the centroid, and gradient steps between them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import log10
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from callshot.fewshot.differences import align_draws
from callshot.records import METRIC_NAMES, CorpusResults, FloatArray, IntArray
from callshot.records.frames import Frame, summarise_samples, unique_values
from callshot.report.classifiers import (
    classifier_name,
    common_spread,
    is_trained,
    join_classifiers,
    list_classifiers,
    paired_values,
)
from callshot.report.figures.curves import (
    baseline_legend,
    draw_baselines,
    drawable_baselines,
)
from callshot.report.figures.figure_io import (
    FigurePage,
    Pages,
    figure_of_report,
    make_pages,
)
from callshot.report.figures.layout import (
    INTERVAL,
    Frames,
    Legend,
    Limits,
    PageLayout,
    add_legend,
    area_handle,
    axis_limits,
    curve_handle,
    draw_band,
    draw_curve,
    draw_line,
    line_handle,
    mark_last_complete,
    set_scales,
    set_titles,
)
from callshot.report.figures.style import (
    CHANCE,
    CROSSOVER,
    GREY,
    PAGE_WIDTH_IN,
    PALE_BLUE,
    SMALL_FONT,
    SMALL_PT,
    ZERO,
    Style,
    series_style,
    shorten,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYOUT = PageLayout(
    columns=3,
    rows=3,
    row_in=2.65,
    left_in=0.7,
    above_in=0.9,
    heights=(2.2, 1.0),
)
ALPHA = 0.7
CROSSOVER_KEY = ("corpus", "encoder", "baseline", "scoring", "metric", "spread")

Crossover = dict[str, int | None]


@dataclass(frozen=True)
class TrainingPanel:
    """The centroid and a trained classifier on one encoder, on the same draws.

    `crossover` has the k from which the trained one is ahead, by `k_mean` and by `k_clear`.
    """

    encoder: str
    classifier: str
    centroid: Frame
    trained: Frame
    difference: Frame
    crossover: Crossover
    baselines: Frame

    @property
    def shots(self) -> list[int]:
        """The k of all curves."""
        return self.centroid["k"].to_list()


TrainingPanels = Sequence[TrainingPanel]


@figure_of_report(
    "training",
    "training",
    "When training pays: the centroid and a baseline trained on the same exemplars",
)
def plan_training(results: CorpusResults, *_: Any) -> Pages:
    """Yield a panel for every encoder with a baseline trained at every k, nine to a page."""
    panels = []
    for trained, centroid in paired_values(results):
        if is_trained(trained["classifier"][0]):
            panels.append(_make_panel(results, trained, centroid))
    yield from make_pages("training", panels, LAYOUT.capacity, _compose)


def _make_panel(
    results: CorpusResults, trained: Frame, centroid: Frame
) -> TrainingPanel:
    k, trained_samples, samples = align_draws(trained, centroid)
    key = trained.row(0, named=True)
    return TrainingPanel(
        key["encoder"],
        classifier_name(key["classifier"]),
        _summarise(k, samples),
        _summarise(k, trained_samples),
        _summarise(k, trained_samples - samples),
        _find_crossover(results.evaluation.crossovers, trained),
        drawable_baselines(results.baselines, trained),
    )


def _summarise(k: IntArray, samples: FloatArray) -> Frame:
    return pl.DataFrame({"k": k, **summarise_samples(samples)})


def _find_crossover(crossovers: Frame, trained: Frame) -> Crossover:
    """Return the crossover of a trained classifier; both k are None if there is none."""
    key = trained.rename({"classifier": "baseline"}).row(0, named=True)
    of_curve = {name: key[name] for name in CROSSOVER_KEY}
    rows = crossovers.filter(labels="k", **of_curve)
    if rows.is_empty():
        return {"k_mean": None, "k_clear": None}
    return rows.select("k_mean", "k_clear").row(0, named=True)


def _compose(figure: "Figure", panels: TrainingPanels) -> None:
    stacks, width_in = LAYOUT.add_panels(figure, len(panels), ("mAP", "difference"))
    room_in = width_in - 0.5
    limits = _score_limits(panels)
    differences = [_interval(panel.difference) for panel in panels]
    difference_limits = axis_limits(*differences, [0.0], low=-1.04, high=1.04)
    for (upper, lower), panel in zip(stacks, panels, strict=True):
        _draw_scores(upper, panel)
        set_scales([upper], panel.shots, room_in, limits)
        _draw_difference(lower, panel)
        _describe_crossover(lower, panel, room_in * 72)
        set_scales([lower], panel.shots, room_in, difference_limits)
    axes = stacks[:, 0]
    set_titles(axes, [panel.encoder for panel in panels], room_in)
    add_legend(figure, _make_legend(panels))


def _score_limits(panels: TrainingPanels) -> Limits:
    """Return the ends of an axis with both curves and the baselines."""
    values: list[Any] = []
    for panel in panels:
        values += [_interval(panel.centroid), _interval(panel.trained)]
        values.append(panel.baselines["value"])
    return axis_limits(*values)


def _interval(curve: Frame) -> Frame:
    return curve.select("p01", "p99")


def _draw_scores(ax: "Axes", panel: TrainingPanel) -> None:
    draw_baselines(ax, panel.baselines)
    draw_curve(ax, panel.trained, "trained", ALPHA)
    draw_curve(ax, panel.centroid, "centroid", ALPHA)
    _mark_crossover(ax, panel)


def _draw_difference(ax: "Axes", panel: TrainingPanel) -> None:
    draw_curve(ax, panel.difference, "trained", ALPHA)
    ax.axhline(0.0, **ZERO)
    _mark_crossover(ax, panel)
    ax.tick_params(labelbottom=True)  # the shots of encoders may differ


def _mark_crossover(ax: "Axes", panel: TrainingPanel) -> None:
    for kind, k in panel.crossover.items():
        if k in panel.shots:
            ax.axvline(panel.shots.index(k), **CROSSOVER[kind])


def _describe_crossover(ax: "Axes", panel: TrainingPanel, room_pt: float) -> None:
    """Write above the difference from which k the trained classifier is ahead."""
    k_mean = panel.crossover["k_mean"]
    k_clear = panel.crossover["k_clear"]
    mean = f"{panel.classifier} is not ahead at the last k"
    if k_mean is not None:
        mean = f"{panel.classifier} is ahead from k = {k_mean}"
    lines = [wrap(mean, room_pt, SMALL_FONT)]
    if k_clear is not None:
        clear = f"98 % interval above 0 from k = {k_clear}"
        lines.append(shorten(clear, room_pt, SMALL_FONT))
    ax.set_title("\n".join(lines), fontsize=SMALL_PT, fontweight="normal", pad=3)


def _make_legend(panels: TrainingPanels) -> Legend:
    classifiers = " or ".join(dict.fromkeys(panel.classifier for panel in panels))
    return {
        f"centroid: {INTERVAL}": curve_handle("centroid"),
        f"{classifiers}, on the same draws": curve_handle("trained"),
        "mean difference above 0 from here on": line_handle(CROSSOVER["k_mean"]),
        "98 % interval above 0 from here on": line_handle(CROSSOVER["k_clear"]),
        **baseline_legend(panel.baselines for panel in panels),
    }


CLASSIFIERS = PageLayout(columns=3, rows=3, row_in=2.3, left_in=0.5, above_in=0.8)


@figure_of_report(
    "classifiers",
    "training",
    "The centroid and other classifiers without training, against k",
)
def plan_classifiers(results: CorpusResults, *_: Any) -> Pages:
    """Yield the mean of every classifier for each encoder, nine to a page, if there are several."""
    spread = common_spread(results)
    all_curves = join_classifiers(results).curve
    curves = all_curves.filter(scoring="all", metric="map", spread=spread)
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


@figure_of_report(
    "refinement",
    "training",
    "Gradient steps from the centroid of all labels to logistic regression",
)
def plan_refinement(results: CorpusResults, *_: Any) -> Pages:
    """Yield mAP and AUROC side by side, if centroids were refined."""
    steps = results.refinement.filter(scoring="all").sort("step", maintain_order=True)
    panels = steps.partition_by("metric")
    if panels:
        yield FigurePage("refinement", _compose_refinement, (panels,))


def step_position(step: int) -> float:
    """Return the position of a step on the axis.

    >>> [step_position(step) for step in (0, 1, 10, 100)]
    [0.0, 1.0, 2.0, 3.0]
    """
    return 0.0 if step == 0 else 1.0 + log10(step)


def _compose_refinement(figure: "Figure", panels: Frames) -> None:
    encoders = unique_values(panels[0], "encoder")
    legend_in = 0.13 * min(len(encoders), 30)
    figure.set_size_inches(PAGE_WIDTH_IN, 2.6 + legend_in)
    axes = figure.subplots(1, len(panels), squeeze=False)
    for ax, panel in zip(axes[0], panels, strict=True):
        _draw_steps(ax, panel)
    legend = {}
    for number, encoder in enumerate(encoders):
        legend[encoder] = line_handle(series_style(number))
    add_legend(figure, legend, "gradient steps")


def _draw_steps(ax: "Axes", panel: Frame) -> None:
    for number, line in enumerate(panel.partition_by("encoder")):
        positions = [step_position(step) for step in line["step"]]
        ax.plot(positions, line["value"], **series_style(number))
    _label_steps(ax, panel["step"][-1])
    ax.set_ylim(axis_limits(panel["value"]))
    metric = panel["metric"][0]
    ax.set_ylabel(METRIC_NAMES[metric])
    _write_end(ax, "left", "centroid")
    _write_end(ax, "right", "logistic regression")


def _label_steps(ax: "Axes", last: int) -> None:
    """Label 0 steps and the powers of ten up to the last step."""
    powers = range(len(str(last)))
    steps = [0, *(10**power for power in powers)]
    positions = [step_position(step) for step in steps]
    labels = [f"{step:,}".replace(",", " ") for step in steps]
    ax.set_xticks(positions, labels)
    ax.set_xlim(-0.2, step_position(last) + 0.2)


def _write_end(ax: "Axes", side: Literal["left", "right"], text: str) -> None:
    """Name the classifier at one end of the axis."""
    ax.set_title(
        text,
        loc=side,
        fontsize=SMALL_PT,
        fontweight="normal",
        color=GREY,
    )
