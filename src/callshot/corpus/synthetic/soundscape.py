"""The scene of a recording: its calls come in as if made beside the microphone, what the microphone hears goes out.

A scene belongs to the recording, not to the call: how far the callers are (level, loss of high frequencies, share of
reverberation), wind and its gusts, insects, birds, what the microphone loses below, and its own noise.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from callshot.corpus.synthetic.call_synthesis import Random, Samples


@dataclass(frozen=True, slots=True)
class Scene:
    """What all calls of a recording share. Levels are against a call of level 0 dB, as it is heard."""

    distance_m: float
    reverberation_s: float
    wind_db: float
    wind_hz: float
    gusts: float
    floor_db: float
    insects_db: float
    insects_hz: float
    birds_per_s: float
    birds_hz: float
    low_cut_hz: float
    colour: float
    peak: float


def draw_scene(random: Random) -> Scene:
    """Draw a scene: what is further away stands less above the noise."""
    distance_m = float(10 * 10 ** random.uniform(0, 1))
    noise_db = -17 + 8 * np.log10(distance_m / 10)
    return Scene(
        distance_m=distance_m,
        reverberation_s=random.uniform(0.3, 1.4),
        wind_db=noise_db + random.uniform(-10, 8),
        wind_hz=random.uniform(20, 120),
        gusts=random.uniform(0.2, 0.9),
        floor_db=noise_db + random.uniform(-25, -11),
        insects_db=noise_db + random.uniform(-25, -5),
        insects_hz=random.uniform(2500, 6000),
        birds_per_s=random.uniform(0, 0.8),
        birds_hz=random.uniform(1500, 5000),
        low_cut_hz=random.uniform(8, 45),
        colour=0.15 * random.standard_normal(),
        peak=random.uniform(0.3, 0.9),
    )


def hear(calls: Samples, scene: Scene, rate_hz: int, random: Random) -> Samples:
    """Put calls into their scene; the largest sample is the scene's peak.

    >>> from numpy.random import default_rng
    >>> heard = hear(np.zeros(16000, np.float32), draw_scene(default_rng(1)), 16000, default_rng(2))
    >>> heard.shape, bool(np.abs(heard).max() < 0.9)
    ((16000,), True)
    """
    size = fft.next_fast_len(calls.size + int(scene.reverberation_s * rate_hz), real=True)
    frequency_hz = fft.rfftfreq(size, 1 / rate_hz).astype(np.float32)
    microphone = _microphone(frequency_hz, scene)
    way = (
        microphone
        * _absorption(frequency_hz, scene.distance_m)
        * _reverberation(scene, size, rate_hz, random)
    )
    heard = fft.irfft(fft.rfft(calls, size) * way, size)[: calls.size]
    heard += _noise(scene, frequency_hz, microphone, size, rate_hz, random)[: calls.size]
    heard += _birds(scene, calls.size, rate_hz, random)
    return np.asarray(heard * np.float32(scene.peak / max(np.abs(heard).max(), 1e-9)), np.float32)


def _microphone(frequency_hz: Samples, scene: Scene) -> Samples:
    """Return the gain of a microphone that loses 12 dB per octave below its cut, and colours what is above."""
    square = (frequency_hz / np.float32(scene.low_cut_hz)) ** 2
    colour = (1 + frequency_hz / np.float32(300)) ** np.float32(scene.colour)
    return np.asarray(colour * square / np.sqrt(1 + square**2), np.float32)


def _absorption(frequency_hz: Samples, distance_m: float) -> Samples:
    """Return the gain of air, leaves and ground, which take more of what is high, and more on a longer way."""
    return np.asarray(10 ** (-(distance_m / 100) * (frequency_hz / 1000) * 0.35), np.float32)


def _reverberation(scene: Scene, size: int, rate_hz: int, random: Random) -> NDArray[np.complex64]:
    """Return the spectrum of an impulse and its exponential tail of noise, stronger on a longer way."""
    frames = int(scene.reverberation_s * rate_hz)
    decay = np.exp(np.linspace(0, -6.9, frames, dtype=np.float32))  # down 60 dB at the end
    tail = random.standard_normal(frames, np.float32) * decay
    tail *= np.float32(np.sqrt(scene.distance_m / 100) / np.sqrt((decay**2).sum()))
    tail[0] += 1
    return np.asarray(fft.rfft(tail, size), np.complex64)


def _noise(
    scene: Scene,
    frequency_hz: Samples,
    microphone: Samples,
    size: int,
    rate_hz: int,
    random: Random,
) -> Samples:
    """Draw wind in gusts, the even noise of the microphone, and insects that swell and fade."""
    white = random.standard_normal(2 * frequency_hz.size, np.float32).view(np.complex64)
    wind = microphone / (1 + (frequency_hz / np.float32(scene.wind_hz)) ** 1.5)
    floor = 1 / np.sqrt(1 + frequency_hz / np.float32(1000))
    insects = np.exp(
        -((frequency_hz / np.float32(min(scene.insects_hz, 0.4 * rate_hz)) - 1) ** 2)
        / np.float32(0.005)
    )
    noise = _shaped(white, wind, scene.wind_db, size) * np.exp(
        _slow(scene.gusts, size, 1.0, rate_hz, random)
    )
    noise += _shaped(white, floor, scene.floor_db, size)
    noise += _shaped(white, insects, scene.insects_db, size) * np.exp(
        _slow(0.5, size, 6.0, rate_hz, random)
    )
    return noise


def _shaped(white: NDArray[np.complex64], shape: Samples, level_db: float, size: int) -> Samples:
    """Shape a white spectrum into noise of a level."""
    noise = fft.irfft(white * shape, size)
    return np.asarray(
        noise * np.float32(10 ** (level_db / 20) / np.sqrt(np.mean(noise**2))), np.float32
    )


def _slow(depth: float, frames: int, points_hz: float, rate_hz: int, random: Random) -> Samples:
    """Draw what swells and fades over about 1 / `points_hz`."""
    points = depth * random.standard_normal(int(frames / rate_hz * points_hz) + 3)
    place = np.arange(frames, dtype=np.float32) * np.float32(points_hz / rate_hz)
    return np.asarray(np.interp(place, np.arange(points.size), points), np.float32)


def _birds(scene: Scene, frames: int, rate_hz: int, random: Random) -> Samples:
    """Draw a bird's short whistles, in phrases of a few, now and then."""
    heard = np.zeros(frames, np.float32)
    for _ in range(random.poisson(scene.birds_per_s * frames / rate_hz / 4)):
        begin, notes = int(random.uniform(0, frames)), int(random.integers(2, 7))
        whistle = _whistle(scene, rate_hz, random) * np.float32(
            10 ** (random.uniform(-20, 0) / 20) * 0.3
        )
        for note in range(notes):
            place = slice(
                begin + note * 2 * whistle.size, begin + note * 2 * whistle.size + whistle.size
            )
            heard[place] += whistle[: heard[place].size]
    return heard


def _whistle(scene: Scene, rate_hz: int, random: Random) -> Samples:
    frames = int(random.uniform(0.06, 0.2) * rate_hz)
    time = np.linspace(0, 1, frames)
    top_hz = min(scene.birds_hz * random.uniform(0.8, 1.2), 0.35 * rate_hz)
    pitch_hz = top_hz * (1 + random.uniform(-0.25, 0.25) * time)
    return np.asarray(
        np.sin(2 * np.pi * np.cumsum(pitch_hz) / rate_hz) * np.sin(np.pi * time), np.float32
    )
