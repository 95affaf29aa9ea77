"""Matching of events: as many pairs as a maximum matching, at every threshold."""

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from callshot.detection.matching import UNMATCHED, find_partners, match_events
from literal_matching import literal_iou

TIMES = st.tuples(st.integers(0, 30), st.integers(1, 12))
SPANS = st.lists(TIMES, max_size=12)


def make_spans(pairs):
    spans = [(start / 2, start / 2 + length / 2) for start, length in pairs]
    return np.array(spans, np.float64).reshape(-1, 2)


def make_frame(spans):
    times = {"start_s": spans[:, 0], "end_s": spans[:, 1]}
    return pl.DataFrame(times).with_columns(recording=pl.lit("a.wav"))


def match(detections, annotations, min_iou):
    frames = make_frame(detections), make_frame(annotations)
    return match_events(find_partners(*frames, min_iou))


def literal_fits(detections, annotations, min_iou):
    return [
        [literal_iou(one, other) >= min_iou for other in annotations]
        for one in detections
    ]


@given(SPANS, SPANS, st.sampled_from([0.01, 0.3, 0.5, 1.0]))
def test_at_every_threshold_as_many_are_matched_as_scipy_matches(
    first, second, min_iou
):
    detections = make_spans(first)
    annotations = make_spans(second)
    fits = literal_fits(detections, annotations, min_iou)
    matches = match(detections, annotations, min_iou)
    for count in range(1, len(detections) + 1):
        table = np.array(fits[:count], bool).reshape(count, len(annotations))
        partners = maximum_bipartite_matching(csr_array(table), perm_type="column")
        assert np.sum(matches[:count] != UNMATCHED) == np.sum(partners >= 0)
    pairs = [(i, j) for i, j in enumerate(matches.tolist()) if j != UNMATCHED]
    assert all(fits[i][j] for i, j in pairs)
    assert len({j for _, j in pairs}) == len(pairs)


def test_a_detection_gives_way_to_another_that_has_no_choice():
    # The first fits both annotations, the second only the first of them.
    detections = np.array([[0.0, 4.0], [0.0, 2.0]])
    annotations = np.array([[0.0, 2.5], [2.0, 4.5]])
    assert match(detections, annotations, 0.3).tolist() == [1, 0]


def test_spans_that_only_touch_or_are_of_other_recordings_share_nothing():
    detections = make_frame(np.array([[0.0, 1.0], [0.0, 1.0]]))
    annotations = make_frame(np.array([[1.0, 2.0], [0.0, 1.0]]))
    assert find_partners(detections, annotations, 1e-9) == [[1], [1]]
    elsewhere = annotations.with_columns(recording=pl.lit("b.wav"))
    assert find_partners(detections, elsewhere, 1e-9) == [[], []]


def test_a_long_chain_of_overlapping_events_is_matched():
    count = 3000
    starts = np.arange(count, dtype=np.float64)
    detections = np.stack([starts, starts + 2], axis=1)
    annotations = detections + 0.9
    assert (match(detections, annotations, 0.3) != UNMATCHED).all()
