import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.report.figures.figure_io import open_figure
from callshot.report.figures.layout import (
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


def test_a_long_name_keeps_both_ends():
    assert shorten("$5 <b>roar</b>", 100) == "$5 <b>roar</b>"
    assert shorten(LONG, 110) == "a rumble of a…ard from afar"
    short = shorten("x" * 30 + "y" * 30, 60)
    assert (short[:2], short[-2:], short.count("…")) == ("xx", "yy", 1)


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
        assert len(set(shorten_all(names, 60))) == len(
            {clean_name(name) for name in names}
        )


def test_names_that_differ_only_in_their_middle_are_numbered():
    names = [f"{'x' * 30}{letter}{'y' * 30}" for letter in "ab"]
    assert [name[:3] for name in shorten_all(names, 60)] == ["1 x", "2 x"]


def test_a_title_breaks_once_at_a_space():
    assert wrap("greeting rumble of two", 70) == "greeting rumble\nof two"
    assert wrap("short", 70) == "short"
    assert "\n" not in wrap("x" * 60, 70)
    assert wrap(LONG, 70).count("\n") == 1


def test_control_characters_and_line_breaks_are_replaced():
    assert clean_name("a\nb\tc\x1b\ud800d象") == "a b c��d象"
