"""Options that several commands share: where recordings are, what annotates them, and how that is read."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.errors import OptionError

if TYPE_CHECKING:
    from callshot.corpus.annotations import Hints
    from callshot.corpus.known_corpora import Corpus
    from callshot.corpus.options import SegmentationOptions

Audio = Annotated[
    Path,
    typer.Argument(metavar="AUDIO_DIR", help="The folder of the recordings, or one recording."),
]
Annotations = Annotated[
    Path | None,
    typer.Option(
        "--annotations",
        "-a",
        metavar="FILE_OR_DIR",
        help="What annotates them.",
        show_default="found beside the recordings",
    ),
]
CorpusName = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A corpus with known rules: ldc2010s05 or elephant-voices."),
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
        "--columns",
        "-c",
        metavar="OURS=THEIRS",
        help="Which column is which, e.g. label=Species; repeatable.",
    ),
]
Tiers = Annotated[
    list[str] | None,
    typer.Option(
        "--tier", metavar="NAME", help="A TextGrid tier that holds the calls; repeatable."
    ),
]
Label = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="The label of rows in files without a label column."),
]
MinLength = Annotated[
    float | None,
    typer.Option(
        "--min-length",
        metavar="S",
        help="Shorter calls are dropped, measured without collar.",
        show_default="1",
    ),
]
SourceRate = Annotated[
    float | None,
    typer.Option(
        metavar="HZ",
        help="The true rate of time-expanded recordings; times are then true times too.",
    ),
]


def make_segmentation_options(
    name: str | None, **options: object
) -> tuple["Corpus | None", "SegmentationOptions"]:
    """Return a corpus by its name, and its options (or the defaults) with those given."""
    from callshot.corpus.known_corpora import default_options, find_corpus

    corpus = None if name is None else find_corpus(name)
    given = {key: value for key, value in options.items() if value is not None}
    return corpus, replace(default_options(corpus), **given)  # type: ignore[arg-type]


def make_hints(columns: list[str] | None, tiers: list[str] | None, label: str | None) -> "Hints":
    """Return what the options say about annotation files."""
    from callshot.corpus.annotations import Hints

    pairs = [entry.partition("=") for entry in columns or ()]
    for entry, (ours, equals, theirs) in zip(columns or (), pairs, strict=True):
        if not (ours.strip() and equals and theirs.strip()):
            raise OptionError(f"columns: wanted OURS=THEIRS, such as label=Species, got {entry!r}")
    return Hints(
        {ours.strip(): theirs.strip() for ours, _, theirs in pairs}, tuple(tiers or ()), None, label
    )
