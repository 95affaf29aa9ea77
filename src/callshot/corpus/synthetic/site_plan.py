"""The plan of a recorder at a site: options → recordings with clock times, and the calls in them.

The number of calls changes with the hour of the day; at noon there are none. Calls lie within an
hour of the clock and do not overlap, unless that is asked for.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

import numpy as np

from callshot.corpus.synthetic.call_synthesis import (
    CALL_TYPES,
    Random,
    draw_band_hz,
)
from callshot.corpus.synthetic.plan import stream
from callshot.errors import OptionError, check_range
from callshot.records import FloatArray

# The most different types come first.
TYPES = (
    "greeting rumble",
    "trumpet blast",
    "conflict roar",
    "begging rumble",
    "pulsated play trumpet",
    "musth rumble",
    "grumbling rumble",
    "separated rumble",
    "lets-go rumble",
    "nasal trumpet",
    "oestrous rumble",
    "comment rumble",
    "baroo rumble",
    "cow-calf rumble",
    "female chorus",
)
# Calls at each hour of the day, relative to the mean.
ACTIVITY = (
    *(0.8, 0.6, 0.4, 0.4, 1.0, 2.0, 2.6, 2.2, 1.4, 0.8, 0.3, 0.0),
    *(0.0, 0.0, 0.2, 0.5, 1.0, 1.9, 2.5, 2.1, 1.5, 1.1, 0.9, 0.8),
)
GAP_S = 2.0  # between calls, and before the first and after the last of an hour
SHORTEST_S = 30.0  # pieces of an hour; in shorter ones there are no calls
EXAMPLES_PER_RECORDING = 4  # of each type
EXAMPLE_S = 15.0  # of a recording, for each example in it
LIMITS = {
    "rate_hz": (4000, 192000, "Hz"),
    "recordings": (1, 100_000, "recordings"),
    "minutes": (1, 1440, "minutes"),
    "every_minutes": (1, 10_000, "minutes"),
    "calls_per_hour": (0, 3600, "calls"),
    "types": (1, len(TYPES), "types"),
    "examples": (0, 1000, "examples"),
    "seed": (0, 2**63, ""),
}
SNRS_DB = (-40, 60)


@dataclass(frozen=True, slots=True)
class SiteOptions:
    """What a recorder at a site records; see `synthesise_soundscape`."""

    recordings: int = 24
    minutes: float = 60.0
    every_minutes: float | None = None
    start: datetime = datetime(2026, 3, 2)  # a Monday
    calls_per_hour: float = 20.0
    snr_db: tuple[float, ...] = (0.0, 6.0, 12.0)
    types: int = 4
    examples: int = 20
    overlap: bool = False
    rate_hz: int = 16000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (low, high, unit) in LIMITS.items():
            if getattr(self, name) is not None:
                check_range(name, getattr(self, name), low, high, unit)
        if not self.snr_db:
            raise OptionError("snr_db: expected one or more values in dB, got none")
        for snr_db in self.snr_db:
            check_range("snr_db", snr_db, *SNRS_DB, "dB")
        if self.every_minutes is not None and self.every_minutes < self.minutes:
            raise OptionError(
                f"every_minutes: recordings of {self.minutes:g} minutes cannot begin every "
                f"{self.every_minutes:g}; give at least their length"
            )

    @property
    def interval(self) -> timedelta:
        """The time from the start of one recording to that of the next."""
        every_minutes = self.every_minutes
        if every_minutes is None:
            every_minutes = max(60.0, self.minutes)
        return timedelta(minutes=every_minutes)

    @property
    def labels(self) -> tuple[str, ...]:
        """The call types of the site."""
        return TYPES[: self.types]


@dataclass(frozen=True, slots=True)
class SiteCall:
    """A call in a recording of a site; times are whole milliseconds."""

    number: int
    start_s: float
    end_s: float
    label: str
    snr_db: float
    low_freq_hz: float
    high_freq_hz: float


@dataclass(frozen=True, slots=True)
class SiteRecording:
    """A recording of a site: when it began, and its calls in the order of their starts.

    `part` is "recordings" or "examples": both have numbers from 0.
    """

    part: str
    number: int
    name: str
    start: datetime
    duration_s: float
    calls: tuple[SiteCall, ...]


@dataclass(frozen=True, slots=True)
class _Hour:
    """The piece of a recording within one hour of the clock."""

    recording: int
    start_s: float
    end_s: float
    activity: float

    @property
    def weight(self) -> float:
        length_s = self.end_s - self.start_s
        return 0.0 if length_s < SHORTEST_S else self.activity * length_s


def plan_recordings(options: SiteOptions) -> list[SiteRecording]:
    """Plan the recordings, with as many calls in all as `calls_per_hour` says.

    >>> plans = plan_recordings(SiteOptions(recordings=2, minutes=30, calls_per_hour=12))
    >>> [plan.name for plan in plans], sum(len(plan.calls) for plan in plans)
    (['SITE0_20260302_000000', 'SITE0_20260302_010000'], 12)
    """
    hours = list(_list_hours(options))
    counts = _share_calls(options, [hour.weight for hour in hours])
    calls: list[list[SiteCall]] = [[] for _ in range(options.recordings)]
    for number, (hour, count) in enumerate(zip(hours, counts, strict=True)):
        random = stream(options.seed, "site calls", number)
        labels = random.choice(options.labels, count).tolist()
        first = len(calls[hour.recording])
        calls[hour.recording] += _draw_calls(options, labels, hour, random, first=first)
    return [
        _plan_recording(options, number, tuple(recording_calls))
        for number, recording_calls in enumerate(calls)
    ]


def _plan_recording(
    options: SiteOptions, number: int, calls: tuple[SiteCall, ...]
) -> SiteRecording:
    start = options.start + number * options.interval
    name = _name_recording(options, start)
    return SiteRecording(
        part="recordings",
        number=number,
        name=name,
        start=start,
        duration_s=60 * options.minutes,
        calls=calls,
    )


def _name_recording(options: SiteOptions, start: datetime) -> str:
    return f"SITE{options.seed}_{start:%Y%m%d_%H%M%S}"


def _list_hours(options: SiteOptions) -> Iterator[_Hour]:
    """Yield the pieces of all recordings, cut where an hour of the clock begins."""
    length_s = 60 * options.minutes
    for number in range(options.recordings):
        clock = options.start + number * options.interval
        start_s = 0.0
        while start_s < length_s:
            next_hour = clock.replace(minute=0, second=0, microsecond=0)
            next_hour += timedelta(hours=1)
            end_s = min(length_s, start_s + (next_hour - clock).total_seconds())
            yield _Hour(number, start_s, end_s, ACTIVITY[clock.hour])
            start_s = end_s
            clock = next_hour


def _share_calls(options: SiteOptions, weights: Sequence[float]) -> list[int]:
    """Return how many calls each piece gets, at random but by its weight."""
    hours = options.recordings * options.minutes / 60
    count = round(options.calls_per_hour * hours)
    total = sum(weights)
    if total == 0:  # only hours of the day in which nobody calls
        return [0] * len(weights)
    shares = np.array(weights) / total
    random = stream(options.seed, "hours")
    counts: list[int] = random.multinomial(count, shares).tolist()
    return counts


def _draw_calls(
    options: SiteOptions,
    labels: Sequence[str],
    hour: _Hour,
    random: Random,
    *,
    first: int = 0,
) -> list[SiteCall]:
    """Draw lengths, times, ratios and bands of calls; their numbers begin with `first`."""
    lengths_s = [_draw_length(label, random) for label in labels]
    if options.overlap:
        starts_s = random.uniform(hour.start_s, hour.end_s - np.array(lengths_s))
    else:
        starts_s = _draw_starts(hour, lengths_s, random)
    snrs_db = _draw_snrs(options, len(labels), random)
    calls = []
    order = np.argsort(starts_s, kind="stable").tolist()
    for number, index in enumerate(order, start=first):
        low_hz, high_hz = draw_band_hz(labels[index], random)
        call = SiteCall(
            number=number,
            start_s=_round_ms(starts_s[index]),
            end_s=_round_ms(starts_s[index] + lengths_s[index]),
            label=labels[index],
            snr_db=snrs_db[index],
            low_freq_hz=round(low_hz, 1),
            high_freq_hz=round(min(high_hz, options.rate_hz / 2), 1),
        )
        calls.append(call)
    return calls


def _round_ms(time_s: float) -> float:
    return round(float(time_s), 3)


def _draw_length(label: str, random: Random) -> float:
    return float(random.uniform(*CALL_TYPES[label].duration_s))


def _draw_snrs(options: SiteOptions, count: int, random: Random) -> list[float]:
    """Return each of the ratios equally often, in random order."""
    repeats = ceil(count / len(options.snr_db))
    values = list(options.snr_db) * repeats
    order = random.permutation(len(values))[:count]
    return [float(values[index]) for index in order]


def _draw_starts(hour: _Hour, lengths_s: Sequence[float], random: Random) -> FloatArray:
    """Return times at which calls of these lengths begin, without overlap."""
    taken_s = np.array(lengths_s) + GAP_S
    free_s = hour.end_s - hour.start_s - GAP_S - taken_s.sum()
    if free_s < 0:
        raise OptionError(
            f"calls_per_hour: {len(lengths_s)} calls do not fit into "
            f"{hour.end_s - hour.start_s:.0f} s; give fewer, or let them overlap (--overlap)"
        )
    gaps_s = np.sort(random.uniform(0, free_s, len(lengths_s)))
    before_s = np.cumsum(taken_s) - taken_s
    starts_s: FloatArray = hour.start_s + GAP_S + gaps_s + before_s
    return starts_s


def plan_examples(options: SiteOptions) -> list[SiteRecording]:
    """Plan the recordings with examples: some minutes each, on the days before the first recording.

    >>> plans = plan_examples(SiteOptions(types=2, examples=6))
    >>> [(plan.name, len(plan.calls)) for plan in plans]
    [('SITE0_20260301_060000', 8), ('SITE0_20260228_080000', 4)]
    """
    plans: list[SiteRecording] = []
    for number in range(ceil(options.examples / EXAMPLES_PER_RECORDING)):
        rest = options.examples - number * EXAMPLES_PER_RECORDING
        count = min(rest, EXAMPLES_PER_RECORDING)
        plans.append(_plan_example_recording(options, number, count))
    return plans


def _plan_example_recording(
    options: SiteOptions, number: int, count: int
) -> SiteRecording:
    random = stream(options.seed, "site examples", number)
    labels = random.permutation(list(options.labels) * count).tolist()
    duration_s = EXAMPLE_S * len(labels)
    hour = _Hour(number, 0.0, duration_s, activity=1.0)
    calls = _draw_calls(options, labels, hour, random)
    midnight = options.start.replace(hour=0, minute=0, second=0, microsecond=0)
    start = midnight - timedelta(days=number + 1)
    start += timedelta(hours=(6 + 2 * number) % 24)
    name = _name_recording(options, start)
    return SiteRecording(
        part="examples",
        number=number,
        name=name,
        start=start,
        duration_s=duration_s,
        calls=tuple(calls),
    )
