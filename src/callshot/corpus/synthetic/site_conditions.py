"""The conditions at a site: a recording → levels of noise at each second, and engines that pass.

Wind, insects and birds follow the hour of the day. Showers and engines belong to the day, whatever
is recorded. Levels are relative to full scale.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

import numpy as np

from callshot.corpus.synthetic.call_synthesis import Random, Samples, draw_slow_noise
from callshot.corpus.synthetic.plan import stream
from callshot.corpus.synthetic.site_plan import SiteRecording

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


def count_blocks(recording: SiteRecording) -> int:
    """Return how many blocks a recording has; the last may be longer than what is left."""
    return ceil(recording.duration_s / BLOCK_S)


def draw_conditions(seed: int, recording: SiteRecording) -> Conditions:
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


def _list_days(recording: SiteRecording) -> Iterator[tuple[int, float]]:
    """Yield the days of a recording and the one before: their numbers, when they begin in it."""
    end = recording.start + timedelta(seconds=recording.duration_s)
    for day in range(recording.start.toordinal() - 1, end.toordinal() + 1):
        midnight = datetime.fromordinal(day)
        yield day, (midnight - recording.start).total_seconds()


def _draw_rain(seed: int, recording: SiteRecording, second: Samples) -> Samples:
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


def _draw_engines(seed: int, recording: SiteRecording) -> Iterator[Engine]:
    for day, midnight_s in _list_days(recording):
        random = stream(seed, "engines", day)
        for _ in range(random.poisson(ENGINES_PER_DAY)):
            engine = _draw_engine(midnight_s, random)
            if engine.is_present(0, recording.duration_s):
                yield engine


def _draw_engine(midnight_s: float, random: Random) -> Engine:
    return Engine(
        peak_s=midnight_s + 3600 * random.uniform(*ENGINE_HOURS),
        length_s=random.uniform(*ENGINE_S),
        pitch_hz=random.uniform(*ENGINE_HZ),
        drift=random.uniform(0.01, 0.05),
        level=10 ** (random.uniform(*ENGINE_DB) / 20),
    )
