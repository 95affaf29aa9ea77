"""Background is held out by whole places or recordings, in a few parts."""

import numpy as np
import pytest

from callshot.detection.background import (
    MAX_PARTS,
    Background,
    BackgroundRecording,
    make_windows,
    split_background,
)


def make_background(windows, places=None, origin="without calls"):
    """Return background with so many windows of each recording, at these places."""
    places = places or [str(n) for n in range(len(windows))]
    recordings = tuple(
        BackgroundRecording(f"sha {n}", count, (), origin, place)
        for n, (count, place) in enumerate(zip(windows, places, strict=True))
    )
    names = np.repeat([recording.sha256 for recording in recordings], windows)
    start_s = np.arange(len(names), dtype=float)
    vectors = np.zeros((len(names), 1), np.float32)
    return Background(recordings, make_windows(names, start_s, 1.0, vectors), 1.0, 1.0)


def number_parts(background):
    """Return the part of each window; each must be in exactly one."""
    parts = np.array(list(split_background(background)))
    np.testing.assert_array_equal(parts.sum(axis=0), 1)
    assert 2 <= len(parts) <= MAX_PARTS
    return parts.argmax(axis=0)


def find_divided(part, groups):
    """Return the groups whose windows are in more than one part."""
    return [g for g in np.unique(groups) if len(np.unique(part[groups == g])) > 1]


@pytest.mark.parametrize("recordings", [2, 9, 11])
@pytest.mark.parametrize("has_places", [True, False])
def test_whole_recordings_are_held_out_whatever_their_number(recordings, has_places):
    places = None if has_places else ["."] * recordings
    background = make_background([7] * recordings, places)
    part = number_parts(background)
    assert find_divided(part, background.number) == []
    assert part.max() + 1 == min(recordings, MAX_PARTS)


@pytest.mark.parametrize("sites", [2, 3, 12])
def test_whole_places_are_held_out(sites):
    names = [f"site{n % sites}" for n in range(24)]
    background = make_background([5] * 24, names)
    part = number_parts(background)
    place = np.array(names)[background.number]
    assert find_divided(part, place) == []


def test_a_place_with_most_windows_is_divided_into_recordings():
    names = ["long"] * 6 + ["short"] * 2
    background = make_background([10] * 8, names)
    part = number_parts(background)
    place = np.array(names)[background.number]
    assert find_divided(part, place) == ["long"]
    assert find_divided(part, background.number) == []


def test_a_recording_with_most_windows_is_divided_into_stretches():
    """Otherwise a few windows of another one would decide what its scores are."""
    background = make_background([500, 4, 6])
    part = number_parts(background)
    assert find_divided(part, background.number) == [0]
    largest = np.bincount(part).max()
    assert largest < 250
    alone = number_parts(make_background([20]))
    np.testing.assert_array_equal(np.bincount(alone), [4, 4, 4, 4, 4])


@pytest.mark.parametrize("windows", [[1, 1], [2], [3], [1, 2], [1, 1, 1]])
def test_few_windows_can_be_held_out(windows):
    number_parts(make_background(windows))


def test_recordings_without_labels_are_held_out_as_recordings():
    """They are what is scanned, so a new place is not expected."""
    background = make_background([9] * 12, ["a", "b"] * 6, "unlabelled")
    part = number_parts(background)
    assert find_divided(part, background.number) == []
    assert part.max() + 1 == MAX_PARTS


def test_two_large_places_are_in_parts_of_their_own():
    background = make_background([450, 25, 25, 25, 25, 450])
    part = number_parts(background)
    assert np.bincount(part).max() == 450
    assert find_divided(part, background.number) == []
