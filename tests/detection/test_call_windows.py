"""A call is in the middle of its window, with the recording around it, and nothing is padded."""

from dataclasses import replace

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given
from hypothesis import strategies as st

from callshot.corpus.audio import load_audio, probe
from callshot.detection.examples import (
    cut_windows,
    default_window_s,
    find_grid,
    place_windows,
)
from callshot.detection.model import AudioSettings
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import Encoder
from callshot.errors import OptionError
from callshot.records import Recording
from rows_of_spans import list_rows, make_row, make_spans

SETTINGS = AudioSettings(window_s=1.0)


def make_call(start_s, end_s, path="a.wav"):
    return make_row(path, start_s, end_s, label="hoot", peak_dbfs=-3.0)


def cut(call, recording, grid, settings, root=None):
    headers = {recording.path: recording}
    return cut_windows(make_spans([call], root), headers, grid, settings)


@given(
    start_s=st.floats(0, 50),
    length_s=st.floats(0.01, 30),
    window_s=st.floats(0.1, 10),
    rest_s=st.floats(0, 20),
)
def test_windows_stay_inside_the_recording_and_cover_the_call(
    start_s, length_s, window_s, rest_s
):
    end_s = start_s + length_s
    duration_s = end_s + rest_s
    starts_s = place_windows(start_s, end_s, window_s, duration_s)
    if duration_s < window_s:
        assert starts_s == [0.0]
        return
    assert min(starts_s) >= 0
    assert max(starts_s) + window_s <= duration_s + 1e-6
    if end_s - start_s > window_s + 1e-9:
        assert min(starts_s) == pytest.approx(start_s)
        assert max(starts_s) + window_s == pytest.approx(end_s)
        assert np.diff(starts_s).max() <= window_s + 1e-6
    else:
        assert len(starts_s) == 1
        assert starts_s[0] <= start_s + 1e-9
        assert starts_s[0] + window_s >= end_s - 1e-9


@pytest.mark.parametrize("speed", ["1", "0.5", "7"])
def test_a_window_is_full_at_every_speed(tmp_path, speed):
    """All samples of the model's window are those of the recording, which is nowhere zero."""
    spec = find_encoder("birdnet-v2.4", {"speed": speed})
    sf.write(tmp_path / "a.wav", np.full(16000 * 40, 0.5), 16000, subtype="FLOAT")
    recording = probe(tmp_path / "a.wav", "a.wav")
    settings = AudioSettings()
    grid = find_grid(spec, settings)
    assert grid.window_s == pytest.approx(3.0 * float(speed))
    spans = cut(make_call(15.0, 15.2), recording, grid, settings, tmp_path)
    [window] = list_rows(spans)
    centre_s = (window.start_s + window.end_s) / 2 * float(speed)
    assert centre_s == pytest.approx(15.1, abs=1e-4 * float(speed))
    [(_, signal)] = load_audio(spans)
    plain_spec = replace(spec, speed=1.0)
    prepared = Encoder(plain_spec, None, {}).prepare(signal, window.rate_hz)
    assert prepared.share.tolist() == [1.0]
    assert prepared.input.min() > 0.4


def test_windows_of_a_long_call_hold_only_the_call():
    recording = Recording("a.wav", 16000 * 60, 16000, 1, "WAV")
    grid = find_grid(find_encoder("mfcc"), SETTINGS)
    windows = list_rows(cut(make_call(10.0, 12.5), recording, grid, SETTINGS))
    assert [one.start_s for one in windows] == [10.0, 10.75, 11.5]
    assert [one.end_s for one in windows] == [11.0, 11.75, 12.5]
    assert {one.peak_dbfs for one in windows} == {None}


def test_an_encoder_without_a_window_asks_for_one():
    with pytest.raises(OptionError, match=r"window: mfcc has no window of its own"):
        find_grid(find_encoder("mfcc"), replace(SETTINGS, window_s=None))


def test_the_default_window_is_the_median_of_the_calls():
    calls = [make_call(0, 0.4), make_call(0, 1.0), make_call(0, 9.0)]
    assert default_window_s(make_spans(calls)) == 1.0
