"""Tiles of long recordings: the same as a literal version that reads everything."""

import math
import os
from fractions import Fraction

import numpy as np
import pytest
import soundfile

from callshot.errors import InputError
from callshot.review import tiles
from callshot.review.tiles import WIDTH, TiledFiles, TileKey

RATE_HZ = 4000
HEIGHT = 24
WINDOW_S = 0.032


@pytest.fixture(scope="module", params=["wav", "flac"])
def recording(request, tmp_path_factory):
    """Write 100 s of noise that gets louder, with a tone that rises."""
    rng = np.random.default_rng(1)
    time_s = np.arange(100 * RATE_HZ) / RATE_HZ
    noise = rng.standard_normal(len(time_s)) * time_s / 2000
    signal = noise + 0.3 * np.sin(2 * np.pi * (100 + 7 * time_s) * time_s)
    path = tmp_path_factory.mktemp("tiles") / f"a.{request.param}"
    soundfile.write(path, signal, RATE_HZ, "PCM_16")
    return path


def draw_literally(path, key, frames):
    """Return the pixels of a tile, one frame after another, from the whole recording."""
    signal, rate_hz = soundfile.read(path)
    window = round(key.window_s * rate_hz)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(1, window + 1) / (window + 1))
    size = 2 * window
    bin_hz = np.arange(window + 1) * rate_hz / size
    edges_hz = np.linspace(0, min(key.max_hz, rate_hz / 2), key.height + 1)
    pixels = np.zeros((key.height, WIDTH))
    for x in range(WIDTH):
        column = key.number * WIDTH + x
        if column * 2**key.level / 1000 >= len(signal) / rate_hz:
            continue
        power = np.zeros(window + 1)
        for j in range(frames):
            middle = column + Fraction(2 * j + 1, 2 * frames)
            middle_s = middle * 2**key.level / 1000
            first = math.floor(middle_s * rate_hz) - window // 2
            frame = [
                signal[n] if 0 <= n < len(signal) else 0.0
                for n in range(first, first + window)
            ]
            spectrum = np.fft.rfft(frame * hann, size) * 2 / hann.sum()
            power += np.abs(spectrum) ** 2 / frames
        for row in range(key.height):
            inside = (bin_hz >= edges_hz[row]) & (bin_hz < edges_hz[row + 1])
            level_db = 10 * np.log10(max(power[inside].mean(), 1e-20))
            share = min(max((level_db + 150) / 150, 0.0), 1.0)
            pixels[key.height - 1 - row, x] = 255 * share
    return pixels


@pytest.mark.parametrize(("level", "number"), [(3, 0), (4, 2), (6, 1), (7, 0), (8, 1)])
def test_a_tile_equals_a_literal_version(recording, monkeypatch, level, number):
    # Tiles from level 7 on have only one frame for each column, which alone is read.
    monkeypatch.setattr(tiles, "MAX_READ", WIDTH * 2**6 * RATE_HZ // 1000)
    files = TiledFiles({recording.name: recording.parent})
    key = TileKey(level, number, HEIGHT, WINDOW_S, 1500.0)
    content = files.draw_tile(recording.name, key)
    drawn = np.frombuffer(content, np.uint8).reshape(HEIGHT, WIDTH)
    frames = {3: 1, 4: 1, 6: 4, 7: 1, 8: 1}[level]
    literal = draw_literally(recording, key, frames)
    assert np.abs(drawn - literal).max() <= 0.51
    assert literal.std() > 10
    files.close()


def test_neighbouring_tiles_are_parts_of_one_picture(recording):
    """The end of a tile does not depend on where its audio was cut."""
    files = TiledFiles({recording.name: recording.parent})
    size = 2 * WIDTH * 2**4 / 1000  # seconds of two tiles at level 4, of one at level 5
    assert size < 100
    coarse = files.draw_tile(recording.name, TileKey(5, 1, HEIGHT, 0.064, 2000.0))
    fine = [
        files.draw_tile(recording.name, TileKey(4, n, HEIGHT, 0.064, 2000.0))
        for n in (2, 3)
    ]
    joined = np.hstack(
        [np.frombuffer(one, np.uint8).reshape(HEIGHT, WIDTH) for one in fine]
    )
    middle = np.frombuffer(coarse, np.uint8).reshape(HEIGHT, WIDTH)
    # The mean of two columns, within some dB: frames are at other times.
    means = joined.reshape(HEIGHT, WIDTH, 2).mean(axis=2)
    assert np.median(np.abs(means - middle)) < 10
    files.close()


def test_a_file_that_changed_is_drawn_again_and_one_that_is_gone_is_an_error(tmp_path):
    path = tmp_path / "a.wav"
    key = TileKey(0, 0, HEIGHT, WINDOW_S, 2000.0)
    files = TiledFiles({"a.wav": tmp_path})
    contents = []
    for number, gain in enumerate((0.0, 0.5)):
        tone = gain * np.sin(np.arange(RATE_HZ))
        path.unlink(missing_ok=True)  # the reader that is open has the old one
        soundfile.write(path, tone, RATE_HZ)
        os.utime(path, (number, number))
        contents.append(files.draw_tile("a.wav", key))
    assert contents[0] != contents[1]
    path.unlink()
    with pytest.raises(InputError, match="not in"):
        files.draw_tile("a.wav", key)
    files.close()
