"""The plan of a corpus: a seed and a scale come in, each recording's calls and their times go out. No audio yet.

All chance comes from streams that are keyed by the seed, a purpose and numbers, never from one stream that is used up
in some order: so any recording can be made alone, and threads change nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from zlib import crc32

import numpy as np

from callshot.corpus.synthetic.call_synthesis import Random, duration_range_s
from callshot.errors import OptionError
from callshot.records import FloatArray

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
RARE = {
    "cow-calf rumble": 2,
    "nasal trumpet": 1,
    "baroo rumble": 3,
}  # at any scale; the last in a recording of its own
FEWEST = 5  # calls of each type, in as many recordings, at any scale: five folds can be made
SHORT_SHARE = 0.10  # calls under 1 s, on top
OVERLAP_SHARE = (
    0.04  # calls that begin before the one before them ends: twice as many overlap another
)
CALLS_PER_RECORDING = 5.5
MOST_CALLS = 12  # in a recording
CLUMP = 2  # calls of one type that come together, in one recording
SITES = ("amboseli", "gorongosa", "mara")
LARGEST_SCALE = 100  # three days of audio


@dataclass(frozen=True, slots=True)
class Call:
    """A call in a recording, as it is annotated; times are whole milliseconds."""

    start_s: float
    end_s: float
    label: str


@dataclass(frozen=True, slots=True)
class Plan:
    """One recording: its name without suffix, and its calls in the order in which they begin."""

    number: int
    name: str
    channels: int
    duration_s: float
    calls: tuple[Call, ...]


def stream(seed: int, purpose: str, *numbers: int) -> Random:
    """Return the random numbers that belong to a purpose and nothing else.

    >>> stream(0, "voice", 3, 1).random() == stream(0, "voice", 3, 1).random()
    True
    """
    key = np.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), *numbers))
    return np.random.Generator(np.random.Philox(key))


def plan_corpus(seed: int = 0, scale: float = 1.0) -> list[Plan]:
    """Plan every recording. `scale` multiplies the counts of the 12 types, but none falls under five calls.

    Calls of one type are spread over at least five recordings, so that five folds grouped by recording hold each type.

    >>> plans = plan_corpus(seed=1, scale=0.1)
    >>> len(plans), sum(len(plan.calls) for plan in plans), plans[-1].calls[0].label
    (13, 72, 'baroo rumble')
    """
    if not (isfinite(scale) and 0 < scale <= LARGEST_SCALE):
        raise OptionError(f"scale: above 0, at most {LARGEST_SCALE}, got {scale}")
    if seed < 0:
        raise OptionError(f"seed: at least 0, got {seed}")
    own = list(RARE)[-1]
    labels = [*_spread_labels(seed, scale), [(own, False)] * RARE[own]]
    overlapping = _choose_overlaps(stream(seed, "overlaps"), [len(each) for each in labels])
    return [_plan_recording(seed, i, each, overlapping[i]) for i, each in enumerate(labels)]


def _spread_labels(seed: int, scale: float) -> list[list[tuple[str, bool]]]:
    """Return for each recording the labels of its calls, and which are short."""
    random = stream(seed, "labels")
    counts = {label: max(FEWEST, round(scale * count)) for label, count in COUNTS.items()}
    short = random.choice(
        list(counts), round(SHORT_SHARE * sum(counts.values())), p=_shares(counts)
    )
    recordings = ceil((sum(counts.values()) + len(short)) / CALLS_PER_RECORDING)
    room = 0.7 + 1.9 * random.random(recordings) ** 3  # some recordings are busier
    filled: list[list[tuple[str, bool]]] = [[] for _ in range(recordings)]
    for label, count in counts.items():
        _place(random, filled, room, [[(label, False)] * size for size in _clumps(count)])
    _place(
        random,
        filled,
        room,
        [[(label, False)] for label in list(RARE)[:-1] for _ in range(RARE[label])],
    )
    for label in short:
        _place(random, filled, room, [[(str(label), True)]])
    return filled


def _shares(counts: dict[str, int]) -> list[float]:
    return [count / sum(counts.values()) for count in counts.values()]


def _clumps(count: int) -> list[int]:
    """Split the calls of one type into what goes to different recordings, in at least five parts."""
    parts = max(FEWEST, ceil(count / CLUMP))
    return [count // parts + (i < count % parts) for i in range(parts)]


def _place(
    random: Random,
    filled: list[list[tuple[str, bool]]],
    room: FloatArray,
    clumps: Sequence[list[tuple[str, bool]]],
) -> None:
    """Put each clump into another recording, first where most room is left; chance decides among the like."""
    sizes = np.array([len(calls) for calls in filled])
    load = np.where(
        sizes > MOST_CALLS - CLUMP, np.inf, sizes / room + 0.5 * random.random(len(filled))
    )
    for place, clump in zip(np.argsort(load, kind="stable")[: len(clumps)], clumps, strict=True):
        filled[place].extend(clump)


def _choose_overlaps(random: Random, sizes: Sequence[int]) -> dict[int, set[int]]:
    """Choose the calls that begin during the one before them: never a recording's first, nor two in a row."""
    places = [(i, call) for i, size in enumerate(sizes) for call in range(1, size, 2)]
    chosen = random.permutation(len(places))[: max(1, round(OVERLAP_SHARE * sum(sizes)))]
    overlapping: dict[int, set[int]] = {i: set() for i in range(len(sizes))}
    for place in chosen:
        overlapping[places[place][0]].add(places[place][1])
    return overlapping


def _plan_recording(
    seed: int, number: int, labels: Sequence[tuple[str, bool]], overlapping: set[int]
) -> Plan:
    random = stream(seed, "times", number)
    calls: list[Call] = []
    free_s = random.uniform(1, 6)
    for i, place in enumerate(random.permutation(len(labels))):
        label, short = labels[place]
        length_s = random.uniform(0.35, 0.95) if short else random.uniform(*duration_range_s(label))
        start_s = free_s
        if i in overlapping:
            start_s = calls[-1].start_s + random.uniform(0.4, 0.8) * (
                calls[-1].end_s - calls[-1].start_s
            )
        calls.append(Call(round(start_s, 3), round(start_s + length_s, 3), label))
        free_s = max(call.end_s for call in calls) + 1.5 + random.exponential(4.0)
    return Plan(
        number=number,
        name=f"{SITES[random.integers(len(SITES))]}-{number + 1:03d}",
        channels=1 + int(random.random() < 0.3),
        duration_s=round(free_s, 3),
        calls=tuple(calls),
    )
