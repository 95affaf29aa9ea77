"""Commands on events: score, convert."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callshot.cli.app import FIELD, app, run_with_progress
from callshot.cli.option_groups import with_groups
from callshot.cli.options import Out, Quiet, Seed, parse_pairs
from callshot.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from callshot.corpus.annotations import Hints
    from callshot.detection.events.clips import ClipOptions
    from callshot.detection.events.events import EventReading
    from callshot.records import Progress

HOURS = {"h": 1.0, "d": 24.0}
RATE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(?:/\s*(h|d))?\s*")

Recordings = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder of all recordings, also of those without events.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        "-c",
        metavar="OURS=THEIRS",
        help="Which column is which, e.g. label=Species; repeatable.",
    ),
]


@dataclass
class ScoringOptions:
    """How detections are matched with calls, and scored."""

    iou: Annotated[
        float,
        typer.Option(
            help="The share of their time that a detection and a call must have in common."
        ),
    ] = 0.3
    window_s: Annotated[
        float, typer.Option(metavar="S", help="The length of windows.")
    ] = 3.0
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Leave out detections with lower scores.", show_default=False
        ),
    ] = None
    false_alarms: Annotated[
        str | None,
        typer.Option(
            metavar="N/h",
            help="Also find the threshold of each class that meets this aim, e.g. 1/h or 2/d.",
        ),
    ] = None
    unknown: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL",
            help="The label of calls that nobody could name; detections of them are not false.",
        ),
    ] = None
    bins: Annotated[int, typer.Option(help="Bins of scores with --reviewed.")] = 4
    samples: Annotated[
        int, typer.Option(help="Samples of recordings, for the intervals.")
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
            help="Events with scores: CSV, Parquet, or any annotation format.",
        ),
    ],
    out: Out,
    *,
    annotations: Annotated[
        Path | None,
        typer.Argument(
            metavar="[ANNOTATIONS]",
            help="All calls in the recordings, as a person annotated them; a file or a folder.",
        ),
    ] = None,
    recordings: Recordings = None,
    reviewed: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Some of the detections with a column confirmed (yes or no): estimates how "
            "many of all are calls.",
        ),
    ] = None,
    columns: Columns = None,
    scoring: ScoringOptions,
    figure: Annotated[bool, typer.Option(help="Also draw the curves.")] = True,
    quiet: Quiet = False,
) -> None:
    """Measure how good detections are, per class: precision, recall, F1, AP, false alarms per hour.

    A detection is correct if it is matched with a call of the same label, each used once. Scores
    are by events and by windows, with intervals that resample recordings. Writes scores.csv,
    precision_recall.csv, outcomes.csv (what became of every detection and call), thresholds.csv,
    call_density.csv, rejects.csv and the precision-recall curves to DIR.

    Example: callshot score detections.csv selection-tables --recordings audio --out scores
    """
    from rich.console import Console

    from callshot.detection.scores.score import score_detections
    from callshot.detection.scores.score_files import open_scores, write_scores
    from callshot.detection.terminal import show_scores

    options = scoring.keywords()
    with run_with_progress("scoring", quiet=quiet), open_scores(out) as output:
        result = score_detections(
            detections,
            annotations,
            recordings=recordings,
            reviewed=reviewed,
            columns=parse_pairs("columns", columns, "label=Species"),
            **options,
        )
        write_scores(output, result, options, figure=figure)
    if not quiet:
        show_scores(result, Console())
        print(f"results in {out}")


@app.command(rich_help_panel=FIELD)
def convert(
    events: Annotated[
        Path,
        typer.Argument(
            metavar="EVENTS",
            help="Detections or annotations: CSV, Parquet, or any annotation format; a file or "
            "a folder; or the folder of a review.",
        ),
    ],
    out: Out,
    to: Annotated[
        str,
        typer.Option(
            help="raven (a table per recording), raven-all (one table for all), audacity, "
            "kaleidoscope, csv or parquet."
        ),
    ],
    recordings: Recordings = None,
    columns: Columns = None,
    clips: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Also cut clips with spectrograms: of each class the N best, the N most "
            "uncertain, and a sample of N over all scores.",
        ),
    ] = None,
    top_hz: Annotated[
        float | None,
        typer.Option(
            metavar="HZ",
            help="The highest frequency in spectrograms.",
            show_default="all",
        ),
    ] = None,
    seed: Seed = 0,
    activity: Annotated[
        bool,
        typer.Option(
            "--activity",
            help="Also count and draw the events by day and hour, where recordings have clock "
            "times.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Convert detections or annotations to files that other programs open.

    raven-all needs the recordings: its times run on over all of them, as Raven counts them.
    --clips and --activity need them too, and write to the folders clips and activity in DIR. Of a
    review, confirmed calls are written, with who confirmed them and when.

    Example: callshot convert detections.csv --to raven --recordings audio --out raven
    """
    from rich.console import Console

    from callshot.corpus.renaming import make_hints
    from callshot.detection.events.clips import ClipOptions
    from callshot.detection.terminal import show_rejects

    hints = make_hints(columns=parse_pairs("columns", columns, "label=Species"))
    more = _MoreFiles(recordings, activity)
    if clips is not None:
        more.clips = ClipOptions(clips, top_hz=top_hz, seed=seed)
    more.check()
    with run_with_progress("converting", quiet=quiet) as progress:
        reading, files = _convert(events, to, out, recordings, hints)
        notes = [*reading.notes, *more.write(reading, out, progress)]
    if quiet:
        return
    show_rejects(reading.rejects, Console())
    print(f"{len(reading.events)} events in {len(files) - 1} files in {out}")
    for note in notes:
        print(note)


def _convert(
    events: Path, to: str, out: Path, recordings: Path | None, hints: "Hints"
) -> "tuple[EventReading, list[Path]]":
    """Write the events of files, or the confirmed calls of a review."""
    from callshot.detection.events.events import EventReading
    from callshot.detection.events.exports import convert_files
    from callshot.review.journal import is_review
    from callshot.review.results import convert_review

    if not is_review(events):
        return convert_files(events, to, out, recordings, hints)
    results, files = convert_review(events, to, out, recordings)
    notes = []
    if results.conflicts:
        notes.append(
            f"note: {results.conflicts} calls are left out, because reviewers disagree"
        )
    return EventReading(results.events, notes=notes), files


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
        self, reading: "EventReading", out: Path, progress: "Progress"
    ) -> "Iterator[str]":
        """Write the files to folders in `out`; yield what was written."""
        from callshot.detection.events.activity import write_activity
        from callshot.detection.events.clips import write_clips
        from callshot.detection.events.events import open_recordings

        if self.recordings is None:
            return
        folder = open_recordings(self.recordings)
        if self.clips is not None:
            place = out / "clips"
            result = write_clips(
                reading.events, folder, place, self.clips, progress=progress
            )
            reading.rejects.extend(result.rejects)
            yield f"{len(result.clips)} clips in {place}"
        if self.activity:
            place = out / "activity"
            activity = write_activity(reading.events, folder, place)
            yield f"detections by day and hour in {place}"
            if activity.undated:
                yield f"note: {activity.undated} events have no clock time"


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
