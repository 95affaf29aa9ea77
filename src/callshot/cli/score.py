"""Commands on events: score, convert."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callshot.cli.app import FIELD, app, run_with_progress, with_groups
from callshot.cli.options import Clips, Columns, Out, Quiet, Seed, parse_pairs
from callshot.errors import InputError, OptionError, count_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from callshot.corpus.annotations import AnnotationOptions
    from callshot.detection.clips import ClipOptions
    from callshot.detection.events import EventTable
    from callshot.records import Progress
    from callshot.records.frames import Frame
    from callshot.review.results import ReviewResults

HOURS = {"h": 1.0, "d": 24.0}
RATE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(?:/\s*(h|d))?\s*")

Recordings = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of all recordings, also of those without events.",
    ),
]


@dataclass
class ScoringOptions:
    """How detections are matched with calls, and scored."""

    iou: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Smallest overlap (intersection over union of their times) at which a detection "
            "and a call match.",
        ),
    ] = 0.3
    window_s: Annotated[
        float,
        typer.Option(
            metavar="S", help="Length of the windows for scores by windows, in seconds."
        ),
    ] = 3.0
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="SCORE",
            help="Lowest score. Detections with lower scores are left out.",
            show_default="all detections",
        ),
    ] = None
    false_alarms: Annotated[
        str | None,
        typer.Option(
            metavar="N/h",
            help="Allowed false alarms of each class per hour or day, for example 1/h or 2/d. "
            "Writes the thresholds that keep to it.",
        ),
    ] = None
    unknown: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="Label of calls that nobody could identify. Detections of such calls are not "
            "counted as false.",
        ),
    ] = None
    bins: Annotated[
        int,
        typer.Option(metavar="N", help="With --reviewed: number of bins of scores."),
    ] = 4
    samples: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of bootstrap samples of recordings, for the intervals.",
        ),
    ] = 1000
    seed: Seed = 0

    def keywords(self) -> dict[str, Any]:
        """Return the options as `score_detections` takes them."""
        options = vars(self).copy()
        false_alarms = options.pop("false_alarms")
        options["false_alarms_per_hour"] = parse_rate(false_alarms)
        return options


@app.command(rich_help_panel=FIELD)
@with_groups
def score(
    detections: Annotated[
        Path,
        typer.Argument(
            metavar="DETECTIONS",
            help="Detections with scores: a CSV or Parquet file, or any annotation format.",
        ),
    ],
    out: Out,
    *,
    annotations: Annotated[
        Path | None,
        typer.Argument(
            metavar="ANNOTATIONS",
            help="Annotations of all calls in the recordings, made by a person: a file or a "
            "folder.",
        ),
    ] = None,
    recordings: Recordings = None,
    reviewed: Annotated[
        Path | None,
        typer.Option(
            metavar="REVIEW",
            help="Folder of callshot review, or a table of some of the detections with a column "
            "confirmed (yes or no). Estimates the precision: how many of all detections are calls.",
        ),
    ] = None,
    columns: Columns = None,
    scoring: ScoringOptions,
    figure: Annotated[
        bool, typer.Option(help="Draw the precision-recall curves.")
    ] = True,
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

    options = scoring.keywords()
    with run_with_progress("scoring", quiet=quiet), open_scores(out) as output:
        verdicts, review_notes = _open_reviewed(reviewed)
        result = score_detections(
            detections,
            annotations,
            recordings=recordings,
            reviewed=verdicts,
            columns=parse_pairs("columns", columns, "label=Species"),
            **options,
        )
        result = replace(result, notes=[*result.notes, *review_notes])
        write_scores(output, result, options, figure=figure)
    if not quiet:
        show_scores(result, Console())
        print(f"results in {out}")


def _open_reviewed(reviewed: Path | None) -> "tuple[Frame | Path | None, list[str]]":
    """Return the decisions of a review with notes, or the file of other reviewed events."""
    from callshot.review.journal import is_review
    from callshot.review.results import read_review

    if reviewed is None or not is_review(reviewed):
        return reviewed, []
    results = read_review(reviewed, rejected=True)
    if results.events.is_empty():
        raise InputError(f"{reviewed}: nothing was decided yet in this review")
    return results.events, _describe_conflicts(results)


def _describe_conflicts(results: "ReviewResults") -> list[str]:
    if not results.conflicts:
        return []
    calls = count_text(results.conflicts, "call")
    return [f"{calls} left out, because reviewers disagree"]


@app.command(rich_help_panel=FIELD)
def convert(
    events: Annotated[
        Path,
        typer.Argument(
            metavar="EVENTS",
            help="Detections or annotations to convert: a file or folder in CSV, Parquet or any "
            "annotation format, or a folder of callshot review.",
        ),
    ],
    out: Out,
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Format to write: raven (a table per recording), raven-all (one table for all "
            "recordings), audacity, kaleidoscope, csv or parquet.",
        ),
    ],
    recordings: Recordings = None,
    columns: Columns = None,
    clips: Clips = None,
    max_hz: Annotated[
        float | None,
        typer.Option(
            metavar="HZ",
            help="With --clips: upper limit of the frequency axis in the spectrograms.",
            show_default="half the sample rate",
        ),
    ] = None,
    seed: Seed = 0,
    activity: Annotated[
        bool,
        typer.Option(
            "--activity",
            help="Also count and draw the events by day and hour, if the recordings have dates and "
            "times.",
        ),
    ] = False,
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
    from callshot.detection.clips import ClipOptions
    from callshot.detection.terminal import show_rejects

    annotation_options = make_annotation_options(
        columns=parse_pairs("columns", columns, "label=Species")
    )
    more = _MoreFiles(recordings, activity)
    if clips is not None:
        more.clips = ClipOptions(clips, max_hz=max_hz, seed=seed)
    more.check()
    with run_with_progress("converting", quiet=quiet) as progress:
        table, files = _convert(events, to, out, recordings, annotation_options)
        notes = [*table.notes, *more.write(table, out, progress)]
    if quiet:
        return
    show_rejects(table.rejects, Console())
    event_count = count_text(len(table.events), "event")
    print(f"{event_count} in {count_text(len(files) - 1, 'file')} in {out}")
    for note in notes:
        print(note)


def _convert(
    events: Path,
    to: str,
    out: Path,
    recordings: Path | None,
    annotation_options: "AnnotationOptions",
) -> "tuple[EventTable, list[Path]]":
    """Write the events of files, or the confirmed calls of a review."""
    from callshot.detection.events import EventTable
    from callshot.detection.exports import convert_files
    from callshot.review.journal import is_review
    from callshot.review.results import convert_review

    if not is_review(events):
        return convert_files(events, to, out, recordings, annotation_options)
    results, files = convert_review(events, to, out, recordings)
    notes = [f"note: {note}" for note in _describe_conflicts(results)]
    return EventTable(results.events, notes=notes), files


@dataclass
class _MoreFiles:
    """What convert writes beside the events, from their recordings."""

    recordings: Path | None
    activity: bool
    clips: "ClipOptions | None" = None

    def check(self) -> None:
        """Check that there are recordings if they are needed."""
        for name in ("clips", "activity"):
            if getattr(self, name) and self.recordings is None:
                raise OptionError(
                    f"{name}: give the folder of the recordings (--recordings)"
                )

    def write(
        self, table: "EventTable", out: Path, progress: "Progress"
    ) -> "Iterator[str]":
        """Write the files to folders in `out`; yield what was written."""
        from callshot.detection.activity import write_activity
        from callshot.detection.clips import write_clips
        from callshot.detection.events import open_recordings

        if self.recordings is None:
            return
        folder = open_recordings(self.recordings)
        if self.clips is not None:
            subfolder = out / "clips"
            result = write_clips(
                table.events, folder, subfolder, self.clips, progress=progress
            )
            table.rejects.extend(result.rejects)
            yield f"{count_text(len(result.clips), 'clip')} in {subfolder}"
        if self.activity:
            subfolder = out / "activity"
            activity = write_activity(table.events, folder, subfolder)
            yield f"detections by day and hour in {subfolder}"
            if activity.undated:
                yield f"note: {count_text(activity.undated, 'event')} without clock time"


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
