"""Spans of recordings → signals, WAV files at any speed, waveforms, and spectrograms.

A sound is played faster by a higher rate in the header of the WAV file, so the pitch goes up. It is
resampled where the rate is not one that browsers play, 8 to 96 kHz. A pixel of a spectrogram
(`callshot.corpus.spectrogram`) is round(255 · (dB − floor_db) / range_db), from 0 to 255.
"""

import io
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from callshot.corpus.audio import Reader, open_recording
from callshot.corpus.audio_files import Signal
from callshot.corpus.spectrogram import measure_spectrogram
from callshot.errors import InputError, RequestError
from callshot.files import explain_unreadable, is_inside
from callshot.records import FloatArray, Recording

if TYPE_CHECKING:
    from callshot.detection.model import Model

MIN_PLAYED_HZ = 8000  # that browsers play
MAX_PLAYED_HZ = 96000
MAX_SPAN_S = 600.0  # of a recording, in one answer
MAX_SAMPLES = 2**24
MAX_PLAYED_S = 1800.0  # which slow sounds would exceed
FILTER_ORDER = 4
FILTER_MARGIN_S = 1.0
MIN_BAND = 1e-5  # of the rate; narrower filters are not stable
FULL_SCALE = 32767
LOG = "log"
SCALES = ("linear", LOG)
MAPS = ("viridis", "magma", "cividis", "grey")
COLOUR_FILE = Path(__file__).with_name("colour_maps.npz")
MIN_LOG_HZ = 1.0
# What suits calls of some pitch: spectrogram settings, and the speed of the sound.
PRESETS: dict[str, dict[str, Any]] = {
    "infrasound": {"window_s": 0.5, "max_hz": 250.0, "speed": 8.0},
    "audible": {"window_s": 0.032, "max_hz": 12000.0, "speed": 1.0},
    "ultrasound": {"window_s": 0.004, "max_hz": 125000.0, "speed": 0.125},
}
COMMON = {"min_hz": 0.0, "scale": "linear", "colours": "viridis", "range_db": 60.0}
INFRASOUND_RATE_HZ = 4000.0  # recordings up to this rate have been made for low calls
USUAL_RATE_HZ = 48000.0
ULTRASOUND_RATE_HZ = 96000.0
LEVEL_QUANTILE = 0.3
LEVEL_WIDTH = 100  # of a picture whose levels are measured
LEVEL_HEIGHT = 64
LOUD_QUANTILE = 0.998
MIN_RANGE_DB = 20.0
FLOOR_DB = -100.0
FLOOR_STEP_DB = 5.0
FLOOR_RANGE_DB = (-160.0, 0.0)

Pixels = NDArray[np.uint8]


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
        """Return the part between two times of the recording; at least one sample."""
        first = round((start_s - self.start_s) * self.rate_hz)
        first = max(0, first)
        last = round((end_s - self.start_s) * self.rate_hz)
        last = max(first + 1, last)
        part_start_s = self.start_s + first / self.rate_hz
        return Clip(self.signal[first:last], self.rate_hz, part_start_s)


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
        try:  # after all links are followed; a name may have a NUL, links may lead in a circle
            real = Path(os.path.realpath(path))
            stays_inside = real.is_relative_to(os.path.realpath(root))
        except (OSError, ValueError):
            stays_inside = False
        if not is_inside(root, name) or not stays_inside:
            raise InputError(f"{name}: leads outside the folder of the recordings")
        with explain_unreadable(path):
            is_there = path.is_file()
        if not is_there:
            raise InputError(
                f"{name}: not in {root}; if the recordings were moved, start again with "
                "their new folder (callshot review: --recordings FOLDER)"
            )
        return path

    @contextmanager
    def open(self, name: str) -> Iterator[Reader]:
        """Open a recording to read spans of it."""
        with open_recording(self.find(name), name, self.source_rate_hz) as reader:
            yield reader

    def describe(self, name: str) -> Recording:
        """Return the header of a recording."""
        with self.open(name) as reader:
            return reader.recording

    def read(self, name: str, start_s: float, end_s: float) -> Clip:
        """Return the sound of a span, as far as it is in the recording.

        It has at least one sample, at most MAX_SAMPLES, and at most MAX_SPAN_S.
        """
        with self.open(name) as reader:
            recording = reader.recording
            rate_hz = max(1, round(recording.rate_hz))
            start_s = max(0.0, start_s)
            longest_s = min(MAX_SPAN_S, MAX_SAMPLES / rate_hz)
            end_s = min(end_s, start_s + longest_s, recording.duration_s)
            end_s = max(end_s, start_s + 1 / rate_hz)
            signal = reader.read_decodable(
                start_s, end_s, rate_hz=rate_hz, channel_rule=self.channel_rule
            )
        return Clip(signal, rate_hz, round(start_s * rate_hz) / rate_hz)


def make_example_clip(model: "Model", number: int) -> Clip:
    """Return the sound of an example: the middle of a long call, at its real rate.

    The model keeps sounds at the speed of its encoder.
    """
    from callshot.detection.model import from_pcm

    example = model.examples.spans.frame.row(number, named=True)
    if example["clip"] is None or model.clip_rate_hz is None:
        raise RequestError(f"example {number}: the model does not keep its sound", 404)
    options = model.fingerprint.get("options", {})
    speed = float(options.get("speed", 1.0))
    rate_hz = model.clip_rate_hz / speed
    signal = from_pcm(example["clip"])
    length_s = example["end_s"] - example["start_s"]
    excess_s = max(0.0, length_s - len(signal) / rate_hz)
    return Clip(signal, rate_hz, example["start_s"] + excess_s / 2)


def make_wav(clip: Clip, speed: float = 1.0, gain_db: float = 0.0) -> bytes:
    """Return a clip as a WAV file to play, faster and louder as wanted: 16 bit, one channel."""
    signal = clip.signal
    played_hz = clip.rate_hz * speed
    target_hz = min(max(played_hz, MIN_PLAYED_HZ), MAX_PLAYED_HZ)
    if target_hz != played_hz:
        import soxr

        signal = soxr.resample(signal, played_hz, target_hz, quality="HQ")
    scaled = signal * 10 ** (gain_db / 20) * FULL_SCALE
    rounded = np.round(scaled)
    samples = np.clip(rounded, -FULL_SCALE, FULL_SCALE).astype("<i2")
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, round(target_hz), "PCM_16", format="WAV")
    return buffer.getvalue()


def limit_played(clip: Clip, speed: float) -> Clip:
    """Return the beginning of a clip that takes at most half an hour to play."""
    return clip.cut(clip.start_s, clip.start_s + MAX_PLAYED_S * speed)


def filter_band(clip: Clip, low_hz: float = 0.0, high_hz: float = math.inf) -> Clip:
    """Return a clip with the frequencies of a band only (Butterworth, no delay).

    Silence if the band is too narrow to filter; the clip itself if the band is everything.
    """
    nyquist_hz = clip.rate_hz / 2
    high_hz = min(high_hz, nyquist_hz)
    narrowest_hz = MIN_BAND * clip.rate_hz
    if high_hz - low_hz < narrowest_hz:
        return replace(clip, signal=np.zeros_like(clip.signal))
    has_low = low_hz >= narrowest_hz
    has_high = high_hz <= nyquist_hz - narrowest_hz
    if not has_low and not has_high:
        return clip
    from scipy.signal import butter, sosfiltfilt  # its import takes a second

    bands = {"bandpass": (low_hz, high_hz), "highpass": low_hz, "lowpass": high_hz}
    kind = "highpass" if has_low else "lowpass"
    if has_low and has_high:
        kind = "bandpass"
    sections = butter(FILTER_ORDER, bands[kind], kind, fs=clip.rate_hz, output="sos")
    # The padding that scipy would choose, or less for a short clip, where it is an error.
    usual_padding = 3 * (2 * len(sections) + 1)
    padding = min(usual_padding, len(clip.signal) - 1)
    filtered = sosfiltfilt(sections, clip.signal.astype(np.float64), padlen=padding)
    return replace(clip, signal=filtered.astype(np.float32))


def make_waveform(clip: Clip, width: int) -> dict[str, Any]:
    """Return the lowest and the highest sample of each column of a picture `width` pixels wide."""
    sample_count = len(clip.signal)
    edges = np.arange(width) * sample_count // width
    starts = np.minimum(edges, sample_count - 1)
    # reduceat takes a start without samples of its own for one sample, as a picture needs it
    signal = clip.signal.astype(np.float64).round(4)
    return {
        "start_s": clip.start_s,
        "end_s": clip.end_s,
        "low": np.minimum.reduceat(signal, starts).tolist(),
        "high": np.maximum.reduceat(signal, starts).tolist(),
    }


@dataclass(frozen=True)
class Picture:
    """What a spectrogram shows; see the text of the module."""

    width: int = 600
    height: int = 200
    window_s: float = 0.032
    min_hz: float = 0.0
    max_hz: float = 1e9
    scale: str = "linear"
    floor_db: float = -100.0
    range_db: float = 70.0
    colours: str = "viridis"

    def band_hz(self, rate_hz: float) -> tuple[float, float]:
        """Return the ends of the band that is drawn of a signal with a sample rate."""
        top_hz = min(self.max_hz, rate_hz / 2)
        low_hz = min(self.min_hz, 0.999 * top_hz)  # or the band would be empty
        if self.scale == LOG:
            low_hz = max(low_hz, min(MIN_LOG_HZ, 0.5 * top_hz))
        return low_hz, top_hz


def draw(clip: Clip, picture: Picture) -> bytes:
    """Return the spectrogram of a clip as PNG."""
    return write_png(make_pixels(clip, picture), picture.colours)


def make_pixels(clip: Clip, picture: Picture) -> Pixels:
    """Return the number of the colour of each pixel, height × width, high frequencies first."""
    levels = make_levels(clip, picture)
    share = (levels - picture.floor_db) / picture.range_db
    colours = 255 * np.clip(share, 0.0, 1.0)
    return np.round(colours).astype(np.uint8)


def make_levels(clip: Clip, picture: Picture) -> FloatArray:
    """Return the level of each pixel in dB, height × width, high frequencies first."""
    space = np.geomspace if picture.scale == LOG else np.linspace
    edges_hz = space(*picture.band_hz(clip.rate_hz), picture.height + 1)
    return measure_spectrogram(
        clip.signal, clip.rate_hz, edges_hz, picture.width, picture.window_s
    )


def suggest_presets(clips: Sequence[Clip]) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the spectrogram settings of each preset, and the name of the one that suits.

    The quietest colour is at the level of the noise in some clips; their sample rate says which
    preset suits.
    """
    name = "audible"
    highest_hz = max((clip.rate_hz for clip in clips), default=USUAL_RATE_HZ)
    if highest_hz <= INFRASOUND_RATE_HZ:
        name = "infrasound"
    elif highest_hz >= ULTRASOUND_RATE_HZ:
        name = "ultrasound"
    presets = {}
    for key, settings in PRESETS.items():
        picture = Picture(
            width=LEVEL_WIDTH,
            height=LEVEL_HEIGHT,
            window_s=settings["window_s"],
            max_hz=settings["max_hz"],
        )
        levels = [make_levels(clip, picture) for clip in clips]
        quiet = [np.quantile(level, LEVEL_QUANTILE) for level in levels]
        typical_db = np.median(quiet or FLOOR_DB)  # FLOOR_DB without clips
        floor_db = typical_db // FLOOR_STEP_DB * FLOOR_STEP_DB
        floor_db = np.clip(floor_db, *FLOOR_RANGE_DB)
        presets[key] = {**COMMON, **settings, "floor_db": float(floor_db)}
    return presets, name


def fit_contrast(picture: Picture, clips: Sequence[Clip]) -> Picture:
    """Return a picture whose colours reach from the noise to the loudest parts of clips."""
    small = replace(picture, width=LEVEL_WIDTH, height=LEVEL_HEIGHT)
    quantiles = (LEVEL_QUANTILE, LOUD_QUANTILE)
    limits_db = [np.quantile(make_levels(clip, small), quantiles) for clip in clips]
    if not limits_db:
        return picture
    floor_db, top_db = np.median(limits_db, axis=0)
    range_db = max(MIN_RANGE_DB, float(top_db - floor_db))
    return replace(picture, floor_db=float(floor_db), range_db=range_db)


def write_png(pixels: Pixels, colours: str) -> bytes:
    """Return pixels, height × width, as a PNG file; `colours` is one of MAPS.

    >>> write_png(np.zeros((1, 1), np.uint8), "grey")[:4]
    b'\\x89PNG'
    """
    from PIL import Image

    height, width = pixels.shape
    image = Image.frombytes("P", (width, height), pixels.tobytes())
    with np.load(COLOUR_FILE, allow_pickle=False) as tables:
        image.putpalette(tables[colours].tobytes())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def read_palettes() -> dict[str, str]:
    """Return the 256 colours of each of MAPS as hexadecimal digits, six for each colour."""
    with np.load(COLOUR_FILE, allow_pickle=False) as tables:
        return {name: tables[name].tobytes().hex() for name in MAPS}
