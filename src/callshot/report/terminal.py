"""An evaluation → what a terminal shows: a headline, a table of the curve and a chart; elsewhere, plain lines."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isfinite

import polars as pl
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from callshot.errors import printable
from callshot.records import Evaluation

Line = tuple[str, str]  # a text and its style
Cells = dict[tuple[int, int], Line]  # by column and row, from the top left

SPREADS = {
    "per-query": "over bootstrap samples",
    "shared": "over labelled sets; query sampling is not in it",
}
MOST_REASONS, MOST_SHOTS = 6, 12
ROUND_SHOTS = {1, 2, 3, 4, 5, *(n * 10**e for e in range(6) for n in (10, 15, 20, 30, 40, 60, 80))}
COLOURS, MARKS, ASCII_MARKS = (
    ("blue", "red", "green", "magenta", "cyan", "yellow"),
    "●▲■◆▼○",
    "ox+*#@",
)
ASCII = str.maketrans("⋆–…┤│└─┈░", "*-.||+-.:")
BRAILLE = (
    (0x01, 0x02, 0x04, 0x40),
    (0x08, 0x10, 0x20, 0x80),
)  # by column and row of a dot in its cell
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)


@dataclass(frozen=True)
class Series:
    """One line of a chart: its mean at each k and, where they are known, the ends of its interval."""

    name: str
    k: Sequence[int]
    mean: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def show_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print an evaluation: on a terminal with colours and a chart, and in ASCII where its encoding has no more."""
    width, ascii = max(console.width, 40), _needs_ascii(console)
    texts = [Text(text, style) for text, style in _lines(evaluation, width)]
    if console.is_terminal:
        points = evaluation.curve.filter(metric="map", scoring="all")
        spread = points["spread"][0]
        series = list(_series(points.filter(spread=spread)))
        texts.append(Text(f"\nmAP against k, {spread}", "bold"))
        texts.append(_chart(series, width, 15, ascii, points["chance"][0]))
    for text in texts:
        if ascii:
            text.plain = (
                text.plain.translate(ASCII)
                .encode(console.encoding, "replace")
                .decode(console.encoding)
            )
        console.print(text, soft_wrap=not console.is_terminal)


def _needs_ascii(console: Console) -> bool:
    try:
        (MARKS + "⣿⋆–│┈░").encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return True
    return console.legacy_windows


def _lines(evaluation: Evaluation, width: int) -> Iterator[Line]:
    folds, classes = evaluation.folds, sum(c.eligible for c in evaluation.classes)
    how = f"{folds.origin} ({folds.proof})" if folds.origin == "built" else folds.origin
    counts = f"{classes} classes, {evaluation.queries} queries, {folds.count} folds {how}"
    yield printable(f"{evaluation.corpus}: {counts}, k* = {evaluation.complete_shots}"), "bold"
    yield from ((printable(text), "dim") for text in _ineligible(evaluation))
    yield from _table(evaluation, width)
    yield from ((printable(f"note: {note}"), "yellow") for note in evaluation.notes)


def _ineligible(evaluation: Evaluation) -> Iterator[str]:
    left_out = [c for c in evaluation.classes if not c.eligible]
    if left_out:
        yield f"not eligible: {len(left_out)} of {len(evaluation.classes)} classes"
    yield from (f"  {c.label} ({c.exemplars}): {c.reason}" for c in left_out[:MOST_REASONS])
    if len(left_out) > MOST_REASONS:
        yield f"  and {len(left_out) - MOST_REASONS} more, see classes.csv"


def shown_shots(shots: Sequence[int]) -> list[int]:
    """Return the shots there is room for: all of a few, else the round ones and the ends.

    >>> shown_shots(range(1, 38))
    [1, 2, 3, 4, 5, 10, 15, 20, 30, 37]
    """
    few = len(shots) <= MOST_SHOTS
    return [k for k in shots if few or k in ROUND_SHOTS or k in (shots[0], shots[-1])]


def _table(evaluation: Evaluation, width: int) -> Iterator[Line]:
    """Tell the curve, as many encoders side by side as there is room for, and what its signs mean."""
    shots, best = shown_shots(sorted(set(evaluation.curve["k"]))), evaluation.complete_shots
    star = next((k for k in shots if k >= best), None)
    lead = [
        text.rjust(6)
        for text in ("", "k  ", *(f"{k} {'⋆' if k == star else ' '}" for k in shots), "chance")
    ]
    units = list(_units(evaluation, shots, width - 8))
    size = max((width - 6) // (2 + cell_len(units[0][0])), 1)
    for start in range(0, len(units), size):
        yield "", ""
        for n, row in enumerate(zip(lead, *units[start : start + size], strict=True)):
            yield (
                "  ".join(row).rstrip(),
                "bold" if n == 0 or "⋆" in row[0] else "dim" if n in (1, len(lead) - 1) else "",
            )
    yield "", ""
    if star is not None:
        yield (
            f"⋆ {'' if star == best else 'the first row beyond '}k* = {best}; beyond k*, support is partial",
            "dim",
        )
    for spread in evaluation.curve["spread"].unique(maintain_order=True):
        yield f"{spread}: mean [1st–99th percentile] {SPREADS.get(spread, '')}", "dim"


def _units(evaluation: Evaluation, shots: Sequence[int], room: int) -> Iterator[list[str]]:
    """Make a block of lines for every encoder and scoring, or for each of its columns if there is no room for all."""
    for points in evaluation.curve.partition_by("encoder", "scoring", maintain_order=True):
        encoder, scoring = points.select("encoder", "scoring").row(0)
        name = printable(encoder if scoring == "all" else f"{encoder}, {scoring}")
        columns = list(_columns(points, shots))
        rows = ["  ".join(row) for row in zip(*columns, strict=True)]
        for unit in [rows] if len(rows[0]) <= room else columns:
            yield [_crop(name, len(unit[0])), *unit]


def _columns(points: pl.DataFrame, shots: Sequence[int]) -> Iterator[list[str]]:
    """Tell mAP with each spread, and AUROC with the first, from the head down to chance."""
    spreads = points["spread"].unique(maintain_order=True)
    for metric, spread in [*(("map", spread) for spread in spreads), ("auroc", spreads[0])]:
        curve = points.filter(metric=metric, spread=spread)
        interval = " [{p01:.3f}–{p99:.3f}]" if metric == "map" else ""
        texts = {
            point["k"]: ("{mean:.3f}" + interval).format(**point)
            for point in curve.iter_rows(named=True)
        }
        head = f"mAP {spread}" if metric == "map" else "AUROC"
        column = [head, *(texts.get(k, "") for k in shots), f"{curve['chance'][0]:.3f}"]
        yield [text.ljust(max(map(len, column))) for text in column]


def _crop(text: str, width: int) -> str:
    return set_cell_size(
        text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…", width
    )


def _series(points: pl.DataFrame) -> Iterator[Series]:
    for curve in points.partition_by("encoder", maintain_order=True):
        columns = [curve[name].to_list() for name in ("k", "mean", "p01", "p99")]
        yield Series(printable(curve["encoder"][0]), *columns)


@dataclass(frozen=True)
class _Frame:
    """Where shots and values lie, in dots from the top left, on a grid of cells that are some dots wide and high."""

    columns: int
    rows: int
    across: int
    down: int
    shots: Sequence[int]
    ticks: Sequence[float]

    def x(self, k: int) -> int:
        share = self.shots.index(k) / (len(self.shots) - 1) if len(self.shots) > 1 else 0.5
        return round(share * (self.columns * self.across - 1))

    def y(self, value: float) -> int:
        return round(
            (self.ticks[-1] - value)
            / (self.ticks[-1] - self.ticks[0])
            * (self.rows * self.down - 1)
        )

    def dots(self, shots: Sequence[int], values: Sequence[float]) -> list[tuple[int, int]]:
        return [
            (self.x(k), self.y(value))
            for k, value in zip(shots, values, strict=False)
            if isfinite(value)
        ]


def draw_chart(
    series: Sequence[Series], width: int, height: int, ascii: bool, chance: float | None = None
) -> str:
    """Draw means against k, shots at equal distances; with the interval, where there is one series only."""
    plain = _chart(series, width, height, ascii, chance).plain
    return plain.translate(ASCII) if ascii else plain


def _chart(
    series: Sequence[Series], width: int, height: int, ascii: bool, chance: float | None
) -> Text:
    shots = sorted({k for line in series for k in line.k})
    frame = _Frame(
        width - 6, height - 3, *((1, 1) if ascii else (2, 4)), shots, _ticks(series, chance)
    )
    marks = ASCII_MARKS if ascii else MARKS
    cells = _cells(frame, series, chance, marks)
    labels = {frame.y(value) // frame.down: f"{value:.2f}" for value in frame.ticks}
    text = Text()
    for row in range(frame.rows):
        text.append(f"{labels.get(row, ''):>4} {'┤' if row in labels else '│'}", "dim")
        text.append_tokens(cells.get((column, row), (" ", "")) for column in range(frame.columns))
        text.append("\n")
    text.append(f"     └{'─' * frame.columns}\n{_shot_labels(frame)}\n", "dim")
    return text.append_tokens(_key(series, chance, width, marks))


def _ticks(series: Sequence[Series], chance: float | None) -> list[float]:
    """Return round values that span all that is drawn, five or so."""
    drawn = [*series[0].low, *series[0].high] if len(series) == 1 else []
    values = [
        v
        for v in (*drawn, *(v for s in series for v in s.mean), chance)
        if v is not None and isfinite(v)
    ]
    step = next((step for step in STEPS if max(values) - min(values) <= 4.5 * step), 1.0)
    last = ceil(max(values) / step - 1e-9)
    return [n * step for n in range(min(floor(min(values) / step + 1e-9), last - 1), last + 1)]


def _cells(frame: _Frame, series: Sequence[Series], chance: float | None, marks: str) -> Cells:
    """Fill the cells: an interval, chance over it, then lines of dots, each with its mark on some of its points."""
    cells = _band(frame, series[0]) if len(series) == 1 else {}
    if chance is not None:
        cells |= {
            (column, frame.y(chance) // frame.down): ("┈", "dim") for column in range(frame.columns)
        }
    dots: dict[tuple[int, int], int] = defaultdict(int)
    every = ceil(8 * len(frame.shots) / frame.columns)
    for n, line in enumerate(series):
        mark, colour = marks[n % len(marks)], COLOURS[n % len(COLOURS)]
        points = frame.dots(line.k, line.mean)
        for x, y in _trace(points):
            cell = x // frame.across, y // frame.down
            dots[cell] |= BRAILLE[x % frame.across][y % frame.down]
            cells[cell] = mark if marks == ASCII_MARKS else chr(0x2800 | dots[cell]), colour
        for x, y in points[n * every // len(series) :: every]:
            cells[x // frame.across, y // frame.down] = mark, colour
    return cells


def _band(frame: _Frame, line: Series) -> Cells:
    rows: dict[int, list[int]] = defaultdict(list)
    for x, y in (dot for end in (line.low, line.high) for dot in _trace(frame.dots(line.k, end))):
        rows[x // frame.across].append(y // frame.down)
    return {
        (column, row): ("░", "dim")
        for column, ends in rows.items()
        for row in range(min(ends), max(ends) + 1)
    }


def _trace(points: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    yield from points[:1]
    for (x, y), (to_x, to_y) in pairwise(points):
        steps = max(abs(to_x - x), abs(to_y - y), 1)
        yield from (
            (x + round((to_x - x) * t / steps), y + round((to_y - y) * t / steps))
            for t in range(1, steps + 1)
        )


def _shot_labels(frame: _Frame) -> str:
    text = ""
    for k in shown_shots(frame.shots):
        start = 6 + frame.x(k) // frame.across - len(str(k)) // 2
        text += f"{'':{start - len(text)}}{k}" if not text or start > len(text) else ""
    return text


def _key(series: Sequence[Series], chance: float | None, width: int, marks: str) -> Iterator[Line]:
    room = max((width - 22) // len(series) - 4, 4)
    yield " " * 6, ""
    for n, line in enumerate(series):
        yield marks[n % 6], COLOURS[n % 6]
        yield f" {_crop(line.name, min(room, cell_len(line.name)))}  ", ""
    if chance is not None:
        yield f"┈ chance {chance:.3f}", "dim"
