"""New names for labels: the file, what is renamed, what is left out, and mistakes in the list."""

import pytest

from callshot.corpus.options import (
    make_annotation_options,
    normalize_label,
    read_renames,
    rename_label,
)
from callshot.corpus.segments import segment_corpus
from callshot.errors import InputError
from sounds import record


def write(folder, text, encoding="utf-8"):
    path = folder / "labels.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("label,new_label\nRmbl,rumble\nBröll,roar\nwind,\n", "utf-8"),
        ("Old;New\r\nRmbl;rumble\r\nBröll;roar\r\nwind;\r\n", "cp1252"),
        ("note\tLabel\tName\nx\tRmbl\trumble\n\tBröll\troar\n\twind\t\n", "utf-16"),
    ],
)
def test_the_file_is_read_as_spreadsheets_write_it(text, encoding, tmp_path):
    renames = read_renames(write(tmp_path, text, encoding))
    assert renames == {"Rmbl": "rumble", "Bröll": "roar", "wind": ""}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "line 1: expected the columns label and new_label, got none"),
        ("label,x\na,b\n", "line 1: expected the columns label and new_label"),
        ("label,new_label\na\n", "line 2: expected 2 fields as in the header, got 1"),
        ("label,new_label\na,b\na,c\n", "line 3: 'a' becomes 'c' here but 'b' above"),
    ],
)
def test_a_mistake_in_the_file_is_an_error_with_its_line(text, match, tmp_path):
    with pytest.raises(InputError, match=match):
        read_renames(write(tmp_path, text))


def test_calls_are_renamed_left_out_or_kept_as_they_are(tmp_path):
    record(tmp_path / "a.wav", seconds=9)
    rows = "0\t2\t Rmbl\n2\t4\troar\n4\t6\twind\n6\t8\trumble\n"
    (tmp_path / "a.txt").write_text(rows)
    path = write(tmp_path, "label,new_label\nRmbl,rumble\nwind,\nbark,x\n")
    result = segment_corpus(
        tmp_path, annotation_options=make_annotation_options(rename=path), check=False
    )
    assert result.segments["label"] == ["rumble", "roar", "rumble"]
    assert result.segments["label_written"][0] == " Rmbl"
    assert [one.reason for one in result.rejects] == [
        "left out: label 'wind' has no new label in --rename"
    ]
    assert result.notes == [
        "labels renamed: 'Rmbl', 'wind'",
        "labels to rename that no call has: 'bark'",
    ]
    assert result.skipped_files == []


def test_accents_may_be_composed_or_not():
    renames = {normalize_label("Bro\u0308ll"): "roar"}
    assert rename_label("Br\u00f6ll", renames) == "roar"
