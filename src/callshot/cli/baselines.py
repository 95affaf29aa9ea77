"""The command that trains what the centroid is held against: rivals."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callshot.cli.app import STEPS, Out, Quiet, Threads, app, at_least, interruptible
from callshot.cli.evaluate import Spread

if TYPE_CHECKING:
    from rich.console import Console

    from callshot.study.train_baselines import BaselineResults


class Baseline(StrEnum):
    """What is trained."""

    logistic = "logistic"
    recurrent = "recurrent"
    end_to_end = "end-to-end"


@app.command(rich_help_panel=STEPS)
def baselines(
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...",
            help="Embeddings, as callshot evaluate takes them; one table per encoder.",
        ),
    ],
    out: Out,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Results of callshot evaluate: take their folds, and tell where curves cross.",
        ),
    ] = None,
    baseline: Annotated[
        list[Baseline] | None,
        typer.Option(
            help="What to train on all labels; repeat it for several.", show_default="logistic"
        ),
    ] = None,
    rival_shots: Annotated[
        bool,
        typer.Option(
            "--rival-shots",
            help="Also train logistic regression at every k, on the centroid's own draws.",
        ),
    ] = False,
    shots: Annotated[
        str | None,
        typer.Option(
            help="Examples per class for --rival-shots: 1-40, or 1,2,5,10, or all.",
            show_default="those of --against, or 1-40",
        ),
    ] = None,
    draws: Annotated[
        int, typer.Option(help="Labelled sets for --rival-shots: the first of the shared draws.")
    ] = 100,
    rival_spread: Annotated[
        Spread,
        typer.Option(
            help="For --rival-shots; per-query is a fit for every query, draw and k: be patient."
        ),
    ] = Spread.shared,
    strength: Annotated[
        float | None,
        typer.Option(
            metavar="C",
            help="Of logistic regression: larger is a weaker penalty.",
            show_default="by inner folds; 0.1 at every k",
        ),
    ] = None,
    cell: Annotated[
        str,
        typer.Option(
            help="Recurrent network: elman, gru, lstm, chosen (by inner folds) or paper (as the paper pairs)."
        ),
    ] = "chosen",
    seeds: Annotated[
        int, typer.Option(help="Recurrent networks that are averaged in each split.")
    ] = 3,
    segments: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table of segments, whose audio end-to-end hears."),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the recordings.", show_default="as segments tell"
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Pretrained AST or BEATs weights that end-to-end starts from; checked.",
        ),
    ] = None,
    published: Annotated[
        str,
        typer.Option(
            metavar="VARIANT",
            help="Also ask AERD as published (EV_SUBCALL, LDC_POOLE, …), if its package is installed.",
        ),
    ] = "",
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for networks: nothing in it is trained twice.",
            show_default="DIR/networks",
        ),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Folds to build, where none are given.", show_default="5")
    ] = None,
    fold_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV with segment,fold or recording,fold.")
    ] = None,
    categories: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV with label,category: adds the reduced scoring."),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Name of the corpus in the results.", show_default="the table's, or its folder's"
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Same seed, same numbers.", show_default="that of --against, or 0"),
    ] = None,
    device: Annotated[str, typer.Option(help="Where networks are trained: cpu or cuda.")] = "cpu",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Would training have been better? Logistic regression, recurrent networks, an end-to-end transformer.

    Each is trained on all labelled data of the support side of every split, and scored on the queries that the nearest
    class mean is scored on; what has to be chosen is chosen on inner folds. recurrent reads sequences (callshot embed
    --sequence); it and end-to-end need pip install 'callshot[rivals]'. Writes rivals.csv, refinement.csv and, with
    --rival-shots, curve.csv and its kin; with --against also crossings.csv. What was interrupted goes on where it was.

    Example: callshot rivals birdnet.parquet --against results --rival-shots --out rivals
    """
    from rich.console import Console

    from callshot.baselines.run import BaselineOptions
    from callshot.fewshot.protocol import parse_shots
    from callshot.report.progress import show_progress
    from callshot.study.train_baselines import Sources, protocol_of_results, train_baseline_files

    drawn: dict[str, Any] = {} if seed is None else {"seed": seed}
    if shots is not None:
        drawn["shots"], drawn["whole_pool"] = parse_shots(shots)
    kinds = tuple(one.value for one in baseline or ((Baseline.logistic,) if not published else ()))
    training = BaselineOptions(
        kinds, rival_shots, draws, rival_spread.value, strength, cell, seeds, init, published
    )
    with interruptible(), show_progress(Console(stderr=True), quiet=quiet) as progress:
        found = train_baseline_files(
            tables,
            out,
            training,
            protocol_of_results(against, drawn),
            sources=Sources(None, segments, audio),
            against=against,
            fold_file=fold_file,
            folds=at_least("folds", folds, 2),
            categories=categories,
            corpus=corpus,
            device=device,
            threads=at_least("threads", threads, 1),
            keep=keep or out / "networks",
            progress=progress,
        )
    if not quiet:
        _show(found, Console())
        print(f"results in {out}")


def _show(found: "BaselineResults", console: "Console") -> None:
    from callshot.report.baselines import show_baselines, show_crossovers

    show_baselines(found.baselines, console)
    show_crossovers(found.crossovers, console)
