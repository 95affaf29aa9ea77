"""A recording of any length → tiles of its spectrogram, at zoom levels that are powers of two.

At level z a column stands for 2^z ms, and a tile has WIDTH columns: tile n begins with column
n · WIDTH of the recording. A column is the mean power of m frames (`corpus.spectrogram`), whose
middles are at (x + (2j + 1) / 2m) · 2^z ms for j = 0 … m − 1, at most half a window apart up to m =
MAX_FRAMES. Of a tile with more than MAX_READ samples only one frame for each column is read, so
that it takes as long as any other.

A pixel is a byte: 0 is FLOOR_DB or less, 255 is 0 dB. The page gives it a colour. The part of a
tile beyond the end of the recording is 0.

Recordings stay open, because the length of some files is only known once they are decoded.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from threading import Lock

import numpy as np

from callshot.corpus.audio import Reader, open_recording
from callshot.corpus.audio_files import Signal
from callshot.corpus.spectrogram import count_window, measure_frames
from callshot.errors import InputError
from callshot.files import explain_unreadable
from callshot.records import IntArray
from callshot.review.sound import RecordingFiles

WIDTH = 256  # columns of a tile
LEVELS = (-4, 20)  # 1/16 ms to 17 minutes for each column
MAX_FRAMES = 4  # in a column
MAX_READ = 2**21  # samples that are read at once for a tile
FLOOR_DB = -150.0
MAX_HEIGHT = 512
MAX_TILES = 400  # in memory: 50 MB, as they are at most WIDTH · MAX_HEIGHT bytes
MAX_OPEN = 6  # recordings

State = tuple[str, int, int]
"""A recording: its name, and when its file was changed and how long it is."""

ReadSamples = Callable[[int, int], Signal]
"""From the first sample and the end to the samples between them; see `_read_samples`."""


@dataclass(frozen=True)
class TileKey:
    """Which tile is wanted: `number` at `level`, up to a frequency, with frames of `window_s`."""

    level: int
    number: int
    height: int
    window_s: float
    max_hz: float


@dataclass(frozen=True)
class TiledFiles(RecordingFiles):
    """Recordings that stay open between requests, and tiles that were made of them.

    _free  open recordings that no thread uses, the one used longest ago first
    """

    _free: OrderedDict[State, Reader] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    @cached_property
    def _cached_tile(self) -> Callable[[State, TileKey], bytes]:
        """A function that makes a tile of a file in one state, unless it is in memory."""

        def make(state: State, key: TileKey) -> bytes:
            with self.open(state[0]) as reader:
                return make_tile(reader, self.channel_rule, key)

        return lru_cache(MAX_TILES)(make)

    def find_state(self, name: str) -> State:
        """Return what a file is now; raise InputError if it is not there."""
        path = self.find(name)
        with explain_unreadable(path):
            status = path.stat()
        return name, status.st_mtime_ns, status.st_size

    @contextmanager
    def open(self, name: str) -> Iterator[Reader]:
        """Open a recording, or use one that is open and that no other thread uses."""
        state = self.find_state(name)
        with self._lock:
            reader = self._free.pop(state, None)
        if reader is None:
            reader = open_recording(self.find(name), name, self.source_rate_hz)
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        with self._lock:
            no_more_used = []
            if state in self._free:  # another thread opened it too
                no_more_used.append(self._free.pop(state))
            self._free[state] = reader
            while len(self._free) > MAX_OPEN:
                _, longest_free = self._free.popitem(last=False)
                no_more_used.append(longest_free)
        for one in no_more_used:
            one.close()

    def close(self) -> None:
        """Close all recordings."""
        with self._lock:
            while self._free:
                self._free.popitem()[1].close()

    def draw_tile(self, name: str, key: TileKey) -> bytes:
        """Return the pixels of a tile, height × WIDTH, high frequencies first."""
        return self._cached_tile(self.find_state(name), key)


def make_tile(reader: Reader, channel_rule: str, key: TileKey) -> bytes:
    """Return the pixels of a tile, height × WIDTH, high frequencies first."""
    recording = reader.recording
    rate_hz = max(1, round(recording.rate_hz))
    column_s = 2.0**key.level / 1000
    start_s = key.number * WIDTH * column_s
    pixels = np.zeros((key.height, WIDTH), np.uint8)
    remaining_s = recording.duration_s - start_s
    columns = min(WIDTH, math.ceil(remaining_s / column_s))
    if columns <= 0:
        return pixels.tobytes()
    window = count_window(key.window_s, rate_hz)  # samples of a frame
    reads_all = WIDTH * column_s * rate_hz <= MAX_READ  # or else a frame of each column
    frames = 1  # in each column
    if reads_all:
        # At most half a window apart
        needed = math.ceil(2 * column_s * rate_hz / window)
        frames = min(max(1, needed), MAX_FRAMES)
    numbers = np.arange(columns * frames)
    middles_s = start_s + (numbers + 0.5) / frames * column_s
    middles = np.floor(middles_s * rate_hz + 1e-6).astype(np.int64)  # rounding errors
    firsts = middles - window // 2  # the first sample of each frame
    read = partial(_read_samples, reader, channel_rule)
    read_windows = _read_together if reads_all else _read_apart
    windows, rows = read_windows(read, firsts, window)
    top_hz = min(key.max_hz, rate_hz / 2)
    edges_hz = np.linspace(0.0, top_hz, key.height + 1)
    levels = measure_frames(windows, rows, rate_hz, edges_hz, frames)
    share = np.clip(1 - levels / FLOOR_DB, 0.0, 1.0)
    pixels[:, :columns] = np.round(255 * share)
    return pixels.tobytes()


def _read_together(
    read: ReadSamples, firsts: IntArray, window: int
) -> tuple[Signal, IntArray]:
    """Read all samples from the first frame to the last at once.

    Return windows of samples, (windows, window), one from each sample on, and which of these each
    frame is.
    """
    begin = int(firsts[0])
    end = int(firsts[-1]) + window
    windows = np.lib.stride_tricks.sliding_window_view(read(begin, end), window)
    return windows, firsts - begin


def _read_apart(
    read: ReadSamples, firsts: IntArray, window: int
) -> tuple[Signal, IntArray]:
    """Read each frame alone; return windows and rows as `_read_together` does."""
    windows = np.zeros((len(firsts), window), np.float32)
    for row, first in enumerate(firsts.tolist()):
        with suppress(InputError):  # damage there; other columns may be readable
            windows[row] = read(first, first + window)
    return windows, np.arange(len(firsts))


def _read_samples(reader: Reader, channel_rule: str, begin: int, end: int) -> Signal:
    """Return samples of a recording; silence beyond its ends, and where it is damaged."""
    rate_hz = max(1, round(reader.recording.rate_hz))
    signal = np.zeros(end - begin, np.float32)
    inside = max(0, begin)
    inside_s = inside / rate_hz
    if inside < end and inside_s < reader.recording.duration_s:
        part = reader.read_decodable(
            inside_s,
            end / rate_hz,
            rate_hz=rate_hz,
            channel_rule=channel_rule,
        )
        offset = inside - begin
        signal[offset : offset + len(part)] = part
    return signal
