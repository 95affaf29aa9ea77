"""Commands about vectors of windows: index, find; import takes those of other tools."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import FIELD, OTHER, app, report_left_out, run_with_progress
from callshot.cli.encoders import Choices
from callshot.cli.options import (
    ClusterName,
    Device,
    FollowLinks,
    OutTable,
    Quiet,
    Threads,
    parse_pairs,
    use_cluster,
)
from callshot.errors import count_text, printable
from callshot.storage import to_path

if TYPE_CHECKING:
    import polars as pl

    from callshot.detection.index.index_recordings import IndexResult
    from callshot.records import Reject

MAX_LINES = 8  # of rejects and of notes, on screen


@app.command(rich_help_panel=FIELD)
def index(
    recordings: Annotated[
        Path,
        typer.Argument(
            metavar="RECORDINGS", help="Folder of the recordings, or one recording."
        ),
    ],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder",
            "-e",
            metavar="NAME",
            help="Name of the encoder. callshot encoders shows all names.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="INDEX",
            help="Folder of the index. New recordings are added if it exists.",
        ),
    ],
    choices: Choices = None,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Length of a window in seconds, for encoders that have no fixed window, such as "
            "mfcc.",
        ),
    ] = None,
    hop: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Time from the start of one window to the start of the next, in seconds.",
            show_default="the hop of the encoder, or the length of the window",
        ),
    ] = None,
    channel: Annotated[
        str,
        typer.Option(
            metavar="first|mean|N",
            help="Audio channel: first, mean of all channels, or a number (1 is the first).",
        ),
    ] = "first",
    dtype: Annotated[
        str,
        typer.Option(
            metavar="float16|float32",
            help="Number format of the stored vectors. float16 needs half the disk space.",
        ),
    ] = "float16",
    follow_links: FollowLinks = False,
    device: Device = "cpu",
    threads: Threads = None,
    cluster: ClusterName = None,
    quiet: Quiet = False,
) -> None:
    """Make an index of recordings: the embeddings of all their windows, for find and scan.

    The index has for each window the recording, start and end in seconds of the recording, the RMS
    level in dBFS, and date and time if the name or the header of the file has them. After a crash,
    or when there are new recordings, run the command again: only what is missing is embedded.
    Several processes can work on one index. A recording that cannot be read is left out and
    reported.

    Example: callshot index recordings --encoder birdnet-v2.4 --out index
    """
    from callshot.detection.index.index_files import REJECTS
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
    report_left_out(result.rejects, "recording", out / REJECTS)


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
        f"{count_text(len(result.index), 'window')} of "
        f"{count_text(len(recordings), 'recording')} ({hours:.2f} h) in {out}; "
        f"{count_text(len(result.added), 'recording')} added, {len(result.rejects):,} left out"
    )
    print(printable(f"next: callshot find EXAMPLE.wav@START-END {out}"))


def _print_first(lines: list[str], rest: str) -> None:
    """Print some lines, and how many there are besides."""
    for line in lines[:MAX_LINES]:
        print(printable(line))
    left = len(lines) - MAX_LINES
    if left > 0:
        print(f"and {left} {rest}")


@app.command(rich_help_panel=FIELD)
def find(
    example: Annotated[
        str,
        typer.Argument(
            metavar="EXAMPLE@START-END",
            help="Sound to search for: a recording, or a part of one with its times in seconds, "
            "such as call.wav or night.wav@12.5-14.",
        ),
    ],
    index: Annotated[
        Path, typer.Argument(metavar="INDEX", help="Folder that callshot index made.")
    ],
    count: Annotated[
        int, typer.Option(metavar="N", help="Largest number of windows to show.")
    ] = 20,
    per_recording: Annotated[
        int,
        typer.Option(metavar="N", help="Largest number of windows from one recording."),
    ] = 3,
    distance: Annotated[
        str,
        typer.Option(metavar="euclidean|cosine", help="Distance between two vectors."),
    ] = "euclidean",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="CSV file to write, too."),
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Find the windows of an index that are most similar to one sound.

    The most similar window is the first. A sound that is shorter than a window is embedded together
    with the sound around it. A longer sound gets the mean of its windows. Of windows that overlap,
    only the most similar one is shown.

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
        result = find_windows(
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
        write_window_list(result.windows, out)
    if not quiet:
        rejects = [f"left out: {reject.reason}" for reject in result.rejects]
        _print_first(rejects, f"more; callshot verify {index} lists them")
        _show_windows(result.windows)
    report_left_out(result.rejects, "recording", "")


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


MAX_ROWS = 5  # shown for each reason


@app.command(name="import", rich_help_panel=OTHER)
def import_table(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Embeddings of another tool: a .npy or .npz file, a perch-hoplite database, or "
            "the embedding files of BirdNET-Analyzer (a folder, a .txt or a .csv file).",
        ),
    ],
    out: OutTable,
    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table of the calls: the segments.parquet of callshot segment, or a CSV file with "
            "the columns recording, start_s, end_s and label. For .npy and .npz files: one row per "
            "vector.",
            show_default="the .csv file next to the .npy or .npz file, or the annotations in the "
            "database",
        ),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Kind of SOURCE: arrays, hoplite or birdnet-analyzer, or auto to recognise it.",
        ),
    ] = "auto",
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            "-e",
            metavar="NAME",
            help="Name of the encoder in the results.",
            show_default="the file name of TABLE",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Make a table of embeddings for evaluate from the embeddings of another tool.

    Other tools embed windows. A segment gets the vector of the window with the same times. If there
    is none, it gets the mean of the windows whose centre is in the segment; if there is none, the
    vector of the window that overlaps it most. Segments without a label or a vector are left out
    and reported.

    Example: callshot import birdnet --segments segments/segments.parquet --out birdnet.parquet
    """
    from callshot.tables.embedding_tables import check_new_table, write_table
    from callshot.tables.imports import import_embeddings

    check_new_table(out)
    with run_with_progress(quiet=True):
        imported = import_embeddings(
            source, segments, kind=kind, encoder=encoder or out.stem
        )
        write_table(imported.table, out, corpus=imported.corpus)
    if quiet:
        return
    for line in [*imported.notes, *_count_rejects(imported.rejects)]:
        print(printable(line))
    segment_count = count_text(len(imported.table), "segment")
    dimensions = count_text(imported.table.vectors.shape[1], "dimension")
    print(f"{segment_count} of {dimensions} in {out}")
    print(f"next: callshot evaluate {out} --out results")


def _count_rejects(rejects: "list[Reject]") -> list[str]:
    """Return a line for each reason, with the number of rejects and the first rows."""
    rows = defaultdict[str, list[str]](list)
    for reject in rejects:
        rows[reject.reason].append(str(reject.row))
    lines = []
    for reason, numbers in rows.items():
        first = ", ".join(numbers[:MAX_ROWS])
        if len(numbers) > MAX_ROWS:
            first += ", …"
        lines.append(f"left out, {len(numbers)} (row {first}): {reason}")
    return lines
