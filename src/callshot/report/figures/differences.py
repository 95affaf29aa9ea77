"""Paired differences → a panel for each pair: the difference against k with its interval, and the share of wins."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from callshot.records import CorpusResults, Difference
from callshot.report.figures.figure_io import FigurePage, pages
from callshot.report.figures.legends import put_legend
from callshot.report.figures.panels import (
    METRIC_NAMES,
    SHOTS,
    draw_band,
    draw_line,
    number_shots,
    spaced,
)
from callshot.report.figures.spreads import legend_spreads
from callshot.report.figures.style import BAND, LINE, TEXT_PT, WIDE_IN, ZERO
from callshot.report.figures.text_fit import wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pair = dict[
    str, list[Difference]
]  # of two encoders, or an encoder and a rival: the points of each spread
WIDE, HIGH = 3, 4


def differences_plates(corpus_results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield the pairs, twelve to a page; nothing where none were compared."""
    rows = [d for d in corpus_results.differences if (d.metric, d.scoring) == (metric, "all")]
    pairs = [_pair(rows, *names) for names in dict.fromkeys((d.one, d.other) for d in rows)]
    ends = spaced((x for d in rows for x in (d.p01, d.p99, 0.0)), -1.04, 1.04)
    words = f"difference\nof {METRIC_NAMES.get(metric, metric)}"
    for stem, some in pages("differences", pairs, WIDE * HIGH):
        yield FigurePage(stem, partial(_compose, pairs=some, ends=ends, words=words))


def _pair(rows: Sequence[Difference], one: str, other: str) -> Pair:
    own = sorted((d for d in rows if (d.one, d.other) == (one, other)), key=lambda d: d.k)
    return {
        spread: [d for d in own if d.spread == spread]
        for spread in LINE
        if any(d.spread == spread for d in own)
    }


def _compose(
    figure: "Figure", pairs: Sequence[Pair], ends: tuple[float, float], words: str
) -> None:
    wide = min(WIDE, len(pairs))
    high = -(-len(pairs) // wide)
    side = (WIDE_IN - 0.7) / max(wide, 2)
    figure.set_size_inches(side * wide + 0.7, 0.65 + high * 2.1)
    grid = figure.subplots(
        2 * high, wide, squeeze=False, sharex=True, height_ratios=[2.6, 1] * high
    )
    for i in range(wide * high):
        upper, lower = (grid[2 * (i // wide) + below, i % wide] for below in (0, 1))
        for at in (upper, lower):
            at.set_visible(i < len(pairs))
            at.tick_params(
                labelleft=i % wide == 0, labelbottom=at is lower and i + wide >= len(pairs)
            )
        if i < len(pairs):
            _draw_differences(upper, pairs[i], ends, side)
            _draw_wins(lower, pairs[i], side)
    for at in grid[0::2, 0]:
        at.set_ylabel(words)
    for at in grid[1::2, 0]:
        at.set_ylabel("share\nof wins")
    figure.align_ylabels(grid[:, 0])
    figure.supxlabel(SHOTS, fontsize=TEXT_PT)
    put_legend(figure, legend_spreads([s for s in LINE if any(s in pair for pair in pairs)]))


def _draw_differences(at: "Axes", pair: Pair, ends: tuple[float, float], side_in: float) -> None:
    for spread, points in reversed(pair.items()):
        look = {"facecolor": BAND[spread], "alpha": 0.8, "zorder": 1.5}
        draw_band(at, [d.p01 for d in points], [d.p99 for d in points], look)
        draw_line(at, [d.mean for d in points], LINE[spread])
    at.axhline(0.0, **ZERO)
    at.set_ylim(ends)
    point = next(iter(pair.values()))[0]
    room = side_in * 72 - 14
    at.set_title(
        f"{wrap(point.one, room, 7, 'bold')}\nless {wrap(point.other, room - 20, 7, 'bold')}",
        fontsize=7,
    )


def _draw_wins(at: "Axes", pair: Pair, side_in: float) -> None:
    for spread, points in pair.items():
        draw_line(at, [d.wins for d in points], LINE[spread])
    at.axhline(0.5, **{**ZERO, "linewidth": 0.5})
    at.set_ylim(-0.08, 1.08)
    at.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    number_shots(at, [d.k for d in next(iter(pair.values()))], side_in - 0.3)
