"""A model and what is scanned → the model adapted to the background of these recordings."""

from dataclasses import dataclass, replace

from callshot.detection.index.windows import WindowEncoder, find_spec
from callshot.detection.learning.embed_calls import find_grid
from callshot.detection.learning.mix_examples import (
    BackgroundFile,
    adapt_examples,
    sample_index,
)
from callshot.detection.models.background import Background
from callshot.detection.models.model import Model
from callshot.detection.scans.scan_source import IndexingOptions, ScanSource
from callshot.errors import InputError, count_text
from callshot.storage import to_path

NO_LABELS = (
    "thresholds come from recordings without labels, so there can be several times more false "
    "alarms than --false-alarms allows; with learn --background FOLDER (recordings without calls) "
    "they are closer to this limit"
)


@dataclass(frozen=True)
class AdaptedModel:
    """A model for what is scanned, background to find thresholds, and notes."""

    model: Model
    background: Background | None
    notes: tuple[str, ...] = ()

    def changed_from(self, model: Model) -> Model | None:
        """Return the model with this background, None if that is the given model."""
        if self.model is model and self.background is model.background:
            return None
        return replace(self.model, background=self.background)


def adapt_model(
    model: Model, source: ScanSource, mode: str, indexing: IndexingOptions
) -> AdaptedModel:
    """Mix examples into background of what is scanned, and take thresholds from there.

    `mode` is the option `adapt` of a scan. With "auto", only for models without background: their
    examples are clips, from elsewhere.
    """
    background = model.background
    has_background = background is not None and len(background.vectors) > 0
    if mode == "none" or (mode == "auto" and has_background):
        return AdaptedModel(model, background)
    index = replace(source.index, recordings=tuple(source.recordings))
    background = sample_index(index)
    if background is None:
        note = (
            f"{count_text(len(index), 'window')}: too few to find background without labels; "
            "the model is used as it is"
        )
        return AdaptedModel(model, model.background, (note,))
    files = [
        BackgroundFile(to_path(recording.root), recording.path)
        for recording in source.recordings
    ]
    try:
        mixed = _mix_examples(model, files, indexing)
    except InputError as error:
        note = f"the examples are used as they are: {error}"
        return AdaptedModel(model, background, (note, NO_LABELS))
    note = (
        f"{count_text(len(mixed.examples), 'example')} mixed into background of these recordings; "
        "--adapt none uses them as they are"
    )
    return AdaptedModel(mixed, background, (note, NO_LABELS))


def _mix_examples(
    model: Model, files: list[BackgroundFile], indexing: IndexingOptions
) -> Model:
    spec = find_spec(indexing.encoder or model.encoder, indexing.encoder_options)
    grid = find_grid(spec, model.settings)
    with WindowEncoder(
        spec, device=indexing.device, threads=indexing.threads
    ) as encoder:
        return adapt_examples(model, files, spec, grid, encoder)
