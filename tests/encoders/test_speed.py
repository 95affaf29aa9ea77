"""Segments are sped up or slowed down; times stay real, and nothing is lost at an end."""

import numpy as np
import pytest
import soundfile
import soxr

from callshot.encoders.catalogue import find_encoder
from callshot.encoders.embed import EmbedOptions, embed
from callshot.encoders.encode import Encoder
from callshot.encoders.windows import find_spans, resample
from callshot.errors import OptionError
from rows_of_spans import make_row, make_spans

RATE_HZ = 4000
MODEL_HZ = 12000
SPEEDS = [0.1, 7.7]


def make_encoder(speed, **choices):
    """Return an encoder of windows of 1 s at 12 kHz whose model gives the samples back."""
    texts = {"speed": str(speed), "window_s": "1", "rate_hz": str(MODEL_HZ)} | choices
    return Encoder(find_encoder("birdnet-v2.4", texts), lambda windows: windows, {})


def window_times(samples, options, speed):
    """Return when each window begins, in real seconds; one with padding before its audio."""
    times_s = []
    for span in find_spans(samples, options):
        padding = options.window - (span.stop - span.start)
        is_filled = samples > options.window and options.remainder == "wrap"
        if is_filled or options.padding != "centre":
            padding = 0  # before the audio
        times_s.append((span.start - padding // 2) * speed / options.rate_hz)
    return times_s


def find_click(encoder, signal):
    """Return the time of the loudest sample of all windows, and the number of its window."""
    windows = encoder.prepare(signal, RATE_HZ).input
    resampled = resample(signal, RATE_HZ * encoder.spec.speed, MODEL_HZ)
    speed = encoder.spec.speed
    starts_s = window_times(len(resampled), encoder.spec.windowing, speed)
    window, sample = np.unravel_index(np.abs(windows).argmax(), windows.shape)
    return starts_s[window] + sample * speed / MODEL_HZ, window


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize(
    ("padding", "remainder"),
    [("centre", "pad"), ("right", "pad"), ("right", "wrap"), ("centre", "extend")],
)
def test_a_click_is_found_at_its_time_in_every_window(speed, padding, remainder):
    encoder = make_encoder(speed, padding=padding, remainder=remainder)
    samples = round(2.4 * speed * RATE_HZ)  # three windows, the last one not full
    sample_s = max(1 / RATE_HZ, speed / MODEL_HZ)
    found = set()
    for share in (0, 0.2, 0.5, 0.7, 0.95, 1):
        click = round(share * (samples - 1))
        signal = np.zeros(samples, np.float32)
        signal[click] = 1
        time_s, window = find_click(encoder, signal)
        assert abs(time_s - click / RATE_HZ) <= sample_s
        found.add(int(window))
    assert found == {0, 1, 2}


@pytest.mark.parametrize(("name", "speed"), [("mfcc", 0.25), ("birdnet-v2.4", 3.0)])
def test_a_model_gets_audio_as_if_it_were_resampled_by_hand(name, speed):
    spec = find_encoder(name)
    fast = find_encoder(name, {"speed": str(speed)})
    sound = np.random.default_rng(0).normal(scale=0.1, size=round(32000 * speed))
    sound = sound.astype(np.float32)
    by_hand = soxr.resample(sound, 16000 * speed, spec.rate_hz, quality="HQ")
    found = Encoder(fast, abs, {}).prepare(sound, 16000).input
    expected = Encoder(spec, abs, {}).prepare(by_hand, spec.rate_hz).input
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("speed", [0.5, 1, 2])
def test_only_the_band_reaches_the_model_at_every_speed(speed, tmp_path):
    """Frequencies of a band are those of the recording, before the change of speed."""
    time_s = np.arange(2 * 16000) / 16000
    low = 0.1 * np.sin(2 * np.pi * 500 * time_s)
    high = 0.1 * np.sin(2 * np.pi * 3000 * time_s)
    soundfile.write(tmp_path / "both.wav", low + high, 16000, subtype="FLOAT")
    soundfile.write(tmp_path / "low.wav", low, 16000, subtype="FLOAT")

    def embed_band(name, band):
        spans = make_spans([make_row(name, 0.5, 1.5, rate_hz=16000)], tmp_path)
        choices = {"speed": str(speed), "band": band}
        table, _ = embed(spans, "mfcc", EmbedOptions(choices, tmp_path / "store"))
        return table.matrix

    filtered = embed_band("both.wav", "200-1000")
    change = np.abs(filtered - embed_band("both.wav", "none"))
    assert change.max() > 1
    loudest = slice(0, 20)  # means
    difference = np.abs(filtered - embed_band("low.wav", "200-1000"))[:, loudest]
    assert difference.max() < 0.1 * change[:, loudest].max()


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"speed": "0"}, "speed: expected 0.01 to 100, got 0"),
        ({"speed": "nan"}, "speed: expected 0.01 to 100, got nan"),
        ({"speed": "fast"}, "speed: expected a value like 1.0, got 'fast'"),
        ({"band": "wide"}, r"band: expected a value like 300-1000 \(Hz\), got 'wide'"),
        ({"band": "300"}, r"band: expected a value like 300-1000 \(Hz\), got '300'"),
        ({"band": "900-300"}, "expected a lower and a higher frequency, got 900-300"),
        ({"band": "nan-300"}, "band: expected 1 to 16000 Hz, got nan"),
        ({"band": "0.1-300"}, "band: expected 1 to 16000 Hz, got 0.1"),
        ({"band": "300-9000"}, "band: expected at most 8000 Hz, the highest"),
        ({"band": "300-7000", "speed": "2"}, "at most 4000 Hz.* at speed 2, got 7000"),
        ({"pooling": "mximum"}, "pooling: expected one of mean, audio, max"),
    ],
)
def test_a_wrong_value_is_an_error(choices, message):
    with pytest.raises(OptionError, match=message):
        find_encoder("mfcc", choices)
