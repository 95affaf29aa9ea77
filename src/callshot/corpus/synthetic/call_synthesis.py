"""The voice of one call: a type, a caller and a length come in, its waveform goes out, at unit power.

A call is a source through a filter. The source is a wave of many harmonics, read at a phase that follows the contour of
the fundamental, roughened and mixed with breath; the filter is the resonances (formants) of the caller's tract. Ranges
of neighbouring types overlap, as those of elephants do. The figures imitate what is published of such calls in outline;
they are measurements of no animal.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from callshot.records import FloatArray

Samples = NDArray[np.float32]
Random = np.random.Generator

WAVE_SIZE = 16384  # so fine that the nearest entry will do
FADE_S = 0.03  # no call begins or ends with a click
FORMANT_Q = 3.0
FORMANT_STEP = 0.45  # each formant is so much weaker than the one below it
RIPPLE = 0.55  # how far it moves the gain at each third of an octave, in nepers
RIPPLE_POINTS = 40  # thirds of an octave: beyond what any rate holds
LEAK = 0.02  # what passes the tract beside its formants


@dataclass(frozen=True, slots=True)
class Voice:
    """What the calls of one type have in common; pairs are ranges.

    `f0_hz` bounds the mean fundamental of a call, which the contour then moves by up to `sweep` (a share) around it.
    `tilt` is how fast harmonics weaken (h ** -tilt), `breath` the power of noise against that of harmonics, `rough` the
    depth of irregular modulation and of the subharmonic, `pulse_hz` the rate of regular modulation. `attack` and
    `decay` are shares of the length. `level_db` is how loud the type is beside the others.
    """

    f0_hz: tuple[float, float]
    duration_s: tuple[float, float]
    contour: str
    sweep: float
    formants_hz: tuple[float, float, float]
    tilt: float
    breath: float
    rough: float
    attack: float
    decay: float
    level_db: float
    pulse_hz: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: a pitch and a tract length against the mean of all, how much duller than they, and a timbre.

    `ripple` is in nepers at each third of an octave.
    """

    pitch: float = 1.0
    tract: float = 1.0
    tilt: float = 0.0
    ripple: tuple[float, ...] = (0.0,) * RIPPLE_POINTS


CONTOURS: dict[str, Callable[[FloatArray], FloatArray]] = {  # of the share of time, from −1 to 1
    "flat": np.zeros_like,
    "rise": lambda t: 2 * t - 1,
    "fall": lambda t: 1 - 2 * t,
    "arch": lambda t: 1 - 2 * (2 * t - 1) ** 2,
    "late fall": lambda t: 0.4 * np.sin(6 * np.pi * t) * (1 - t) + 0.4 - 1.4 * t**4,
    "waver": lambda t: np.sin(4 * np.pi * t),
}

# fmt: off
VOICES = {  # f0_hz, duration_s, contour, sweep, formants_hz, tilt, breath, rough, attack, decay, level_db, pulse_hz
    "comment rumble": Voice((14, 22), (1.6, 5), "flat", 0.04, (105, 400, 950), 1.3, 0.1, 0.15, 0.2, 0.3, 0),
    "oestrous rumble": Voice((11, 18), (3.5, 9), "late fall", 0.18, (75, 310, 1000), 1.3, 0.1, 0.15, 0.25, 0.4, 0),
    "greeting rumble": Voice((15, 25), (3, 7), "arch", 0.25, (150, 560, 1500), 0.9, 0.15, 0.25, 0.05, 0.3, 3),
    "grumbling rumble": Voice((13, 22), (1.3, 4), "waver", 0.08, (120, 480, 1700), 0.9, 2.0, 0.5, 0.1, 0.2, 0),
    "separated rumble": Voice((16, 26), (2, 5.5), "rise", 0.2, (140, 900, 1350), 0.6, 0.05, 0.1, 0.3, 0.15, 3),
    "lets-go rumble": Voice((14, 20), (3, 7), "flat", 0.03, (90, 620, 850), 0.8, 0.1, 0.1, 0.15, 0.25, 2, (0.4, 0.7)),
    "musth rumble": Voice((10, 15), (2, 6), "flat", 0.05, (55, 220, 700), 1.0, 0.25, 0.35, 0.1, 0.2, 2, (3, 5)),
    "begging rumble": Voice((22, 35), (1.1, 2.2), "fall", 0.15, (240, 1050, 2200), 0.8, 0.1, 0.15, 0.1, 0.3, 1),
    "conflict roar": Voice((100, 280), (1.2, 3.5), "arch", 0.15, (300, 800, 1700), 1.0, 0.5, 0.9, 0.1, 0.25, 1),
    "trumpet blast": Voice((320, 600), (1.1, 2.5), "arch", 0.06, (850, 1900, 3400), 0.7, 0.2, 0.2, 0.05, 0.15, 0),
    "pulsated play trumpet": Voice(
        (330, 650), (1.1, 3), "waver", 0.08, (950, 2200, 3800), 0.6, 0.4, 0.4, 0.05, 0.15, 0, (5, 12)
    ),
    "cow-calf rumble": Voice((17, 27), (1.2, 3), "arch", 0.1, (130, 550, 1200), 1.2, 0.15, 0.15, 0.2, 0.3, 0),
    "baroo rumble": Voice((18, 30), (1.5, 4), "waver", 0.3, (160, 600, 1500), 1.1, 0.2, 0.2, 0.15, 0.25, 1),
    "nasal trumpet": Voice((250, 420), (1.1, 2), "fall", 0.1, (700, 1500, 2600), 0.9, 0.3, 0.3, 0.1, 0.2, 2),
}
# fmt: on
CHORUS = "female chorus"
CHORUS_DURATION_S = (3.5, 9.0)
CHORUS_LEVEL_DB = 3.0
CHORUS_RUMBLES = ("greeting rumble", "comment rumble", "oestrous rumble", "separated rumble")
CHORUS_OTHERS = ("conflict roar", "conflict roar", "trumpet blast")


def draw_caller(random: Random) -> Caller:
    """Draw one caller."""
    return Caller(
        pitch=float(np.exp(0.10 * random.standard_normal())),
        tract=float(np.exp(0.12 * random.standard_normal())),
        tilt=float(0.1 * random.standard_normal()),
        ripple=tuple(_draw_ripple(random).tolist()),
    )


def duration_range_s(label: str) -> tuple[float, float]:
    """Return the shortest and the longest whole call of a type."""
    return CHORUS_DURATION_S if label == CHORUS else VOICES[label].duration_s


def level_db(label: str) -> float:
    """Return how loud a type is beside the others."""
    return CHORUS_LEVEL_DB if label == CHORUS else VOICES[label].level_db


def band_hz(label: str, random: Random) -> tuple[float, float]:
    """Draw the lowest and the highest frequency of the box that a person would draw around a call of a type."""
    voices = [VOICES[name] for name in CHORUS_RUMBLES] if label == CHORUS else [VOICES[label]]
    low_hz, high_hz = (
        min(voice.f0_hz[0] for voice in voices),
        max(voice.formants_hz[-1] for voice in voices),
    )
    return low_hz * random.uniform(0.6, 0.9), high_hz * random.uniform(0.6, 1.1)


def sing(
    label: str, callers: list[Caller], duration_s: float, rate_hz: int, random: Random
) -> Samples:
    """Make one call of a type by the first of the callers, or for a chorus by all and more, with unit mean power.

    >>> from numpy.random import default_rng
    >>> random = default_rng(0)
    >>> sing("musth rumble", [draw_caller(random)], 2.5, 16000, random).shape
    (40000,)
    """
    frames = max(1, round(duration_s * rate_hz))
    if label == CHORUS:
        return _chorus(callers, frames, rate_hz, random)
    return _call(VOICES[label], callers[0], frames, rate_hz, random)


def _chorus(callers: list[Caller], frames: int, rate_hz: int, random: Random) -> Samples:
    """Let three to five callers rumble over each other from end to end, and mostly one roar or trumpet into it."""
    mixture = np.zeros(frames, np.float32)
    choir = [
        *callers,
        *(draw_caller(random) for _ in range(int(random.integers(3, 6)) - len(callers))),
    ]
    for number, caller in enumerate(choir):
        _join(
            mixture,
            CHORUS_RUMBLES,
            caller,
            random.uniform(0.5, 0.8),
            number / (len(choir) - 1),
            rate_hz,
            random,
        )
    if random.random() < 0.8:
        _join(
            mixture,
            CHORUS_OTHERS,
            choir[0],
            random.uniform(0.25, 0.5),
            random.random(),
            rate_hz,
            random,
        )
    return _unit_power(mixture)


def _join(
    mixture: Samples,
    types: tuple[str, ...],
    caller: Caller,
    share: float,
    place: float,
    rate_hz: int,
    random: Random,
) -> None:
    """Add a call that takes a share of the mixture, at a place from its beginning (0) to its end (1)."""
    size = max(1, int(share * mixture.size))
    begin = int(place * (mixture.size - size))
    part = _call(VOICES[types[random.integers(len(types))]], caller, size, rate_hz, random)
    mixture[begin : begin + size] += np.float32(random.uniform(0.5, 1.0)) * part


def _call(voice: Voice, caller: Caller, frames: int, rate_hz: int, random: Random) -> Samples:
    f0_hz = _fundamental(voice, caller, frames, rate_hz, random)
    phase = np.cumsum(f0_hz / rate_hz) + random.random()
    tilt = voice.tilt + caller.tilt + 0.08 * random.standard_normal()
    source = _unit_power(_wave(phase, tilt, float(f0_hz.max()), rate_hz))
    source *= 1 + np.float32(voice.rough) * np.cos(np.pi * phase).astype(
        np.float32
    )  # every second period is weaker
    breath = np.float32(np.sqrt(voice.breath * random.uniform(0.5, 2.0)))
    source += breath * random.standard_normal(frames, np.float32)
    source *= _loudness(voice, frames, rate_hz, random)
    stretch = caller.tract * np.exp((0.12 + 0.1 * voice.rough) * random.standard_normal(3))
    ripple = caller.ripple + _draw_ripple(random)
    return _unit_power(
        _faded(_through_tract(source, voice.formants_hz / stretch, ripple, rate_hz), rate_hz)
    )


def _fundamental(
    voice: Voice, caller: Caller, frames: int, rate_hz: int, random: Random
) -> FloatArray:
    """Draw the fundamental of every sample: the type's range, the caller's pitch, the contour, vibrato and jitter."""
    low, high = voice.f0_hz
    mean_hz = float(np.clip(random.uniform(low, high) * caller.pitch, low, high))
    time = np.linspace(0, 1, frames)
    sweep = voice.sweep * random.uniform(0.6, 1.2) * CONTOURS[voice.contour](time)
    vibrato = 0.02 * np.sin(
        2 * np.pi * (random.uniform(1, 4) * frames / rate_hz * time + random.random())
    )
    jitter = (0.01 + 0.05 * voice.rough) * _wander(frames, rate_hz, 25, random)
    return np.asarray(mean_hz * np.clip(1 + sweep - sweep.mean() + vibrato + jitter, 0.4, 2.0))


def _wander(frames: int, rate_hz: int, points_hz: float, random: Random) -> FloatArray:
    """Draw noise that changes no faster than `points_hz`, about one in size."""
    points = random.standard_normal(int(frames / rate_hz * points_hz) + 3)
    return np.asarray(
        np.interp(np.arange(frames) * (points_hz / rate_hz), np.arange(points.size), points)
    )


def _wave(phase: FloatArray, tilt: float, highest_hz: float, rate_hz: int) -> Samples:
    """Read a wave with as many harmonics as the rate allows at the given phases (in cycles)."""
    harmonics = max(1, min(int(0.45 * rate_hz / highest_hz), WAVE_SIZE // 16))
    spectrum = np.zeros(WAVE_SIZE // 2 + 1)
    spectrum[1 : harmonics + 1] = np.arange(1.0, harmonics + 1) ** -tilt
    wave = fft.irfft(spectrum).astype(np.float32)
    return np.asarray(wave[(phase * WAVE_SIZE).astype(np.int64) % WAVE_SIZE])


def _loudness(voice: Voice, frames: int, rate_hz: int, random: Random) -> Samples:
    """Draw how the amplitude goes: it rises and decays, shimmers, and pulses if the type does."""
    shares = [
        0,
        voice.attack * random.uniform(0.6, 1.4),
        1 - voice.decay * random.uniform(0.6, 1.4),
        1,
    ]
    loudness = np.interp(np.linspace(0, 1, frames), shares, [0.1, 1, 1, 0.1])
    loudness *= np.exp(
        (0.1 + 0.4 * voice.rough) * _wander(frames, rate_hz, 12 + 40 * voice.rough, random)
    )
    pulse_hz = random.uniform(*voice.pulse_hz)
    if pulse_hz > 0:
        loudness *= (
            0.1
            + 0.9 * np.sin(np.pi * (pulse_hz / rate_hz * np.arange(frames) + random.random())) ** 2
        )
    return loudness.astype(np.float32)


def _draw_ripple(random: Random) -> FloatArray:
    return RIPPLE * random.standard_normal(RIPPLE_POINTS)


def _through_tract(
    source: Samples, formants_hz: FloatArray, ripple: FloatArray, rate_hz: int
) -> Samples:
    """Filter by the tract and by a ripple, of the caller and of the moment (how head and trunk are held)."""
    size = fft.next_fast_len(source.size + rate_hz // 4, real=True)
    frequency_hz = fft.rfftfreq(size, 1 / rate_hz).astype(np.float32)
    thirds = 3 * np.log2(1 + frequency_hz / np.float32(40))
    gain = _tract(frequency_hz, formants_hz)
    gain *= np.exp(np.interp(thirds, np.arange(ripple.size), ripple)).astype(np.float32)
    return np.asarray(fft.irfft(fft.rfft(source, size) * gain, size)[: source.size], np.float32)


def _tract(frequency_hz: Samples, formants_hz: FloatArray) -> NDArray[np.complex64]:
    """Return the gain of resonances in parallel, which lets out less and less above the highest."""
    gain = np.full(frequency_hz.size, LEAK, np.complex64)
    for number, formant_hz in enumerate(formants_hz):
        damping = 1j * frequency_hz * np.float32(formant_hz / FORMANT_Q)
        gain += (
            np.float32(FORMANT_STEP**number)
            * damping
            / (np.float32(formant_hz**2) - frequency_hz**2 + damping)
        )
    return np.asarray(
        gain / (1 + (frequency_hz / np.float32(1.5 * formants_hz[-1])) ** 2), np.complex64
    )


def _faded(samples: Samples, rate_hz: int) -> Samples:
    frames = min(round(FADE_S * rate_hz), samples.size // 2)
    ramp = np.sin(np.linspace(0, np.pi / 2, frames, dtype=np.float32)) ** 2
    samples[:frames] *= ramp
    samples[samples.size - frames :] *= ramp[::-1]
    return samples


def _unit_power(samples: Samples) -> Samples:
    return np.asarray(samples / np.sqrt(np.mean(samples**2) + np.float32(1e-20)), np.float32)
