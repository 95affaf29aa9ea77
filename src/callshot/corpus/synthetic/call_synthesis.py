"""The waveform of one call: a type, callers and a length → samples at unit power.

A call is a source through a filter. The source is a wave of many harmonics, read at a phase that
follows the contour of the fundamental, made rough and mixed with breath noise. The filter has the
resonances (formants) of the caller's vocal tract. The ranges of similar types overlap, as those of
elephants do; `call_types.toml` has them.
"""

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from callshot.records import FloatArray

Samples = NDArray[np.floating[Any]]
Spectrum = NDArray[np.complex64]
Random = np.random.Generator
Range = tuple[float, float]
CallType = dict[str, Any]  # with the fields of `call_types.toml`

WAVE_SIZE = 16384  # so fine that the nearest entry is good enough
FADE_S = 0.03  # avoids clicks at the ends of a call
FORMANT_Q = 3.0
FORMANT_STEP = 0.45  # gain of each formant against the one below it
RIPPLE = 0.55  # standard deviation of the gain at each third of an octave, in nepers
RIPPLE_POINTS = 40  # thirds of an octave, beyond what any rate holds
LEAK = 0.02  # gain of the tract outside its formants


@dataclass(frozen=True, slots=True)
class Caller:
    """An individual: pitch and tract length relative to the mean, spectral tilt, and timbre.

    `ripple` is in nepers at each third of an octave.
    """

    pitch: float
    tract: float
    tilt: float
    ripple: tuple[float, ...]


# Of the share of time, from −1 to 1.
CONTOURS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "flat": np.zeros_like,
    "rise": lambda t: 2 * t - 1,
    "fall": lambda t: 1 - 2 * t,
    "arch": lambda t: 1 - 2 * (2 * t - 1) ** 2,
    "late fall": lambda t: 0.4 * np.sin(6 * np.pi * t) * (1 - t) + 0.4 - 1.4 * t**4,
    "waver": lambda t: np.sin(4 * np.pi * t),
}


_TYPES_FILE = files(__package__) / "call_types.toml"
CALL_TYPES = tomllib.loads(_TYPES_FILE.read_text(encoding="utf-8"))
CHORUS = "female chorus"
CHORUS_RUMBLES = (
    "greeting rumble",
    "comment rumble",
    "oestrous rumble",
    "separated rumble",
)
CHORUS_OTHERS = ("conflict roar", "conflict roar", "trumpet blast")


def stream(seed: int, purpose: str, *numbers: int) -> Random:
    """Return the random numbers of one purpose.

    >>> stream(0, "voice", 3, 1).random() == stream(0, "voice", 3, 1).random()
    True
    """
    purpose_key = crc32(purpose.encode())
    key = np.random.SeedSequence(seed, spawn_key=(purpose_key, *numbers))
    return np.random.Generator(np.random.Philox(key))


def draw_caller(random: Random) -> Caller:
    """Draw one caller."""
    return Caller(
        pitch=np.exp(0.10 * random.standard_normal()),
        tract=np.exp(0.12 * random.standard_normal()),
        tilt=0.1 * random.standard_normal(),
        ripple=tuple(RIPPLE * random.standard_normal(RIPPLE_POINTS)),
    )


def draw_band_hz(label: str, random: Random) -> Range:
    """Draw the lowest and highest frequency of the box that a person would draw around a call."""
    call_type = CALL_TYPES[label]
    low_hz = call_type["f0_hz"][0] * random.uniform(0.6, 0.9)
    high_hz = call_type["formants_hz"][-1] * random.uniform(0.6, 1.1)
    return low_hz, high_hz


def draw_slow_noise(
    size: int,
    rate_hz: int,
    points_hz: float,
    random: Random,
    *,
    scale: float = 1.0,
    dtype: type[np.floating[Any]] = np.float64,
) -> Samples:
    """Draw noise that changes no faster than `points_hz`; its standard deviation is `scale`."""
    count = int(size / rate_hz * points_hz) + 3
    points = scale * random.standard_normal(count)
    step = dtype(points_hz / rate_hz)
    positions = step * np.arange(size, dtype=dtype)
    noise: Samples = np.interp(positions, np.arange(count), points)
    return noise.astype(dtype)


def synthesise_call(
    label: str, callers: list[Caller], duration_s: float, rate_hz: int, random: Random
) -> Samples:
    """Make one call by the first of the callers, or a chorus by all and more, with unit mean power.

    >>> from numpy.random import default_rng
    >>> random = default_rng(0)
    >>> synthesise_call("musth rumble", [draw_caller(random)], 2.5, 16000, random).shape
    (40000,)
    """
    size = max(1, round(duration_s * rate_hz))
    if label != CHORUS:
        return _synthesise(CALL_TYPES[label], callers[0], size, rate_hz, random)
    # Overlapping rumbles of three to five callers, mostly with one roar or trumpet.
    mixture = np.zeros(size, np.float32)
    choir = [*callers]
    choir_size = random.integers(3, 6)
    while len(choir) < choir_size:
        choir.append(draw_caller(random))
    for number, caller in enumerate([*choir, choir[0]]):
        labels: tuple[str, ...] = CHORUS_RUMBLES
        if number < len(choir):
            share = random.uniform(0.5, 0.8)
            position = number / (len(choir) - 1)
        elif random.random() < 0.8:
            labels = CHORUS_OTHERS
            share = random.uniform(0.25, 0.5)
            position = random.random()
        else:
            break
        part = max(1, int(share * size))
        first = int(position * (size - part))
        label = labels[random.integers(len(labels))]
        call = _synthesise(CALL_TYPES[label], caller, part, rate_hz, random)
        gain = random.uniform(0.5, 1.0)
        mixture[first : first + part] += gain * call
    return _unit_power(mixture)


def _synthesise(
    call_type: CallType, caller: Caller, size: int, rate_hz: int, random: Random
) -> Samples:
    """Draw a source and its envelope, and filter them by the tract of the caller."""
    source = _draw_source(call_type, caller, size, rate_hz, random)

    # The amplitude rises, decays and shimmers, and pulses if the type does.
    attack = call_type["attack"] * random.uniform(0.6, 1.4)
    decay = call_type["decay"] * random.uniform(0.6, 1.4)
    time = np.linspace(0, 1, size)
    corners = [0, attack, 1 - decay, 1]
    envelope = np.interp(time, corners, [0.1, 1, 1, 0.1])
    shimmer_hz = 12 + 40 * call_type["rough"]
    shimmer = draw_slow_noise(size, rate_hz, shimmer_hz, random)
    shimmer_depth = 0.1 + 0.4 * call_type["rough"]
    envelope *= np.exp(shimmer_depth * shimmer)
    pulse_hz = random.uniform(*call_type.get("pulse_hz", (0.0, 0.0)))
    if pulse_hz > 0:
        cycles = pulse_hz / rate_hz * np.arange(size)
        cycles += random.random()
        pulse = np.sin(np.pi * cycles) ** 2
        envelope *= 0.1 + 0.9 * pulse
    source *= envelope.astype(np.float32)

    # Parallel resonances, which fall above the highest, and a ripple: of the caller, and of the
    # posture of head and trunk.
    spread = 0.12 + 0.1 * call_type["rough"]
    deviation = spread * random.standard_normal(3)
    variation = np.exp(deviation)
    tract = caller.tract * variation
    formants_hz = (call_type["formants_hz"] / tract).tolist()
    posture = RIPPLE * random.standard_normal(RIPPLE_POINTS)
    ripple = caller.ripple + posture
    padded, frequency_hz = frequency_grid(size + rate_hz // 4, rate_hz)
    gain = np.full(frequency_hz.size, LEAK, np.complex64)
    for number, formant_hz in enumerate(formants_hz):
        width_hz = formant_hz / FORMANT_Q
        damping = 1j * frequency_hz * width_hz
        distance = formant_hz**2 - frequency_hz**2 + damping
        level = FORMANT_STEP**number
        gain += level * damping / distance
    limit_hz = 1.5 * formants_hz[-1]
    gain = gain / (1 + (frequency_hz / limit_hz) ** 2)
    thirds = 3 * np.log2(1 + frequency_hz / 40)
    nepers = np.interp(thirds, np.arange(ripple.size), ripple)
    ripple_gain = np.exp(nepers)
    gain *= ripple_gain.astype(np.float32)
    call = apply_gain(source, gain, padded)

    fade = min(round(FADE_S * rate_hz), size // 2)
    angle = np.linspace(0, np.pi / 2, fade, dtype=np.float32)
    rising = np.sin(angle) ** 2
    falling = rising[::-1]
    call[:fade] *= rising
    call[size - fade :] *= falling
    return _unit_power(call)


def _draw_source(
    call_type: CallType, caller: Caller, size: int, rate_hz: int, random: Random
) -> Samples:
    """Draw harmonics, made rough by a subharmonic, and breath noise."""
    # The fundamental of every sample: range, pitch, contour, vibrato and jitter.
    low_hz, high_hz = call_type["f0_hz"]
    mean_hz = random.uniform(low_hz, high_hz)
    mean_hz *= caller.pitch
    mean_hz = min(max(mean_hz, low_hz), high_hz)
    time = np.linspace(0, 1, size)
    contour = CONTOURS[call_type["contour"]](time)
    depth = call_type["sweep"] * random.uniform(0.6, 1.2)
    sweep = depth * contour
    vibrato_hz = random.uniform(1, 4)
    cycles = vibrato_hz * size / rate_hz * time
    cycles += random.random()
    vibrato = 0.02 * np.sin(2 * np.pi * cycles)
    jitter_depth = 0.01 + 0.05 * call_type["rough"]
    jitter = jitter_depth * draw_slow_noise(size, rate_hz, 25, random)
    change = 1 + sweep - sweep.mean()
    change = change + vibrato + jitter
    f0_hz = mean_hz * change.clip(0.4, 2.0)

    phase = np.cumsum(f0_hz / rate_hz) + random.random()
    deviation = 0.08 * random.standard_normal()
    tilt = call_type["tilt"] + caller.tilt + deviation
    wave = read_wave(phase, tilt, f0_hz.max(), rate_hz)
    source = _unit_power(wave)
    # Every second period is weaker.
    subharmonic = np.cos(np.pi * phase)
    source *= 1 + call_type["rough"] * subharmonic.astype(np.float32)
    breath_power = call_type["breath"] * random.uniform(0.5, 2.0)
    noise = random.standard_normal(size, np.float32)
    source += math.sqrt(breath_power) * noise
    return source


def read_wave(
    phase: FloatArray, tilt: float, highest_hz: float, rate_hz: int
) -> Samples:
    """Read a wave with as many harmonics as the rate allows, at the given phases (in cycles)."""
    harmonics = int(0.45 * rate_hz / highest_hz)
    harmonics = min(harmonics, WAVE_SIZE // 16)
    last = max(1, harmonics) + 1
    numbers = np.arange(1.0, last)
    spectrum = np.zeros(WAVE_SIZE // 2 + 1)
    spectrum[1:last] = numbers**-tilt
    wave: Samples = fft.irfft(spectrum).astype(np.float32)
    positions = phase * WAVE_SIZE
    entries = positions.astype(np.int64)
    return wave[entries % WAVE_SIZE]


def frequency_grid(samples: int, rate_hz: int) -> tuple[int, Samples]:
    """Return a fast size of a Fourier transform of so many samples, and its frequencies."""
    size = fft.next_fast_len(samples, real=True)
    frequency_hz = fft.rfftfreq(size, 1 / rate_hz)
    return size, frequency_hz.astype(np.float32)


def apply_gain(samples: Samples, gain: Samples | Spectrum, size: int) -> Samples:
    """Multiply the spectrum of samples, of a Fourier transform of this size, by a gain."""
    spectrum = fft.rfft(samples, size) * gain
    filtered: Samples = fft.irfft(spectrum, size)
    return filtered[: samples.size]


def _unit_power(samples: Samples) -> Samples:
    power = np.mean(samples**2) + np.float32(1e-20)
    scaled: Samples = samples / np.sqrt(power)
    return scaled
