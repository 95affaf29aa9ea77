"""The soundscape of a recording: calls as if made beside the microphone → what it records.

A soundscape belongs to the recording, not to the call: the distance of the callers (level, loss of
high frequencies, share of reverberation), wind and its gusts, insects, birds, and the microphone
with its low cut and its own noise.
"""

from dataclasses import dataclass

import numpy as np
from scipy import fft

from callshot.corpus.synthetic.call_synthesis import (
    Random,
    Samples,
    Spectrum,
    apply_gain,
    draw_slow_noise,
    frequency_grid,
)

# Limits of values that are equally likely; levels are relative to that of all noise.
RANGES = {
    "reverberation_s": (0.3, 1.4),
    "wind_db": (-10, 8),
    "wind_hz": (20, 120),
    "gusts": (0.2, 0.9),
    "floor_db": (-25, -11),
    "insects_db": (-25, -5),
    "insects_hz": (2500, 6000),
    "birds_per_s": (0, 0.8),
    "birds_hz": (1500, 5000),
    "low_cut_hz": (8, 45),
}
NOISES_DB = ("wind_db", "floor_db", "insects_db")


@dataclass(frozen=True, slots=True)
class Soundscape:
    """What all calls of a recording share. Levels are relative to a recorded call of 0 dB."""

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


def draw_soundscape(random: Random) -> Soundscape:
    """Draw a soundscape; distant callers are closer to the level of the noise."""
    distance_m = 10 * 10 ** random.uniform(0, 1)
    noise_db = -17 + 8 * np.log10(distance_m / 10)
    values = {name: random.uniform(*limits) for name, limits in RANGES.items()}
    for name in NOISES_DB:
        values[name] += noise_db
    return Soundscape(
        distance_m=distance_m,
        **values,
        colour=0.15 * random.standard_normal(),
        peak=random.uniform(0.3, 0.9),
    )


def mix_soundscape(
    calls: Samples, soundscape: Soundscape, rate_hz: int, random: Random
) -> Samples:
    """Add distance, noise and birds to calls, and scale the result to the peak of the soundscape.

    >>> from numpy.random import default_rng
    >>> silence = np.zeros(16000, np.float32)
    >>> samples = mix_soundscape(silence, draw_soundscape(default_rng(1)), 16000, default_rng(2))
    >>> samples.shape, bool(np.abs(samples).max() < 0.9)
    ((16000,), True)
    """
    tail_size = int(soundscape.reverberation_s * rate_hz)
    size, frequency_hz = frequency_grid(calls.size + tail_size, rate_hz)
    microphone = microphone_gain(frequency_hz, soundscape)
    gain = _draw_path_gain(soundscape, frequency_hz, size, tail_size, random)
    mixture = apply_gain(calls, gain, size)
    noise = _draw_noise(soundscape, frequency_hz, microphone, size, rate_hz, random)
    mixture += noise[: calls.size]
    birds = (soundscape.birds_per_s, soundscape.birds_hz)
    mixture += draw_birds(*birds, calls.size, rate_hz, random)
    peak = max(np.abs(mixture).max(), 1e-9)
    return mixture * np.float32(soundscape.peak / peak)


def record_call(
    call: Samples, soundscape: Soundscape, rate_hz: int, random: Random
) -> Samples:
    """Return a call as the microphone records it, without noise but with its reverberation.

    The result is longer than the call by the time of the reverberation.
    """
    tail_size = int(soundscape.reverberation_s * rate_hz)
    padded = np.pad(call, (0, tail_size))
    size, frequency_hz = frequency_grid(padded.size, rate_hz)
    gain = _draw_path_gain(soundscape, frequency_hz, size, tail_size, random)
    return apply_gain(padded, gain, size)


def _draw_path_gain(
    soundscape: Soundscape,
    frequency_hz: Samples,
    size: int,
    tail_size: int,
    random: Random,
) -> Spectrum:
    """Draw the gain from a caller to the recording: air, reverberation, microphone."""
    microphone = microphone_gain(frequency_hz, soundscape)
    absorption = _absorption_gain(frequency_hz, soundscape.distance_m)
    tail = _draw_reverberation(soundscape.distance_m, tail_size, random)
    gain: Spectrum = microphone * absorption * fft.rfft(tail, size)
    return gain


def microphone_gain(frequency_hz: Samples, soundscape: Soundscape) -> Samples:
    """Return a gain that falls by 12 dB per octave below the low cut, with a colour above it."""
    square = (frequency_hz / soundscape.low_cut_hz) ** 2
    colour = (1 + frequency_hz / 300) ** soundscape.colour
    gain: Samples = colour * square / np.sqrt(1 + square**2)
    return gain


def _absorption_gain(frequency_hz: Samples, distance_m: float) -> Samples:
    """Return the gain of air, leaves and soil, which absorb more at high frequencies."""
    exponent: Samples = -(distance_m / 100) * (frequency_hz / 1000) * 0.35
    return 10**exponent


def _draw_reverberation(distance_m: float, size: int, random: Random) -> Samples:
    """Return an impulse and its decaying tail of noise, which is stronger when distant."""
    decay = np.exp(np.linspace(0, -6.9, size, dtype=np.float32))  # by 60 dB
    level = np.sqrt(distance_m / 100) / np.sqrt((decay**2).sum())
    tail = random.standard_normal(size, np.float32) * decay
    tail *= np.float32(level)
    tail[0] += 1
    return tail


def _draw_noise(
    soundscape: Soundscape,
    frequency_hz: Samples,
    microphone: Samples,
    size: int,
    rate_hz: int,
    random: Random,
) -> Samples:
    """Draw wind in gusts, the steady noise of the microphone, and insects that swell and fade."""
    white = random.standard_normal(2 * frequency_hz.size, np.float32)
    spectrum = white.view(np.complex64)
    wind = microphone / (1 + (frequency_hz / soundscape.wind_hz) ** 1.5)
    floor = 1 / np.sqrt(1 + frequency_hz / 1000)
    insects_hz = min(soundscape.insects_hz, 0.4 * rate_hz)
    detuning = frequency_hz / insects_hz - 1
    insects = np.exp(-(detuning**2) / 0.005)
    gusts = _draw_swell(size, rate_hz, 1.0, soundscape.gusts, random)
    noise = _shape_noise(spectrum, wind, soundscape.wind_db, size) * gusts
    noise += _shape_noise(spectrum, floor, soundscape.floor_db, size)
    swell = _draw_swell(size, rate_hz, 6.0, 0.5, random)
    noise += _shape_noise(spectrum, insects, soundscape.insects_db, size) * swell
    return noise


def _draw_swell(
    size: int, rate_hz: int, points_hz: float, depth: float, random: Random
) -> Samples:
    """Draw a gain that changes slowly; the deviation of its logarithm is `depth`."""
    noise = draw_slow_noise(
        size, rate_hz, points_hz, random, scale=depth, dtype=np.float32
    )
    gain: Samples = np.exp(noise)
    return gain


def _shape_noise(white: Spectrum, gain: Samples, level_db: float, size: int) -> Samples:
    """Turn a white spectrum into noise of a shape and a level."""
    noise: Samples = fft.irfft(white * gain, size)
    level = np.sqrt(np.mean(noise**2))
    return noise * np.float32(10 ** (level_db / 20) / level)


def draw_birds(
    birds_per_s: float, birds_hz: float, size: int, rate_hz: int, random: Random
) -> Samples:
    """Draw phrases of a few short whistles."""
    samples = np.zeros(size, np.float32)
    phrases = birds_per_s * size / rate_hz / 4
    for _ in range(random.poisson(phrases)):
        first = int(random.uniform(0, size))
        notes = random.integers(2, 7)
        whistle = _draw_whistle(birds_hz, rate_hz, random)
        level_db = random.uniform(-20, 0)
        whistle *= 10 ** (level_db / 20) * 0.3
        for _ in range(notes):
            note = samples[first : first + whistle.size]
            note += whistle[: note.size]
            first += 2 * whistle.size
    return samples


def _draw_whistle(birds_hz: float, rate_hz: int, random: Random) -> Samples:
    size = int(random.uniform(0.06, 0.2) * rate_hz)
    time = np.linspace(0, 1, size)
    start_hz = min(birds_hz * random.uniform(0.8, 1.2), 0.35 * rate_hz)
    sweep = random.uniform(-0.25, 0.25)
    pitch_hz = start_hz * (1 + sweep * time)
    phase = 2 * np.pi * np.cumsum(pitch_hz) / rate_hz
    whistle = np.sin(phase) * np.sin(np.pi * time)
    return whistle.astype(np.float32)
