"""Commands that use a model, and show what it found: scan, review."""

from pathlib import Path

from callshot.cli.app import (
    FIELD,
    app,
    argument,
    echo,
    report_left_out,
    run_with_progress,
)
from callshot.cli.learn import EncoderOptions, ModelFile, print_rejects
from callshot.cli.options import (
    Clips,
    ClusterName,
    FollowLinks,
    Out,
    Quiet,
    Seed,
    use_cluster,
)
from callshot.errors import OptionError, count_text
from callshot.options import option


@app.command(rich_help_panel=FIELD)
def scan(
    *,
    path: ModelFile,
    out: Out,
    encoder: EncoderOptions,
    false_alarms: str = option(
        "1/h",
        "N/h",
        "Allowed false alarms of each class per hour or day, for example 1/h or 2/d. Sets "
        "the thresholds.",
    ),
    gap: float = option(
        0.0,
        "S",
        "Longest pause inside an event, in seconds. Windows with a detection of the same "
        "class that are closer become one event.",
    ),
    hop: float | None = option(
        None,
        "S",
        "Time from the start of one window to the start of the next, in seconds. A "
        "shorter time gives more exact starts and ends of events, and takes longer.",
        shown="the hop of the encoder, or the length of the window",
    ),
    adapt: str = option(
        "auto",
        "auto|always|none",
        "Whether to mix the model's examples into background sound of these recordings "
        "(at most 20 examples per label), and to set the thresholds from these recordings. "
        "auto: only if the model has no background of its own, for example one learned from "
        "clips. always: for any model. none: use the model as it is.",
    ),
    to: tuple[str, ...] = option(
        ("raven",),
        "NAMES",
        "Programs for which tables of the events are written: {programs}; separated by "
        "commas. With raven, raven-all has one table of all "
        "recordings.",
        separated=True,
    ),
    clips: Clips = None,
    max_hz: float | None = option(
        None,
        "HZ",
        "With --clips: upper limit of the frequency axis in the spectrograms. Does not "
        "change what is detected.",
        shown="half the sample rate",
    ),
    seed: Seed = 0,
    follow_links: FollowLinks = False,
    recordings: Path | None = argument(
        None,
        "RECORDINGS|INDEX",
        "What to scan: a folder of recordings, one recording, or a folder that callshot "
        "index made.",
    ),
    segments: Path | None = option(
        None,
        "SEGMENTS",
        "Table of segments (segments.parquet of callshot segment), to label these calls "
        "instead of scanning recordings.",
    ),
    audio: Path | None = option(
        None,
        "DIR",
        "With --segments: folder of the recordings.",
        shown="the folder in the table of segments",
    ),
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
    from rich.console import Console

    from callshot.cli.score import parse_rate  # later: --help lists scan first
    from callshot.detection.clips import ClipOptions
    from callshot.detection.scan_files import scan_files, scan_segment_files
    from callshot.detection.terminal import show_scan

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
        with run_with_progress("opening the encoder", quiet=quiet) as progress:
            labelled = scan_segment_files(
                path,
                segments,
                out,
                encoder.embedding(),
                encoder=encoder.encoder,
                audio=audio,
                progress=progress,
            )
        if not quiet:
            print_rejects(labelled.rejects)
            for note in labelled.notes:
                echo(f"note: {note}")
            segment_count = count_text(len(labelled.frame), "segment")
            print(f"{segment_count} labelled, in {out / 'labels.csv'}")
        report_left_out(labelled.rejects, "segment", "")
        return

    clip_options = None
    if clips is not None:
        clip_options = ClipOptions(clips, max_hz=max_hz, seed=seed)
    with (
        use_cluster(cluster, encoder.threads, quiet=quiet) as workers,
        run_with_progress("opening the encoder", quiet=quiet) as progress,
    ):
        assert recordings is not None  # otherwise there are segments
        result = scan_files(
            path,
            recordings,
            out,
            formats=to,
            clips=clip_options,
            cluster=workers,
            progress=progress,
            false_alarms=parse_rate(false_alarms),
            gap_s=gap,
            hop_s=hop,
            adapt=adapt,
            encoder=encoder.encoder,
            encoder_options=encoder.choices,
            follow_links=follow_links,
            device=encoder.device,
            threads=encoder.threads,
        )
    if not quiet:
        show_scan(result, out, Console())
    report_left_out(result.rejects, "recording", out / "rejects.csv")


@app.command(rich_help_panel=FIELD)
def review(
    path: Path = argument(
        ...,
        "SCAN|SEGMENTS|STUDY",
        "What to review: a folder of callshot scan (also of scan --segments), a "
        "segments.parquet, or a study file.",
    ),
    out: Path | None = option(
        None,
        "REVIEW",
        "Folder where your decisions are saved.",
        "--out",
        "-o",
        shown="the folder review next to the files that are reviewed",
    ),
    recordings: Path | None = option(
        None,
        "DIR",
        "Folder of the recordings, if it was moved.",
        shown="the folder of the scan",
    ),
    model: Path | None = option(
        None,
        "MODEL",
        "Model of the scan, if it was moved.",
        shown="the path in the scan",
    ),
    index: Path | None = option(
        None,
        "INDEX",
        "Index of the scan, if it was moved.",
        shown="the path in the scan",
    ),
    reviewer: str | None = option(
        None,
        "NAME",
        "Name of the reviewer. It is saved with each decision.",
        shown="your user name",
    ),
    blind: bool = option(
        False, "", "Hide the decisions of other reviewers.", "--blind"
    ),
    port: int | None = option(
        None,
        "N",
        "Network port of the page.",
        shown="the first free port from 8420",
        typer={"min": 1, "max": 65535},
    ),
    host: str | None = option(
        None,
        "ADDRESS",
        "Network address of this machine at which other people can review too. 0.0.0.0 "
        "means all its addresses.",
        shown="only this machine",
    ),
    no_browser: bool = option(
        False,
        "",
        "Do not open a browser. Only print the address of the page.",
        "--no-browser",
    ),
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
