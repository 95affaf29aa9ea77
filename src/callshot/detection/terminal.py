"""Results of scans, and scores of detections → tables and lines on a terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from callshot.corpus.segments import group_rejects
from callshot.detection.scan import ScanResult
from callshot.detection.scan_files import EVENTS_CSV, FORMATS, INDEX_FOLDER
from callshot.detection.score import DetectionScores
from callshot.detection.sentences import say
from callshot.errors import count_text, printable
from callshot.records import Reject
from callshot.records.frames import DETECTION_METRICS, Frame, unique_values
from callshot.report.terminal import describe_rejects, make_table, print_lines

COUNTS = {
    "annotated": "calls",
    "detected": "found",
    "wrong_name": "wrong\nname",
}
HEADINGS = ("precision", "recall", "F1", "AP", "false\nalarms/h")
COLUMN_NOTES = (
    "wrong name: on a call of another class; misplaced: on a call of the class that is found "
    "already, or that it fits too badly; false alarm: on no annotated call",
    "below each value: 1st–99th percentile over recordings",
)
MAX_REASONS = 5
MAX_NOTES = 8
MAX_EVENTS = 5  # the strongest, on screen


def show_scores(result: DetectionScores, console: Console) -> None:
    """Print the scores of every class, thresholds and call density, then rejects and notes."""
    print_lines(console, [f"note: {line}" for line in result.warnings], "yellow")
    for by in unique_values(result.scores, "by"):
        rows = result.scores.filter(by=by).rows(named=True)
        table = make_table(f"by {by}", *COUNTS.values(), *HEADINGS)
        table.columns[0].no_wrap = False
        table.padding = (0, 1, 0, 0)  # room for labels in 80 columns
        for row in rows:
            counts = [str(row[name]) for name in COUNTS]
            cells = [_format_score(row, metric) for metric in DETECTION_METRICS]
            name = Text(printable(row["label"] or ""))
            if row["label"] is None:
                name = Text("all classes", "bold")
            table.add_row(name, *counts, *cells)
        console.print(table)
        print_lines(console, say("found_of", rows[-1]))
    if len(result.scores) > 0:
        print_lines(console, COLUMN_NOTES, "dim")
    print_lines(console, say("thresholds", result.thresholds.to_dicts()))
    if len(result.density) > 0:
        _show_density(result.density, console)
    show_rejects(result.rejects, console)
    print_lines(console, [f"note: {note}" for note in result.notes], "yellow")


def _format_score(row: dict[str, float | None], metric: str) -> str:
    """Return a value and, on a second line, its interval; of F1 the value only, for its room."""
    digits = ".3g" if metric == "false_alarms_per_hour" else ".2f"
    names = (metric, f"{metric}_p01", f"{metric}_p99")
    value, low, high = [
        "–" if row[name] is None else format(row[name], digits) for name in names
    ]
    if row[metric] is None or metric == "f1":
        return value
    return f"{value}\n[dim]{low}–{high}[/dim]"


def _show_density(density: Frame, console: Console) -> None:
    table = make_table(
        "call density", "scores", "detections", "reviewed", "confirmed", "calls"
    )
    for row in density.iter_rows(named=True):
        name = Text(printable(row["label"]))
        if row["bin"] is None:
            scores = "all"
            name.stylize("bold")
        else:
            scores = f"{row['lowest_score']:.3g} to {row['highest_score']:.3g}"
        counts = [
            str(row[column]) for column in ("detections", "reviewed", "confirmed")
        ]
        interval = f"{row['calls_p01']:.0f}–{row['calls_p99']:.0f}"
        table.add_row(name, scores, *counts, f"{row['calls']:.0f} ({interval})")
    console.print(table)
    relabelled = density.filter(density["relabelled"] > 0)
    print_lines(console, say("relabelled", relabelled.to_dicts()), "dim")


def show_rejects(rejects: Sequence[Reject], console: Console) -> None:
    """Print how many rows were left out, and the first of each reason."""
    if not rejects:
        return
    count = count_text(len(rejects), "row or file", "rows or files")
    print_lines(console, [f"left out: {count}"])
    groups = group_rejects(rejects)[:MAX_REASONS]
    print_lines(console, map(describe_rejects, groups), "dim")


def show_scan(result: ScanResult, out: Path, console: Console) -> None:
    """Print the events of each class, the strongest ones, what was left out, and what is next."""
    table = make_table("class", "events", "per hour", "threshold")
    for row in result.per_class.iter_rows(named=True):
        rate = f"{row['events_per_hour']:.3g}"
        threshold = f"{row['threshold']:.4g}"
        name = Text(printable(row["label"]))
        table.add_row(name, f"{row['events']:,}", rate, threshold)
    console.print(table)
    if len(result.events) > 0:
        table = make_table("strongest events", "start", "end", "class", "score")
        strongest = result.events.top_k(MAX_EVENTS, by="score")
        for row in strongest.iter_rows(named=True):
            recording, label = (
                Text(printable(row[name])) for name in ("recording", "label")
            )
            times = [f"{row[name]:.1f} s" for name in ("start_s", "end_s")]
            table.add_row(recording, *times, label, f"{row['score']:.4g}")
        console.print(table)
    print_lines(console, say("scan", result))
    show_rejects(result.rejects, console)
    notes = [f"note: {note}" for note in result.notes]
    if len(notes) > MAX_NOTES:
        rest = count_text(len(notes) - MAX_NOTES, "more note")
        notes[MAX_NOTES:] = [f"and {rest}"]
    print_lines(console, notes, "yellow")
    formats = [name for name in FORMATS if (out / name).is_dir()]
    has_own_index = result.index.folder == out / INDEX_FOLDER
    facts = (result, out, out / EVENTS_CSV, formats, has_own_index)
    print_lines(console, say("after_scan", *facts))
