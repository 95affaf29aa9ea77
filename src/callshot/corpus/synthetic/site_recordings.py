"""The recordings of a site, a block at a time: plans → samples, whose memory is flat.

The signal-to-noise ratio of a call is the power of the call over the power of the background, both
in the span and in the frequency band of its annotation. It is met by the background at that very
time, so a call beside a passing engine is louder.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from callshot.corpus.synthetic.call_synthesis import Random, Samples, synthesise_call
from callshot.corpus.synthetic.plan import stream
from callshot.corpus.synthetic.site_background import (
    SyntheticSite,
    draw_distance,
    make_background,
)
from callshot.corpus.synthetic.site_conditions import (
    BLOCK_S,
    Conditions,
    count_blocks,
    draw_conditions,
)
from callshot.corpus.synthetic.site_plan import SiteCall, SiteRecording
from callshot.corpus.synthetic.soundscape import (
    NOISES_DB,
    draw_soundscape,
    mix_soundscape,
    record_call,
)
from callshot.jobs import Pool

Pcm = NDArray[np.int16]

CLIP_MARGIN_S = 0.25
CLIP_NOISE_DB = -15.0  # against the recordings of `callshot synth`


@dataclass(frozen=True, slots=True)
class _RecordedCall:
    """A call as the microphone records it, from sample `first` of the recording on."""

    call: SiteCall
    first: int
    samples: Samples

    @property
    def end(self) -> int:
        return self.first + self.samples.size


@dataclass(frozen=True, slots=True)
class _Block:
    """The background of a block with its fade, and the calls that begin in it."""

    background: Samples
    calls: list[_RecordedCall]


def generate_recording(
    site: SyntheticSite, recording: SiteRecording, pool: Pool
) -> Iterator[Pcm]:
    """Yield the samples of a recording in pieces; threads of the pool work ahead."""
    conditions = draw_conditions(site.seed, recording)
    calls = defaultdict[int, list[SiteCall]](list)
    for call in recording.calls:
        calls[int(call.start_s // BLOCK_S)].append(call)
    make = partial(_make_block, site, recording, conditions, calls)
    blocks = _work_ahead(pool, make, count_blocks(recording))
    size = round(recording.duration_s * site.rate_hz)
    for samples in _mix_calls(_join_blocks(blocks, site, size), site.rate_hz, size):
        yield to_pcm(samples)


def to_pcm(samples: Samples) -> Pcm:
    """Return samples as 16 bit, clipped as a recorder clips them."""
    scaled = np.round(samples * np.float32(32767))
    return scaled.clip(-32768, 32767).astype(np.int16)


def _work_ahead(pool: Pool, make: "partial[_Block]", count: int) -> Iterator[_Block]:
    """Yield blocks in order, while threads make the next ones."""
    ahead = pool.threads + 1
    waiting = deque(pool.submit(make, number) for number in range(min(ahead, count)))
    for number in range(count):
        block = waiting.popleft().result()
        if number + ahead < count:
            waiting.append(pool.submit(make, number + ahead))
        yield block


def _make_block(
    site: SyntheticSite,
    recording: SiteRecording,
    conditions: Conditions,
    calls: Mapping[int, Sequence[SiteCall]],
    number: int,
) -> _Block:
    """Make a block and the calls that begin in it; `calls` has those of every block."""
    background = make_background(site, recording, conditions, number)
    recorded = [_record(site, recording, call) for call in calls.get(number, ())]
    return _Block(background, recorded)


def _record(
    site: SyntheticSite, recording: SiteRecording, call: SiteCall
) -> _RecordedCall:
    random = _call_stream(site, recording, call)
    dry = _synthesise(site, call, random)
    soundscape = draw_distance(site, random)
    samples = record_call(dry, soundscape, site.rate_hz, random)
    first = round(call.start_s * site.rate_hz)
    return _RecordedCall(call, first, samples)


def _call_stream(
    site: SyntheticSite, recording: SiteRecording, call: SiteCall
) -> Random:
    return stream(site.seed, f"{recording.part} voice", recording.number, call.number)


def _synthesise(site: SyntheticSite, call: SiteCall, random: Random) -> Samples:
    """Make a call by one of the callers of the site; a chorus has several."""
    order = random.permutation(len(site.callers))[:4]
    callers = [site.callers[index] for index in order]
    duration_s = call.end_s - call.start_s
    return synthesise_call(call.label, callers, duration_s, site.rate_hz, random)


def _join_blocks(
    blocks: Iterator[_Block], site: SyntheticSite, size: int
) -> Iterator[_Block]:
    """Yield blocks without their fades, which are added to the next block; `size` cuts the last."""
    tail = np.zeros(site.fade_size, np.float32)
    rest = size
    for block in blocks:
        background = block.background[: site.block_size]
        background[: tail.size] += tail
        tail = block.background[site.block_size :]
        yield replace(block, background=background[:rest])
        rest -= site.block_size


@dataclass
class _Mixture:
    """The part of a recording that is being mixed: background and calls from sample `begin` on."""

    rate_hz: int
    begin: int = 0
    background: Samples = field(default_factory=partial(np.zeros, 0, np.float32))
    calls: Samples = field(default_factory=partial(np.zeros, 0, np.float32))

    @property
    def end(self) -> int:
        return self.begin + self.background.size

    def append(self, background: Samples) -> None:
        """Add background to the end."""
        self.background = np.concatenate([self.background, background])
        self.calls = np.concatenate([self.calls, np.zeros_like(background)])

    def add(self, recorded: _RecordedCall) -> None:
        """Add a call, at its signal-to-noise ratio against the background."""
        call = recorded.call
        first = recorded.first - self.begin
        size = round(call.end_s * self.rate_hz) - recorded.first
        noise = self.background[first : first + size]
        band_hz = (call.low_freq_hz, call.high_freq_hz)
        noise_power = band_power(noise, self.rate_hz, band_hz)
        call_power = band_power(recorded.samples[:size], self.rate_hz, band_hz)
        gain = np.sqrt(10 ** (call.snr_db / 10) * noise_power / call_power)
        covered = self.calls[first : first + recorded.samples.size]
        covered += np.float32(gain) * recorded.samples[: covered.size]

    def take(self, end: int) -> Samples:
        """Remove what lies before sample `end`, and return it."""
        size = min(end, self.end) - self.begin
        samples = self.background[:size] + self.calls[:size]
        self.background = self.background[size:]
        self.calls = self.calls[size:]
        self.begin += size
        return samples


def _mix_calls(blocks: Iterator[_Block], rate_hz: int, size: int) -> Iterator[Samples]:
    """Yield background with calls; what a call that is not complete covers waits for its end."""
    mixture = _Mixture(rate_hz)
    waiting = deque[_RecordedCall]()
    for block in blocks:
        mixture.append(block.background)
        waiting.extend(block.calls)
        while waiting and min(waiting[0].end, size) <= mixture.end:
            mixture.add(waiting.popleft())
        yield mixture.take(waiting[0].first if waiting else size)


def band_power(samples: Samples, rate_hz: int, band_hz: tuple[float, float]) -> float:
    """Return the mean power of samples between two frequencies, both included.

    >>> wave = np.sin(2 * np.pi * 100 * np.arange(8000) / 8000)
    >>> round(band_power(wave, 8000, (90, 110)), 6), round(band_power(wave, 8000, (200, 300)), 6)
    (0.5, 0.0)
    """
    frequency_hz = fft.rfftfreq(samples.size, 1 / rate_hz)
    inside = (frequency_hz >= band_hz[0]) & (frequency_hz <= band_hz[1])
    size = np.abs(fft.rfft(samples)[inside])
    energy = np.sum(size**2, dtype=np.float64)
    return float(2 * energy / samples.size**2)


def make_clip(site: SyntheticSite, recording: SiteRecording, call: SiteCall) -> Pcm:
    """Make the clean clip of an example: the same call at another place, by another microphone."""
    dry = _synthesise(site, call, _call_stream(site, recording, call))
    margin = round(CLIP_MARGIN_S * site.rate_hz)
    random = stream(site.seed, "clips", recording.number, call.number)
    soundscape = draw_soundscape(random)
    noises_db = {name: getattr(soundscape, name) + CLIP_NOISE_DB for name in NOISES_DB}
    quiet = replace(soundscape, distance_m=10.0, birds_per_s=0.0, **noises_db)
    clip = mix_soundscape(np.pad(dry, margin), quiet, site.rate_hz, random)
    return to_pcm(clip)
