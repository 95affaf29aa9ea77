"""Files of events: every row is an event or a reject."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from callshot.detection.events import (
    complete_events,
    open_recordings,
    read_events,
    rename_recordings,
)
from callshot.detection.exports import export_events
from callshot.errors import InputError
from recordings_with_events import make_events, make_recordings


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def test_confidence_is_a_score_and_missing_numbers_are_null(tmp_path):
    header = "recording,start_s,end_s,label,Confidence"
    path = write(tmp_path / "d.csv", header, "a.wav,0,1,roar,0.5", "a.wav,2,3,roar,NA")
    assert read_events(path).events["score"].to_list() == [0.5, None]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_that_are_not_known_are_kept_and_written_again(tmp_path, suffix):
    path = tmp_path / f"events.{suffix}"
    frame = make_events().with_columns(observer=pl.lit("Ada"))
    write = frame.write_csv if suffix == "csv" else frame.write_parquet
    write(path)
    events = read_events(path).events
    assert_frame_equal(events, frame)
    file, _ = export_events(events, "csv", tmp_path / "out")
    assert_frame_equal(read_events(file).events, frame)


def test_a_row_with_a_wrong_number_or_verdict_is_a_reject(tmp_path):
    header = "recording,start_s,end_s,label,score,confirmed"
    rows = ["a.wav,0,1,roar,high,yes", "a.wav,2,3,roar,1,maybe", "a.wav,4,5,roar,1,No"]
    reading = read_events(write(tmp_path / "d.csv", header, *rows))
    assert [(reject.row, reject.reason) for reject in reading.rejects] == [
        (1, "score: expected a number, got 'high'"),
        (2, "confirmed: expected yes or no, got 'maybe'"),
    ]
    assert reading.events["confirmed"].to_list() == [False]


def test_files_that_name_no_recording_need_the_folder_of_recordings(tmp_path):
    track = write(tmp_path / "labels" / "a.txt", "0.5\t2.5\troar")
    with pytest.raises(InputError, match=r"a\.txt: row 1: .*\(--recordings\)"):
        read_events(track)
    folder = open_recordings(make_recordings(tmp_path / "audio"))
    assert read_events(track.parent, folder).events["recording"].to_list() == ["a.wav"]


@pytest.mark.parametrize("has_folder", [False, True])
def test_a_table_without_rows_has_no_events(tmp_path, has_folder):
    path = write(tmp_path / "d.csv", "recording,start_s,end_s,label")
    audio = make_recordings(tmp_path / "audio")
    folder = open_recordings(audio) if has_folder else None
    assert read_events(path, folder).events.is_empty()


def test_events_beyond_the_end_of_a_recording_are_rejects(tmp_path):
    folder = open_recordings(make_recordings(tmp_path / "audio"))
    header = "recording,start_s,end_s,label"
    path = write(tmp_path / "d.csv", header, "a.wav,9,10,roar", "a.wav,50,51,roar")
    reading = read_events(path, folder)
    assert len(reading.events) == 1
    assert "is beyond the end of a.wav" in reading.rejects[0].reason


def test_a_damaged_or_incomplete_parquet_file_is_an_error(tmp_path):
    path = tmp_path / "d.parquet"
    path.write_bytes(b"PAR1 but no table PAR1")
    with pytest.raises(InputError, match="cannot be read"):
        read_events(path)
    make_events().drop("label").write_parquet(path)
    with pytest.raises(InputError, match="column label is missing"):
        read_events(path)
    make_events().with_columns(score=pl.lit("high")).write_parquet(path)
    with pytest.raises(InputError, match="a column has the wrong type"):
        read_events(path)


def test_rows_of_parquet_files_are_checked(tmp_path):
    path = tmp_path / "d.parquet"
    starts = pl.Series([0.1, None, 7.123456, 20.0])
    make_events().with_columns(start_s=starts).write_parquet(path)
    reading = read_events(path)
    assert [reject.row for reject in reading.rejects] == [2, 4]
    assert len(reading.events) == 2


def test_a_folder_without_events_or_recordings_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no file of events found"):
        read_events(tmp_path)
    with pytest.raises(InputError, match="no recordings found"):
        open_recordings(tmp_path)


def test_a_frame_of_the_user_gets_the_columns_that_it_lacks():
    events = complete_events(
        make_events().select("label", "end_s", "start_s", "recording")
    )
    assert events.columns == make_events().columns
    assert events["score"].null_count() == len(events)


def test_names_that_fit_two_recordings_are_kept():
    events = make_events().head(1)
    renamed = rename_recordings(events, ["1/a.wav", "2/a.wav"])
    assert renamed["recording"].to_list() == ["a.wav"]


@pytest.mark.parametrize("has_folder", [True, False])
def test_space_around_a_label_is_not_part_of_it(tmp_path, has_folder):
    header = "recording,start_s,end_s,label"
    path = write(tmp_path / "d.csv", header, "a.wav,0,1,roar", "a.wav,2,3,roar ")
    folder = None
    if has_folder:
        folder = open_recordings(make_recordings(tmp_path / "audio"))
    assert read_events(path, folder).events["label"].to_list() == ["roar", "roar"]
