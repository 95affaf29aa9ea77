"""MFCC without a framework: one segment's samples come in, the sequence of its frames or their mean goes out.

The definition is `librosa.feature.mfcc`: a power mel spectrogram with filters of equal area, in dB, and its DCT-II:

    signal → frames × Hann window → |FFT|² → mel filters → 10 log10, at most top_db below the loudest → DCT → mean

No step uses BLAS, so that the bits do not depend on its threads. What is kept of a segment on the way, besides small
blocks of frames, is its mel spectrogram, which with the default options is smaller than the signal itself.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy.fft import dct, rfft
from scipy.sparse import csr_array

from callshot.errors import InputError, OptionError

MELS = ("slaney", "htk")
PADDINGS = ("centre", "none")
QUIETEST = 1e-10  # powers below it count as it, −100 dB: silence is finite
LOUDEST = 1e12  # a sample beyond it is no audio, and its power would leave float32
BLOCK_BYTES = (
    102_400  # of the frames that are transformed at once: they stay in the processor's cache
)
MANY_FRAMES = 100  # over which rounding averages out


@dataclass(frozen=True)
class MfccOptions:
    """How a signal becomes frames; each option changes the numbers. The defaults are the paper's, as we read it.

    `window_s` and `hop_s` are rounded to samples. `n_fft` is in samples; the window stands in its middle. `mel` htk
    leaves 4 of 128 filters empty at n_fft 400, and an empty one adds a constant to every coefficient. `top_db` None
    does not clip. `padding` centre puts n_fft // 2 zeros at both ends: frame i is centred on sample i · hop.

    >>> MfccOptions(hop_s=0.02).hop
    320
    >>> MfccOptions(n_fft=256)
    Traceback (most recent call last):
    callshot.errors.OptionError: n_fft: at least the window of 400 samples, got 256
    """

    rate_hz: int = 16000
    coefficients: int = 40
    bands: int = 128
    window_s: float = 0.025
    hop_s: float = 0.010
    n_fft: int = 400
    mel: str = "slaney"
    top_db: float | None = 80.0
    padding: str = "centre"

    def __post_init__(self) -> None:
        for name in ("rate_hz", "coefficients", "bands", "n_fft"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise OptionError(f"{name}: a whole number from 1, got {getattr(self, name)!r}")
        for name, low in (("window_s", 2), ("hop_s", 1)):
            if not low <= getattr(self, name) * self.rate_hz < math.inf:
                raise OptionError(
                    f"{name}: at least {low} samples at {self.rate_hz} Hz, got {getattr(self, name)} s"
                )
        if self.n_fft < self.window:
            raise OptionError(
                f"n_fft: at least the window of {self.window} samples, got {self.n_fft}"
            )
        for name, most in (("bands", 10_000), ("n_fft", 2**20)):
            if getattr(self, name) > most:
                raise OptionError(f"{name}: at most {most}, got {getattr(self, name)}")
        if self.coefficients > self.bands:
            raise OptionError(
                f"coefficients: at most the {self.bands} bands, got {self.coefficients}"
            )
        if self.top_db is not None and not 0 <= self.top_db < math.inf:
            raise OptionError(f"top_db: at least 0 dB, or None for no limit, got {self.top_db}")
        for name, allowed in (("mel", MELS), ("padding", PADDINGS)):
            if getattr(self, name) not in allowed:
                raise OptionError(
                    f"{name}: one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )

    @property
    def window(self) -> int:
        """The window's length in samples."""
        return round(self.window_s * self.rate_hz)

    @property
    def hop(self) -> int:
        """The samples from one frame to the next."""
        return round(self.hop_s * self.rate_hz)

    @property
    def zeros(self) -> int:
        """The zeros that stand at each end of a signal."""
        return self.n_fft // 2 if self.padding == "centre" else 0


PAPER = MfccOptions()


def frames(signal: NDArray[np.float32], options: MfccOptions = PAPER) -> NDArray[np.float32]:
    """Return the sequence of a segment, frames × coefficients.

    The signal is one channel at `rate_hz`, of any length from one sample; without padding, from `n_fft` samples.

    >>> frames(np.zeros(16000, np.float32)).shape
    (101, 40)
    """
    _refuse_bad(signal, options)
    found = dct(_log_mel(signal, options, np.float64), axis=0, norm="ortho", overwrite_x=True)
    return np.ascontiguousarray(found[: options.coefficients].T)


def embed(signal: NDArray[np.float32], options: MfccOptions = PAPER) -> NDArray[np.float32]:
    """Return the vector of a segment: the mean over its frames.

    Faster than the mean of `frames`, and equal to it up to 1e-6 of the largest coefficient; up to 3e-6 where a signal
    repeats itself exactly from frame to frame, so that rounding does not average out.

    >>> embed(np.zeros(16000, np.float32))[:2].round(2).tolist()
    [-1131.3699951171875, 0.0]
    """
    _refuse_bad(signal, options)
    shallow = options.top_db is not None and options.top_db <= 80
    precision = (
        np.float32 if shallow and _count(len(signal), options) >= MANY_FRAMES else np.float64
    )
    mean = _log_mel(signal, options, precision).mean(axis=1, dtype=np.float64)
    # The DCT is linear: that of the mean is the mean of those of the frames.
    found: NDArray[np.float32] = dct(mean, norm="ortho")[: options.coefficients].astype(np.float32)
    return found


def _log_mel(
    signal: NDArray[np.float32], options: MfccOptions, precision: DTypeLike
) -> NDArray[np.float32]:
    """Return the mel spectrogram in dB, bands × frames; top_db is below the loudest of the whole segment.

    `precision` is that of the FFT. In float32, rounding shows in bands that are 60 dB or more below the loudest: up to
    4e-6 of the largest coefficient in one frame with a top_db of 80, and some 2e-7 in the mean of 100.
    """
    mel = _mel_power(signal, options, precision)
    reach = 0.0 if options.top_db is None else 10 ** (-options.top_db / 10)
    np.maximum(mel, np.float32(max(QUIETEST, float(mel.max()) * reach)), out=mel)
    np.log10(mel, out=mel)
    mel *= 10
    return mel


def _mel_power(
    signal: NDArray[np.float32], options: MfccOptions, precision: DTypeLike
) -> NDArray[np.float32]:
    window, filters = _window(options).astype(precision), _filters(options)
    mel = np.empty((options.bands, _count(len(signal), options)), np.float32)
    step = max(1, BLOCK_BYTES // window.nbytes)
    for start in range(0, mel.shape[1], step):
        block = mel[:, start : start + step]
        spectrum = rfft(
            _view(signal, options, range(start, start + block.shape[1]), window.dtype) * window
        )
        power = np.square(spectrum.real) + np.square(spectrum.imag)
        block[:] = filters @ power.T.astype(np.float32, order="C")
    return mel


def _view(
    signal: NDArray[np.float32], options: MfccOptions, chosen: range, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return the chosen frames, as a view of a copy with zeros where they reach beyond the signal."""
    first = chosen.start * options.hop - options.zeros
    piece = np.zeros((len(chosen) - 1) * options.hop + options.n_fft, dtype)
    inside = signal[max(0, first) : first + len(piece)]
    piece[max(0, -first) :][: len(inside)] = inside
    # `sliding_window_view` would take as long as the product with the window.
    strides = (options.hop * dtype.itemsize, dtype.itemsize)
    return np.ndarray((len(chosen), options.n_fft), dtype, piece, strides=strides)


def _count(samples: int, options: MfccOptions) -> int:
    """Return how many frames a signal has."""
    return 1 + (samples + 2 * options.zeros - options.n_fft) // options.hop


def _refuse_bad(signal: NDArray[np.float32], options: MfccOptions) -> None:
    """Refuse what is no signal, is too short for a frame, or has a sample that is no number."""
    if not isinstance(signal, np.ndarray) or signal.dtype != np.float32 or signal.ndim != 1:
        found = (
            f"{signal.dtype} of shape {signal.shape}"
            if isinstance(signal, np.ndarray)
            else type(signal).__name__
        )
        raise InputError(
            f"signal: wanted one channel of float32 samples, found {found}; reduce and convert it first"
        )
    least = max(1, options.n_fft - 2 * options.zeros)
    if len(signal) < least:
        raise InputError(
            f"signal: wanted at least {least} samples, found {len(signal)}; leave the segment out"
        )
    if not (signal.min() >= -LOUDEST and signal.max() <= LOUDEST):  # neither is true of NaN
        at = int(np.argmin(np.abs(signal) <= LOUDEST))
        wanted = f"wanted a finite number, at most ±{LOUDEST:g}"
        raise InputError(
            f"signal: sample {at}: {wanted}, found {signal[at]}; mend the audio or leave the segment out"
        )


@lru_cache(maxsize=8)
def _window(options: MfccOptions) -> NDArray[np.float64]:
    """Return a periodic Hann window in the middle of n_fft samples."""
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(options.window) / options.window)
    before = (options.n_fft - options.window) // 2
    return np.pad(hann, (before, options.n_fft - options.window - before))


@lru_cache(maxsize=8)
def _filters(options: MfccOptions) -> csr_array:
    """Return triangular filters of area 1 Hz, bands × FFT bins: sparse, as a bin lies in two of them at most."""
    edges_hz, bins_hz = _edges_hz(options), np.fft.rfftfreq(options.n_fft, 1 / options.rate_hz)
    corners = [edges_hz[band : band + 3] for band in range(options.bands)]
    triangles = [np.interp(bins_hz, hz, (0, 2 / (hz[2] - hz[0]), 0)) for hz in corners]
    return csr_array(np.array(triangles, np.float32))


def _edges_hz(options: MfccOptions) -> NDArray[np.float64]:
    """Return bands + 2 frequencies from 0 to half the rate at equal steps in mel: each filter spans three of them."""
    top_hz = options.rate_hz / 2
    if options.mel == "htk":
        return 700 * (np.geomspace(1, 1 + top_hz / 700, options.bands + 2) - 1)
    # Slaney's scale: 200/3 Hz a mel up to 1 kHz, which is mel 15; then a factor of 6.4 in 27 mels.
    top = top_hz * 3 / 200 if top_hz < 1000 else 15 + 27 * math.log(top_hz / 1000, 6.4)
    mels = np.linspace(0, top, options.bands + 2)
    return np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))
