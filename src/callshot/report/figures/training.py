"""Values of a rival trained at every k, and of the centroid → a panel for each encoder: when does training pay?

Both on the same draws: their means and intervals against k, with the rivals on all labels, and below the difference,
with a line where the rival is ahead on average from there on, and one where it surely is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.fewshot.crossover import on_same_draws
from callshot.records import Baseline, CorpusResults, Crossover, FloatArray, Values
from callshot.report.classifiers import beside, is_trained, rule_name
from callshot.report.figures.baselines import draw_baselines, legend_baselines, name_apart
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
from callshot.report.figures.style import (
    BAND_OF,
    LINE_OF,
    MARK,
    SMALL_PT,
    TEXT_PT,
    TITLE_PT,
    WIDE_IN,
    ZERO,
)
from callshot.report.figures.text_fit import shorten_all, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, HIGH = 3, 3


@dataclass(frozen=True)
class Race:
    """The centroid and a rival on one encoder: their values (shots, draws) on the same draws, and the other rivals."""

    encoder: str
    rule: str
    shots: Sequence[int]
    centroid: FloatArray
    baseline: FloatArray
    crossing: Crossover | None
    baselines: Sequence[Baseline]


def training_plates(corpus_results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield a panel for every encoder with a rival that was trained at every k, nine to a page."""
    races = list(_races(corpus_results, metric))
    for stem, some in pages("training", races, WIDE * HIGH):
        yield FigurePage(
            stem, partial(_compose, races=some, metric=METRIC_NAMES.get(metric, metric))
        )


def _races(corpus_results: CorpusResults, metric: str) -> Iterator[Race]:
    for v, own in beside(corpus_results, "shared", metric):
        if is_trained(v.classifier):
            yield _race(corpus_results, own, v)


def _race(corpus_results: CorpusResults, own: Values, v: Values) -> Race:
    k, centroid, baseline = on_same_draws(own, v)
    key = (v.encoder, v.classifier, "k", v.scoring, v.metric, v.spread)
    found = [
        c
        for c in corpus_results.crossovers
        if (c.encoder, c.baseline, c.labels, c.scoring, c.metric, c.spread) == key
    ]
    baselines = [
        r
        for r in corpus_results.baselines
        if (r.scoring, r.metric) == (v.scoring, v.metric) and r.encoder in ("", v.encoder)
    ]
    return Race(
        v.encoder,
        rule_name(v.classifier),
        k.tolist(),
        centroid,
        baseline,
        found[0] if found else None,
        baselines,
    )


def _compose(figure: "Figure", races: Sequence[Race], metric: str) -> None:
    wide = min(WIDE, len(races))
    high = -(-len(races) // wide)
    side = (WIDE_IN - 0.7) / max(wide, 2)
    figure.set_size_inches(side * wide + 0.7, 0.9 + high * 2.65)
    grid = figure.subplots(2 * high, wide, squeeze=False, height_ratios=[2.2, 1] * high)
    levels, gaps = (
        _ends(races),
        spaced((x for race in races for x in (*_interval(_gap(race)).flat, 0.0)), -1.04, 1.04),
    )
    names = shorten_all([race.encoder for race in races], (side - 0.5) * 72, TITLE_PT, "bold")
    for i in range(wide * high):
        upper, lower = (grid[2 * (i // wide) + below, i % wide] for below in (0, 1))
        for at in (upper, lower):
            at.set_visible(i < len(races))
            at.tick_params(labelleft=i % wide == 0, labelbottom=at is lower)
        if i < len(races):
            _draw_race(upper, races[i], levels, side)
            upper.set_title(names[i])
            _draw_gap(lower, races[i], gaps, side)
    for at in grid[0::2, 0]:
        at.set_ylabel(metric)
    for at in grid[1::2, 0]:
        at.set_ylabel("difference")
    figure.align_ylabels(grid[:, 0])
    figure.supxlabel(SHOTS, fontsize=TEXT_PT)
    put_legend(figure, _legend(races))
    name_apart(figure, list(grid[0::2].flat)[: len(races)])


def _draw_race(at: "Axes", race: Race, ends: tuple[float, float], side_in: float) -> None:
    draw_baselines(at, race.baselines)
    for who, values in (("trained", race.baseline), ("centroid", race.centroid)):
        low, high = _interval(values)
        draw_band(
            at,
            low.tolist(),
            high.tolist(),
            {"facecolor": BAND_OF[who], "alpha": 0.7, "zorder": 1.5},
        )
        draw_line(at, values.mean(axis=1).tolist(), LINE_OF[who])
    _mark(at, race)
    at.set_ylim(ends)
    number_shots(at, race.shots, side_in - 0.5)


def _draw_gap(at: "Axes", race: Race, ends: tuple[float, float], side_in: float) -> None:
    gap = _gap(race)
    low, high = _interval(gap)
    draw_band(
        at,
        low.tolist(),
        high.tolist(),
        {"facecolor": BAND_OF["trained"], "alpha": 0.7, "zorder": 1.5},
    )
    draw_line(at, gap.mean(axis=1).tolist(), LINE_OF["trained"])
    at.axhline(0.0, **ZERO)
    _mark(at, race)
    at.set_ylim(ends)
    number_shots(at, race.shots, side_in - 0.5)
    words = wrap(_told(race), side_in * 72 - 36, SMALL_PT)
    at.set_title(words, fontsize=SMALL_PT, fontweight="normal", pad=3)


def _mark(at: "Axes", race: Race) -> None:
    """Draw a line at each crossing."""
    for end in ("k", "k_clear"):
        k = None if race.crossing is None else getattr(race.crossing, end)
        if k in race.shots:
            at.axvline(race.shots.index(k), **MARK[end])


def _told(race: Race) -> str:
    if race.crossing is None or race.crossing.k is None:
        return f"{race.rule} is at no k ahead to the end"
    k_clear = "" if race.crossing.k_clear is None else f", surely from {race.crossing.k_clear}"
    return f"{race.rule} is ahead from k = {race.crossing.k} on{k_clear}"


def _gap(race: Race) -> FloatArray:
    return race.baseline - race.centroid


def _interval(values: FloatArray) -> FloatArray:
    """Return the 1st and the 99th percentile, (2, shots)."""
    return np.asarray(np.percentile(values, (1, 99), axis=1))


def _ends(races: Sequence[Race]) -> tuple[float, float]:
    values = (
        x
        for race in races
        for table in (race.centroid, race.baseline)
        for x in _interval(table).flat
    )
    return spaced((*values, *(r.value for race in races for r in race.baselines)))


def _legend(races: Sequence[Race]) -> dict[str, Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def line(who: str) -> tuple[Patch, Line2D]:
        band = Patch(facecolor=BAND_OF[who], edgecolor="none")
        return band, Line2D([], [], markersize=2.6, markeredgewidth=0, **LINE_OF[who])

    names = dict.fromkeys(race.rule for race in races)
    return {
        "centroid: mean, 1st–99th percentile": line("centroid"),
        f"{' or '.join(names)}, on the same draws": line("trained"),
        "ahead on average from here on": Line2D([], [], **MARK["k"]),
        "surely ahead from here on": Line2D([], [], **MARK["k_clear"]),
        **legend_baselines([r for race in races for r in race.baselines]),
    }
