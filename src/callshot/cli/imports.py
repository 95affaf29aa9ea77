"""The command that imports embeddings of other tools: import."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import OTHER, app, run_with_progress
from callshot.cli.options import OutTable, Quiet
from callshot.errors import count_text, printable

if TYPE_CHECKING:
    from callshot.records import Reject

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
