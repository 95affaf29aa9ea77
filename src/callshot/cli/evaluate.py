"""Commands that measure: evaluate, baselines."""

import sys
from pathlib import Path
from typing import Annotated, Any

from callshot.cli.app import (
    STEPS,
    app,
    argument,
    run_with_progress,
)
from callshot.cli.options import (
    AudioFolder,
    DatasetOptions,
    Out,
    Quiet,
    SweepMachine,
    Threads,
)
from callshot.errors import OptionError
from callshot.options import Given, ProtocolOptions, TrainingOptions, option

Tables = Annotated[
    list[Path],
    argument(
        ...,
        "TABLE",
        "Table of embeddings: Parquet, CSV or .npz with the columns recording, label and "
        "embedding (in CSV: e0, e1, …); segment, labels and fold are optional. To compare "
        "encoders, give one table for each; all must contain the same segments.",
    ),
]


@app.command(rich_help_panel=STEPS)
def evaluate(
    *,
    tables: Tables,
    out: Out,
    protocol: Annotated[Given, ProtocolOptions],
    dataset: DatasetOptions,
    queries: list[Path] | None = option(
        None,
        "TARGET",
        "Measure a transfer: the examples come from TABLE (the source, for example "
        "another site or recorder), the queries from this table (the target). Both must have "
        "the same encoder. Can be repeated, once for each TABLE.",
        shown=False,
    ),
    centre: bool = option(
        False,
        "",
        "With --queries: also evaluate vectors from which the mean of their table is "
        "subtracted.",
        "--centre",
    ),
    memory: float | None = option(
        None,
        "GIB",
        "Memory for products of all pairs of vectors, in GiB. Scoring is slower if they "
        "do not fit.",
        low=0,
        high=2**20,
        unit="GiB",
        shown="a quarter of the memory of the machine",
    ),
    figure: bool = option(True, "", "Draw the figures sweep.pdf and sweep.png."),
    target: float | None = option(
        None,
        "MAP",
        "Mean average precision that you need, for example 0.8. Prints how many examples "
        "per class reach it.",
        shown=False,
    ),
    machine: SweepMachine,
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
    from rich.console import Console

    from callshot.cli.terminal import show_evaluation, show_transfer
    from callshot.console import print_lines
    from callshot.fewshot.gpu.device import check_device, choose_device
    from callshot.fewshot.label_budget import check_target, labels_for_target
    from callshot.fewshot.protocol import make_protocol
    from callshot.records import TransferEvaluation
    from callshot.report.summary.sentences import describe_targets
    from callshot.study.file_steps import evaluate_files

    checked = make_protocol(**protocol)
    if target is not None:
        check_target(target, checked.spreads)
    if centre and not queries:
        raise OptionError(
            "centre: needs --queries; inside one table it changes nothing"
        )
    memory_bytes = None if memory is None else int(memory * 2**30)
    check_device(machine.device)
    with machine.open() as running:
        result = evaluate_files(
            tables,
            out,
            checked,
            queries=queries,
            centre=centre,
            choice=vars(dataset),
            memory=memory_bytes,
            figure=figure,
            **running,
        )
    if machine.quiet:
        return
    device_line = choose_device(machine.device).describe()
    if device_line not in result.notes:
        print(device_line, file=sys.stderr)
    console = Console()
    if isinstance(result, TransferEvaluation):
        show_transfer(result, console)
    else:
        show_evaluation(result.name_classifiers(checked.reference), console)
    if target is not None:
        print_lines(console, describe_targets(labels_for_target(result, target)))
    print(f"results in {out}")


BaselineDevice = Annotated[
    str,
    option(
        ...,
        "auto|cpu|cuda",
        "Processor: cpu, or cuda for the GPU. auto: logistic regression at every k on the GPU "
        "if there is one, networks on the CPU.",
    ),
]


@app.command(rich_help_panel=STEPS)
def baselines(
    *,
    tables: Tables,
    out: Out,
    against: Path | None = option(
        None,
        "DIR",
        "Folder with results of callshot evaluate. Uses their folds, and finds the k at "
        "which one curve passes the other (crossover).",
    ),
    shots: str | None = option(
        None,
        "K",
        "With --per-k: values of k, the number of examples per class: 1-40, or 1,2,5,10; "
        "all takes every example.",
        shown="1-40, or the values of --against",
    ),
    seed: int | None = option(
        None,
        "N",
        "Random seed. The same seed gives the same results.",
        shown="0, or the seed of --against",
    ),
    training: Annotated[Given, TrainingOptions],
    segments: Path | None = option(
        None,
        "FILE",
        "Table of segments (segments.parquet). end-to-end needs it to read the audio.",
    ),
    audio: AudioFolder = None,
    keep: Path | None = option(
        None,
        "DIR",
        "Folder for trained networks. Networks that are there are not trained again.",
        shown="networks in the folder of --out",
    ),
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

    from callshot.baselines.options import BaselineOptions
    from callshot.cli.terminal import show_baselines, show_crossovers
    from callshot.fewshot.protocol import parse_shots
    from callshot.files import NETWORKS
    from callshot.study.file_steps import (
        protocol_of_results,
        train_baseline_files,
    )

    default = () if "published" in training else ("logistic",)
    options = BaselineOptions(**{"train": default, **training})
    changes: dict[str, Any] = {}
    if seed is not None:
        changes["seed"] = seed
    if shots is not None:
        changes["shots"], changes["whole_pool"] = parse_shots(shots)
    protocol = protocol_of_results(against, changes)
    with run_with_progress(quiet=quiet) as progress:
        results = train_baseline_files(
            tables,
            out,
            options,
            protocol,
            choice=vars(dataset),
            segments=segments,
            audio=audio,
            against=against,
            device=device,
            threads=threads,
            networks=keep or out / NETWORKS,
            progress=progress,
        )
    if not quiet:
        console = Console()
        show_baselines(results.baselines, console)
        show_crossovers(results.crossovers, console)
        print(f"results in {out}")
