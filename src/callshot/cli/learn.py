"""Commands for models: learn, model, export."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from callshot.cli.app import FIELD, app, run_with_progress
from callshot.cli.encoders import MOST_REJECTS, Choices
from callshot.cli.option_groups import with_groups
from callshot.cli.options import (
    AnnotationOptions,
    Device,
    Quiet,
    SourceRate,
    Threads,
    parse_pairs,
)
from callshot.errors import OptionError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callshot.detection.learning.example_calls import LearningOptions
    from callshot.detection.learning.learn import LearningResult
    from callshot.encoders.embed import EmbedOptions
    from callshot.records import Progress, Reject

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="The model of callshot learn, .npz.")
]


@dataclass
class EncoderOptions:
    """The encoder, and how it runs."""

    encoder: Annotated[
        str | None,
        typer.Option(
            "--encoder",
            "-e",
            metavar="NAME",
            help="The encoder; callshot encoders lists them.",
            show_default="that of the model, where there is one",
        ),
    ] = None
    choices: Choices = None
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where embeddings are stored.",
            show_default="the user's cache",
        ),
    ] = None
    device: Device = "cpu"
    threads: Threads = None

    def embedding(self) -> "EmbedOptions":
        """Return how calls are embedded."""
        from callshot.encoders.embed import EmbedOptions

        choices = parse_pairs("set", self.choices, "speed=2")
        return EmbedOptions(choices, self.store, self.device, self.threads)


@dataclass
class ExampleOptions:
    """How the audio of examples is read."""

    window: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="The length of a window, for encoders without one of their own.",
            show_default="the median of the examples",
        ),
    ] = None
    channel: Annotated[
        str | None,
        typer.Option(help="first, mean, or a number from 1.", show_default="first"),
    ] = None
    source_rate_hz: SourceRate = None
    background: Annotated[
        str,
        typer.Option(
            metavar="auto|none|DIR",
            help="Windows without calls, from which thresholds are found: those of the annotated "
            "recordings that no annotation touches, none, or a folder of recordings without calls.",
        ),
    ] = "auto"
    site: Annotated[
        Path | None,
        typer.Option(
            metavar="RECORDINGS",
            help="Recordings of the site to be scanned: examples from elsewhere are mixed into "
            "their background.",
            show_default="what is scanned",
        ),
    ] = None


@app.command(rich_help_panel=FIELD)
@with_groups
def learn(
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="MODEL", help="The model to write, .npz."),
    ],
    encoder: EncoderOptions,
    source: AnnotationOptions,
    audio: ExampleOptions,
    examples: Annotated[
        Path | None,
        typer.Argument(
            metavar="[EXAMPLES]",
            help="A folder of recordings with annotations, one recording, a folder of clips per "
            "label, a segments.parquet, or the folder of a review.",
        ),
    ] = None,
    add: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL|REVIEW",
            help="Add the examples to those of this model; or, without EXAMPLES, add what was "
            "confirmed in this review to its model.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Learn to name calls from a few examples.

    An example in a recording is embedded with the sound around it, in the middle of a window; a
    call longer than a window is the mean of its windows. The segments of a segments.parquet are
    embedded as they were cut. --add gives the model that all examples would give at once. Confirmed
    calls of a review are examples too.

    Example: callshot learn recordings -a selections --encoder birdnet-v2.4 --out calls.npz
    """
    from callshot.detection.learning.example_calls import LearningOptions
    from callshot.detection.learning.learn import learn_files

    review, add = _find_review(examples, add)
    if source.corpus is not None:
        raise OptionError("corpus: learn has no use for it; leave the option out")
    options = LearningOptions(
        annotations=source.annotations,
        format=source.format,
        hints=source.hints(),
        window_s=audio.window,
        channel=audio.channel,
        source_rate_hz=audio.source_rate_hz,
        background=audio.background,
        site=audio.site,
    )
    name = encoder.encoder
    with run_with_progress("reading examples", quiet=quiet) as progress:
        embedding = encoder.embedding()
        more: Any = {"add": add, "progress": progress}
        if review is not None:
            result = _learn_review(review, out, name, options, embedding, **more)
        else:
            assert examples is not None  # otherwise there is a review
            result = learn_files(examples, out, name, options, embedding, **more)
    if not quiet:
        _print_result(result, out)


def _print_result(result: "LearningResult", out: Path) -> None:
    """Print what became of the examples."""
    from callshot.detection.models.model_summary import describe_limits

    print_rejects(result.rejects)
    for note in [*result.notes, *describe_limits(result.model)]:
        print(printable(f"note: {note}"))
    model = result.model
    print(
        printable(
            f"{len(model.examples)} examples ({result.new} new) of {len(model.classes)} labels "
            f"in {out}; licence of the weights: {model.provenance.licence}"
        )
    )
    print(f"next: callshot model {out}")


def _find_review(
    examples: Path | None, add: Path | None
) -> tuple[Path | None, Path | None]:
    """Return the review that examples come from, None if from no review, and the model to add to.

    `learn --add REVIEW` adds to the model of the review, `learn REVIEW --add MODEL` to another one.
    """
    from callshot.review.journal import is_review

    if add is not None and is_review(add):
        if examples is not None:
            raise OptionError(
                "add: a review is added to its own model; leave EXAMPLES out, or learn from the "
                "two one after the other"
            )
        return add, None
    if examples is None:
        raise OptionError("add: expected EXAMPLES, or the folder of a review in --add")
    if is_review(examples):
        if add is None:
            raise OptionError(
                f"add: name a model to which the calls of {examples} are added, or use --add "
                f"{examples} for the model of the review"
            )
        return examples, add
    return None, add


def _learn_review(
    review: Path,
    out: Path,
    encoder: str | None,
    options: "LearningOptions",
    embedding: "EmbedOptions",
    *,
    add: Path | None,
    progress: "Progress",
) -> "LearningResult":
    """Learn from a review, which has annotations and settings of its own."""
    from callshot.detection.learning.example_calls import LearningOptions
    from callshot.review.learn_review import learn_review_files

    if options != LearningOptions(hints=options.hints):
        raise OptionError(
            "add: calls of a review are read as the examples of its model were; leave the options "
            "of annotations and audio out"
        )
    return learn_review_files(
        review, out, encoder, embedding, add=add, progress=progress
    )


def print_rejects(rejects: "Sequence[Reject]") -> None:
    """Print what was left out, the first of many."""
    for reject in rejects[:MOST_REJECTS]:
        place = reject.file if reject.row is None else f"{reject.file}, {reject.row}"
        print(printable(f"left out: {place}: {reject.reason}"))
    if len(rejects) > MOST_REJECTS:
        print(f"and {len(rejects) - MOST_REJECTS} more")


@app.command(rich_help_panel=FIELD)
def model(path: ModelFile) -> None:
    """Show what a model has learned, and what to expect of it.

    Prints its labels with their examples, how many of these the examples of other recordings name
    right, what one more example would add, the most similar labels, and examples that are far from
    their label, with file and time.

    Example: callshot model calls.npz
    """
    from callshot.detection.models.model_file import load_model
    from callshot.detection.models.model_summary import describe_model

    for line in describe_model(load_model(path)):
        print(printable(line))


@app.command(rich_help_panel=FIELD)
def export(
    path: ModelFile,
    onnx: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The ONNX file to write, .onnx."),
    ],
) -> None:
    """Write the classifier of a model for other programs, as ONNX.

    The file takes vectors of the model's encoder (input `embedding`) and gives `label`, `scores`
    (log-odds of all labels) and `evidence` (the linear layer). Run the encoder first, and give its
    output to this file.

    Example: callshot export calls.npz --onnx calls.onnx
    """
    from callshot.detection.models.model_file import load_model
    from callshot.detection.scans.onnx_export import check_onnx_path, export_onnx

    check_onnx_path(onnx)
    learned = load_model(path)
    export_onnx(learned, onnx)
    print(
        printable(
            f"{onnx}: takes vectors of {learned.encoder}, gives labels and scores"
        )
    )
    print(printable(f"licence of the encoder's weights: {learned.provenance.licence}"))
