"""Audio: a span of a recording comes in, one channel of it at a wanted rate goes out, as float32.

Samples are the file's own, scaled to ±1 (16 bit: divided by 32768), and never clipped. At the file's rate they are not
touched. Long recordings are sought in, never loaded.

At another rate the span is the samples from round(start_s · rate_hz) up to, not with, round(end_s · rate_hz) of the
whole recording resampled, which has ceil(duration_s · rate_hz) of them; beyond its ends the recording is silence. The
resampler is soxr at quality VHQ, which computes in float64: a span read alone differs from the same span cut out of a
longer read by no more than the last bit of a float32 (6e-8 at full scale; HQ, in float32, by 5e-7). For that a span is
read with a margin of 256 periods of the lower of the two rates on both sides (128 leave 4e-9, 64 leave 5e-4), from a
frame that coincides with a sample. Where there is none nearby, as with 44100.1 and 16000 Hz, the one nearest to a
sample is taken for it, and the span is off by at most half a frame.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import soxr

from callshot.corpus.audio_files import Frames, Signal
from callshot.corpus.options import LEVELS_DBFS, RATES_HZ, check_channel_rule
from callshot.errors import CallshotError, InputError, OptionError
from callshot.records import Recording, Segment

SUFFIXES = frozenset(
    {".wav", ".wave", ".bwf", ".rf64", ".w64", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".mp2"}
    | {".aif", ".aiff", ".aifc", ".au", ".snd", ".caf", ".sph", ".nist", ".voc"}
)
MARGIN = 256  # periods of the lower rate
GRID = 4096  # samples among which one is sought that coincides with a frame
WAITING = 2**24  # samples that may wait for whoever takes the segments
BATCH = 8  # segments that a thread reads at one go, if they are short: handing over each of them costs some 5 %


def probe(path: Path, name: str | None = None, source_rate_hz: float | None = None) -> Recording:
    """Return what the header of an audio file says; the whole file is decoded only where that gives no length.

    `name` is the path that the Recording gets. `source_rate_hz` replaces the rate in the header.

    >>> import soundfile, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.wav"
    >>> soundfile.write(path, np.zeros((8000, 2)), 16000)
    >>> probe(path, "a.wav")
    Recording(path='a.wav', frames=8000, rate_hz=16000.0, channels=2, kind='WAV PCM_16', missing_s=0.0)
    """
    with open_recording(path, name, source_rate_hz) as reader:
        return reader.recording


def open_recording(
    path: Path, name: str | None = None, source_rate_hz: float | None = None
) -> "Reader":
    """Open an audio file to read spans of it; refuse what is not there, not a regular file, empty or not audio.

    >>> import soundfile, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.wav"
    >>> soundfile.write(path, np.full(32000, 0.5), 32000)
    >>> with open_recording(path) as reader:
    ...     reader.read(0.25, 0.75, rate_hz=16000).shape
    (8000,)
    """
    return Reader(Frames(path, path.as_posix() if name is None else name, source_rate_hz))


class Reader:
    """An open recording. For one thread at a time."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self.recording = frames.recording

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._frames.close()

    def read(
        self, start_s: float, end_s: float, *, rate_hz: int, channel_rule: str = "first"
    ) -> Signal:
        """Return a span, clipped to the recording, as one channel at `rate_hz`; refuse one of which nothing is left.

        `channel_rule` is "first", "mean", or the number of a channel from "1" up. NaN and infinite samples in the span
        or its margin, and a file that holds less of the span than its header promises, are refused too.
        """
        channel = self._channel(channel_rule)
        if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
            raise OptionError(
                f"rate: wanted {RATES_HZ[0]:.0f} to {RATES_HZ[1]:.0f} Hz, found {rate_hz}"
            )
        ratio = Fraction(self.recording.rate_hz) / rate_hz
        first, last = self._samples(start_s, end_s, rate_hz, ratio)
        if ratio == 1:
            parts = list(self._blocks(first, last, channel))
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self._resample(first, last, rate_hz, ratio, channel)

    def _channel(self, rule: str) -> int | None:
        """Return the index of the channel that a rule takes, None for the mean of all."""
        check_channel_rule(rule)
        if rule == "mean":
            return None
        channel = 0 if rule == "first" else int(rule) - 1
        if channel >= self.recording.channels:
            raise self._frames.error(
                f"wanted channel {rule}, but the number of channels is {self.recording.channels}"
            )
        return channel

    def _samples(
        self, start_s: float, end_s: float, rate_hz: int, ratio: Fraction
    ) -> tuple[int, int]:
        """Return the first sample of a span and the one after its last."""
        if not (math.isfinite(start_s) and math.isfinite(end_s) and start_s < end_s):
            raise self._frames.error(
                f"wanted a span that ends after it starts, found {start_s} s to {end_s} s"
            )
        frames, length = self.recording.frames, math.ceil(self.recording.frames / ratio)
        first, last = max(0, round(start_s * rate_hz)), round(end_s * rate_hz)
        if last > length and self._frames.promised > frames:
            said = f"its header promises {self._frames.promised / self.recording.rate_hz:.2f} s"
            raise self._frames.cut_short(
                math.floor(first * ratio), math.ceil(last * ratio), frames, said
            )
        if first >= min(last, length):
            raise self._frames.error(
                f"nothing to read from {start_s:.3f} s to {end_s:.3f} s: no sample at {rate_hz} Hz lies in that part "
                f"of the recording, which is {self.recording.duration_s:.3f} s long"
            )
        return first, min(last, length)

    def _resample(
        self, first: int, last: int, rate_hz: int, ratio: Fraction, channel: int | None
    ) -> Signal:
        """Return samples `first` to `last` of the recording at `rate_hz`, where a sample lasts `ratio` frames."""
        begin = _coincident(first - math.ceil(MARGIN * max(Fraction(1), 1 / ratio)), ratio)
        stop = math.ceil(last * ratio) + math.ceil(MARGIN * max(Fraction(1), ratio))
        end = min(stop, self.recording.frames)
        stream = soxr.ResampleStream(
            self.recording.rate_hz, rate_hz, 1, dtype="float32", quality="VHQ"
        )
        parts = [
            stream.resample_chunk(block)
            for block in self._blocks(round(begin * ratio), end, channel)
        ]
        parts.append(stream.resample_chunk(np.zeros(stop - end, np.float32), last=True))
        return np.concatenate(parts)[first - begin : last - begin]

    def _blocks(self, first: int, last: int, channel: int | None) -> Iterator[Signal]:
        """Yield frames `first` to `last` as one channel, some at a time."""
        for at, block in self._frames.blocks(first, last):
            signal = _mean(block) if channel is None else np.ascontiguousarray(block[:, channel])
            finite = np.isfinite(signal)
            if not finite.all():
                bad = int(finite.argmin())
                at_s = (at + bad) / self.recording.rate_hz
                raise self._frames.error(
                    f"the sample at {at_s:.3f} s is {signal[bad]}; wanted finite numbers"
                )
            yield signal


def normalise_peak(signal: Signal, level_dbfs: float) -> Signal:
    """Return the signal scaled so that its peak is 10 ** (level_dbfs / 20); silence stays silence.

    >>> normalise_peak(np.array([0.0, -0.1, 0.05], np.float32), -20.0)
    array([ 0.  , -0.1 ,  0.05], dtype=float32)
    """
    if not LEVELS_DBFS[0] <= level_dbfs <= LEVELS_DBFS[1]:
        raise OptionError(
            f"level: wanted {LEVELS_DBFS[0]:.0f} to {LEVELS_DBFS[1]:.0f} dBFS, found {level_dbfs}"
        )
    peak = max(float(signal.max(initial=0.0)), -float(signal.min(initial=0.0)))
    if not math.isfinite(peak):
        raise InputError(f"peak normalisation: wanted finite samples, found a peak of {peak}")
    if peak == 0.0:
        return signal.copy()
    dtype = (
        np.float32 if peak > 1e-30 else np.float64
    )  # the factor of a smaller peak may be no float32
    return (signal * dtype(10 ** (level_dbfs / 20) / peak)).astype(np.float32, copy=False)


def read_segment(reader: Reader, segment: Segment) -> Signal:
    """Return the audio of a segment: its span and collar, clipped to the recording, as its own columns say.

    >>> import soundfile, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.wav"
    >>> soundfile.write(path, np.full(32000, 0.5), 16000)
    >>> call = Segment("a#0", "a", "a.wav", 0.1, 1.1, 0.25, "rumble", ("rumble",), 16000, "first", -3.0)
    >>> with open_recording(path) as reader:
    ...     audio = read_segment(reader, call)
    >>> len(audio) / 16000, round(float(audio.max()), 5)
    (1.35, 0.70795)
    """
    start_s, end_s = segment.start_s - segment.collar_s, segment.end_s + segment.collar_s
    signal = reader.read(start_s, end_s, rate_hz=segment.rate_hz, channel_rule=segment.channel_rule)
    return signal if segment.level_dbfs is None else normalise_peak(signal, segment.level_dbfs)


def load_audio(
    root: Path, segments: Sequence[Segment], *, threads: int | None = None, ahead: int = 32
) -> Generator[tuple[int, Signal | InputError], None, None]:
    """Yield the index and the audio of each segment, in their order, or the error that stands in its place.

    The file of a segment is `root / segment.path`. Each thread keeps a file open until it meets another one, so order
    segments by recording. At most `ahead` segments wait to be taken, and fewer where they are long, so memory does not
    grow with their number. Closing the iterator stops the threads. All processors are used unless `threads` is given.
    """
    if ahead < 1 or (threads is not None and threads < 1):
        raise OptionError(
            f"wanted at least 1 thread and 1 segment ahead, found {threads} and {ahead}"
        )
    return _read_ahead(root, segments, threads or os.cpu_count() or 1, ahead)


def _read_ahead(
    root: Path, segments: Sequence[Segment], threads: int, ahead: int
) -> Generator[tuple[int, Signal | InputError], None, None]:
    waiting: deque[tuple[range, int, Future[list[Signal | InputError]]]] = deque()
    shelf, pool = _Shelf(root), ThreadPoolExecutor(threads, "callshot-audio")
    try:
        for indices, size in _batches(segments, max(1, min(BATCH, ahead // (2 * threads)))):
            while waiting and (
                sum(len(other) for other, _, _ in waiting) + len(indices) > ahead
                or sum(other for _, other, _ in waiting) + size > WAITING
            ):
                first, _, audio = waiting.popleft()
                yield from zip(first, audio.result(), strict=True)
            waiting.append(
                (indices, size, pool.submit(shelf.read, segments[indices.start : indices.stop]))
            )
        while waiting:
            first, _, audio = waiting.popleft()
            yield from zip(first, audio.result(), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)
        shelf.close()


def _batches(segments: Sequence[Segment], most: int) -> Iterator[tuple[range, int]]:
    """Yield runs of segments, which a thread reads at one go, and their size: a few short ones, or one long one."""
    first, size = 0, 0
    for index, segment in enumerate(segments):
        more = _size(segment)
        if index > first and (index - first >= most or size + more > WAITING // 16):
            yield range(first, index), size
            first, size = index, 0
        size += more
    if first < len(segments):
        yield range(first, len(segments)), size


class _Shelf:
    """The recordings that threads have open, one each."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: dict[int, tuple[tuple[str, float | None], Reader]] = {}

    def read(self, segments: Sequence[Segment]) -> list[Signal | InputError]:
        """Return the audio of each segment, or the error."""
        return [self._read(segment) for segment in segments]

    def _read(self, segment: Segment) -> Signal | InputError:
        try:
            return read_segment(self._reader(segment), segment)
        except CallshotError as error:
            # A new error: the one that was raised holds on to the arrays of the frames it went through.
            return InputError(str(error))

    def _reader(self, segment: Segment) -> Reader:
        thread, key = threading.get_ident(), (segment.path, segment.source_rate_hz)
        held = self._open.get(thread)
        if held is not None and held[0] == key:
            return held[1]
        if held is not None:
            self._open.pop(thread)[1].close()
        reader = open_recording(self._root / segment.path, *key)
        self._open[thread] = (key, reader)
        return reader

    def close(self) -> None:
        """Close them all."""
        for _, reader in self._open.values():
            reader.close()


def _size(segment: Segment) -> int:
    """Return how many samples a segment has, about; times that are no numbers count nothing, they will be refused."""
    samples = (segment.end_s - segment.start_s + 2 * segment.collar_s) * segment.rate_hz
    return int(samples) if math.isfinite(samples) else 0


def _coincident(sample: int, ratio: Fraction) -> int:
    """Return the last sample up to the given one that coincides with a frame, or nearly so where none does nearby."""
    if sample <= 0:
        return 0
    if ratio.denominator <= GRID:
        return sample // ratio.denominator * ratio.denominator
    near = range(max(0, sample - GRID), sample + 1)
    past, whole = ratio.numerator, ratio.denominator
    return min(near, key=lambda k: min(k * past % whole, -k * past % whole))


def _mean(block: Signal) -> Signal:
    """Return the mean of channels, in float64: equal channels give that channel."""
    mean: Signal = block.mean(axis=1, dtype=np.float64).astype(np.float32)
    return mean
