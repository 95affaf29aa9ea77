"""Exports: every format is read back to the same events, also by crowsetta."""

import csv
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile
from polars.testing import assert_frame_equal

from callshot.detection.events import events_frame, open_recordings, read_events
from callshot.detection.exports import export_events
from callshot.errors import InputError, OptionError
from callshot.records.frames import EVENTS
from recordings_with_events import DURATIONS_S, RATE_HZ, make_events, make_recordings
from sounds import record

BAND = ["low_freq_hz", "high_freq_hz"]


@pytest.fixture
def folder(tmp_path):
    return open_recordings(make_recordings(tmp_path / "audio"))


def read_tsv(path):
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def fill_band(events):
    return events.with_columns(
        pl.col("low_freq_hz").fill_null(0.0),
        pl.col("high_freq_hz").fill_null(RATE_HZ / 2),
    )


SPAN = ["recording", "start_s", "end_s", "label"]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_tables_are_read_back_to_the_same_events(format, folder, tmp_path):
    file, _ = export_events(make_events(), format, tmp_path / "out", folder)
    for recordings in (None, folder):
        reading = read_events(file, recordings)
        assert reading.rejects == []
        assert_frame_equal(reading.events, make_events())


@pytest.mark.parametrize(
    ("format", "columns"),
    [
        ("raven", list(EVENTS)),
        ("raven-all", list(EVENTS)),
        ("audacity", [*SPAN, *BAND]),
        ("kaleidoscope", [*SPAN, "distance"]),
    ],
)
def test_tables_of_other_programs_are_read_back(format, columns, folder, tmp_path):
    export_events(make_events(), format, tmp_path / "out", folder)
    reading = read_events(tmp_path / "out", folder)
    assert reading.rejects == []
    expected = make_events()
    if format.startswith("raven"):
        expected = fill_band(expected)
    assert_frame_equal(reading.events.select(columns), expected.select(columns))


def test_kaleidoscope_has_its_columns(folder, tmp_path):
    file, _ = export_events(make_events(), "kaleidoscope", tmp_path / "out", folder)
    with file.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    names = "INDIR,FOLDER,IN FILE,CHANNEL,OFFSET,DURATION,DATE,TIME,HOUR,TOP1MATCH*,TOP1DIST"
    assert list(rows[0]) == names.split(",")
    name = "x 1.wav"
    times = ["7.123456", "1.876544", "", "", ""]
    expected = [str(tmp_path / "audio"), "b", name, "0", *times, "rumble", "2.25"]
    assert list(rows[2].values()) == expected


@pytest.mark.parametrize("has_folder", [True, False])
def test_kaleidoscope_has_the_clock_time_of_the_start_of_an_event(has_folder, tmp_path):
    name = "night/SM4_20260314_235950.wav"
    (tmp_path / "night").mkdir()
    soundfile.write(tmp_path / name, np.zeros(20 * 100), 100)
    clock = "2026-03-20T01:02:03.500+02:00"  # of a header, as a scan gives it
    starts = [(9.5, None), (10.25, None), (11.0, clock), (12.0, "dawn")]
    span = {"recording": name, "label": "roar", "end_s": 19.0}
    events = events_frame(
        span | {"start_s": start_s, "clock": clock} for start_s, clock in starts
    )
    folder = open_recordings(tmp_path) if has_folder else None
    file, _ = export_events(events, "kaleidoscope", tmp_path / "out", folder)
    with file.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["DATE"], row["TIME"], row["HOUR"]) for row in rows] == [
        ("2026-03-14", "23:59:59", "23"),
        ("2026-03-15", "00:00:00", "00"),
        ("2026-03-20", "01:02:03", "01"),
        ("2026-03-15", "00:00:02", "00"),
    ]


def test_one_table_for_all_has_times_for_both_ways_of_opening_it(folder, tmp_path):
    file, _ = export_events(make_events(), "raven-all", tmp_path / "out", folder)
    frames = {
        name: round(duration_s * RATE_HZ) for name, duration_s in DURATIONS_S.items()
    }
    begins_s = {}
    before = 0
    for name in sorted(frames):
        begins_s[name] = before / RATE_HZ
        before += frames[name]
    rows = read_tsv(file)
    for row, event in zip(rows, make_events().iter_rows(named=True), strict=True):
        begin_s = begins_s[event["recording"]]
        # As a selection table: times in the sequence of all files, also silent ones.
        assert float(row["Begin Time (s)"]) == pytest.approx(begin_s + event["start_s"])
        assert float(row["End Time (s)"]) == pytest.approx(begin_s + event["end_s"])
        # As a sound selection table: the file, and the time in it.
        assert row["Begin Path"] == str(tmp_path / "audio" / event["recording"])
        assert row["Begin File"] == Path(event["recording"]).name
        assert float(row["File Offset (s)"]) == event["start_s"]
    assert begins_s["z.flac"] > begins_s["silent.wav"] > 0


def test_a_recording_without_events_gets_a_table_without_rows(folder, tmp_path):
    export_events(make_events(), "raven", tmp_path / "out", folder)
    assert read_tsv(tmp_path / "out" / "silent.Table.1.selections.txt") == []


def read_with_crowsetta(path, format, **options):
    formats = pytest.importorskip("crowsetta").formats
    with warnings.catch_warnings(action="ignore"):  # of its own, about pandas
        return formats.by_name(format).from_file(path, **options)


def spans_of(recording=None):
    events = make_events()
    if recording is not None:
        events = events.filter(recording=recording)
    return events.select("start_s", "end_s", "label").rows()


def test_crowsetta_reads_the_same_events(folder, tmp_path):
    out = {name: tmp_path / name for name in ("raven", "audacity", "csv")}
    for format, path in out.items():
        export_events(make_events(), format, path, folder)
    table = out["raven"] / "a.Table.1.selections.txt"
    boxes = read_with_crowsetta(table, "raven", annot_col="Annotation").to_bbox()
    assert [(box.onset, box.offset, box.label) for box in boxes] == spans_of("a.wav")
    track = read_with_crowsetta(out["audacity"] / "z.txt", "aud-seq").to_seq()
    read = [(one.onset_s, one.offset_s, one.label) for one in track.segments]
    assert read == spans_of("z.flac")
    names = {"start_s": "onset_s", "end_s": "offset_s", "label": "label"}
    table = out["csv"] / "events.csv"
    columns = {"columns_map": names, "read_csv_kwargs": {"usecols": list(names)}}
    sequence = read_with_crowsetta(table, "simple-seq", **columns).to_seq(
        round_times=False
    )
    read = [(one.onset_s, one.offset_s, one.label) for one in sequence.segments]
    # callshot writes an apostrophe, so that a spreadsheet does not take the label as a formula
    expected = [(*span, label.replace("=", "'=")) for *span, label in spans_of()]
    assert read == expected


@pytest.mark.parametrize("name", ["/etc/x.wav", "../x.wav"])
def test_no_file_is_written_outside_the_folder(name, tmp_path):
    events = make_events().with_columns(recording=pl.lit(name))
    with pytest.raises(InputError, match="give that folder"):
        export_events(events, "raven", tmp_path / "a" / "out")
    assert list(tmp_path.rglob("*.txt")) == []


@pytest.mark.parametrize("format", ["raven", "audacity"])
def test_recordings_that_differ_in_their_suffix_have_files_of_their_own(
    tmp_path, format
):
    names = ["x.wav", "x.flac"]
    events = make_events().head(2).with_columns(recording=pl.Series(names))
    for name in names:
        record(tmp_path / "audio" / name, seconds=9.0)
    export_events(events, format, tmp_path / "out")
    stems = {path.name.split(".")[1] for path in (tmp_path / "out").glob("x*")}
    assert stems == {"wav", "flac"}
    folder = open_recordings(tmp_path / "audio")
    back = read_events(tmp_path / "out", folder).events
    columns = ["recording", "start_s", "end_s", "label"]
    assert back.select(columns).equals(events.sort(columns).select(columns))


@pytest.mark.parametrize(
    ("format", "message"),
    [("audacty", "did you mean audacity"), ("raven-all", "needs their lengths")],
)
def test_an_unknown_format_and_missing_recordings_are_errors(tmp_path, format, message):
    with pytest.raises(OptionError, match=message):
        export_events(make_events(), format, tmp_path / "out")
