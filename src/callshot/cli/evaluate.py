"""The command that measures: evaluate."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import STEPS, app, run_with_progress
from callshot.cli.cluster import use_cluster
from callshot.cli.option_groups import with_groups
from callshot.cli.options import (
    ClusterName,
    Out,
    Quiet,
    SweepDevice,
    Threads,
)
from callshot.cli.protocol_options import DatasetOptions, ProtocolOptions
from callshot.errors import OptionError

if TYPE_CHECKING:
    from callshot.records import Evaluation

Tables = Annotated[
    list[Path],
    typer.Argument(
        metavar="TABLE",
        help="Table of embeddings: Parquet, CSV or .npz with the columns recording, label and "
        "embedding (in CSV: e0, e1, …); segment, labels and fold are optional. To compare "
        "encoders, give one table for each; all must contain the same segments.",
    ),
]


@dataclass
class TransferOptions:
    """Queries of another table than the examples."""

    queries: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="TARGET",
            help="Measure a transfer: the examples come from TABLE (the source, for example "
            "another site or recorder), the queries from this table (the target). Both must have "
            "the same encoder. Can be repeated, once for each TABLE.",
            show_default=False,
        ),
    ] = None
    centre: Annotated[
        bool,
        typer.Option(
            "--centre",
            help="With --queries: also evaluate vectors from which the mean of their table is "
            "subtracted.",
        ),
    ] = False

    def check(self) -> None:
        """Check that options which need queries have them."""
        if self.centre and not self.queries:
            raise OptionError(
                "centre: needs --queries; inside one table it changes nothing"
            )


@app.command(rich_help_panel=STEPS)
@with_groups
def evaluate(
    tables: Tables,
    out: Out,
    protocol: ProtocolOptions,
    dataset: DatasetOptions,
    transfer: TransferOptions,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GIB",
            help="Memory for products of all pairs of vectors, in GiB. Scoring is slower if they "
            "do not fit.",
            show_default="a quarter of the memory of the machine",
        ),
    ] = None,
    figure: Annotated[
        bool, typer.Option(help="Draw the figures sweep.pdf and sweep.png.")
    ] = True,
    target: Annotated[
        float | None,
        typer.Option(
            metavar="MAP",
            help="Mean average precision that you need, for example 0.8. Prints how many examples "
            "per class reach it.",
            show_default=False,
        ),
    ] = None,
    device: SweepDevice = "auto",
    threads: Threads = None,
    cluster: ClusterName = None,
    quiet: Quiet = False,
) -> None:
    """Measure how well calls are classified with k examples per class, without training.

    Each call in turn is the query: k examples of every class are drawn at random (the
    support set), and the query gets the class whose mean embedding is nearest. This is repeated
    with many support sets. The recordings are divided into folds, so that a query and its examples
    never come from the same recording. Results are mean average precision (mAP), AUROC, accuracy
    and confusions for every k, with intervals.

    Writes to DIR: curve.csv, per_class.csv, confusion.csv, classes.csv, folds.csv, ties.csv,
    chance_test.csv, partitions.csv, sensitivity.csv, sensitivity_means.csv, budget.csv, all samples
    (Parquet) and provenance.json. With several tables also differences.csv, every pair of encoders
    compared on the same draws; the last lines say which is better, or that it is not clear. Tables
    with the same vectors are evaluated once. An interrupted run leaves earlier results unchanged.

    With --queries, the examples come from TABLE and the queries from another table. The results
    also contain the curves within each of the two tables, and differences.csv compares them.

    Example: callshot evaluate perch.parquet mfcc.parquet --out results --shots 1-10
    """
    from callshot.fewshot.gpu.device import check_device, choose_device
    from callshot.fewshot.label_budget import check_target
    from callshot.study.file_steps import evaluate_files

    checked = protocol.protocol()
    if target is not None:
        check_target(target, checked.spreads)
    transfer.check()
    check_device(device)
    with (
        use_cluster(cluster, threads, quiet=quiet) as workers,
        run_with_progress(quiet=quiet) as progress,
    ):
        result = evaluate_files(
            tables,
            out,
            checked,
            queries=transfer.queries,
            centre=transfer.centre,
            choice=dataset.choice(),
            threads=threads,
            memory=_bytes(memory),
            device=device,
            cluster=workers,
            figure=figure,
            progress=progress,
        )
    if quiet:
        return
    device_line = choose_device(device).describe()
    if device_line not in result.notes:
        print(device_line, file=sys.stderr)
    _print_result(result, checked.reference, target)
    print(f"results in {out}")


def _print_result(result: "Evaluation", reference: str, target: float | None) -> None:
    """Print the curves of an evaluation, and the labels that reach a target."""
    from rich.console import Console

    from callshot.fewshot.label_budget import labels_for_target
    from callshot.records import TransferEvaluation
    from callshot.report.summary.sentences import describe_targets
    from callshot.report.terminal import print_lines, show_evaluation, show_transfer

    console = Console()
    if isinstance(result, TransferEvaluation):
        show_transfer(result, console)
    else:
        show_evaluation(result.name_classifiers(reference), console)
    if target is not None:
        print_lines(console, describe_targets(labels_for_target(result, target)))


def _bytes(gib: float | None) -> int | None:
    if gib is None:
        return None
    if not 0 <= gib <= 2**20:
        raise OptionError(f"memory: expected 0 or more GiB, got {gib}")
    return int(gib * 2**30)
