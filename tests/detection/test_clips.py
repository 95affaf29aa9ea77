"""Clips of events: which are chosen, what they contain, and what the table says of them."""

import io

import numpy as np
import polars as pl
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from callshot.detection import clips
from callshot.detection.clips import (
    ClipOptions,
    choose_events,
    draw_spectrogram,
    write_clips,
)
from callshot.detection.events import events_frame, open_recordings, read_events
from callshot.errors import OptionError, OutputError

RATE_HZ = 500
LENGTH_S = 30.0


def make_event(start_s, label, score, **cells):
    row = {"recording": "SITE_20260302_053000.wav", "end_s": start_s + 2}
    return row | {"start_s": start_s, "label": label, "score": score} | cells


@pytest.fixture
def folder(tmp_path):
    """Two recordings at a low rate; sample n of the first is n / 32768."""
    audio = tmp_path / "audio"
    audio.mkdir()
    ramp = np.arange(round(LENGTH_S * RATE_HZ), dtype=np.int16)
    soundfile.write(audio / "SITE_20260302_053000.wav", ramp, RATE_HZ)
    soundfile.write(audio / "b.wav", np.stack([ramp, ramp + 2], axis=1), RATE_HZ)
    return open_recordings(audio)


def literal_choice(scores, count):
    """Return the scores of the best and of the most uncertain."""
    falling = sorted(scores, reverse=True)
    return set(falling[:count]), set(falling[-count:])


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=40, unique=True),
    st.integers(1, 12),
    st.integers(0, 3),
)
def test_the_best_the_most_uncertain_and_one_of_each_part_are_chosen(
    numbers, count, seed
):
    scores = [number / 8 for number in numbers]
    events = events_frame(
        make_event(float(n), "roar", score) for n, score in enumerate(scores)
    )
    chosen = choose_events(events, count, seed=seed)
    best, uncertain = literal_choice(scores, count)
    why = {row["score"]: row["why"].split(", ") for row in chosen.iter_rows(named=True)}
    assert {score for score in why if "best" in why[score]} == best
    assert {score for score in why if "uncertain" in why[score]} == uncertain
    sample = sorted((s for s in why if "sample" in why[s]), reverse=True)
    falling = sorted(scores, reverse=True)
    assert len(sample) == min(count, len(scores))
    for number, score in enumerate(sample):
        first = number * len(scores) // len(sample)
        end = (number + 1) * len(scores) // len(sample)
        assert score in falling[first:end]
    ranks = [falling.index(score) + 1 for score in why]
    assert chosen["rank"].to_list() == ranks


def test_every_event_is_drawn_for_the_sample_equally_often():
    events = events_frame(make_event(float(n), "roar", n / 8) for n in range(6))
    counts = np.zeros(6)
    for seed in range(100):
        chosen = choose_events(events, 2, seed=seed)
        sample = chosen.filter(pl.col("why").str.contains("sample"))
        counts[(sample["score"] * 8).cast(int)] += 1
    assert counts.sum() == 200
    np.testing.assert_allclose(counts, 100 / 3, atol=5 * (100 / 3) ** 0.5)


def test_events_without_scores_are_sampled_only():
    events = events_frame(make_event(float(n), "roar", None) for n in range(9))
    assert choose_events(events, 3)["why"].to_list() == ["sample"] * 3
    assert choose_events(events.clear(), 3).is_empty()


def test_a_clip_has_the_samples_of_the_recording_at_its_own_rate(folder, tmp_path):
    events = events_frame(
        [
            make_event(10.0, "low rumble", 0.75),
            make_event(0.5, "low rumble", 0.5),
            make_event(28.0, "象", 0.25),
            make_event(3.0, "象", 0.5, recording="b.wav"),
        ]
    )
    written, _ = write_clips(events, folder, tmp_path / "clips", ClipOptions(1))
    rows = {row["start_s"]: row for row in written.iter_rows(named=True)}
    assert rows[10.0]["clip"] == "low-rumble/001_SITE_20260302_053000_10.0s.flac"
    assert rows[28.0]["clip"] == "class/002_SITE_20260302_053000_28.0s.flac"
    spans = {10.0: (9.0, 13.0), 0.5: (0.0, 3.5), 28.0: (27.0, 30.0), 3.0: (2.0, 6.0)}
    for start_s, row in rows.items():
        assert (row["clip_start_s"], row["clip_end_s"]) == spans[start_s]
        pcm, rate_hz = soundfile.read(tmp_path / "clips" / row["clip"], dtype="int32")
        assert rate_hz == RATE_HZ
        first, last = (round(time_s * RATE_HZ) for time_s in spans[start_s])
        offset = 1 if row["recording"] == "b.wav" else 0  # the mean of two channels
        np.testing.assert_array_equal(pcm >> 16, np.arange(first, last) + offset)
        with Image.open(tmp_path / "clips" / row["picture"]) as image:
            assert image.size[0] > 400


@pytest.mark.usefixtures("no_pictures")
def test_the_table_is_read_as_events_to_review(folder, tmp_path):
    events = events_frame(make_event(float(n), "roar", n / 8) for n in range(5))
    write_clips(events, folder, tmp_path / "clips", ClipOptions(2))
    table = tmp_path / "clips" / "clips.csv"
    text = table.read_text("utf-8")
    assert text.splitlines()[0] == (
        "clip,picture,recording,start_s,end_s,label,score,why,confirmed,clip_start_s,clip_end_s"
    )
    reviewed = pl.read_csv(table).with_columns(confirmed=pl.lit("yes"))
    reviewed.write_csv(tmp_path / "reviewed.csv")
    read = read_events(tmp_path / "reviewed.csv", folder).events
    assert read.select("start_s", "label", "score", "confirmed").rows() == [
        (row[0], "roar", row[0] / 8, True)
        for row in sorted(reviewed.select("start_s").rows())
    ]


@pytest.mark.usefixtures("no_pictures")
def test_clips_are_the_same_bytes_again_and_replace_earlier_ones(folder, tmp_path):
    events = events_frame(make_event(float(n), "roar", n / 8) for n in range(3))
    out = tmp_path / "clips"

    def write(count):
        write_clips(events, folder, out, ClipOptions(count))
        files = [path for path in out.rglob("*") if path.is_file()]
        return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}

    first = write(1)
    assert len(write(2)) > len(first)
    assert write(1) == first


@pytest.mark.usefixtures("no_pictures")
def test_an_event_that_cannot_be_read_is_a_reject_and_the_others_are_cut(
    folder, tmp_path
):
    events = events_frame(
        [
            make_event(1.0, "roar", 0.5),
            make_event(99.0, "roar", 0.75),
            make_event(1.0, "roar", 0.25, recording="absent.wav"),
        ]
    )
    written, rejects = write_clips(events, folder, tmp_path / "clips", ClipOptions(3))
    assert written["start_s"].to_list() == [1.0]
    assert [reject.file for reject in rejects] == [
        "SITE_20260302_053000.wav",
        "absent.wav",
    ]
    assert "nothing to read from 98.000 s" in rejects[0].reason


def test_silence_and_very_short_clips_have_a_picture():
    size = 1
    event = make_event(0.0, "roar\n$x$", None)
    content = draw_spectrogram(np.zeros(size, np.float32), RATE_HZ, 0.0, event)
    with Image.open(io.BytesIO(content)) as image:
        assert image.format == "PNG"
    again = draw_spectrogram(np.zeros(size, np.float32), RATE_HZ, 0.0, event)
    assert again == content


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 0}, "clips: expected 1 or more, got 0"),
        ({"count": 1, "max_hz": 0}, "max_hz: expected more than 0 Hz, got 0"),
    ],
)
def test_options_out_of_range_are_one_line(options, message):
    with pytest.raises(OptionError, match=message):
        ClipOptions(**options)


def test_a_folder_that_cannot_be_made_is_an_error_and_not_a_clip_less(
    folder, tmp_path, monkeypatch
):
    events = events_frame([make_event(1.0, "roar", 0.5)])

    def refuse(place):
        raise OutputError(f"{place}: cannot be made (No space left on device)")

    monkeypatch.setattr(clips, "make_folder", refuse)
    with pytest.raises(OutputError, match="cannot be made"):
        write_clips(events, folder, tmp_path / "clips", ClipOptions(1))
