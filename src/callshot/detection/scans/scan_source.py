"""A model, and recordings or an index of them → the windows to scan, which must suit the model."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from callshot.corpus.recordings import find_recordings
from callshot.corpus.segment_table import read_rejects
from callshot.detection.index.index_files import (
    REJECTS,
    Index,
    IndexedRecording,
    is_index,
    open_index,
)
from callshot.detection.index.index_recordings import IndexResult, index_recordings
from callshot.detection.learning.learn import plain_fingerprint
from callshot.detection.models.model import SEGMENT, Model, check_fingerprint
from callshot.detection.scans.segment_labels import check_different
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.encoders.spec import find_differences
from callshot.errors import InputError, OptionError, check_choice
from callshot.jobs import Cluster
from callshot.records import Progress, Reject, scale_progress
from callshot.storage import to_path

ADAPT_MODES = ("auto", "always", "none")
INDEXING = 0.98  # of the work, where recordings are embedded first
ROUNDING_S = 1e-3  # windows and hops are whole numbers of samples


@dataclass(frozen=True)
class ScanOptions:
    """How windows become events.

    false_alarms  aim for each class, per hour
    gap_s         pauses up to this do not end an event
    hop_s         seconds from one window to the next; None: those of the encoder or the index
    adapt         "auto": examples without recordings around them are mixed into background of what
                  is scanned; "always": all examples are; "none"
    """

    false_alarms: float = 1.0
    gap_s: float = 0.0
    hop_s: float | None = None
    adapt: str = "auto"

    def __post_init__(self) -> None:
        check_choice("adapt", self.adapt, ADAPT_MODES)
        if not 0 <= self.gap_s < math.inf:
            raise OptionError(f"gap: expected 0 or more seconds, got {self.gap_s:g}")


@dataclass(frozen=True)
class IndexingOptions:
    """How recordings are indexed before a scan; the encoder is needed only if there is no index.

    encoder, encoder_options
             where the model cannot find its own by name, as with onnx:PATH
    cluster  workers that embed windows, and compare them with the model
    """

    encoder: str | None = None
    encoder_options: Mapping[str, str] = field(default_factory=dict)
    follow_links: bool = False
    device: str = "cpu"
    threads: int | None = None
    cluster: Cluster | None = None


@dataclass(frozen=True)
class ScanSource:
    """An index, the recordings of it that are scanned, and what is known about the others.

    `share` is how much of the work is left.
    """

    index: Index
    recordings: Sequence[IndexedRecording]
    rejects: Sequence[Reject] = ()
    notes: Sequence[str] = ()
    share: float = 1.0


def check_scannable(model: Model) -> None:
    """Raise InputError unless a model has different classes, of windows as recordings have them."""
    check_different(model)
    if model.settings.source == SEGMENT:
        raise InputError(
            f"{model.source}: this model was made from a segments.parquet and can only label "
            "segments (--segments); to scan recordings, make it from recordings with annotations"
        )
    if model.settings.source_rate_hz is not None:
        raise InputError(
            f"{model.source}: learned with --source-rate-hz, and scan reads recordings only at "
            "their own rate; convert the recordings, and learn the model from these"
        )


def open_source(
    model: Model,
    recordings: Path | str | Index,
    index: Path | str | None,
    options: ScanOptions,
    indexing: IndexingOptions,
    progress: Progress,
) -> ScanSource:
    """Return an index as it is, or make one of recordings in the folder `index`."""
    if isinstance(recordings, Index):
        return _use_index(model, recordings, options)
    path = to_path(recordings)
    if is_index(path):
        return _use_index(model, open_index(recordings), options)
    if index is None:
        raise OptionError(
            "index: name the folder in which the windows of recordings are stored"
        )
    run = _IndexFirst(model, path, to_path(index), indexing)
    return run.make_source(options.hop_s, progress)


def _use_index(model: Model, index: Index, options: ScanOptions) -> ScanSource:
    check_index(model, index)
    hop_s = index.settings.hop_s
    if options.hop_s is not None and abs(options.hop_s - hop_s) > ROUNDING_S:
        raise OptionError(
            f"hop: {index.folder} has a window every {hop_s:g} s; remove --hop, or index the "
            "recordings with this hop"
        )
    if not index.recordings:
        raise InputError(
            f"{index.folder}: the index has no recordings; run callshot index"
        )
    try:
        rejects = read_rejects(index.folder / REJECTS)
    except InputError as error:
        return ScanSource(index, index.recordings, index.rejects, [str(error)])
    return ScanSource(index, index.recordings, [*rejects, *index.rejects])


def check_index(model: Model, index: Index) -> None:
    """Raise InputError unless the windows of an index are made as the examples of a model."""
    difference = next(_find_index_differences(model, index), "")
    if difference:
        raise InputError(
            f"{index.folder}: {difference}; index the recordings as the model was learned, or "
            "learn the model again"
        )


def _find_index_differences(model: Model, index: Index) -> Iterator[str]:
    settings = index.settings
    names = find_differences(settings.fingerprint, model.fingerprint)
    if names:
        yield (
            f"an index of {settings.name}, but {model.source} was learned with {model.encoder} "
            f"(they differ in {', '.join(names)})"
        )
    channel = model.settings.channel_rule
    if settings.channel != channel:
        yield (
            f"an index of channel {settings.channel}, but {model.source} was learned from channel "
            f"{channel}"
        )
    window_s = model.settings.window_s
    if window_s is not None and abs(window_s - settings.window_s) > ROUNDING_S:
        yield (
            f"an index with windows of {settings.window_s:g} s, but {model.source} was learned "
            f"with windows of {window_s:g} s"
        )


@dataclass(frozen=True)
class _IndexFirst:
    """Recordings whose windows are embedded before they are scanned, into a folder."""

    model: Model
    recordings: Path
    folder: Path
    options: IndexingOptions

    def make_source(self, hop_s: float | None, progress: Progress) -> ScanSource:
        """Embed the windows that the index does not have; earlier recordings are left out."""
        encoder = self.options.encoder or self.model.encoder
        self._check_encoder(encoder)
        result = index_recordings(
            self.recordings,
            self.folder,
            encoder,
            encoder_options=self.options.encoder_options,
            window_s=self.model.settings.window_s,
            hop_s=hop_s,
            channel=self.model.settings.channel_rule,
            follow_links=self.options.follow_links,
            device=self.options.device,
            threads=self.options.threads,
            cluster=self.options.cluster,
            progress=scale_progress(progress, INDEXING),
        )
        scanned = self._select(result)
        share = 1 - INDEXING
        return ScanSource(result.index, scanned, result.rejects, result.notes, share)

    def _check_encoder(self, encoder: str) -> None:
        joined_encoder = find_joined_encoder(encoder, self.options.encoder_options)
        fingerprint = plain_fingerprint(joined_encoder, self.options.device)
        check_fingerprint(self.model, joined_encoder.name, fingerprint)

    def _select(self, result: IndexResult) -> list[IndexedRecording]:
        """Return the recordings of this run: not those that are gone or that failed now."""
        follow_links = self.options.follow_links
        library = find_recordings(self.recordings, follow_links=follow_links)
        rejected = {reject.file for reject in result.rejects}
        readable_paths = set(library.paths) - rejected
        scanned = [
            recording
            for recording in result.index.recordings
            if recording.path in readable_paths
        ]
        if not scanned:
            reason = result.rejects[0].reason
            raise InputError(
                f"{self.recordings}: no recording could be scanned (the first: {reason})"
            )
        return scanned
