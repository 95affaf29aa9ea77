"""The command that measures: evaluate."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from callshot.cli.app import STEPS, Out, Quiet, Seed, Threads, app, at_least, interruptible
from callshot.errors import OptionError


class Sampler(StrEnum):
    """How a support set is drawn."""

    distinct = "distinct"
    replacement = "replacement"


class Score(StrEnum):
    """What queries are ranked by."""

    log = "log"
    softmax = "softmax"


class Spread(StrEnum):
    """Which spread of the support sampling is taken."""

    per_query = "per-query"
    shared = "shared"
    both = "both"


@app.command(rich_help_panel=STEPS)
def evaluate(
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...",
            help="Embeddings: Parquet, CSV or .npz with columns recording, label, embedding (CSV: e0, e1, …), "
            "and optionally segment, labels, fold. Several tables are several encoders over the same segments.",
        ),
    ],
    out: Out,
    shots: Annotated[
        str, typer.Option(help="Examples per class: 1-40, or 1,2,5,10, or all (the whole pool).")
    ] = "1-40",
    draws: Annotated[int, typer.Option(help="Support sets drawn for each query.")] = 100,
    bootstraps: Annotated[
        int, typer.Option(help="Bootstrap samples of the per-query spread.")
    ] = 5000,
    shared_draws: Annotated[int, typer.Option(help="Support sets of the shared spread.")] = 1000,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Folds to build; without it, the column fold of the table.",
            show_default="the corpus's, or 5",
        ),
    ] = None,
    fold_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV with segment,fold or recording,fold; the folds.csv of a run is one.",
        ),
    ] = None,
    seed: Seed = 0,
    sampler: Annotated[
        Sampler,
        typer.Option(help="distinct: no exemplar twice in a draw. replacement: independent picks."),
    ] = Sampler.distinct,
    score: Annotated[
        Score,
        typer.Option(
            help="log: log-odds. softmax: the literal one, which saturates; its ties are priced (twice the time)."
        ),
    ] = Score.log,
    classifier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Rule: centroid, cosine, cl2n, whitened, neighbour or medoid; repeat it to run several.",
            show_default="centroid",
        ),
    ] = None,
    spread: Annotated[
        Spread,
        typer.Option(
            help="per-query: the paper's bootstrap. shared: one labelled set for all queries, as in use."
        ),
    ] = Spread.both,
    categories: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV with label,category: adds the reduced scoring over categories.",
        ),
    ] = None,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Name of the corpus in the results.", show_default="the table's, or its folder's"
        ),
    ] = None,
    threads: Threads = None,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GIB",
            help="Above this the Gram matrix is not built.",
            show_default="a quarter of the machine's",
        ),
    ] = None,
    figure: Annotated[bool, typer.Option(help="Also draw sweep.pdf and sweep.png.")] = True,
    quiet: Quiet = False,
) -> None:
    """How well does the nearest class mean do with k examples per class, and how sure are we?

    Reads tables of embeddings, builds or takes folds in which no recording is on both sides, draws support sets, scores
    every query, and writes curve.csv, per_class.csv, confusion.csv, classes.csv, folds.csv, ties.csv, the values behind
    them (Parquet) and provenance.json to DIR. A run that is interrupted leaves earlier results as they were.

    Example: callshot evaluate perch.parquet mfcc.parquet --out results --shots 1-10
    """
    from rich.console import Console

    from callshot.fewshot.protocol import Protocol, parse_shots
    from callshot.records import SPREADS
    from callshot.report.progress import show_progress
    from callshot.report.terminal import show_evaluation
    from callshot.study.file_steps import evaluate_files

    counts, whole_pool = parse_shots(shots)
    spreads = SPREADS if spread is Spread.both else (spread.value,)
    protocol = Protocol(
        counts,
        whole_pool,
        draws,
        bootstraps,
        shared_draws,
        seed,
        sampler.value,
        score.value,
        spreads,
        tuple(classifier or ("centroid",)),
    )
    with interruptible(), show_progress(Console(stderr=True), quiet=quiet) as progress:
        result = evaluate_files(
            tables,
            out,
            protocol,
            folds=at_least("folds", folds, 2),
            fold_file=fold_file,
            categories=categories,
            corpus=corpus,
            threads=at_least("threads", threads, 1),
            memory=_bytes(memory),
            figure=figure,
            progress=progress,
        )
    if not quiet:
        show_evaluation(result.apart(protocol.reference), Console())
        print(f"results in {out}")


def _bytes(gib: float | None) -> int | None:
    if gib is not None and not 0 <= gib <= 2**20:
        raise OptionError(f"memory: 0 or more GiB, got {gib}")
    return None if gib is None else int(gib * 2**30)
