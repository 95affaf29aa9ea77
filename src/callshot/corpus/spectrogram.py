"""A signal → the levels of the pixels of its spectrogram.

Columns   Column x of W stands for the time from start + x·d to start + (x + 1)·d, d = length / W.
          It is the mean power of m frames, spread evenly over it: m = 1, or as many as are needed
          so that frames are at most half a window apart (up to 16).
Frames    n = window_s · rate samples around the middle, by a Hann window; silence beyond the
          signal. Power is that of a sine: a sine at full scale has 0 dB.
Rows      Row y of H, from the top, stands for a band of frequencies. It is the mean power of the
          bins inside the band, or between the two nearest bins if there are none.
"""

import math

import numpy as np
from numpy.typing import NDArray

from callshot.records import FloatArray

MAX_FRAMES = 16  # in a column
MAX_POINTS = 2**21  # of spectra at once
MIN_WINDOW = 8  # samples
MAX_WINDOW = 2**17
SILENCE = 1e-20  # power


def measure_spectrogram(
    signal: NDArray[np.floating],
    rate_hz: float,
    edges_hz: FloatArray,
    width: int,
    window_s: float,
) -> FloatArray:
    """Return the level of each pixel in dB, (height, width), the highest frequencies first.

    `edges_hz` are the limits of the rows of pixels, one more than rows, in rising order.
    """
    samples = len(signal)
    window = count_window(window_s, rate_hz)
    # Each column is the mean of so many frames, at most half a window apart.
    needed = math.ceil(2 * samples / (width * window))
    frames = max(1, min(MAX_FRAMES, needed))
    # The middles of as many equal parts of the signal as there are frames.
    count = width * frames
    odd_numbers = 2 * np.arange(count) + 1
    middles = odd_numbers * samples // (2 * count)
    padded = np.pad(signal, window)  # with silence at both ends
    windows = np.lib.stride_tricks.sliding_window_view(padded, window)
    first_samples = middles - window // 2 + window  # in `padded`
    return measure_frames(windows, first_samples, rate_hz, edges_hz, frames)


def count_window(window_s: float, rate_hz: float) -> int:
    """Return the length of a frame in samples, within MIN_WINDOW and MAX_WINDOW."""
    samples = round(window_s * rate_hz)
    return min(max(samples, MIN_WINDOW), MAX_WINDOW)


def find_fast_length(length: int) -> int:
    """Return the smallest number from `length` on whose prime factors are 2, 3 and 5.

    As scipy.fft.next_fast_len, without the import, which takes as long as the rest of a page.

    >>> find_fast_length(2 * 769)
    1600
    """
    lengths: list[int] = []
    for odd in (3**a * 5**b for a in range(12) for b in range(8)):
        factor = math.ceil(length / odd)
        power_of_two = 1 << (factor - 1).bit_length()  # the next from it on
        lengths.append(odd * power_of_two)
    return min(lengths)


def measure_frames(
    windows: NDArray[np.floating],
    window_of_frame: NDArray[np.int64],
    rate_hz: float,
    edges_hz: FloatArray,
    frames: int,
) -> FloatArray:
    """Return levels in dB, (height, columns); each column is the mean of the next `frames` frames.

    `windows` (n, samples) are pieces of the signal; frame i is windows[window_of_frame[i]].
    """
    window = windows.shape[1]
    size = find_fast_length(2 * window)  # of the Fourier transform
    hann = np.hanning(window + 2)[1:-1]
    gain = 2 / hann.sum()  # a sine at full scale has 0 dB
    edges = edges_hz * size / rate_hz  # in bins
    # Some columns at a time, so that memory is bounded.
    columns_at_a_time = max(1, MAX_POINTS // (size * frames))
    step = columns_at_a_time * frames
    powers = []
    limits = range(step, len(window_of_frame), step)  # between blocks
    for block in np.split(window_of_frame, limits):
        signals = windows[block].astype(np.float64)
        spectra = np.fft.rfft(signals * hann, size)
        squares = np.square(spectra.real) + np.square(spectra.imag)
        bins = squares.shape[1]
        by_column = squares.reshape(-1, frames, bins)
        mean = by_column.mean(axis=1)  # (columns, bins)
        power = gain**2 * mean
        powers.append(_pool_bins(power.T, edges))
    all_powers = np.concatenate(powers, axis=1)  # (height, columns)
    audible = np.maximum(all_powers, SILENCE)
    return 10 * np.log10(audible)


def _pool_bins(bins: FloatArray, edges: FloatArray) -> FloatArray:
    """Return rows of pixels, the highest first, as means of bins or interpolated between two.

    `bins` are powers, (bins, columns); `edges` the limits of the rows, counted in bins.
    """
    # Interpolate at the middle of every row.
    last = len(bins) - 1
    middles = (edges[:-1] + edges[1:]) / 2
    position = np.clip(middles, 0, last)
    below = np.floor(position).astype(int)
    above = np.minimum(below + 1, last)
    share = (position - below)[:, None]
    from_below = (1 - share) * bins[below]
    from_above = share * bins[above]
    rows = from_below + from_above
    # Replace rows that have bins by the mean of these. `reduceat` also sums from the end of each
    # row to the start of the next, which is dropped, and needs a bin after the last limit.
    limits = np.ceil(edges).astype(int)  # a bin on an edge belongs to the upper band
    limits = np.minimum(limits, len(bins))
    counts = np.diff(limits)
    has_bins = counts > 0
    columns = bins.shape[1]
    silent = np.zeros((1, columns))
    padded = np.concatenate([bins, silent])
    firsts = limits[:-1]
    ends = limits[1:]
    pairs = np.column_stack([firsts, ends])
    bounds = pairs[has_bins].ravel()
    sums = np.add.reduceat(padded, bounds)[::2]
    counts_of_rows = counts[has_bins, None]
    rows[has_bins] = sums / counts_of_rows
    return np.asarray(rows[::-1])
