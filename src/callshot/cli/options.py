"""Options that several commands share, and the objects that they stand for."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from callshot.cli.app import argument, run_with_progress
from callshot.errors import count_text, printable
from callshot.files import check_own_folder, check_results_folder
from callshot.options import (
    AnnotationSource,
    CuttingOptions,
    FoldOptions,
    Given,
    KnownCorpus,
    ProtocolOptions,
    ReadingOptions,
    flag,
    list_options,
    option,
)

if TYPE_CHECKING:
    from callshot.distributed import DaskCluster

# Options of a class that commands have by themselves
SINGLE = list_options(ProtocolOptions, CuttingOptions, FoldOptions, ReadingOptions)
Shots = Annotated[str, SINGLE["shots"]]
Seed = Annotated[int, SINGLE["seed"]]
FoldCount = Annotated[int | None, SINGLE["folds"]]
MinLength = Annotated[float | None, SINGLE["min_length_s"]]
SourceRate = Annotated[float | None, SINGLE["source_rate_hz"]]
Columns = Annotated[Mapping[str, str] | None, SINGLE["columns"]]
FollowLinks = Annotated[bool, SINGLE["follow_links"]]
AnnotationGroup = Annotated[Given, AnnotationSource, ReadingOptions]
CorpusGroup = Annotated[Given, AnnotationSource, ReadingOptions, KnownCorpus]

Audio = Annotated[
    Path, argument(..., "AUDIO_DIR", "Folder of the recordings, or one recording.")
]


def window_option(shown: str | None = None) -> Any:
    """Return the option of the length of windows; `shown` is its default in words."""
    text = "Length of a window in seconds, for encoders that have no fixed window, such as mfcc."
    return option(None, "S", text, shown=shown)


def _check_out(name: str) -> Path:
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
        "-o",
        typer={"parser": str, "callback": _check_out},
    ),
]
OutTable = Annotated[Path, option(..., "TABLE", "Table to write (.parquet).", "-o")]
Quiet = Annotated[bool, flag("Print only errors, and how much was left out.", "-q")]
Threads = Annotated[
    int | None,
    option(
        ...,
        "N",
        "Number of threads. Results do not depend on it.",
        low=1,
        shown="all cores",
    ),
]
ClusterName = Annotated[
    str | None,
    option(
        ...,
        "local:N|ADDRESS|FILE",
        "Dask cluster that does the work: local:N starts N processes on this machine; or the "
        "address or the scheduler file of a running cluster. Results do not depend on it.",
        shown="no cluster",
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
        shown="the folder in the table of segments",
    ),
]
Store = Annotated[
    Path | None,
    option(
        ...,
        "DIR",
        "Folder where embeddings are stored, so that none is computed twice.",
        shown="a folder in the cache of the user",
    ),
]
Clips = Annotated[
    int | None,
    option(
        ...,
        "N",
        "Number of audio clips with spectrograms to write. For each label: the N events with the "
        "highest scores, the N most uncertain ones, and N from the whole range of scores.",
        shown="no clips",
    ),
]
MaxFrequency = Annotated[
    float | None,
    option(
        ...,
        "HZ",
        "With --clips: upper limit of the frequency axis in the spectrograms. Changes nothing "
        "else.",
        shown="half the sample rate",
    ),
]


@dataclass(frozen=True)
class DatasetOptions(FoldOptions):
    """The folds, the categories and the name of a corpus."""

    corpus: str | None = option(
        None,
        "NAME",
        "Name of the corpus in the results.",
        shown="the name in the table, or the name of its folder",
    )


@contextmanager
def use_cluster(
    where: str | None, threads: int | None, *, quiet: bool
) -> "Iterator[DaskCluster | None]":
    """Open the cluster of --cluster while a command runs, then print what was used."""
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
