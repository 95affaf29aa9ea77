"""What a scan found → lines on a terminal."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.text import Text

from callshot.detection.scans.scan import ScanResult
from callshot.detection.scans.scan_files import FORMATS, INDEX_FOLDER, TABLES
from callshot.detection.scores.score_terminal import show_rejects
from callshot.errors import printable
from callshot.records.frames import Frame
from callshot.report.terminal import make_table, print_lines

MOST_NOTES = 8
MOST_EVENTS = 5  # the strongest, on screen


def show_scan(result: ScanResult, out: Path, console: Console) -> None:
    """Print the events of each class, the strongest ones, what was left out, and what is next."""
    _show_classes(result, console)
    _show_strongest(result.events, console)
    print_lines(console, _describe(result))
    show_rejects(result.rejects, console)
    notes = [f"note: {note}" for note in result.notes]
    print_lines(console, notes[:MOST_NOTES], "yellow")
    if len(notes) > MOST_NOTES:
        print_lines(console, [f"and {len(notes) - MOST_NOTES} more notes"], "yellow")
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
    for row in events.top_k(MOST_EVENTS, by="score").iter_rows(named=True):
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
        f"{len(result.events):,} events in {result.hours:.2f} h of {len(result.recordings):,} "
        f"recordings; {result.active:,} of {result.windows:,} windows have a call"
    )
    yield (
        f"aim: {result.options.false_alarms:g} false alarms per hour and class; "
        f"thresholds from {result.detector.origin}"
    )


def _describe_next(result: ScanResult, out: Path) -> Iterator[str]:
    table = out / TABLES["csv"]
    if result.events.is_empty():
        aim = 10 * result.options.false_alarms
        yield f"nothing was found; --false-alarms {aim:g}/h lowers the thresholds"
    else:
        yield "; ".join([f"events in {table}", *_describe_formats(out)])
        yield f"next, to listen and correct: callshot review {out}"
        yield f"next: callshot score {table} ANNOTATIONS --out scores"
    if result.index.folder == out / INDEX_FOLDER:
        yield (
            f"next time in seconds: callshot scan MODEL {result.index.folder} --out DIR "
            "(another model or aim; --clips 5 to listen)"
        )


def _describe_formats(out: Path) -> Iterator[str]:
    for name in FORMATS:
        if (out / name).is_dir():
            yield f"for {name.capitalize()} in {out / name}"
