"""What a microphone records: calls with distance and reverberation, and the noise around them.

Of a corpus: a soundscape belongs to the recording, not to the call: the distance of the callers
(level, loss of high frequencies, share of reverberation), wind and its gusts, insects, birds, and
the microphone with its low cut and its own noise.

Of a site: wind in gusts, insects, the noise of the recorder, rain with drops, birds, and engines
that pass. Wind, insects and birds follow the hour of the day; showers and engines belong to the
day, whatever is recorded. Levels are relative to full scale. Blocks of noise fade into each other,
and each can be made alone: memory is flat, and any number of threads makes the same samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

import numpy as np
from scipy import fft

from callshot.corpus.synthetic.call_synthesis import (
    Caller,
    Random,
    Samples,
    apply_gain,
    draw_caller,
    draw_slow_noise,
    frequency_grid,
    read_wave,
    stream,
)
from callshot.corpus.synthetic.plan import RecordingPlan

# Limits of values that are equally likely; levels are relative to that of all noise.
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
ENGINE_REACH = 4.0  # in units of its length; beyond that nobody notices it
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
    noise_db = -17 + 8 * np.log10(distance_m / 10)
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
    """Add distance, noise and birds to calls, and scale the result to the peak of the soundscape.

    >>> from numpy.random import default_rng
    >>> silence = np.zeros(16000, np.float32)
    >>> samples = mix_soundscape(silence, draw_soundscape(default_rng(1)), 16000, default_rng(2))
    >>> samples.shape, bool(np.abs(samples).max() < 0.9)
    ((16000,), True)
    """
    tail_size = int(soundscape["reverberation_s"] * rate_hz)
    size, frequency_hz = frequency_grid(calls.size + tail_size, rate_hz)
    mixture = record_call(calls, soundscape, rate_hz, random)[: calls.size]

    # Wind in gusts, the steady noise of the microphone, and insects that swell and fade.
    white = random.standard_normal(2 * frequency_hz.size, np.float32)
    spectrum = white.view(np.complex64)
    gains = _noise_gains(soundscape, frequency_hz, rate_hz)
    swells = {"wind": (1.0, soundscape["gusts"]), "floor": None, "insects": (6.0, 0.5)}
    noise = np.zeros(size, np.float32)
    for name, swell in swells.items():
        part = fft.irfft(spectrum * gains[name], size)
        level_db = soundscape[f"{name}_db"]
        level = 10 ** (level_db / 20)
        power = np.mean(part**2)
        part = part * np.float32(level / np.sqrt(power))
        if swell is not None:
            points_hz, depth = swell
            nepers = draw_slow_noise(
                size, rate_hz, points_hz, random, scale=depth, dtype=np.float32
            )
            part = part * np.exp(nepers)
        noise += part
    mixture += noise[: calls.size]
    mixture += draw_birds(
        soundscape["birds_per_s"], soundscape["birds_hz"], calls.size, rate_hz, random
    )
    peak = max(np.abs(mixture).max(), 1e-9)
    scale = np.float32(soundscape["peak"] / peak)
    return mixture * scale


def record_call(
    call: Samples, soundscape: Soundscape, rate_hz: int, random: Random
) -> Samples:
    """Return a call as the microphone records it, without noise but with its reverberation.

    The result is longer than the call by the time of the reverberation.
    """
    tail_size = int(soundscape["reverberation_s"] * rate_hz)
    padded = np.pad(call, (0, tail_size))
    size, frequency_hz = frequency_grid(padded.size, rate_hz)
    # Air, leaves and soil absorb more at high frequencies.
    distance_m = soundscape["distance_m"]
    far = distance_m / 100
    exponent: Samples = -far * (frequency_hz / 1000) * 0.35
    gain = microphone_gain(frequency_hz, soundscape)
    gain = gain * 10**exponent
    # An impulse and its decaying tail of noise, which is stronger when distant.
    nepers = np.linspace(0, -6.9, tail_size, dtype=np.float32)  # 60 dB
    decay = np.exp(nepers)
    energy = (decay**2).sum()
    level = np.sqrt(far) / np.sqrt(energy)
    tail = random.standard_normal(tail_size, np.float32)
    tail *= decay
    tail *= np.float32(level)
    tail[0] += 1
    return apply_gain(padded, gain * fft.rfft(tail, size), size)


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
    """Return the shape of each kind of noise at some frequencies."""
    microphone = microphone_gain(frequency_hz, soundscape)
    insects_hz = min(soundscape["insects_hz"], 0.4 * rate_hz)
    detuning = frequency_hz / insects_hz - 1
    hiss = frequency_hz / (frequency_hz + 1500)
    wind_fall = 1 + (frequency_hz / soundscape["wind_hz"]) ** 1.5
    return {
        "floor": 1 / np.sqrt(1 + frequency_hz / 1000),
        "wind": microphone / wind_fall,
        "insects": np.exp(-(detuning**2) / 0.005),
        "rain": microphone * np.sqrt(hiss),
    }


def draw_birds(
    birds_per_s: float, birds_hz: float, size: int, rate_hz: int, random: Random
) -> Samples:
    """Draw phrases of a few short whistles."""
    samples = np.zeros(size, np.float32)
    phrases = birds_per_s * size / rate_hz / 4
    for _ in range(random.poisson(phrases)):
        first = int(random.uniform(0, size))
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
        whistle = (np.sin(phase) * envelope).astype(np.float32)
        level_db = random.uniform(-20, 0)
        level = 10 ** (level_db / 20) * 0.3
        whistle *= level
        for _ in range(notes):
            note = samples[first : first + whistle.size]
            note += whistle[: note.size]
            first += 2 * whistle.size
    return samples


@dataclass(frozen=True, slots=True)
class Engine:
    """A vehicle or an aircraft that passes; it is nearest at `peak_s` of the recording.

    Its pitch falls by the share `drift` to either side of the mean.
    """

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


def count_blocks(recording: RecordingPlan) -> int:
    """Return how many blocks a recording has; the last may be longer than what is left."""
    return ceil(recording.duration_s / BLOCK_S)


def draw_conditions(seed: int, recording: RecordingPlan) -> Conditions:
    """Draw the weather of a recording, and take what its days have.

    There is most wind in the afternoon; it changes from hour to hour, and in gusts. Insects are
    loudest at night, and most birds sing at dawn, some at dusk.
    """
    size = count_blocks(recording) * BLOCK_S + FADE_S + 1
    random = stream(seed, f"{recording.part} weather", recording.number)
    second = np.arange(size, dtype=np.float64)
    midnight = recording.start.replace(hour=0, minute=0, second=0, microsecond=0)
    first_s = (recording.start - midnight).total_seconds()
    hour = (first_s + second) / 3600 % 24
    after_eight = np.pi * (hour - 8) / 12
    afternoon = np.sin(after_eight).clip(0)
    weather_db = draw_slow_noise(size, 1, 1 / 1200, random, scale=3.0)
    gusts_db = 2.5 * random.standard_normal(size)
    after_midnight = np.pi * hour / 12
    night = np.cos(after_midnight).clip(0)
    swell_db = draw_slow_noise(size, 1, 1 / 10, random, scale=1.5)
    levels_db = {
        "floor": np.full(size, FLOOR_DB),
        "wind": WIND_DB + 8 * afternoon + weather_db + gusts_db,
        "insects": INSECTS_DB + 12 * night + swell_db,
    }
    levels = {}
    for name, level_db in levels_db.items():
        level = 10 ** (level_db / 20)
        levels[name] = level.astype(np.float32)
    from_dawn = (hour - 6.5) / 1.5
    from_dusk = hour - 18
    at_dawn = np.exp(-(from_dawn**2))
    at_dusk = np.exp(-(from_dusk**2))
    birds_per_s = 0.02 + 0.8 * at_dawn + 0.3 * at_dusk

    # Showers and engines belong to the day, or to the one before.
    levels["rain"] = np.zeros(size, np.float32)
    engines = []
    end = recording.start + timedelta(seconds=recording.duration_s)
    day_before = recording.start.toordinal() - 1
    for day in range(day_before, end.toordinal() + 1):
        after_start = datetime.fromordinal(day) - recording.start
        begin_s = after_start.total_seconds()
        of_day_s = second - begin_s
        random = stream(seed, "showers", day)
        for _ in range(random.poisson(SHOWERS_PER_DAY)):
            start_s = random.uniform(0, DAY_S)
            end_s = start_s + random.uniform(*SHOWER_S)
            shower_db = random.uniform(*SHOWER_DB)
            inside_s = np.minimum(of_day_s - start_s, end_s - of_day_s)
            ramp = (inside_s / SHOWER_RAMP_S).clip(0, 1)
            shower = 10 ** (shower_db / 20) * ramp
            shower = shower.astype(np.float32)
            levels["rain"] = np.maximum(levels["rain"], shower)
        random = stream(seed, "engines", day)
        for _ in range(random.poisson(ENGINES_PER_DAY)):
            engine = Engine(
                peak_s=begin_s + 3600 * random.uniform(*ENGINE_HOURS),
                length_s=random.uniform(*ENGINE_S),
                pitch_hz=random.uniform(*ENGINE_HZ),
                drift=random.uniform(0.01, 0.05),
                level=10 ** (random.uniform(*ENGINE_DB) / 20),
            )
            reach_s = ENGINE_REACH * engine.length_s
            if -reach_s < engine.peak_s < recording.duration_s + reach_s:
                engines.append(engine)
    return Conditions(levels, birds_per_s, tuple(engines))


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
    # White noise through the gain of a kind of noise has unit power.
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
    """Make a block and its fade into the next one, to which it has to be added."""
    purpose = f"{recording.part} noise"
    random = stream(site.seed, purpose, recording.number, block)
    rate_hz = site.rate_hz
    start_s = block * BLOCK_S
    end_s = start_s + BLOCK_S
    size = (BLOCK_S + FADE_S) * rate_hz
    samples = np.zeros(size, np.float32)
    white = random.standard_normal(size + 2, np.float32)
    spectrum = white.view(np.complex64)
    # The level of every sample between those of whole seconds.
    ramp = np.arange(rate_hz, dtype=np.float32)
    ramp /= np.float32(rate_hz)
    seconds = slice(start_s, end_s + FADE_S + 1)
    for name, level_of_recording in conditions.levels.items():
        level = level_of_recording[seconds]
        if level.any():
            coloured = spectrum * site.spectra[name]
            part = fft.irfft(coloured, size)
            slopes = np.outer(np.diff(level), ramp)
            steps = level[:-1, None] + slopes
            part *= steps.ravel()
            samples += part

    rain = conditions.levels["rain"][seconds]
    if rain.any():
        # Clicks of drops that fall near the microphone, louder in heavy rain.
        length = max(4, round(DROP_S * rate_hz))
        drops = DROPS_PER_S * size / rate_hz
        count = random.poisson(drops)
        first = random.integers(0, size - length, count)
        deviation = 0.7 * random.standard_normal(count)
        variation = np.exp(deviation)
        heaviness = rain[first // rate_hz]
        loudness = 6 * variation * heaviness
        decay = np.exp(np.linspace(0, -5, length))
        clicks = random.standard_normal((count, length))
        clicks *= decay
        clicks *= loudness[:, None]
        for position, click in zip(first.tolist(), clicks, strict=True):
            samples[position : position + length] += click

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
        if start_s - reach_s < engine.peak_s < end_s + reach_s:
            samples_of_block = np.arange(BLOCK_S * rate_hz)
            time_s = samples_of_block / rate_hz
            time_s += start_s - engine.peak_s
            share = time_s / engine.length_s
            # The integral of a pitch that falls like tanh as the engine passes: the logarithm of
            # the hyperbolic cosine, also where that would overflow.
            far = np.abs(share)
            rest = np.log1p(np.exp(-2 * far))
            log_cosh = far + rest - np.log(2)
            fall_s = engine.drift * engine.length_s * log_cosh
            cycles = engine.pitch_hz * (time_s - fall_s)
            highest_hz = (1 + engine.drift) * engine.pitch_hz
            wave = read_wave(cycles, ENGINE_TILT, highest_hz, rate_hz)
            one_cycle = np.linspace(0, 1, 4096)
            period = read_wave(one_cycle, ENGINE_TILT, highest_hz, rate_hz)
            power = np.mean(period**2)
            scale = engine.level / np.sqrt(power)
            envelope = np.exp(-(share**2) / 2)
            passing = scale * envelope * wave
            samples[: passing.size] += passing.astype(np.float32)
    return samples
