"""The command that uses a model: scan."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import FIELD, app, run_with_progress
from callshot.cli.cluster import use_cluster
from callshot.cli.learn import EncoderOptions, ModelFile, print_rejects
from callshot.cli.option_groups import with_groups
from callshot.cli.options import (
    ClusterName,
    FollowLinks,
    Out,
    Quiet,
    Seed,
    parse_names,
    parse_pairs,
)
from callshot.errors import OptionError, printable

if TYPE_CHECKING:
    from callshot.detection.scans.scan_files import ScanOutput
    from callshot.detection.scans.scan_source import ScanOptions


@dataclass
class EventOptions:
    """How windows become events, and which files are written."""

    false_alarms: Annotated[
        str,
        typer.Option(
            metavar="N/h",
            help="The aim for each class, e.g. 1/h or 2/d; thresholds follow from it.",
        ),
    ] = "1/h"
    gap: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="Pauses between active windows that do not end an event, in seconds.",
        ),
    ] = 0.0
    hop: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds from the start of one window to the next: less than the window gives "
            "more precise edges, and takes longer.",
            show_default="the encoder's, or the window",
        ),
    ] = None
    site: Annotated[
        str,
        typer.Option(
            metavar="auto|always|none",
            help="Mix examples into background of these recordings: those that are clips, all, or "
            "none.",
        ),
    ] = "auto"
    to: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Files for other programs: raven, audacity, kaleidoscope; several with commas.",
        ),
    ] = "raven"
    clips: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Also cut clips with spectrograms: of each class the N best, the N most "
            "uncertain, and a sample of N over all scores.",
        ),
    ] = None
    top_hz: Annotated[
        float | None,
        typer.Option(
            metavar="HZ",
            help="The highest frequency in spectrograms.",
            show_default="all",
        ),
    ] = None
    seed: Seed = 0
    follow_links: FollowLinks = False

    def scan_options(self) -> "ScanOptions":
        """Return how windows become events."""
        from callshot.cli.score import parse_rate  # later: --help lists scan first
        from callshot.detection.scans.scan_source import ScanOptions

        aim = parse_rate(self.false_alarms)
        assert aim is not None  # there is a default
        return ScanOptions(aim, self.gap, self.hop, self.site)

    def output(self) -> "ScanOutput":
        """Return which files are written."""
        from callshot.detection.events.clips import ClipOptions
        from callshot.detection.scans.scan_files import ScanOutput

        clips = None
        if self.clips is not None:
            clips = ClipOptions(self.clips, top_hz=self.top_hz, seed=self.seed)
        return ScanOutput(parse_names(self.to), clips)


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
            metavar="[RECORDINGS|INDEX]",
            help="A folder of recordings, one recording, or the index of callshot index.",
        ),
    ] = None,
    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="SEGMENTS",
            help="Name given calls instead: the segments.parquet of callshot segment.",
        ),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --segments: the folder of the recordings.",
            show_default="as in the table of segments",
        ),
    ] = None,
    cluster: ClusterName = None,
    quiet: Quiet = False,
) -> None:
    """Find calls in recordings with a model, or name given segments.

    Every window of the recordings gets a score for each class; it counts as a call of its best
    class if the score reaches that class's threshold, and as none of them otherwise. Neighbouring
    windows become one event, named by the strongest. Writes events.csv, events.parquet, tables for
    other programs, rejects.csv and scan.json to DIR. The windows of recordings are embedded once,
    into DIR/index; run the command again after a crash or with new recordings, and only what is
    missing is embedded.

    Example: callshot scan calls.npz recordings --out detections
    """
    if (recordings is None) == (segments is None):
        raise OptionError(
            "segments: name recordings or an index to scan, or --segments to name given calls, "
            "one of the two"
        )
    if segments is not None:
        if cluster is not None:
            raise OptionError(
                "cluster: is for recordings; leave it out with --segments"
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

    from callshot.detection.scans.scan_files import scan_files
    from callshot.detection.scans.scan_source import IndexingOptions
    from callshot.detection.terminal import show_scan

    indexing = IndexingOptions(
        encoder.encoder,
        parse_pairs("set", encoder.choices, "speed=2"),
        events.follow_links,
        encoder.device,
        encoder.threads,
    )
    options = events.scan_options()
    wanted = events.output()
    with (
        use_cluster(cluster, encoder.threads, quiet=quiet) as workers,
        run_with_progress("opening the encoder", quiet=quiet) as progress,
    ):
        indexing = replace(indexing, cluster=workers)
        result = scan_files(path, recordings, out, options, indexing, wanted, progress)
    if not quiet:
        show_scan(result, out, Console())


def _name_segments(
    path: Path,
    segments: Path,
    out: Path,
    encoder: EncoderOptions,
    audio: Path | None,
    quiet: bool,
) -> None:
    from callshot.detection.scans.segment_labels import scan_segment_files

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
    if quiet:
        return
    print_rejects(result.rejects)
    for note in result.notes:
        print(printable(f"note: {note}"))
    print(f"{len(result.frame)} segments named, in {out / 'labels.csv'}")
