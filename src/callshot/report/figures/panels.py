"""Curves → panels, one per encoder, and what all panels against k have in common: their axis, limits and bands.

Shots stand at equal distances, whatever their k.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from callshot.errors import OptionError
from callshot.records import Baseline, Curve, Evaluation
from callshot.report.figures.style import EDGE, TITLE_PT, FigureStyle
from callshot.report.figures.text_fit import shorten, width_pt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRIC_NAMES = {"map": "mAP", "auroc": "AUROC", "accuracy": "accuracy"}
SHOTS = "k, exemplars per class"


@dataclass(frozen=True)
class Panel:
    """What one panel shows: an encoder's points of one spread, those of `shared` if they go beside it, its rivals."""

    encoder: str
    points: Sequence[Curve]
    shared: Sequence[Curve]
    baselines: Sequence[Baseline]


def make_panels(
    evaluation: Evaluation,
    metric: str,
    spread: str = "per-query",
    scoring: str = "all",
    baselines: Sequence[Baseline] = (),
) -> list[Panel]:
    """Return a panel for every encoder; a spread that was not evaluated gives way to the one that was."""
    points = [c for c in evaluation.curve if c.metric == metric and c.scoring == scoring]
    if not points:
        there = (
            ", ".join(dict.fromkeys(c.metric for c in evaluation.curve if c.scoring == scoring))
            or "none"
        )
        raise OptionError(f"figure: there is no curve of {metric}; there are {there}")
    first = spread if any(c.spread == spread for c in points) else points[0].spread
    beside = "shared" if first != "shared" else ""
    known = [
        r
        for r in baselines
        if (r.corpus, r.metric, r.scoring) == (evaluation.corpus, metric, scoring)
    ]
    return [
        Panel(
            name,
            pick(points, name, first),
            pick(points, name, beside),
            [r for r in known if r.encoder in ("", name)],
        )
        for name in dict.fromkeys(c.encoder for c in points)
    ]


def pick(points: Sequence[Curve], encoder: str, spread: str) -> list[Curve]:
    """Return an encoder's points of one spread, in the order of k."""
    return sorted(
        (c for c in points if c.encoder == encoder and c.spread == spread), key=lambda c: c.k
    )


def limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return the ends of an axis that holds every interval, every rival, and chance."""
    points = [c for panel in panels for c in (*panel.points, *panel.shared)]
    baselines = [r.value for panel in panels for r in panel.baselines]
    return spaced((*(x for c in points for x in (c.p01, c.p99, c.chance)), *baselines))


def spaced(values: Iterable[float], low: float = -0.02, high: float = 1.02) -> tuple[float, float]:
    """Return the ends of an axis that holds all values with some air, and no more than `low` to `high`."""
    ends = [x for x in values if isfinite(x)] or [0.0, 1.0]
    air = 0.06 * (max(ends) - min(ends)) or 0.05
    return max(min(ends) - air, low), min(max(ends) + air, high)


def title(at: "Axes", name: str, room_in: float) -> None:
    """Write a name above a panel, as much of it as there is room for."""
    at.set_title(shorten(name, room_in * 72, TITLE_PT, "bold"))


def number_shots(at: "Axes", shots: Sequence[int], room_in: float) -> None:
    """Number the shots on the axis below, as far as there is room."""
    at.set_xlim(-0.75, len(shots) - 0.25)
    shown = ticks(shots, room_in * 72)
    at.set_xticks(shown, [str(shots[i]) for i in shown])


def ticks(shots: Sequence[int], room_pt: float) -> list[int]:
    """Return the places of the shots to number: round ones, the first, and so many that none touch."""
    pitch = room_pt / max(len(shots) + 0.5, 2.0)
    every = list(range(len(shots)))
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        places = [i for i, k in enumerate(shots) if i == 0 or k % step == 0]
        apart = _apart(places, shots, pitch)
        if apart == every or (1 < len(places) <= room_pt / 22):
            return apart
    return _apart(every, shots, pitch)


def _apart(places: Sequence[int], shots: Sequence[int], pitch: float) -> list[int]:
    """Leave out the places whose numbers would touch that of the place before."""
    kept, end = [], float("-inf")
    for i in places:
        half = width_pt(str(shots[i]), 7) / 2
        if i * pitch - half >= end + 3:
            kept.append(i)
            end = i * pitch + half
    return kept


def mark_edge(at: "Axes", complete: int, shots: int) -> None:
    """Draw a line behind the last complete shot, where there is one that is partial."""
    if complete < shots:
        at.axvline(complete - 0.5, **EDGE)


def draw_band(at: "Axes", low: Sequence[float], high: Sequence[float], look: FigureStyle) -> None:
    """Draw an interval over k as a band; that of a single shot is made wide enough to be seen."""
    wide = len(low) == 1
    x = [-0.12, 0.12] if wide else list(range(len(low)))
    at.fill_between(x, list(low) * (1 + wide), list(high) * (1 + wide), linewidth=0, **look)


def draw_line(at: "Axes", values: Sequence[float], look: FigureStyle) -> None:
    """Draw a line over k; where shots are many, not each has a marker."""
    every = max(1, round(len(values) / 8))
    at.plot(range(len(values)), values, markersize=2.6, markevery=every, markeredgewidth=0, **look)
