"""Points and their names → names beside their points that cover neither each other nor another point."""

from collections.abc import Iterator, Sequence
from math import cos, hypot, pi, sin
from typing import TYPE_CHECKING

from callshot.records import FloatArray
from callshot.report.figures.style import INK
from callshot.report.figures.text_fit import width_pt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Box = tuple[float, float, float, float]  # left, bottom, right, top, in points
RINGS_PT, ANGLES = (6.0, 12.0, 19.0, 27.0, 36.0, 46.0, 58.0, 72.0, 88.0, 106.0), 16


def place_names(at: "Axes", points: FloatArray, names: Sequence[str], size: float) -> None:
    """Write a name beside each point (points, 2); one that had to go further away gets a line to its point.

    The layout of the figure must be done.
    """
    places = at.transData.transform(points) * 72 / at.figure.dpi
    taken = [_around(x, y, 3.5, 3.5) for x, y in places]
    left, bottom, right, top = (edge * 72 / at.figure.dpi for edge in at.bbox.extents)
    for point, (x, y), name in zip(points, places, names, strict=True):
        half = width_pt(name, size) / 2 + 1.5, 0.6 * size + 0.5
        free = (
            c
            for c in _around_point(x, y, *half)
            if _inside(c, (left, bottom, right, top)) and _clear(c, taken)
        )
        box = next(free, _around(x, y, *half))
        taken.append(box)
        shift = (box[0] + box[2]) / 2 - x, (box[1] + box[3]) / 2 - y
        _write(at, name, (float(point[0]), float(point[1])), shift, size)


def _write(
    at: "Axes", name: str, point: tuple[float, float], shift: tuple[float, float], size: float
) -> None:
    paper = {
        "boxstyle": "square,pad=0.12",
        "facecolor": "white",
        "edgecolor": "none",
        "alpha": 0.78,
    }
    far = hypot(*shift) > RINGS_PT[0] + width_pt(name, size) / 2 + size
    line = (
        {"arrowstyle": "-", "linewidth": 0.5, "color": INK, "shrinkA": 0, "shrinkB": 2}
        if far
        else None
    )
    text = at.annotate(
        name,
        point,
        shift,
        textcoords="offset points",
        ha="center",
        va="center_baseline",
        fontsize=size,
        zorder=7,
        bbox=paper,
        arrowprops=line,
    )
    text.set_in_layout(False)


def _around_point(x: float, y: float, half_width: float, half_height: float) -> Iterator[Box]:
    """Yield boxes around a point, near ones first."""
    for ring in RINGS_PT:
        for step in range(ANGLES):
            across, up = cos(2 * pi * step / ANGLES), sin(2 * pi * step / ANGLES)
            centre = x + (ring + half_width) * across, y + (ring + half_height) * up
            yield _around(*centre, half_width, half_height)


def _around(x: float, y: float, half_width: float, half_height: float) -> Box:
    return x - half_width, y - half_height, x + half_width, y + half_height


def _inside(box: Box, frame: Box) -> bool:
    return box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]


def _clear(box: Box, others: Sequence[Box]) -> bool:
    return all(box[2] <= o[0] or box[0] >= o[2] or box[3] <= o[1] or box[1] >= o[3] for o in others)
