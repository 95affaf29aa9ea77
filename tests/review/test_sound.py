import io
import math
import tracemalloc

import matplotlib
import numpy as np
import pytest
import soundfile
from matplotlib import image
from scipy.fft import next_fast_len

from callshot.corpus.spectrogram import find_fast_length
from callshot.review import sound
from callshot.review.sound import (
    MAPS,
    Clip,
    Picture,
    RecordingFiles,
    draw,
    filter_band,
    limit_played,
    make_pixels,
    make_wav,
    make_waveform,
    write_png,
)


def literal_pixels(clip, picture):
    """The text of the module, pixel by pixel."""
    samples = len(clip.signal)
    window = min(max(round(picture.window_s * clip.rate_hz), 8), 2**17)
    frames = max(1, min(16, math.ceil(samples * 2 / (picture.width * window))))
    size = next_fast_len(2 * window, real=True)
    hann = [math.sin(math.pi * (n + 1) / (window + 1)) ** 2 for n in range(window)]
    space = np.geomspace if picture.scale == "log" else np.linspace
    edges = space(*picture.band_hz(clip.rate_hz), picture.height + 1)
    pixels = np.zeros((picture.height, picture.width), np.uint8)
    for x in range(picture.width):
        power = np.zeros(size // 2 + 1)
        for f in range(frames):
            middle = math.floor(
                (x * frames + f + 0.5) * samples / (picture.width * frames)
            )
            frame = np.zeros(size)
            for n in range(window):
                at = middle - window // 2 + n
                if 0 <= at < samples:
                    frame[n] = clip.signal[at] * hann[n]
            power += np.abs(np.fft.rfft(frame)) ** 2 * (2 / sum(hann)) ** 2 / frames
        frequency = np.arange(size // 2 + 1) * clip.rate_hz / size
        for y in range(picture.height):
            low, high = edges[picture.height - 1 - y], edges[picture.height - y]
            inside = (frequency >= low) & (frequency < high)
            if inside.any():
                value = power[inside].mean()
            else:
                value = np.interp((low + high) / 2, frequency, power)
            share = (
                10 * math.log10(max(value, 1e-20)) - picture.floor_db
            ) / picture.range_db
            pixels[y, x] = round(255 * min(max(share, 0), 1))
    return pixels


@pytest.mark.parametrize(
    "picture",
    [
        Picture(20, 16, 0.02),
        Picture(7, 33, 0.05, 0.0, 600.0),
        Picture(40, 12, 0.01, 50.0, 5000.0, "log", -80.0, 60.0),
        Picture(3, 5, 0.004, 0.0, 100.0, "log"),
        Picture(5, 200, 0.1, 0.0, 90.0),
    ],
)
def test_every_pixel_is_that_of_the_literal_version(picture):
    rng = np.random.default_rng(0)
    time_s = np.arange(1500) / 2000.0
    signal = 0.3 * np.sin(2 * np.pi * 440 * time_s) + rng.normal(0, 0.01, 1500)
    clip = Clip(signal.astype(np.float32), 2000.0, 3.0)
    np.testing.assert_array_equal(
        make_pixels(clip, picture), literal_pixels(clip, picture)
    )


@pytest.mark.parametrize("name", MAPS)
def test_colours_are_those_of_matplotlib(name):
    pixels = np.arange(256, dtype=np.uint8).reshape(8, 32)
    picture = image.imread(io.BytesIO(write_png(pixels, name)), format="png")
    known = {"grey": "gray"}.get(name, name)
    expected = matplotlib.colormaps[known](pixels)[..., :3]
    np.testing.assert_allclose(picture[..., :3], expected, atol=0.5 / 255 + 1e-6)


def test_a_picture_has_the_size_and_the_band_that_were_asked_for():
    clip = Clip(np.zeros(100, np.float32), 1000.0, 0.0)
    picture = Picture(123, 45, max_hz=9000.0)
    assert image.imread(io.BytesIO(draw(clip, picture)), format="png").shape[:2] == (
        45,
        123,
    )
    assert picture.band_hz(1000.0) == (0.0, 500.0)
    assert Picture(scale="log").band_hz(1000.0) == (1.0, 500.0)


@pytest.mark.parametrize("speed", [0.125, 1, 2, 16])
@pytest.mark.parametrize("rate_hz", [1000, 44100, 192000])
def test_a_sound_is_played_faster_by_its_rate(speed, rate_hz):
    time_s = np.arange(rate_hz) / rate_hz
    tone = np.sin(2 * np.pi * 100 * time_s).astype(np.float32)
    content = make_wav(Clip(tone, rate_hz, 0.0), speed)
    played, played_hz = soundfile.read(io.BytesIO(content))
    assert 8000 <= played_hz <= 96000
    assert len(played) / played_hz == pytest.approx(1 / speed, rel=0.01)
    spectrum = np.abs(np.fft.rfft(played * np.hanning(len(played))))
    top_hz = spectrum.argmax() * played_hz / len(played)
    assert top_hz == pytest.approx(100 * speed, rel=0.02)
    if 8000 <= rate_hz * speed <= 96000:  # no sample is changed
        np.testing.assert_array_equal(played, np.round(tone * 32767) / 32768)


def test_a_band_keeps_its_frequencies_only():
    time_s = np.arange(8000) / 8000.0
    low = np.sin(2 * np.pi * 100 * time_s)
    high = np.sin(2 * np.pi * 2000 * time_s)
    clip = Clip((low + high).astype(np.float32), 8000.0, 0.0)
    inner = slice(1000, 7000)
    kept = filter_band(clip, high_hz=500.0).signal
    np.testing.assert_allclose(kept[inner], low[inner], atol=0.01)
    kept = filter_band(clip, 1000.0).signal
    np.testing.assert_allclose(kept[inner], high[inner], atol=0.01)
    assert np.abs(filter_band(clip, 300.0, 900.0).signal[inner]).max() < 0.02
    assert not filter_band(clip, 4000.0).signal.any()
    assert filter_band(clip, high_hz=9000.0) is clip


def test_a_waveform_has_the_extremes_of_each_column():
    signal = np.random.default_rng(0).uniform(-1, 1, 1003).astype(np.float32)
    clip = Clip(signal, 100.0, 2.0)
    waveform = make_waveform(clip, 10)
    edges = [n * 1003 // 10 for n in range(11)]
    for n in range(10):
        part = signal[edges[n] : edges[n + 1]]
        assert waveform["low"][n] == pytest.approx(part.min(), abs=1e-4)
        assert waveform["high"][n] == pytest.approx(part.max(), abs=1e-4)
    assert len(make_waveform(Clip(signal[:3], 100.0, 0.0), 10)["low"]) == 10


def test_a_span_is_cut_at_the_ends_of_the_recording(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.arange(1000) / 2000, 1000, subtype="FLOAT")
    files = RecordingFiles({"a.wav": tmp_path})
    clip = files.read("a.wav", -5.0, 0.25)
    assert (clip.start_s, clip.end_s) == (0.0, 0.25)
    clip = files.read("a.wav", 0.9, 7.0)
    assert clip.end_s == 1.0
    np.testing.assert_allclose(clip.signal, np.arange(900, 1000) / 2000, atol=1e-6)


def test_long_windows_take_a_bounded_amount_of_memory():
    signal = np.random.default_rng(0).normal(0, 0.1, 200_000).astype(np.float32)
    clip = Clip(signal, 384_000, 0.0)
    tracemalloc.start()
    try:
        draw(clip, Picture(width=120, height=50, window_s=0.5))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * 2**20


def test_a_sound_takes_at_most_so_long_to_play(monkeypatch):
    assert sound.MAX_PLAYED_S == 1800
    monkeypatch.setattr(sound, "MAX_PLAYED_S", 8.0)
    clip = Clip(np.zeros(3 * 250, np.float32), 250, 0.0)
    assert limit_played(clip, 0.0625).end_s == 0.5
    assert limit_played(clip, 1.0).end_s == 3.0


def test_lengths_of_transforms_are_those_of_scipy():
    for length in [*range(1, 3000), 65537, 2**18 - 1, 2**18]:
        assert find_fast_length(length) == next_fast_len(length, real=True)
