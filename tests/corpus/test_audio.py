"""Spans of recordings equal whole files and a slow reference, in every format."""

import math
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callshot.corpus import audio
from callshot.corpus.audio import (
    design_filter,
    load_audio,
    normalise_peak,
    open_recording,
    read_span,
)
from callshot.corpus.audio_files import check_channel_rule
from callshot.errors import InputError, OptionError
from rows_of_spans import make_row as segment
from rows_of_spans import make_spans
from sounds import noise, truncate, write_audio, write_float_wav

RATES_HZ = (44100, 384000)
LAST_BIT = 6e-8  # of a float32 between 0.5 and 1


def reference(path, start_s, end_s, rate_hz, rule, source_rate_hz):
    """Read the whole file, reduce it, resample all of it with silence behind it, and cut."""
    whole, header_hz = soundfile.read(path, dtype="float32", always_2d=True)
    source_hz = header_hz if source_rate_hz is None else source_rate_hz
    if rule == "mean":
        mono = np.array([np.float32(sum(map(float, row)) / len(row)) for row in whole])
    else:
        mono = np.ascontiguousarray(whole[:, 0 if rule == "first" else int(rule) - 1])
    if source_hz != rate_hz:
        padded = np.append(mono, np.zeros(2000, np.float32))
        mono = soxr.resample(padded, source_hz, rate_hz, "VHQ")
    length = math.ceil(len(whole) * rate_hz / source_hz)
    return mono[max(0, round(start_s * rate_hz)) : min(length, round(end_s * rate_hz))]


def read_all(root, segments, **options):
    output = list(load_audio(make_spans(segments, root), **options))
    assert [index for index, _ in output] == list(range(len(segments)))
    return [signal for _, signal in output]


def are_equal(one, two):
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else str(a) == str(b)
        for a, b in zip(one, two, strict=True)
    )


def test_values_beyond_full_scale_are_not_clipped(tmp_path):
    path = write_float_wav(tmp_path / "a.wav", noise(32000) * 100, 32000)
    with open_recording(path) as reader:
        assert np.abs(reader.read(0, 1, rate_hz=32000)).max() > 69
        assert np.abs(reader.read(0, 1, rate_hz=16000)).max() > 50


def test_the_channel_rule_selects_a_channel_or_the_mean(tmp_path):
    signal = noise(100, 3)
    mean = signal.astype(np.float64).mean(axis=1).astype(np.float32)
    channels = {"first": signal[:, 0], "1": signal[:, 0], "3": signal[:, 2]}
    with open_recording(write_float_wav(tmp_path / "a.wav", signal)) as reader:
        for rule, expected in (channels | {"mean": mean}).items():
            output = reader.read(0, 1, rate_hz=16000, channel_rule=rule)
            assert np.array_equal(output, expected)
        with pytest.raises(InputError, match="expected a channel 4, got 3 channels"):
            reader.read(0, 1, rate_hz=16000, channel_rule="4")


@pytest.mark.parametrize("channels", [2, 7])
def test_the_mean_of_equal_channels_is_that_channel(tmp_path, channels):
    one = noise(1000) * np.float32(1e38)
    path = write_float_wav(tmp_path / "a.wav", np.repeat(one, channels, axis=1))
    with open_recording(path) as reader:
        mean = reader.read(0, 1, rate_hz=16000, channel_rule="mean")
    assert np.array_equal(mean, one[:, 0])


@pytest.mark.parametrize("rule", ["", "0", "1.5", "First", "²", "٣", " 1"])
def test_an_unknown_channel_rule_is_an_error(rule):
    with pytest.raises(OptionError, match="channel: expected"):
        check_channel_rule(rule)


@pytest.mark.parametrize("source_hz", RATES_HZ)
def test_a_resampled_span_equals_that_of_the_whole_recording_resampled(
    tmp_path, source_hz
):
    path = write_float_wav(tmp_path / "a.wav", noise(source_hz * 2), source_hz)
    whole = reference(path, 0, 2, 16000, "first", None)
    assert len(whole) == 32000
    with open_recording(path) as reader:
        for start in (0, 1, 100, 639, 640, 5000, 16001, 27999):
            alone = reader.read(start / 16000, (start + 4000) / 16000, rate_hz=16000)
            assert np.abs(alone - whole[start : start + 4000]).max() <= LAST_BIT


@pytest.mark.parametrize("source_hz", [12345.678, 16000.001])
def test_rates_without_a_common_grid_are_off_by_at_most_half_a_frame(
    tmp_path, source_hz
):
    period = 10 * max(1, source_hz / 16000)  # of the tone, in frames
    tone = 0.7 * np.sin(2 * np.pi * np.arange(40_000) / period)
    path = write_float_wav(tmp_path / "a.wav", tone.astype(np.float32))
    with open_recording(path, None, source_hz) as reader:
        for start_s in (0.5, 1.23, 1.7):
            span = (start_s, start_s + 0.2)
            alone = reader.read(*span, rate_hz=16000)
            expected = reference(path, *span, 16000, "first", source_hz)
            assert np.abs(alone - expected).max() < 0.5 * 0.7 * 2 * np.pi / period


def test_the_size_of_blocks_does_not_change_samples(tmp_path, monkeypatch):
    path = write_float_wav(tmp_path / "a.wav", noise(44100, 2), 44100)
    spans = []
    for block in (2**17, 1000, 7):
        monkeypatch.setattr("callshot.corpus.audio_files.BLOCK_FRAMES", block)
        with open_recording(path) as reader:
            read = partial(reader.read, 0.2, 0.3, channel_rule="mean")
            spans.append([read(rate_hz=rate_hz) for rate_hz in (44100, 16000)])
    assert are_equal(spans[0], spans[1])
    assert are_equal(spans[0], spans[2])


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    frames=st.integers(1, 20000),
    header_hz=st.sampled_from([8000, 11025, 16000, 44100, 48000]),
    rate_hz=st.sampled_from([8000, 16000, 22050]),
    rule=st.sampled_from(["first", "mean", "2"]),
    span=st.tuples(st.floats(-0.5, 2), st.floats(0, 2)),
    source=st.sampled_from([None, 20000.0, 160000.0]),
)
def test_every_span_equals_the_reference(
    tmp_path, frames, header_hz, rate_hz, rule, span, source
):
    path = write_float_wav(tmp_path / "a.wav", noise(frames, 2, frames), header_hz)
    start_s, length_s = span
    end_s = start_s + length_s
    expected = reference(path, start_s, max(0, end_s), rate_hz, rule, source)
    with open_recording(path, None, source) as reader:
        read = partial(reader.read, start_s, end_s, rate_hz=rate_hz, channel_rule=rule)
        if len(expected) == 0:
            with pytest.raises(InputError, match=r"nothing to read|ends after it st"):
                read()
        else:
            output = read()
            assert output.shape == expected.shape
            assert np.abs(output - expected).max() <= LAST_BIT


@pytest.mark.parametrize(
    ("start_s", "end_s", "match"),
    [
        (1.0, 2.0, "nothing to read from 1.000 s to 2.000 s.* 1.000 s long"),
        (-2.0, -1.0, "nothing to read"),
        (0.5, 0.5, "ends after it starts"),
        (math.nan, 1.0, "ends after it starts"),
        (0.0, math.inf, "ends after it starts"),
    ],
)
def test_a_span_without_samples_is_an_error(tmp_path, start_s, end_s, match):
    path = write_float_wav(tmp_path / "a.wav", noise(16000))
    with open_recording(path, "a.wav") as reader:
        with pytest.raises(InputError, match=rf"^a\.wav: .*{match}"):
            reader.read(start_s, end_s, rate_hz=16000)
        with pytest.raises(OptionError, match="rate"):
            reader.read(0, 1, rate_hz=0)


@pytest.mark.parametrize(("value", "rate_hz"), [(math.nan, 16000), (-math.inf, 8000)])
def test_a_sample_that_is_not_finite_is_an_error_only_in_spans_with_it(
    tmp_path, value, rate_hz
):
    signal = noise(48000)
    signal[16000] = value
    message = f"expected finite samples, got {value} at 1.000 s"
    with open_recording(write_float_wav(tmp_path / "a.wav", signal)) as reader:
        with pytest.raises(InputError, match=message):
            reader.read(0.5, 1.5, rate_hz=rate_hz)
        assert np.isfinite(reader.read(1.5, 2.5, rate_hz=rate_hz)).all()


@pytest.mark.parametrize("peak", [1e-45, 1e-6, 3e38])
def test_peaks_of_any_size_get_the_level(peak):
    output = normalise_peak(np.array([0, peak, -peak], np.float32), -3.0)
    assert output.dtype == np.float32
    assert output == pytest.approx([0, 10**-0.15, -(10**-0.15)], rel=2e-7)


def test_silence_stays_silence():
    silence = np.zeros(10, np.float32)
    output = normalise_peak(silence, -3.0)
    assert np.array_equal(output, silence)
    assert output is not silence
    assert len(normalise_peak(silence[:0], -3.0)) == 0


def test_a_segment_has_its_collar_clipped_to_the_recording(tmp_path):
    signal = noise(32000)
    spans = {
        (0.1, 1.0): (0, 20000),
        (0.5, 1.0): (4000, 20000),
        (1.0, 1.9): (12000, 32000),
    }
    with open_recording(write_float_wav(tmp_path / "a.wav", signal)) as reader:
        for span, (first, last) in spans.items():
            output = read_span(reader, segment("a.wav", *span, collar_s=0.25))
            assert np.array_equal(output, signal[first:last, 0])
        loud = read_span(reader, segment("a.wav", 0, 1, peak_dbfs=-6.0))
        assert np.abs(loud).max() == pytest.approx(10**-0.3)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return a folder and segments of good files of many kinds, and of bad ones."""
    root = tmp_path_factory.mktemp("corpus")
    write_audio(root / "a.flac", noise(16000 * 20)[:, 0])
    write_audio(root / "b.wav", noise(44100 * 5, 2), 44100)
    write_audio(root / "c.ogg", noise(16000 * 5)[:, 0])
    write_audio(root / "d.mp3", noise(16000 * 5)[:, 0])
    truncate(write_audio(root / "e.flac", noise(16000 * 10)[:, 0]), 0.2)
    (root / "f.wav").write_text("no audio")
    starts = np.random.default_rng(0).uniform(0, 19, 60).tolist()
    segments = [segment("a.flac", one, one + 1.5, peak_dbfs=-3.0) for one in starts]
    for name in ("b.wav", "c.ogg", "d.mp3", "e.flac", "f.wav", "gone.wav"):
        for start in starts[:6]:
            span = (start / 5, start / 5 + 0.4)
            segments.append(segment(name, *span, channel_rule="mean"))
    segments += [
        segment("b.wav", 9, 10),
        segment("b.wav", 1, 2, channel_rule="9"),
        segment("b.wav", 1, 2, channel_rule="x"),
        segment("b.wav", math.nan, 2),
        segment("b.wav", 1, 2, source_rate_hz=88200.0),
    ]
    return root, segments


def test_loading_in_any_number_of_threads_equals_reading_each_segment_alone(corpus):
    root, segments = corpus
    alone = [read_alone(root, segment) for segment in segments]
    assert sum(isinstance(one, str) for one in alone) > 10
    for options in ({}, {"threads": 1, "ahead": 1}, {"threads": 4, "ahead": 3}):
        assert are_equal(read_all(root, segments, **options), alone)


def read_alone(root, segment):
    """Read one segment from a file opened for it, or return the text of the error."""
    try:
        path = segment["path"]
        with open_recording(root / path, path, segment["source_rate_hz"]) as reader:
            return read_span(reader, segment)
    except (InputError, OptionError) as error:
        return str(error)


def audio_threads():
    names = [thread.name for thread in threading.enumerate()]
    return sum(name.startswith("callshot-audio") for name in names)


def test_closing_early_stops_the_threads_and_closes_the_files(corpus):
    root, segments = corpus
    descriptors = Path("/proc/self/fd")
    open_before = len(list(descriptors.iterdir())) if descriptors.exists() else 0
    with closing(load_audio(make_spans(segments, root), threads=3)) as output:
        assert next(output)[0] == 0
        assert audio_threads() > 0
    assert audio_threads() == 0
    if open_before:
        assert len(list(descriptors.iterdir())) == open_before


def test_reading_ahead_stops_at_its_limits(corpus, monkeypatch):
    root, segments = corpus
    spans = make_spans(segments, root)
    submitted = []
    submit = audio.Pool.submit

    def count_and_submit(pool, *arguments):
        submitted.append(arguments)
        return submit(pool, *arguments)

    monkeypatch.setattr(audio.Pool, "submit", count_and_submit)
    with closing(load_audio(spans, threads=2, ahead=5)) as output:
        next(output)
    assert len(submitted) == 5
    submitted.clear()
    monkeypatch.setattr(audio, "MAX_PENDING_SAMPLES", 50_000)
    with closing(load_audio(spans, threads=2, ahead=500)) as output:
        next(output)
    assert 1 < len(submitted) <= 3


def test_a_file_is_opened_once_for_consecutive_segments(corpus, monkeypatch):
    root, segments = corpus
    opened = []

    def count_and_call(path, **names):
        opened.append(path)
        return open_recording(path, **names)

    monkeypatch.setattr(audio, "open_recording", count_and_call)
    read_all(root, segments[:50], threads=1)
    assert len(opened) == 1


@pytest.mark.parametrize("options", [{"threads": 0}, {"ahead": 0}])
def test_an_impossible_number_of_threads_is_an_error(tmp_path, options):
    with pytest.raises(OptionError, match="at least 1 thread"):
        next(load_audio(make_spans([], tmp_path), **options))


@pytest.mark.parametrize("band", [(300, 1000), (0, 900), (500, 4000), (0, 9000)])
def test_a_band_of_a_span_is_that_of_the_whole_recording_filtered(tmp_path, band):
    signal = noise(1200)[:, 0]
    path = write_float_wav(tmp_path / "a.wav", signal, 8000)
    # Ideal low-passes, windowed by Kaiser.
    half = len(design_filter(*band, 8000)) // 2
    n = np.arange(-half, half + 1)
    taps = np.zeros(len(n))
    for edge_hz, sign in zip(band, (-1, 1), strict=True):
        edge = min(2 * edge_hz / 8000, 1.0)
        taps += sign * edge * np.sinc(edge * n)
    taps *= np.kaiser(len(n), 0.1102 * (60 - 8.7))
    whole = np.convolve(signal, taps)[half : half + len(signal)]
    text = "-".join(map(str, band))
    with open_recording(path) as reader:
        for first, last in ((0, 1200), (0, 7), (100, 640), (1150, 1200)):
            times_s = (first / 8000, last / 8000)
            span = reader.read(*times_s, rate_hz=8000, passband_hz=text)
            np.testing.assert_allclose(span, whole[first:last], atol=LAST_BIT)


def test_a_filter_passes_its_band_and_stops_what_lies_outside():
    taps = design_filter(300.0, 1000.0, 48000)
    assert len(taps) % 2 == 1
    assert np.array_equal(taps, taps[::-1])  # no delay
    gain = np.abs(np.fft.rfft(taps, 480000))  # by tenths of Hz
    assert np.abs(gain[3500:9500] - 1).max() < 0.002
    assert gain[:2500].max() < 0.002
    assert gain[10500:].max() < 0.002
    assert gain[[3000, 10000]] == pytest.approx(0.5, abs=0.01)


def test_a_band_of_spans_is_read_at_other_rates_and_scaled_afterwards(tmp_path):
    time_s = np.arange(32000) / 16000
    tones = np.sin(2 * np.pi * 500 * time_s) + 3 * np.sin(2 * np.pi * 3000 * time_s)
    write_float_wav(tmp_path / "a.wav", (0.1 * tones).astype(np.float32), 16000)
    row = segment("a.wav", 0.5, 1.5)
    spans = make_spans([row], tmp_path).with_columns(
        rate_hz=22050, passband_hz="200-1000", peak_dbfs=-6.0
    )
    [(_, signal)] = load_audio(spans)
    power = np.abs(np.fft.rfft(signal * np.hanning(len(signal))))
    assert power.argmax() == 500
    assert power[2900:].max() < 0.005 * power.max()
    assert np.abs(signal).max() == pytest.approx(10 ** (-6 / 20), rel=1e-6)
