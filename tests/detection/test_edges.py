"""The calls of a stretch of windows, and their edges, from the level of the sound."""

from itertools import pairwise

import numpy as np
import pytest
import soundfile
from hypothesis import example, given, settings
from hypothesis import strategies as st

import callshot
from callshot.corpus.audio import open_recording
from callshot.detection.edges import (
    FLOOR,
    MIN_CONTRAST_DB,
    PEAK_SHARE,
    SHARE,
    CallShape,
    Spacing,
    describe_calls,
    find_band,
    find_events,
    find_loudest,
    find_sound,
    measure_band,
)
from callshot.detection.index.index_files import IndexedRecording

RATE_HZ = 8000
SHAPE = CallShape(0.3, 0.25, 0.05, 900.0, 1100.0)
WINDOW_S = 3.0


def make_sound(calls, length_s=30.0, noise=0.003, seed=0):
    """Return noise with tones of 1 kHz at times (start, end, loudness)."""
    rng = np.random.default_rng(seed)
    signal = (
        rng.normal(0, noise, round(length_s * RATE_HZ))
        if noise
        else np.zeros(round(length_s * RATE_HZ))
    )
    time_s = np.arange(len(signal)) / RATE_HZ
    for start_s, end_s, loudness in calls:
        inside = (time_s >= start_s) & (time_s < end_s)
        signal += inside * loudness * np.sin(2 * np.pi * 1000 * time_s)
    return signal.astype(np.float32)


def find_in(
    folder, signal, windows, hop_s=WINDOW_S, gap_s=0.0, shapes=None, by_sound=True
):
    """Return the events of a sound in which windows that start at some times are active."""
    soundfile.write(folder / "a.wav", signal, RATE_HZ, "FLOAT")
    duration_s = len(signal) / RATE_HZ
    recording = IndexedRecording(
        "a.wav", str(folder), "0", duration_s, RATE_HZ, None, len(windows), ()
    )
    start_s = np.array(windows, float)
    columns = {
        "start_s": start_s,
        "end_s": np.minimum(start_s + WINDOW_S, duration_s),
        "label": np.full(len(windows), "hoot", object),
        "score": np.arange(len(windows), dtype=float),
    }
    return find_events(
        recording,
        columns,
        spacing=Spacing(WINDOW_S, hop_s, {"hoot": 0.6}, gap_s),
        shapes={"hoot": SHAPE} if shapes is None else shapes,
        by_sound=by_sound,
        channel="first",
    )


def times(events):
    return list(zip(events["start_s"].tolist(), events["end_s"].tolist(), strict=True))


def test_calls_with_a_pause_between_them_are_events_with_their_own_edges(tmp_path):
    sound = make_sound([(6.5, 7.1, 0.3), (8.0, 8.6, 0.3), (13.0, 13.6, 0.3)])
    events, note = find_in(tmp_path, sound, [6, 9, 12])
    assert note is None
    expected = [(6.5, 7.1), (8.0, 8.6), (13.0, 13.6)]
    assert np.array(times(events))[[0, 1, 3]] == pytest.approx(
        np.array(expected), abs=0.06
    )
    assert times(events)[2] == (9.0, 12.0)  # an active window without any call
    assert events["score"].tolist() == [0, 0, 1, 2]  # of the windows that they are in
    assert events["low_freq_hz"].tolist() == [900.0] * 4
    assert events["high_freq_hz"].tolist() == [1100.0] * 4


def test_stretches_of_windows_have_the_band_of_the_examples_as_far_as_they_are_recorded(
    tmp_path,
):
    sound = make_sound([(6.5, 7.1, 0.3)])
    events, _ = find_in(tmp_path, sound, [6], by_sound=False)
    assert times(events) == [(6.0, 9.0)]
    assert events["low_freq_hz"].tolist() == [900.0]
    assert events["high_freq_hz"].tolist() == [1100.0]
    high = {"hoot": SHAPE._replace(low_hz=100.0, high_hz=1e6)}
    events, _ = find_in(tmp_path, sound, [6], shapes=high, by_sound=False)
    assert events["high_freq_hz"].tolist() == [RATE_HZ / 2]
    higher = {"hoot": SHAPE._replace(low_hz=1e5, high_hz=1e6)}
    events, _ = find_in(tmp_path, sound, [6], shapes=higher, by_sound=False)
    assert events["high_freq_hz"].tolist() == [None]


def test_a_pause_as_in_examples_or_up_to_the_gap_does_not_part_a_call(tmp_path):
    sound = make_sound([(6.5, 7.1, 0.3), (7.3, 7.9, 0.3)])
    events, _ = find_in(tmp_path, sound, [6])
    assert times(events) == [pytest.approx((6.5, 7.9), abs=0.06)]
    sound = make_sound([(6.5, 7.1, 0.3), (8.0, 8.6, 0.3)])
    assert len(find_in(tmp_path, sound, [6])[0]["score"]) == 2
    assert len(find_in(tmp_path, sound, [6], gap_s=1.0)[0]["score"]) == 1


def test_where_the_level_says_nothing_events_have_the_edges_of_windows(tmp_path):
    whole = [(6.0, 12.0)]
    for sound in (make_sound([], noise=0.0), make_sound([(0, 30, 0.3)], noise=1e-5)):
        assert times(find_in(tmp_path, sound, [6, 9])[0]) == whole
    high = {"hoot": SHAPE._replace(low_hz=5000.0, high_hz=6000.0)}
    sound = make_sound([(6.5, 7.1, 0.3)])
    assert times(find_in(tmp_path, sound, [6, 9], shapes=high)[0]) == whole


def test_a_band_from_half_the_rate_on_is_not_looked_for(tmp_path):
    sound = make_sound([])
    call = slice(round(6.5 * RATE_HZ), round(7.1 * RATE_HZ))
    sound[call] += np.resize([0.3, -0.3], len(sound[call]))  # a tone of half the rate
    below = {"hoot": SHAPE._replace(low_hz=3900.0, high_hz=6000.0)}
    events, _ = find_in(tmp_path, sound, [6], shapes=below)
    assert times(events) == [pytest.approx((6.5, 7.1), abs=0.06)]
    from_there = {"hoot": SHAPE._replace(low_hz=RATE_HZ / 2, high_hz=6000.0)}
    events, _ = find_in(tmp_path, sound, [6], shapes=from_there)
    assert times(events) == [(6.0, 9.0)]


def test_digital_silence_is_no_noise_floor(tmp_path):
    sound = make_sound([(6.5, 7.1, 0.3)])
    sound[9 * RATE_HZ :] = 0
    sound[: 3 * RATE_HZ] = 0
    events, _ = find_in(tmp_path, sound, [6])
    assert times(events) == [pytest.approx((6.5, 7.1), abs=0.06)]


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    hop_s=st.sampled_from([3.0, 1.5, 0.75]),
    noise=st.sampled_from([0.0, 0.003, 0.1]),
)
@example(seed=911, hop_s=0.75, noise=0.003)  # a later stretch has the earlier call
def test_every_window_keeps_an_event_and_events_are_inside_windows(
    tmp_path_factory, seed, hop_s, noise
):
    rng = np.random.default_rng(seed)
    starts = rng.uniform(0, 27, 6)
    calls = [(one, one + rng.uniform(0.05, 3), rng.uniform(0.01, 1)) for one in starts]
    sound = make_sound(calls, noise=noise, seed=seed)
    grid = np.arange(0, 27.01, hop_s)
    windows = grid[rng.random(len(grid)) < 0.5]
    folder = tmp_path_factory.mktemp("sound")
    events, _ = find_in(folder, sound, windows, hop_s=hop_s)
    found = times(events)
    for start_s in windows:
        end_s = start_s + WINDOW_S
        assert any(one < end_s and other > start_s for one, other in found)
    for one, other in found:
        assert one < other
        assert any(start_s < other and one < start_s + WINDOW_S for start_s in windows)
    assert found == sorted(found)
    for (_, end_s), (start_s, _) in pairwise(found):
        assert end_s <= start_s


def literal_calls(signal, windows, hop_s):
    """Return the calls of one stretch, column by column; None for a window without any."""
    step = round(SHAPE.step_s * RATE_HZ)
    margin_s = 2 * WINDOW_S
    first = max(0, round((windows[0] - margin_s) / SHAPE.step_s))
    last_s = windows[-1] + WINDOW_S
    last = round(min(30.0, last_s + margin_s) / SHAPE.step_s)
    levels = {}
    hann = np.hanning(2 * step + 2)[1:-1]
    bins_hz = np.arange(step + 1) * RATE_HZ / (2 * step)
    # From the bin at or below the lowest to the one below the highest frequency.
    is_inside = (bins_hz + RATE_HZ / (2 * step) > SHAPE.low_hz) & (
        bins_hz < SHAPE.high_hz
    )
    padded = np.pad(signal.astype(float), step)
    for column in range(first, last):
        begin = column * step - step // 2 + step
        spectrum = np.fft.rfft(padded[begin : begin + 2 * step] * hann, 2 * step)
        power = (abs(spectrum[is_inside]) ** 2).sum()
        levels[column] = 10 * np.log10(power * (2 / hann.sum()) ** 2 / 1.5)
    floor = np.quantile(list(levels.values()), FLOOR)
    inside = [n for n in levels if windows[0] <= (n + 0.5) * SHAPE.step_s < last_s]
    heights = {}
    for column in inside:
        near = [
            levels[n]
            for n in inside
            if abs(n - column) <= round(WINDOW_S / SHAPE.step_s)
        ]
        contrast = max(near) - floor
        heights[column] = 0.0
        if contrast >= MIN_CONTRAST_DB:
            heights[column] = (levels[column] - floor) / contrast
    sounds = []
    for column in inside:
        if heights[column] > SHARE:
            pause = column - sounds[-1][-1] - 1 if sounds else np.inf
            if pause * SHAPE.step_s <= SHAPE.pause_s + 1e-9:
                sounds[-1].append(column)
            else:
                sounds.append([column])
    calls = []
    for columns in sounds:
        start_s = columns[0] * SHAPE.step_s
        end_s = (columns[-1] + 1) * SHAPE.step_s
        middle_s = (start_s + end_s) / 2
        grid = [n * hop_s for n in range(round(27 / hop_s) + 1)]
        around = [one for one in grid if one <= middle_s <= one + WINDOW_S]
        active = [one for one in around if one in windows]
        if (
            end_s - start_s >= SHAPE.min_s - 1e-9
            and max(heights[n] for n in columns) >= PEAK_SHARE
            and len(active) > len(around) / 2
        ):
            calls.append((start_s, end_s))
    return calls


@pytest.mark.parametrize("hop_s", [3.0, 1.0])
@pytest.mark.parametrize("seed", range(2))
def test_calls_are_those_of_literal_loops(tmp_path, seed, hop_s):
    rng = np.random.default_rng(seed)
    calls = [
        (one, one + rng.uniform(0.2, 1.2), rng.uniform(0.02, 0.5))
        for one in rng.uniform(9, 20, 7)
    ]
    sound = make_sound(calls, seed=seed)
    windows = np.arange(9.0, 18.1, hop_s)
    events, _ = find_in(tmp_path, sound, windows, hop_s=hop_s)
    expected = literal_calls(sound, windows.tolist(), hop_s)
    found = times(events)
    assert len(expected) > 1
    # Windows without a call are events too: those are not of the literal loops.
    for call in expected:
        assert any(call == pytest.approx(one, abs=1e-6) for one in found)
    starts_s = [one for one, _ in expected]
    for start_s, end_s in found:
        if not np.isclose(starts_s, start_s).any():
            others = [w for w in windows if w < end_s and w + WINDOW_S > start_s]
            assert any(
                all(one >= w + WINDOW_S or other <= w for one, other in expected)
                for w in others
            )


def test_a_call_that_two_stretches_have_is_one_event(tmp_path):
    sound = make_sound([(11.4, 12.4, 0.3)])
    events, _ = find_in(tmp_path, sound, [9, 9.5, 10, 11, 11.5], hop_s=0.5)
    assert times(events) == [pytest.approx((11.4, 12.4), abs=0.06)]
    assert events["score"].tolist() == [4.0]  # of the stronger stretch


def test_long_stretches_are_read_in_blocks_with_the_same_levels(tmp_path, monkeypatch):
    sound = make_sound([(n, n + 0.6, 0.3) for n in range(1, 29, 2)])
    windows = np.arange(0, 27.1, 3)
    expected = times(find_in(tmp_path, sound, windows)[0])
    assert len(expected) == 14
    monkeypatch.setattr("callshot.detection.edges.BLOCK", 7)
    assert times(find_in(tmp_path, sound, windows)[0]) == expected


def test_the_level_of_a_sine_in_the_band_is_that_of_a_sine():
    sound = make_sound([(0, 30, 0.5)], noise=0.0)
    levels = measure_band(sound, RATE_HZ, (900.0, 1100.0), 400)
    assert levels[1:-1] == pytest.approx(20 * np.log10(0.5), abs=0.01)
    assert (measure_band(sound, RATE_HZ, (2000.0, 3000.0), 400)[1:-1] < -100).all()


def test_the_band_of_a_call_is_where_it_is_louder_than_its_quiet_parts():
    sound = make_sound([(0.3, 0.9, 0.3)], 1.2)
    sound += 0.5 * np.sin(np.arange(len(sound)) / 40).astype(np.float32)  # a steady hum
    low_hz, high_hz = find_band(sound, RATE_HZ, 0.05)
    assert 900 < low_hz < 1000 < high_hz < 1100


def test_calls_are_described_by_the_audio_of_examples(tmp_path):
    sound = make_sound(
        [(5, 5.4, 0.3), (5.7, 6.1, 0.3), (15, 15.4, 0.3), (15.7, 16, 0.3)]
    )
    soundfile.write(tmp_path / "a.wav", sound, RATE_HZ)
    (tmp_path / "a.txt").write_text("4.9\t6.2\thoot\n14.9\t16.1\thoot\n")
    options = {"window_s": 1, "store": tmp_path / "store"}
    model = callshot.learn(tmp_path, "mfcc", **options).model
    (shape,) = describe_calls(model, ["hoot"]).values()
    assert shape.pause_s == pytest.approx(0.375, abs=0.08)
    assert shape.min_s == pytest.approx(0.6, abs=0.01)
    assert 850 < shape.low_hz < 1000 < shape.high_hz < 1150


@pytest.mark.parametrize("seed", range(2))
def test_the_loudest_columns_are_those_of_a_literal_loop(seed):
    rng = np.random.default_rng(seed)
    levels = rng.normal(-50.0, 8.0, 40)
    columns = int(rng.integers(1, 12))
    power = [10 ** (level / 10) for level in levels]
    floor = np.quantile(power, FLOOR)
    sums = []
    for first in range(len(levels) - columns + 1):
        stretch = power[first : first + columns]
        sums.append(sum(max(0.0, one - floor) for one in stretch))
    assert find_loudest(levels, columns) == sums.index(max(sums))
    assert find_loudest(levels, 100) == 0


@pytest.mark.parametrize(
    "background", [(9.5, 13.5, 0.06), (0.0, 30.0, 0.3)], ids=["long", "no contrast"]
)
def test_where_no_sound_is_as_long_as_a_call_it_is_the_loudest_stretch(
    tmp_path, background
):
    signal = make_sound([(11.2, 11.6, 0.08), background])
    soundfile.write(tmp_path / "a.wav", signal, RATE_HZ, "FLOAT")
    with open_recording(tmp_path / "a.wav", "a.wav") as reader:
        found = find_sound(reader, "first", (10.0, 13.0), 0.4, (900.0, 1100.0))
    assert found == pytest.approx((11.2, 11.6), abs=0.05)
