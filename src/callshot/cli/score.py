"""Commands on events: score, convert."""

import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from callshot.cli.app import (
    FIELD,
    app,
    argument,
    run_with_progress,
)
from callshot.cli.options import Clips, Columns, Out, Quiet, Seed
from callshot.errors import InputError, OptionError, check_choice, count_text
from callshot.options import Given, ScoringOptions, option

if TYPE_CHECKING:
    from callshot.review.results import ReviewResults

HOURS = {"h": 1.0, "d": 24.0}
RATE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(?:/\s*(h|d))?\s*")

Recordings = Annotated[
    Path | None,
    option(..., "DIR", "Folder of all recordings, also of those without events."),
]


@app.command(rich_help_panel=FIELD)
def score(
    *,
    detections: Path = argument(
        ...,
        "DETECTIONS",
        "Detections with scores: a CSV or Parquet file, or any annotation format.",
    ),
    out: Out,
    annotations: Path | None = argument(
        None,
        "ANNOTATIONS",
        "Annotations of all calls in the recordings, made by a person: a file or a "
        "folder.",
    ),
    recordings: Recordings = None,
    reviewed: Path | None = option(
        None,
        "REVIEW",
        "Folder of callshot review, or a table of some of the detections with a column "
        "confirmed (yes or no). Estimates the precision: how many of all detections are calls.",
    ),
    columns: Columns = None,
    scoring: Annotated[Given, ScoringOptions],
    figure: bool = option(True, "", "Draw the precision-recall curves."),
    quiet: Quiet = False,
) -> None:
    """Compare detections with annotations: precision, recall, F1, AP, false alarms per hour.

    A detection is correct if it matches a call with the same label. Each detection and each call is
    matched at most once. What is not correct is counted apart: calls with a wrong name, and false
    alarms, which are on no annotated call. All scores are per class, by events and by windows, with
    intervals from a bootstrap over recordings. If calls are too short to match any detection, the
    scores by windows come first. Writes to DIR: scores.csv, precision_recall.csv, outcomes.csv (the
    outcome of every detection and call), thresholds.csv, call_density.csv, rejects.csv and the
    precision-recall curves.

    Example: callshot score detections.csv selection-tables --recordings audio --out scores
    """
    from rich.console import Console

    from callshot.detection.score import open_scores, score_detections, write_scores
    from callshot.detection.terminal import show_scores
    from callshot.review.journal import is_review
    from callshot.review.results import read_review

    aim = parse_rate(scoring.pop("false_alarms", None))
    options = asdict(ScoringOptions(**scoring, false_alarms_per_hour=aim))
    with run_with_progress("scoring", quiet=quiet), open_scores(out) as output:
        verdicts: Any = reviewed
        review_notes = []
        if reviewed is not None and is_review(reviewed):
            review = read_review(reviewed, rejected=True)
            if review.events.is_empty():
                raise InputError(f"{reviewed}: nothing was decided yet in this review")
            verdicts = review.events
            review_notes = _describe_conflicts(review)
        result = score_detections(
            detections,
            annotations,
            recordings=recordings,
            reviewed=verdicts,
            columns=columns,
            **options,
        )
        result = replace(result, notes=[*result.notes, *review_notes])
        write_scores(output, result, options, figure=figure)
    if not quiet:
        show_scores(result, Console())
        print(f"results in {out}")


def _describe_conflicts(results: "ReviewResults") -> list[str]:
    if not results.conflicts:
        return []
    calls = count_text(results.conflicts, "call")
    return [f"{calls} left out, because reviewers disagree"]


@app.command(rich_help_panel=FIELD)
def convert(
    *,
    events: Path = argument(
        ...,
        "EVENTS",
        "Detections or annotations to convert: a file or folder in CSV, Parquet or any "
        "annotation format, or a folder of callshot review.",
    ),
    out: Out,
    to: str = option(
        ...,
        "NAME",
        "Format to write: {exports}.",
    ),
    recordings: Recordings = None,
    columns: Columns = None,
    clips: Clips = None,
    max_hz: float | None = option(
        None,
        "HZ",
        "With --clips: upper limit of the frequency axis in the spectrograms.",
        shown="half the sample rate",
    ),
    seed: Seed = 0,
    activity: bool = option(
        False,
        "",
        "Also count and draw the events by day and hour, if the recordings have dates and "
        "times.",
        "--activity",
    ),
    quiet: Quiet = False,
) -> None:
    """Convert detections or annotations to files for Raven, Audacity and other programs.

    raven-all needs --recordings, because its times are counted from the start of the first
    recording, as Raven does. --clips and --activity need --recordings too, and write to the folders
    clips and activity in DIR. Of a review, the confirmed calls are written, with the reviewer and
    the time.

    Example: callshot convert detections.csv --to raven --recordings audio --out raven
    """
    from rich.console import Console

    from callshot.corpus.options import make_annotation_options
    from callshot.detection.activity import write_activity
    from callshot.detection.clips import ClipOptions, write_clips
    from callshot.detection.events import EventTable, open_recordings, read_events
    from callshot.detection.exports import EXPORTS, MANIFEST, export_events
    from callshot.detection.terminal import show_rejects
    from callshot.results import open_output_folder
    from callshot.review.journal import is_review
    from callshot.review.results import convert_review

    for name, is_asked in {"clips": clips, "activity": activity}.items():
        if is_asked and recordings is None:
            raise OptionError(
                f"{name}: give the folder of the recordings (--recordings)"
            )
    clip_options = None
    if clips is not None:
        clip_options = ClipOptions(clips, max_hz=max_hz, seed=seed)
    annotation_options = make_annotation_options(columns=columns)
    check_choice("to", to, EXPORTS)
    with run_with_progress("converting", quiet=quiet) as progress:
        with open_output_folder(out, (), MANIFEST):  # refuse it before any work
            folder = None if recordings is None else open_recordings(recordings)
        if is_review(events):
            results, files = convert_review(events, to, out, recordings)
            conflicts = [f"note: {note}" for note in _describe_conflicts(results)]
            table = EventTable(results.events, notes=conflicts)
        else:
            table = read_events(events, folder, annotation_options)
            files = export_events(table.events, to, out, folder)
        notes = [*table.notes]
        if folder is not None and clip_options is not None:
            written, unread = write_clips(
                table.events, folder, out / "clips", clip_options, progress=progress
            )
            table.rejects.extend(unread)
            notes.append(f"{count_text(len(written), 'clip')} in {out / 'clips'}")
        if folder is not None and activity:
            undated = write_activity(table.events, folder, out / "activity")
            notes.append(f"detections by day and hour in {out / 'activity'}")
            if undated:
                count = count_text(undated, "event")
                notes.append(f"note: {count} without clock time")
    if quiet:
        return
    show_rejects(table.rejects, Console())
    event_count = count_text(len(table.events), "event")
    print(f"{event_count} in {count_text(len(files) - 1, 'file')} in {out}")
    for note in notes:
        print(note)


def parse_rate(text: str | None) -> float | None:
    """Return how many per hour a text such as 1/h or 2/d means; a number alone is per hour.

    >>> parse_rate("0.5/h"), parse_rate("12/d"), parse_rate("2")
    (0.5, 0.5, 2.0)
    """
    if text is None:
        return None
    match = RATE.fullmatch(text)
    if match is None:
        raise OptionError(
            f"false_alarms: expected a number per hour or day, such as 1/h, got {text!r}"
        )
    number, unit = match.groups(default="h")
    return float(number) / HOURS[unit]
