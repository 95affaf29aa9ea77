"""Commands that turn recordings into segments: inspect, segment."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from callshot.cli.app import (
    STEPS,
    app,
    report_left_out,
    run_with_progress,
)
from callshot.cli.options import (
    Audio,
    CorpusGroup,
    FoldCount,
    MinLength,
    Out,
    Quiet,
    SourceRate,
    Threads,
)
from callshot.options import CuttingOptions, Given, option


@app.command(rich_help_panel=STEPS)
def inspect(
    audio: Audio,
    source: CorpusGroup,
    min_length_s: MinLength = None,
    source_rate_hz: SourceRate = None,
    folds: FoldCount = None,
    quiet: Quiet = False,
) -> None:
    """Show the recordings, annotations and calls in a folder. Writes nothing.

    Reads the headers of the recordings, and the annotations. Shows which formats were recognised
    and why, which annotation file belongs to which recording, how many calls of each label there
    are in how many recordings, how many folds are possible, which labels are eligible (have calls
    in every fold), and k*: up to k* examples per class, every class has enough examples.

    Example: callshot inspect recordings --annotations selection-tables
    """
    from rich.console import Console

    from callshot.cli.terminal import show_inspection
    from callshot.corpus.options import read_source
    from callshot.corpus.segment_table import inspect_corpus
    from callshot.corpus.segments import check_any_segments

    lengths = {"min_length_s": min_length_s, "source_rate_hz": source_rate_hz}
    given = {name: value for name, value in lengths.items() if value is not None}
    reading = read_source(source | given)
    with run_with_progress("scanning the folder", quiet=quiet) as progress:
        inspection = inspect_corpus(audio, **reading, folds=folds, progress=progress)
    next_step = ""
    if inspection.segmentation.segments:
        next_step = _segment_command(audio, source | given)
    show_inspection(inspection, Console(), next_step)
    check_any_segments(inspection.segmentation)
    left_out = [
        *inspection.segmentation.rejects,
        *inspection.segmentation.skipped_files,
    ]
    report_left_out(left_out, "file or annotation", "", "files and annotations")


@app.command(rich_help_panel=STEPS)
def segment(
    audio: Audio,
    out: Out,
    source: CorpusGroup,
    segmentation: Annotated[Given, CuttingOptions],
    check: bool = option(
        True, "", "Read the audio of every segment now, to find damaged files."
    ),
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Make a table of segments (one annotated call each) from recordings and annotations.

    Writes to DIR: segments.parquet (a row per segment: its recording, start and end, label, all
    labels that overlap it, how to read its audio, and every other column of the annotations),
    rejects.csv (every annotation that was left out, and why) and segments.json (settings, counts
    and versions). If the same audio is in several recordings, duplicates.csv lists it.

    Example: callshot segment recordings -a selection-tables --collar-s 0.25 --out segments
    """
    from rich.console import Console

    from callshot.cli.terminal import show_segmentation
    from callshot.corpus.options import read_source
    from callshot.study.file_steps import segment_files

    reading = read_source(source | segmentation)
    with run_with_progress("reading annotations", quiet=quiet) as progress:
        result = segment_files(
            audio, out, **reading, check=check, threads=threads, progress=progress
        )
    if not quiet:
        paths = (
            f"segments in {out / 'segments.parquet'}, rejects in {out / 'rejects.csv'}"
        )
        show_segmentation(result, Console(), paths)
    left_out = [*result.skipped_files, *result.rejects]
    report_left_out(
        left_out, "file or annotation", out / "rejects.csv", "files and annotations"
    )


def _segment_command(audio: Path, given: Given) -> str:
    """Return the command that segments what was inspected, with the same options."""
    words = [str(audio)]
    for name, value in given.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
            continue
        entries = [value]
        if isinstance(value, Mapping):
            entries = [f"{key}={column}" for key, column in value.items()]
        elif isinstance(value, tuple):
            entries = [*value]
        for entry in entries:
            words += [option, str(entry)]
    return f"next: callshot segment {shlex.join(words)} --out segments"
