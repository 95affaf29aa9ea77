"""Spans of recordings → signals, WAV files at any speed, and waveforms.

A sound is played faster by giving its samples a higher rate in the header of the WAV file: so the
pitch goes up, and calls that are too low for human ears become audible. The rate in the header is
always one that browsers play, 8 to 96 kHz; the signal is resampled where that is needed.
"""

import io
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from callshot.corpus.audio import open_recording
from callshot.corpus.audio_files import Signal
from callshot.errors import InputError, RequestError
from callshot.files import explain_unreadable, is_inside
from callshot.records import Recording

SPEEDS = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
LOWEST_HZ = 8000  # that browsers play
HIGHEST_HZ = 96000
LONGEST_S = 600.0  # of a recording, in one answer
MAX_SAMPLES = 2**24
LONGEST_PLAYED_S = 1800.0  # which slow sounds would exceed
FILTER_ORDER = 4
FILTER_MARGIN_S = 1.0
NARROWEST_BAND = 1e-5  # of the rate; narrower filters are not stable
FULL_SCALE = 32767
GAINS_DB = (-60.0, 60.0)


@dataclass(frozen=True)
class Clip:
    """Part of a recording: its samples, their rate, and the time in the recording of the first."""

    signal: Signal
    rate_hz: float
    start_s: float

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.start_s + len(self.signal) / self.rate_hz

    def cut(self, start_s: float, end_s: float) -> "Clip":
        """Return the part between two times."""
        first = max(0, round((start_s - self.start_s) * self.rate_hz))
        last = max(first + 1, round((end_s - self.start_s) * self.rate_hz))
        part = self.signal[first:last]
        return Clip(part, self.rate_hz, self.start_s + first / self.rate_hz)


@dataclass(frozen=True)
class RecordingFiles:
    """Where the recordings of a review are, and how they are read; no other file is ever read.

    roots  the folder of each recording, by its name
    """

    roots: Mapping[str, Path]
    channel_rule: str = "first"
    source_rate_hz: float | None = None

    def find(self, name: str) -> Path:
        """Return the file of a recording; raise InputError if it is not there, or outside."""
        root = self.roots.get(name)
        if root is None:
            raise InputError(
                f"{name}: the folder of this recording is not known; start the review with "
                "--recordings FOLDER"
            )
        path = root / name
        if not is_inside(root, name) or not _stays_inside(root, path):
            raise InputError(f"{name}: leads outside the folder of the recordings")
        with explain_unreadable(path):
            is_there = path.is_file()
        if not is_there:
            raise InputError(
                f"{name}: not in {root}; if the recordings were moved, start the review with "
                "--recordings FOLDER"
            )
        return path

    def describe(self, name: str) -> Recording:
        """Return the header of a recording."""
        with open_recording(self.find(name), name, self.source_rate_hz) as reader:
            return reader.recording

    def stamp(self, name: str) -> tuple[str, int, int]:
        """Return what changes when the file of a recording does."""
        path = self.find(name)
        with explain_unreadable(path):
            status = path.stat()
        return str(path), status.st_size, status.st_mtime_ns

    def read(self, name: str, start_s: float, end_s: float) -> Clip:
        """Return a span at the rate of the recording, cut at its ends; at most 10 minutes."""
        with open_recording(self.find(name), name, self.source_rate_hz) as reader:
            recording = reader.recording
            rate_hz = max(1, round(recording.rate_hz))
            start_s = max(0.0, start_s)
            longest_s = min(LONGEST_S, MAX_SAMPLES / rate_hz)
            end_s = min(end_s, start_s + longest_s, recording.duration_s)
            end_s = max(end_s, start_s + 1 / rate_hz)
            signal = reader.read_decodable(
                start_s, end_s, rate_hz=rate_hz, channel_rule=self.channel_rule
            )
        return Clip(signal, rate_hz, round(start_s * rate_hz) / rate_hz)


def _stays_inside(root: Path, path: Path) -> bool:
    """Return whether a file is inside a folder after all links are followed."""
    try:
        real = Path(os.path.realpath(path))
    except (OSError, ValueError):  # a loop of links, or a name with a NUL
        return False
    return real.is_relative_to(os.path.realpath(root))


@dataclass(frozen=True)
class SoundOptions:
    """How a sound is played; the band is in Hz of the recording."""

    speed: float = 1.0
    gain_db: float = 0.0
    low_hz: float | None = None
    high_hz: float | None = None

    def __post_init__(self) -> None:
        if self.speed not in SPEEDS:
            speeds = ", ".join(f"{speed:g}" for speed in SPEEDS)
            raise RequestError(f"speed: expected one of {speeds}, got {self.speed:g}")
        low, high = GAINS_DB
        if not low <= self.gain_db <= high:
            raise RequestError(f"gain_db: expected {low:g} to {high:g} dB")
        if self.low_hz is not None and not 0 <= self.low_hz < math.inf:
            raise RequestError("low_hz: expected 0 or more")
        low_hz = self.low_hz or 0
        if self.high_hz is not None and not low_hz < self.high_hz < 1e9:
            raise RequestError("high_hz: expected more than low_hz")

    @property
    def margin_s(self) -> float:
        """How much must be read around a span, so that the filter does not change its ends."""
        return 0.0 if self.low_hz is None and self.high_hz is None else FILTER_MARGIN_S


def make_wav(clip: Clip, options: SoundOptions) -> bytes:
    """Return a sound as it is to be played: 16 bit, one channel, at most half an hour."""
    clip = limit_played(clip, options.speed)
    signal, rate_hz = _to_playable_rate(clip, options.speed)
    scaled = signal * 10 ** (options.gain_db / 20) * FULL_SCALE
    samples = np.clip(np.round(scaled), -FULL_SCALE, FULL_SCALE).astype("<i2")
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate_hz, format="WAV", subtype="PCM_16")
    return buffer.getvalue()


def limit_played(clip: Clip, speed: float) -> Clip:
    """Return the beginning of a clip that takes at most half an hour to play."""
    longest_s = LONGEST_PLAYED_S * speed
    if clip.end_s - clip.start_s <= longest_s:
        return clip
    return clip.cut(clip.start_s, clip.start_s + longest_s)


def _to_playable_rate(clip: Clip, speed: float) -> tuple[Signal, int]:
    """Return the samples, and the rate at which they are played."""
    played_hz = clip.rate_hz * speed
    target_hz = min(max(played_hz, LOWEST_HZ), HIGHEST_HZ)
    if target_hz == played_hz:
        return clip.signal, round(played_hz)
    import soxr

    signal = soxr.resample(clip.signal, played_hz, target_hz, quality="HQ")
    return np.asarray(signal), round(target_hz)


def filter_band(clip: Clip, low_hz: float | None, high_hz: float | None) -> Clip:
    """Return a clip with the frequencies of a band only (Butterworth, no delay)."""
    top_hz = clip.rate_hz / 2
    low = 0.0 if low_hz is None else low_hz
    high = top_hz if high_hz is None else min(high_hz, top_hz)
    step_hz = NARROWEST_BAND * clip.rate_hz
    if high - low < step_hz:
        return replace(clip, signal=np.zeros_like(clip.signal))
    has_low = low >= step_hz
    has_high = high <= top_hz - step_hz
    if has_low and has_high:
        return _filter(clip, "bandpass", (low, high))
    if has_low:
        return _filter(clip, "highpass", low)
    if has_high:
        return _filter(clip, "lowpass", high)
    return clip


def _filter(clip: Clip, kind: str, limits_hz: float | tuple[float, float]) -> Clip:
    from scipy.signal import butter, sosfiltfilt  # its import takes a second

    sections = butter(FILTER_ORDER, limits_hz, kind, fs=clip.rate_hz, output="sos")
    usual = 3 * (2 * len(sections) + 1)
    padded = min(usual, len(clip.signal) - 1)
    filtered = sosfiltfilt(sections, clip.signal.astype(np.float64), padlen=padded)
    return replace(clip, signal=filtered.astype(np.float32))


def make_waveform(clip: Clip, width: int) -> dict[str, Any]:
    """Return the lowest and the highest sample of each column of a picture."""
    edges = np.arange(width + 1) * len(clip.signal) // width
    starts = np.minimum(edges[:-1], len(clip.signal) - 1)
    # reduceat takes a start without samples of its own for one sample, as a picture needs it
    low = np.minimum.reduceat(clip.signal, starts)
    high = np.maximum.reduceat(clip.signal, starts)
    return {
        "start_s": clip.start_s,
        "end_s": clip.end_s,
        "low": _round(low),
        "high": _round(high),
    }


def _round(values: NDArray[np.float32]) -> list[float]:
    return [round(float(value), 4) for value in values]


class AnswerCache:
    """Answers that were computed, up to a number of bytes; the one not used for longest goes."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._answers: OrderedDict[Hashable, tuple[bytes, Any]] = OrderedDict()
        self._lock = Lock()

    def get(
        self, key: Hashable, make: Callable[[], tuple[bytes, Any]]
    ) -> tuple[bytes, Any]:
        """Return an answer, computed unless it is known: its bytes, and facts about them."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        answer = make()
        with self._lock:
            if key not in self._answers:
                self._answers[key] = answer
                self._bytes += len(answer[0])
            while self._bytes > self._most and len(self._answers) > 1:
                _, (content, _) = self._answers.popitem(last=False)
                self._bytes -= len(content)
        return answer
