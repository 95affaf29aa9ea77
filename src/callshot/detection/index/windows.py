"""Windows over a recording of any length: where each begins, their audio, and their vectors.

Samples are those that the model gets: the recording at the encoder's speed, at the model's
rate. Times are real ones. All windows are whole: the last one ends where the recording ends. Only
a recording that is shorter than a window is padded, as the encoder pads.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from callshot.corpus.audio import open_recording, probe
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.encoders.spec import EncoderSpec, check_no_auto, read_at_speed
from callshot.encoders.windows import Float32Array, check_signal
from callshot.encoders.workers import Output, Workers, keep_ahead
from callshot.errors import OptionError, check_range
from callshot.records import FloatArray, IntArray

BLOCK_SAMPLES = 2**22  # of the windows that are read and encoded at once
BLOCKS_AHEAD = 2  # that wait for the model
MAX_WINDOW_S = 86400.0
MAX_OVERLAP = 100  # windows that may begin in the time of one
SILENCE_DBFS = -120.0  # the level of windows without any sound
SILENCE = 10 ** (SILENCE_DBFS / 10)  # power


@dataclass(frozen=True)
class WindowGrid:
    """Where windows begin; `window` and `hop` are in samples that the model gets."""

    rate_hz: int
    window: int
    hop: int
    speed: float = 1.0

    @property
    def window_s(self) -> float:
        """Length of a window in real seconds."""
        return self.window * self.speed / self.rate_hz

    @property
    def hop_s(self) -> float:
        """Real seconds from the start of one window to the start of the next."""
        return self.hop * self.speed / self.rate_hz

    def find_starts(self, samples: int) -> IntArray:
        """Return the first sample of each window of a recording with so many samples.

        The last window ends with the recording.

        >>> WindowGrid(rate_hz=1, window=4, hop=3).find_starts(11)
        array([0, 3, 6, 7])
        """
        last_start = max(0, samples - self.window)
        starts = np.arange(0, last_start + 1, self.hop)
        if starts[-1] < last_start:
            starts = np.append(starts, last_start)
        return starts

    def to_seconds(self, samples: IntArray) -> FloatArray:
        """Return real seconds."""
        return np.asarray(samples * self.speed / self.rate_hz)

    def to_samples(self, seconds: float) -> int:
        """Return the sample at a real time."""
        return round(seconds / self.speed * self.rate_hz)


def find_spec(encoder: str, options: Mapping[str, str] | None = None) -> EncoderSpec:
    """Return the spec of one encoder at one speed, with all options chosen.

    Joined encoders are an error: their windows differ in length.
    """
    joined_encoder = find_joined_encoder(encoder, options)
    if len(joined_encoder.specs) > 1:
        raise OptionError(
            f"{joined_encoder.name}: expected one encoder at one speed; index each "
            "of them by itself"
        )
    spec = joined_encoder.specs[0]
    check_no_auto(spec)
    return spec


def make_grid(
    spec: EncoderSpec, window_s: float | None = None, hop_s: float | None = None
) -> WindowGrid:
    """Return the windows of an encoder; `window_s` and `hop_s` are in real seconds.

    `window_s` is needed for an encoder without windows of its own, and refused for others. Without
    `hop_s` windows are as the encoder has them, without overlap by default.
    """
    if spec.windowing is not None:
        options = spec.windowing
        grid = WindowGrid(spec.rate_hz, options.window, options.hop, spec.speed)
        if window_s is not None:
            raise OptionError(
                f"window: {spec.name} has windows of {grid.window_s:g} s; "
                "remove --window"
            )
    elif window_s is None:
        raise OptionError(
            f"window: {spec.name} has no window of its own; "
            "give its length in seconds, about that of a call: --window 2"
        )
    else:
        check_range("window", window_s, spec.speed / spec.rate_hz, MAX_WINDOW_S, "s")
        window = round(window_s / spec.speed * spec.rate_hz)
        grid = WindowGrid(spec.rate_hz, window, window, spec.speed)
    if hop_s is None:
        return grid
    hop = hop_s / spec.speed * spec.rate_hz
    # Up to half a sample more than the window is rounded to the window.
    if not grid.window / MAX_OVERLAP <= hop < grid.window + 0.5:
        raise OptionError(
            f"hop: expected {grid.window_s / MAX_OVERLAP:g} to {grid.window_s:g} s, a hundredth of "
            f"the window to the window, got {hop_s:g} s"
        )
    return replace(grid, hop=max(1, round(hop)))


class RecordingAtSpeed:
    """An open recording at the encoder's speed; for one thread at a time.

    samples    its length, as the model gets it
    recording  its header, in real time

    With `end_frame`, the recording ends there, before the damage of its file.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        spec: EncoderSpec,
        channel: str,
        end_frame: int | None = None,
    ) -> None:
        self.recording = probe(path, name)
        self.spec = read_at_speed(spec)
        self.channel = channel
        # The reader takes the recording as if made at this rate: its times are those at the
        # encoder's speed, and the speed itself is 1 from here on.
        effective_rate_hz = self.recording.rate_hz * spec.speed
        self.reader = open_recording(path, name, effective_rate_hz)
        if end_frame is not None:
            self.recording = self.recording.shorten(end_frame)
            self.reader.recording = self.reader.recording.shorten(end_frame)
        # After resampling to the rate of the encoder.
        self.samples = math.ceil(
            self.recording.frames * spec.rate_hz / effective_rate_hz
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.reader.close()

    def read(self, first: int, last: int) -> Float32Array:
        """Return samples from `first` up to `last`, inside the recording."""
        rate_hz = self.spec.rate_hz
        signal = self.reader.read(
            first / rate_hz,
            last / rate_hz,
            rate_hz=rate_hz,
            channel_rule=self.channel,
            passband_hz=self.spec.band,
        )
        check_signal(signal)
        return signal


def read_windows(
    audio: RecordingAtSpeed, starts: IntArray, window: int
) -> list[Float32Array]:
    """Return the audio of windows, which is read together; `starts` and `window` are in samples."""
    first = int(starts[0])
    end = min(int(starts[-1]) + window, audio.samples)
    signal = audio.read(first, end)
    offsets = (starts - first).tolist()
    return [signal[offset : offset + window] for offset in offsets]


def embed_windows(
    audio: RecordingAtSpeed, starts: IntArray, grid: WindowGrid, workers: Workers
) -> Iterator[tuple[slice, NDArray[np.float32], Float32Array]]:
    """Yield rows, levels in dB and vectors of windows, block by block.

    `starts` are their first samples; rows are a slice of `starts`. The next blocks are read while
    the model works.
    """
    size = max(1, BLOCK_SAMPLES // grid.window)

    def submit() -> Iterator[tuple[slice, NDArray[np.float32], Output]]:
        for first in range(0, len(starts), size):
            rows = slice(first, first + size)
            windows = read_windows(audio, starts[rows], grid.window)
            yield rows, measure_levels(windows), workers.submit_windows(windows)

    for rows, levels, wait_for_vectors in keep_ahead(submit(), BLOCKS_AHEAD):
        yield rows, levels, wait_for_vectors()


def measure_levels(windows: Sequence[Float32Array]) -> NDArray[np.float32]:
    """Return the root mean square of windows in dB, where 0 is full scale and silence −120."""
    powers = [np.square(window, dtype=np.float64).mean() for window in windows]
    audible = np.maximum(powers, SILENCE)
    levels = 10 * np.log10(audible)
    return levels.astype(np.float32)
