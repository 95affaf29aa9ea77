"""Commands about vectors of windows: index, find; import takes those of other tools."""

from collections import defaultdict
from pathlib import Path

from callshot.cli.app import (
    FIELD,
    OTHER,
    app,
    argument,
    echo,
    print_first,
    report_left_out,
    run_with_progress,
)
from callshot.cli.options import (
    Device,
    FollowLinks,
    Machine,
    OutTable,
    Quiet,
    Threads,
)
from callshot.cli.steps import Choices
from callshot.errors import count_text, printable
from callshot.options import option
from callshot.storage import to_path


@app.command(rich_help_panel=FIELD)
def index(
    *,
    recordings: Path = argument(
        ..., "RECORDINGS", "Folder of the recordings, or one recording."
    ),
    encoder: str = option(
        ...,
        "NAME",
        "Name of the encoder. callshot encoders shows all names.",
        "--encoder",
        "-e",
    ),
    out: Path = option(
        ...,
        "INDEX",
        "Folder of the index. New recordings are added if it exists.",
        "--out",
        "-o",
    ),
    choices: Choices = None,
    window: float | None = option(
        None,
        "S",
        "Length of a window in seconds, for encoders that have no fixed window, such as "
        "mfcc.",
    ),
    hop: float | None = option(
        None,
        "S",
        "Time from the start of one window to the start of the next, in seconds.",
        shown="the hop of the encoder, or the length of the window",
    ),
    channel: str = option(
        "first",
        "first|mean|N",
        "Audio channel: first, mean of all channels, or a number (1 is the first).",
    ),
    dtype: str = option(
        "float16",
        "float16|float32",
        "Number format of the stored vectors. float16 needs half the disk space.",
    ),
    follow_links: FollowLinks = False,
    machine: Machine,
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
    with machine.open(f"opening {encoder}") as running:
        result = index_recordings(
            recordings,
            out,
            encoder,
            encoder_options=choices,
            window_s=window,
            hop_s=hop,
            channel=channel,
            dtype=dtype,
            follow_links=follow_links,
            **running,
        )
    if not machine.quiet:
        print_first([f"note: {note}" for note in result.notes], "more notes like these")
        found = result.index.recordings
        hours = sum(recording.duration_s for recording in found) / 3600
        print(
            f"{count_text(len(result.index), 'window')} of "
            f"{count_text(len(found), 'recording')} ({hours:.2f} h) in {out}; "
            f"{count_text(len(result.added), 'recording')} added, "
            f"{len(result.rejects):,} left out"
        )
        echo(f"next: callshot find EXAMPLE.wav@START-END {out}")
    report_left_out(result.rejects, "recording", out / REJECTS)


@app.command(rich_help_panel=FIELD)
def find(
    example: str = argument(
        ...,
        "EXAMPLE@START-END",
        "Sound to search for: a recording, or a part of one with its times in seconds, "
        "such as call.wav or night.wav@12.5-14.",
    ),
    index: Path = argument(..., "INDEX", "Folder that callshot index made."),
    count: int = option(20, "N", "Largest number of windows to show."),
    per_recording: int = option(
        3, "N", "Largest number of windows from one recording."
    ),
    distance: str = option(
        "euclidean", "euclidean|cosine", "Distance between two vectors."
    ),
    out: Path | None = option(None, "FILE", "CSV file to write, too.", "--out", "-o"),
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
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

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
        table = Table(*result.windows.columns, box=None, header_style="bold")
        for rank, recording, start_s, end_s, clock, level, far in result.windows.rows():
            table.add_row(
                str(rank),
                escape(printable(recording)),
                f"{start_s:.2f}",
                f"{end_s:.2f}",
                clock or "",
                f"{level:.1f}",
                f"{far:.4g}",
            )
        Console().print(table)
    report_left_out(result.rejects, "recording", "")


MAX_ROWS = 5  # shown for each reason


@app.command(name="import", rich_help_panel=OTHER)
def import_table(
    *,
    source: Path = argument(
        ...,
        "SOURCE",
        "Embeddings of another tool: a .npy or .npz file, a perch-hoplite database, or "
        "the embedding files of BirdNET-Analyzer (a folder, a .txt or a .csv file).",
    ),
    out: OutTable,
    segments: Path | None = option(
        None,
        "FILE",
        "Table of the calls: the segments.parquet of callshot segment, or a CSV file with "
        "the columns recording, start_s, end_s and label. For .npy and .npz files: one row per "
        "vector.",
        shown="the .csv file next to the .npy or .npz file, or the annotations in the "
        "database",
    ),
    kind: str = option(
        "auto",
        "NAME",
        "Kind of SOURCE: arrays, hoplite or birdnet-analyzer, or auto to recognise it.",
    ),
    encoder: str | None = option(
        None,
        "NAME",
        "Name of the encoder in the results.",
        "--encoder",
        "-e",
        shown="the file name of TABLE",
    ),
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
    rows = defaultdict[str, list[str]](list)
    for reject in imported.rejects:
        rows[reject.reason].append(str(reject.row))
    lines = [*imported.notes]
    for reason, numbers in rows.items():
        first = ", ".join(numbers[:MAX_ROWS])
        if len(numbers) > MAX_ROWS:
            first += ", …"
        lines.append(f"left out, {len(numbers)} (row {first}): {reason}")
    for line in lines:
        echo(line)
    segment_count = count_text(len(imported.table), "segment")
    dimensions = count_text(imported.table.matrix.shape[1], "dimension")
    print(f"{segment_count} of {dimensions} in {out}")
    print(f"next: callshot evaluate {out} --out results")
