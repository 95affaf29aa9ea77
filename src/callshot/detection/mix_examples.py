"""A model and other recordings → the model with its examples mixed into their background.

Background without labels is found as in `callshot.corpus.mixing`, in windows of the encoder.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.audio import load_audio, probe
from callshot.corpus.mixing import choose_quieter, distribute_spans, mix_example
from callshot.corpus.recordings import find_recordings
from callshot.detection.background import (
    MAX_WINDOWS,
    UNLABELLED,
    Background,
    BackgroundRecording,
)
from callshot.detection.examples import find_grid, read_as, read_headers
from callshot.detection.index.index_files import Index
from callshot.detection.index.windows import (
    SILENCE_DBFS,
    RecordingAtSpeed,
    WindowGrid,
    measure_levels,
)
from callshot.detection.model import (
    MAX_CLIP_S,
    AudioSettings,
    Model,
    describe_locations,
    from_pcm,
    to_pcm,
)
from callshot.encoders.embed import EmbedOptions
from callshot.encoders.joined_encoder import JoinedEncoder
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.windows import Float32Array
from callshot.encoders.workers import Workers, open_workers
from callshot.errors import InputError, OptionError, count_text
from callshot.spans import Spans
from callshot.vectors import concat_vectors

Files = Sequence[
    tuple[Path, str]
]  # the folder of each recording, and its path in there

MIN_WINDOWS = 100


def read_clips(calls: Spans, grid: WindowGrid, settings: AudioSettings) -> Spans:
    """Add the plain audio of calls, at the rate of the encoder and at its speed, as `clip`."""
    headers, _ = read_headers(calls, settings)
    rows = []
    for call in read_as(calls, grid.rate_hz, settings).rows():
        # The middle of the call, as a span of the recording at the encoder's speed.
        excess_s = max(0.0, call["end_s"] - call["start_s"] - MAX_CLIP_S)
        start = grid.to_samples(call["start_s"] + excess_s / 2)
        end = max(start + 1, grid.to_samples(call["end_s"] - excess_s / 2))
        call["start_s"] = start / grid.rate_hz
        call["end_s"] = end / grid.rate_hz
        call["source_rate_hz"] = headers[call["path"]].rate_hz * grid.speed
        rows.append(call)
    clips: list[bytes | None] = []
    for _, signal in load_audio(Spans.from_rows(rows, root=calls.root)):
        if isinstance(signal, InputError):
            clips.append(None)
        else:
            clips.append(to_pcm(signal).tobytes())
    column = pl.Series("clip", clips, pl.Binary)
    return replace(calls, frame=calls.frame.with_columns(column))


def read_quiet_windows(
    files: Files, spec: EncoderSpec, grid: WindowGrid, channel: str
) -> list[Float32Array]:
    """Return the audio of windows of recordings: the quieter half of those that are not silent.

    They are spread over the recordings; what cannot be read is left out.
    """
    durations_s = []
    for root, path in files:
        duration_s = 0.0
        with suppress(InputError):
            duration_s = probe(root / path, path).duration_s
        durations_s.append(duration_s)
    windows: list[Float32Array] = []
    starts = distribute_spans(durations_s, grid.window_s)
    for number, spans in groupby(starts, key=itemgetter(0)):
        root, path = files[number]
        with (
            suppress(InputError),
            RecordingAtSpeed(root / path, path, spec, channel) as audio,
        ):
            latest = audio.samples - grid.window
            for _, start_s in spans:
                start = max(0, min(grid.to_samples(start_s), latest))
                windows.append(audio.read(start, start + grid.window))
    levels = measure_levels(windows)
    audible = np.flatnonzero(levels > SILENCE_DBFS)
    if len(audible) == 0:
        raise InputError(
            f"site: no window with a sound could be read from "
            f"{count_text(len(files), 'recording')}; the examples cannot be mixed into their "
            "background"
        )
    quieter = choose_quieter({int(number): levels[number] for number in audible})
    return [windows[number] for number in quieter]


def mix_clips(
    examples: Spans,
    backgrounds: Sequence[Float32Array],
    workers: Workers,
    grid: WindowGrid,
) -> tuple[list[int], Float32Array]:
    """Mix examples into background; return the rows of those that have audio, and their vectors.

    The vector of an example is the mean over the windows of all its mixtures.
    """
    rows = []
    vectors = []
    pairs = zip(describe_locations(examples), examples["clip"], strict=True)
    for row, (location, clip) in enumerate(pairs):
        if clip is None:
            continue
        windows: list[Float32Array] = []
        for mixed in mix_example(from_pcm(clip), backgrounds, location, grid.rate_hz):
            windows += split_call(mixed, grid.window)
        rows.append(row)
        vectors.append(workers.submit_windows(windows)().mean(axis=0, dtype=np.float64))
    return rows, np.array(vectors, np.float32)


def embed_mixed_examples(
    examples: Spans,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
    recordings: Path,
    options: EmbedOptions,
) -> Float32Array:
    """Return the vectors of examples that are mixed into background of recordings."""
    if "clip" not in examples.frame.columns:
        raise OptionError(
            "site: examples of a segments.parquet or of joined encoders cannot be mixed into "
            "background; remove --site"
        )
    library = find_recordings(recordings)
    files = [(library.root, path) for path in library.paths]
    spec = joined_encoder.specs[0]
    grid = find_grid(spec, settings)
    windows = read_quiet_windows(files, spec, grid, settings.channel_rule)
    device = joined_encoder.device(spec, options.device)
    with open_workers(spec, device=device, threads=options.threads) as workers:
        rows, vectors = mix_clips(examples, windows, workers, grid)
    if len(rows) < len(examples):
        missing = next(n for n in range(len(examples)) if n not in rows)
        location = describe_locations(examples)[missing]
        raise InputError(f"{location}: could not be read again")
    return vectors


def split_call(signal: Float32Array, window: int) -> list[Float32Array]:
    """Return windows side by side that overlap as little as possible.

    >>> [part.tolist() for part in split_call(np.arange(5, dtype=np.float32), 3)]
    [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]]
    """
    count = -(-len(signal) // window)
    starts = np.linspace(0, len(signal) - window, count).astype(int)
    return [signal[start : start + window] for start in starts]


def adapt_examples(
    model: Model,
    files: Files,
    spec: EncoderSpec,
    grid: WindowGrid,
    workers: Workers,
) -> Model:
    """Return a model of the examples that have audio, mixed into background of recordings."""
    if model.examples.spans.frame["clip"].is_null().all():
        raise InputError(
            f"{model.source}: has no audio of its examples, so they cannot be mixed into "
            "background; learn the model again, or use --adapt none"
        )
    backgrounds = read_quiet_windows(files, spec, grid, model.settings.channel_rule)
    rows, vectors = mix_clips(model.examples.spans, backgrounds, workers, grid)
    examples = replace(model.examples.take(rows), matrix=vectors)
    return replace(model, examples=examples)


def sample_index(index: Index) -> Background | None:
    """Return windows of an index as background without labels; None if there are too few."""
    # Every n-th window, so that all are not too many.
    step = -(-len(index) // MAX_WINDOWS)
    sampled = []
    for recording in index.recordings:
        first = 0  # window of the next block to take
        for block in index.read_recording(recording, verify=False):
            rows = np.arange(first, len(block), step)
            loud = block.spans.frame["rms_dbfs"].to_numpy()[rows] > SILENCE_DBFS
            sampled.append(block.take(rows[loud]))
            first = (first - len(block)) % step
    if sum(map(len, sampled)) < MIN_WINDOWS:
        return None
    windows = concat_vectors(sampled)
    recordings = [
        BackgroundRecording(recording.path, recording.windows, (), UNLABELLED)
        for recording in index.recordings
    ]
    return Background(
        recordings=tuple(recordings),
        windows=replace(windows, matrix=windows.matrix.astype(np.float32)),
        window_s=index.settings.window_s,
        hop_s=index.settings.hop_s,
    )
