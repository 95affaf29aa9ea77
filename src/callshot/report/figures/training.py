"""Samples of baselines trained at every k, and of the centroid → when does training pay?

A panel for each encoder. Both classifiers see the same draws: their means and intervals against k,
with the baselines trained on all labels, and below the difference. Vertical lines mark the k from
which the baseline is ahead in the mean, and by its 98 % interval.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from callshot.fewshot.crossover import align_draws
from callshot.records import CorpusResults, FloatArray, IntArray
from callshot.records.frames import summarise_samples
from callshot.report.classifiers import classifier_name, is_trained, paired_values
from callshot.report.figures.baselines import (
    baseline_entries,
    draw_baselines,
    drawable_baselines,
    separate_names,
)
from callshot.report.figures.figure_io import FigurePage, make_pages
from callshot.report.figures.layout import (
    INTERVAL,
    K_LABEL,
    METRIC_NAMES,
    Limits,
    PageLayout,
    add_legend,
    axis_limits,
    curve_handle,
    draw_curve,
    label_shots,
    label_stacks,
    line_handle,
)
from callshot.report.figures.style import CROSSOVER, SMALL_PT, TEXT_PT, TITLE_PT, ZERO
from callshot.report.figures.text_fit import shorten, shorten_all, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYOUT = PageLayout(columns=3, rows=3, row_in=2.65, left_in=0.7, above_in=0.9)
ALPHA = 0.7


@dataclass(frozen=True)
class TrainingPanel:
    """The centroid and a trained classifier on one encoder, on the same draws."""

    encoder: str
    classifier: str
    centroid: pl.DataFrame
    trained: pl.DataFrame
    difference: pl.DataFrame
    crossover: dict[str, int | None]
    baselines: pl.DataFrame

    @property
    def shots(self) -> list[int]:
        """The k of all curves."""
        return self.centroid["k"].to_list()


def plan_training(results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield a panel for every encoder with a baseline trained at every k, nine to a page."""
    panels = []
    for trained, centroid in paired_values(results, "shared", metric):
        if is_trained(trained["classifier"][0]):
            panels.append(_make_panel(results, trained, centroid))
    name = METRIC_NAMES[metric]
    yield from make_pages("training", panels, LAYOUT.panels, _compose, name)


def _make_panel(
    results: CorpusResults, trained: pl.DataFrame, centroid: pl.DataFrame
) -> TrainingPanel:
    k, trained_samples, samples = align_draws(trained, centroid)
    key = trained.row(0, named=True)
    crossovers = results.evaluation.crossovers.filter(
        encoder=key["encoder"],
        baseline=key["classifier"],
        labels="k",
        scoring=key["scoring"],
        metric=key["metric"],
        spread=key["spread"],
    )
    crossover: dict[str, int | None] = {"k_mean": None, "k_clear": None}
    if not crossovers.is_empty():
        crossover = crossovers.select("k_mean", "k_clear").row(0, named=True)
    return TrainingPanel(
        key["encoder"],
        classifier_name(key["classifier"]),
        _summarise(k, samples),
        _summarise(k, trained_samples),
        _summarise(k, trained_samples - samples),
        crossover,
        drawable_baselines(results.baselines, trained),
    )


def _summarise(k: IntArray, samples: FloatArray) -> pl.DataFrame:
    return pl.DataFrame({"k": k, **summarise_samples(samples)})


def _compose(figure: "Figure", panels: Sequence[TrainingPanel], metric: str) -> None:
    stacks, width_in = LAYOUT.add_panels(figure, len(panels), (2.2, 1))
    limits = _score_limits(panels)
    differences = pl.concat([panel.difference for panel in panels])
    difference_limits = axis_limits(differences.select("p01", "p99"), [0.0], low=-1.04, high=1.04)
    encoders = [panel.encoder for panel in panels]
    titles = shorten_all(encoders, (width_in - 0.5) * 72, TITLE_PT, "bold")
    for (upper, lower), panel, title in zip(stacks, panels, titles, strict=True):
        _draw_scores(upper, panel)
        upper.set_title(title)
        upper.set_ylim(limits)
        _draw_difference(lower, panel)
        _describe_crossover(lower, panel, width_in * 72 - 36)
        lower.set_ylim(difference_limits)
        lower.tick_params(labelbottom=True)
        for ax in (upper, lower):
            _mark_crossover(ax, panel)
            label_shots(ax, panel.shots, width_in - 0.5)
    label_stacks(figure, stacks, (metric, "difference"))
    figure.supxlabel(K_LABEL, fontsize=TEXT_PT)
    add_legend(figure, _legend_entries(panels))
    separate_names(figure, stacks[:, 0])


def _score_limits(panels: Sequence[TrainingPanel]) -> Limits:
    curves = pl.concat([curve for panel in panels for curve in (panel.centroid, panel.trained)])
    baselines = pl.concat([panel.baselines for panel in panels])
    return axis_limits(curves.select("p01", "p99"), baselines["value"])


def _draw_scores(ax: "Axes", panel: TrainingPanel) -> None:
    draw_baselines(ax, panel.baselines)
    draw_curve(ax, panel.trained, "trained", ALPHA)
    draw_curve(ax, panel.centroid, "centroid", ALPHA)


def _draw_difference(ax: "Axes", panel: TrainingPanel) -> None:
    draw_curve(ax, panel.difference, "trained", ALPHA)
    ax.axhline(0.0, **ZERO)


def _mark_crossover(ax: "Axes", panel: TrainingPanel) -> None:
    for kind, k in panel.crossover.items():
        if k in panel.shots:
            ax.axvline(panel.shots.index(k), **CROSSOVER[kind])


def _describe_crossover(ax: "Axes", panel: TrainingPanel, room_pt: float) -> None:
    """Write above the difference from which k the trained classifier is ahead."""
    k_mean = panel.crossover["k_mean"]
    k_clear = panel.crossover["k_clear"]
    text = f"{panel.classifier} is not ahead at the last k"
    if k_mean is not None:
        text = f"{panel.classifier} is ahead from k = {k_mean}"
    text = wrap(text, room_pt, SMALL_PT)
    if k_clear is not None:
        clear = shorten(f"98 % interval above 0 from k = {k_clear}", room_pt, SMALL_PT)
        text = f"{text}\n{clear}"
    ax.set_title(text, fontsize=SMALL_PT, fontweight="normal", pad=3)


def _legend_entries(panels: Sequence[TrainingPanel]) -> dict[str, Any]:
    classifiers = dict.fromkeys(panel.classifier for panel in panels)
    return {
        f"centroid: {INTERVAL}": curve_handle("centroid"),
        f"{' or '.join(classifiers)}, on the same draws": curve_handle("trained"),
        "mean difference above 0 from here on": line_handle(CROSSOVER["k_mean"]),
        "98 % interval above 0 from here on": line_handle(CROSSOVER["k_clear"]),
        **baseline_entries(panel.baselines for panel in panels),
    }
