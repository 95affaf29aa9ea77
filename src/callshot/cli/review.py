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
            help="The folder of callshot scan, a segments.parquet, or a study.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="REVIEW",
            help="Where decisions are saved.",
            show_default="the folder review in what is reviewed",
        ),
    ] = None,
    recordings: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder of the recordings, if they were moved.",
            show_default="where they were",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="The model of the scan, if it was moved.",
            show_default="where it was",
        ),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(
            metavar="INDEX",
            help="The index of the scan, if it was moved.",
            show_default="where it was",
        ),
    ] = None,
    reviewer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Who decides.", show_default="the name of the user"
        ),
    ] = None,
    blind: Annotated[
        bool,
        typer.Option("--blind", help="Hide what other reviewers decided."),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The port of the page.",
            show_default="a free one, from 8420",
            min=1,
            max=65535,
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Also let others in the network review, at this address of the machine; "
            "0.0.0.0 is all of its addresses.",
            show_default="this machine only",
        ),
    ] = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address of the page.")
    ] = False,
) -> None:
    """Listen to detections in the browser; confirm, relabel or reject them with one key.

    Every decision is saved at once, in REVIEW. callshot learn --add REVIEW makes a better model of
    the confirmed calls; callshot convert REVIEW writes them for other programs.

    Example: callshot review detections
    """
    from callshot.review.server import ServerOptions, serve_review
    from callshot.review.sources import SourceOptions

    sources = SourceOptions(recordings, model, index)
    options = ServerOptions(host, port, reviewer, blind, not no_browser)
    serve_review(path, sources, options, out)
