"""Equal contents in several recordings, and summaries of samples."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.records.duplicates import (
    describe_duplicates,
    find_duplicates,
    find_equal_vectors,
    group_recordings,
)
from callshot.records.frames import PERCENTILE_NAMES, PERCENTILES, summarise_samples
from callshot.vectors import Vectors

CONTENT = st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcd")), max_size=12)


def make_table(vectors: list[list[float]], recording: list[str]) -> Vectors:
    names = [f"s{n}" for n in range(len(recording))]
    label = ["roar"] * len(recording)
    return Vectors.from_columns(
        "e", vectors, names, recording, label, [()] * len(recording)
    )


@given(CONTENT)
def test_two_segments_share_a_group_if_their_content_is_in_two_recordings(pairs):
    content = [content for content, _ in pairs]
    recording = [name for _, name in pairs]
    groups = find_duplicates(content, recording)
    for i, group in enumerate(groups):
        twins = [j for j in range(len(pairs)) if content[j] == content[i]]
        is_duplicate = any(recording[j] != recording[i] for j in twins)
        assert (group >= 0) == is_duplicate
        if is_duplicate:
            assert np.flatnonzero(groups == group).tolist() == twins
    assert set(groups) - {-1} == set(range(groups.max(initial=-1) + 1))


def literal_parts(recording, groups):
    """Return the recordings that are kept together, by merging sets until none overlap."""
    parts = [{name} for name in set(recording)]
    for rows in groups:
        for number in set(rows.tolist()) - {-1}:
            joined = {recording[row] for row in np.flatnonzero(rows == number)}
            touched = [part for part in parts if part & joined]
            parts = [part for part in parts if not part & joined]
            parts.append(set().union(joined, *touched))
    return parts


@given(CONTENT.filter(bool), CONTENT.filter(bool))
def test_recordings_that_share_a_group_are_one_also_over_others(one, two):
    count = min(len(one), len(two))
    recording = [name for _, name in one[:count]]
    groups = [
        find_duplicates([content for content, _ in pairs[:count]], recording)
        for pairs in (one, two)
    ]
    merged = group_recordings(recording, groups)
    for part in literal_parts(recording, groups):
        rows = [row for row in range(count) if recording[row] in part]
        names = {merged[row] for row in rows}
        first = min(part)
        expected = first if len(part) == 1 else f"{first} and {len(part) - 1} more"
        assert names == {expected}


def test_vectors_are_equal_to_the_last_bit_and_minus_zero_is_zero():
    vectors = [[0.0, 1.0], [-0.0, 1.0], [0.0, 1.0 + 1e-15], [0.0, 1.0]]
    table = make_table(vectors, ["a", "b", "c", "a"])
    assert find_equal_vectors(table).tolist() == [0, 0, -1, 0]


def test_no_duplicates_give_no_note():
    groups = np.array([-1, -1])
    assert list(describe_duplicates(groups, ["a", "b"], "audio")) == []


@pytest.mark.parametrize("count", [1, 2, 3, 8, 101, 1000])
def test_percentiles_are_those_of_numpy(count):
    rng = np.random.default_rng(count)
    samples = rng.normal(size=(20, count))
    samples[5:10] = np.round(samples[5:10], 1)
    samples[10, 0] = np.nan
    found = summarise_samples(samples)
    expected = np.percentile(samples, PERCENTILES, axis=1)
    for name, values in zip(PERCENTILE_NAMES, expected, strict=True):
        np.testing.assert_array_equal(found[name], values)
