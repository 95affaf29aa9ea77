"""Results of scans, and scores of detections → tables and lines on a terminal."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from callshot.console import describe_rejects, print_lines
from callshot.corpus.segments import group_rejects
from callshot.detection.exports import formats_for_programs
from callshot.detection.index.index_files import INDEX_FOLDER
from callshot.detection.scan import ScanResult
from callshot.detection.scan_files import EVENTS_CSV
from callshot.detection.score import DetectionScores
from callshot.detection.sentences import say
from callshot.errors import count_text
from callshot.records import Reject
from callshot.records.frames import unique_values

MAX_REASONS = 5
MAX_NOTES = 8
MAX_EVENTS = 5  # the strongest, on screen


def show_scores(result: DetectionScores, console: Console) -> None:
    """Print the scores of every class, thresholds and call density, then rejects and notes."""
    print_lines(console, [f"note: {line}" for line in result.warnings], "yellow")
    for by in unique_values(result.scores, "by"):
        print_lines(console, say("scores", by, result.scores.filter(by=by).to_dicts()))
    if len(result.scores) > 0:
        print_lines(console, say("columns"), "dim")
    print_lines(console, say("thresholds", result.thresholds.to_dicts()))
    if len(result.density) > 0:
        print_lines(console, say("density", result.density.to_dicts()))
    show_rejects(result.rejects, console)
    print_lines(console, [f"note: {note}" for note in result.notes], "yellow")


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
    has_verdicts = result.events["probability"].count() > 0
    by = "probability" if has_verdicts else "score"
    strongest = result.events.drop_nulls(by).top_k(MAX_EVENTS, by=by).to_dicts()
    print_lines(console, say("scan", result, result.per_class.to_dicts(), strongest))
    show_rejects(result.rejects, console)
    notes = [f"note: {note}" for note in result.notes]
    if len(notes) > MAX_NOTES:
        rest = count_text(len(notes) - MAX_NOTES, "more note")
        notes[MAX_NOTES:] = [f"and {rest}"]
    print_lines(console, notes, "yellow")
    formats = [name for name in formats_for_programs() if (out / name).is_dir()]
    has_own_index = result.index.folder == out / INDEX_FOLDER
    event_s = (result.events["end_s"] - result.events["start_s"]).median()
    example_s = np.median(result.model.examples.spans.durations_s)
    expected = None
    if has_verdicts:
        probability = result.events["probability"].drop_nulls().to_numpy()
        expected = (probability.sum(), len(probability))
    facts = (result, out, out / EVENTS_CSV, formats, has_own_index)
    print_lines(console, say("after_scan", *facts, (event_s, example_s), expected))
