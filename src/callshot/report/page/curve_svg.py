"""Curves over k → a drawing in SVG that needs no scripts; colours come from the style of the page.

k is on a logarithmic axis. Pictures with the same `Scale` can be compared side by side.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log

from callshot.report.page.html import Markup, element

WIDTH = 480
HEIGHT = 310
LEFT = 46
RIGHT = 10
TOP = 14
BOTTOM = 40
NAME_CHARACTERS = 24
LINE_HEIGHT = 15
ROUND_SHOTS = (1, 2, 3, 5, 10, 20, 40, 100, 200, 500, 1000)
ROUND_SHOTS_IF_SMALL = (1, 3, 10, 40, 200, 1000)
TICK_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)
MAX_TICKS = 6

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
class SvgMark:
    """A point that the text is about, with a few words beside it."""

    k: int
    value: float
    text: str


@dataclass(frozen=True)
class Scale:
    """The ends of both axes."""

    first: int
    last: int
    low: float
    high: float
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def right(self) -> int:
        """The right end of the horizontal axis."""
        return self.width - RIGHT

    @property
    def bottom(self) -> int:
        """The place of the horizontal axis."""
        return self.height - BOTTOM

    def place(self, k: float, value: float) -> Point:
        """Return where a point is on the drawing."""
        along = log(k / self.first) / log(self.last / self.first)
        up = (value - self.low) / (self.high - self.low)
        up_inside = min(max(up, 0.0), 1.0)
        x = LEFT + (self.right - LEFT) * along
        return x, self.bottom - (self.bottom - TOP) * up_inside

    def format(self, value: float) -> str:
        """Return a value of the vertical axis."""
        return f"{value:.2f}"


@dataclass(frozen=True)
class SvgPicture:
    """What a drawing shows; the name of `chance` is written at its line, `complete` is k*."""

    title: str
    lines: Sequence[SvgLine]
    metric: str
    chance: SvgLine | None = None
    complete: int | None = None
    marks: Sequence[SvgMark] = ()


def share_scale(pictures: Sequence[SvgPicture]) -> Scale:
    """Return axes that hold everything in all pictures."""
    shots = [k for picture in pictures for line in picture.lines for k in line.shots]
    values = [value for picture in pictures for value in _all_values(picture)]
    finite = [value for value in values if isfinite(value)] or [0.0, 1.0]
    low = floor(10 * min(finite)) / 10
    high = ceil(10 * max(finite)) / 10
    if high <= low:
        high = low + 0.1
    first = min(shots, default=1)
    return Scale(first, max(max(shots, default=1), first + 1), low, high)


def _all_values(picture: SvgPicture) -> Iterator[float]:
    for line in picture.lines:
        yield from line.mean
        yield from line.low
        yield from line.high
    if picture.chance is not None:
        yield from picture.chance.mean


def draw_svg(picture: SvgPicture, scale: Scale) -> Markup:
    """Return a picture as an SVG element."""
    parts = [
        *_draw_axes(scale, picture.metric),
        *_draw_levels(picture, scale),
        *(_draw_band(line, scale) for line in picture.lines if len(line.low)),
        *(_draw_line(line, scale) for line in picture.lines),
        *_draw_names(picture, scale),
        *(part for mark in picture.marks for part in _draw_mark(mark, scale)),
    ]
    return element(
        "svg",
        element("title", picture.title),
        *parts,
        class_="curves",
        viewBox=f"0 0 {scale.width} {scale.height}",
        role="img",
    )


def _draw_axes(scale: Scale, metric: str) -> Iterator[Markup]:
    for value in _choose_values(scale):
        _, y = scale.place(scale.first, value)
        yield _path([(LEFT, y), (scale.right, y)], "grid-line")
        yield _text(LEFT - 6, y + 4, scale.format(value), "end")
    bottom = scale.bottom + 16
    for k in _choose_shots(scale):
        x, _ = scale.place(k, scale.low)
        yield _text(x, bottom, str(k), "middle")
    middle = (LEFT + scale.right) / 2
    axis = "k, examples per call type" if scale.width >= WIDTH else "k"
    yield _text(middle, scale.height - 6, axis, "middle")
    yield _text(LEFT, TOP - 4, metric, "start", "axis-name")


def _choose_values(scale: Scale) -> list[float]:
    """Return round values on the vertical axis."""
    height = scale.high - scale.low
    steps = [step for step in TICK_STEPS if height / step <= MAX_TICKS]
    step = steps[0] if steps else TICK_STEPS[-1]
    first = ceil(scale.low / step - 1e-9)
    last = floor(scale.high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _choose_shots(scale: Scale) -> list[int]:
    round_shots = ROUND_SHOTS if scale.width >= WIDTH else ROUND_SHOTS_IF_SMALL
    shots = [k for k in round_shots if scale.first <= k <= scale.last]
    if scale.last not in shots and (not shots or scale.last > 1.5 * shots[-1]):
        shots.append(scale.last)
    return shots


def _draw_levels(picture: SvgPicture, scale: Scale) -> Iterator[Markup]:
    complete = picture.complete
    if complete is not None and scale.first < complete < scale.last:
        x, _ = scale.place(complete, scale.low)
        yield _path([(x, TOP), (x, scale.bottom)], "complete")
        is_right = x > 0.85 * scale.right
        shift = -3 if is_right else 3
        anchor = "end" if is_right else "start"
        yield _text(x + shift, TOP + 9, f"k* = {complete}", anchor, "note")
    if picture.chance is not None:
        yield from _draw_chance(picture.chance, scale)


def _draw_chance(chance: SvgLine, scale: Scale) -> Iterator[Markup]:
    points = _points(chance.shots, chance.mean, scale)
    if points:
        _, y = points[0]
        yield _path(points, "chance")
        yield _text(LEFT + 4, y - 4, chance.name, "start", "note")


def _draw_band(line: SvgLine, scale: Scale) -> Markup:
    upper = _points(line.shots, line.high, scale)
    lower = _points(line.shots, line.low, scale)
    points = [*upper, *reversed(lower)]
    return _path(points, f"band colour-{line.colour}", close=True)


def _draw_line(line: SvgLine, scale: Scale) -> Markup:
    points = _points(line.shots, line.mean, scale)
    return _path(points, f"{line.class_} colour-{line.colour}")


def _points(shots: Sequence[int], values: Values, scale: Scale) -> list[Point]:
    pairs = zip(shots, values, strict=True)
    return [scale.place(k, value) for k, value in pairs if isfinite(value)]


def _draw_names(picture: SvgPicture, scale: Scale) -> Iterator[Markup]:
    """Yield the names of lines above their right ends, highest first, none over another."""
    ends = []
    for line in picture.lines:
        points = _points(line.shots, line.mean, scale)
        if line.name and points:
            ends.append((points[-1][1] - 6, line))
    lowest = float(TOP)
    for end_y, line in sorted(ends, key=lambda end: end[0]):
        y = max(end_y, lowest)
        lowest = y + LINE_HEIGHT
        class_ = f"name colour-{line.colour}"
        yield _text(scale.right - 2, y, _shorten(line.name), "end", class_)


def _draw_mark(mark: SvgMark, scale: Scale) -> Iterator[Markup]:
    x, y = scale.place(mark.k, mark.value)
    yield element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r="5", class_="mark")
    is_right = x > scale.width * 0.7
    shift = -8 if is_right else 8
    anchor = "end" if is_right else "start"
    yield _text(x + shift, y - 9, mark.text, anchor, "mark-text")


def _shorten(name: str) -> str:
    if len(name) <= NAME_CHARACTERS:
        return name
    return f"{name[: NAME_CHARACTERS - 1]}…"


def _path(points: Sequence[Point], class_: str, *, close: bool = False) -> Markup:
    places = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    data = f"M{places}{'Z' if close else ''}" if points else ""
    return element("path", d=data, class_=class_)


def _text(x: float, y: float, text: str, anchor: str, class_: str = "tick") -> Markup:
    return element(
        "text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, class_=class_
    )
