"""What a microphone records: calls with distance and reverberation, and the noise around them.

Of a corpus: a soundscape belongs to the recording, not to the call: the distance of the callers
(level, loss of high frequencies, share of reverberation), wind and its gusts, insects, birds, and
the microphone with its low cut and its own noise.

Of a site: wind in gusts, insects, the noise of the recorder, rain with drops, birds, and engines
that pass. Wind, insects and birds follow the hour of the day; showers and engines belong to the
day, whatever is recorded. Levels are relative to full scale. Blocks of noise fade into each other,
and each can be made alone: memory is flat, and any number of threads makes the same samples.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

import numpy as np
from scipy import fft

from callshot.corpus.synthetic.call_synthesis import (
    Caller,
    Random,
    Samples,
    Spectrum,
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


@dataclass(frozen=True, slots=True)
class Soundscape:
    """What all calls of a recording share. Levels are relative to a recorded call of 0 dB."""

    distance_m: float
    reverberation_s: float
    wind_db: float
    wind_hz: float
    gusts: float
    floor_db: float
    insects_db: float
    insects_hz: float
    birds_per_s: float
    birds_hz: float
    low_cut_hz: float
    colour: float
    peak: float


def draw_soundscape(random: Random) -> Soundscape:
    """Draw a soundscape; distant callers are closer to the level of the noise."""
    distance_m = 10 * 10 ** random.uniform(0, 1)
    noise_db = -17 + 8 * np.log10(distance_m / 10)
    values = {name: random.uniform(*limits) for name, limits in RANGES.items()}
    for name in NOISES_DB:
        values[name] += noise_db
    return Soundscape(
        distance_m=distance_m,
        **values,
        colour=0.15 * random.standard_normal(),
        peak=random.uniform(0.3, 0.9),
    )


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
    tail_size = int(soundscape.reverberation_s * rate_hz)
    size, frequency_hz = frequency_grid(calls.size + tail_size, rate_hz)
    gain = _draw_path_gain(soundscape, frequency_hz, size, tail_size, random)
    mixture = apply_gain(calls, gain, size)
    noise = _draw_noise(soundscape, frequency_hz, size, rate_hz, random)
    mixture += noise[: calls.size]
    birds = (soundscape.birds_per_s, soundscape.birds_hz)
    mixture += draw_birds(*birds, calls.size, rate_hz, random)
    peak = max(np.abs(mixture).max(), 1e-9)
    return mixture * np.float32(soundscape.peak / peak)


def record_call(
    call: Samples, soundscape: Soundscape, rate_hz: int, random: Random
) -> Samples:
    """Return a call as the microphone records it, without noise but with its reverberation.

    The result is longer than the call by the time of the reverberation.
    """
    tail_size = int(soundscape.reverberation_s * rate_hz)
    padded = np.pad(call, (0, tail_size))
    size, frequency_hz = frequency_grid(padded.size, rate_hz)
    gain = _draw_path_gain(soundscape, frequency_hz, size, tail_size, random)
    return apply_gain(padded, gain, size)


def _draw_path_gain(
    soundscape: Soundscape,
    frequency_hz: Samples,
    size: int,
    tail_size: int,
    random: Random,
) -> Spectrum:
    """Draw the gain from a caller to the recording: air, reverberation, microphone."""
    microphone = microphone_gain(frequency_hz, soundscape)
    absorption = _absorption_gain(frequency_hz, soundscape.distance_m)
    tail = _draw_reverberation(soundscape.distance_m, tail_size, random)
    gain: Spectrum = microphone * absorption * fft.rfft(tail, size)
    return gain


def microphone_gain(frequency_hz: Samples, soundscape: Soundscape) -> Samples:
    """Return a gain that falls by 12 dB per octave below the low cut, with a colour above it."""
    square = (frequency_hz / soundscape.low_cut_hz) ** 2
    colour = (1 + frequency_hz / 300) ** soundscape.colour
    gain: Samples = colour * square / np.sqrt(1 + square**2)
    return gain


def _absorption_gain(frequency_hz: Samples, distance_m: float) -> Samples:
    """Return the gain of air, leaves and soil, which absorb more at high frequencies."""
    exponent: Samples = -(distance_m / 100) * (frequency_hz / 1000) * 0.35
    return 10**exponent


def _draw_reverberation(distance_m: float, size: int, random: Random) -> Samples:
    """Return an impulse and its decaying tail of noise, which is stronger when distant."""
    decay = np.exp(np.linspace(0, -6.9, size, dtype=np.float32))  # by 60 dB
    level = np.sqrt(distance_m / 100) / np.sqrt((decay**2).sum())
    tail = random.standard_normal(size, np.float32) * decay
    tail *= np.float32(level)
    tail[0] += 1
    return tail


def _draw_noise(
    soundscape: Soundscape,
    frequency_hz: Samples,
    size: int,
    rate_hz: int,
    random: Random,
) -> Samples:
    """Draw wind in gusts, the steady noise of the microphone, and insects that swell and fade."""
    white = random.standard_normal(2 * frequency_hz.size, np.float32)
    spectrum = white.view(np.complex64)
    gains = _noise_gains(soundscape, frequency_hz, rate_hz)
    gusts = _draw_swell(size, rate_hz, 1.0, soundscape.gusts, random)
    noise = _shape_noise(spectrum, gains["wind"], soundscape.wind_db, size) * gusts
    noise += _shape_noise(spectrum, gains["floor"], soundscape.floor_db, size)
    swell = _draw_swell(size, rate_hz, 6.0, 0.5, random)
    noise += (
        _shape_noise(spectrum, gains["insects"], soundscape.insects_db, size) * swell
    )
    return noise


def _noise_gains(
    soundscape: Soundscape, frequency_hz: Samples, rate_hz: int
) -> dict[str, Samples]:
    """Return the shape of each kind of noise at some frequencies."""
    microphone = microphone_gain(frequency_hz, soundscape)
    insects_hz = min(soundscape.insects_hz, 0.4 * rate_hz)
    detuning = frequency_hz / insects_hz - 1
    return {
        "floor": 1 / np.sqrt(1 + frequency_hz / 1000),
        "wind": microphone / (1 + (frequency_hz / soundscape.wind_hz) ** 1.5),
        "insects": np.exp(-(detuning**2) / 0.005),
    }


def _draw_swell(
    size: int, rate_hz: int, points_hz: float, depth: float, random: Random
) -> Samples:
    """Draw a gain that changes slowly; the deviation of its logarithm is `depth`."""
    noise = draw_slow_noise(
        size, rate_hz, points_hz, random, scale=depth, dtype=np.float32
    )
    gain: Samples = np.exp(noise)
    return gain


def _shape_noise(white: Spectrum, gain: Samples, level_db: float, size: int) -> Samples:
    """Turn a white spectrum into noise of a shape and a level."""
    noise: Samples = fft.irfft(white * gain, size)
    level = np.sqrt(np.mean(noise**2))
    return noise * np.float32(10 ** (level_db / 20) / level)


def draw_birds(
    birds_per_s: float, birds_hz: float, size: int, rate_hz: int, random: Random
) -> Samples:
    """Draw phrases of a few short whistles."""
    samples = np.zeros(size, np.float32)
    phrases = birds_per_s * size / rate_hz / 4
    for _ in range(random.poisson(phrases)):
        first = int(random.uniform(0, size))
        notes = random.integers(2, 7)
        whistle = _draw_whistle(birds_hz, rate_hz, random)
        level_db = random.uniform(-20, 0)
        whistle *= 10 ** (level_db / 20) * 0.3
        for _ in range(notes):
            note = samples[first : first + whistle.size]
            note += whistle[: note.size]
            first += 2 * whistle.size
    return samples


def _draw_whistle(birds_hz: float, rate_hz: int, random: Random) -> Samples:
    size = int(random.uniform(0.06, 0.2) * rate_hz)
    time = np.linspace(0, 1, size)
    start_hz = min(birds_hz * random.uniform(0.8, 1.2), 0.35 * rate_hz)
    sweep = random.uniform(-0.25, 0.25)
    pitch_hz = start_hz * (1 + sweep * time)
    phase = 2 * np.pi * np.cumsum(pitch_hz) / rate_hz
    whistle = np.sin(phase) * np.sin(np.pi * time)
    return whistle.astype(np.float32)


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

    def is_present(self, start_s: float, end_s: float) -> bool:
        """Return whether it is in a span of the recording."""
        reach_s = ENGINE_REACH * self.length_s
        return self.peak_s - reach_s < end_s and self.peak_s + reach_s > start_s


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
    """Draw the weather of a recording, and take what its days have."""
    size = count_blocks(recording) * BLOCK_S + FADE_S + 1
    random = stream(seed, f"{recording.part} weather", recording.number)
    second = np.arange(size, dtype=np.float64)
    midnight = recording.start.replace(hour=0, minute=0, second=0, microsecond=0)
    first_s = (recording.start - midnight).total_seconds()
    hour = (first_s + second) / 3600 % 24
    levels = {
        "floor": _to_amplitude(np.full(size, FLOOR_DB)),
        "wind": _to_amplitude(_draw_wind(hour, random)),
        "insects": _to_amplitude(_draw_insects(hour, random)),
        "rain": _draw_rain(seed, recording, second),
    }
    engines = tuple(_draw_engines(seed, recording))
    return Conditions(levels, _count_birds(hour), engines)


def _to_amplitude(level_db: Samples) -> Samples:
    amplitude: Samples = 10 ** (level_db / 20)
    return amplitude.astype(np.float32)


def _draw_wind(hour: Samples, random: Random) -> Samples:
    """Draw the level of wind in dB: most in the afternoon, from hour to hour, and in gusts."""
    afternoon = np.sin(np.pi * (hour - 8) / 12).clip(0)
    weather_db = draw_slow_noise(hour.size, 1, 1 / 1200, random, scale=3.0)
    gusts_db = 2.5 * random.standard_normal(hour.size)
    level_db: Samples = WIND_DB + 8 * afternoon + weather_db + gusts_db
    return level_db


def _draw_insects(hour: Samples, random: Random) -> Samples:
    """Draw the level of insects in dB: most at night."""
    night = np.cos(np.pi * hour / 12).clip(0)
    swell_db = draw_slow_noise(hour.size, 1, 1 / 10, random, scale=1.5)
    level_db: Samples = INSECTS_DB + 12 * night + swell_db
    return level_db


def _count_birds(hour: Samples) -> Samples:
    """Return how many birds sing in a second: most at dawn, some at dusk."""
    dawn = ((hour - 6.5) / 1.5) ** 2
    dusk = (hour - 18) ** 2
    count: Samples = 0.02 + 0.8 * np.exp(-dawn) + 0.3 * np.exp(-dusk)
    return count


def _list_days(recording: RecordingPlan) -> Iterator[tuple[int, float]]:
    """Yield the days of a recording and the one before: their numbers, when they begin in it."""
    end = recording.start + timedelta(seconds=recording.duration_s)
    for day in range(recording.start.toordinal() - 1, end.toordinal() + 1):
        midnight = datetime.fromordinal(day)
        yield day, (midnight - recording.start).total_seconds()


def _draw_rain(seed: int, recording: RecordingPlan, second: Samples) -> Samples:
    """Return the level of the showers at each second."""
    rain = np.zeros(second.size, np.float32)
    for day, midnight_s in _list_days(recording):
        random = stream(seed, "showers", day)
        for _ in range(random.poisson(SHOWERS_PER_DAY)):
            shower = _draw_shower(second - midnight_s, random)
            rain = np.maximum(rain, shower)
    return rain


def _draw_shower(second: Samples, random: Random) -> Samples:
    """Draw a shower: its level at these seconds of the day."""
    start_s = random.uniform(0, DAY_S)
    end_s = start_s + random.uniform(*SHOWER_S)
    level = 10 ** (random.uniform(*SHOWER_DB) / 20)
    inside_s = np.minimum(second - start_s, end_s - second)
    shower: Samples = level * (inside_s / SHOWER_RAMP_S).clip(0, 1)
    return shower.astype(np.float32)


def _draw_engines(seed: int, recording: RecordingPlan) -> Iterator[Engine]:
    for day, midnight_s in _list_days(recording):
        random = stream(seed, "engines", day)
        for _ in range(random.poisson(ENGINES_PER_DAY)):
            engine = Engine(
                peak_s=midnight_s + 3600 * random.uniform(*ENGINE_HOURS),
                length_s=random.uniform(*ENGINE_S),
                pitch_hz=random.uniform(*ENGINE_HZ),
                drift=random.uniform(0.01, 0.05),
                level=10 ** (random.uniform(*ENGINE_DB) / 20),
            )
            if engine.is_present(0, recording.duration_s):
                yield engine


@dataclass(frozen=True, slots=True)
class SyntheticSite:
    """What all recordings of a site share: microphone, reverberation, callers, spectra of noise."""

    seed: int
    rate_hz: int
    soundscape: Soundscape
    callers: tuple[Caller, ...]
    spectra: Mapping[str, Samples]

    @property
    def block_size(self) -> int:
        """The samples of a block."""
        return BLOCK_S * self.rate_hz

    @property
    def fade_size(self) -> int:
        """The samples in which a block fades into the next one."""
        return FADE_S * self.rate_hz


def draw_site(seed: int, rate_hz: int) -> SyntheticSite:
    """Draw a site; the callers and the microphone depend on the seed only."""
    random = stream(seed, "site")
    soundscape = draw_soundscape(random)
    callers = tuple(draw_caller(random) for _ in range(CALLERS))
    size = (BLOCK_S + FADE_S) * rate_hz
    spectra = _make_spectra(soundscape, size, rate_hz)
    return SyntheticSite(seed, rate_hz, soundscape, callers, spectra)


def _make_spectra(
    soundscape: Soundscape, size: int, rate_hz: int
) -> dict[str, Samples]:
    """Return a gain for each kind of noise: white noise through it has unit power."""
    frequency_hz = fft.rfftfreq(size, 1 / rate_hz).astype(np.float32)
    hiss = frequency_hz / (frequency_hz + 1500)
    gains = _noise_gains(soundscape, frequency_hz, rate_hz)
    gains["rain"] = microphone_gain(frequency_hz, soundscape) * np.sqrt(hiss)
    spectra = {}
    for name, gain in gains.items():
        energy = 4 * np.sum(gain**2, dtype=np.float64)
        scaled: Samples = gain * size / np.sqrt(energy)
        spectra[name] = scaled.astype(np.float32)
    return spectra


def draw_distance(site: SyntheticSite, random: Random) -> Soundscape:
    """Return the soundscape of a site with the distance to a caller."""
    return replace(site.soundscape, distance_m=random.uniform(*DISTANCES_M))


def make_background(
    site: SyntheticSite, recording: RecordingPlan, conditions: Conditions, block: int
) -> Samples:
    """Make a block and its fade into the next one, to which it has to be added."""
    random = stream(site.seed, f"{recording.part} noise", recording.number, block)
    start_s = block * BLOCK_S
    end_s = start_s + BLOCK_S
    seconds = slice(start_s, end_s + FADE_S + 1)
    levels = {name: level[seconds] for name, level in conditions.levels.items()}
    samples = _draw_site_noise(site, levels, random)
    birds_hz = random.uniform(0.7, 1.4) * site.soundscape.birds_hz
    birds = (conditions.birds_per_s[start_s], birds_hz)
    samples += BIRD_LEVEL * draw_birds(*birds, samples.size, site.rate_hz, random)
    # The power of two added blocks stays the same.
    fade_size = site.fade_size
    angle = np.linspace(0, np.pi / 2, fade_size, dtype=np.float32)
    if block > 0:
        samples[:fade_size] *= np.sin(angle)
    samples[samples.size - fade_size :] *= np.cos(angle)
    for engine in conditions.engines:
        if engine.is_present(start_s, end_s):
            passing = _make_engine(engine, start_s, site.rate_hz)
            samples[: passing.size] += passing
    return samples


def _draw_site_noise(
    site: SyntheticSite, levels: Mapping[str, Samples], random: Random
) -> Samples:
    """Draw noise of all kinds at these levels, and drops where rain falls."""
    size = site.block_size + site.fade_size
    noise = np.zeros(size, np.float32)
    white = random.standard_normal(size + 2, np.float32)
    spectrum = white.view(np.complex64)
    # The level of every sample between those of whole seconds.
    ramp = np.arange(site.rate_hz, dtype=np.float32) / np.float32(site.rate_hz)
    for name, level in levels.items():
        if level.any():
            part = fft.irfft(spectrum * site.spectra[name], size)
            steps = level[:-1, None] + np.diff(level)[:, None] * ramp
            part *= steps.ravel()
            noise += part
    if levels["rain"].any():
        _add_drops(noise, levels["rain"], site.rate_hz, random)
    return noise


def _add_drops(noise: Samples, rain: Samples, rate_hz: int, random: Random) -> None:
    """Add clicks of drops that fall near the microphone, louder in heavy rain."""
    size = max(4, round(DROP_S * rate_hz))
    count = random.poisson(DROPS_PER_S * noise.size / rate_hz)
    first = random.integers(0, noise.size - size, count)
    variation = np.exp(0.7 * random.standard_normal(count))
    loudness = 6 * variation * rain[first // rate_hz]
    decay = np.exp(np.linspace(0, -5, size))
    clicks = random.standard_normal((count, size)) * decay
    clicks *= loudness[:, None]
    for position, click in zip(first.tolist(), clicks, strict=True):
        noise[position : position + size] += click


def _make_engine(engine: Engine, start_s: float, rate_hz: int) -> Samples:
    """Make the sound of an engine during a block; it goes on in the next without a step."""
    time_s = np.arange(BLOCK_S * rate_hz) / rate_hz
    time_s += start_s - engine.peak_s
    share = time_s / engine.length_s
    # The integral of a pitch that falls like tanh as the engine passes.
    fall_s = engine.drift * engine.length_s * _log_cosh(share)
    cycles = engine.pitch_hz * (time_s - fall_s)
    highest_hz = (1 + engine.drift) * engine.pitch_hz
    wave = read_wave(cycles, ENGINE_TILT, highest_hz, rate_hz)
    period = read_wave(np.linspace(0, 1, 4096), ENGINE_TILT, highest_hz, rate_hz)
    scale = engine.level / np.sqrt(np.mean(period**2))
    sound: Samples = scale * np.exp(-(share**2) / 2) * wave
    return sound.astype(np.float32)


def _log_cosh(values: Samples) -> Samples:
    """Return the logarithm of the hyperbolic cosine, also where that would overflow."""
    size = np.abs(values)
    result: Samples = size + np.log1p(np.exp(-2 * size)) - np.log(2)
    return result
