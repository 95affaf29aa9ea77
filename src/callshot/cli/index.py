"""Commands about all windows of recordings: index, find."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import STEPS, app, run_with_progress
from callshot.cli.cluster import use_cluster
from callshot.cli.encoders import Choices
from callshot.cli.options import (
    ClusterName,
    Device,
    FollowLinks,
    Quiet,
    Threads,
    parse_pairs,
)
from callshot.errors import printable
from callshot.storage import to_path

if TYPE_CHECKING:
    import polars as pl

    from callshot.detection.index.index_recordings import IndexResult

MOST_LINES = 8  # of rejects and of notes, on screen


@app.command(rich_help_panel=STEPS)
def index(
    recordings: Annotated[
        Path,
        typer.Argument(
            metavar="RECORDINGS", help="The folder of the recordings, or one recording."
        ),
    ],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder", "-e", metavar="NAME", help="callshot encoders lists them."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="INDEX",
            help="Folder of the index: made or extended.",
        ),
    ],
    choices: Choices = None,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds in a window, for encoders without a window of their own.",
        ),
    ] = None,
    hop: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds from the start of one window to the next.",
            show_default="the encoder's, or the window",
        ),
    ] = None,
    channel: Annotated[
        str, typer.Option(help="first, mean, or a number from 1.")
    ] = "first",
    dtype: Annotated[
        str, typer.Option(help="Precision of the vectors: float16 or float32.")
    ] = "float16",
    follow_links: FollowLinks = False,
    device: Device = "cpu",
    threads: Threads = None,
    cluster: ClusterName = None,
    quiet: Quiet = False,
) -> None:
    """Embed every window of recordings of any length once, to search them again and again.

    Each window has its recording, start and end in real seconds (at any speed), level, and clock
    time where the name or the header of the file has one. Run it again after a crash, or when
    there are new recordings: only what is missing is embedded. Several processes can work on one
    index. A recording that cannot be read is reported, and the work goes on.

    Example: callshot index recordings --encoder birdnet-v2.4 --out index
    """
    from callshot.detection.index.index_recordings import index_recordings

    out = to_path(out)
    with (
        use_cluster(cluster, threads, quiet=quiet) as workers,
        run_with_progress(f"opening {encoder}", quiet=quiet) as progress,
    ):
        result = index_recordings(
            recordings,
            out,
            encoder,
            encoder_options=parse_pairs("set", choices, "speed=2"),
            window_s=window,
            hop_s=hop,
            channel=channel,
            dtype=dtype,
            follow_links=follow_links,
            device=device,
            threads=threads,
            cluster=workers,
            progress=progress,
        )
    if not quiet:
        _print_result(result, out)


def _print_result(result: "IndexResult", out: Path) -> None:
    from callshot.detection.index.index_files import REJECTS

    rejects = [f"left out: {reject.reason}" for reject in result.rejects]
    notes = [f"note: {note}" for note in result.notes]
    _print_first(rejects, f"more, in {out / REJECTS}")
    _print_first(notes, "more notes like these")
    recordings = result.index.recordings
    seconds = sum(recording.duration_s for recording in recordings)
    hours = seconds / 3600
    print(
        f"{len(result.index):,} windows of {len(recordings):,} recordings ({hours:.2f} h) "
        f"in {out}; {len(result.added):,} recordings added, {len(result.rejects):,} left out"
    )
    print(printable(f"next: callshot find EXAMPLE.wav@START-END {out}"))


def _print_first(lines: list[str], rest: str) -> None:
    """Print some lines, and how many there are besides."""
    for line in lines[:MOST_LINES]:
        print(printable(line))
    left = len(lines) - MOST_LINES
    if left > 0:
        print(f"and {left} {rest}")


@app.command(rich_help_panel=STEPS)
def find(
    example: Annotated[
        str,
        typer.Argument(
            metavar="EXAMPLE[@START-END]",
            help="A recording, or a span of one in seconds: call.wav, night.wav@12.5-14.",
        ),
    ],
    index: Annotated[
        Path, typer.Argument(metavar="INDEX", help="Made by callshot index.")
    ],
    count: Annotated[int, typer.Option(help="Windows to show, at most.")] = 20,
    per_recording: Annotated[
        int, typer.Option(help="Windows of one recording, at most.")
    ] = 3,
    distance: Annotated[str, typer.Option(help="euclidean or cosine.")] = "euclidean",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Also write a CSV file."),
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Find the windows that are most similar to one sound, the nearest first.

    A sound shorter than a window is embedded with what is around it; a longer one is the mean of
    its windows. Of windows that overlap, only the nearest is shown.

    Example: callshot find night.wav@12.5-14 index --out similar.csv
    """
    from callshot.detection.index.find_windows import (
        check_window_list,
        find_windows,
        write_window_list,
    )

    if out is not None:
        out = to_path(out)
        check_window_list(out)
    with run_with_progress("opening the index", quiet=quiet) as progress:
        found = find_windows(
            example,
            index,
            count=count,
            per_recording=per_recording,
            distance=distance,
            device=device,
            threads=threads,
            progress=progress,
        )
    if out is not None:
        write_window_list(found.windows, out)
    if not quiet:
        rejects = [f"left out: {reject.reason}" for reject in found.rejects]
        _print_first(rejects, f"more; callshot verify {index} lists them")
        _show_windows(found.windows)


def _show_windows(windows: "pl.DataFrame") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    for name in windows.columns:
        is_text = name in ("recording", "clock")
        table.add_column(name, justify="left" if is_text else "right")
    for rank, recording, start_s, end_s, clock, level, distance in windows.iter_rows():
        table.add_row(
            str(rank),
            escape(printable(recording)),
            f"{start_s:.2f}",
            f"{end_s:.2f}",
            clock or "",
            f"{level:.1f}",
            f"{distance:.4g}",
        )
    Console().print(table)
