"""The command that trains classifiers to compare with: baselines."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callshot.cli.app import STEPS, app, run_with_progress
from callshot.cli.evaluate import Tables
from callshot.cli.option_groups import with_groups
from callshot.cli.options import Out, Quiet, Threads, parse_names
from callshot.cli.protocol_options import DatasetOptions

if TYPE_CHECKING:
    from callshot.baselines.options import BaselineOptions
    from callshot.fewshot.protocol import Protocol


BaselineDevice = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda",
        help="Processor: cpu, or cuda for the GPU. auto: logistic regression at every k on the GPU "
        "if there is one, networks on the CPU.",
    ),
]


@dataclass
class TrainingOptions:
    """Which baselines are trained, and how."""

    train: Annotated[
        str | None,
        typer.Option(
            metavar="KINDS",
            help="Baselines to train on all labelled calls, separated by commas: logistic "
            "(logistic regression), recurrent (RNN, GRU, LSTM), end-to-end (a transformer "
            "on the audio).",
            show_default="logistic",
        ),
    ] = None
    per_k: Annotated[
        bool,
        typer.Option(
            "--per-k",
            help="Also train logistic regression with k examples per class, for every k, on the "
            "same support sets as evaluate.",
        ),
    ] = False
    draws: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="With --per-k: number of support sets, the first ones of evaluate.",
        ),
    ] = 100
    spread: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="With --per-k: what the intervals account for, as in evaluate. shared; total "
            "(also computes shared, twice the time); per-query (trains for every query, support "
            "set and k, which takes very long); all.",
        ),
    ] = "total"
    C: Annotated[
        float | None,
        typer.Option(
            "--C",
            metavar="NUMBER",
            help="Inverse regularisation strength of logistic regression, as in scikit-learn.",
            show_default="chosen by cross-validation in the training data; 0.1 with --per-k",
        ),
    ] = None
    cell: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Kind of recurrent network: elman, gru or lstm; chosen: the best of the three by "
            "cross-validation in the training data; paper: the one that the paper used with the "
            "encoder.",
        ),
    ] = "chosen"
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of recurrent networks for each fold. Their scores are averaged.",
        ),
    ] = 3
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Pretrained weights (AST or BEATs) from which the training of end-to-end starts.",
        ),
    ] = None
    published: Annotated[
        str,
        typer.Option(
            metavar="VARIANT",
            help="Variant of the published AERD networks to score too, such as EV_SUBCALL or "
            "LDC_POOLE. Needs the package aerd.",
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
            help="Folder with results of callshot evaluate. Uses their folds, and finds the k at "
            "which one curve passes the other (crossover).",
        ),
    ] = None
    shots: Annotated[
        str | None,
        typer.Option(
            metavar="K",
            help="With --per-k: values of k, the number of examples per class: 1-40, or 1,2,5,10; "
            "all takes every example.",
            show_default="1-40, or the values of --against",
        ),
    ] = None
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Random seed. The same seed gives the same results.",
            show_default="0, or the seed of --against",
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
            metavar="FILE",
            help="Table of segments (segments.parquet). end-to-end needs it to read the audio.",
        ),
    ] = None
    audio: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the recordings.",
            show_default="the folder in the table of segments",
        ),
    ] = None
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for trained networks. Networks that are there are not trained again.",
            show_default="networks in the folder of --out",
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
    """Train classifiers on the same calls and folds, to compare with evaluate.

    For every fold, logistic regression, recurrent networks or an end-to-end transformer are trained
    on all labelled calls of the other folds, and scored on the same queries as the nearest class
    mean. Hyper-parameters are chosen by cross-validation in the training data. recurrent reads
    sequences (callshot embed --sequence); recurrent and end-to-end need pip install
    'callshot[baselines]'. Writes to DIR: baselines.csv and refinement.csv; with --per-k also
    curve.csv and the other files of callshot evaluate; with --against also crossovers.csv. After an
    interruption, run the same command again: it continues.

    Example: callshot baselines birdnet.parquet --against results --per-k --out baselines
    """
    from rich.console import Console

    from callshot.baselines.run import TrainingContext
    from callshot.files import NETWORKS
    from callshot.report.terminal import show_baselines, show_crossovers
    from callshot.study.train_baselines import TrainingInputs, train_baseline_files

    options = training.baselines()
    protocol = comparison.protocol()
    folder = inputs.keep or out / NETWORKS
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
