"""Synthetic sounds: calls, and what a microphone records of them in the noise around it.

A call is a source, a wave of harmonics that follows the contour of the fundamental, through a
filter with the resonances of the caller's vocal tract; `call_types.toml` has the ranges of types.
A soundscape belongs to a recording of a corpus; the noise of a site follows the hour of the day,
and is made in blocks that fade into each other, so any number of threads makes the same samples.
"""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.resources import files
from math import ceil
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from callshot.records import FloatArray
from callshot.spans import Spans

Samples = NDArray[np.floating[Any]]
Spectrum = NDArray[np.complex64]
Random = np.random.Generator
Range = tuple[float, float]
CallType = dict[str, Any]  # with the fields of `call_types.toml`

WAVE_SIZE = 16384  # so fine that the nearest entry is good enough
CALL_FADE_S = 0.03  # avoids clicks at the ends of a call
FORMANT_Q = 3.0
FORMANT_STEP = 0.45  # gain of each formant against the one below it
RIPPLE = 0.55  # standard deviation of the gain at each third of an octave, in nepers
RIPPLE_POINTS = 40  # thirds of an octave, beyond what any rate holds
LEAK = 0.02  # gain of the tract outside its formants
# Standard deviations over callers: of the logarithms of pitch and length of the tract, and of tilt.
PITCH_SPREAD = 0.10
TRACT_SPREAD = 0.12
TILT_SPREAD = 0.1


@dataclass(frozen=True, slots=True)
class Caller:
    """An individual relative to the mean of its type.

    `pitch` and `tract` are factors of the fundamental and of the length of the vocal tract. `tilt`
    is added to how fast harmonics weaken. `ripple` is a gain in nepers at each third of an octave.
    """

    pitch: float
    tract: float
    tilt: float
    ripple: tuple[float, ...]


# The deviation of the pitch, from −1 to 1, by the share of the call's time, from 0 to 1.
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
    """Return the random generator of one purpose, which depends on these arguments only."""
    purpose_key = crc32(purpose.encode())
    key = np.random.SeedSequence(seed, spawn_key=(purpose_key, *numbers))
    return np.random.Generator(np.random.Philox(key))


def draw_caller(random: Random) -> Caller:
    """Draw one caller: all its deviations from the mean are normally distributed."""
    pitch_nepers = PITCH_SPREAD * random.standard_normal()
    tract_nepers = TRACT_SPREAD * random.standard_normal()
    return Caller(
        pitch=np.exp(pitch_nepers),
        tract=np.exp(tract_nepers),
        tilt=TILT_SPREAD * random.standard_normal(),
        ripple=tuple(RIPPLE * random.standard_normal(RIPPLE_POINTS)),
    )


def draw_band_hz(label: str, random: Random) -> Range:
    """Draw the lowest and highest frequency of the box that a person would draw around a call."""
    call_type = CALL_TYPES[label]
    lowest_hz, _ = call_type["f0_hz"]
    *_, highest_hz = call_type["formants_hz"]
    low_hz = lowest_hz * random.uniform(0.6, 0.9)
    high_hz = highest_hz * random.uniform(0.6, 1.1)
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
    """Draw Gaussian points, `points_hz` per second with deviation `scale`, joined by lines."""
    # One point is at the first sample, one beyond the last, and one to spare.
    count = int(size / rate_hz * points_hz) + 3
    points = scale * random.standard_normal(count)
    step = dtype(points_hz / rate_hz)
    positions = step * np.arange(size, dtype=dtype)
    places = np.arange(count)
    noise: Samples = np.interp(positions, places, points)
    return noise.astype(dtype)


def synthesise_call(
    label: str, callers: list[Caller], duration_s: float, rate_hz: int, random: Random
) -> Samples:
    """Make a call with unit mean power, by the first of the `callers`.

    A chorus is by all of them, and by others if they are too few.
    """
    size = max(1, round(duration_s * rate_hz))
    if label != CHORUS:
        return _synthesise(CALL_TYPES[label], callers[0], size, rate_hz, random)
    # Overlapping rumbles of three to five callers, mostly with one roar or trumpet by the first.
    mixture = np.zeros(size, np.float32)
    choir = [*callers]
    choir_size = random.integers(3, 6)
    while len(choir) < choir_size:
        choir.append(draw_caller(random))
    for number, caller in enumerate([*choir, choir[0]]):
        # Length and position are shares of the time of the chorus.
        labels: tuple[str, ...] = CHORUS_RUMBLES
        if number < len(choir):
            length_share = random.uniform(0.5, 0.8)
            position = number / (len(choir) - 1)
        elif random.random() < 0.8:  # the first caller again
            labels = CHORUS_OTHERS
            length_share = random.uniform(0.25, 0.5)
            position = random.random()
        else:
            break
        length = max(1, int(length_share * size))
        first = int(position * (size - length))
        label = labels[random.integers(len(labels))]
        call = _synthesise(CALL_TYPES[label], caller, length, rate_hz, random)
        gain = random.uniform(0.5, 1.0)
        mixture[first : first + length] += gain * call
    return _unit_power(mixture)


def _synthesise(
    call_type: CallType, caller: Caller, size: int, rate_hz: int, random: Random
) -> Samples:
    """Make a call of `size` samples: a source with an envelope, filtered by the caller's tract."""
    source = _draw_source(call_type, caller, size, rate_hz, random)
    envelope = _draw_envelope(call_type, size, rate_hz, random)
    source *= envelope.astype(np.float32)
    # With a quarter of a second of silence, into which the end of the call rings.
    fft_size, frequency_hz = frequency_grid(size + rate_hz // 4, rate_hz)
    gain = _draw_tract_gain(call_type, caller, frequency_hz, random)
    call = apply_gain(source, gain, fft_size)
    longest_fade = size // 2
    fade = min(round(CALL_FADE_S * rate_hz), longest_fade)
    angle = np.linspace(0, np.pi / 2, fade, dtype=np.float32)
    rising = np.sin(angle) ** 2
    falling = rising[::-1]
    call[:fade] *= rising
    call[size - fade :] *= falling
    return _unit_power(call)


def _draw_envelope(
    call_type: CallType, size: int, rate_hz: int, random: Random
) -> FloatArray:
    """Draw amplitudes that rise, decay and fluctuate, and pulse in types with `pulse_hz`."""
    attack = call_type["attack"] * random.uniform(0.6, 1.4)
    decay = call_type["decay"] * random.uniform(0.6, 1.4)
    time = np.linspace(0, 1, size)
    corners = [0, attack, 1 - decay, 1]
    envelope = np.interp(time, corners, [0.1, 1, 1, 0.1])
    shimmer_hz = 12 + 40 * call_type["rough"]
    shimmer = draw_slow_noise(size, rate_hz, points_hz=shimmer_hz, random=random)
    shimmer_depth = 0.1 + 0.4 * call_type["rough"]
    envelope *= np.exp(shimmer_depth * shimmer)
    low_hz, high_hz = call_type.get("pulse_hz", (0.0, 0.0))
    pulse_hz = random.uniform(low_hz, high_hz)
    if pulse_hz > 0:
        cycles = pulse_hz / rate_hz * np.arange(size)
        cycles += random.random()
        pulse = np.sin(np.pi * cycles) ** 2
        envelope *= 0.1 + 0.9 * pulse
    return envelope


def _draw_tract_gain(
    call_type: CallType, caller: Caller, frequency_hz: Samples, random: Random
) -> Spectrum:
    """Draw the gain of the vocal tract: resonances at formants, and a ripple."""
    spread = 0.12 + 0.1 * call_type["rough"]
    deviation = spread * random.standard_normal(3)
    variation = np.exp(deviation)
    tract = caller.tract * variation  # a longer tract has lower formants
    formants_hz = (call_type["formants_hz"] / tract).tolist()
    posture = RIPPLE * random.standard_normal(RIPPLE_POINTS)
    ripple = caller.ripple + posture
    gain = np.full(frequency_hz.size, LEAK, np.complex64)
    for number, formant_hz in enumerate(formants_hz):
        # The gain of a second-order resonator, which is 1 at its formant.
        width_hz = formant_hz / FORMANT_Q
        damping = 1j * frequency_hz * width_hz
        denominator = formant_hz**2 - frequency_hz**2 + damping
        level = FORMANT_STEP**number
        gain += level * damping / denominator
    limit_hz = 1.5 * formants_hz[-1]
    relative = frequency_hz / limit_hz
    gain = gain / (1 + relative**2)
    thirds = 3 * np.log2(1 + frequency_hz / 40)  # of an octave
    points = np.arange(ripple.size)
    nepers = np.interp(thirds, points, ripple)
    ripple_gain = np.exp(nepers).astype(np.float32)
    shaped: Spectrum = gain * ripple_gain
    return shaped


def _draw_fundamental_hz(
    call_type: CallType, caller: Caller, size: int, rate_hz: int, random: Random
) -> FloatArray:
    """Draw the fundamental at each sample: a pitch with a contour, vibrato and jitter."""
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
    wobble = draw_slow_noise(size, rate_hz, points_hz=25, random=random)
    jitter = jitter_depth * wobble
    sweep_around_mean = 1 + sweep - sweep.mean()
    change = sweep_around_mean + vibrato + jitter
    f0_hz: FloatArray = mean_hz * change.clip(0.4, 2.0)
    return f0_hz


def _draw_source(
    call_type: CallType, caller: Caller, size: int, rate_hz: int, random: Random
) -> Samples:
    """Draw harmonics of a fundamental that follows the contour, roughened, with breath noise."""
    f0_hz = _draw_fundamental_hz(call_type, caller, size, rate_hz, random)
    steps = f0_hz / rate_hz  # in cycles
    phase = np.cumsum(steps) + random.random()
    deviation = 0.08 * random.standard_normal()
    tilt = call_type["tilt"] + caller.tilt + deviation
    wave = read_wave(phase, tilt, f0_hz.max(), rate_hz)
    source = _unit_power(wave)
    # Every second period is weaker.
    subharmonic = np.cos(np.pi * phase).astype(np.float32)
    source *= 1 + call_type["rough"] * subharmonic
    breath_power = call_type["breath"] * random.uniform(0.5, 2.0)
    breath_level = math.sqrt(breath_power)
    noise = random.standard_normal(size, np.float32)
    source += breath_level * noise
    return source


def read_wave(
    phase: FloatArray, tilt: float, highest_hz: float, rate_hz: int
) -> Samples:
    """Return a wave of harmonics, with amplitude n ** −tilt, at phases in cycles.

    It has no harmonic above half of the rate when the fundamental is at `highest_hz`.
    """
    harmonics = int(0.45 * rate_hz / highest_hz)
    harmonics = min(harmonics, WAVE_SIZE // 16)
    end = max(1, harmonics) + 1
    numbers = np.arange(1.0, end)
    spectrum = np.zeros(WAVE_SIZE // 2 + 1)
    spectrum[1:end] = numbers**-tilt
    cycle: Samples = fft.irfft(spectrum).astype(np.float32)
    positions = phase * WAVE_SIZE
    entries = positions.astype(np.int64)
    return cycle[entries % WAVE_SIZE]


def frequency_grid(samples: int, rate_hz: int) -> tuple[int, Samples]:
    """Return a size from `samples` on whose Fourier transform is fast, and its frequencies."""
    size = fft.next_fast_len(samples, real=True)
    frequency_hz = fft.rfftfreq(size, 1 / rate_hz)
    return size, frequency_hz.astype(np.float32)


def apply_gain(samples: Samples, gain: Samples | Spectrum, size: int) -> Samples:
    """Filter samples: multiply their Fourier transform, of `size` points, by a gain per bin."""
    spectrum = fft.rfft(samples, size) * gain
    filtered: Samples = fft.irfft(spectrum, size)
    return filtered[: samples.size]


def _unit_power(samples: Samples) -> Samples:
    """Scale samples to a mean power of 1; silence stays silence."""
    power = np.mean(samples**2) + np.float32(1e-20)
    scaled: Samples = samples / np.sqrt(power)
    return scaled


# Limits of values that are equally likely; levels are in dB against all noise.
RANGES = {
    "reverberation_s": (0.3, 1.4),
    "wind_db": (-10, 8),
    "wind_hz": (20, 120),
    "gusts": (0.2, 0.9),
    "floor_db": (-25, -11),
    "insects_db": (-25, -5),
    "insects_hz": (2500, 6000),
    "birds_per_s": (0, 0.8),
    "birds_hz": (1500, 5000),
    "low_cut_hz": (8, 45),
}
NOISES_DB = ("wind_db", "floor_db", "insects_db")
# All noise against a call from 10 m away, and its rise with every tenfold distance.
NOISE_AT_10_M_DB = -17.0
NOISE_PER_DECADE_DB = 8.0
BLOCK_S = 31
FADE_S = 1  # of one block into the next; both together are a fast size of a Fourier transform
FLOOR_DB = -64.0
WIND_DB = -52.0
INSECTS_DB = -66.0
SHOWERS_PER_DAY = 1.5
SHOWER_S = (600.0, 3600.0)
SHOWER_DB = (-54.0, -44.0)
SHOWER_RAMP_S = 120.0
ENGINES_PER_DAY = 24.0
ENGINE_HOURS = (5.0, 21.0)
ENGINE_DB = (-60.0, -44.0)
ENGINE_HZ = (25.0, 80.0)
ENGINE_S = (12.0, 45.0)
ENGINE_REACH = 4.0  # in units of its length; beyond that it is inaudible
DAY_S = 86400.0
CALLERS = 8  # individuals at a site
DISTANCES_M = (15.0, 60.0)
BIRD_LEVEL = 0.03
DROPS_PER_S = 12.0
DROP_S = 0.004
ENGINE_TILT = 1.0  # how fast its harmonics weaken


# What all calls of a recording share: the distance_m of the callers, the values above, the colour
# of the microphone, and the peak. Levels are relative to a recorded call of 0 dB.
Soundscape = Mapping[str, float]


def draw_soundscape(random: Random) -> Soundscape:
    """Draw a soundscape; distant callers are closer to the level of the noise."""
    decades = random.uniform(0, 1)
    distance_m = 10 * 10**decades
    # The logarithm is `decades`, except for late digits, which recordings made so far depend on.
    noise_db = NOISE_AT_10_M_DB + NOISE_PER_DECADE_DB * np.log10(distance_m / 10)
    soundscape = {"distance_m": distance_m}
    for name, limits in RANGES.items():
        soundscape[name] = random.uniform(*limits)
        if name in NOISES_DB:
            soundscape[name] += noise_db
    soundscape["colour"] = 0.15 * random.standard_normal()
    soundscape["peak"] = random.uniform(0.3, 0.9)
    return soundscape


def mix_soundscape(
    calls: Samples, soundscape: Soundscape, rate_hz: int, random: Random
) -> Samples:
    """Add distance, noise and birds to calls, and scale them to the peak of the soundscape."""
    tail_size = int(soundscape["reverberation_s"] * rate_hz)
    size, frequency_hz = frequency_grid(calls.size + tail_size, rate_hz)
    mixture = record_call(calls, soundscape, rate_hz, random)[: calls.size]

    # Wind in gusts, the steady noise of the microphone, and insects that swell and fade.
    white = random.standard_normal(2 * frequency_hz.size, np.float32)
    spectrum = white.view(np.complex64)
    gains = _noise_gains(soundscape, frequency_hz, rate_hz)
    # How often the level of each noise changes, and how much; None: it is steady.
    swells = {"wind": (1.0, soundscape["gusts"]), "floor": None, "insects": (6.0, 0.5)}
    noise = np.zeros(size, np.float32)
    for name, swell in swells.items():
        coloured = fft.irfft(spectrum * gains[name], size)
        level_db = soundscape[f"{name}_db"]
        level = 10 ** (level_db / 20)
        power = np.mean(coloured**2)
        gain = np.float32(level / np.sqrt(power))
        coloured = coloured * gain
        if swell is not None:
            points_hz, depth = swell
            nepers = draw_slow_noise(
                size, rate_hz, points_hz, random, scale=depth, dtype=np.float32
            )
            coloured = coloured * np.exp(nepers)
        noise += coloured
    mixture += noise[: calls.size]
    birds_per_s = soundscape["birds_per_s"]
    birds_hz = soundscape["birds_hz"]
    mixture += draw_birds(birds_per_s, birds_hz, calls.size, rate_hz, random)
    highest = np.abs(mixture).max()
    peak = max(highest, 1e-9)
    scale = np.float32(soundscape["peak"] / peak)
    return mixture * scale


def record_call(
    call: Samples, soundscape: Soundscape, rate_hz: int, random: Random
) -> Samples:
    """Return a call as recorded: absorbed, coloured, and longer by its reverberation."""
    tail_size = int(soundscape["reverberation_s"] * rate_hz)
    padded = np.pad(call, (0, tail_size))
    size, frequency_hz = frequency_grid(padded.size, rate_hz)
    # Air, leaves and soil absorb more at high frequencies.
    distance_m = soundscape["distance_m"]
    distance = distance_m / 100  # in units of 100 m
    frequency_khz = frequency_hz / 1000
    exponent: Samples = -distance * frequency_khz * 0.35
    gain = microphone_gain(frequency_hz, soundscape)
    gain = gain * 10**exponent
    # An impulse and its decaying tail of noise, which is stronger when distant.
    nepers = np.linspace(0, -6.9, tail_size, dtype=np.float32)  # 60 dB
    decay = np.exp(nepers)
    energy = (decay**2).sum()
    level = np.sqrt(distance) / np.sqrt(energy)
    tail = random.standard_normal(tail_size, np.float32)
    tail *= decay
    tail *= np.float32(level)
    tail[0] += 1
    total_gain = gain * fft.rfft(tail, size)
    return apply_gain(padded, total_gain, size)


def microphone_gain(frequency_hz: Samples, soundscape: Soundscape) -> Samples:
    """Return a gain that falls by 12 dB per octave below the low cut, with a colour above it."""
    square = (frequency_hz / soundscape["low_cut_hz"]) ** 2
    colour = (1 + frequency_hz / 300) ** soundscape["colour"]
    damping = np.sqrt(1 + square**2)
    gain: Samples = colour * square / damping
    return gain


def _noise_gains(
    soundscape: Soundscape, frequency_hz: Samples, rate_hz: int
) -> dict[str, Samples]:
    """Return the gain of each kind of noise at each frequency, as the microphone records it."""
    microphone = microphone_gain(frequency_hz, soundscape)
    insects_hz = min(soundscape["insects_hz"], 0.4 * rate_hz)
    detuning = frequency_hz / insects_hz - 1
    hiss = frequency_hz / (frequency_hz + 1500)
    relative = frequency_hz / soundscape["wind_hz"]
    wind_fall = 1 + relative**1.5
    return {
        "floor": 1 / np.sqrt(1 + frequency_hz / 1000),
        "wind": microphone / wind_fall,
        "insects": np.exp(-(detuning**2) / 0.005),
        "rain": microphone * np.sqrt(hiss),
    }


def draw_birds(
    birds_per_s: float, birds_hz: float, size: int, rate_hz: int, random: Random
) -> Samples:
    """Draw `size` samples of bird song: phrases of some equal whistles, around `birds_hz`."""
    samples = np.zeros(size, np.float32)
    phrases = birds_per_s * size / rate_hz / 4  # of four whistles, on average
    for _ in range(random.poisson(phrases)):
        first = int(random.uniform(0, size))  # sample of the next note
        notes = random.integers(2, 7)
        length_s = random.uniform(0.06, 0.2)
        length = int(length_s * rate_hz)
        time = np.linspace(0, 1, length)
        start_hz = birds_hz * random.uniform(0.8, 1.2)
        start_hz = min(start_hz, 0.35 * rate_hz)
        sweep = random.uniform(-0.25, 0.25)
        pitch_hz = start_hz * (1 + sweep * time)
        phase = 2 * np.pi * np.cumsum(pitch_hz) / rate_hz
        envelope = np.sin(np.pi * time)
        sine = np.sin(phase) * envelope
        whistle = sine.astype(np.float32)
        level_db = random.uniform(-20, 0)
        level = 10 ** (level_db / 20) * 0.3
        whistle *= level
        for _ in range(notes):
            note = samples[first : first + whistle.size]
            note += whistle[: note.size]  # the last one may be cut
            first += 2 * whistle.size
    return samples


@dataclass(frozen=True, slots=True)
class Engine:
    """A vehicle or aircraft, nearest at `peak_s`; its pitch falls by `drift` on either side."""

    peak_s: float
    length_s: float
    pitch_hz: float
    drift: float
    level: float


@dataclass(frozen=True, slots=True)
class Conditions:
    """At each second of a recording: the levels of noise by its kind, and how many birds sing."""

    levels: Mapping[str, Samples]
    birds_per_s: Samples
    engines: tuple[Engine, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """One recording: its name without suffix, and its calls in the order of their starts.

    Calls have `start_s`, `end_s` and `label`, at a site also `number`, `snr_db`, `low_freq_hz` and
    `high_freq_hz`. Of a site, `start` is when a recording began; `part` is "recordings" or
    "examples", both with numbers from 0.
    """

    number: int
    name: str
    duration_s: float
    calls: Spans
    channels: int = 1
    part: str = "recordings"
    start: datetime = datetime(2026, 3, 2)  # a Monday


def count_blocks(recording: RecordingPlan) -> int:
    """Return how many blocks a recording has; the last may be longer than what is left."""
    return ceil(recording.duration_s / BLOCK_S)


def draw_conditions(seed: int, recording: RecordingPlan) -> Conditions:
    """Draw levels of noise and birds for each second, and the engines that pass."""
    # Also at the end of the last second: in between, levels are interpolated.
    count = count_blocks(recording) * BLOCK_S + FADE_S + 1
    second = np.arange(count, dtype=np.float64)  # since the recording began
    day = recording.start.replace(hour=0, minute=0, second=0, microsecond=0)
    since_midnight = recording.start - day
    hour = (since_midnight.total_seconds() + second) / 3600 % 24
    from_dawn = (hour - 6.5) / 1.5
    from_dusk = hour - 18
    at_dawn = np.exp(-(from_dawn**2))
    at_dusk = np.exp(-(from_dusk**2))
    birds_per_s = 0.02 + 0.8 * at_dawn + 0.3 * at_dusk
    random = stream(seed, f"{recording.part} weather", recording.number)
    levels = _draw_levels(hour, random)
    levels["rain"] = np.zeros(count, np.float32)
    engines: list[Engine] = []
    # Recordings of one day share its showers and engines. A shower may have begun the day before.
    end = recording.start + timedelta(seconds=recording.duration_s)
    day_before = recording.start.toordinal() - 1
    for day_number in range(day_before, end.toordinal() + 1):
        since_start = datetime.fromordinal(day_number) - recording.start
        midnight_s = since_start.total_seconds()  # in the recording; negative before it
        shower_random = stream(seed, "showers", day_number)
        for _ in range(shower_random.poisson(SHOWERS_PER_DAY)):
            shower = _draw_shower(second - midnight_s, shower_random)
            levels["rain"] = np.maximum(levels["rain"], shower)
        engine_random = stream(seed, "engines", day_number)
        for _ in range(engine_random.poisson(ENGINES_PER_DAY)):
            engine = _draw_engine(midnight_s, engine_random)
            reach_s = ENGINE_REACH * engine.length_s
            if -reach_s < engine.peak_s < recording.duration_s + reach_s:
                engines.append(engine)
    return Conditions(levels, birds_per_s, tuple(engines))


def _draw_levels(hour: FloatArray, random: Random) -> dict[str, Samples]:
    """Draw the level of each kind of noise but rain, at seconds with these hours of the day."""
    count = hour.size
    angle_from_eight = np.pi * (hour - 8) / 12
    afternoon = np.sin(angle_from_eight).clip(0)
    weather_db = draw_slow_noise(
        count, rate_hz=1, points_hz=1 / 1200, random=random, scale=3.0
    )
    gusts_db = 2.5 * random.standard_normal(count)
    wind_db = WIND_DB + 8 * afternoon + weather_db + gusts_db
    angle_from_midnight = np.pi * hour / 12
    night = np.cos(angle_from_midnight).clip(0)
    swell_db = draw_slow_noise(
        count, rate_hz=1, points_hz=1 / 10, random=random, scale=1.5
    )
    insects_db = INSECTS_DB + 12 * night + swell_db
    floor_db = np.full(count, FLOOR_DB)
    levels_db = {"floor": floor_db, "wind": wind_db, "insects": insects_db}
    levels = {}
    for name, level_db in levels_db.items():
        level = 10 ** (level_db / 20)
        levels[name] = level.astype(np.float32)
    return levels


def _draw_shower(of_day_s: FloatArray, random: Random) -> Samples:
    """Draw a shower of one day; return its level at each time `of_day_s`, since midnight."""
    start_s = random.uniform(0, DAY_S)
    end_s = start_s + random.uniform(*SHOWER_S)
    shower_db = random.uniform(*SHOWER_DB)
    inside_s = np.minimum(of_day_s - start_s, end_s - of_day_s)
    ramp = (inside_s / SHOWER_RAMP_S).clip(0, 1)
    level = 10 ** (shower_db / 20) * ramp
    return level.astype(np.float32)


def _draw_engine(midnight_s: float, random: Random) -> Engine:
    """Draw an engine that passes on a day, which begins at the second `midnight_s` of a recording.

    `peak_s` is a second of the recording too.
    """
    return Engine(
        peak_s=midnight_s + 3600 * random.uniform(*ENGINE_HOURS),
        length_s=random.uniform(*ENGINE_S),
        pitch_hz=random.uniform(*ENGINE_HZ),
        drift=random.uniform(0.01, 0.05),
        level=10 ** (random.uniform(*ENGINE_DB) / 20),
    )


@dataclass(frozen=True, slots=True)
class SyntheticSite:
    """What all recordings of a site share: microphone, reverberation, callers, spectra of noise."""

    seed: int
    rate_hz: int
    soundscape: Soundscape
    callers: tuple[Caller, ...]
    spectra: Mapping[str, Samples]


def draw_site(seed: int, rate_hz: int) -> SyntheticSite:
    """Draw a site; the callers and the microphone depend on the seed only."""
    random = stream(seed, "site")
    soundscape = draw_soundscape(random)
    callers = tuple(draw_caller(random) for _ in range(CALLERS))
    # Scale the gain of each kind of noise so that white noise through it has unit power: a bin of
    # complex noise has a mean square of 2, and stands for a positive and a negative frequency.
    size = (BLOCK_S + FADE_S) * rate_hz
    frequency_hz = fft.rfftfreq(size, 1 / rate_hz)
    frequency_hz = frequency_hz.astype(np.float32)
    gains = _noise_gains(soundscape, frequency_hz, rate_hz)
    spectra = {}
    for name, gain in gains.items():
        energy = 4 * np.sum(gain**2, dtype=np.float64)
        spectrum = gain * size / np.sqrt(energy)
        spectra[name] = spectrum.astype(np.float32)
    return SyntheticSite(seed, rate_hz, soundscape, callers, spectra)


def make_background(
    site: SyntheticSite, recording: RecordingPlan, conditions: Conditions, block: int
) -> Samples:
    """Make noise, rain, birds and engines of a block, of BLOCK_S + FADE_S seconds."""
    purpose = f"{recording.part} noise"
    random = stream(site.seed, purpose, recording.number, block)
    rate_hz = site.rate_hz
    start_s = block * BLOCK_S
    end_s = start_s + BLOCK_S
    size = (BLOCK_S + FADE_S) * rate_hz
    # Levels at whole seconds, also at the end of the last one.
    seconds = slice(start_s, end_s + FADE_S + 1)
    levels = {name: level[seconds] for name, level in conditions.levels.items()}
    samples = _make_noise(site, levels, size, random)
    rain = levels["rain"]
    if rain.any():
        _add_drops(samples, rain, rate_hz, random)
    birds_hz = random.uniform(0.7, 1.4) * site.soundscape["birds_hz"]
    birds_per_s = conditions.birds_per_s[start_s]
    birds = draw_birds(birds_per_s, birds_hz, size, rate_hz, random)
    samples += BIRD_LEVEL * birds
    # The power of two added blocks stays the same.
    fade = FADE_S * rate_hz
    angle = np.linspace(0, np.pi / 2, fade, dtype=np.float32)
    if block > 0:
        samples[:fade] *= np.sin(angle)
    samples[size - fade :] *= np.cos(angle)

    for engine in conditions.engines:
        reach_s = ENGINE_REACH * engine.length_s
        first_s = start_s - reach_s
        last_s = end_s + reach_s
        if first_s < engine.peak_s < last_s:
            passing = _make_engine(engine, start_s, rate_hz)
            passing = passing.astype(np.float32)
            samples[: passing.size] += passing
    return samples


def _make_noise(
    site: SyntheticSite, levels: Mapping[str, Samples], size: int, random: Random
) -> Samples:
    """Make noise of each kind, from the levels at whole seconds; in between they change evenly."""
    samples = np.zeros(size, np.float32)
    white = random.standard_normal(size + 2, np.float32)
    spectrum = white.view(np.complex64)
    ramp = np.arange(site.rate_hz, dtype=np.float32)
    ramp /= np.float32(site.rate_hz)
    for name, level in levels.items():
        if level.any():
            noise = fft.irfft(spectrum * site.spectra[name], size)
            rises = np.diff(level)
            slopes = np.outer(rises, ramp)  # (seconds, samples of a second)
            starts = level[:-1, None]
            sample_levels = starts + slopes
            noise *= sample_levels.ravel()
            samples += noise
    return samples


def _add_drops(samples: Samples, rain: Samples, rate_hz: int, random: Random) -> None:
    """Add clicks of drops near the microphone; `rain` is the level of rain at each second."""
    length = max(4, round(DROP_S * rate_hz))
    mean_count = DROPS_PER_S * samples.size / rate_hz
    count = random.poisson(mean_count)
    last_first = samples.size - length
    firsts = random.integers(0, last_first, count)
    deviation = 0.7 * random.standard_normal(count)
    variation = np.exp(deviation)
    seconds = firsts // rate_hz
    heaviness = rain[seconds]
    loudness = 6 * variation * heaviness
    nepers = np.linspace(0, -5, length)
    decay = np.exp(nepers)
    clicks = random.standard_normal((count, length))
    clicks *= decay
    clicks *= loudness[:, None]
    for first, click in zip(firsts.tolist(), clicks, strict=True):
        samples[first : first + length] += click


def _make_engine(engine: Engine, start_s: float, rate_hz: int) -> Samples:
    """Return the sound of an engine in the block that starts at `start_s` of the recording."""
    samples_of_block = np.arange(BLOCK_S * rate_hz)
    time_s = samples_of_block / rate_hz
    time_s += start_s - engine.peak_s  # since the engine was nearest
    time = time_s / engine.length_s
    # The pitch falls like tanh as the engine passes. Its integral is the logarithm of cosh, here in
    # a form that does not overflow.
    distance = np.abs(time)
    decaying = np.exp(-2 * distance)
    log_cosh = distance + np.log1p(decaying) - np.log(2)
    fall_s = engine.drift * engine.length_s * log_cosh
    cycles = engine.pitch_hz * (time_s - fall_s)
    highest_hz = (1 + engine.drift) * engine.pitch_hz
    wave = read_wave(cycles, ENGINE_TILT, highest_hz, rate_hz)
    # The level is that of whole cycles, whatever part of them is in the block.
    one_cycle = np.linspace(0, 1, 4096)
    period = read_wave(one_cycle, ENGINE_TILT, highest_hz, rate_hz)
    power = np.mean(period**2)
    scale = engine.level / np.sqrt(power)
    envelope = np.exp(-(time**2) / 2)
    passing: Samples = scale * envelope * wave
    return passing
