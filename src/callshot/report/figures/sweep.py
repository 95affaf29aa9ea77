"""An evaluation → a figure of its k-shot curves, as PDF and PNG.

One panel per encoder: at each k a box of the quartiles with whiskers from the 1st to the 99th percentile and a marker
at the mean, over a band for the `shared` spread and a line at chance. At the foot: the new exemplars of each k, and k*.
"""

import io
import os
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callshot.errors import OptionError
from callshot.records import Curve, Evaluation
from callshot.report.staging import explained

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = dict[str, Any]

METRIC_NAMES = {"map": "mAP", "auroc": "AUROC", "accuracy": "accuracy"}
METADATA: Look = {"pdf": {"Creator": "callshot", "CreationDate": None}, "png": {"Software": "callshot"}}

# The blue, vermilion and orange of Okabe and Ito; dark lines on light areas keep apart without colour, too.
INK, BLUE, VERMILION = "#1F1F1F", "#0072B2", "#D55E00"
BOX: Look = {"facecolor": "#B9DAEC", "edgecolor": BLUE, "linewidth": 0.6, "zorder": 3}
WHISKER: Look = {"color": BLUE, "linewidth": 0.7, "zorder": 2.5}
MEDIAN: Look = {"color": BLUE, "linewidth": 0.9, "zorder": 4}
MEAN: Look = {"color": INK, "linestyle": "none", "marker": "o", "markeredgewidth": 0, "zorder": 5}
BAND: Look = {"facecolor": "#FBE7C0", "edgecolor": "none", "zorder": 1.5}
BAND_MEAN: Look = {"color": VERMILION, "linewidth": 0.8, "zorder": 2}
CHANCE: Look = {"color": INK, "linewidth": 0.9, "linestyle": (0, (1, 1.6)), "zorder": 2}
BEST: Look = {"color": "#6E6E6E", "linewidth": 0.7, "linestyle": (0, (4, 2)), "zorder": 1}
COMPLETE, PARTIAL = "#6E6E6E", "#C4C4C4"

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#EBEBEB",
    "grid.linewidth": 0.5,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 4,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.8,
    "pdf.fonttype": 42,
    "savefig.dpi": 160,
}


@dataclass(frozen=True)
class Panel:
    """What one panel shows: an encoder's points of one spread, and those of `shared` where they go beside it."""

    encoder: str
    points: Sequence[Curve]
    shared: Sequence[Curve]


def draw_sweep(evaluation: Evaluation, path_stem: Path, metric: str = "map", spread: str = "per-query") -> list[Path]:
    """Draw one metric against k for every encoder; write `path_stem` with .pdf and .png, and return both paths.

    Shots stand at equal distances, whatever their k. A spread that was not evaluated gives way to the one that was.
    Equal evaluations give equal bytes.
    """
    import matplotlib
    from matplotlib.figure import Figure

    panels = _panels(evaluation, metric, spread)
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that the font lacks
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        figure = Figure(layout="constrained")
        _compose(figure, panels, evaluation.complete_shots, METRIC_NAMES.get(metric, metric))
        figure.legend(*_legend(panels), loc="outside upper center", ncols=4)
        return [_save(figure, path_stem, kind) for kind in ("pdf", "png")]


def _panels(evaluation: Evaluation, metric: str, spread: str) -> list[Panel]:
    points = [c for c in evaluation.curve if c.metric == metric and c.scoring == "all"]
    if not points:
        there = ", ".join(dict.fromkeys(c.metric for c in evaluation.curve)) or "none"
        raise OptionError(f"figure: there is no curve of {metric}; there are {there}")
    first = spread if any(c.spread == spread for c in points) else points[0].spread
    beside = "shared" if first != "shared" else ""
    encoders = dict.fromkeys(c.encoder for c in points)
    return [Panel(name, _pick(points, name, first), _pick(points, name, beside)) for name in encoders]


def _pick(points: Sequence[Curve], encoder: str, spread: str) -> list[Curve]:
    return sorted((c for c in points if c.encoder == encoder and c.spread == spread), key=lambda c: c.k)


def _compose(figure: "Figure", panels: Sequence[Panel], best: int, metric: str) -> None:
    """Lay the panels out in one column, in two from four encoders on, each column with new exemplars at its foot."""
    wide = 2 if len(panels) > 3 else 1
    high = -(-len(panels) // wide)
    figure.set_size_inches(7.2, 1.2 + high * (1.5 if wide == 2 else 1.75))
    grid = figure.subplots(high + 1, wide, squeeze=False, sharex=True, height_ratios=[1] * high + [0.36])
    for at in grid[:, 0]:
        at.set_ylabel(metric)
    grid[-1, 0].set_ylabel("new\nexemplars")
    for at in grid[:, 1:].flat:
        at.tick_params(labelleft=False)
    _draw_panels(list(grid[:-1].flat), panels, 88 // wide)
    for at in grid[-1]:
        _draw_foot(at, panels[0].points, 20 // wide)
    for at in grid.flat:
        _mark_best(at, panels[0].points, f"k* = {best}" if at in grid[-1] else "")
    figure.align_ylabels(grid[:, 0])


def _draw_panels(axes: Sequence["Axes"], panels: Sequence[Panel], letters: int) -> None:
    limits = _limits(panels)
    for at, panel in zip(axes, panels, strict=False):
        _draw_panel(at, panel)
        at.set_title(_shorten(panel.encoder, letters), parse_math=False)
        at.set_ylim(limits)
    for at in axes[len(panels) :]:
        at.set_visible(False)


def _limits(panels: Sequence[Panel]) -> tuple[float, float]:
    """Return the ends of an axis that holds every interval, and chance."""
    points = [c for panel in panels for c in (*panel.points, *panel.shared)]
    ends = [x for c in points for x in (c.p01, c.p99, c.chance) if isfinite(x)] or [0.0, 1.0]
    air = 0.06 * (max(ends) - min(ends)) or 0.05
    return max(min(ends) - air, -0.02), min(max(ends) + air, 1.02)


def _draw_panel(at: "Axes", panel: Panel) -> None:
    points, x, half = panel.points, range(len(panel.points)), _half_width(panel.points)
    if panel.shared:
        _draw_band(at, panel.shared)
    at.axhline(points[0].chance, **CHANCE)
    at.vlines(x, [c.p01 for c in points], [c.p99 for c in points], **WHISKER)
    at.bar(x, [c.p75 - c.p25 for c in points], 2 * half, [c.p25 for c in points], **BOX)
    at.hlines([c.p50 for c in points], [i - half for i in x], [i + half for i in x], **MEDIAN)
    at.plot(x, [c.mean for c in points], markersize=max(1.7, min(4.0, 68 / len(points))), **MEAN)


def _half_width(points: Sequence[Curve]) -> float:
    """Return half the width of a box, in steps of k: few shots do not make broad ones."""
    return min(0.31, 0.025 * len(points) + 0.015)


def _draw_band(at: "Axes", points: Sequence[Curve]) -> None:
    """Draw an interval over k as a band; that of a single shot is made wide enough to be seen."""
    x, ends = ([-0.12, 0.12], [*points, *points]) if len(points) == 1 else (range(len(points)), points)
    at.fill_between(x, [c.p01 for c in ends], [c.p99 for c in ends], **BAND)
    at.plot(x, [c.mean for c in ends], **BAND_MEAN)


def _draw_foot(at: "Axes", points: Sequence[Curve], ticks: int) -> None:
    colours = [COMPLETE if c.complete else PARTIAL for c in points]
    at.bar(range(len(points)), [c.new_exemplars for c in points], 2 * _half_width(points), color=colours)
    most = max(max(c.new_exemplars for c in points), 1)
    at.set_ylim(0, most * 1.7)
    at.set_yticks([0, most])
    at.set_xlim(-0.75, len(points) - 0.25)
    shown = _ticks([c.k for c in points], ticks)
    at.set_xticks(shown, [str(points[i].k) for i in shown])
    at.set_xlabel("k, exemplars per class")


def _ticks(shots: Sequence[int], most: int) -> list[int]:
    """Return the places of the shots to number: round ones, the first, and not too many."""
    for step in (1, 2, 5, 10, 20, 50, 100, 200, 500):
        places = [i for i, k in enumerate(shots) if i == 0 or k % step == 0]
        if len(places) <= most:
            return places
    return list(range(0, len(shots), -(-len(shots) // most)))


def _mark_best(at: "Axes", points: Sequence[Curve], label: str) -> None:
    """Draw a line behind the last complete shot, and name it; where every shot is complete, the name alone."""
    complete = sum(c.complete for c in points)
    left = complete > 0.8 * len(points)
    if complete < len(points):
        at.axvline(complete - 0.5, **BEST)
    at.annotate(
        label,
        xy=(complete - 0.5, 0.98),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if left else 4, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="top",
    )


def _shorten(name: str, letters: int) -> str:
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    half = (letters - 1) // 2
    return name if len(name) <= letters else f"{name[:half]}…{name[-half:]}"


def _legend(panels: Sequence[Panel]) -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    whisker = Line2D([], [], marker="|", markersize=11, markeredgewidth=0.7, color=BLUE, linestyle="none")
    box = Line2D([], [], marker="s", markersize=6, color=BOX["facecolor"], markeredgecolor=BLUE, markeredgewidth=0.6)
    box.set_linestyle("none")
    mean, spread = Line2D([], [], markersize=2.5, **MEAN), panels[0].points[0].spread
    entries: dict[str, Any] = {f"{spread}: mean, quartiles, 1st–99th percentile": (whisker, box, mean)}
    if any(panel.shared for panel in panels):
        entries["shared: mean, 1st–99th percentile"] = Patch(**BAND), Line2D([], [], **BAND_MEAN)
    entries["chance"] = Line2D([], [], **CHANCE)
    return list(entries.values()), list(entries)


def _save(figure: "Figure", path_stem: Path, kind: str) -> Path:
    """Write a figure beside its place, then move it there: an interrupt leaves no half of one."""
    path, picture = path_stem.with_name(f"{path_stem.name}.{kind}"), io.BytesIO()
    figure.savefig(picture, format=kind, metadata=METADATA[kind])
    with explained(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".callshot-", dir=path.parent) as folder:
            (Path(folder) / path.name).write_bytes(picture.getvalue())
            os.replace(Path(folder) / path.name, path)  # noqa: PTH105
    return path
