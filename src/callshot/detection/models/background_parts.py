"""Windows of background → parts, each of which is scored by the others.

A part is whole places, or whole recordings, because what is scanned next may be a new one: windows
of a recording are like each other, and thresholds that take its weather as known are too low. What
has more than half of all windows is divided, for the rest of the background would be too little to
score it by: a place into its recordings, a recording into stretches. There are at most five parts,
whatever the number of recordings.

Recordings without labels are those that are scanned, so no new place is expected there.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from callshot.detection.models.background import UNLABELLED, Background
from callshot.records import IntArray

MOST_PARTS = 5


def split_background(background: Background) -> Iterator[NDArray[np.bool_]]:
    """Yield which windows are in each part."""
    if UNLABELLED in background.origins:
        part = _number_scanned(background.number)
    else:
        part = _number_units(background) % MOST_PARTS
    for number in np.unique(part):
        yield part == number


def _number_scanned(recording: IntArray) -> IntArray:
    """Return parts of whole recordings; of stretches if there are fewer than five recordings."""
    part = recording % MOST_PARTS
    if len(np.unique(part)) < MOST_PARTS:
        part = _number_stretches(len(part))
    return part


def _number_units(background: Background) -> IntArray:
    """Return from 0 on which windows stay together: those of a place, recording or stretch."""
    places = np.array([recording.place for recording in background.recordings])
    _, place = np.unique(places[background.number], return_inverse=True)
    unit = _divide_largest(place, background.number)
    stretch = np.zeros(len(unit), np.int64)
    for number in np.unique(background.number):
        inside = background.number == number
        stretch[inside] = _number_stretches(int(inside.sum()))
    return _divide_largest(unit, stretch)


def _divide_largest(unit: IntArray, finer: IntArray) -> IntArray:
    """Return units, of which the one with more than half of all windows is divided."""
    counts = np.bincount(unit)
    largest = counts.argmax()
    if 2 * counts[largest] <= len(unit):
        return unit
    inside = unit == largest
    divided = np.where(inside, finer + 1, 0)
    _, numbers = np.unique(
        np.column_stack([unit, divided]), axis=0, return_inverse=True
    )
    return numbers


def _number_stretches(count: int) -> IntArray:
    parts = min(MOST_PARTS, count)
    return np.arange(count) * parts // count
