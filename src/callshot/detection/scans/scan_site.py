"""A model and what is scanned → the model as it suits that site, and background of the site."""

from dataclasses import dataclass, replace

from callshot.detection.index.windows import WindowEncoder, find_spec
from callshot.detection.learning.call_windows import find_grid
from callshot.detection.learning.site_examples import (
    SiteFile,
    move_to_site,
    sample_index,
)
from callshot.detection.models.background import Background
from callshot.detection.models.model import Model
from callshot.detection.scans.scan_source import EmbeddingOptions, ScanSource
from callshot.errors import InputError
from callshot.storage import to_path

NO_LABELS = (
    "thresholds come from recordings without labels, where false alarms can be several times the "
    "aim; learn --background FOLDER, of recordings without calls, keeps closer to it"
)


@dataclass(frozen=True)
class SuitedModel:
    """A model for one site, background to find thresholds, and notes."""

    model: Model
    background: Background | None
    notes: tuple[str, ...] = ()

    def changed_from(self, model: Model) -> Model | None:
        """Return the model with this background, None if that is the given model."""
        if self.model is model and self.background is model.background:
            return None
        return replace(self.model, background=self.background)


def suit_site(
    model: Model, source: ScanSource, site: str, embedding: EmbeddingOptions
) -> SuitedModel:
    """Mix examples into background of what is scanned, and take thresholds from there.

    With "auto", only for models without background: their examples are clips, from elsewhere.
    """
    background = model.background
    has_background = background is not None and len(background.vectors) > 0
    if site == "none" or (site == "auto" and has_background):
        return SuitedModel(model, background)
    index = replace(source.index, recordings=tuple(source.recordings))
    background = sample_index(index)
    if background is None:
        note = (
            f"{len(index)} windows are too few to find background without labels; the model is "
            "used as it is"
        )
        return SuitedModel(model, model.background, (note,))
    files = [SiteFile(to_path(one.root), one.path) for one in source.recordings]
    try:
        moved = _move(model, files, embedding)
    except InputError as error:
        note = f"the examples are used as they are: {error}"
        return SuitedModel(model, background, (note, NO_LABELS))
    note = (
        f"{len(moved.examples)} examples were mixed into background of these recordings; "
        "--site none uses them as they are"
    )
    return SuitedModel(moved, background, (note, NO_LABELS))


def _move(model: Model, files: list[SiteFile], embedding: EmbeddingOptions) -> Model:
    spec = find_spec(embedding.encoder or model.encoder, embedding.choices)
    grid = find_grid(spec, model.settings)
    with WindowEncoder(
        spec, device=embedding.device, threads=embedding.threads
    ) as encoder:
        return move_to_site(model, files, spec, grid, encoder)
