"""Detections by day and hour: literal counts, recorded minutes, and what the picture shows."""

from collections import Counter
from datetime import date, datetime, timedelta

import numpy as np
import polars as pl
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from callshot.detection.activity import (
    count_activity,
    fill_days,
    find_short,
    plan_activity,
    write_activity,
)
from callshot.detection.events import events_frame, open_recordings, read_events
from callshot.errors import InputError
from callshot.report.figures.figure_io import open_figure
from test_cli import run

START = datetime(2026, 3, 1, 22)


def make_event(recording, start_s, label):
    span = {"start_s": start_s, "end_s": start_s + 5.0}
    return {"recording": recording, "label": label, **span}


def literal_activity(events, times):
    """Count every second of every recording, and every event, one by one."""
    seconds: Counter[tuple[date, int]] = Counter()
    for clock, duration_s in times.values():
        for second in range(int(duration_s)):
            moment = datetime.fromisoformat(clock) + timedelta(seconds=second)
            seconds[moment.date(), moment.hour] += 1
    rows = []
    labels = sorted({label for _, _, label in events})
    for day, hour in sorted(seconds):
        for label in labels:
            count = 0
            for name, start_s, one in events:
                start = datetime.fromisoformat(times[name][0])
                moment = start + timedelta(seconds=start_s)
                is_here = (moment.date(), moment.hour) == (day, hour)
                count += one == label and is_here
            minutes = round(seconds[day, hour] / 60, 3)
            rows.append((day, hour, label, count, minutes))
    return rows


spans = st.tuples(st.integers(0, 3 * 3600), st.integers(1, 5000))


@given(
    st.lists(spans, min_size=1, max_size=4),
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(0, 0.999), st.sampled_from("ab")),
        max_size=8,
    ),
)
def test_counts_and_minutes_are_those_of_a_literal_count(spans_s, drawn):
    times = {
        f"r{n}": ((START + timedelta(seconds=start_s)).isoformat(), float(length_s))
        for n, (start_s, length_s) in enumerate(spans_s)
    }
    events = []
    for number, share, label in drawn:
        name = f"r{number % len(times)}"
        start_s = float(int(share * times[name][1]))
        events.append((name, start_s, label))
    frame = events_frame(make_event(*event) for event in events)
    activity = count_activity(frame, times)
    assert activity.rows() == literal_activity(events, times)


def test_labels_without_events_have_rows_if_they_are_given():
    times = {"a": (START.isoformat(), 60.0)}
    counts = count_activity(events_frame([]), times, ["roar", "rumble"])
    assert counts["label"].to_list() == ["roar", "rumble"]
    assert counts["detections"].to_list() == [0, 0]
    assert count_activity(events_frame([]), times).is_empty()


def test_hours_without_a_recording_are_not_zero():
    times = {"a": ("2026-03-01T05:00:00", 3600.0), "b": ("2026-03-03T06:00:00", 3600.0)}
    events = events_frame([make_event("b", 1.0, "roar")])
    counts = count_activity(events, times)
    days = [date(2026, 3, day) for day in (1, 2, 3)]
    values = fill_days(counts, "detections", days)
    expected = np.full((3, 24), np.nan)
    expected[0, 5] = 0
    expected[2, 6] = 1
    np.testing.assert_array_equal(values, expected)


def test_hours_recorded_for_less_than_half_as_long_as_usual_are_marked():
    minutes = np.full((2, 24), np.nan)
    minutes[0, :10] = 10
    minutes[0, 3] = 4.9
    minutes[0, 4] = 5
    assert find_short(minutes).tolist() == [[0, 3]]


def make_activity(days, labels):
    rows = [make_event("a", 3600.0 * n, label) for n, label in enumerate(labels)]
    times = {"a": (START.isoformat(), 86400.0 * days)}
    return count_activity(events_frame(rows), times)


@pytest.mark.parametrize(
    ("days", "labels", "pages"),
    [(7, ["roar", "$\\frac"], 1), (400, list("abcdefg"), 2)],
)
def test_every_class_has_a_heat_map_with_days_and_hours(days, labels, pages):
    planned = list(plan_activity(make_activity(days, labels)))
    assert len(planned) == pages
    titles = []
    for page in planned:
        with open_figure() as figure:
            page.draw(figure)
            figure.draw_without_rendering()
            maps = [ax for ax in figure.axes if ax.get_title(loc="left")]
            titles += [ax.get_title(loc="left") for ax in maps]
            for ax in maps:
                assert ax.get_xlim() == (0, 24)
                assert ax.get_ylim()[0] <= 62
                assert ax.get_yticklabels()[0].get_text() == "2026-03-01"
                assert len(ax.get_yticks()) <= 14
    expected = [f"{label}: 1" for label in sorted(labels)]
    if len(labels) > 1:
        expected.insert(0, f"all labels: {len(labels)}")
    assert titles == expected


@pytest.fixture
def recordings(tmp_path):
    folder = tmp_path / "audio"
    folder.mkdir()
    for name in ("S_20260301_055950.wav", "S_20260301_070000+0200.wav", "other.wav"):
        soundfile.write(folder / name, np.zeros(30 * 100), 100)
    return folder


def test_convert_writes_table_and_picture(recordings, tmp_path, capsys):
    events = events_frame(
        [
            make_event("S_20260301_055950.wav", 12.0, "roar"),
            make_event("other.wav", 1, "roar"),
        ]
    )
    events.write_parquet(tmp_path / "events.parquet")
    command = ["convert", tmp_path / "events.parquet", "--to", "csv", "--activity"]
    command += ["--out", tmp_path / "out"]
    run(*command, code=2)
    assert "activity: give the folder of the recordings" in capsys.readouterr().err
    run(*command[:-2], "--clips", 1, *command[-2:], code=2)
    assert "clips: give the folder of the recordings" in capsys.readouterr().err
    run(*command, "--recordings", recordings, "--clips", 1, "--max-hz", 20)
    shown = capsys.readouterr().out
    assert "note: 1 event without clock time" in shown
    assert "1 clip in" in shown
    out = tmp_path / "out" / "activity"
    assert sorted(path.name for path in out.iterdir()) == [
        "activity.csv",
        "activity.pdf",
        "activity.png",
        "provenance.json",
    ]
    counts = pl.read_csv(out / "activity.csv")
    assert counts.rows() == [
        ("2026-03-01", 5, "roar", 0, 0.167),
        ("2026-03-01", 6, "roar", 1, 0.333),
        ("2026-03-01", 7, "roar", 0, 0.5),
    ]
    # Neither table is a file of events.
    folder = open_recordings(recordings)
    assert len(read_events(tmp_path / "out", folder).events) == 2


def test_recordings_without_clock_times_are_an_error(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(100), 100)
    folder = open_recordings(tmp_path)
    with pytest.raises(InputError, match="no recording has a clock time in its name"):
        write_activity(events_frame([]), folder, tmp_path / "out")
