from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from callshot.report.figures.figure_io import open_figure
from callshot.report.figures.layout import (
    TICK_FONT,
    axis_limits,
    choose_ticks,
    text_width_pt,
)


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=60, unique=True).map(sorted),
    st.floats(40, 450),
)
def test_labels_of_shots_never_touch(shots, room):
    with open_figure():
        ticks = choose_ticks(shots, room)
        pitch = room / max(len(shots) + 0.5, 2)
        labels = [
            (tick * pitch, text_width_pt(str(shots[tick]), TICK_FONT) / 2)
            for tick in ticks
        ]
        assert ticks[0] == 0
        for (left, left_half), (right, right_half) in pairwise(labels):
            assert right - right_half > left + left_half


def test_an_axis_has_a_margin_within_its_ends():
    assert np.allclose(axis_limits([0.2, 0.7, float("nan")]), (0.17, 0.73))
    assert axis_limits([0.0, 1.0]) == (-0.02, 1.02)
    assert np.allclose(axis_limits([0.5]), (0.45, 0.55))
