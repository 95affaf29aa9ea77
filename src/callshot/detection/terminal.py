"""Results of scans, and scores of detections → tables and lines on a terminal."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from callshot.corpus.segments import group_rejects
from callshot.detection.background import WITHOUT_CALLS
from callshot.detection.detector import HIGHEST_AIM
from callshot.detection.scan import ScanResult
from callshot.detection.scan_files import FORMATS, INDEX_FOLDER, TABLES
from callshot.detection.score import DetectionScores
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
ALL_CLASSES = "all classes"
MISSING = "–"
MAX_REASONS = 5
MAX_NOTES = 8
MAX_EVENTS = 5  # the strongest, on screen


def show_scores(result: DetectionScores, console: Console) -> None:
    """Print the scores of every class, thresholds and call density, then rejects and notes."""
    print_lines(console, [f"note: {line}" for line in result.warnings], "yellow")
    for by in unique_values(result.scores, "by"):
        _show_scores(result.scores.filter(by=by), by, console)
    if len(result.scores) > 0:
        print_lines(console, COLUMN_NOTES, "dim")
    print_lines(console, _describe_thresholds(result.thresholds))
    _show_density(result.density, console)
    show_rejects(result.rejects, console)
    print_lines(console, [f"note: {note}" for note in result.notes], "yellow")


def _show_scores(rows: Frame, by: str, console: Console) -> None:
    table = make_table(f"by {by}", *COUNTS.values(), *HEADINGS)
    table.columns[0].no_wrap = False
    table.padding = (0, 1, 0, 0)  # room for labels in 80 columns
    for row in rows.iter_rows(named=True):
        counts = [str(row[name]) for name in COUNTS]
        cells = [_format_score(row, metric) for metric in DETECTION_METRICS]
        label = row["label"]
        name = Text(ALL_CLASSES, "bold") if label is None else Text(printable(label))
        table.add_row(name, *counts, *cells)
    console.print(table)
    print_lines(console, [_describe_found(rows.row(-1, named=True))])


def _describe_found(total: dict[str, Any]) -> str:
    """Return what the detections of all classes are."""
    outcomes = [
        f"{total['correct']} correct",
        f"{total['wrong_name']} with a wrong name",
        f"{total['misplaced']} misplaced",
        count_text(total["false_alarms"], "false alarm"),
    ]
    return f"of {total['detected']} found: {', '.join(outcomes)}"


def _format_score(row: dict[str, float | None], metric: str) -> str:
    """Return a value and, on a second line, its interval; of F1 the value only, for its room."""
    value = row[metric]
    if value is None:
        return MISSING
    digits = ".3g" if metric == "false_alarms_per_hour" else ".2f"
    text = format(value, digits)
    if metric == "f1":
        return text
    low = format(row[f"{metric}_p01"], digits)
    high = format(row[f"{metric}_p99"], digits)
    return f"{text}\n[dim]{low}–{high}[/dim]"


def _describe_thresholds(thresholds: Frame) -> Iterator[str]:
    for row in thresholds.iter_rows(named=True):
        alarms = count_text(row["aim_per_hour"], "false alarm")
        aim = f"{row['label']}: at most {alarms} per hour"
        if row["threshold"] is None:
            yield f"{aim}: no threshold of these detections meets it"
            continue
        lower = ""
        if row["is_lowest"]:
            lower = "; all detections meet it, a lower threshold may too"
        recall = "unknown" if row["recall"] is None else f"{row['recall']:.2f}"
        found = f"recall by {row['by']} {recall}"
        yield f"{aim}: score {row['threshold']:.6g} or more, {found}{lower}"


def _show_density(density: Frame, console: Console) -> None:
    if density.is_empty():
        return
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
    for row in relabelled.iter_rows(named=True):
        line = (
            f"{row['label']}: {row['relabelled']} of the calls are detections of other labels "
            "that reviewers gave this one"
        )
        print_lines(console, [line], "dim")


def show_rejects(rejects: Sequence[Reject], console: Console) -> None:
    """Print how many rows were left out, and the first of each reason."""
    if not rejects:
        return
    print_lines(
        console,
        [f"left out: {count_text(len(rejects), 'row or file', 'rows or files')}"],
    )
    groups = group_rejects(rejects)[:MAX_REASONS]
    print_lines(console, map(describe_rejects, groups), "dim")


def show_scan(result: ScanResult, out: Path, console: Console) -> None:
    """Print the events of each class, the strongest ones, what was left out, and what is next."""
    _show_classes(result, console)
    _show_strongest(result.events, console)
    print_lines(console, _describe(result))
    show_rejects(result.rejects, console)
    notes = [f"note: {note}" for note in result.notes]
    print_lines(console, notes[:MAX_NOTES], "yellow")
    if len(notes) > MAX_NOTES:
        rest = count_text(len(notes) - MAX_NOTES, "more note")
        print_lines(console, [f"and {rest}"], "yellow")
    print_lines(console, _describe_next(result, out))


def _show_classes(result: ScanResult, console: Console) -> None:
    table = make_table("class", "events", "per hour", "threshold")
    for row in result.per_class.iter_rows(named=True):
        table.add_row(
            Text(printable(row["label"])),
            f"{row['events']:,}",
            f"{row['events_per_hour']:.3g}",
            f"{row['threshold']:.4g}",
        )
    console.print(table)


def _show_strongest(events: Frame, console: Console) -> None:
    if events.is_empty():
        return
    table = make_table("strongest events", "start", "end", "class", "score")
    for row in events.top_k(MAX_EVENTS, by="score").iter_rows(named=True):
        table.add_row(
            Text(printable(row["recording"])),
            f"{row['start_s']:.1f} s",
            f"{row['end_s']:.1f} s",
            Text(printable(row["label"])),
            f"{row['score']:.4g}",
        )
    console.print(table)


def _describe(result: ScanResult) -> Iterator[str]:
    yield (
        f"{count_text(len(result.events), 'event')} in {result.hours:.2f} h of "
        f"{count_text(len(result.recordings), 'recording')}; a detection in "
        f"{result.active:,} of {count_text(result.windows, 'window')}"
    )
    yield (
        f"aim: {count_text(result.false_alarms, 'false alarm')} per hour and class; "
        f"thresholds from {result.detector.origin}"
    )


def _describe_next(result: ScanResult, out: Path) -> Iterator[str]:
    table = out / TABLES["csv"]
    if result.events.is_empty():
        yield from _describe_nothing(result)
    else:
        yield "; ".join([f"events in {table}", *_describe_formats(out)])
        yield f"next, to listen and correct: callshot review {out}"
        yield f"next: callshot score {table} ANNOTATIONS --out scores"
    if result.index.folder == out / INDEX_FOLDER:
        yield (
            f"next time in seconds: callshot scan MODEL {result.index.folder} --out DIR "
            "(another model or aim; --clips 5 to listen)"
        )


def _describe_nothing(result: ScanResult) -> Iterator[str]:
    """Yield what to do if nothing was found, what helps most first."""
    model = result.adapted_model or result.model
    background = model.background
    more = "what helps most is background"
    if background is not None and WITHOUT_CALLS in background.origins:
        more = "what helps most is more background"
    yield (
        f"nothing was found; {more}, recordings or minutes of these places without calls: "
        "callshot learn EXAMPLES --background DIR"
    )
    yield (
        "without thresholds, the windows most similar to one call, the best first: "
        f"callshot find EXAMPLE.wav@START-END {result.index.folder}"
    )
    aim = min(10 * result.false_alarms, HIGHEST_AIM)
    if aim > result.false_alarms:
        yield f"--false-alarms {aim:g}/h lowers the thresholds"


def _describe_formats(out: Path) -> Iterator[str]:
    for name in FORMATS:
        if (out / name).is_dir():
            yield f"for {name.capitalize()} in {out / name}"
