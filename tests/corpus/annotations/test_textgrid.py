"""Praat TextGrids: both forms, all encodings, the choice of tiers, and broken files."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.corpus.annotations import AnnotationOptions, recognise
from callshot.errors import InputError, OptionError
from rows_of_spans import Annotation, read_annotations

DATA = Path(__file__).parents[3].parent / "shared" / "data"
Tiers = dict[str, Sequence[tuple[Any, ...]]]
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "latin-1")
CALLS: Tiers = {
    "call": [
        (0.0, 1.0, ""),
        (1.0, 2.5, "rumble"),
        (2.5, 3.0, " "),
        (3.0, 4.0, 'a "deep"\nröar ! 7'),
    ],
    "notes": [(0.0, 1.5, "wind"), (1.5, 2.0, "car"), (2.0, 4.0, "")],
    "marks": [(0.5, "x"), (1.0, "on"), (2.0, "click"), (2.5, "off")],
}


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def format_textgrid(tiers, *, short=False):
    """Write a TextGrid as Praat does; a tier of pairs is one of points."""
    lines = [
        'File type = "ooTextFile"',
        '"TextGrid"' if short else 'Object class = "TextGrid"',
        "",
    ]

    def add_line(name, value):
        lines.append(f"{value}" if short else f"    {name} = {value} ")

    add_line("xmin", 0)
    add_line("xmax", 100)
    lines.append("<exists>" if short else "tiers? <exists> ")
    add_line("size", len(tiers))
    lines.extend([] if short else ["item []: "])
    for i, (name, entries) in enumerate(tiers.items(), start=1):
        points = bool(entries) and len(entries[0]) == 2
        lines.extend([] if short else [f"    item [{i}]:"])
        add_line("class", quoted("TextTier" if points else "IntervalTier"))
        add_line("name", quoted(name))
        add_line("xmin", 0)
        add_line("xmax", 100)
        add_line("points: size" if points else "intervals: size", len(entries))
        for j, (*times, text) in enumerate(entries, start=1):
            lines.extend(
                []
                if short
                else [f"        {'points' if points else 'intervals'} [{j}]:"]
            )
            for key, value in zip(
                ("number",) if points else ("xmin", "xmax"), times, strict=True
            ):
                add_line(key, value)
            add_line("mark" if points else "text", quoted(text))
    return "\n".join(lines) + "\n"


def read(folder, text, **annotation_options):
    path = folder / "x.TextGrid"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_annotations(path, "textgrid", AnnotationOptions(**annotation_options))


def facts(annotation_file):
    return [(one.start_s, one.end_s, one.label) for one in annotation_file.annotations]


@pytest.mark.parametrize(
    ("short", "encoding"), [*zip((False, True, True, False), ENCODINGS, strict=True)]
)
def test_both_forms_are_read_in_every_encoding(short, encoding, tmp_path):
    annotation_file = read(
        tmp_path, format_textgrid(CALLS, short=short).encode(encoding)
    )
    assert facts(annotation_file) == [
        (1.0, 2.5, "rumble"),
        (3.0, 4.0, 'a "deep"\nröar ! 7'),
    ]
    assert [one.extra for one in annotation_file.annotations] == [
        {"tier notes": "wind; car", "tier marks": "on; click"},
        {},
    ]
    assert annotation_file.rejects == []
    note = "tiers read: 'call', by name; not 'notes', 'marks' (--tiers chooses others)"
    assert annotation_file.notes[-1] == note
    is_known = recognise(tmp_path / "x.TextGrid")
    assert is_known is not None
    assert is_known[0].name == "textgrid"


def test_the_row_is_the_line_of_the_first_number(tmp_path):
    for end in ("\n", "\r\n", "\r"):
        text = format_textgrid(CALLS)
        annotation_file = read(tmp_path, text.replace("\n", end))
        lines = text.split("\n")
        assert lines[annotation_file.annotations[0].row - 1].strip() == "xmin = 1.0"
        points = read(tmp_path, text.replace("\n", end), tiers=("marks",))
        assert lines[points.rejects[0].row or 0].strip() == 'mark = "x"'


def test_spacing_and_comments_do_not_matter(tmp_path):
    text = (
        'File type = "ooTextFile" "TextGrid" 0 9 <exists> ! "not" 5 a tier\n'
        '1 "IntervalTier"\t"call"0 9 2 '
        '0 1"a"  1 2 ! 3\n "b"'
    )
    annotation_file = read(tmp_path, text)
    assert facts(annotation_file) == [(0.0, 1.0, "a"), (1.0, 2.0, "b")]
    assert (
        read(tmp_path, 'File type = "ooTextFile" "TextGrid" 0 9 <absent>').annotations
        == []
    )


def test_all_tiers_with_the_given_name_are_read(tmp_path):
    text = format_textgrid(
        {"a": [(0, 1, "x")], "b": [(1, 2, "y")], "c": [(0, 2, "z")]}
    ).replace('"b"', '"A"')
    annotation_file = read(tmp_path, text, tiers=("a",))
    assert facts(annotation_file) == [(0.0, 1.0, "x"), (1.0, 2.0, "y")]
    assert [one.extra for one in annotation_file.annotations] == [
        {"tier": "a", "tier c": "z"},
        {"tier": "A", "tier c": "z"},
    ]
    with pytest.raises(InputError, match="no tier 'cals'; did you mean call"):
        read(tmp_path, format_textgrid(CALLS), tiers=("cals",))


def test_of_several_given_tiers_one_must_exist(tmp_path):
    tiers: Tiers = {
        "call": [(0, 2, "roar")],
        "call 2": [(1, 3, "rumble")],
        "notes": [(0, 3, "wind")],
    }
    assert facts(read(tmp_path, format_textgrid(tiers), tiers=("call", "Call 2"))) == [
        (0.0, 2.0, "roar"),
        (1.0, 3.0, "rumble"),
    ]
    del tiers["call 2"]
    assert facts(read(tmp_path, format_textgrid(tiers), tiers=("call", "Call 2"))) == [
        (0.0, 2.0, "roar")
    ]


def test_known_labels_choose_the_tier(tmp_path):
    tiers: Tiers = {
        "words": [(0, 1, "rumble"), (1, 2, "says")],
        "calls": [(0, 1, "roar"), (1, 2, "rumble")],
    }
    is_known = {"rumble", "roar"}.__contains__
    annotation_file = read(tmp_path, format_textgrid(tiers), is_known_label=is_known)
    assert facts(annotation_file) == [(0.0, 1.0, "roar"), (1.0, 2.0, "rumble")]
    assert "2 labels of 2 on tier 'calls' known to the corpus" in annotation_file.notes
    some_known = read(
        tmp_path,
        format_textgrid({"a": tiers["words"], "b": [(0, 1, "none")]}),
        is_known_label=is_known,
    )
    assert "tiers read: 'a'" in some_known.notes
    none_known = read(
        tmp_path, format_textgrid(tiers), is_known_label={"bark"}.__contains__
    )
    assert (
        "tiers read: 'calls', by name; not 'words' (--tiers chooses others)"
        in none_known.notes
    )
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
    annotation_file = read(tmp_path, format_textgrid(tiers))
    names = ", ".join(map(repr, chosen))
    assert (
        annotation_file.notes[-1].partition(";")[0].startswith(f"tiers read: {names}")
    )
    expected = sum(len(tiers[name]) for name in chosen)
    assert len(annotation_file.annotations) == expected


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
    annotation_file = read(
        tmp_path_factory.mktemp("grid"), format_textgrid(tiers), tiers=("call",)
    )
    for annotation in annotation_file.annotations:
        assert annotation.end_s is not None
        overlapping = [
            text
            for start, end, text in tiers["other"]
            if start < annotation.end_s and end > annotation.start_s
        ]
        marks = [
            text
            for time_s, text in points
            if annotation.start_s <= time_s < annotation.end_s
        ]
        expected = {
            "tier other": "; ".join(overlapping),
            "tier marks": "; ".join(marks),
        }
        assert annotation.extra == {
            name: text for name, text in expected.items() if text
        }


VALID = format_textgrid({"call": [(0.0, 1.0, "a"), (1.0, 2.5, "b")]})


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (
            "size = 2",
            "size = 3",
            "line 23: expected the number, got the end of the file",
        ),
        (
            "size = 2",
            "size = 1",
            "line 20: expected the end of the file, got the number '1.0'",
        ),
        (
            "size = 2",
            "size = -2",
            "line 14: expected a number of tiers or entries, got '-2'",
        ),
        ("size = 2", f"size = {'9' * 5000}", "line 14: expected a number of tiers or"),
        ('"b"', '"b', "line 22: the quote that opens here is never closed"),
        ('"b"', "b", "line 23: expected the text, got the end of the file"),
        ("xmax = 2.5", "xmax = two", "line 22: expected the number, got the text 'b'"),
        (
            "IntervalTier",
            "PitchTier",
            "line 10: expected IntervalTier or TextTier, got 'PitchTier'",
        ),
        ('class = "TextGrid"', 'class = "Pitch"', "line 2: expected a TextGrid"),
        ("<exists>", "", "line 7: expected the flag, got the number '1'"),
    ],
)
def test_a_broken_file_is_an_error_with_its_line(old, new, match, tmp_path):
    assert old in VALID
    with pytest.raises(InputError) as caught:
        read(tmp_path, VALID.replace(old, new))
    assert match.partition(": ")[2] in str(caught.value)
    assert str(caught.value).startswith(
        f"{tmp_path / 'x.TextGrid'}: {match.partition(':')[0]}: "
    )


def test_impossible_times_are_rejects(tmp_path):
    annotation_file = read(
        tmp_path,
        format_textgrid(
            {
                "call": [
                    (-1, 1, "a"),
                    (2, 1, "b"),
                    (1, "1e999", "c"),
                    (3, 3, "d"),
                    (3, 4, "e"),
                ]
            }
        ),
    )
    assert facts(annotation_file) == [(3.0, 4.0, "e")]
    assert len(annotation_file.rejects) == 4


@pytest.mark.parametrize(
    "filler",
    ['""', "! ", "<a ", '"a" 1 ', "1" * 50],
    ids=repr,
)
def test_long_repetitive_files_are_read_or_raise_input_error(filler, tmp_path):
    """A parser of quadratic time would not finish."""
    with suppress(InputError):
        read(tmp_path, VALID + filler * (400_000 // len(filler)) + '"')


@pytest.mark.parametrize(("short", "encoding"), [(False, "utf-8"), (True, "utf-16")])
def test_the_finch_songs_are_read_back_as_crowsetta_reads_them(
    short, encoding, tmp_path
):
    source = DATA / "finch" / "annotations.csv"
    if not source.exists():
        pytest.skip("the finch songs of shared/data are not here")
    finch = read_annotations(source).annotations
    copies: list[Annotation] = []
    for recording in dict.fromkeys(one.path for one in finch):
        tier = [
            (one.start_s, one.end_s, one.label)
            for one in finch
            if one.path == recording
        ]
        grid = read(
            tmp_path, format_textgrid({"syllables": tier}, short=short).encode(encoding)
        )
        copies += [replace(one, path=recording) for one in grid.annotations]
        assert facts(grid) == read_with_crowsetta(tmp_path / "x.TextGrid")
    assert len(copies) == 601
    assert [(one.path, one.start_s, one.end_s, one.label) for one in copies] == [
        (one.path, one.start_s, one.end_s, one.label) for one in finch
    ]


def read_with_crowsetta(path):
    formats = pytest.importorskip("crowsetta.formats")
    (tier,) = formats.by_name("textgrid").from_file(path).tiers
    return [(one.xmin, one.xmax, one.text) for one in tier.intervals]
