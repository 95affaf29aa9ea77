"""The command that shows detections in the browser: review."""

from pathlib import Path
from typing import Annotated

import typer

from callshot.cli.app import FIELD, app


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
