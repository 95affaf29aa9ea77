"""The confirmed calls of a review → examples of a model."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from callshot.detection.learning.example_calls import LearningOptions
from callshot.detection.learning.learn import LearningResult, learn_examples
from callshot.detection.models.model import Model, merge_models
from callshot.detection.models.model_file import check_model_path, load_model
from callshot.encoders.embed import EmbedOptions
from callshot.errors import InputError
from callshot.files import write_atomic
from callshot.records import Progress, Reject, no_progress
from callshot.records.csv_cells import format_csv
from callshot.review.results import (
    ReviewResults,
    find_model,
    read_review,
    split_by_root,
)

CONFIRMED = "confirmed.csv"  # in the folder of the review: the calls that were learned
# A note on calls alone; the model has background.
NO_BACKGROUND = "no windows without calls"
COLUMNS = ("recording", "start_s", "end_s", "label")


def learn_review_files(
    review: Path,
    out: Path,
    encoder: str | None,
    embedding: EmbedOptions,
    *,
    add: Path | None = None,
    progress: Progress = no_progress,
) -> LearningResult:
    """Add the confirmed calls of a review to its model, or to another one; write the result.

    Calls are embedded as examples are, in the middle of a window. The background stays that of the
    model: what was rejected sounds like a call, so it would not be a fair sample of the background.
    """
    check_model_path(out)
    result = learn_review(review, encoder, embedding, add=add, progress=progress)
    result.write(out)
    return result


def learn_review(
    review: Path,
    encoder: str | None,
    embedding: EmbedOptions,
    *,
    add: Path | None = None,
    progress: Progress = no_progress,
) -> LearningResult:
    """Return the model of a review with its confirmed calls; see `learn_review_files`."""
    results = _read_calls(review)
    earlier = load_model(find_model(results, review) if add is None else add)
    model: Model = earlier
    rejects: list[Reject] = []
    notes: list[str] = []
    name = encoder or earlier.encoder
    options = LearningOptions(background="none").on_top_of(earlier.settings)
    for root, table in _write_calls(results, review):
        part = learn_examples(
            root,
            name,
            replace(options, annotations=table),
            embedding,
            progress=progress,
        )
        model = merge_models(model, part.model)
        rejects += part.rejects
        notes += [note for note in part.notes if not note.startswith(NO_BACKGROUND)]
    new = len(model.examples) - len(earlier.examples)
    return LearningResult(model, new, rejects, notes)


def _read_calls(review: Path) -> ReviewResults:
    results = read_review(review)
    if len(results.events) == 0:
        raise InputError(
            f"{review}: nothing was confirmed yet, so there is nothing to learn"
        )
    return results


def _write_calls(results: ReviewResults, review: Path) -> Iterator[tuple[Path, Path]]:
    """Write the calls of each folder of recordings to a table; yield the folder and the table."""
    for number, (root, events) in enumerate(split_by_root(results)):
        table = review / (CONFIRMED if number == 0 else f"{number + 1}-{CONFIRMED}")
        rows = events.select(COLUMNS).rows()
        write_atomic(table, format_csv([COLUMNS, *rows]))
        yield root, table
