"""Plans of synthetic recordings: which calls are in which recording, and when.

`plan_corpus` plans the recordings of a corpus from a seed and a scale, `plan_recordings` and
`plan_examples` those of a site, with clock times. Calls are spans; their times are whole
milliseconds.

Random numbers come from streams keyed by the seed, a purpose and numbers, never from one stream
that is used in some order. So any recording can be made alone, with any number of threads.

At a site, the number of calls changes with the hour of the day; at noon there are none. Calls lie
within an hour of the clock and do not overlap, unless that is asked for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

import numpy as np

from callshot.corpus.synthetic.call_synthesis import (
    CALL_TYPES,
    Random,
    draw_band_hz,
    stream,
)
from callshot.errors import OptionError, check_range
from callshot.records import FloatArray
from callshot.spans import Row, Spans

LabelledCall = tuple[str, bool]  # its label, and whether it is shorter than 1 s
Clump = list[LabelledCall]

COUNTS = {  # calls of at least 1 s at scale 1: those of Elephant Voices in the paper
    "comment rumble": 51,
    "oestrous rumble": 40,
    "greeting rumble": 37,
    "female chorus": 32,
    "conflict roar": 23,
    "trumpet blast": 21,
    "grumbling rumble": 17,
    "pulsated play trumpet": 13,
    "separated rumble": 7,
    "lets-go rumble": 6,
    "musth rumble": 6,
    "begging rumble": 5,
}
RARE = {"cow-calf rumble": 2, "nasal trumpet": 1, "baroo rumble": 3}  # at any scale
ALONE = "baroo rumble"  # in a recording without other types
# Of each type, in as many recordings, at any scale: five folds are possible.
MIN_CALLS = 5
SHORT_SHARE = 0.10  # calls under 1 s, in addition
SHORT_S = (0.35, 0.95)
OVERLAP_SHARE = 0.04  # calls that start before the previous one ends
CALLS_PER_RECORDING = 5.5
MAX_CALLS_PER_RECORDING = 12
CLUMP_SIZE = 2  # calls of one type that come together, in one recording
SITES = ("amboseli", "gorongosa", "mara")
MAX_SCALE = 100  # three days of audio
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
MIN_PIECE_S = 30.0  # pieces of an hour; in shorter ones there are no calls
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


def _make_calls(rows: Iterable[Row], name: str) -> Spans:
    named = [{"recording": name, **row} for row in rows]
    return Spans.from_rows(named, ("recording", "start_s", "end_s", "label"))


def plan_corpus(seed: int = 0, scale: float = 1.0) -> list[RecordingPlan]:
    """Plan every recording. `scale` multiplies the counts of the 12 types, each at least five.

    The calls of a type are in at least five recordings, so that five folds grouped by recording all
    have it.

    >>> plans = plan_corpus(seed=1, scale=0.1)
    >>> len(plans), sum(len(plan.calls) for plan in plans), plans[-1].calls["label"][0]
    (13, 72, 'baroo rumble')
    """
    if not 0 < scale <= MAX_SCALE:
        raise OptionError(
            f"scale: expected more than 0 and at most {MAX_SCALE}, got {scale}"
        )
    if seed < 0:
        raise OptionError(f"seed: expected 0 or more, got {seed}")
    recordings = _distribute_labels(seed, scale)
    recordings.append([(ALONE, False)] * RARE[ALONE])
    overlaps = _choose_overlaps(seed, [len(calls) for calls in recordings])
    plans = []
    for number, calls in enumerate(recordings):
        plans.append(_plan_recording(seed, number, calls, overlaps))
    return plans


def _distribute_labels(seed: int, scale: float) -> list[Clump]:
    """Return the calls of each recording, in no order."""
    random = stream(seed, "labels")
    counts = {}
    for label, count in COUNTS.items():
        counts[label] = max(MIN_CALLS, round(scale * count))
    total = sum(counts.values())
    shares = [count / total for count in counts.values()]
    short = random.choice(list(counts), round(SHORT_SHARE * total), p=shares)
    size = ceil((total + len(short)) / CALLS_PER_RECORDING)
    capacity = 0.7 + 1.9 * random.random(size) ** 3  # some recordings are busier
    recordings: list[Clump] = [[] for _ in range(size)]
    for clumps in _make_clumps(counts, short.tolist()):
        _place_clumps(random, recordings, capacity, clumps)
    return recordings


def _make_clumps(
    counts: Mapping[str, int], short: Iterable[str]
) -> Iterator[list[Clump]]:
    """Yield clumps that go to different recordings: types, the rare ones, each short call."""
    for label, count in counts.items():
        parts = max(MIN_CALLS, ceil(count / CLUMP_SIZE))
        calls = [(label, False)] * count
        yield [calls[part::parts] for part in range(parts)]
    rare: list[Clump] = []
    for label, count in RARE.items():
        if label != ALONE:
            rare += [[(label, False)]] * count
    yield rare
    for label in short:
        yield [[(label, True)]]


def _place_clumps(
    random: Random,
    recordings: list[Clump],
    capacity: FloatArray,
    clumps: Sequence[Clump],
) -> None:
    """Put each clump into another recording, at random but first where there is most room."""
    sizes = np.array([len(calls) for calls in recordings])
    load = sizes / capacity + 0.5 * random.random(len(recordings))
    load[sizes > MAX_CALLS_PER_RECORDING - CLUMP_SIZE] = np.inf
    order = np.argsort(load, kind="stable")[: len(clumps)]
    for index, clump in zip(order, clumps, strict=True):
        recordings[index].extend(clump)


def _choose_overlaps(seed: int, sizes: Sequence[int]) -> set[tuple[int, int]]:
    """Choose the calls (recording, number) that start during the previous one.

    They are never the first of a recording, nor two in a row.
    """
    candidates = []
    for recording, size in enumerate(sizes):
        candidates += [(recording, call) for call in range(1, size, 2)]
    count = max(1, round(OVERLAP_SHARE * sum(sizes)))
    order = stream(seed, "overlaps").permutation(len(candidates))
    return {candidates[index] for index in order[:count]}


def _plan_recording(
    seed: int, number: int, labels: Clump, overlaps: set[tuple[int, int]]
) -> RecordingPlan:
    random = stream(seed, "times", number)
    calls: list[Row] = []
    free_s = random.uniform(1, 6)
    last_s = 0.0
    for i, index in enumerate(random.permutation(len(labels))):
        label, is_short = labels[index]
        limits_s = SHORT_S if is_short else CALL_TYPES[label].duration_s
        length_s = random.uniform(*limits_s)
        start_s = free_s
        if (number, i) in overlaps:
            previous = calls[-1]
            share = random.uniform(0.4, 0.8)
            previous_s = previous["end_s"] - previous["start_s"]
            start_s = previous["start_s"] + share * previous_s
        end_s = round(start_s + length_s, 3)
        calls.append({"start_s": round(start_s, 3), "end_s": end_s, "label": label})
        last_s = max(last_s, end_s)
        free_s = last_s + 1.5 + random.exponential(4.0)
    site = SITES[random.integers(len(SITES))]
    name = f"{site}-{number + 1:03d}"
    return RecordingPlan(
        number=number,
        name=name,
        channels=1 + int(random.random() < 0.3),
        duration_s=round(free_s, 3),
        calls=_make_calls(calls, f"{name}.flac"),
    )


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
class _Hour:
    """The piece of a recording within one hour of the clock."""

    recording: int
    start_s: float
    end_s: float
    activity: float

    @property
    def weight(self) -> float:
        length_s = self.end_s - self.start_s
        return 0.0 if length_s < MIN_PIECE_S else self.activity * length_s


def plan_recordings(options: SiteOptions) -> list[RecordingPlan]:
    """Plan the recordings, with as many calls in all as `calls_per_hour` says.

    >>> plans = plan_recordings(SiteOptions(recordings=2, minutes=30, calls_per_hour=12))
    >>> [plan.name for plan in plans], sum(len(plan.calls) for plan in plans)
    (['SITE0_20260302_000000', 'SITE0_20260302_010000'], 12)
    """
    hours = list(_list_hours(options))
    counts = _share_calls(options, [hour.weight for hour in hours])
    calls: list[list[Row]] = [[] for _ in range(options.recordings)]
    for number, (hour, count) in enumerate(zip(hours, counts, strict=True)):
        random = stream(options.seed, "site calls", number)
        labels = random.choice(options.labels, count).tolist()
        first = len(calls[hour.recording])
        calls[hour.recording] += _draw_calls(options, labels, hour, random, first=first)
    plans = []
    for number, rows in enumerate(calls):
        start = options.start + number * options.interval
        duration_s = 60 * options.minutes
        plans.append(
            _plan_at_site(options, "recordings", number, start, duration_s, rows)
        )
    return plans


def _plan_at_site(
    options: SiteOptions,
    part: str,
    number: int,
    start: datetime,
    duration_s: float,
    rows: Iterable[Row],
) -> RecordingPlan:
    name = f"SITE{options.seed}_{start:%Y%m%d_%H%M%S}"
    calls = _make_calls(rows, f"{name}.wav")
    return RecordingPlan(number, name, duration_s, calls, part=part, start=start)


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
) -> list[Row]:
    """Draw lengths, times, ratios and bands of calls; their numbers begin with `first`."""
    limits_s = [CALL_TYPES[label].duration_s for label in labels]
    lengths_s = [float(random.uniform(*limits)) for limits in limits_s]
    if options.overlap:
        starts_s = random.uniform(hour.start_s, hour.end_s - np.array(lengths_s))
    else:
        starts_s = _draw_starts(hour, lengths_s, random)
    # Each of the ratios is equally often, in random order.
    snrs_db = list(options.snr_db) * ceil(len(labels) / len(options.snr_db))
    snr_order = random.permutation(len(snrs_db))
    calls = []
    order = np.argsort(starts_s, kind="stable").tolist()
    for number, index in enumerate(order, start=first):
        low_hz, high_hz = draw_band_hz(labels[index], random)
        start_s = float(starts_s[index])
        call = {
            "number": number,
            "start_s": round(start_s, 3),
            "end_s": round(start_s + lengths_s[index], 3),
            "label": labels[index],
            "low_freq_hz": round(low_hz, 1),
            "high_freq_hz": round(min(high_hz, options.rate_hz / 2), 1),
            "snr_db": float(snrs_db[snr_order[index]]),
        }
        calls.append(call)
    return calls


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


def plan_examples(options: SiteOptions) -> list[RecordingPlan]:
    """Plan the recordings with examples: some minutes each, on the days before the first recording.

    >>> plans = plan_examples(SiteOptions(types=2, examples=6))
    >>> [(plan.name, len(plan.calls)) for plan in plans]
    [('SITE0_20260301_060000', 8), ('SITE0_20260228_080000', 4)]
    """
    midnight = options.start.replace(hour=0, minute=0, second=0, microsecond=0)
    plans = []
    for number in range(ceil(options.examples / EXAMPLES_PER_RECORDING)):
        rest = options.examples - number * EXAMPLES_PER_RECORDING
        count = min(rest, EXAMPLES_PER_RECORDING)
        random = stream(options.seed, "site examples", number)
        labels = random.permutation(list(options.labels) * count).tolist()
        duration_s = EXAMPLE_S * len(labels)
        hour = _Hour(number, 0.0, duration_s, activity=1.0)
        rows = _draw_calls(options, labels, hour, random)
        hours = (6 + 2 * number) % 24
        start = midnight - timedelta(days=number + 1) + timedelta(hours=hours)
        plans.append(
            _plan_at_site(options, "examples", number, start, duration_s, rows)
        )
    return plans
