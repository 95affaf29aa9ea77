"""A signal → a spectrogram of exactly the pixels that are asked for, as PNG.

Columns   Column x of W stands for the time from start + x·d to start + (x + 1)·d, d = length / W.
          It is the mean power of m frames, spread evenly over it: m = 1, or as many as are needed
          so that frames are at most half a window apart (up to 16).
Frames    n = window_s · rate samples around the middle, by a Hann window; silence beyond the
          signal. Power is that of a sine: a sine at full scale has 0 dB.
Rows      Row y of H, from the top, stands for a band of frequencies, linear or logarithmic. It is
          the mean power of the bins inside the band, or between the two nearest bins if there are
          none.
Pixels    round(255 · (dB − floor_db) / range_db), from 0 to 255: a colour of the map.
"""

import io
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len, rfft

from callshot.corpus.audio_files import Signal
from callshot.errors import RequestError
from callshot.records import FloatArray, IntArray
from callshot.review.sound import Clip

Pixels = NDArray[np.uint8]

LINEAR = "linear"
LOG = "log"
MAPS = ("viridis", "magma", "cividis", "grey")
COLOUR_FILE = Path(__file__).with_name("colour_maps.npz")
MAX_PIXELS = 4096  # in each direction
MAX_FRAMES = 16  # in a column
MAX_POINTS = 2**21  # of spectra at once
SHORTEST_WINDOW = 8  # samples
LONGEST_WINDOW = 2**17
LOWEST_LOG_HZ = 1.0
SILENCE = 1e-20  # power


@dataclass(frozen=True)
class Picture:
    """What a spectrogram shows; see the text of the module."""

    width: int = 600
    height: int = 200
    window_s: float = 0.032
    min_hz: float = 0.0
    max_hz: float = 1e9
    scale: str = LINEAR
    floor_db: float = -100.0
    range_db: float = 70.0
    colours: str = "viridis"

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            if not 1 <= getattr(self, name) <= MAX_PIXELS:
                raise RequestError(f"{name}: expected 1 to {MAX_PIXELS} pixels")
        if not 0 < self.window_s <= 60:
            raise RequestError("window_s: expected more than 0 and at most 60 s")
        if not 0 <= self.min_hz < self.max_hz < np.inf:
            raise RequestError("min_hz, max_hz: expected 0 ≤ min_hz < max_hz")
        if self.scale not in (LINEAR, LOG):
            raise RequestError("scale: expected linear or log")
        if not -300 <= self.floor_db <= 100 or not 0 < self.range_db <= 300:
            raise RequestError("floor_db, range_db: expected decibels")
        if self.colours not in MAPS:
            raise RequestError(f"colours: expected one of {', '.join(MAPS)}")

    def band_hz(self, rate_hz: float) -> tuple[float, float]:
        """Return the band that is drawn: at most half the rate, above 0 if it is logarithmic."""
        top_hz = min(self.max_hz, rate_hz / 2)
        low_hz = min(self.min_hz, 0.999 * top_hz)
        if self.scale == LOG:
            low_hz = max(low_hz, min(LOWEST_LOG_HZ, 0.5 * top_hz))
        return low_hz, top_hz


def draw(clip: Clip, picture: Picture) -> bytes:
    """Return the spectrogram of a clip as PNG."""
    return write_png(make_pixels(clip, picture), picture.colours)


def make_pixels(clip: Clip, picture: Picture) -> Pixels:
    """Return the number of the colour of each pixel, height × width, high frequencies first."""
    share = (make_levels(clip, picture) - picture.floor_db) / picture.range_db
    return np.round(255 * np.clip(share, 0.0, 1.0)).astype(np.uint8)


def make_levels(clip: Clip, picture: Picture) -> FloatArray:
    """Return the level of each pixel in dB."""
    window = window_samples(picture.window_s, clip.rate_hz)
    frames = frames_per_column(len(clip.signal), picture.width, window)
    middles = frame_middles(len(clip.signal), picture.width, frames)
    size = fft_size(window)
    padded = np.pad(clip.signal, window)
    columns = max(1, MAX_POINTS // (size * frames))  # a bounded amount of memory
    parts = []
    for first in range(0, picture.width, columns):
        power = _mean_power(padded, middles[first : first + columns], window)
        parts.append(_to_rows(power, size, clip.rate_hz, picture))
    rows = np.concatenate(parts, axis=1)
    return 10 * np.log10(np.maximum(rows, SILENCE))


def _mean_power(padded: Signal, middles: IntArray, window: int) -> FloatArray:
    """Return the mean power of the frames of each column, columns × bins."""
    shape = np.hanning(window + 2)[1:-1]
    samples = _cut_frames(padded, middles.ravel(), window)
    spectra = rfft(samples * shape, fft_size(window))
    squares = np.square(spectra.real) + np.square(spectra.imag)
    means = squares.reshape(*middles.shape, -1).mean(axis=1)
    return np.asarray((2 / shape.sum()) ** 2 * means)


def window_samples(window_s: float, rate_hz: float) -> int:
    """Return the length of a window in samples."""
    return int(np.clip(round(window_s * rate_hz), SHORTEST_WINDOW, LONGEST_WINDOW))


def fft_size(window: int) -> int:
    """Return the length of the Fourier transform: the window, padded to twice its length."""
    return int(next_fast_len(2 * window, real=True))


def frames_per_column(samples: int, width: int, window: int) -> int:
    """Return of how many frames a column is the mean."""
    needed = -(-samples * 2 // (width * window))
    return max(1, min(MAX_FRAMES, needed))


def frame_middles(samples: int, width: int, frames: int) -> IntArray:
    """Return the sample in the middle of each frame, columns × frames."""
    number = np.arange(width * frames)
    middles = (2 * number + 1) * samples // (2 * width * frames)
    return middles.reshape(width, frames)


def _cut_frames(padded: Signal, middles: IntArray, window: int) -> FloatArray:
    """Return the samples around each middle of a signal with a window of silence at both ends."""
    first = middles - window // 2 + window
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[first]
    return frames.astype(np.float64)


def band_edges(picture: Picture, rate_hz: float) -> FloatArray:
    """Return the frequencies between rows, from low to high: height + 1 of them."""
    low_hz, high_hz = picture.band_hz(rate_hz)
    if picture.scale == LOG:
        return np.geomspace(low_hz, high_hz, picture.height + 1)
    return np.linspace(low_hz, high_hz, picture.height + 1)


def _to_rows(
    power: FloatArray, size: int, rate_hz: float, picture: Picture
) -> FloatArray:
    """Return the power of each pixel, height × width, high frequencies first."""
    edges = band_edges(picture, rate_hz) * size / rate_hz  # in bins
    bins = power.T
    rows = _interpolate(bins, (edges[:-1] + edges[1:]) / 2)
    first = np.ceil(edges[:-1]).astype(int)
    last = np.ceil(edges[1:]).astype(int)  # a bin on an edge belongs to the upper band
    last = np.minimum(last, len(bins))
    with_bins = np.flatnonzero(last > first)
    if len(with_bins) > 0:
        rows[with_bins] = _mean_bins(bins, first[with_bins], last[with_bins])
    return np.asarray(rows[::-1])


def _interpolate(bins: FloatArray, position: FloatArray) -> FloatArray:
    """Return the power between two bins, at places that are counted in bins."""
    position = np.clip(position, 0, len(bins) - 1)
    below = np.floor(position).astype(int)
    above = np.minimum(below + 1, len(bins) - 1)
    share = (position - below)[:, None]
    return np.asarray((1 - share) * bins[below] + share * bins[above])


def _mean_bins(bins: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """Return the mean power of bins from `first` up to `last`."""
    padded = np.concatenate([bins, np.zeros((1, bins.shape[1]))])
    limits = np.column_stack([first, last]).ravel()
    sums = np.add.reduceat(padded, limits)[::2]
    return np.asarray(sums / (last - first)[:, None])


@cache
def _colour_table(name: str) -> bytes:
    """Return red, green and blue of the 256 colours of a map."""
    if name == "grey":
        return bytes(value for level in range(256) for value in (level, level, level))
    with np.load(COLOUR_FILE, allow_pickle=False) as tables:
        return bytes(tables[name].tobytes())


def write_png(pixels: Pixels, colours: str) -> bytes:
    """Return pixels as a PNG file with a palette.

    >>> write_png(np.zeros((1, 1), np.uint8), "grey")[:4]
    b'\\x89PNG'
    """
    from PIL import Image

    height, width = pixels.shape
    image = Image.frombytes("P", (width, height), pixels.tobytes())
    image.putpalette(_colour_table(colours))
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
