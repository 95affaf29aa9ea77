"""Commands that turn recordings into segments: inspect, segment, synth."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from callshot.cli.app import BESIDE, STEPS, Out, Quiet, Seed, Threads, app, at_least, interruptible
from callshot.cli.options import (
    Annotations,
    Audio,
    Columns,
    CorpusName,
    Form,
    Label,
    MinLength,
    SourceRate,
    Tiers,
    make_hints,
    make_segmentation_options,
)


@app.command(rich_help_panel=STEPS)
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
    folds: Annotated[
        int | None, typer.Option(help="Folds to try.", show_default="the corpus's, or 5")
    ] = None,
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

    known, segmentation = make_segmentation_options(
        corpus, minimum_s=min_length, source_rate_hz=source_rate
    )
    with (
        interruptible(),
        show_progress(Console(stderr=True), quiet=quiet, first="scanning folder") as progress,
    ):
        found = inspect_corpus(
            audio,
            annotations,
            options=segmentation,
            format=format,
            hints=make_hints(columns, tiers, label),
            corpus=known,
            folds=at_least("folds", folds, 2),
            shorten=min_length is None,
            progress=progress,
        )
    options: list[tuple[str, object]] = [("--annotations", annotations), ("--corpus", corpus)]
    options += [("--format", None if format == "auto" else format)]
    options += [("--columns", entry) for entry in columns or ()] + [
        ("--tier", name) for name in tiers or ()
    ]
    minimum = min_length if found.minimum_s is None else found.minimum_s
    options += [("--label", label), ("--min-length", minimum), ("--source-rate", source_rate)]
    show_inspection(
        found, Console(), _next_step(audio, options) if found.segmentation.segments else ""
    )


@app.command(rich_help_panel=STEPS)
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
    with_collar: Annotated[
        bool, typer.Option("--with-collar", help="Measure that length with the collar.")
    ] = False,
    collar: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Audio added at each end.", show_default="the corpus's, or 0"
        ),
    ] = None,
    channel: Annotated[
        str | None,
        typer.Option(help="first, mean, or a number from 1.", show_default="the corpus's, or mean"),
    ] = None,
    rate: Annotated[
        int, typer.Option(metavar="HZ", help="The rate that segments are read at.")
    ] = 16000,
    level: Annotated[
        float, typer.Option(metavar="DBFS", help="The peak that each segment is brought to.")
    ] = -3.0,
    normalise: Annotated[bool, typer.Option(help="Bring each segment to that peak.")] = True,
    source_rate: SourceRate = None,
    check: Annotated[
        bool, typer.Option(help="Read the audio of every segment, so that none fails later.")
    ] = True,
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

    from callshot.report.corpus import show_segmentation
    from callshot.report.progress import show_progress
    from callshot.study.file_steps import segment_files

    known, segmentation = make_segmentation_options(
        corpus,
        minimum_s=min_length,
        with_collar=with_collar,
        collar_s=collar,
        channel_rule=channel,
        rate_hz=rate,
        source_rate_hz=source_rate,
        **({"level_dbfs": level} if normalise else {}),
    )
    if not normalise:
        segmentation = replace(segmentation, level_dbfs=None)
    with (
        interruptible(),
        show_progress(Console(stderr=True), quiet=quiet, first="reading annotations") as progress,
    ):
        found = segment_files(
            audio,
            out,
            annotations,
            options=segmentation,
            format=format,
            hints=make_hints(columns, tiers, label),
            corpus=known,
            check=check,
            threads=at_least("threads", threads, 1),
            progress=progress,
        )
    if not quiet:
        show_segmentation(
            found,
            Console(),
            f"segments in {out / 'segments.parquet'}, rejects in {out / 'rejects.csv'}",
        )


@app.command(rich_help_panel=BESIDE)
def synth(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where the corpus goes: an empty or a new folder.")
    ],
    scale: Annotated[
        float,
        typer.Option(
            help="Multiplies the number of calls (1: the paper's); no type has fewer than 5."
        ),
    ] = 1.0,
    seed: Seed = 0,
    rate: Annotated[int, typer.Option(metavar="HZ", help="The recordings' sample rate.")] = 16000,
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Make a corpus to learn and test on: elephant-like calls, by synthesis.

    The 12 subcall types of the paper's Elephant Voices corpus with their counts, and 3 rare ones, in recordings with
    wind, birds, distance and reverberation of their own; some calls overlap, some are under 1 s. Recordings are FLAC,
    annotations are Raven selection tables and Praat TextGrids. The same seed makes the same bytes.

    Example: callshot synth corpus && callshot segment corpus/recordings -a corpus/raven --out segments
    """
    from rich.console import Console

    from callshot.corpus.synthetic import make_corpus
    from callshot.report.progress import show_progress

    with (
        interruptible(),
        show_progress(Console(stderr=True), quiet=quiet, first="synthesising") as progress,
    ):
        summary = make_corpus(
            folder,
            seed=seed,
            scale=scale,
            rate_hz=rate,
            threads=at_least("threads", threads, 1),
            progress=progress,
        )
    if not quiet:
        print(
            f"{summary.recordings} recordings, {summary.calls} calls, {summary.duration_s / 60:.0f} minutes in {folder}"
        )
        print(f"next: callshot inspect {folder / 'recordings'} --annotations {folder / 'raven'}")


def _next_step(audio: Path, options: list[tuple[str, object]]) -> str:
    """Return the command that cuts what was inspected, with the options that were given."""
    words = [str(word) for name, value in options if value is not None for word in (name, value)]
    return f"next: callshot segment {shlex.join([str(audio), *words])} --out segments"
