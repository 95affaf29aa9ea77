"""Tables of segments, rejects and categories are read back as they were written."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.corpus.segment_table import (
    SCHEMA,
    read_rejects,
    read_segments,
    write_rejects,
)
from callshot.errors import InputError
from callshot.records import Reject
from callshot.records.table_files import write_parquet
from rows_of_spans import make_row, make_spans

ROAR = make_row(
    "a/x.wav",
    1.0,
    3.0,
    segment="x@1-3",
    recording="x",
    collar_s=0.25,
    labels=["blow", "roar"],
    peak_dbfs=-3.0,
)
BLOW = ROAR | {
    "segment": "x@4-6",
    "label": "blow",
    "labels": ["blow"],
    "peak_dbfs": None,
    "source_rate_hz": 384000.0,
}
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


def write_rows(rows, path, metadata=None):
    write_parquet(make_spans(rows).frame, path, metadata)


def read_rows(path):
    return list(read_segments(path).rows())


def test_segments_and_metadata_are_read_back(tmp_path):
    path = tmp_path / "segments.parquet"
    write_rows([ROAR, BLOW], path, {"corpus": "mine", "folds": "5"})
    metadata = read_segments(path).metadata
    whole = {"passband_hz": None}
    assert read_rows(path) == [ROAR | whole, BLOW | whole]
    assert (metadata["corpus"], metadata["folds"]) == ("mine", "5")


def test_other_columns_keep_their_names_and_types(tmp_path):
    path = tmp_path / "segments.parquet"
    extra = [
        {"fold": 1, "low_freq_hz": 10.5, "caller": "007", "mixed": 1},
        {"fold": -1, "low_freq_hz": 12, "mixed": "two"},
    ]
    write_rows([ROAR | extra[0], BLOW | extra[1]], path)
    frame = pl.read_parquet(path)
    assert frame.schema == {
        **SCHEMA,
        "fold": pl.Int64,
        "low_freq_hz": pl.Float64,
        "caller": pl.String,
        "mixed": pl.String,
    }
    assert frame["caller"].to_list() == ["007", None]
    segments = read_segments(path)
    assert segments["fold"] == [1, -1]
    assert segments["mixed"] == ["1", "two"]


def test_a_table_without_segments_has_all_columns(tmp_path):
    write_rows([], tmp_path / "segments.parquet")
    assert pl.read_parquet(tmp_path / "segments.parquet").schema == SCHEMA
    assert read_rows(tmp_path / "segments.parquet") == []


@given(
    TEXT, st.lists(TEXT, min_size=1, max_size=3), st.floats(0, 1e6), st.floats(0, 1e6)
)
@settings(max_examples=20)
def test_any_text_and_time_is_read_back(
    tmp_path_factory, label, labels, start_s, end_s
):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    times = {"start_s": start_s, "end_s": end_s}
    segment = ROAR | {"label": label, "labels": labels} | times
    write_rows([segment], path)
    assert read_rows(path) == [segment | {"passband_hz": None}]


OUTSIDE = ["../x.wav", "/etc/x.wav", "a/../../x.wav", "C:\\x.wav", "\\\\server\\x.wav"]


@pytest.mark.parametrize("path", [*OUTSIDE, "..", ".", "", "a\0.wav"])
def test_a_path_that_leads_outside_the_audio_folder_is_an_error(tmp_path, path):
    write_rows([ROAR, ROAR | {"path": path}], tmp_path / "segments.parquet")
    message = r"segments\.parquet: column path, row 2: expected a path inside"
    with pytest.raises(InputError, match=message):
        read_segments(tmp_path / "segments.parquet")


@pytest.mark.parametrize("name", ["path", "labels", "rate_hz"])
def test_a_column_that_is_missing_empty_or_of_another_type_is_an_error(tmp_path, name):
    path = tmp_path / "segments.parquet"
    write_rows([ROAR, BLOW], path)
    frame = pl.read_parquet(path)
    is_roar = pl.col("label") == "roar"
    for changed, message in (
        (frame.drop(name), f"column {name} is missing"),
        (
            frame.with_columns(pl.when(is_roar).then(name)),
            f"column {name}, row 2: expect",
        ),
        (
            frame.with_columns(pl.lit(0.5).alias(name)),
            f"column {name}: expected .*Float64",
        ),
    ):
        changed.write_parquet(path)
        with pytest.raises(InputError, match=message):
            read_segments(path)


def test_rejects_are_read_back_and_another_file_is_an_error(tmp_path):
    path = tmp_path / "rejects.csv"
    rejects = [
        Reject('say "a".txt', 3, "too\nshort, really"),
        Reject("b.txt", None, "empty"),
    ]
    write_rejects(rejects, path)
    assert read_rejects(path) == rejects
    write_rejects([], path)
    assert read_rejects(path) == []
    path.write_text("label,category\na,b\n")
    with pytest.raises(InputError, match=r"expected the rejects\.csv of a run"):
        read_rejects(path)
