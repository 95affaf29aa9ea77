"""Curves of several classifiers → a panel for each encoder: the mean of every rule against k, beside the centroid's."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from callshot.records import CorpusResults, Curve
from callshot.report.classifiers import every_curve, rule_name, rules_of
from callshot.report.figures.figure_io import FigurePage, pages
from callshot.report.figures.legends import put_legend
from callshot.report.figures.panels import (
    METRIC_NAMES,
    SHOTS,
    draw_band,
    draw_line,
    mark_edge,
    number_shots,
    spaced,
)
from callshot.report.figures.style import (
    BAND_OF,
    CHANCE,
    TEXT_PT,
    TITLE_PT,
    WIDE_IN,
    FigureStyle,
    series,
)
from callshot.report.figures.text_fit import shorten_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Lines = Mapping[str, Sequence[Curve]]  # of one encoder: the points of each classifier
WIDE, HIGH = 3, 3


def rules_plates(corpus_results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield a panel for every encoder, nine to a page, where there are classifiers beside the centroid."""
    if corpus_results.others is None:
        return
    spreads = dict.fromkeys(c.spread for c in corpus_results.evaluation.curve)
    spread = "shared" if "shared" in spreads else next(iter(spreads))
    points = [
        c
        for c in every_curve(corpus_results)
        if (c.scoring, c.metric, c.spread) == ("all", metric, spread)
    ]
    rules = [rule for rule in rules_of(corpus_results) if any(c.classifier == rule for c in points)]
    looks = {
        rule: {**series(i), "linewidth": 1.4 if i == 0 else 0.9} for i, rule in enumerate(rules)
    }
    panels = [
        _lines(points, encoder, rules) for encoder in dict.fromkeys(c.encoder for c in points)
    ]
    words = f"{METRIC_NAMES.get(metric, metric)} ({spread})"
    for stem, some in pages("rules", panels if len(rules) > 1 else [], WIDE * HIGH):
        yield FigurePage(stem, partial(_compose, panels=some, looks=looks, words=words))


def _lines(points: Sequence[Curve], encoder: str, rules: Sequence[str]) -> Lines:
    own = sorted((c for c in points if c.encoder == encoder), key=lambda c: c.k)
    return {rule: [c for c in own if c.classifier == rule] for rule in rules}


def _compose(
    figure: "Figure", panels: Sequence[Lines], looks: Mapping[str, FigureStyle], words: str
) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    wide = min(WIDE, len(panels))
    high = -(-len(panels) // wide)
    side = (WIDE_IN - 0.5) / max(wide, 2)
    figure.set_size_inches(side * wide + 0.5, 0.8 + high * 2.3)
    axes = list(figure.subplots(high, wide, squeeze=False).flat)
    ends = spaced(
        x for lines in panels for points in lines.values() for c in points for x in _levels(c)
    )
    for i, at in enumerate(axes):
        at.set_visible(i < len(panels))
        at.set_ylim(ends)
        at.tick_params(labelbottom=i + wide >= len(panels), labelleft=i % wide == 0)
    names = shorten_all(
        [next(iter(p.values()))[0].encoder for p in panels], (side - 0.3) * 72, TITLE_PT, "bold"
    )
    for at, lines, name in zip(axes, panels, names, strict=False):
        _draw_lines(at, lines, looks, side)
        at.set_title(name)
    figure.supxlabel(SHOTS, fontsize=TEXT_PT)
    figure.supylabel(words, fontsize=TEXT_PT)
    entries = {
        rule_name(rule): Line2D([], [], markersize=2.6, markeredgewidth=0, **looks[rule])
        for rule in looks
    }
    first = next(iter(entries))
    band = Patch(facecolor=BAND_OF["centroid"], edgecolor="none")
    put_legend(
        figure,
        entries | {f"{first}: 1st–99th percentile": band, "chance": Line2D([], [], **CHANCE)},
    )


def _levels(point: Curve) -> tuple[float, ...]:
    return (
        (point.mean, point.p01, point.p99, point.chance)
        if point.classifier == "centroid"
        else (point.mean,)
    )


def _draw_lines(at: "Axes", lines: Lines, looks: Mapping[str, FigureStyle], side_in: float) -> None:
    reference = next(iter(lines.values()))
    shots = [c.k for c in reference]
    band = {"facecolor": BAND_OF["centroid"], "zorder": 1.5}
    draw_band(at, [c.p01 for c in reference], [c.p99 for c in reference], band)
    at.axhline(reference[0].chance, **CHANCE)
    for rule, points in lines.items():
        means = {c.k: c.mean for c in points}
        draw_line(at, [means.get(k, float("nan")) for k in shots], {**looks[rule], "zorder": 3})
    mark_edge(at, sum(c.complete for c in reference), len(shots))
    number_shots(at, shots, side_in - 0.4)
