"""Commands that use a model, and show what it found: scan, review."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from callshot.cli.app import FIELD, app, report_left_out, run_with_progress, with_groups
from callshot.cli.learn import EncoderOptions, ModelFile, print_rejects
from callshot.cli.options import (
    Clips,
    ClusterName,
    FollowLinks,
    Out,
    Quiet,
    Seed,
    parse_names,
    parse_pairs,
    use_cluster,
)
from callshot.errors import OptionError, count_text, printable


@dataclass
class EventOptions:
    """How windows become events, and which files are written."""

    false_alarms: Annotated[
        str,
        typer.Option(
            metavar="N/h",
            help="Allowed false alarms of each class per hour or day, for example 1/h or 2/d. Sets "
            "the thresholds.",
        ),
    ] = "1/h"
    gap: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="Longest pause inside an event, in seconds. Windows with a detection of the same "
            "class that are closer become one event.",
        ),
    ] = 0.0
    hop: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Time from the start of one window to the start of the next, in seconds. A "
            "shorter time gives more exact starts and ends of events, and takes longer.",
            show_default="the hop of the encoder, or the length of the window",
        ),
    ] = None
    adapt: Annotated[
        str,
        typer.Option(
            metavar="auto|always|none",
            help="Whether to mix the model's examples into background sound of these recordings "
            "(at most 20 examples per label), and to set the thresholds from these recordings. "
            "auto: only if the model has no background of its own, for example one learned from "
            "clips. always: for any model. none: use the model as it is.",
        ),
    ] = "auto"
    to: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Programs for which tables of the events are written: raven, audacity, "
            "kaleidoscope; separated by commas. With raven, raven-all has one table of all "
            "recordings.",
        ),
    ] = "raven"
    clips: Clips = None
    max_hz: Annotated[
        float | None,
        typer.Option(
            metavar="HZ",
            help="With --clips: upper limit of the frequency axis in the spectrograms. Does not "
            "change what is detected.",
            show_default="half the sample rate",
        ),
    ] = None
    seed: Seed = 0
    follow_links: FollowLinks = False


@app.command(rich_help_panel=FIELD)
@with_groups
def scan(
    path: ModelFile,
    out: Out,
    encoder: EncoderOptions,
    events: EventOptions,
    recordings: Annotated[
        Path | None,
        typer.Argument(
            metavar="RECORDINGS|INDEX",
            help="What to scan: a folder of recordings, one recording, or a folder that callshot "
            "index made.",
        ),
    ] = None,
    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="SEGMENTS",
            help="Table of segments (segments.parquet of callshot segment), to label these calls "
            "instead of scanning recordings.",
        ),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --segments: folder of the recordings.",
            show_default="the folder in the table of segments",
        ),
    ] = None,
    cluster: ClusterName = None,
    quiet: Quiet = False,
) -> None:
    """Find calls in recordings with a model, or label the calls of a table of segments.

    Every window of the recordings gets a score for each class. If the highest score reaches the
    threshold of its class, the window is a detection of that class. Detections in neighbouring
    windows become one event, with the class of the highest score. Writes to DIR: events.csv,
    events.parquet, tables for other programs, rejects.csv (files that could not be read) and
    scan.json (settings and versions). The embeddings of all windows are stored in DIR/index. After
    a crash, or with new recordings, run the command again: only what is missing is embedded.

    Example: callshot scan calls.npz recordings --out detections
    """
    if (recordings is None) == (segments is None):
        raise OptionError(
            "segments: expected either RECORDINGS or an INDEX to scan, or --segments to label "
            "calls"
        )
    if segments is not None:
        if cluster is not None:
            raise OptionError(
                "cluster: cannot be combined with --segments; remove --cluster"
            )
        _name_segments(path, segments, out, encoder, audio, quiet)
    elif recordings is not None:
        _scan_recordings(path, recordings, out, encoder, events, cluster, quiet)


def _scan_recordings(
    path: Path,
    recordings: Path,
    out: Path,
    encoder: EncoderOptions,
    events: EventOptions,
    cluster: str | None,
    quiet: bool,
) -> None:
    from rich.console import Console

    from callshot.cli.score import parse_rate  # later: --help lists scan first
    from callshot.detection.clips import ClipOptions
    from callshot.detection.scan_files import scan_files
    from callshot.detection.terminal import show_scan

    clips = None
    if events.clips is not None:
        clips = ClipOptions(events.clips, max_hz=events.max_hz, seed=events.seed)
    options = {
        "false_alarms": parse_rate(events.false_alarms),
        "gap_s": events.gap,
        "hop_s": events.hop,
        "adapt": events.adapt,
        "encoder": encoder.encoder,
        "encoder_options": parse_pairs("set", encoder.choices, "speed=2"),
        "follow_links": events.follow_links,
        "device": encoder.device,
        "threads": encoder.threads,
    }
    with (
        use_cluster(cluster, encoder.threads, quiet=quiet) as workers,
        run_with_progress("opening the encoder", quiet=quiet) as progress,
    ):
        result = scan_files(
            path,
            recordings,
            out,
            formats=parse_names(events.to),
            clips=clips,
            cluster=workers,
            progress=progress,
            **options,
        )
    if not quiet:
        show_scan(result, out, Console())
    report_left_out(result.rejects, "recording", out / "rejects.csv")


def _name_segments(
    path: Path,
    segments: Path,
    out: Path,
    encoder: EncoderOptions,
    audio: Path | None,
    quiet: bool,
) -> None:
    from callshot.detection.scan_files import scan_segment_files

    with run_with_progress("opening the encoder", quiet=quiet) as progress:
        result = scan_segment_files(
            path,
            segments,
            out,
            encoder.embedding(),
            encoder=encoder.encoder,
            audio=audio,
            progress=progress,
        )
    if not quiet:
        print_rejects(result.rejects)
        for note in result.notes:
            print(printable(f"note: {note}"))
        segment_count = count_text(len(result.frame), "segment")
        print(f"{segment_count} labelled, in {out / 'labels.csv'}")
    report_left_out(result.rejects, "segment", "")


@app.command(rich_help_panel=FIELD)
def review(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="SCAN|SEGMENTS|STUDY",
            help="What to review: a folder of callshot scan (also of scan --segments), a "
            "segments.parquet, or a study file.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="REVIEW",
            help="Folder where your decisions are saved.",
            show_default="the folder review next to the files that are reviewed",
        ),
    ] = None,
    recordings: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the recordings, if it was moved.",
            show_default="the folder of the scan",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Model of the scan, if it was moved.",
            show_default="the path in the scan",
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            metavar="INDEX",
            help="Index of the scan, if it was moved.",
            show_default="the path in the scan",
        ),
    ] = None,
    reviewer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the reviewer. It is saved with each decision.",
            show_default="your user name",
        ),
    ] = None,
    blind: Annotated[
        bool,
        typer.Option("--blind", help="Hide the decisions of other reviewers."),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Network port of the page.",
            show_default="the first free port from 8420",
            min=1,
            max=65535,
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Network address of this machine at which other people can review too. 0.0.0.0 "
            "means all its addresses.",
            show_default="only this machine",
        ),
    ] = None,
    no_browser: Annotated[
        bool,
        typer.Option(
            "--no-browser",
            help="Do not open a browser. Only print the address of the page.",
        ),
    ] = False,
) -> None:
    """Listen to detections in the browser, and confirm, relabel or reject them.

    Every decision is one key, and is saved at once in REVIEW. callshot learn --add REVIEW adds the
    confirmed calls to the model. callshot convert REVIEW writes them for other programs.

    Example: callshot review detections
    """
    from callshot.review.server import ServerOptions, serve_review
    from callshot.review.sources import SourceOptions

    sources = SourceOptions(recordings, model, index)
    options = ServerOptions(host, port, reviewer, blind, not no_browser)
    serve_review(path, sources, options, out)
