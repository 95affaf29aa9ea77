"""Baselines trained on all labels → lines across a panel, with names at their right ends."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from callshot.fewshot.differences import matching_baselines
from callshot.records.frames import Frame
from callshot.report.figures.figure_io import freeze
from callshot.report.figures.layout import Legend, line_handle
from callshot.report.figures.style import BASELINE, DPI, SMALL_FONT, SMALL_PT
from callshot.report.figures.text_width import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {
    "logistic": "logistic regression on all labels",
    "recurrent": "recurrent network on all labels",
    "end-to-end": "end-to-end network on all labels",
}
NAME_ID = "baseline"
NAME_PT = 58.0
LINE_PT = 8.4


def drawable_baselines(baselines: Frame, curve: Frame) -> Frame:
    """Return the baselines that a curve is compared with and that have a value."""
    return matching_baselines(baselines, curve).filter(pl.col("value").is_finite())


def draw_baselines(ax: "Axes", baselines: Frame) -> None:
    """Draw a line for each baseline, with its name; `separate_names` moves names that touch."""
    for kind, name, value in baselines.select("kind", "name", "value").iter_rows():
        style = BASELINE[kind]
        ax.axhline(value, zorder=2.7, **style)
        ax.annotate(
            shorten(name, NAME_PT, SMALL_FONT),
            xy=(1, value),
            xycoords=("axes fraction", "data"),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            color=style["color"],
            fontsize=SMALL_PT,
            gid=NAME_ID,
        )


def baseline_legend(baselines: Iterable[Frame]) -> Legend:
    """Return a legend entry for each kind of baseline in some panel."""
    kinds = pl.concat(baselines)["kind"]
    legend = {}
    for kind, text in KINDS.items():
        if kind in kinds:
            legend[text] = line_handle(BASELINE[kind])
    return legend


def separate_names(figure: "Figure", axes: Iterable["Axes"]) -> None:
    """Move the names of close lines up and down until none touch."""
    names = [_name_texts(ax) for ax in axes]
    if any(names):
        freeze(figure)
    for texts in names:
        heights = [_height_pt(text) for text in texts]
        free_heights = _push_apart(heights)
        for text, height, free in zip(texts, heights, free_heights, strict=True):
            text.set_position((3, free - height))


def _name_texts(ax: "Axes") -> list[Any]:
    """Return the names of the baselines of a panel, from bottom to top."""
    names = [text for text in ax.texts if text.get_gid() == NAME_ID]
    return sorted(names, key=_height_pt)


def _height_pt(text: Any) -> float:
    """Return the height of the line that a text names."""
    _, value = text.xy
    _, pixels = text.axes.transData.transform((0, value))
    return float(pixels) * 72 / DPI


def _push_apart(heights: Sequence[float]) -> list[float]:
    """Return ascending heights at least one line apart; close ones push each other away."""
    apart = list(heights)
    for _ in range(100):
        for i in range(1, len(apart)):
            gap = apart[i] - apart[i - 1]
            push = max(LINE_PT - gap, 0.0) / 2
            apart[i - 1] -= push
            apart[i] += push
    return apart
