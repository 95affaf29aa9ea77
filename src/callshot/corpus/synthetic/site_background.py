"""The background of a site in blocks: a recording and the number of a block → its samples.

Wind in gusts, insects, the noise of the recorder, rain with drops, birds, and engines that pass.
Their levels follow the hour of the day; showers and engines belong to the day, whatever is
recorded. Blocks of noise fade into each other, and each can be made alone: memory is flat, and any
number of threads makes the same samples. Levels are relative to full scale.
"""

from collections.abc import Iterator
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
    draw_caller,
    draw_slow_noise,
    read_wave,
)
from callshot.corpus.synthetic.plan import stream
from callshot.corpus.synthetic.site_plan import SiteRecording
from callshot.corpus.synthetic.soundscape import (
    Soundscape,
    draw_birds,
    draw_soundscape,
    microphone_gain,
)

BLOCK_S = 31
FADE_S = 1  # of one block into the next; both together are a fast size of a Fourier transform
CALLERS = 8  # individuals at a site
DISTANCES_M = (15.0, 60.0)
FLOOR_DB = -64.0
WIND_DB = -52.0
INSECTS_DB = -66.0
BIRD_LEVEL = 0.03
SHOWERS_PER_DAY = 1.5
SHOWER_S = (600.0, 3600.0)
SHOWER_DB = (-54.0, -44.0)
SHOWER_RAMP_S = 120.0
DROPS_PER_S = 12.0
DROP_S = 0.004
ENGINES_PER_DAY = 24.0
ENGINE_HOURS = (5.0, 21.0)
ENGINE_DB = (-60.0, -44.0)
ENGINE_HZ = (25.0, 80.0)
ENGINE_S = (12.0, 45.0)
ENGINE_REACH = 4.0  # in units of its length; beyond that nobody hears it


@dataclass(frozen=True, slots=True)
class Site:
    """What all recordings of a site share: microphone, reverberation, callers, shapes of noise."""

    seed: int
    rate_hz: int
    soundscape: Soundscape
    callers: tuple[Caller, ...]
    wind: Samples
    floor: Samples
    insects: Samples
    rain: Samples

    @property
    def size(self) -> int:
        """The samples of a block and its fade."""
        return (BLOCK_S + FADE_S) * self.rate_hz


@dataclass(frozen=True, slots=True)
class Engine:
    """A vehicle or an aircraft that passes; it is nearest at `peak_s` of the recording."""

    peak_s: float
    length_s: float
    pitch_hz: float
    drift: float
    level: float

    def is_heard(self, start_s: float, end_s: float) -> bool:
        """Return whether it is heard in a span of the recording."""
        reach_s = ENGINE_REACH * self.length_s
        return self.peak_s - reach_s < end_s and self.peak_s + reach_s > start_s


@dataclass(frozen=True, slots=True)
class Conditions:
    """Levels at each second of a recording, and the engines that pass."""

    wind: Samples
    insects: Samples
    rain: Samples
    birds_per_s: Samples
    engines: tuple[Engine, ...]


def draw_site(seed: int, rate_hz: int) -> Site:
    """Draw a site; the callers and the microphone depend on the seed only."""
    random = stream(seed, "site")
    soundscape = draw_soundscape(random)
    callers = tuple(draw_caller(random) for _ in range(CALLERS))
    size = (BLOCK_S + FADE_S) * rate_hz
    frequency_hz = fft.rfftfreq(size, 1 / rate_hz).astype(np.float32)
    microphone = microphone_gain(frequency_hz, soundscape)
    insects_hz = min(soundscape.insects_hz, 0.4 * rate_hz)
    detuning = frequency_hz / insects_hz - 1
    wind = microphone / (1 + (frequency_hz / soundscape.wind_hz) ** 1.5)
    rain = microphone * np.sqrt(frequency_hz / (frequency_hz + 1500))
    return Site(
        seed=seed,
        rate_hz=rate_hz,
        soundscape=soundscape,
        callers=callers,
        wind=_unit_gain(wind, size),
        floor=_unit_gain(1 / np.sqrt(1 + frequency_hz / 1000), size),
        insects=_unit_gain(np.exp(-(detuning**2) / 0.005), size),
        rain=_unit_gain(rain, size),
    )


def _unit_gain(gain: Samples, size: int) -> Samples:
    """Scale a gain so that white noise through it has unit power."""
    power = 4 * np.sum(gain**2, dtype=np.float64) / size**2
    scaled: Samples = (gain / np.sqrt(power)).astype(np.float32)
    return scaled


def draw_place(site: Site, random: Random) -> Soundscape:
    """Return the site as heard from a place where a caller stands."""
    return replace(site.soundscape, distance_m=random.uniform(*DISTANCES_M))


def count_blocks(recording: SiteRecording) -> int:
    """Return how many blocks a recording has; the last may be longer than what is left."""
    return ceil(recording.duration_s / BLOCK_S)


def draw_conditions(site: Site, recording: SiteRecording) -> Conditions:
    """Draw the weather of a recording, and what its days have."""
    size = count_blocks(recording) * BLOCK_S + FADE_S + 1
    random = stream(site.seed, f"{recording.part} weather", recording.number)
    second = np.arange(size, dtype=np.float64)
    start = recording.start
    first_h = start.hour + start.minute / 60 + start.second / 3600
    hour = (first_h + second / 3600) % 24
    afternoon = np.sin(np.pi * (hour - 8) / 12).clip(0)
    night = np.cos(np.pi * hour / 12).clip(0)
    wind_db = WIND_DB + 8 * afternoon
    wind_db += 3 * draw_slow_noise(size, 1, 1 / 1200, random)
    wind_db += 2.5 * random.standard_normal(size)
    insects_db = INSECTS_DB + 12 * night
    insects_db += 1.5 * draw_slow_noise(size, 1, 1 / 10, random)
    dawn = np.exp(-(((hour - 6.5) / 1.5) ** 2))
    dusk = np.exp(-(((hour - 18) / 1.0) ** 2))
    return Conditions(
        wind=_to_amplitude(wind_db),
        insects=_to_amplitude(insects_db),
        rain=_draw_rain(site, recording, second),
        birds_per_s=0.02 + 0.8 * dawn + 0.3 * dusk,
        engines=tuple(_draw_engines(site, recording)),
    )


def _to_amplitude(level_db: Samples) -> Samples:
    amplitude: Samples = 10 ** (level_db / 20)
    return amplitude.astype(np.float32)


def _list_days(recording: SiteRecording) -> Iterator[tuple[int, float]]:
    """Yield the days that a recording may hear: their numbers, and when they begin in it."""
    end = recording.start + timedelta(seconds=recording.duration_s)
    day = recording.start.toordinal() - 1
    while day <= end.toordinal():
        midnight = datetime.fromordinal(day)
        yield day, (midnight - recording.start).total_seconds()
        day += 1


def _draw_rain(site: Site, recording: SiteRecording, second: Samples) -> Samples:
    """Return the level of the showers at each second."""
    rain = np.zeros(second.size, np.float32)
    for day, midnight_s in _list_days(recording):
        random = stream(site.seed, "showers", day)
        for _ in range(random.poisson(SHOWERS_PER_DAY)):
            start_s = midnight_s + random.uniform(0, 86400)
            end_s = start_s + random.uniform(*SHOWER_S)
            level = 10 ** (random.uniform(*SHOWER_DB) / 20)
            rise = ((second - start_s) / SHOWER_RAMP_S).clip(0, 1)
            fall = ((end_s - second) / SHOWER_RAMP_S).clip(0, 1)
            shower = level * np.minimum(rise, fall)
            rain = np.maximum(rain, shower.astype(np.float32))
    return rain


def _draw_engines(site: Site, recording: SiteRecording) -> Iterator[Engine]:
    for day, midnight_s in _list_days(recording):
        random = stream(site.seed, "engines", day)
        for _ in range(random.poisson(ENGINES_PER_DAY)):
            engine = Engine(
                peak_s=midnight_s + 3600 * random.uniform(*ENGINE_HOURS),
                length_s=random.uniform(*ENGINE_S),
                pitch_hz=random.uniform(*ENGINE_HZ),
                drift=random.uniform(0.01, 0.05),
                level=10 ** (random.uniform(*ENGINE_DB) / 20),
            )
            if engine.is_heard(0, recording.duration_s):
                yield engine


def make_background(
    site: Site, recording: SiteRecording, conditions: Conditions, block: int
) -> Samples:
    """Make a block and its fade into the next one, to which it has to be added."""
    random = stream(site.seed, f"{recording.part} noise", recording.number, block)
    seconds = slice(block * BLOCK_S, (block + 1) * BLOCK_S + FADE_S + 1)
    samples = _draw_noise(site, conditions, seconds, random)
    birds_hz = random.uniform(0.7, 1.4) * site.soundscape.birds_hz
    birds_per_s = float(conditions.birds_per_s[seconds].mean())
    birds = draw_birds(birds_per_s, birds_hz, samples.size, site.rate_hz, random)
    samples += BIRD_LEVEL * birds
    _fade(samples, FADE_S * site.rate_hz, is_first=block == 0)
    for engine in conditions.engines:
        if engine.is_heard(seconds.start, seconds.stop):
            passing = _make_engine(engine, seconds.start, site.rate_hz)
            samples[: passing.size] += passing
    return samples


def _draw_noise(
    site: Site, conditions: Conditions, seconds: slice, random: Random
) -> Samples:
    """Draw wind, insects, the noise of the recorder, and rain where it falls."""
    white = random.standard_normal(2 * site.floor.size, np.float32)
    spectrum = white.view(np.complex64)
    noise = np.float32(10 ** (FLOOR_DB / 20)) * _shape(spectrum, site.floor, site.size)
    for gain, levels in (
        (site.wind, conditions.wind),
        (site.insects, conditions.insects),
        (site.rain, conditions.rain),
    ):
        if levels[seconds].any():
            part = _shape(spectrum, gain, site.size)
            part *= _interpolate(levels[seconds], site.rate_hz)
            noise += part
    rain = conditions.rain[seconds]
    if rain.any():
        _add_drops(noise, rain, site.rate_hz, random)
    return noise


def _shape(white: Spectrum, gain: Samples, size: int) -> Samples:
    noise: Samples = fft.irfft(white * gain, size)
    return noise


def _interpolate(levels: Samples, rate_hz: int) -> Samples:
    """Return the level of every sample between those of whole seconds."""
    ramp = np.arange(rate_hz, dtype=np.float32) / np.float32(rate_hz)
    change = np.diff(levels)[:, None] * ramp
    samples: Samples = (levels[:-1, None] + change).ravel()
    return samples


def _add_drops(noise: Samples, rain: Samples, rate_hz: int, random: Random) -> None:
    """Add clicks of drops that fall near the microphone, louder in heavy rain."""
    size = max(4, round(DROP_S * rate_hz))
    count = random.poisson(DROPS_PER_S * (rain.size - 1))
    first = random.integers(0, noise.size - size, count)
    loudness = np.exp(0.7 * random.standard_normal(count)) * 6 * rain[first // rate_hz]
    decay = np.exp(np.linspace(0, -5, size))
    clicks = random.standard_normal((count, size)) * decay
    clicks *= loudness[:, None]
    np.add.at(noise, first[:, None] + np.arange(size), clicks.astype(np.float32))


def _fade(samples: Samples, size: int, *, is_first: bool) -> None:
    """Fade a block in and out, so that the power of two added blocks stays the same."""
    angle = np.linspace(0, np.pi / 2, size, dtype=np.float32)
    if not is_first:
        samples[:size] *= np.sin(angle)
    samples[samples.size - size :] *= np.cos(angle)


def _make_engine(engine: Engine, start_s: float, rate_hz: int) -> Samples:
    """Make the sound of an engine during a block; it goes on in the next without a step."""
    size = BLOCK_S * rate_hz
    time_s = np.arange(size) / rate_hz + (start_s - engine.peak_s)
    share = time_s / engine.length_s
    # The integral of a pitch that falls by `drift` as the engine passes: log(cosh).
    distance = np.abs(share) + np.log1p(np.exp(-2 * np.abs(share))) - np.log(2)
    cycles = engine.pitch_hz * (time_s - engine.drift * engine.length_s * distance)
    highest_hz = (1 + engine.drift) * engine.pitch_hz
    one_period = read_wave(np.linspace(0, 1, 4096), 1.0, highest_hz, rate_hz)
    scale = engine.level / np.sqrt(np.mean(one_period**2))
    wave = read_wave(cycles, 1.0, highest_hz, rate_hz)
    envelope = np.exp(-(share**2) / 2)
    sound: Samples = scale * envelope * wave
    return sound.astype(np.float32)
