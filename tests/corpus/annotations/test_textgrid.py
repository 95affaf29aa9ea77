"""Praat TextGrids: both forms, all encodings, the choice of tiers, and broken files."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.corpus.annotations import AnnotationOptions
from callshot.errors import InputError, OptionError
from files_of_other_tools import format_textgrid
from rows_of_spans import list_calls, read_annotations

Tiers = dict[str, Sequence[tuple[Any, ...]]]
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "latin-1")
DEEP = 'a "deep"\nröar ! 7'
CALLS: Tiers = {
    "call": [(0.0, 1.0, ""), (1.0, 2.5, "rumble"), (2.5, 3.0, " "), (3.0, 4.0, DEEP)],
    "notes": [(0.0, 1.5, "wind"), (1.5, 2.0, "car"), (2.0, 4.0, "")],
    "marks": [(0.5, "x"), (1.0, "on"), (2.0, "click"), (2.5, "off")],
}


def read(folder, text, **options):
    path = folder / "x.TextGrid"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_annotations(path, "textgrid", AnnotationOptions(**options))


def list_entries(file):
    return [call[1:] for call in list_calls(file)]


@pytest.mark.parametrize(
    ("short", "encoding"), [*zip((False, True, True, False), ENCODINGS, strict=True)]
)
def test_both_forms_are_read_in_every_encoding(short, encoding, tmp_path):
    file = read(tmp_path, format_textgrid(CALLS, short=short).encode(encoding))
    assert list_entries(file) == [(1.0, 2.5, "rumble"), (3.0, 4.0, DEEP)]
    others = {"tier notes": "wind; car", "tier marks": "on; click"}
    assert [one.extra for one in file.annotations] == [others, {}]
    assert file.rejects == []
    note = "tiers read: 'call', by name; not 'notes', 'marks' (--tiers chooses others)"
    assert file.notes[-1] == note


def test_the_row_is_the_line_of_the_first_number(tmp_path):
    for end in ("\n", "\r\n", "\r"):
        text = format_textgrid(CALLS)
        file = read(tmp_path, text.replace("\n", end))
        lines = text.split("\n")
        assert lines[file.annotations[0].row - 1].strip() == "xmin = 1.0"
        points = read(tmp_path, text.replace("\n", end), tiers=("marks",))
        assert lines[points.rejects[0].row or 0].strip() == 'mark = "x"'


def test_spacing_and_comments_do_not_matter(tmp_path):
    head = 'File type = "ooTextFile" "TextGrid" 0 9'
    text = f'{head} <exists> ! "not" 5 a tier\n1 "IntervalTier"\t"call"0 9 2 '
    file = read(tmp_path, text + '0 1"a"  1 2 ! 3\n "b"')
    assert list_entries(file) == [(0.0, 1.0, "a"), (1.0, 2.0, "b")]
    assert read(tmp_path, f"{head} <absent>").annotations == []


def test_all_tiers_with_the_given_name_are_read(tmp_path):
    tiers = {"a": [(0, 1, "x")], "b": [(1, 2, "y")], "c": [(0, 2, "z")]}
    text = format_textgrid(tiers).replace('"b"', '"A"')
    file = read(tmp_path, text, tiers=("a", "absent"))
    assert list_entries(file) == [(0.0, 1.0, "x"), (1.0, 2.0, "y")]
    names = [{"tier": name, "tier c": "z"} for name in "aA"]
    assert [one.extra for one in file.annotations] == names
    with pytest.raises(InputError, match="no tier 'cals'; did you mean call"):
        read(tmp_path, format_textgrid(CALLS), tiers=("cals",))


def test_known_labels_choose_the_tier(tmp_path):
    words = [(0, 1, "rumble"), (1, 2, "says")]
    calls = [(0, 1, "roar"), (1, 2, "rumble")]
    text = format_textgrid({"words": words, "calls": calls})
    is_known = {"rumble", "roar"}.__contains__
    file = read(tmp_path, text, is_known_label=is_known)
    assert list_entries(file) == [(0.0, 1.0, "roar"), (1.0, 2.0, "rumble")]
    assert "2 labels of 2 on tier 'calls' known to the corpus" in file.notes
    some = format_textgrid({"a": words, "b": [(0, 1, "none")]})
    some_known = read(tmp_path, some, is_known_label=is_known)
    assert "tiers read: 'a'" in some_known.notes
    none_known = read(tmp_path, text, is_known_label={"bark"}.__contains__)
    assert "tiers read: 'calls', by name; not 'words'" in none_known.notes[-1]
    assert "no tier has a known label" in none_known.notes


ONE = [(0, 2, "x"), (3, 4, "y")]


@pytest.mark.parametrize(
    ("tiers", "chosen"),
    [
        ({"x": ONE}, ["x"]),
        ({"caller": ONE, "call": ONE}, ["call"]),
        ({"caller": ONE, "call": []}, ["call"]),
        ({"Caller": ONE, "callType": ONE, "call": ONE}, ["callType"]),
        ({"call": ONE, "call 2": ONE, "notes": ONE}, ["call", "call 2"]),
        ({"ID": ONE, "Species": ONE}, ["Species"]),
        ({"Vocalisations": ONE, "labels": ONE, "call notes": ONE}, ["Vocalisations"]),
        ({"Mary": [], "John": ONE}, ["John"]),
        ({"Mary": [], "John": []}, ["Mary", "John"]),
    ],
    ids=repr,
)
def test_the_tier_with_call_types_is_known_by_its_name(tiers, chosen, tmp_path):
    file = read(tmp_path, format_textgrid(tiers))
    names = ", ".join(map(repr, chosen))
    assert file.notes[-1].partition(";")[0].startswith(f"tiers read: {names}")
    expected = sum(len(tiers[name]) for name in chosen)
    assert len(file.annotations) == expected


@pytest.mark.parametrize(
    "tiers",
    [
        {"Mary": ONE, "John": ONE},
        {"caller": ONE, "notes": ONE},
        {"type": ONE, "label": ONE},
    ],
    ids=repr,
)
def test_a_choice_that_is_not_clear_is_left_to_the_user(tiers, tmp_path):
    first, second = tiers
    match = f"not clear .*: '{first}' .*, '{second}' .* with --tiers '{first}', "
    with pytest.raises(OptionError, match=match):
        read(tmp_path, format_textgrid(tiers))
    assert read(tmp_path, format_textgrid(tiers), tiers=(second,)).annotations


numbers = st.integers(0, 12).map(float)
ordered = st.lists(
    st.tuples(numbers, st.sampled_from("abc")),
    max_size=6,
    unique_by=lambda pair: pair[0],
).map(sorted)


@given(one=ordered, two=ordered, points=ordered)
def test_overlapping_labels_are_those_of_a_plain_search(
    one, two, points, tmp_path_factory
):
    def intervals(pairs):
        return [(start, end, text) for (start, text), (end, _) in pairwise(pairs)]

    tiers: Tiers = {"call": intervals(one), "other": intervals(two), "marks": points}
    folder = tmp_path_factory.mktemp("grid")
    for call in read(folder, format_textgrid(tiers), tiers=("call",)).annotations:
        start_s, end_s = call.start_s, call.end_s
        others = [x for s, e, x in tiers["other"] if s < end_s and e > start_s]
        marks = [x for time_s, x in points if start_s <= time_s < end_s]
        texts = {"tier other": "; ".join(others), "tier marks": "; ".join(marks)}
        assert call.extra == {name: text for name, text in texts.items() if text}


VALID = format_textgrid({"call": [(0.0, 1.0, "a"), (1.0, 2.5, "b")]})


@pytest.mark.parametrize(
    ("old", "new", "line", "match"),
    [
        ("size = 2", "size = 3", 23, "expected the number, got the end of the file"),
        ("size = 2", "size = 1", 20, "expected the end of the file, got the number"),
        ("size = 2", "size = -2", 14, "expected a number of tiers or entries"),
        ("size = 2", f"size = {'9' * 5000}", 14, "expected a number of tiers or"),
        ('"b"', '"b', 22, "the quote that opens here is never closed"),
        ('"b"', "b", 23, "expected the text, got the end of the file"),
        ("xmax = 2.5", "xmax = two", 22, "expected the number, got the text 'b'"),
        ("IntervalTier", "PitchTier", 10, "expected IntervalTier or TextTier, got"),
        ('class = "TextGrid"', 'class = "Pitch"', 2, "expected a TextGrid"),
        ("<exists>", "", 7, "expected the flag, got the number '1'"),
    ],
)
def test_a_broken_file_is_an_error_with_its_line(old, new, line, match, tmp_path):
    assert old in VALID
    with pytest.raises(InputError, match=match) as caught:
        read(tmp_path, VALID.replace(old, new))
    place = f"{tmp_path / 'x.TextGrid'}: line {line}: "
    assert str(caught.value).startswith(place)


def test_impossible_times_are_rejects(tmp_path):
    times = [(-1, 1, "a"), (2, 1, "b"), (1, "1e999", "c"), (3, 3, "d"), (3, 4, "e")]
    file = read(tmp_path, format_textgrid({"call": times}))
    assert list_entries(file) == [(3.0, 4.0, "e")]
    assert len(file.rejects) == 4


@pytest.mark.parametrize("filler", ['""', "! ", "<a ", '"a" 1 ', "1" * 50], ids=repr)
def test_long_repetitive_files_are_read_or_raise_input_error(filler, tmp_path):
    """A parser of quadratic time would not finish."""
    with suppress(InputError):
        read(tmp_path, VALID + filler * (100_000 // len(filler)) + '"')
