"""What gradient steps make of the centroid → a metric against steps, a line for each encoder.

The axis begins at 0 steps, the centroid, and is logarithmic from 1 on; each line ends at logistic regression.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import log10
from typing import TYPE_CHECKING

from callshot.records import CorpusResults, RefinementStep
from callshot.report.figures.figure_io import FigurePage
from callshot.report.figures.legends import put_legend
from callshot.report.figures.panels import METRIC_NAMES, spaced
from callshot.report.figures.style import GREY, SMALL_PT, WIDE_IN, FigureStyle, series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = Mapping[str, Sequence[RefinementStep]]  # by encoder, in the order of steps
METRICS = ("map", "auroc")


def refinement_plates(corpus_results: CorpusResults) -> Iterator[FigurePage]:
    """Yield mAP and AUROC side by side, where centroids were refined."""
    panels = {metric: _lines(corpus_results.refinement, metric) for metric in METRICS}
    there = {metric: lines for metric, lines in panels.items() if lines}
    if there:
        yield FigurePage("refinement", partial(_compose, panels=there))


def _lines(rows: Sequence[RefinementStep], metric: str) -> Lines:
    own = sorted(
        (r for r in rows if (r.scoring, r.metric) == ("all", metric)), key=lambda r: r.step
    )
    return (
        {
            name: [r for r in own if r.encoder == name]
            for name in dict.fromkeys(r.encoder for r in rows)
        }
        if own
        else {}
    )


def place(step: int) -> float:
    """Return where a step stands: 0 at 0, 1 at 1, and one further for every power of ten."""
    return 0.0 if step == 0 else 1.0 + log10(step)


def _compose(figure: "Figure", panels: Mapping[str, Lines]) -> None:
    from matplotlib.lines import Line2D

    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    figure.set_size_inches(
        WIDE_IN if len(panels) > 1 else WIDE_IN / 2 + 0.4, 2.6 + 0.13 * min(len(names), 30)
    )
    looks = {name: {**series(i), "linewidth": 1.0, "zorder": 3} for i, name in enumerate(names)}
    for at, (metric, lines) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        _draw_lines(at, lines, looks)
        at.set_ylabel(METRIC_NAMES[metric])
    put_legend(
        figure,
        {name: Line2D([], [], markersize=3, markeredgewidth=0, **looks[name]) for name in names},
    )


def _draw_lines(at: "Axes", lines: Lines, looks: Mapping[str, FigureStyle]) -> None:
    for name, rows in lines.items():
        at.plot(
            [place(r.step) for r in rows],
            [r.value for r in rows],
            markersize=3,
            markeredgewidth=0,
            **looks[name],
        )
    last = max(r.step for rows in lines.values() for r in rows)
    powers = [10**n for n in range(len(str(last)))]
    at.set_xticks(
        [0.0, *(place(step) for step in powers)],
        ["0", *(f"{step:,}".replace(",", " ") for step in powers)],
    )
    at.set_xlim(-0.2, place(last) + 0.2)
    at.set_ylim(spaced(r.value for rows in lines.values() for r in rows))
    at.set_xlabel("gradient steps")
    for where, side, words in ((0.0, "left", "centroid"), (1.0, "right", "logistic regression")):
        at.annotate(
            words,
            (where, 1.0),
            (0, 3),
            xycoords="axes fraction",
            textcoords="offset points",
            ha=side,
            va="bottom",
            fontsize=SMALL_PT,
            color=GREY,
        )
