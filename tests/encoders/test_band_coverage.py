"""Speeds are chosen from where the energy of calls lies, the same for all segments."""

import math
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders.band_coverage import (
    MAX_SPANS,
    CallSpectra,
    call_spectrum,
    choose_speeds,
    count_windows,
    measure_spectra,
    sample_spans,
)
from callshot.encoders.catalogue import ENCODERS, find_encoder
from callshot.encoders.embed import EmbedOptions, embed, replace_auto_speed
from callshot.encoders.encode import open_encoder
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.errors import InputError, OptionError
from rows_of_spans import make_row, make_spans

RATE_HZ = 16000


def make_tone(hz, seconds=1.0, rate_hz=RATE_HZ):
    time_s = np.arange(round(seconds * rate_hz)) / rate_hz
    return np.sin(2 * np.pi * hz * time_s).astype(np.float32)


def make_spectra(*signals, rate_hz=RATE_HZ):
    power = np.stack([call_spectrum(signal, rate_hz) for signal in signals])
    duration_s = np.array([len(signal) / rate_hz for signal in signals])
    return CallSpectra(power, duration_s, ["a"] * len(signals))


def make_segment(path, end_s=1.0):
    return make_row(path, 0.0, end_s, label="a", rate_hz=RATE_HZ, peak_dbfs=-3.0)


def test_the_middle_of_a_corpus_is_the_geometric_mean_over_calls():
    spectra = make_spectra(make_tone(100), make_tone(100), make_tone(6400))
    assert spectra.middle_hz() == pytest.approx(400, rel=0.1)


def middle_literally(signal, rate_hz):
    """Return the frequency below which a signal has half of its energy, from one large FFT."""
    power = np.abs(np.fft.rfft(signal * np.hanning(len(signal)))) ** 2
    frequency_hz = np.fft.rfftfreq(len(signal), 1 / rate_hz)
    power[frequency_hz < 5] = 0
    return frequency_hz[np.searchsorted(np.cumsum(power), power.sum() / 2)]


def test_the_middle_of_noise_equals_the_literal_one():
    noise = np.random.default_rng(0).normal(size=8 * RATE_HZ)
    smooth = np.convolve(noise, np.ones(20)).astype(np.float32)
    expected = middle_literally(smooth, RATE_HZ)
    assert make_spectra(smooth).middle_hz() == pytest.approx(expected, rel=0.05)


def test_the_share_of_energy_in_a_band():
    tones = make_tone(100) + make_tone(1000)
    spectra = make_spectra(tones)
    assert spectra.share(50, 300) == pytest.approx(0.5, abs=0.01)
    assert spectra.share(50, 3000) == pytest.approx(1, abs=0.01)
    assert spectra.share(3000, 50) == 0
    assert spectra.share(1, 1e9) == pytest.approx(1)


def test_silent_calls_and_unreadable_ones_are_errors_only_if_all_are(tmp_path):
    silence = np.zeros(RATE_HZ, np.float32)
    with pytest.raises(InputError, match="all are silent; give a speed"):
        make_spectra(silence).middle_hz()
    soundfile.write(tmp_path / "a.wav", make_tone(440), RATE_HZ)
    (tmp_path / "b.wav").write_text("no audio")
    rows = [make_segment("a.wav"), make_segment("b.wav")]
    spans = make_spans(rows, tmp_path)
    assert len(measure_spectra(spans).power) == 1
    with pytest.raises(InputError, match=r"none could be read \(the first: b.wav"):
        measure_spectra(spans.take([1, 1]))


@settings(max_examples=50, deadline=None)
@given(
    hz=st.floats(10, 100_000), spec=st.sampled_from([s for s in ENCODERS if s.band_hz])
)
def test_speeds_are_octaves_half_of_the_way_to_the_band_of_the_encoder(hz, spec):
    speeds = choose_speeds(spec, hz)
    middle_hz = math.sqrt(spec.band_hz[0] * spec.band_hz[1])
    fastest = max(speeds, key=lambda speed: abs(math.log2(speed)))
    assert abs(2 * math.log2(fastest) - math.log2(middle_hz / hz)) <= 1 + 1e-9
    if fastest == 1:
        assert speeds == [1]
    else:
        assert len(speeds) == 2
        assert speeds[1] == 2 * speeds[0]
        assert min(speeds) >= 1 or max(speeds) <= 1


def test_speeds_are_chosen_from_segments_at_equal_steps():
    count = 4 * MAX_SPANS
    spans = make_spans([make_row("a.wav", n, n + 1) for n in range(count)])
    chosen = sample_spans(spans)["start_s"]
    assert (len(chosen), chosen[0], chosen[-1]) == (MAX_SPANS, 0, count - 1)
    assert set(np.diff(chosen)) <= {4, 5}
    assert sample_spans(spans.take([0, 1, 2]))["start_s"] == [0, 1, 2]


def test_windows_and_padding_are_counted():
    birdnet = find_encoder("birdnet-v2.4")
    counts = count_windows(birdnet, np.array([3.0, 4.5]))
    assert counts[0] == 1.5
    assert counts[1] == pytest.approx(1 - 7.5 / 9)
    fast = count_windows(replace(birdnet, speed=3.0), np.array([3.0, 4.5]))
    assert (fast[0], fast[1]) == (1, pytest.approx(1 - 2.5 / 6))
    whole = count_windows(find_encoder("mfcc"), np.array([3.0]))
    assert (whole[0], whole[1]) == (1, 0)


@pytest.mark.parametrize(
    ("hz", "speeds", "farther"), [(50, [2, 4], 4), (900, [1], 1), (5000, [0.5, 1], 0.5)]
)
def test_auto_embeds_as_the_chosen_speeds_do_and_a_note_says_so(
    tmp_path, hz, speeds, farther
):
    soundfile.write(tmp_path / "a.wav", 0.5 * make_tone(hz), RATE_HZ)
    audio = make_spans([make_segment("a.wav")], tmp_path)
    requested = find_joined_encoder("mfcc", {"speed": "auto"})
    chosen = replace_auto_speed(requested, audio)
    assert [spec.speed for spec in chosen.specs] == speeds
    (spec,) = replace_auto_speed(requested, audio, can_join=False).specs
    assert spec.speed == farther
    store = tmp_path / "store"
    auto, _ = embed(audio, "mfcc", EmbedOptions({"speed": "auto"}, store))
    fixed, _ = embed(audio, chosen.name, EmbedOptions(store=store))
    assert auto.encoder == "mfcc[speed=auto]"
    np.testing.assert_array_equal(auto.matrix, fixed.matrix)
    assert auto.note.endswith(f"energy of the calls lies: {fixed.encoder}")


def test_auto_needs_a_band_and_segments():
    with pytest.raises(OptionError, match="speed=auto needs the band"):
        choose_speeds(find_encoder("random"), 50)
    with pytest.raises(OptionError, match="speed=auto is chosen from segments"):
        open_encoder(find_encoder("mfcc", {"speed": "auto"}))
