"""The command that trains classifiers to compare with: baselines."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callshot.cli.app import STEPS, app, run_with_progress
from callshot.cli.evaluate import Tables
from callshot.cli.option_groups import with_groups
from callshot.cli.options import (
    DatasetOptions,
    Out,
    Quiet,
    Threads,
    parse_names,
)

if TYPE_CHECKING:
    from callshot.baselines.options import BaselineOptions
    from callshot.fewshot.protocol import Protocol


BaselineDevice = Annotated[
    str,
    typer.Option(
        help="auto: fits at every k on the GPU, if there is one, and networks on the CPU; cpu; or "
        "cuda: both on the GPU."
    ),
]


@dataclass
class TrainingOptions:
    """Which baselines are trained, and how."""

    train: Annotated[
        str | None,
        typer.Option(
            metavar="KINDS",
            help="Baselines to train on all labels, separated by commas: logistic, recurrent, "
            "end-to-end.",
            show_default="logistic",
        ),
    ] = None
    per_k: Annotated[
        bool,
        typer.Option(
            "--per-k",
            help="Also train logistic regression at every k, on the same draws.",
        ),
    ] = False
    draws: Annotated[
        int,
        typer.Option(
            help="For --per-k: how many labelled sets, the first ones that evaluate draws."
        ),
    ] = 100
    spread: Annotated[
        str,
        typer.Option(
            help="For --per-k: shared, total (with shared: twice as many fits), per-query or all; "
            "per-query fits every query, draw and k, which takes long."
        ),
    ] = "total"
    C: Annotated[
        float | None,
        typer.Option(
            "--C",
            help="Inverse regularisation strength of logistic regression, as in scikit-learn.",
            show_default="by inner folds; 0.1 at every k",
        ),
    ] = None
    cell: Annotated[
        str,
        typer.Option(
            help="Recurrent network: elman, gru, lstm, chosen (by inner folds) or paper (as the "
            "paper pairs them with encoders)."
        ),
    ] = "chosen"
    seeds: Annotated[
        int, typer.Option(help="Recurrent networks that are averaged in each split.")
    ] = 3
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Pretrained AST or BEATs weights that end-to-end starts from.",
        ),
    ] = None
    published: Annotated[
        str,
        typer.Option(
            metavar="VARIANT",
            help="Also score AERD as published (EV_SUBCALL, LDC_POOLE, …), if its package is "
            "installed.",
        ),
    ] = ""

    def baselines(self) -> "BaselineOptions":
        """Return the options, checked."""
        from callshot.baselines.options import BaselineOptions

        train: tuple[str, ...] = () if self.published else ("logistic",)
        if self.train is not None:
            train = parse_names(self.train)
        return BaselineOptions(**vars(self) | {"train": train})


@dataclass
class ComparisonOptions:
    """The results that baselines are compared with, and the draws."""

    against: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Results of callshot evaluate: use their folds, and find where curves cross.",
        ),
    ] = None
    shots: Annotated[
        str | None,
        typer.Option(
            help="For --per-k: examples per class, 1-40, or 1,2,5,10, or all.",
            show_default="those of --against, or 1-40",
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            help="Same seed, same numbers.", show_default="that of --against, or 0"
        ),
    ] = None

    def protocol(self) -> "Protocol":
        """Return the protocol of the results, with the options that are given."""
        from callshot.fewshot.protocol import parse_shots
        from callshot.study.train_baselines import protocol_of_results

        changes: dict[str, Any] = {}
        if self.seed is not None:
            changes["seed"] = self.seed
        if self.shots is not None:
            changes["shots"], changes["whole_pool"] = parse_shots(self.shots)
        return protocol_of_results(self.against, changes)


@dataclass
class InputOptions:
    """What baselines read beside vectors, and where networks are stored."""

    segments: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Table of segments, whose audio end-to-end reads."
        ),
    ] = None
    audio: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the recordings.",
            show_default="as in the table of segments",
        ),
    ] = None
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder that stores networks: none is trained twice.",
            show_default="DIR/networks",
        ),
    ] = None


@app.command(rich_help_panel=STEPS)
@with_groups
def baselines(
    tables: Tables,
    out: Out,
    comparison: ComparisonOptions,
    training: TrainingOptions,
    inputs: InputOptions,
    dataset: DatasetOptions,
    device: BaselineDevice = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Would training be better? Train classifiers on the same folds, and compare.

    Logistic regression, recurrent networks and an end-to-end transformer are trained on all
    labelled data of the support side of every split, and scored on the same queries as the nearest
    class mean. Choices are made on inner folds. recurrent reads sequences (callshot embed
    --sequence); it and end-to-end need pip install 'callshot[baselines]'. Writes baselines.csv,
    refinement.csv and, with --per-k, curve.csv and the other files of callshot evaluate; with
    --against also crossovers.csv. An interrupted run resumes.

    Example: callshot baselines birdnet.parquet --against results --per-k --out baselines
    """
    from rich.console import Console

    from callshot.baselines.run import TrainingContext
    from callshot.report.baselines import show_baselines, show_crossovers
    from callshot.study.train_baselines import TrainingInputs, train_baseline_files

    options = training.baselines()
    protocol = comparison.protocol()
    folder = inputs.keep or out / "networks"
    with run_with_progress(quiet=quiet) as progress:
        results = train_baseline_files(
            tables,
            out,
            options,
            protocol,
            choice=dataset.choice(),
            inputs=TrainingInputs(None, inputs.segments, inputs.audio),
            against=comparison.against,
            context=TrainingContext(protocol.seed, device, threads, folder, progress),
        )
    if not quiet:
        console = Console()
        show_baselines(results.baselines, console)
        show_crossovers(results.crossovers, console)
        print(f"results in {out}")
