"""Recordings → the vectors of windows without calls: of examples' recordings, or of a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from callshot.corpus.recordings import find_recordings, probe_recordings
from callshot.detection.index.clock import find_place
from callshot.detection.index.windows import WindowGrid
from callshot.detection.learning.embed_calls import embed_pieces, find_grid
from callshot.detection.learning.example_calls import AUTO, NONE, Calls, LearningOptions
from callshot.detection.models.background import (
    ANNOTATED,
    MAX_WINDOWS,
    UNLABELLED,
    WITHOUT_CALLS,
    Background,
    BackgroundRecording,
    Span,
    Windows,
    find_kept,
    select_windows,
)
from callshot.detection.models.model import RECORDING, AudioSettings
from callshot.encoders.embed import EmbedOptions
from callshot.encoders.joined_encoder import JoinedEncoder
from callshot.errors import InputError
from callshot.files import explain_unreadable, sha256_file
from callshot.records import (
    FloatArray,
    Progress,
    Recording,
    Segmentation,
    no_progress,
)
from callshot.spans import Spans
from callshot.storage import to_path


@dataclass(frozen=True)
class BackgroundAudio:
    """Recordings with the windows that may be background, and the folder they are in."""

    root: Path
    recordings: Sequence[Recording]
    descriptions: Sequence[BackgroundRecording]

    @property
    def windows(self) -> int:
        """About how many windows are embedded."""
        return min(
            sum(description.windows for description in self.descriptions), MAX_WINDOWS
        )


def read_background(
    calls: Calls,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
    options: LearningOptions,
) -> BackgroundAudio | None:
    """Return the recordings that options ask for; None where windows of them have no use.

    That is so for segments as they were cut, and for joined encoders: neither is scanned.
    """
    can_scan = settings.source == RECORDING and len(joined_encoder.specs) == 1
    if options.background == NONE or not can_scan:
        return None
    grid = find_grid(joined_encoder.specs[0], settings)
    if options.background != AUTO:
        folder = to_path(options.background)
        return read_folder(folder, grid, settings, WITHOUT_CALLS)
    if options.site is not None:
        return read_folder(options.site, grid, settings, UNLABELLED)
    if calls.segmentation is None:
        return None
    checksums = {file: sha256 for _, file, sha256 in calls.inputs}
    return read_annotated(calls.segmentation, calls.spans.root, grid, checksums)


def read_annotated(
    segmentation: Segmentation,
    root: Path,
    grid: WindowGrid,
    checksums: Mapping[str, str],
) -> BackgroundAudio:
    """Return the annotated recordings, with all annotations on them.

    `checksums` are sha256 by path, as far as they are known.
    """
    calls_s: dict[str, set[Span]] = {path: set() for path in segmentation.annotated}
    for path, *span in segmentation.calls.frame.select(
        "path", "start_s", "end_s"
    ).iter_rows():
        calls_s.setdefault(path, set()).add((span[0], span[1]))
    recordings = [
        recording for recording in segmentation.recordings if recording.path in calls_s
    ]
    descriptions = []
    for recording in recordings:
        spans = tuple(sorted(calls_s[recording.path]))
        sha256 = checksums.get(recording.path) or _find_checksum(root / recording.path)
        windows = len(_find_starts(recording, grid))
        place = find_place(recording.path)
        descriptions.append(
            BackgroundRecording(sha256, windows, spans, ANNOTATED, place)
        )
    return BackgroundAudio(root, recordings, descriptions)


def read_folder(
    folder: Path, grid: WindowGrid, settings: AudioSettings, origin: str
) -> BackgroundAudio:
    """Return the recordings of a folder, without calls or without labels."""
    library = find_recordings(folder)
    readable, errors = probe_recordings(library, settings.source_rate_hz, no_progress)
    recordings = list(readable.values())
    if not recordings:
        reason = next(iter(errors.values()), "no recordings in this folder")
        raise InputError(f"background: {folder}: {reason}")
    descriptions = []
    for recording in recordings:
        sha256 = _find_checksum(library.root / recording.path)
        windows = len(_find_starts(recording, grid))
        place = find_place(recording.path)
        descriptions.append(BackgroundRecording(sha256, windows, (), origin, place))
    return BackgroundAudio(library.root, recordings, descriptions)


def _find_checksum(path: Path) -> str:
    with explain_unreadable(path):
        return sha256_file(path)


def _find_starts(recording: Recording, grid: WindowGrid) -> FloatArray:
    """Return the starts of whole windows in seconds; none if a recording is shorter than one."""
    samples = grid.to_samples(recording.duration_s)
    last_start = samples - grid.window
    starts = np.arange(0, last_start + 1, grid.hop)
    return grid.to_seconds(starts)


def embed_background(
    audio: BackgroundAudio,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
    options: EmbedOptions,
    progress: Progress = no_progress,
) -> Background:
    """Embed windows without calls, a sample of them if there are many.

    Windows that cannot be read are left out: an example from there is a reject already.
    """
    spec = joined_encoder.specs[0]
    options = replace(options, device=joined_encoder.device(spec, options.device))
    grid = find_grid(spec, settings)
    spans, keys = _cut_windows(audio, grid, settings)
    windows: Windows = {}
    if len(spans) > 0:
        plain_spec = replace(spec, speed=1.0)  # windows are cut at the speed already
        rows, vectors, _ = embed_pieces(spans, plain_spec, options, progress)
        windows = {keys[row]: vector for row, vector in zip(rows, vectors, strict=True)}
    return select_windows(
        sorted(audio.descriptions), windows, spec.dimension, grid.window_s, grid.hop_s
    )


def _cut_windows(
    audio: BackgroundAudio, grid: WindowGrid, settings: AudioSettings
) -> tuple[Spans, list[tuple[str, float]]]:
    """Return the windows that may be background, with the recording and start of each.

    They are spans of the recordings at the encoder's speed.
    """
    total = sum(description.windows for description in audio.descriptions)
    rows = []
    keys = []
    for recording, description in zip(
        audio.recordings, audio.descriptions, strict=True
    ):
        start_s = _find_starts(recording, grid)
        keep = find_kept(description, start_s, grid.window_s, total)
        for time_s in start_s[keep].tolist():
            start = grid.to_samples(time_s)
            row = {
                "recording": recording.path,
                "start_s": start / grid.rate_hz,
                "end_s": (start + grid.window) / grid.rate_hz,
                "source_rate_hz": recording.rate_hz * grid.speed,
            }
            rows.append(row)
            keys.append((description.sha256, time_s))
    spans = Spans.from_rows(rows, root=audio.root, source=str(audio.root))
    return spans.with_columns(
        rate_hz=grid.rate_hz, channel_rule=settings.channel_rule
    ), keys
