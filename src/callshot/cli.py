"""The voice: one short function per command. Nothing heavy is imported before a command needs it."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from callshot.errors import CallshotError, OptionError, printable
from callshot.version import __version__

if TYPE_CHECKING:
    from callshot.corpus.annotations import Hints
    from callshot.corpus.corpora import Corpus
    from callshot.corpus.rule import Rule

app = typer.Typer(
    help="Few-shot classification of animal calls: k-shot curves with honest intervals, from a handful of labels.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
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


Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where the results go.")]
Seed = Annotated[int, typer.Option(help="Same seed, same numbers.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Errors only.")]
Threads = Annotated[int | None, typer.Option(help="Changes the time, never the numbers.", show_default="all cores")]
Audio = Annotated[Path, typer.Argument(metavar="AUDIO_DIR", help="The folder of the recordings, or one recording.")]
Annotations = Annotated[
    Path | None,
    typer.Option("--annotations", "-a", metavar="FILE_OR_DIR", help="What annotates them.",
                 show_default="found beside the recordings"),
]  # fmt: skip
CorpusName = Annotated[
    str | None, typer.Option(metavar="NAME", help="A corpus with known rules: ldc2010s05 or elephant-voices.")
]
Form = Annotated[
    str,
    typer.Option(
        "--format",
        help="csv, raven, audacity, textgrid, folders (named by label), or one of crowsetta's: "
        "birdsong-recognition-dataset, generic-seq, notmat, simple-seq, timit, yarden.",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns", "-c", metavar="OURS=THEIRS", help="Which column is which, e.g. label=Species; repeatable."
    ),
]
Tiers = Annotated[
    list[str] | None, typer.Option("--tier", metavar="NAME", help="A TextGrid tier that holds the calls; repeatable.")
]
Label = Annotated[str | None, typer.Option(metavar="TEXT", help="The label of rows in files without a label column.")]
MinLength = Annotated[
    float | None,
    typer.Option(
        "--min-length", metavar="S", help="Shorter calls are dropped, measured without collar.", show_default="1"
    ),
]
SourceRate = Annotated[
    float | None,
    typer.Option(metavar="HZ", help="The true rate of time-expanded recordings; times are then true times too."),
]


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
def inspect(
    audio: Audio,
    annotations: Annotations = None,
    corpus: CorpusName = None,
    format: Form = "auto",
    columns: Columns = None,
    tiers: Tiers = None,
    label: Label = None,
    min_length: MinLength = None,
    source_rate: SourceRate = None,
    folds: Annotated[int | None, typer.Option(help="Folds to try.", show_default="the corpus's, or 5")] = None,
    quiet: Quiet = False,
) -> None:
    """What is in a folder, before anything is decided?

    Looks at the recordings (headers only) and at whatever annotates them, says which formats it recognised and why, how
    files pair, how many calls of each label there are in how many recordings, how many folds they allow, which labels
    would be eligible, and k*. Writes nothing.

    Example: callshot inspect recordings --annotations selection-tables
    """
    from rich.console import Console

    from callshot.corpus.inspection import inspect_corpus
    from callshot.report.corpus import show_inspection
    from callshot.report.progress import show_progress

    known, rule = _rule(corpus, minimum_s=min_length, source_rate_hz=source_rate)
    with _interruptible(), show_progress(Console(stderr=True), quiet=quiet, first="looking around") as report:
        found = inspect_corpus(
            audio, annotations, rule, format=format, hints=_hints(columns, tiers, label), corpus=known,
            folds=_at_least("folds", folds, 2), report=report,
        )  # fmt: skip
    show_inspection(found, Console(), _next_step(audio, annotations, corpus, format, found.minimum_s))


@app.command()
def segment(
    audio: Audio,
    out: Out,
    annotations: Annotations = None,
    corpus: CorpusName = None,
    format: Form = "auto",
    columns: Columns = None,
    tiers: Tiers = None,
    label: Label = None,
    min_length: MinLength = None,
    with_collar: Annotated[bool, typer.Option("--with-collar", help="Measure that length with the collar.")] = False,
    collar: Annotated[
        float | None, typer.Option(metavar="S", help="Audio added at each end.", show_default="the corpus's, or 0")
    ] = None,
    channel: Annotated[
        str | None, typer.Option(help="first, mean, or a number from 1.", show_default="the corpus's, or mean")
    ] = None,
    rate: Annotated[int, typer.Option(metavar="HZ", help="The rate that segments are read at.")] = 16000,
    level: Annotated[float, typer.Option(metavar="DBFS", help="The peak that each segment is brought to.")] = -3.0,
    normalise: Annotated[bool, typer.Option(help="Bring each segment to that peak.")] = True,
    source_rate: SourceRate = None,
    check: Annotated[bool, typer.Option(help="Read the audio of every segment, so that none fails later.")] = True,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """From recordings and annotations, in the formats people have, to segments.

    Writes segments.parquet (a row per segment: its recording, span, label, all labels that overlap it, how its audio is
    to be read, and every other column of the annotations), rejects.csv (every annotation that became none, and why) and
    segments.json (what was done) to DIR. Nothing is dropped in silence.

    Example: callshot segment recordings --annotations selection-tables --collar 0.25 --out segments
    """
    from rich.console import Console

    from callshot.pipeline import segment_files
    from callshot.report.corpus import show_segmentation
    from callshot.report.progress import show_progress

    known, rule = _rule(
        corpus, minimum_s=min_length, with_collar=with_collar, collar_s=collar, channel_rule=channel, rate_hz=rate,
        source_rate_hz=source_rate, **({"level_dbfs": level} if normalise else {}),
    )  # fmt: skip
    rule = rule if normalise else replace(rule, level_dbfs=None)
    with _interruptible(), show_progress(Console(stderr=True), quiet=quiet, first="reading annotations") as report:
        found = segment_files(
            audio, out, annotations, rule, format=format, hints=_hints(columns, tiers, label), corpus=known,
            check=check, threads=_at_least("threads", threads, 1), report=report,
        )  # fmt: skip
    if not quiet:
        show_segmentation(found, Console(), f"segments in {out / 'segments.parquet'}, rejects in {out / 'rejects.csv'}")


@app.command()
def synth(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the corpus goes: an empty or a new folder.")],
    scale: Annotated[float, typer.Option(help="Multiplies the number of calls; 1 has the paper's.")] = 1.0,
    seed: Seed = 0,
    rate: Annotated[int, typer.Option(metavar="HZ", help="The recordings' sample rate.")] = 16000,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Make a corpus to learn and test on: elephant-like calls, by synthesis.

    The 12 subcall types of the paper's Elephant Voices corpus with their counts, in recordings with wind, birds,
    distance and reverberation of their own; some calls overlap, some are under 1 s, a few types are rare. Recordings
    are FLAC, annotations are Raven selection tables and Praat TextGrids. The same seed makes the same bytes.

    Example: callshot synth corpus && callshot segment corpus/recordings -a corpus/raven --out segments
    """
    from rich.console import Console

    from callshot.corpus.synthetic import make_corpus
    from callshot.report.progress import show_progress

    with _interruptible(), show_progress(Console(stderr=True), quiet=quiet, first="singing") as report:
        made = make_corpus(
            folder, seed=seed, scale=scale, rate_hz=rate, threads=_at_least("threads", threads, 1), report=report
        )
    if not quiet:
        print(f"{made.recordings} recordings, {made.calls} calls, {made.duration_s / 60:.0f} minutes in {folder}")
        print(f"next: callshot inspect {folder / 'recordings'} --annotations {folder / 'raven'}")


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
    out: Out,
    shots: Annotated[
        str, typer.Option(help="Examples per class: 1-40, or 1,2,5,10, or all (the whole pool).")
    ] = "1-40",
    draws: Annotated[int, typer.Option(help="Support sets drawn for each query.")] = 100,
    bootstraps: Annotated[int, typer.Option(help="Bootstrap samples of the per-query spread.")] = 5000,
    shared_draws: Annotated[int, typer.Option(help="Support sets of the shared spread.")] = 1000,
    folds: Annotated[
        int | None,
        typer.Option(
            help="Folds to build; without it, the column fold of the table.", show_default="the corpus's, or 5"
        ),
    ] = None,
    fold_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV with segment,fold or recording,fold; the folds.csv of a run is one."),
    ] = None,
    seed: Seed = 0,
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
    threads: Threads = None,
    memory: Annotated[
        float | None,
        typer.Option(
            metavar="GIB", help="Above this the Gram matrix is not built.", show_default="a quarter of the machine's"
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


def _rule(name: str | None, **options: object) -> tuple["Corpus | None", "Rule"]:
    """Return a corpus by its name, and its rule (or the default one) with the options that were given."""
    from callshot.corpus.corpora import find_corpus
    from callshot.corpus.rule import Rule

    corpus = None if name is None else find_corpus(name)
    given = {key: value for key, value in options.items() if value is not None}
    return corpus, replace(Rule() if corpus is None else corpus.rule, **given)  # type: ignore[arg-type]


def _hints(columns: list[str] | None, tiers: list[str] | None, label: str | None) -> "Hints":
    from callshot.corpus.annotations import Hints

    pairs = [entry.partition("=") for entry in columns or ()]
    for entry, (ours, equals, theirs) in zip(columns or (), pairs, strict=True):
        if not (ours.strip() and equals and theirs.strip()):
            raise OptionError(f"columns: wanted OURS=THEIRS, such as label=Species, got {entry!r}")
    return Hints({ours.strip(): theirs.strip() for ours, _, theirs in pairs}, tuple(tiers or ()), None, label)


def _next_step(audio: Path, annotations: Path | None, corpus: str | None, format: str, minimum: float | None) -> str:
    """Return the command that cuts what was inspected."""
    options = {"--annotations": annotations, "--corpus": corpus, "--format": format if format != "auto" else None}
    options |= {"--min-length": None if minimum is None else f"{minimum:g}"}
    given = " ".join(f"{name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None)
    return f"next: callshot segment {shlex.quote(str(audio))} {given}{' ' if given else ''}--out segments"


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
