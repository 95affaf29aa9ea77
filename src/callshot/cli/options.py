"""Options that several commands share, and the objects that they stand for."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.errors import OptionError
from callshot.files import check_results_folder

if TYPE_CHECKING:
    from callshot.corpus.annotations import Hints
    from callshot.corpus.known_corpora import Corpus
    from callshot.corpus.options import SegmentationOptions
    from callshot.fewshot.protocol import Protocol
    from callshot.study.file_steps import DatasetChoice


NO_NAME = Path("\0")  # no file can have this name


def check_threads(threads: int | None) -> int | None:
    """Check the number of threads; typer calls it, so that errors are one line like all others."""
    return _check_at_least("threads", threads, 1)


def check_folds(folds: int | None) -> int | None:
    """Check the number of folds."""
    return _check_at_least("folds", folds, 2)


def _check_at_least(name: str, value: int | None, least: int) -> int | None:
    if value is not None and value < least:
        raise OptionError(f"{name}: expected {least} or more, got {value}")
    return value


Audio = Annotated[
    Path,
    typer.Argument(
        metavar="AUDIO_DIR", help="The folder of the recordings, or one recording."
    ),
]


def check_out(name: Path) -> Path:
    """Check a folder for results."""
    return check_results_folder("" if name == NO_NAME else str(name))


def parse_out(text: str) -> Path:
    """Return a path; an empty text, which pathlib takes for the current folder, is NO_NAME."""
    return Path(text) if text.strip() else NO_NAME


Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        parser=parse_out,
        callback=check_out,
        help="Where the results go.",
    ),
]
OutTable = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="TABLE", help="The table to write, .parquet."),
]
Seed = Annotated[int, typer.Option(help="Same seed, same numbers.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
Threads = Annotated[
    int | None,
    typer.Option(
        callback=check_threads,
        help="Changes the time, never the numbers.",
        show_default="all cores",
    ),
]
ClusterName = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="local:N|ADDRESS|FILE",
        help="Work on N processes of this machine, or on the workers of a Dask scheduler, by its "
        "address or its file. Changes the time, never the numbers.",
        show_default=False,
    ),
]
FollowLinks = Annotated[
    bool,
    typer.Option(
        "--follow-links",
        help="Read files behind links that lead outside the folder (git-annex, DVC).",
    ),
]
Device = Annotated[str, typer.Option(help="Where networks run: cpu or cuda.")]
SweepDevice = Annotated[
    str, typer.Option(help="cpu, cuda, or auto: the GPU, if there is one.")
]
FoldCount = Annotated[
    int | None,
    typer.Option(
        callback=check_folds, help="Folds to build.", show_default="the corpus's, or 5"
    ),
]
MinLength = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="Shorter calls are left out, measured without collar.",
        show_default="the corpus's, or 1",
    ),
]
SourceRate = Annotated[
    float | None,
    typer.Option(
        metavar="HZ",
        help="The true sample rate of time-expanded recordings; times are then true times too.",
    ),
]


@dataclass
class AnnotationOptions:
    """What annotates the recordings, and how that is read."""

    annotations: Annotated[
        Path | None,
        typer.Option(
            "--annotations",
            "-a",
            metavar="FILE_OR_DIR",
            help="The annotation file, or the folder of annotation files.",
            show_default="found beside the recordings",
        ),
    ] = None
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A known corpus: ldc2010s05 or elephant-voices."
        ),
    ] = None
    format: Annotated[
        str,
        typer.Option(
            help="auto, csv, raven, audacity, textgrid, folders (named by label), or a format of "
            "crowsetta: birdsong-recognition-dataset, generic-seq, notmat, simple-seq, timit, "
            "yarden.",
        ),
    ] = "auto"
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            "-c",
            metavar="OURS=THEIRS",
            help="Which column is which, e.g. label=Species; repeatable.",
        ),
    ] = None
    tiers: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A TextGrid tier that holds the calls; repeatable."
        ),
    ] = None
    label: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="The label of rows in files without a label column."
        ),
    ] = None
    rename: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV with label,new_label: renames labels; an empty new label leaves calls out.",
        ),
    ] = None
    time_unit: Annotated[
        str | None,
        typer.Option(
            metavar="UNIT",
            help="The unit of times in tables: s or ms.",
            show_default="by the names of columns, or s",
        ),
    ] = None
    follow_links: FollowLinks = False

    def known_corpus(self) -> "Corpus | None":
        """Return the known corpus, if one is named."""
        from callshot.corpus.known_corpora import find_corpus

        return None if self.corpus is None else find_corpus(self.corpus)

    def hints(self) -> "Hints":
        """Return what the options say about annotation files."""
        from callshot.corpus.renaming import make_hints

        return make_hints(
            columns=parse_pairs("columns", self.columns, "label=Species"),
            tiers=self.tiers or (),
            label=self.label,
            rename=self.rename,
            time_unit=self.time_unit,
            follow_links=self.follow_links,
        )


@dataclass
class SegmentOptions:
    """How segments are cut, and how their audio is read."""

    min_length_s: MinLength = None
    with_collar: Annotated[
        bool, typer.Option("--with-collar", help="Measure that length with the collar.")
    ] = False
    collar_s: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Audio added at each end.",
            show_default="the corpus's, or 0",
        ),
    ] = None
    channel: Annotated[
        str | None,
        typer.Option(
            help="first, mean, or a number from 1.",
            show_default="the corpus's, or mean",
        ),
    ] = None
    rate_hz: Annotated[
        int, typer.Option(metavar="HZ", help="The sample rate of segments.")
    ] = 16000
    level_dbfs: Annotated[
        float,
        typer.Option(metavar="DBFS", help="The peak that each segment is scaled to."),
    ] = -3.0
    normalise: Annotated[
        bool, typer.Option(help="Scale each segment to that peak.")
    ] = True
    source_rate_hz: SourceRate = None

    def segmentation(self, corpus: "Corpus | None") -> "SegmentationOptions":
        """Return the options of segmentation, on top of those of a known corpus."""
        options = segmentation_options(
            corpus,
            min_length_s=self.min_length_s,
            collar_s=self.collar_s,
            channel=self.channel,
            source_rate_hz=self.source_rate_hz,
        )
        return replace(
            options,
            with_collar=self.with_collar,
            rate_hz=self.rate_hz,
            level_dbfs=self.level_dbfs if self.normalise else None,
        )


@dataclass
class DatasetOptions:
    """The folds, the categories and the name of a corpus."""

    folds: FoldCount = None
    fold_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV with segment,fold or recording,fold; the folds.csv of a run is one.",
        ),
    ] = None
    categories: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV with label,category: adds the reduced scoring over categories.",
        ),
    ] = None
    group_duplicates: Annotated[
        bool,
        typer.Option(
            "--group-duplicates",
            help="Keep recordings in one fold that share a segment with the same vector.",
        ),
    ] = False
    corpus: Annotated[
        str | None,
        typer.Option(
            help="Name of the corpus in the results.",
            show_default="the table's, or its folder's",
        ),
    ] = None

    def choice(self) -> "DatasetChoice":
        """Return how folds and categories are chosen."""
        from callshot.study.file_steps import DatasetChoice

        return DatasetChoice(**vars(self))


@dataclass
class ProtocolOptions:
    """How support sets are drawn, scored and resampled."""

    shots: Annotated[
        str,
        typer.Option(
            help="Examples per class: 1-40, or 1,2,5,10, or all (the whole pool)."
        ),
    ] = "1-40"
    draws: Annotated[int, typer.Option(help="Support sets drawn for each query.")] = 100
    bootstraps: Annotated[
        int, typer.Option(help="Bootstrap samples of the per-query spread.")
    ] = 5000
    shared_draws: Annotated[
        int, typer.Option(help="Support sets of the shared spread.")
    ] = 1000
    total_samples: Annotated[int, typer.Option(help="Samples of the total spread.")] = (
        1000
    )
    seed: Seed = 0
    sampler: Annotated[
        str,
        typer.Option(
            help="distinct: no exemplar twice in a draw. replacement: independent picks."
        ),
    ] = "distinct"
    score: Annotated[
        str,
        typer.Option(
            help="log: log-odds. softmax: as in the paper; it saturates, and the cost of its ties "
            "is measured (twice the time)."
        ),
    ] = "log"
    classifiers: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="One or more of centroid, cosine, cl2n, whitened, neighbour, medoid; "
            "separated by commas.",
        ),
    ] = "centroid"
    spread: Annotated[
        str,
        typer.Option(
            help="Where intervals come from. total: which calls were labelled, and which were "
            "recorded. shared: which calls were labelled. per-query: the paper's bootstrap. all."
        ),
    ] = "all"

    permutations: Annotated[
        int,
        typer.Option(
            help="Permutations of labels in the test against chance; 0 leaves it out."
        ),
    ] = 199

    repeat_folds: Annotated[
        int,
        typer.Option(
            help="Partitions into folds to evaluate: how much mAP depends on the folds."
        ),
    ] = 1

    seeds: Annotated[
        int,
        typer.Option(
            help="Labelled sets, and samples of recordings, to cross with the partitions: how much "
            "of the spread of mAP comes from folds, examples and queries."
        ),
    ] = 1

    def protocol(self) -> "Protocol":
        """Return the protocol, checked."""
        from callshot.fewshot.protocol import make_protocol

        classifiers = parse_names(self.classifiers)
        return make_protocol(**vars(self) | {"classifiers": classifiers})


def segmentation_options(
    corpus: "Corpus | None", **given: object
) -> "SegmentationOptions":
    """Return the options of a known corpus, or the defaults, with those that are given."""
    from callshot.corpus.known_corpora import default_options

    changes = {name: value for name, value in given.items() if value is not None}
    return replace(default_options(corpus), **changes)  # type: ignore[arg-type]


def parse_names(text: str) -> tuple[str, ...]:
    """Return names that are separated by commas.

    >>> parse_names("cosine, medoid")
    ('cosine', 'medoid')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


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
