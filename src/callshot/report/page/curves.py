"""Curves over k → drawings in SVG that need no scripts; colours come from the style of the page.

k is on a logarithmic axis. Pictures with the same `Scale` can be compared side by side.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor, isfinite, log
from typing import Any, ClassVar

import polars as pl
from markupsafe import Markup

from callshot.records import CorpusResults
from callshot.records.frames import Frame
from callshot.report.classifiers import main_spread
from callshot.report.page.parts import render
from callshot.report.summary import Summary

WIDTH = 480
HEIGHT = 310
RIGHT = 10
BOTTOM = 40
SMALL_WIDTH = 260
SMALL_HEIGHT = 190
LINE_HEIGHT = 15
ROUND_SHOTS = (1, 2, 3, 5, 10, 20, 40, 100, 200, 500, 1000)
ROUND_SHOTS_IF_SMALL = (1, 3, 10, 40, 200, 1000)
TICK_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)
MAX_TICKS = 6
COLOURS = 7  # of the style of the page
SHADES = 8
MAX_LINES = 6  # of the first picture

Values = Sequence[float]
Point = tuple[float, float]


@dataclass(frozen=True)
class SvgLine:
    """A line with an optional band; `colour` is a number, `name` is written above its end."""

    name: str
    shots: Sequence[int]
    mean: Values
    low: Values = ()
    high: Values = ()
    colour: int = 0
    class_: str = "line"


@dataclass(frozen=True)
class SvgPicture:
    """What a drawing shows; the name of `chance` is written at its line, `complete` is k*.

    `marks` are points that the text is about: k, value, and a few words.
    """

    title: str
    lines: Sequence[SvgLine]
    metric: str
    chance: SvgLine | None = None
    complete: int | None = None
    marks: Sequence[tuple[int, float, str]] = ()


@dataclass(frozen=True)
class Scale:
    """The ends of both axes, and where points are on the drawing."""

    first: int
    last: int
    low: float
    high: float
    width: int = WIDTH
    height: int = HEIGHT

    left: ClassVar[int] = 46
    top: ClassVar[int] = 14

    @property
    def right(self) -> int:
        """The right end of the horizontal axis."""
        return self.width - RIGHT

    @property
    def bottom(self) -> int:
        """The place of the horizontal axis."""
        return self.height - BOTTOM

    @property
    def axis(self) -> str:
        """The name of the horizontal axis."""
        return "k, examples per call type" if self.width >= WIDTH else "k"

    @cached_property
    def ticks(self) -> list[float]:
        """Round values on the vertical axis."""
        height = self.high - self.low
        steps = [step for step in TICK_STEPS if height / step <= MAX_TICKS]
        step = steps[0] if steps else TICK_STEPS[-1]
        first = ceil(self.low / step - 1e-9)
        last = floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]

    @cached_property
    def shots(self) -> list[int]:
        """Round shots on the horizontal axis, and the last one if it is far from those."""
        round_shots = ROUND_SHOTS if self.width >= WIDTH else ROUND_SHOTS_IF_SMALL
        shots = [k for k in round_shots if self.first <= k <= self.last]
        if self.last not in shots and (not shots or self.last > 1.5 * shots[-1]):
            shots.append(self.last)
        return shots

    def place(self, k: float, value: float) -> Point:
        """Return where a point is on the drawing."""
        along = log(k / self.first) / log(self.last / self.first)
        up = (value - self.low) / (self.high - self.low)
        up_inside = min(max(up, 0.0), 1.0)
        x = self.left + (self.right - self.left) * along
        return x, self.bottom - (self.bottom - self.top) * up_inside

    def place_all(self, shots: Sequence[int], values: Values) -> list[Point]:
        """Return where the finite points of a line are."""
        pairs = zip(shots, values, strict=True)
        return [self.place(k, value) for k, value in pairs if isfinite(value)]

    def place_names(self, lines: Sequence[SvgLine]) -> list[tuple[float, SvgLine]]:
        """Return how high the names of lines are: at their right ends, none over another."""
        ends = []
        for line in lines:
            points = self.place_all(line.shots, line.mean)
            if line.name and points:
                ends.append((points[-1][1] - 6, line))
        lowest = float(self.top)
        places = []
        for end_y, line in sorted(ends, key=lambda end: end[0]):
            places.append((max(end_y, lowest), line))
            lowest = places[-1][0] + LINE_HEIGHT
        return places


def share_scale(pictures: Sequence[SvgPicture]) -> Scale:
    """Return axes that hold everything in all pictures."""
    lines = [line for picture in pictures for line in picture.lines]
    levels = [picture.chance for picture in pictures if picture.chance is not None]
    shots = [k for line in lines for k in line.shots]
    values = []
    for line in (*lines, *levels):
        values += [*line.mean, *line.low, *line.high]
    finite = [value for value in values if isfinite(value)] or [0.0, 1.0]
    low = floor(10 * min(finite)) / 10
    high = ceil(10 * max(finite)) / 10
    if high <= low:
        high = low + 0.1
    first = min(shots, default=1)
    return Scale(first, max(max(shots, default=1), first + 1), low, high)


def _make_line(
    points: Frame, name: str = "", *, band: bool = False, **style: Any
) -> SvgLine:
    """Return the line of a curve's means, with its interval as a band."""
    by_k = points.sort("k")
    if band:
        style |= {"low": by_k["p01"].to_list(), "high": by_k["p99"].to_list()}
    return SvgLine(name, by_k["k"].to_list(), by_k["mean"].to_list(), **style)


def show_first_screen(
    all_results: Sequence[CorpusResults], summaries: Mapping[str, Summary]
) -> Markup:
    """Return the answer for every corpus; those of several share their axes."""
    ordered = [summaries[results.corpus] for results in all_results]
    pictures = list(map(_first_picture, all_results, ordered))
    articles = list(zip(all_results, ordered, pictures, strict=True))
    return render("first_screen", articles, share_scale(pictures))


def _first_picture(results: CorpusResults, summary: Summary) -> SvgPicture:
    """Return the curves of mAP; only the best encoder has a band, and marks of the headline."""
    headline = summary.headline
    evaluation = results.evaluation
    curve = evaluation.curve.filter(
        scoring="all", metric="map", spread=main_spread(evaluation)
    )
    other_encoders = [name for name in evaluation.encoders if name != summary.best]
    lines = []
    for name in [*other_encoders[: MAX_LINES - 1], summary.best]:
        is_best = name == summary.best
        line = _make_line(
            curve.filter(encoder=name),
            name,
            band=is_best,
            colour=evaluation.encoders.index(name) % COLOURS,
            class_="line" if is_best else "line pale",
        )
        lines.append(line)
    best = curve.filter(encoder=summary.best).sort("k")
    named = best.filter(pl.col("k").is_in([headline.k, headline.next_k]))
    marks = [
        (k, mean, f"{mean:.2f} with {k}")
        for k, mean in named.select("k", "mean").iter_rows()
    ]
    chance = named["chance"][0]  # it may differ between k
    return SvgPicture(
        f"{results.corpus}: mAP against k",
        lines,
        "mAP",
        SvgLine(f"chance {chance:.2f}", best["k"].to_list(), best["chance"].to_list()),
        evaluation.complete_shots,
        marks,
    )


def show_spreads(results: CorpusResults, best: str, name: str) -> Markup:
    """Return the mAP of the best encoder with its three intervals, the widest first."""
    evaluation = results.evaluation
    curve = evaluation.curve.filter(encoder=best, scoring="all", metric="map")
    lines = []
    for number, spread in enumerate(reversed(evaluation.spreads)):
        points = curve.filter(spread=spread)
        width = (points["p99"] - points["p01"]).mean()
        text = f"{spread}: ±{width / 2:.3f}" if isinstance(width, float) else spread
        lines.append(_make_line(points, text, band=True, colour=number))
    title = f"{results.corpus}: mAP of {best} with the interval of each spread"
    picture = SvgPicture(title, lines, "mAP", None, evaluation.complete_shots)
    return render("spread_curve", picture, share_scale([picture]), name)


def show_matrix(results: CorpusResults, k: int) -> Markup:
    """Return the AP of every encoder for every call type at k, as a table with shaded cells."""
    points = _class_points(results).filter(k=k)
    if points.is_empty():
        return Markup()
    by_cell = points.rows_by_key(["label", "encoder"], named=True, unique=True)
    labels = [count.label for count in results.evaluation.eligible_classes]
    encoders = results.evaluation.encoders
    return render("matrix", k, encoders, labels, by_cell, SHADES)


def show_multiples(results: CorpusResults) -> Markup:
    """Return the curves of every call type, one picture each, on the same axes."""
    all_points = _class_points(results)
    if all_points.is_empty():
        return Markup()
    encoders = results.evaluation.encoders
    pictures = []
    for count in results.evaluation.eligible_classes:
        points = all_points.filter(label=count.label)
        lines = [
            _make_line(points.filter(encoder=encoder), colour=number % COLOURS)
            for number, encoder in enumerate(encoders)
        ]
        pictures.append(SvgPicture(count.label, lines, "AP"))
    scale = replace(share_scale(pictures), width=SMALL_WIDTH, height=SMALL_HEIGHT)
    return render("multiples", encoders, pictures, scale, COLOURS)


def _class_points(results: CorpusResults) -> Frame:
    evaluation = results.evaluation
    spread = main_spread(evaluation)
    return evaluation.per_class.filter(scoring="all", metric="map", spread=spread)
