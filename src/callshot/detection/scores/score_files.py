"""Scores of detections → CSV files and pictures in a folder, all of them or none."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callshot.corpus.segment_table import REJECTS, write_rejects
from callshot.detection.scores.score import DetectionScores
from callshot.records.csv_cells import write_csv_frame
from callshot.records.frames import DETECTED, Frame, unique_values
from callshot.report.figures.figure_io import Pages, make_pages, render
from callshot.report.figures.layout import (
    PageLayout,
    add_legend,
    line_handle,
    set_titles,
)
from callshot.report.figures.style import FIRST_LINE, SECOND_LINE, Style
from callshot.report.local_folder import OutputFolder
from callshot.report.output_folder import open_output_folder
from callshot.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROVENANCE = "provenance.json"
SET = "callshot score"
FRAMES = {
    "scores.csv": "scores",
    "precision_recall.csv": "curve",
    "thresholds.csv": "thresholds",
    "outcomes.csv": "outcomes",
    "call_density.csv": "density",
}
LAYOUT = PageLayout(columns=3, rows=3, row_in=2.2, left_in=0.5, above_in=0.5)
LINES: dict[str, Style] = {"events": FIRST_LINE, "windows": SECOND_LINE}
TITLE_MARGIN_IN = 0.4

Panel = tuple[str, Frame, Frame]  # a label, its curves and its scores


def open_scores(out: Path) -> AbstractContextManager[OutputFolder]:
    """Open a folder for scores, before any work."""
    return open_output_folder(out, [*FRAMES, REJECTS], PROVENANCE, owner=SET)


def write_scores(
    output: OutputFolder,
    result: DetectionScores,
    options: Mapping[str, Any],
    *,
    figure: bool,
) -> list[Path]:
    """Write the frames that have rows, rejects, and curves as PDF and PNG; return the paths."""

    def make(folder: Path) -> list[str]:
        names = []
        for name, attribute in FRAMES.items():
            frame = getattr(result, attribute)
            if not frame.is_empty():
                write_csv_frame(frame, folder / name)
                names.append(name)
        write_rejects(result.rejects, folder / REJECTS)
        names.append(REJECTS)
        if figure:
            for page in plan_curves(result):
                names += [path.name for path in render(page, folder)]
        return names

    facts = {
        "version": __version__,
        "options": dict(options),
        "totals": _sum_up(result.scores),
        "warnings": result.warnings,
        "notes": result.notes,
    }
    return output.write(make, facts)


def _sum_up(scores: Frame) -> dict[str, dict[str, int]]:
    """Return the counts of all classes together, by events and by windows."""
    totals = scores.filter(scores["label"].is_null())
    names = ("annotated", "unreachable", *DETECTED)
    return {
        row["by"]: {name: row[name] for name in names}
        for row in totals.iter_rows(named=True)
    }


def plan_curves(result: DetectionScores) -> Pages:
    """Yield pages of precision over recall, a panel for each class that has annotations."""
    panels: list[Panel] = []
    for label in unique_values(result.curve, "label"):
        scores = result.scores.filter(label=label)
        curve = result.curve.filter(label=label)
        if scores["average_precision"].is_not_null().any():
            panels.append((label, curve, scores))
    return make_pages("precision_recall", panels, LAYOUT.capacity, _compose)


def _compose(figure: "Figure", panels: Sequence[Panel]) -> None:
    stacks, width_in = LAYOUT.add_panels(figure, len(panels), ("precision",))
    axes = stacks[:, 0]
    titles = []
    for ax, (label, curve, scores) in zip(axes, panels, strict=True):
        _draw_curves(ax, curve)
        precision = scores["average_precision"][0]
        titles.append(f"{label}, AP {precision:.2f}")
    set_titles(axes, titles, width_in - TITLE_MARGIN_IN)
    ways = unique_values(panels[0][1], "by")
    legend = {f"by {by}": line_handle(LINES[by]) for by in ways}
    add_legend(figure, legend, "recall")


def _draw_curves(ax: "Axes", curve: Frame) -> None:
    for by in unique_values(curve, "by"):
        points = curve.filter(by=by)
        step = max(1, len(points) // 8)
        ax.plot(points["recall"], points["precision"], markevery=step, **LINES[by])
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.04)
    ax.tick_params(labelbottom=True, labelleft=True)
