"""The command that imports embeddings of other tools: import."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import OTHER, app, run_with_progress
from callshot.cli.options import OutTable, Quiet
from callshot.errors import printable

if TYPE_CHECKING:
    from callshot.records import Reject

MOST_ROWS = 5  # shown for each reason


@app.command(name="import", rich_help_panel=OTHER)
def import_table(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A .npy or .npz file, a perch-hoplite database, or embedding files of "
            "BirdNET-Analyzer (a folder, a .txt or a .csv).",
        ),
    ],
    out: OutTable,
    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The segments.parquet of callshot segment, or a CSV with recording, start_s, "
            "end_s, label. For an array, one row per vector.",
            show_default="the .csv beside an array, or a database's annotations",
        ),
    ] = None,
    kind: Annotated[
        str, typer.Option(help="auto, arrays, hoplite or birdnet-analyzer.")
    ] = "auto",
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            "-e",
            metavar="NAME",
            help="The name of the encoder.",
            show_default="the name of TABLE",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Import embeddings that you already have, as a table that evaluate reads.

    The vector of a segment is that of the window with the same times, else the mean of the windows
    whose centre is inside it, else that of the window that overlaps it most. Segments without a
    label or a vector are left out, counted and reported.

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
    dimensions = imported.table.vectors.shape[1]
    print(f"{len(imported.table)} segments of {dimensions} dimensions in {out}")
    print(f"next: callshot evaluate {out} --out results")


def _count_rejects(rejects: "list[Reject]") -> list[str]:
    """Return a line for each reason, with the number of rejects and the first rows."""
    rows = defaultdict[str, list[str]](list)
    for reject in rejects:
        rows[reject.reason].append(str(reject.row))
    lines = []
    for reason, numbers in rows.items():
        first = ", ".join(numbers[:MOST_ROWS])
        if len(numbers) > MOST_ROWS:
            first += ", …"
        lines.append(f"left out, {len(numbers)} (row {first}): {reason}")
    return lines
