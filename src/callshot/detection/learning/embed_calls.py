"""Calls and an encoder → one vector per call, and a reject for each call that has none.

Calls are segments: those of a table, embedded as they are, or spans of recordings, embedded in
windows of the recording (`AudioSettings.source`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from callshot.detection.learning.call_windows import cut_windows, find_grid
from callshot.detection.learning.recording_checks import (
    CallAudio,
    Errors,
    Headers,
    describe_recordings,
    find_silence,
    read_headers,
)
from callshot.detection.models.model import SEGMENT, AudioSettings, Vectors
from callshot.encoders.embed import (
    EmbedOptions,
    check_segments,
    default_store,
    default_threads,
    embed_segments,
)
from callshot.encoders.encode import open_encoder
from callshot.encoders.joined_encoder import JoinedEncoder
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.store.store import open_store
from callshot.errors import InputError, OptionError
from callshot.records import (
    IntArray,
    Progress,
    Reject,
    Segment,
    no_progress,
    scale_progress,
)


@dataclass(frozen=True)
class EmbeddedCalls:
    """The calls that have a vector, the vectors, the number of windows of each, and the rest."""

    calls: Sequence[Segment]
    vectors: Vectors
    windows: Sequence[int]
    rejects: Sequence[Reject]
    notes: Sequence[str]


def check_unscaled(joined_encoder: JoinedEncoder) -> None:
    """Raise OptionError for joined encoders of different units, whose scale depends on a split."""
    if joined_encoder.scaled_dimensions:
        raise OptionError(
            f"{joined_encoder.name}: a model does not scale joined encoders; use one encoder, or "
            "--set scale=none to concatenate their vectors as they are"
        )


def embed_calls(
    audio: CallAudio,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
    options: EmbedOptions,
    *,
    refuse_silence: bool = False,
    progress: Progress = no_progress,
) -> EmbeddedCalls:
    """Return the vector of each call; long calls get the mean of their windows."""
    check_unscaled(joined_encoder)
    headers, errors = read_headers(audio, settings)
    if refuse_silence:
        errors |= find_silence(audio, settings, headers)
    columns = []
    windows = np.zeros(len(audio.calls), np.int64)
    spec_progress = scale_progress(progress, 1 / len(joined_encoder.specs))
    for spec in joined_encoder.specs:
        device = joined_encoder.device(spec, options.device)
        pieces = cut_calls(audio, headers, errors, spec, settings)
        run = _ViewRun(audio, pieces, replace(options, device=device), errors)
        columns.append(run.embed(spec_progress))
        windows = np.maximum(windows, np.bincount(pieces.row, minlength=len(windows)))
    rejects = _make_rejects(audio, errors)
    keep = [row for row in range(len(audio.calls)) if row not in errors]
    if not keep:
        raise InputError(
            f"{audio.source}: no call could be embedded (the first: {rejects[0].reason})"
        )
    calls = [audio.calls[row] for row in keep]
    return EmbeddedCalls(
        calls,
        np.concatenate(columns, axis=1)[keep],
        windows[keep].tolist(),
        rejects,
        _describe(calls, headers, joined_encoder, settings),
    )


@dataclass(frozen=True)
class Pieces:
    """The pieces of audio that an encoder gets, and the row of the call of each."""

    spec: EncoderSpec
    segments: Sequence[Segment]
    row: IntArray


def cut_calls(
    audio: CallAudio,
    headers: Headers,
    errors: Errors,
    spec: EncoderSpec,
    settings: AudioSettings,
) -> Pieces:
    """Return the pieces of all calls without an error: whole segments, or windows."""
    rows = [row for row in range(len(audio.calls)) if row not in errors]
    if settings.source == SEGMENT:
        calls = [audio.calls[row] for row in rows]
        return Pieces(spec, calls, np.array(rows, int))
    grid = find_grid(spec, settings)
    segments: list[Segment] = []
    owner: list[int] = []
    for row in rows:
        call = audio.calls[row]
        windows = cut_windows(call, headers[call.path], grid, settings)
        segments += windows
        owner += [row] * len(windows)
    plain_spec = replace(spec, speed=1.0)  # windows are cut at the speed already
    return Pieces(plain_spec, segments, np.array(owner, int))


@dataclass(frozen=True)
class _ViewRun:
    """One encoder at one speed on pieces of audio; adds to `errors`."""

    audio: CallAudio
    pieces: Pieces
    options: EmbedOptions
    errors: Errors

    def embed(self, progress: Progress) -> Vectors:
        """Return the mean of the vectors of each call, in float64; zeros where there is none."""
        rows, vectors, rejects = embed_pieces(
            self.audio, self.pieces, self.options, progress
        )
        self._add_errors(rejects)
        owner = self.pieces.row[rows]
        count = len(self.audio.calls)
        sums = np.zeros((count, self.pieces.spec.dimension))
        np.add.at(sums, owner, vectors)
        counts = np.bincount(owner, minlength=count)
        return (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)

    def _add_errors(self, rejects: Sequence[Reject]) -> None:
        for reject in rejects:
            assert reject.row is not None  # it is a piece, not a file
            row = int(self.pieces.row[reject.row - 1])
            self.errors.setdefault(row, InputError(reject.reason))


def embed_pieces(
    source: CallAudio, pieces: Pieces, options: EmbedOptions, progress: Progress
) -> tuple[list[int], Vectors, list[Reject]]:
    """Return which pieces have a vector, the vectors, and a reject for each other piece."""
    spec = pieces.spec
    check_segments(spec, pieces.segments, source.source)
    threads = options.threads or default_threads()
    encoder = open_encoder(spec, device=options.device, threads=threads)
    folder = default_store() if options.store is None else options.store
    audio = source.segment_audio(pieces.segments)
    with open_store(folder, encoder.fingerprint, sequences=False) as store:
        keys, rejects = embed_segments(audio, encoder, store, progress)
        stored_keys = [key for key in keys if key is not None]
        vectors = np.zeros((0, spec.dimension), np.float32)
        if stored_keys:
            vectors = store.vectors(stored_keys)
    rows = [row for row, key in enumerate(keys) if key is not None]
    return rows, vectors, rejects


def _make_rejects(audio: CallAudio, errors: Errors) -> list[Reject]:
    rows = sorted(errors)
    return [Reject(audio.calls[row].path, row + 1, str(errors[row])) for row in rows]


def _describe(
    calls: Sequence[Segment],
    headers: Headers,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
) -> list[str]:
    """Return notes on the recordings of calls, if windows come from these."""
    notes: list[str] = []
    if settings.source == SEGMENT:
        return notes
    recordings = [headers[path] for path in sorted({call.path for call in calls})]
    for spec in joined_encoder.specs:
        notes += describe_recordings(recordings, spec, settings)
    return notes
