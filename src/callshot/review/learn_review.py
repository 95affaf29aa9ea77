"""The confirmed calls of a review → examples of a model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from callshot.detection.learn import (
    AUTO,
    NONE,
    LearningOptions,
    LearningResult,
    learn_examples,
)
from callshot.detection.model import Model, check_model_path, load_model, merge_models
from callshot.encoders.embed import EmbedOptions
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.errors import InputError, OptionError
from callshot.files import sha256_file, write_atomic
from callshot.records import Progress, Reject, no_progress
from callshot.records.table_files import format_csv
from callshot.review.journal import JOURNAL
from callshot.review.results import (
    ReviewResults,
    find_model,
    read_review,
    split_by_root,
)

CONFIRMED = "confirmed.csv"
# A note on calls alone; the model has background.
NO_BACKGROUND = "no windows without calls"
COLUMNS = ("recording", "start_s", "end_s", "label")
NO_OPTIONS = LearningOptions()


def learn_review_files(
    review: Path,
    out: Path,
    encoder: str | None,
    embedding: EmbedOptions,
    *,
    add: Path | None = None,
    options: LearningOptions = NO_OPTIONS,
    progress: Progress = no_progress,
) -> LearningResult:
    """Make a model of the confirmed calls of a review, or add them to one; write the result.

    Calls are embedded as examples are, in the middle of a window. The background stays that of the
    model: what was rejected sounds like a call, so it would not be a fair sample of the background.
    """
    check_model_path(out)
    result = learn_review(
        review, encoder, embedding, add=add, options=options, progress=progress
    )
    result.write(out)
    return result


def learn_review(
    review: Path,
    encoder: str | None,
    embedding: EmbedOptions,
    *,
    add: Path | None = None,
    options: LearningOptions = NO_OPTIONS,
    progress: Progress = no_progress,
) -> LearningResult:
    """Return a model with the confirmed calls of a review; see `learn_review_files`.

    `add` is the model that they are added to: that of the review if it is the review itself. None
    makes a model of these calls alone, with encoder and settings of the model of the review where
    there is one.
    """
    results = _read_calls(review)
    if add == review:
        add = find_model(results, review)
    earlier = None if add is None else load_model(add)
    similar = earlier or _find_similar(results, review)
    name = _choose_encoder(review, results, encoder, similar)
    options = _choose_options(results, options, similar)
    model = earlier
    rejects: list[Reject] = []
    notes = list(results.notes)
    with _write_calls(results) as parts:
        for root, table in parts:
            if model is not None:
                options = options.on_top_of(model.settings)
            options = replace(options, annotations=table)
            with _naming_review(review, table):
                part = learn_examples(root, name, options, embedding, progress=progress)
            part = _name_review(part, review, table)
            model = part.model if model is None else merge_models(model, part.model)
            rejects += part.rejects
            notes += [note for note in part.notes if _is_note(note, earlier)]
    assert model is not None  # there are calls
    known = 0 if earlier is None else len(earlier.examples)
    return LearningResult(model, len(model.examples) - known, rejects, notes)


@contextmanager
def _naming_review(review: Path, table: Path) -> Iterator[None]:
    """Let errors name the review, not the table of its calls, which is soon gone."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace(str(table), str(review))) from error


def _name_review(result: LearningResult, review: Path, table: Path) -> LearningResult:
    """Return a model of the calls of a review, with the review as their source."""
    journal = (review / JOURNAL).absolute()
    provenance = result.model.provenance
    inputs = [
        (role, journal.as_posix(), sha256_file(journal))
        if file == table.as_posix()
        else (role, file, checksum)
        for role, file, checksum in provenance.inputs
    ]
    provenance = replace(provenance, inputs=tuple(sorted(inputs)))
    rejects = [
        replace(reject, file=str(review)) if reject.file == str(table) else reject
        for reject in result.rejects
    ]
    model = replace(result.model, provenance=provenance)
    return replace(result, model=model, rejects=rejects)


def _is_note(note: str, earlier: Model | None) -> bool:
    """Return whether a note on some calls holds for the whole model."""
    return earlier is None or not note.startswith(NO_BACKGROUND)


def _find_similar(results: ReviewResults, review: Path) -> Model | None:
    """Return the model of a review, None if it has none or it is gone."""
    path = results.facts.get("model")
    if path is None or not Path(str(path)).is_file():
        return None
    return load_model(find_model(results, review))


def _choose_encoder(
    review: Path, results: ReviewResults, name: str | None, similar: Model | None
) -> str:
    """Return the encoder of the user, of the model, or of the vectors that were reviewed."""
    if name is not None:
        return name
    if similar is not None:
        return similar.encoder
    encoder = results.facts.get("encoder")
    if encoder is None or not _is_encoder(str(encoder)):
        raise OptionError(
            f"encoder: {review} is a review without a model, so its encoder is not known; add "
            "--encoder NAME, such as --encoder mfcc (callshot encoders shows all names)"
        )
    return str(encoder)


def _is_encoder(name: str) -> bool:
    """Return whether there is an encoder of this name; a study may have given it another title."""
    try:
        find_joined_encoder(name)
    except OptionError:
        return False
    return True


def _choose_options(
    results: ReviewResults, options: LearningOptions, similar: Model | None
) -> LearningOptions:
    """Return how calls are read: as the user says, else as those that were reviewed.

    What nobody confirmed may be a call, so windows without calls are not known.
    """
    if options.background == AUTO:
        options = replace(options, background=NONE)
    if similar is not None:
        return options.on_top_of(similar.settings)
    facts = results.facts
    channel = options.channel or facts.get("channel")
    rate_hz = options.source_rate_hz or facts.get("source_rate_hz")
    return replace(options, channel=channel, source_rate_hz=rate_hz)


def _read_calls(review: Path) -> ReviewResults:
    results = read_review(review)
    if len(results.events) == 0:
        raise InputError(
            f"{review}: nothing was confirmed yet, so there is nothing to learn"
        )
    return results


@contextmanager
def _write_calls(results: ReviewResults) -> Iterator[list[tuple[Path, Path]]]:
    """Write the calls of each folder of recordings to a table for a while, with the folder.

    The review may be on a disk that cannot be written.
    """
    with TemporaryDirectory(prefix="callshot-") as folder:
        parts = []
        for number, (root, events) in enumerate(split_by_root(results)):
            name = CONFIRMED if number == 0 else f"{number + 1}-{CONFIRMED}"
            table = Path(folder) / name
            rows = events.select(COLUMNS).rows()
            write_atomic(table, format_csv([COLUMNS, *rows]))
            parts.append((root, table))
        yield parts
