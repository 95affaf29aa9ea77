"""The command that takes embeddings from elsewhere: import."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import BESIDE, Quiet, app, interruptible
from callshot.errors import printable

if TYPE_CHECKING:
    from callshot.records import Reject


@app.command(name="import", rich_help_panel=BESIDE)
def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A .npy or .npz file, a perch-hoplite database, or embedding files of BirdNET-Analyzer (a folder, "
            "a .txt or a .csv).",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="TABLE", help="The table to write, .parquet.")
    ],
    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What is where: the segments.parquet of callshot segment, or a CSV with recording, start_s, end_s, "
            "label. For an array, a row per vector.",
            show_default="the .csv beside an array, a database's annotations",
        ),
    ] = None,
    kind: Annotated[str, typer.Option(help="auto, arrays, hoplite or birdnet-analyzer.")] = "auto",
    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder", "-e", metavar="NAME", help="What made them.", show_default="TABLE's stem"
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """From embeddings that you already have to a table that evaluate reads.

    A segment's vector is that of the window with its times, else the mean of the windows whose centre lies in it, else
    that of the window which overlaps it most. What has no label or no vector is left out, counted and told.

    Example: callshot import birdnet --segments segments/segments.parquet --out birdnet.parquet
    """
    from callshot.tables.embedding_tables import write_table
    from callshot.tables.imports import import_embeddings

    with interruptible():
        found = import_embeddings(source, segments, kind=kind, encoder=encoder or out.stem)
        write_table(found.table, out, corpus=found.corpus)
    if not quiet:
        for line in [*found.notes, *_tell(found.rejects)]:
            print(printable(line))
        print(f"{len(found.table)} segments of {found.table.vectors.shape[1]} dimensions in {out}")
        print(f"next: callshot evaluate {out} --out results")


def _tell(rejects: "list[Reject]") -> list[str]:
    """Count what was left out by its reason, with the first rows of each."""
    rows = defaultdict[str, list[str]](list)
    for reject in rejects:
        rows[reject.reason].append(str(reject.row))
    return [
        f"left out, {len(at)} (row {', '.join(at[:5])}{', …' if len(at) > 5 else ''}): {reason}"
        for reason, at in rows.items()
    ]
