from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.report.figures.figure_io import open_figure
from callshot.report.figures.layout import (
    TICK_FONT,
    axis_limits,
    choose_ticks,
    clean_name,
    shorten,
    shorten_all,
    text_width_pt,
    wrap,
)

LONG = "a rumble of a female with calves, at the water, heard from afar"


@pytest.fixture(autouse=True)
def style():
    with open_figure():
        yield


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
    assert axis_limits([float("nan")]) == (-0.02, 1.02)


@settings(max_examples=25)
@given(st.text(min_size=1, max_size=70), st.floats(30, 200))
def test_a_shortened_name_fits(name, room):
    with open_figure():
        short = shorten(name, room)
        assert text_width_pt(short) <= room or len(short) <= 2
        assert short.isprintable()


@settings(max_examples=25)
@given(
    st.lists(
        st.text("ab …x", min_size=1, max_size=70), min_size=2, max_size=8, unique=True
    )
)
def test_different_names_stay_different(names):
    with open_figure():
        different = {clean_name(name) for name in names}
        assert len(set(shorten_all(names, 60))) == len(different)


def test_names_keep_their_ends_and_are_numbered_where_these_are_equal():
    assert shorten("$5 <b>roar</b>", 100) == "$5 <b>roar</b>"
    assert shorten(LONG, 110) == "a rumble of a…ard from afar"
    names = [f"{'x' * 30}{letter}{'y' * 30}" for letter in "ab"]
    assert [name[:3] for name in shorten_all(names, 60)] == ["1 x", "2 x"]
    assert clean_name("a\nb\tc\x1b\ud800d象") == "a b c��d象"


def test_a_title_breaks_once_at_a_space():
    assert wrap("greeting rumble of two", 70) == "greeting rumble\nof two"
    assert wrap("short", 70) == "short"
    assert "\n" not in wrap("x" * 60, 70)
    assert wrap(LONG, 70).count("\n") == 1
