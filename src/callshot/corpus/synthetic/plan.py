"""Plans of synthetic recordings: which calls are in which recording, and when.

Random numbers come from streams keyed by the seed, a purpose and numbers, never from one stream
that is used in some order. So any recording can be made alone, with any number of threads.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

import numpy as np

from callshot.corpus.synthetic.sounds import (
    CALL_TYPES,
    Random,
    RecordingPlan,
    draw_band_hz,
    stream,
)
from callshot.errors import OptionError, check_range
from callshot.options import SoundscapeOptions, check_values
from callshot.spans import Row, Spans

LabelledCall = tuple[str, bool]  # its label, and whether it is shorter than 1 s

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
RATES_HZ = (4000, 192000)
SNRS_DB = (-40, 60)


def _make_calls(rows: Iterable[Row], name: str) -> Spans:
    """Return rows with start, end and label as spans of the recording `name`."""
    named = [{"recording": name, **row} for row in rows]
    return Spans.from_rows(named, ("recording", "start_s", "end_s", "label"))


def plan_corpus(seed: int = 0, scale: float = 1.0) -> list[RecordingPlan]:
    """Plan all recordings; `scale` multiplies the counts of the 12 types, at least five each."""
    if not 0 < scale <= MAX_SCALE:
        raise OptionError(
            f"scale: expected more than 0 and at most {MAX_SCALE}, got {scale}"
        )
    check_range("seed", seed, 0)
    recordings = _distribute_labels(seed, scale)
    recordings.append([(ALONE, False)] * RARE[ALONE])
    # Calls that start during the previous one are never the first, nor two in a row: only calls 1,
    # 3, 5, … of a recording may be.
    candidates = []
    for recording, calls in enumerate(recordings):
        candidates += [(recording, call) for call in range(1, len(calls), 2)]
    total = sum(map(len, recordings))
    count = max(1, round(OVERLAP_SHARE * total))
    order = stream(seed, "overlaps").permutation(len(candidates))
    overlaps = {candidates[index] for index in order[:count]}
    plans = []
    for number, calls in enumerate(recordings):
        random = stream(seed, "times", number)
        overlapping = {call for recording, call in overlaps if recording == number}
        rows, length_s = _draw_times(calls, overlapping, random)
        site = SITES[random.integers(len(SITES))]
        name = f"{site}-{number + 1:03d}"
        plan = RecordingPlan(
            number=number,
            name=name,
            channels=1 + int(random.random() < 0.3),
            duration_s=round(length_s, 3),
            calls=_make_calls(rows, f"{name}.flac"),
        )
        plans.append(plan)
    return plans


def _draw_times(
    calls: Sequence[LabelledCall], overlapping: set[int], random: Random
) -> tuple[list[Row], float]:
    """Draw order, starts and ends of calls, and the length; `overlapping` positions start early."""
    rows: list[Row] = []
    free_s = random.uniform(1, 6)  # where the next call may start
    last_s = 0.0  # where the latest call ends
    for position, index in enumerate(random.permutation(len(calls))):
        label, is_short = calls[index]
        limits_s = SHORT_S if is_short else CALL_TYPES[label]["duration_s"]
        length_s = random.uniform(*limits_s)
        start_s = free_s
        if position in overlapping:
            share = random.uniform(0.4, 0.8)
            previous = rows[-1]
            previous_s = previous["end_s"] - previous["start_s"]
            start_s = previous["start_s"] + share * previous_s
        end_s = round(start_s + length_s, 3)
        rows.append({"start_s": round(start_s, 3), "end_s": end_s, "label": label})
        last_s = max(last_s, end_s)
        free_s = last_s + 1.5 + random.exponential(4.0)
    return rows, free_s


def _distribute_labels(seed: int, scale: float) -> list[list[LabelledCall]]:
    """Return the calls of each recording: clumps go to recordings with room, at random."""
    random = stream(seed, "labels")
    counts = {}
    for label, count in COUNTS.items():
        counts[label] = max(MIN_CALLS, round(scale * count))
    total = sum(counts.values())
    label_shares = [count / total for count in counts.values()]
    short_count = round(SHORT_SHARE * total)
    short = random.choice(list(counts), short_count, p=label_shares)
    call_count = total + len(short)
    recording_count = ceil(call_count / CALLS_PER_RECORDING)
    busyness = random.random(recording_count) ** 3  # some recordings are busier
    capacity = 0.7 + 1.9 * busyness
    recordings: list[list[LabelledCall]] = [[] for _ in range(recording_count)]
    # The clumps of a list, mostly those of one label, go to as many recordings.
    for clumps in _make_clumps(counts, short.tolist()):
        sizes = np.array([len(calls) for calls in recordings])
        load = sizes / capacity
        load += 0.5 * random.random(recording_count)
        is_full = sizes > MAX_CALLS_PER_RECORDING - CLUMP_SIZE
        load[is_full] = np.inf
        by_load = np.argsort(load, kind="stable")
        emptiest = by_load[: len(clumps)]
        for index, clump in zip(emptiest, clumps, strict=True):
            recordings[index].extend(clump)
    return recordings


def _make_clumps(
    counts: Mapping[str, int], short: Iterable[str]
) -> list[list[list[LabelledCall]]]:
    """Return lists of clumps of calls; a recording has at most one clump of each list."""
    groups = []
    for label, count in counts.items():
        clump_count = max(MIN_CALLS, ceil(count / CLUMP_SIZE))
        calls = [(label, False)] * count
        groups.append([calls[first::clump_count] for first in range(clump_count)])
    rare = []
    for label, count in RARE.items():
        if label != ALONE:
            rare += [[(label, False)]] * count
    groups.append(rare)
    groups += [[[(label, True)]] for label in short]
    return groups


@dataclass(frozen=True)
class SiteOptions(SoundscapeOptions):
    """What a recorder at a site records; see `synthesise_soundscape`."""

    rate_hz: int = 16000
    seed: int = 0

    def __post_init__(self) -> None:
        check_values(self)
        check_range("rate_hz", self.rate_hz, *RATES_HZ, "Hz")
        check_range("seed", self.seed, 0, 2**63)
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
    def labels(self) -> tuple[str, ...]:
        """The call types of the site."""
        return TYPES[: self.types]


def plan_recordings(options: SiteOptions) -> list[RecordingPlan]:
    """Plan the recordings of a site; pieces of an hour have calls by their length and the hour."""
    length_s = 60 * options.minutes
    every_minutes = options.every_minutes or max(60.0, options.minutes)
    starts = [
        options.start + number * timedelta(minutes=every_minutes)
        for number in range(options.recordings)
    ]
    pieces = _cut_at_hours(starts, length_s)
    weights = np.array([weight for *_, weight in pieces])
    counts = [0] * len(pieces)
    if weights.any():  # otherwise only hours of the day without calls
        hours = options.recordings * options.minutes / 60
        count = round(options.calls_per_hour * hours)
        shares = weights / sum(weights.tolist())
        random = stream(options.seed, "hours")
        counts = random.multinomial(count, shares).tolist()
    calls: list[list[Row]] = [[] for _ in starts]
    for piece, (number, start_s, end_s, _) in enumerate(pieces):
        random = stream(options.seed, "site calls", piece)
        labels = random.choice(options.labels, counts[piece]).tolist()
        span_s = (start_s, end_s)
        first = len(calls[number])
        calls[number] += _draw_calls(options, labels, span_s, random, first=first)
    return [
        _plan_at_site(options, "recordings", number, starts[number], length_s, rows)
        for number, rows in enumerate(calls)
    ]


def _cut_at_hours(
    starts: Iterable[datetime], length_s: float
) -> list[tuple[int, float, float, float]]:
    """Cut recordings at each full hour; return (number of the recording, start, end, weight).

    Start and end are seconds of the recording; weights are in proportion to the expected calls.
    """
    pieces = []
    for number, clock in enumerate(starts):
        start_s = 0.0
        while start_s < length_s:
            next_hour = clock.replace(minute=0, second=0, microsecond=0)
            next_hour += timedelta(hours=1)
            until_hour = next_hour - clock
            end_s = min(length_s, start_s + until_hour.total_seconds())
            piece_s = end_s - start_s
            weight = 0.0
            if piece_s >= MIN_PIECE_S:
                weight = ACTIVITY[clock.hour] * piece_s
            pieces.append((number, start_s, end_s, weight))
            start_s = end_s
            clock = next_hour
    return pieces


def _plan_at_site(
    options: SiteOptions,
    part: str,
    number: int,
    start: datetime,
    duration_s: float,
    rows: Iterable[Row],
) -> RecordingPlan:
    """Return the plan of a recording whose name has the site and the clock time of its start."""
    name = f"SITE{options.seed}_{start:%Y%m%d_%H%M%S}"
    calls = _make_calls(rows, f"{name}.wav")
    return RecordingPlan(number, name, duration_s, calls, part=part, start=start)


def _draw_calls(
    options: SiteOptions,
    labels: Sequence[str],
    span_s: tuple[float, float],
    random: Random,
    *,
    first: int = 0,
) -> list[Row]:
    """Draw a call for each label within a span, 2 s apart unless they may overlap, in order.

    Calls are numbered from `first` on.
    """
    begin_s, end_s = span_s
    limits_s = [CALL_TYPES[label]["duration_s"] for label in labels]
    drawn_s = [random.uniform(*limits) for limits in limits_s]
    lengths_s = np.array(drawn_s)
    if options.overlap:
        starts_s = random.uniform(begin_s, end_s - lengths_s)
    else:
        taken_s = lengths_s + GAP_S  # by each call
        free_s = end_s - begin_s - GAP_S - taken_s.sum()
        if free_s < 0:
            raise OptionError(
                f"calls_per_hour: {len(labels)} calls do not fit into "
                f"{end_s - begin_s:.0f} s; give fewer, or let them overlap (--overlap)"
            )
        # Random points in the free time, in order; each call moves all later ones back.
        points_s = np.sort(random.uniform(0, free_s, len(labels)))
        before_s = np.cumsum(taken_s) - taken_s
        starts_s = begin_s + GAP_S + points_s + before_s
    # Each of the ratios is equally often, in random order.
    repeats = ceil(len(labels) / len(options.snr_db))
    snrs_db = options.snr_db * repeats
    snr_order = random.permutation(len(snrs_db))
    calls = []
    order = np.argsort(starts_s, kind="stable").tolist()
    for number, index in enumerate(order, start=first):
        low_hz, high_hz = draw_band_hz(labels[index], random)
        start_s = float(starts_s[index])
        call = {
            "number": number,
            "start_s": round(start_s, 3),
            "end_s": round(start_s + float(lengths_s[index]), 3),
            "label": labels[index],
            "low_freq_hz": round(low_hz, 1),
            "high_freq_hz": round(min(high_hz, options.rate_hz / 2), 1),
            "snr_db": float(snrs_db[snr_order[index]]),
        }
        calls.append(call)
    return calls


def plan_examples(options: SiteOptions) -> list[RecordingPlan]:
    """Plan recordings with examples of all types, one on each of the days before the first one.

    A recording has up to four examples of each type, 15 s for each example.

    >>> plans = plan_examples(SiteOptions(types=2, examples=6))
    >>> [(plan.name, len(plan.calls)) for plan in plans]
    [('SITE0_20260301_060000', 8), ('SITE0_20260228_080000', 4)]
    """
    midnight = options.start.replace(hour=0, minute=0, second=0, microsecond=0)
    plans = []
    for number in range(ceil(options.examples / EXAMPLES_PER_RECORDING)):
        left = options.examples - number * EXAMPLES_PER_RECORDING
        count = min(left, EXAMPLES_PER_RECORDING)
        random = stream(options.seed, "site examples", number)
        repeated = options.labels * count
        labels = random.permutation(repeated).tolist()
        duration_s = EXAMPLE_S * len(labels)
        rows = _draw_calls(options, labels, (0.0, duration_s), random)
        day = midnight - timedelta(days=number + 1)
        hour = (6 + 2 * number) % 24  # each at another time of the day
        start = day + timedelta(hours=hour)
        plan = _plan_at_site(options, "examples", number, start, duration_s, rows)
        plans.append(plan)
    return plans
