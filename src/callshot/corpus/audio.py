"""Audio of segments: a span of a recording comes in, one channel at a given rate goes out.

Samples are float32, those of the file scaled to ±1 (16 bit: divided by 32768), and never clipped.
At the rate of the file they are not changed. Long recordings are not loaded: we seek in them.

At another rate, a span has the samples from round(start_s · rate_hz) up to round(end_s · rate_hz)
of the whole recording resampled, which has ceil(duration_s · rate_hz) samples. Beyond its ends the
recording is silent. The resampler is soxr at quality VHQ, which computes in float64: a span read
alone differs from the same span of a longer read by at most the last bit of a float32 (6e-8 at full
scale; quality HQ: 5e-7). For that, a span is read with a margin of 256 periods of the lower rate on
both sides (a margin of 128 gives 4e-9, 64 gives 5e-4), from a frame that coincides with a sample.
If there is none nearby, as with 44100.1 and 16000 Hz, the frame nearest to a sample is used, and
the span is off by at most half a frame.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Self

import numpy as np
import soxr

from callshot.corpus.audio_files import FrameReader, Signal
from callshot.corpus.options import (
    LEVELS_DBFS,
    RATES_HZ,
    check_channel_rule,
    check_range,
)
from callshot.errors import CallshotError, InputError, OptionError
from callshot.records import Recording, Segment

SignalOrError = Signal | InputError
LoadedAudio = Generator[tuple[int, SignalOrError], None, None]
Batch = tuple[range, int]  # indices of segments, and about how many samples they have
Pending = deque[tuple[Batch, Future[list[SignalOrError]]]]

SUFFIXES = frozenset(
    {
        ".wav",
        ".wave",
        ".bwf",
        ".rf64",
        ".w64",
        ".flac",
        ".ogg",
        ".oga",
        ".opus",
        ".mp3",
        ".mp2",
    }
    | {".aif", ".aiff", ".aifc", ".au", ".snd", ".caf", ".sph", ".nist", ".voc"}
)
MARGIN = 256  # periods of the lower rate
GRID = 4096  # samples among which we look for one that coincides with a frame
MAX_PENDING_SAMPLES = 2**24
MAX_BATCH = 8  # segments; handing over single short ones costs about 5 %


def probe(
    path: Path, name: str | None = None, source_rate_hz: float | None = None
) -> Recording:
    """Return the header of an audio file; decode the file only if its header has no length.

    `name` becomes the path of the Recording. `source_rate_hz` replaces the rate in the header.

    >>> import soundfile, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.wav"
    >>> soundfile.write(path, np.zeros((8000, 2)), 16000)
    >>> probe(path, "a.wav").duration_s
    0.5
    """
    with open_recording(path, name, source_rate_hz) as reader:
        return reader.recording


def open_recording(
    path: Path, name: str | None = None, source_rate_hz: float | None = None
) -> "Reader":
    """Open an audio file to read spans of it; raise InputError if it is missing or not audio.

    >>> import soundfile, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.wav"
    >>> soundfile.write(path, np.full(32000, 0.5), 32000)
    >>> with open_recording(path) as reader:
    ...     reader.read(0.25, 0.75, rate_hz=16000).shape
    (8000,)
    """
    return Reader(path, name or path.as_posix(), source_rate_hz)


class Reader(FrameReader):
    """An open recording, for one thread at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def read(
        self, start_s: float, end_s: float, *, rate_hz: int, channel_rule: str = "first"
    ) -> Signal:
        """Return the part of a span inside the recording, as one channel at `rate_hz`.

        `channel_rule` is "first", "mean", or the number of a channel from "1".

        Raises
        ------
        InputError
            If the span has no samples, if samples in it or in its margin are not finite, or if
            the file is truncated within it.
        """
        check_range("rate", rate_hz, RATES_HZ, "Hz")
        channel = self._find_channel(channel_rule)
        ratio = Fraction(self.recording.rate_hz) / rate_hz
        first, last = self._find_samples(start_s, end_s, rate_hz, ratio)
        if ratio != 1:
            return self._resample(first, last, rate_hz, ratio, channel)
        return np.concatenate(list(self._read_channel(first, last, channel)))

    def _find_channel(self, rule: str) -> int | None:
        """Return the index of the channel to read, None for the mean of all."""
        check_channel_rule(rule)
        if rule == "mean":
            return None
        number = 1 if rule == "first" else int(rule)
        if number > self.recording.channels:
            raise self.error(
                f"expected a channel {number}, got {self.recording.channels} channels"
            )
        return number - 1

    def _find_samples(
        self, start_s: float, end_s: float, rate_hz: int, ratio: Fraction
    ) -> tuple[int, int]:
        """Return the first sample of a span, and the one after its last."""
        is_finite = math.isfinite(start_s) and math.isfinite(end_s)
        if not is_finite or start_s >= end_s:
            raise self.error(
                f"expected a span that ends after it starts, got {start_s} s to {end_s} s"
            )
        length_s = self.recording.duration_s
        missing_s = self.recording.missing_s
        length = math.ceil(self.recording.frames / ratio)
        first = max(0, round(start_s * rate_hz))
        last = round(end_s * rate_hz)
        if last > length and missing_s > 0:
            raise self.truncation_error(
                start_s,
                end_s,
                length_s,
                f"its header announces {length_s + missing_s:.2f} s",
            )
        last = min(last, length)
        if first >= last:
            raise self.error(
                f"nothing to read from {start_s:.3f} s to {end_s:.3f} s at {rate_hz} Hz: "
                f"the recording is {length_s:.3f} s long"
            )
        return first, last

    def _resample(
        self, first: int, last: int, rate_hz: int, ratio: Fraction, channel: int | None
    ) -> Signal:
        """Return samples `first` to `last` at `rate_hz`, where a sample lasts `ratio` frames."""
        sample_margin = math.ceil(MARGIN * max(Fraction(1), 1 / ratio))
        frame_margin = math.ceil(MARGIN * max(Fraction(1), ratio))
        begin = _find_aligned_sample(first - sample_margin, ratio)
        stop = math.ceil(last * ratio) + frame_margin
        end = min(stop, self.recording.frames)
        stream = soxr.ResampleStream(
            self.recording.rate_hz, rate_hz, 1, dtype="float32", quality="VHQ"
        )
        blocks = self._read_channel(round(begin * ratio), end, channel)
        parts = [stream.resample_chunk(block) for block in blocks]
        silence = np.zeros(stop - end, np.float32)
        parts.append(stream.resample_chunk(silence, last=True))
        return np.concatenate(parts)[first - begin : last - begin]

    def _read_channel(
        self, first: int, last: int, channel: int | None
    ) -> Iterator[Signal]:
        """Yield frames `first` to `last` as one channel, in blocks."""
        for position, block in self.read_blocks(first, last):
            if channel is None:
                # In float64, so that the mean of equal channels is that channel.
                signal = block.mean(axis=1, dtype=np.float64).astype(np.float32)
            else:
                signal = np.ascontiguousarray(block[:, channel])
            finite = np.isfinite(signal)
            if not finite.all():
                bad = int(finite.argmin())
                time_s = (position + bad) / self.recording.rate_hz
                raise self.error(
                    f"expected finite samples, got {signal[bad]} at {time_s:.3f} s"
                )
            yield signal


def _find_aligned_sample(sample: int, ratio: Fraction) -> int:
    """Return the last sample up to the given one that coincides with a frame, or nearly does."""
    if sample <= 0:
        return 0
    step = ratio.denominator
    if step <= GRID:
        return sample // step * step
    candidates = range(max(0, sample - GRID), sample + 1)
    return min(
        candidates,
        key=lambda n: min(n * ratio.numerator % step, -n * ratio.numerator % step),
    )


def normalise_peak(signal: Signal, level_dbfs: float) -> Signal:
    """Return the signal scaled so that its peak is 10 ** (level_dbfs / 20); silence stays silence.

    >>> normalise_peak(np.array([0.0, -0.1, 0.05], np.float32), -20.0)
    array([ 0.  , -0.1 ,  0.05], dtype=float32)
    """
    check_range("level", level_dbfs, LEVELS_DBFS, "dBFS")
    peak = max(float(signal.max(initial=0.0)), -float(signal.min(initial=0.0)))
    if not math.isfinite(peak):
        raise InputError(
            f"peak normalisation: expected finite samples, got a peak of {peak}"
        )
    if peak == 0.0:
        return signal.copy()
    gain = 10 ** (level_dbfs / 20) / peak
    # The gain of a very small peak does not fit into a float32.
    precision = np.float32 if peak > 1e-30 else np.float64
    return (signal * precision(gain)).astype(np.float32, copy=False)


def read_segment(reader: Reader, segment: Segment) -> Signal:
    """Return the audio of a segment with its collar, as its columns ask.

    >>> import soundfile, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.wav"
    >>> soundfile.write(path, np.full(32000, 0.5), 16000)
    >>> call = Segment(
    ...     "a#0", "a", "a.wav", 0.1, 1.1, 0.25, "rumble", ("rumble",), 16000, "first", -3.0
    ... )
    >>> with open_recording(path) as reader:
    ...     audio = read_segment(reader, call)
    >>> len(audio) / 16000, round(float(audio.max()), 5)
    (1.35, 0.70795)
    """
    signal = reader.read(
        segment.start_s - segment.collar_s,
        segment.end_s + segment.collar_s,
        rate_hz=segment.rate_hz,
        channel_rule=segment.channel_rule,
    )
    if segment.level_dbfs is None:
        return signal
    return normalise_peak(signal, segment.level_dbfs)


def load_audio(
    root: Path,
    segments: Sequence[Segment],
    *,
    threads: int | None = None,
    ahead: int = 32,
) -> LoadedAudio:
    """Load the audio of segments in their order, in parallel.

    Order segments by recording: each thread keeps one file open until it needs another. Memory does
    not grow with the number of segments. Closing the generator stops the threads.

    Parameters
    ----------
    root
        Folder of the recordings; the file of a segment is `root / segment.path`.
    segments
        Segments to load, as `read_segments` returns them.
    threads
        Number of threads; all processors by default.
    ahead
        How many segments may wait to be taken; fewer wait if they are long.

    Returns
    -------
    generator of (int, array or InputError)
        The index of each segment with its audio as float32, or the error that prevented loading it.

    Raises
    ------
    OptionError
        If `threads` or `ahead` is below 1.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> soundfile.write(root / "a.wav", np.full(32000, 0.5), 16000)
    >>> call = Segment(
    ...     "a#0", "a", "a.wav", 0.5, 1.5, 0.0, "rumble", ("rumble",), 16000, "mean", None
    ... )
    >>> for index, audio in load_audio(root, [call]):
    ...     print(index, audio.shape)
    0 (16000,)
    """
    if threads is None:
        threads = os.cpu_count() or 1
    if threads < 1 or ahead < 1:
        raise OptionError(
            f"expected at least 1 thread and 1 segment ahead, got {threads} and {ahead}"
        )
    return _load_ahead(root, segments, threads, ahead)


def _load_ahead(
    root: Path, segments: Sequence[Segment], threads: int, ahead: int
) -> LoadedAudio:
    pending: Pending = deque()
    recordings = _OpenRecordings(root)
    pool = ThreadPoolExecutor(threads, "callshot-audio")
    batch_size = max(1, min(MAX_BATCH, ahead // (2 * threads)))
    try:
        for batch in _make_batches(segments, batch_size):
            while _is_full(pending, batch, ahead):
                yield from _take_first(pending)
            indices, _ = batch
            future = pool.submit(
                recordings.read, segments[indices.start : indices.stop]
            )
            pending.append((batch, future))
        while pending:
            yield from _take_first(pending)
    finally:
        pool.shutdown(cancel_futures=True)
        recordings.close()


def _is_full(pending: Pending, batch: Batch, ahead: int) -> bool:
    """Return whether a batch must wait until another one is taken."""
    segments = len(batch[0])
    samples = batch[1]
    for (indices, size), _ in pending:
        segments += len(indices)
        samples += size
    return len(pending) > 0 and (segments > ahead or samples > MAX_PENDING_SAMPLES)


def _take_first(pending: Pending) -> Iterator[tuple[int, SignalOrError]]:
    (indices, _), future = pending.popleft()
    return zip(indices, future.result(), strict=True)


def _make_batches(segments: Sequence[Segment], batch_size: int) -> Iterator[Batch]:
    """Yield runs of segments for a thread to read: a few short ones, or a long one."""
    first = 0
    samples = 0
    for index, segment in enumerate(segments):
        more = _estimate_samples(segment)
        is_long = samples + more > MAX_PENDING_SAMPLES // 16
        if index > first and (index - first >= batch_size or is_long):
            yield range(first, index), samples
            first = index
            samples = 0
        samples += more
    if first < len(segments):
        yield range(first, len(segments)), samples


def _estimate_samples(segment: Segment) -> int:
    """Return about how many samples a segment has, 0 if its times are not finite."""
    samples = (segment.end_s - segment.start_s + 2 * segment.collar_s) * segment.rate_hz
    return int(samples) if math.isfinite(samples) else 0


class _OpenRecordings:
    """The recordings that threads have open, one per thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._readers: dict[int, tuple[tuple[str, float | None], Reader]] = {}

    def read(self, segments: Sequence[Segment]) -> list[SignalOrError]:
        """Return the audio of each segment, or the error."""
        return [self._read(segment) for segment in segments]

    def _read(self, segment: Segment) -> SignalOrError:
        try:
            return read_segment(self._find_reader(segment), segment)
        except CallshotError as error:
            # A new error: the traceback of the one raised keeps arrays alive.
            return InputError(str(error))

    def _find_reader(self, segment: Segment) -> Reader:
        thread = threading.get_ident()
        key = (segment.path, segment.source_rate_hz)
        if thread in self._readers:
            open_key, reader = self._readers[thread]
            if open_key == key:
                return reader
            del self._readers[thread]
            reader.close()
        reader = open_recording(self._root / segment.path, *key)
        self._readers[thread] = (key, reader)
        return reader

    def close(self) -> None:
        """Close them all."""
        for _, reader in self._readers.values():
            reader.close()
