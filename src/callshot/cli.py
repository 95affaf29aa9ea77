"""The voice: one short function per command. Nothing heavy is imported before a command needs it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from callshot.errors import CallshotError, OptionError, printable
from callshot.version import __version__

app = typer.Typer(
    help="Few-shot classification of animal calls: k-shot curves with honest intervals, from a handful of labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


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


def main() -> None:
    """Run a command; an error of ours is one line and exit code 2."""
    try:
        app()
    except CallshotError as error:
        _fail(str(error))
    except MemoryError as error:
        _fail(f"not enough memory ({error}); try fewer --shots, --draws or --bootstraps")


def _fail(message: str) -> NoReturn:
    """Say what is wrong in one line, without the control characters that a file may have brought, and stop."""
    print(f"callshot: {printable(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"callshot {__version__}")
        raise typer.Exit


@app.callback()
def _callshot(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def evaluate(
    tables: Annotated[
        list[Path],
        typer.Argument(
            metavar="TABLE...",
            help="Embeddings: Parquet, CSV or .npz with columns recording, label, embedding (CSV: e0, e1, …), "
            "and optionally segment, labels, fold. Several tables are several encoders over the same segments.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where the results go.")],
    shots: Annotated[
        str, typer.Option(help="Examples per class: 1-40, or 1,2,5,10, or all (the whole pool).")
    ] = "1-40",
    draws: Annotated[int, typer.Option(help="Support sets drawn for each query.")] = 100,
    bootstraps: Annotated[int, typer.Option(help="Bootstrap samples of the per-query spread.")] = 5000,
    shared_draws: Annotated[int, typer.Option(help="Support sets of the shared spread.")] = 1000,
    folds: Annotated[
        int | None,
        typer.Option(help="Folds to build; without it, the column fold of the table, or 5.", show_default="5"),
    ] = None,
    fold_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV with segment,fold or recording,fold; the folds.csv of a run is one."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same numbers.")] = 0,
    sampler: Annotated[
        Sampler, typer.Option(help="distinct: no exemplar twice in a draw. replacement: independent picks.")
    ] = Sampler.distinct,
    score: Annotated[
        Score,
        typer.Option(
            help="log: log-odds. softmax: the literal one, which saturates; its ties are priced (twice the time)."
        ),
    ] = Score.log,
    spread: Annotated[
        Spread,
        typer.Option(help="per-query: the paper's bootstrap. shared: one labelled set for all queries, as in use."),
    ] = Spread.both,
    categories: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV with label,category: adds the reduced scoring over categories."),
    ] = None,
    corpus: Annotated[
        str | None, typer.Option(help="Name of the corpus in the results.", show_default="the table's, or its folder's")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Changes the time, never the numbers.", show_default="all cores")
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GIB", help="Above this the Gram matrix is not built.", show_default="a quarter of the machine's"
        ),
    ] = None,
    figure: Annotated[bool, typer.Option(help="Also draw sweep.pdf and sweep.png.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Errors only.")] = False,
) -> None:
    """How well does the nearest class mean do with k examples per class, and how sure are we?

    Reads tables of embeddings, builds or takes folds in which no recording is on both sides, draws support sets, scores
    every query, and writes curve.csv, per_class.csv, confusion.csv, classes.csv, folds.csv, ties.csv, the values behind
    them (Parquet) and provenance.json to DIR. A run that is interrupted leaves earlier results as they were.

    Example: callshot evaluate perch.parquet mfcc.parquet --out results --shots 1-10
    """
    from rich.console import Console

    from callshot.fewshot.protocol import SPREADS, Protocol, parse_shots
    from callshot.pipeline import evaluate_files
    from callshot.report.progress import show_progress
    from callshot.report.terminal import show_evaluation

    counts, whole_pool = parse_shots(shots)
    spreads = SPREADS if spread is Spread.both else (spread.value,)
    protocol = Protocol(counts, whole_pool, draws, bootstraps, shared_draws, seed, sampler.value, score.value, spreads)
    with _interruptible(), show_progress(Console(stderr=True), quiet=quiet) as report:
        result = evaluate_files(
            tables, out, protocol, folds=_at_least("folds", folds, 2), fold_file=fold_file, categories=categories,
            corpus=corpus, threads=_at_least("threads", threads, 1), memory=_bytes(memory), figure=figure,
            report=report,
        )  # fmt: skip
    if not quiet:
        show_evaluation(result, Console())
        print(f"results in {out}")


@contextmanager
def _interruptible() -> Iterator[None]:
    """Turn Ctrl-C into one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        print("callshot: interrupted; earlier results are as they were", file=sys.stderr)
        raise typer.Exit(130) from None


def _at_least(name: str, value: int | None, least: int) -> int | None:
    if value is not None and value < least:
        raise OptionError(f"{name}: at least {least}, got {value}")
    return value


def _bytes(gib: float | None) -> int | None:
    if gib is not None and not 0 <= gib <= 2**20:
        raise OptionError(f"memory: 0 or more GiB, got {gib}")
    return None if gib is None else int(gib * 2**30)
