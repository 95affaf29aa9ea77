"""The background of a site in blocks: a recording and the number of a block → its samples.

Wind in gusts, insects, the noise of the recorder, rain with drops, birds, and engines that pass.
Blocks of noise fade into each other, and each can be made alone: memory is flat, and any number of
threads makes the same samples.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import fft

from callshot.corpus.synthetic.call_synthesis import (
    Caller,
    Random,
    Samples,
    draw_caller,
    read_wave,
)
from callshot.corpus.synthetic.plan import stream
from callshot.corpus.synthetic.site_conditions import (
    BLOCK_S,
    FADE_S,
    Conditions,
    Engine,
)
from callshot.corpus.synthetic.site_plan import SiteRecording
from callshot.corpus.synthetic.soundscape import (
    Soundscape,
    draw_birds,
    draw_soundscape,
    microphone_gain,
)

CALLERS = 8  # individuals at a site
DISTANCES_M = (15.0, 60.0)
BIRD_LEVEL = 0.03
DROPS_PER_S = 12.0
DROP_S = 0.004
ENGINE_TILT = 1.0  # how fast its harmonics weaken


@dataclass(frozen=True, slots=True)
class SyntheticSite:
    """What all recordings of a site share: microphone, reverberation, callers, spectra of noise."""

    seed: int
    rate_hz: int
    soundscape: Soundscape
    callers: tuple[Caller, ...]
    spectra: Mapping[str, Samples]

    @property
    def block_size(self) -> int:
        """The samples of a block."""
        return BLOCK_S * self.rate_hz

    @property
    def fade_size(self) -> int:
        """The samples in which a block fades into the next one."""
        return FADE_S * self.rate_hz


def draw_site(seed: int, rate_hz: int) -> SyntheticSite:
    """Draw a site; the callers and the microphone depend on the seed only."""
    random = stream(seed, "site")
    soundscape = draw_soundscape(random)
    callers = tuple(draw_caller(random) for _ in range(CALLERS))
    size = (BLOCK_S + FADE_S) * rate_hz
    spectra = _make_spectra(soundscape, size, rate_hz)
    return SyntheticSite(seed, rate_hz, soundscape, callers, spectra)


def _make_spectra(
    soundscape: Soundscape, size: int, rate_hz: int
) -> dict[str, Samples]:
    """Return a gain for each kind of noise: white noise through it has unit power."""
    frequency_hz = fft.rfftfreq(size, 1 / rate_hz).astype(np.float32)
    microphone = microphone_gain(frequency_hz, soundscape)
    insects_hz = min(soundscape.insects_hz, 0.4 * rate_hz)
    detuning = frequency_hz / insects_hz - 1
    hiss = frequency_hz / (frequency_hz + 1500)
    gains = {
        "floor": 1 / np.sqrt(1 + frequency_hz / 1000),
        "wind": microphone / (1 + (frequency_hz / soundscape.wind_hz) ** 1.5),
        "insects": np.exp(-(detuning**2) / 0.005),
        "rain": microphone * np.sqrt(hiss),
    }
    return {name: _unit_gain(gain, size) for name, gain in gains.items()}


def _unit_gain(gain: Samples, size: int) -> Samples:
    energy = 4 * np.sum(gain**2, dtype=np.float64)
    scaled: Samples = gain * size / np.sqrt(energy)
    return scaled.astype(np.float32)


def draw_distance(site: SyntheticSite, random: Random) -> Soundscape:
    """Return the soundscape of a site with the distance to a caller."""
    return replace(site.soundscape, distance_m=random.uniform(*DISTANCES_M))


def make_background(
    site: SyntheticSite, recording: SiteRecording, conditions: Conditions, block: int
) -> Samples:
    """Make a block and its fade into the next one, to which it has to be added."""
    random = stream(site.seed, f"{recording.part} noise", recording.number, block)
    start_s = block * BLOCK_S
    end_s = start_s + BLOCK_S
    seconds = slice(start_s, end_s + FADE_S + 1)
    levels = {name: level[seconds] for name, level in conditions.levels.items()}
    samples = _draw_noise(site, levels, random)
    samples += _draw_birds(site, conditions.birds_per_s[start_s], random)
    _fade(samples, site.fade_size, is_first=block == 0)
    for engine in conditions.engines:
        if engine.is_present(start_s, end_s):
            passing = _make_engine(engine, start_s, site.rate_hz)
            samples[: passing.size] += passing
    return samples


def _draw_noise(
    site: SyntheticSite, levels: Mapping[str, Samples], random: Random
) -> Samples:
    """Draw noise of all kinds at these levels, and drops where rain falls."""
    size = site.block_size + site.fade_size
    noise = np.zeros(size, np.float32)
    white = random.standard_normal(size + 2, np.float32)
    spectrum = white.view(np.complex64)
    for name, level in levels.items():
        if level.any():
            part = fft.irfft(spectrum * site.spectra[name], size)
            part *= _interpolate(level, site.rate_hz)
            noise += part
    if levels["rain"].any():
        _add_drops(noise, levels["rain"], site.rate_hz, random)
    return noise


def _interpolate(levels: Samples, rate_hz: int) -> Samples:
    """Return the level of every sample between those of whole seconds."""
    ramp = np.arange(rate_hz, dtype=np.float32) / np.float32(rate_hz)
    steps = np.diff(levels)
    samples = levels[:-1, None] + steps[:, None] * ramp
    return samples.ravel()


def _add_drops(noise: Samples, rain: Samples, rate_hz: int, random: Random) -> None:
    """Add clicks of drops that fall near the microphone, louder in heavy rain."""
    size = max(4, round(DROP_S * rate_hz))
    count = random.poisson(DROPS_PER_S * noise.size / rate_hz)
    first = random.integers(0, noise.size - size, count)
    variation = np.exp(0.7 * random.standard_normal(count))
    loudness = 6 * variation * rain[first // rate_hz]
    decay = np.exp(np.linspace(0, -5, size))
    clicks = random.standard_normal((count, size)) * decay
    clicks *= loudness[:, None]
    for position, click in zip(first.tolist(), clicks, strict=True):
        noise[position : position + size] += click


def _draw_birds(site: SyntheticSite, birds_per_s: float, random: Random) -> Samples:
    """Draw the birds of a block; they sing at a pitch of the site, more or less."""
    birds_hz = random.uniform(0.7, 1.4) * site.soundscape.birds_hz
    size = site.block_size + site.fade_size
    return BIRD_LEVEL * draw_birds(birds_per_s, birds_hz, size, site.rate_hz, random)


def _fade(samples: Samples, size: int, *, is_first: bool) -> None:
    """Fade a block in and out, so that the power of two added blocks stays the same."""
    angle = np.linspace(0, np.pi / 2, size, dtype=np.float32)
    if not is_first:
        samples[:size] *= np.sin(angle)
    samples[samples.size - size :] *= np.cos(angle)


def _make_engine(engine: Engine, start_s: float, rate_hz: int) -> Samples:
    """Make the sound of an engine during a block; it goes on in the next without a step."""
    time_s = np.arange(BLOCK_S * rate_hz) / rate_hz
    time_s += start_s - engine.peak_s
    share = time_s / engine.length_s
    # The integral of a pitch that falls like tanh as the engine passes.
    fall_s = engine.drift * engine.length_s * _log_cosh(share)
    cycles = engine.pitch_hz * (time_s - fall_s)
    highest_hz = (1 + engine.drift) * engine.pitch_hz
    wave = read_wave(cycles, ENGINE_TILT, highest_hz, rate_hz)
    period = read_wave(np.linspace(0, 1, 4096), ENGINE_TILT, highest_hz, rate_hz)
    scale = engine.level / np.sqrt(np.mean(period**2))
    sound: Samples = scale * np.exp(-(share**2) / 2) * wave
    return sound.astype(np.float32)


def _log_cosh(values: Samples) -> Samples:
    """Return the logarithm of the hyperbolic cosine, also where that would overflow."""
    size = np.abs(values)
    result: Samples = size + np.log1p(np.exp(-2 * size)) - np.log(2)
    return result
