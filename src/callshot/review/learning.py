"""The decisions of a review, or labels → a model, or more examples for one.

Confirmed calls are examples, embedded in the middle of a window. Rejected detections, embedded in
the same way, are kept apart: they sound like a call, and are no fair sample of background.
"""

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from callshot.corpus.annotations.rows import FREQUENCIES
from callshot.detection.learn import (
    AUTO,
    NONE,
    LearningOptions,
    LearningResult,
    learn_examples,
)
from callshot.detection.model import (
    Model,
    check_fingerprint,
    check_model_path,
    load_model,
    merge_models,
    merge_rejected,
)
from callshot.encoders.embed import EmbedOptions
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.errors import CallshotError, InputError, OptionError
from callshot.files import SCAN_FACTS, sha256_file
from callshot.records import Progress, Reject, no_progress
from callshot.records.table_files import format_csv
from callshot.results import check_result
from callshot.review.items import PLACE
from callshot.review.journal import JOURNAL
from callshot.review.labels import LABELS, Span
from callshot.review.results import ReviewResults, read_review
from callshot.review.sound import RecordingFiles

BOX_COLUMNS = (*PLACE, *FREQUENCIES)  # of a call that a person marked
# A note on calls alone; the model has background.
NO_BACKGROUND = "no windows without calls"


class DecidedGroup(NamedTuple):
    """Decided calls that are learned together, in this order.

    is_rejected  whether they were rejected, or else confirmed
    root         the folder of their recordings
    is_box       whether a person marked them, or else a scan found them
    """

    is_rejected: bool
    root: Path
    is_box: bool


Cells = list[list[Any]]
"""A row for each call: the values of BOX_COLUMNS if it is a box, otherwise of PLACE."""


def learn_review_files(
    review: Path,
    out: Path,
    encoder: str | None,
    embedding: EmbedOptions,
    *,
    add: Path | None = None,
    options: LearningOptions | None = None,
    progress: Progress = no_progress,
) -> LearningResult:
    """Make a model of the decisions of a review, or add them to one; write the result.

    `add` is the file of the model that they are added to. If it is `review`, this is the model of
    the scan that was reviewed. Without `add`, the model is of these calls alone, with encoder and
    settings of the model of that scan, if there is one.
    """
    check_model_path(out)
    results = read_review(review, rejected=True)
    if not results.events["confirmed"].any() and add is None:
        raise InputError(
            f"{review}: nothing was confirmed yet, so there is nothing to learn"
        )
    if len(results.events) == 0:
        raise InputError(f"{review}: nothing was decided yet")
    earlier = None if add is None else _load_added(results, review, add)
    base = earlier  # the model whose encoder and settings are used
    if base is None:
        base = _load_scan_model(results, review)
    if encoder is None and base is not None:
        encoder = base.encoder
    if encoder is None:
        encoder = _find_encoder(results, review)
    options = _complete_options(options or LearningOptions(), results, base)
    missing = set(results.events["recording"]) - results.roots.keys()
    if missing:
        raise InputError(f"{min(missing)}: the folder of this recording is not known")
    journal = (review / JOURNAL).absolute()
    source = (journal.as_posix(), sha256_file(journal))  # of these calls
    model = earlier
    rejects: list[Reject] = []
    notes = list(results.notes)
    for group, rows in _group_decided(results):
        if model is not None:
            # Models can be merged if settings and encoder, with its band, are the same.
            options = options.on_top_of(model.settings)
            encoder = model.encoder
        part = _learn_group(
            group,
            rows,
            review,
            source,
            encoder=encoder,
            options=options,
            embedding=embedding,
            progress=progress,
        )
        model = _add_group(model, part.model, group)
        rejects += part.rejects
        notes += [
            note
            for note in part.notes
            if earlier is None or not note.startswith(NO_BACKGROUND)
        ]
    assert model is not None  # there are calls
    earlier_count = 0 if earlier is None else len(earlier.examples)
    new_count = len(model.examples) - earlier_count
    result = LearningResult(model, new_count, rejects, notes)
    result.write(out)
    return result


def _load_added(results: ReviewResults, review: Path, add: Path) -> Model:
    """Return the model that decisions are added to; see `learn_review_files`."""
    if add != review:
        return load_model(add)
    path = _find_model(results, review)
    if sha256_file(path) not in results.facts["model_checksums"]:
        raise InputError(
            f"{path}: has changed since the scan that {review} is about; to add its decisions "
            f"to this model, name it: callshot learn {review} --add {path}"
        )
    return load_model(path)


def _load_scan_model(results: ReviewResults, review: Path) -> Model | None:
    """Return the model whose detections a review is about; None if there is none, or it is gone."""
    path = results.facts.get("model")
    if path is None or not Path(str(path)).is_file():
        return None
    return load_model(_find_model(results, review))


def _find_model(results: ReviewResults, folder: Path) -> Path:
    """Return the file of the model whose detections a review is about."""
    model = results.facts.get("model")
    if model is None:
        raise OptionError(
            f"add: {folder} is a review of {results.facts.get('kind')}, which has no model to add "
            f"to; make one (callshot learn {folder}), or name one (callshot learn {folder} --add "
            "MODEL)"
        )
    path = Path(str(model))
    if not path.is_file():
        raise InputError(
            f"{path}: the model of the review {folder} is not there any more"
        )
    check_result(path, (SCAN_FACTS,))  # a scan may have written it
    return path


def _find_encoder(results: ReviewResults, review: Path) -> str:
    """Return the encoder of a review without a model; raise OptionError if it is not known."""
    encoder = str(results.facts.get("encoder"))
    try:
        find_joined_encoder(encoder)  # a study may have given it another title
    except OptionError:
        raise OptionError(
            f"encoder: {review} is a review without a model, so its encoder is not known; add "
            "--encoder NAME, such as --encoder mfcc (callshot encoders shows all names)"
        ) from None
    return encoder


def _complete_options(
    options: LearningOptions, results: ReviewResults, base: Model | None
) -> LearningOptions:
    """Return options with the background that a review gives, and with the settings of `base`.

    Settings that the options have stay. Without a model, they are those of the review.
    """
    facts = results.facts
    is_labels = facts.get("kind") == LABELS
    if options.background == AUTO and is_labels and results.listened_s:
        options = replace(options, unknown_s=_find_gaps(results))
    elif options.background == AUTO:
        # An unconfirmed detection may be a call: no window is known to have no call.
        options = replace(options, background=NONE)
    if base is not None:
        return options.on_top_of(base.settings)
    return replace(  # as the reviewed recordings were read
        options,
        channel=options.channel or facts.get("channel"),
        source_rate_hz=options.source_rate_hz or facts.get("source_rate_hz"),
    )


def _find_gaps(results: ReviewResults) -> dict[str, tuple[Span, ...]]:
    """Return the spans that nobody listened to, by recording.

    Only recordings of which a part was listened to are there.
    """
    files = RecordingFiles(results.roots)
    gaps_s = {}
    for name, listened_s in results.listened_s.items():
        with suppress(CallshotError):  # of a recording that cannot be read
            # Before the first span, between each and the next, and after the last.
            edges_s = [0.0, *chain(*listened_s), files.describe(name).duration_s]
            gaps = zip(edges_s[::2], edges_s[1::2], strict=True)
            gaps_s[name] = tuple(gap for gap in gaps if gap[0] < gap[1])
    return gaps_s


def _group_decided(results: ReviewResults) -> list[tuple[DecidedGroup, Cells]]:
    """Return the decided calls in groups, the confirmed ones first: a model has examples."""
    groups: dict[DecidedGroup, Cells] = defaultdict(list)
    decided = results.events.select(*BOX_COLUMNS, "confirmed", "added")
    for *box, is_call, added in decided.iter_rows():
        is_box = added is not None  # a person marked it
        root = results.roots[box[0]]  # of its recording
        row = box if is_box else box[: len(PLACE)]
        groups[DecidedGroup(not is_call, root, is_box)].append(row)
    return sorted(groups.items())  # by `is_rejected` first


def _learn_group(
    group: DecidedGroup,
    rows: Cells,
    review: Path,
    source: tuple[str, str],
    *,
    encoder: str,
    options: LearningOptions,
    embedding: EmbedOptions,
    progress: Progress,
) -> LearningResult:
    """Learn a model of the `rows` of a group of decided calls.

    `source` are the file of these calls, which is named in the model, and its checksum.
    """
    columns = BOX_COLUMNS if group.is_box else PLACE
    # Not in the folder of the review, which may be on a disk that cannot be written.
    with TemporaryDirectory(prefix="callshot-") as folder:
        table = Path(folder) / "decided.csv"
        table.write_text(format_csv([columns, *rows]), encoding="utf-8")
        options = replace(options, annotations=table)
        try:
            part = learn_examples(
                group.root, encoder, options, embedding, progress=progress
            )
        except InputError as error:  # which names a file that is soon gone
            raise InputError(str(error).replace(str(table), str(review))) from error
    # Not the temporary table
    inputs = [
        (role, *source) if file == table.as_posix() else (role, file, checksum)
        for role, file, checksum in part.model.inputs
    ]
    rejects = []
    used = {str(group.root / row[0]) for row in rows}
    for reject in part.rejects:
        is_inside_root = Path(reject.file).is_relative_to(group.root)
        if is_inside_root and reject.row is None and reject.file not in used:
            continue  # a recording without calls, which need not be readable
        file = reject.file.replace(str(table), str(review))
        rejects.append(replace(reject, file=file))
    model = replace(part.model, inputs=tuple(sorted(inputs)))
    return replace(part, model=model, rejects=rejects)


def _add_group(model: Model | None, part: Model, group: DecidedGroup) -> Model:
    """Return a model with the calls of `part`, the model of a group: examples, or rejected ones."""
    if not group.is_rejected:
        # Boxes are no sample of what a model finds, so they calibrate nothing.
        spans = part.examples.spans.with_columns(reviewed=not group.is_box)
        examples = replace(part.examples, spans=spans)
        part = replace(part, examples=examples)
        return part if model is None else merge_models(model, part)
    assert model is not None  # there are confirmed calls, or an earlier model
    check_fingerprint(model, part.encoder, part.fingerprint)
    root = str(group.root.resolve())
    spans = part.examples.spans.with_columns(root=root)
    placed = replace(part.examples, spans=spans)
    rejected = merge_rejected(model.rejected, placed)
    return replace(model, rejected=rejected)
