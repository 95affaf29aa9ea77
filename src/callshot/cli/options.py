"""Options that several commands share, and the objects that they stand for."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from callshot.cli.app import (
    argument,
    option,
    run_with_progress,
)
from callshot.errors import OptionError, check_range, count_text, printable
from callshot.files import check_own_folder, check_results_folder

if TYPE_CHECKING:
    from callshot.corpus.annotations import AnnotationOptions
    from callshot.distributed import DaskCluster
    from callshot.fewshot.protocol import Protocol


def at_least(name: str, low: int) -> Callable[[int | None], int | None]:
    """Return a check of an option; typer calls it, so that errors are one line like all others."""

    def check(value: int | None) -> int | None:
        if value is not None:
            check_range(name, value, low)
        return value

    return check


Audio = Annotated[
    Path, argument(..., "AUDIO_DIR", "Folder of the recordings, or one recording.")
]


def check_out(name: str) -> Path:
    """Return a folder for results, checked before any work."""
    folder = check_results_folder(name)
    check_own_folder(folder)
    return folder


Out = Annotated[
    Path,
    option(
        ...,
        "DIR",
        "Folder for the results: a new one, an empty one, or one with results of callshot.",
        "--out",
        "-o",
        parser=str,  # pathlib takes an empty text for the current folder
        callback=check_out,
    ),
]
OutTable = Annotated[
    Path, option(..., "TABLE", "Table to write (.parquet).", "--out", "-o")
]
Seed = Annotated[
    int, option(..., "N", "Random seed. The same seed gives the same results.")
]
Quiet = Annotated[
    bool,
    option(..., "", "Print only errors, and how much was left out.", "--quiet", "-q"),
]
Threads = Annotated[
    int | None,
    option(
        ...,
        "N",
        "Number of threads. Results do not depend on it.",
        callback=at_least("threads", 1),
        show_default="all cores",
    ),
]
ClusterName = Annotated[
    str | None,
    option(
        ...,
        "local:N|ADDRESS|FILE",
        "Dask cluster that does the work: local:N starts N processes on this machine; or "
        "the address or the scheduler file of a running cluster. Results do not depend on it.",
        "--cluster",
        show_default="no cluster",
    ),
]
FollowLinks = Annotated[
    bool,
    option(
        ...,
        "",
        "Also read files through links that point outside the folder. Data managed with "
        "git-annex, DataLad or DVC has such links.",
        "--follow-links",
    ),
]
Device = Annotated[
    str,
    option(..., "cpu|cuda", "Processor for the encoder: cpu, or cuda for the GPU."),
]
SweepDevice = Annotated[
    str,
    option(
        ...,
        "auto|cpu|cuda",
        "Processor: cpu, cuda for the GPU, or auto for the GPU if there is one.",
    ),
]
Shots = Annotated[
    str,
    option(
        ...,
        "K",
        "Values of k, the number of examples per class: 1-40, or 1,2,5,10; all takes "
        "every example.",
    ),
]
FoldCount = Annotated[
    int | None,
    option(
        ...,
        "N",
        "Number of folds to build. All calls of a recording are in the same fold.",
        callback=at_least("folds", 2),
        show_default="5, or the number of a known corpus",
    ),
]
Columns = Annotated[
    list[str] | None,
    option(
        ...,
        "NAME=COLUMN",
        "Name of a column in your files: label=Species reads the labels from the column "
        "Species. Can be repeated.",
        "--columns",
        "-c",
    ),
]
SegmentTable = Annotated[
    Path,
    argument(
        ..., "SEGMENTS", "Table of segments: the segments.parquet of callshot segment."
    ),
]
AudioFolder = Annotated[
    Path | None,
    option(
        ...,
        "DIR",
        "Folder of the recordings.",
        show_default="the folder in the table of segments",
    ),
]
Store = Annotated[
    Path | None,
    option(
        ...,
        "DIR",
        "Folder where embeddings are stored, so that none is computed twice.",
        show_default="a folder in the cache of the user",
    ),
]
Clips = Annotated[
    int | None,
    option(
        ...,
        "N",
        "Number of audio clips with spectrograms to write. For each class: the N events "
        "with the highest scores, the N most uncertain ones, and N from the whole range of "
        "scores.",
        show_default="no clips",
    ),
]
MinLength = Annotated[
    float | None,
    option(
        ...,
        "S",
        "Shortest call, in seconds, as annotated. Shorter calls are left out. The paper's is "
        "1.",
        show_default="0, or 1 for a known corpus",
    ),
]
SourceRate = Annotated[
    float | None,
    option(
        ...,
        "HZ",
        "True sample rate, if recordings are time-expanded (slowed down). The times of "
        "annotations are then true times too.",
        show_default="the sample rate in the file",
    ),
]


@dataclass
class AnnotationFileOptions:
    """What annotates the recordings, and how that is read."""

    annotations: Path | None = option(
        None,
        "FILE_OR_DIR",
        "Annotation file, or folder of annotation files.",
        "--annotations",
        "-a",
        show_default="files found next to the recordings",
    )
    format: str = option(
        "auto",
        "NAME",
        "Format of the annotations: csv, raven, audacity, textgrid (Praat), folders (one "
        "folder of clips per label), or auto to recognise it. Formats read with the package "
        "crowsetta: birdsong-recognition-dataset, generic-seq, notmat, simple-seq, timit, "
        "yarden.",
    )
    columns: Columns = None
    tiers: list[str] | None = option(
        None,
        "NAME",
        "Tier of Praat TextGrid files that contains the calls. Can be repeated.",
        show_default="recognised by its name and labels",
    )
    label: str | None = option(
        None,
        "TEXT",
        "Label of the rows that have none: their label is empty, or the file has no "
        "column of labels.",
    )
    rename: Path | None = option(
        None,
        "FILE",
        "CSV file with the columns label and new_label, to rename labels. Calls whose "
        "new_label is empty are left out.",
    )
    time_unit: str | None = option(
        None,
        "UNIT",
        "Unit of the times in tables: s or ms.",
        show_default="s, or the unit in the names of columns",
    )
    follow_links: FollowLinks = False

    def annotation_options(self) -> "AnnotationOptions":
        """Return what the options say about annotation files."""
        from callshot.corpus.options import make_annotation_options

        return make_annotation_options(
            columns=parse_pairs("columns", self.columns, "label=Species"),
            tiers=self.tiers or (),
            label=self.label,
            rename=self.rename,
            time_unit=self.time_unit,
            follow_links=self.follow_links,
        )


@dataclass
class CorpusOptions(AnnotationFileOptions):
    """What annotates the recordings, which may be those of a known corpus."""

    corpus: str | None = option(
        None,
        "NAME",
        "Name of a known corpus, ldc2010s05 or elephant-voices. Its settings are then "
        "the defaults.",
    )

    def reading(self, **segmentation: object) -> dict[str, Any]:
        """Return how recordings are read and segmented, as `segment_corpus` takes it.

        Options of the segmentation that are None have the defaults of the corpus.
        """
        from callshot.corpus.options import default_options, find_corpus

        corpus = None if self.corpus is None else find_corpus(self.corpus)
        given = {key: value for key, value in segmentation.items() if value is not None}
        return {
            "annotations": self.annotations,
            "options": replace(default_options(corpus), **given),  # type: ignore[arg-type]
            "format": self.format,
            "annotation_options": self.annotation_options(),
            "corpus": corpus,
        }


@dataclass
class SegmentOptions:
    """How segments are cut, and how their audio is read."""

    min_length_s: MinLength = None
    with_collar: bool = option(
        False,
        "",
        "Include the collar in the length for --min-length-s.",
        "--with-collar",
    )
    collar_s: float | None = option(
        None,
        "S",
        "Collar: audio added at each end of a call, in seconds.",
        show_default="0, or the value of a known corpus",
    )
    channel: str | None = option(
        None,
        "first|mean|N",
        "Audio channel: first, mean of all channels, or a number (1 is the first).",
        show_default="mean, or the channel of a known corpus",
    )
    rate_hz: int = option(16000, "HZ", "Sample rate of the segments.")
    peak_dbfs: float = option(-3.0, "DBFS", "Peak level of the segments.")
    normalise: bool = option(True, "", "Scale each segment to the peak of --peak-dbfs.")
    source_rate_hz: SourceRate = None


def parse_names(text: str) -> tuple[str, ...]:
    """Return names that are separated by commas.

    >>> parse_names("cosine, medoid")
    ('cosine', 'medoid')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_numbers(option: str, text: str) -> list[float]:
    """Return numbers that are separated by commas.

    >>> parse_numbers("snr_db", "-3, 6")
    [-3.0, 6.0]
    """
    try:
        return [float(name) for name in parse_names(text)]
    except ValueError:
        raise OptionError(
            f"{option}: expected numbers that are separated by commas, got {text!r}"
        ) from None


def parse_pairs(option: str, entries: list[str] | None, example: str) -> dict[str, str]:
    """Return entries like NAME=VALUE as a mapping.

    >>> parse_pairs("columns", ["label = Species"], "label=Species")
    {'label': 'Species'}
    """
    pairs = {}
    for entry in entries or ():
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not (name and equals and value):
            raise OptionError(
                f"{option}: expected NAME=VALUE, such as {example}, got {entry!r}"
            )
        pairs[name] = value
    return pairs


@dataclass
class DatasetOptions:
    """The folds, the categories and the name of a corpus."""

    folds: FoldCount = None
    fold_file: Path | None = option(
        None,
        "FILE",
        "CSV file with your own folds: the columns segment and fold, or recording and "
        "fold. The file folds.csv of earlier results can be used.",
    )
    categories: Path | None = option(
        None,
        "FILE",
        "CSV file with the columns label and category. Adds scores that are averaged "
        "over categories (reduced scoring).",
    )
    group_duplicates: bool = option(
        False,
        "",
        "Put recordings that contain the same call into one fold. Calls are the same if "
        "their embeddings are equal.",
        "--group-duplicates",
    )
    corpus: str | None = option(
        None,
        "NAME",
        "Name of the corpus in the results.",
        show_default="the name in the table, or the name of its folder",
    )


@dataclass
class ProtocolOptions:
    """How support sets are drawn, scored and resampled."""

    shots: Shots = "1-40"
    draws: int = option(
        100,
        "N",
        "Number of support sets (random sets of k examples per class) for each query.",
    )
    bootstraps: int = option(
        5000, "N", "Number of bootstrap samples, for --spread per-query."
    )
    shared_draws: int = option(
        1000, "N", "Number of support sets that all queries share, for --spread shared."
    )
    total_samples: int = option(
        1000, "N", "Number of random samples of recordings, for --spread total."
    )
    seed: Seed = 0
    sampler: str = option(
        "distinct",
        "distinct|replacement",
        "How the k examples of a class are drawn. distinct: without replacement. "
        "replacement: with replacement, so an example can be drawn twice.",
    )
    score: str = option(
        "log",
        "log|softmax",
        "Score that ranks the queries. log: the log-odds. softmax: the probability, as in "
        "the paper; it rounds to 0 and 1, and the effect of such ties is measured, which "
        "takes twice the time.",
    )
    classifiers: str = option(
        "centroid",
        "NAMES",
        "Classifiers without training, separated by commas. centroid: nearest class mean. "
        "cosine: the same with cosine similarity. cl2n: centroid on centred vectors of length "
        "1. whitened: centroid on whitened vectors. neighbour: nearest example. medoid: "
        "nearest central example.",
    )
    spread: str = option(
        "all",
        "NAME",
        "What the intervals account for. total: other calls could have been labelled, and "
        "other recordings made. shared: other calls could have been labelled. per-query: the "
        "bootstrap of the paper. all: all three.",
    )

    permutations: int = option(
        199,
        "N",
        "Number of permutations of the labels, for the test against chance. 0: no test.",
    )

    repeat_folds: int = option(
        1,
        "N",
        "Number of different divisions into folds. With 2 or more, partitions.csv shows "
        "how much mAP depends on the folds.",
    )

    seeds: int = option(
        1,
        "N",
        "Number of labelled sets, and of samples of recordings, to evaluate. With 2 or "
        "more, sensitivity.csv shows how much of the variation of mAP comes from folds, from "
        "examples and from queries.",
    )

    def protocol(self) -> "Protocol":
        """Return the protocol, checked."""
        from callshot.fewshot.protocol import make_protocol

        classifiers = parse_names(self.classifiers)
        return make_protocol(**vars(self) | {"classifiers": classifiers})


@contextmanager
def use_cluster(
    where: str | None, threads: int | None, *, quiet: bool
) -> "Iterator[DaskCluster | None]":
    """Open a cluster while a command runs, if one is named; then print what was used."""
    if where is None:
        yield None
        return
    from callshot.distributed import open_cluster

    def report(line: str) -> None:
        if not quiet:
            print(printable(line), file=sys.stderr)

    with open_cluster(where, threads=threads) as cluster:
        line = f"cluster: {count_text(cluster.workers, 'worker')}"
        if cluster.dashboard:
            line += f"; dashboard: {cluster.dashboard}"
        report(line)
        yield cluster
    usage = cluster.usage
    report(
        f"cluster: {usage.audio_s / 3600:,.2f} hours of audio, {usage.failures:,} failures, "
        f"{usage.retries:,} retries"
    )
    for address, reason in usage.given_up.items():
        report(f"worker {address} did nothing: it could not begin ({reason})")


@dataclass
class Machine:
    """What does the work of a command, and whether it prints."""

    device: Device = "cpu"
    threads: Threads = None
    cluster: ClusterName = None
    quiet: Quiet = False

    @contextmanager
    def open(self, first: str = "") -> Iterator[dict[str, Any]]:
        """Yield the options of functions that do the work, while progress is shown."""
        with (
            use_cluster(self.cluster, self.threads, quiet=self.quiet) as workers,
            run_with_progress(first, quiet=self.quiet) as progress,
        ):
            yield {
                "device": self.device,
                "threads": self.threads,
                "cluster": workers,
                "progress": progress,
            }


@dataclass
class SweepMachine(Machine):
    """What does the work of an evaluation, and whether it prints."""

    device: SweepDevice = "auto"
