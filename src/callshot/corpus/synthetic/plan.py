"""The plan of a synthetic corpus: a seed and a scale → the calls of each recording and their times.

Random numbers come from streams keyed by the seed, a purpose and numbers, never from one stream
that is used in some order. So any recording can be made alone, with any number of threads.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from zlib import crc32

import numpy as np

from callshot.corpus.synthetic.call_synthesis import CALL_TYPES, Random
from callshot.errors import OptionError
from callshot.records import FloatArray

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


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call in a recording, as it is annotated; times are whole milliseconds."""

    start_s: float
    end_s: float
    label: str


@dataclass(frozen=True, slots=True)
class RecordingPlan:
    """One recording: its name without suffix, and its calls in the order of their starts."""

    number: int
    name: str
    channels: int
    duration_s: float
    calls: tuple[PlannedCall, ...]


def stream(seed: int, purpose: str, *numbers: int) -> Random:
    """Return the random numbers of one purpose.

    >>> stream(0, "voice", 3, 1).random() == stream(0, "voice", 3, 1).random()
    True
    """
    key = np.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), *numbers))
    return np.random.Generator(np.random.Philox(key))


def plan_corpus(seed: int = 0, scale: float = 1.0) -> list[RecordingPlan]:
    """Plan every recording. `scale` multiplies the counts of the 12 types, each at least five.

    The calls of a type are in at least five recordings, so that five folds grouped by recording all
    have it.

    >>> plans = plan_corpus(seed=1, scale=0.1)
    >>> len(plans), sum(len(plan.calls) for plan in plans), plans[-1].calls[0].label
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
    calls: list[PlannedCall] = []
    free_s = random.uniform(1, 6)
    for i, index in enumerate(random.permutation(len(labels))):
        label, is_short = labels[index]
        limits_s = SHORT_S if is_short else CALL_TYPES[label].duration_s
        length_s = random.uniform(*limits_s)
        start_s = free_s
        if (number, i) in overlaps:
            start_s = _draw_start_within(calls[-1], random)
        end_s = start_s + length_s
        calls.append(PlannedCall(round(start_s, 3), round(end_s, 3), label))
        last_s = max(call.end_s for call in calls)
        free_s = last_s + 1.5 + random.exponential(4.0)
    site = SITES[random.integers(len(SITES))]
    return RecordingPlan(
        number=number,
        name=f"{site}-{number + 1:03d}",
        channels=1 + int(random.random() < 0.3),
        duration_s=round(free_s, 3),
        calls=tuple(calls),
    )


def _draw_start_within(call: PlannedCall, random: Random) -> float:
    share = random.uniform(0.4, 0.8)
    return call.start_s + share * (call.end_s - call.start_s)
