"""A call and background of other recordings → the call in that background.

The signal-to-noise ratio is that of powers while the call lasts, in the band that has 90 % of the
call's energy (its 5 % and 95 % frequencies), which is at least a third of an octave wide. So wind
below a call does not count against it.
"""

from collections.abc import Sequence

import numpy as np
from scipy import fft

from callshot.encoders.validation import Float32Array
from callshot.errors import InputError
from callshot.fewshot.kernels import streams
from callshot.records import FloatArray

SNRS_DB = (0.0, 5.0, 10.0, 15.0)  # each example is mixed into background once at each
ENERGY_SHARES = (0.05, 0.95)
NARROWEST = 2 ** (1 / 6)  # from the centre of a band to its edges: a third of an octave
FADE_S = 0.01  # avoids clicks at the ends of a call


def mix_example(
    call: Float32Array,
    backgrounds: Sequence[Float32Array],
    name: str,
    rate_hz: int,
    snrs_db: Sequence[float] = SNRS_DB,
) -> list[Float32Array]:
    """Return a call mixed into background once for each signal-to-noise ratio.

    `name` alone decides which of the backgrounds are used, so the order of examples has no effect.
    """
    numbers = choose_backgrounds(name, len(snrs_db), len(backgrounds))
    pairs = zip(numbers, snrs_db, strict=True)
    return [mix_call(call, backgrounds[n], snr_db, rate_hz) for n, snr_db in pairs]


def choose_backgrounds(name: str, count: int, backgrounds: int) -> list[int]:
    """Return `count` numbers below `backgrounds`, different ones while there are enough.

    >>> choose_backgrounds("a.wav at 1.00 s", 3, 100)
    [37, 34, 83]
    """
    key = int(streams.make_stream(0, "site", streams.key(name)))
    order = np.random.Generator(np.random.Philox(key)).permutation(backgrounds)
    return np.resize(order, count).tolist()


def mix_call(
    call: Float32Array, background: Float32Array, snr_db: float, rate_hz: int
) -> Float32Array:
    """Return the background with a call in its middle, at a signal-to-noise ratio.

    The level is that of the background. A background that is shorter than the call is repeated. If
    it is silent in the band of the call, the call keeps its level.

    >>> tone = np.sin(np.arange(800) / 2).astype(np.float32)
    >>> noise = np.random.default_rng(0).normal(0, 0.1, 1600).astype(np.float32)
    >>> mixed = mix_call(tone, noise, snr_db=20, rate_hz=8000)
    >>> bool((mixed[:400] == noise[:400]).all()), mixed.shape
    (True, (1600,))
    """
    window = np.resize(background, max(len(call), len(background)))
    start = (len(window) - len(call)) // 2
    covered = slice(start, start + len(call))
    gain = find_gain(call, window[covered], snr_db, rate_hz)
    mixed = window.astype(np.float32)
    mixed[covered] += np.float32(gain) * fade_ends(call, rate_hz)
    return mixed


def find_gain(
    call: Float32Array, noise: Float32Array, snr_db: float, rate_hz: int
) -> float:
    """Return the factor for a call that gives a signal-to-noise ratio in its band."""
    energy = _spectrum(call)
    band = find_band(energy, rate_hz / len(call))
    call_energy = energy[band].sum()
    noise_energy = _spectrum(noise)[band].sum()
    if call_energy == 0:
        raise InputError(
            "a silent example cannot be mixed into the background of a site"
        )
    if noise_energy == 0:
        return 1.0
    ratio = 10 ** (snr_db / 10)
    return float(np.sqrt(ratio * noise_energy / call_energy))


def _spectrum(signal: Float32Array) -> FloatArray:
    """Return the energy at each frequency; the mean of the signal does not count."""
    amplitudes = fft.rfft(signal.astype(np.float64))
    energy = np.abs(amplitudes) ** 2
    energy[0] = 0.0
    return np.asarray(energy)


def find_band(energy: FloatArray, step_hz: float) -> slice:
    """Return the bins that have 90 % of the energy, at least a third of an octave.

    >>> energy = np.zeros(1000)
    >>> energy[500] = 1.0
    >>> find_band(energy, step_hz=1.0)
    slice(445, 563, None)
    """
    cumulative = np.cumsum(energy)
    limits = np.array(ENERGY_SHARES) * cumulative[-1]
    low, high = np.searchsorted(cumulative, limits)
    low_hz = max(int(low), 1) * step_hz
    high_hz = max(int(high), 1) * step_hz
    centre_hz = np.sqrt(low_hz * high_hz)
    first = min(low_hz, centre_hz / NARROWEST) / step_hz
    last = max(high_hz, centre_hz * NARROWEST) / step_hz
    return slice(int(first), int(np.ceil(last)) + 1)


def fade_ends(call: Float32Array, rate_hz: int) -> Float32Array:
    """Return a call that rises from silence and ends in it, each within 10 ms."""
    length = min(round(FADE_S * rate_hz), len(call) // 2)
    rising = (np.arange(length) + 0.5) / max(length, 1)
    faded = call.astype(np.float32)
    faded[:length] *= rising
    faded[len(call) - length :] *= rising[::-1]
    return faded
