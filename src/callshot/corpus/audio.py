"""Audio of segments: a span of a recording comes in, one channel at a given rate goes out.

Samples are float32, those of the file scaled to ±1 (16 bit: divided by 32768), and never clipped.
At the rate of the file they are not changed; `reader` describes how they are resampled. Long
recordings are not loaded: we seek in them.
"""

import math
import os
import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from callshot.corpus.audio_files import Signal
from callshot.corpus.options import PEAKS_DBFS
from callshot.corpus.reader import Reader
from callshot.errors import CallshotError, InputError, OptionError, check_range
from callshot.pools import Check, Pool
from callshot.records import Recording, Segment

SignalOrError = Signal | InputError
LoadedAudio = Generator[tuple[int, SignalOrError], None, None]
Batch = tuple[range, int]  # indices of segments, and about how many samples they have
Pending = deque[tuple[Batch, Future[list[SignalOrError]]]]

# fmt: off
SUFFIXES = frozenset((
    ".wav", ".wave", ".bwf", ".rf64", ".w64", ".flac", ".ogg", ".oga", ".opus", ".mp3",
    ".mp2", ".aif", ".aiff", ".aifc", ".au", ".snd", ".caf", ".sph", ".nist", ".voc",
))
# fmt: on
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
) -> Reader:
    """Open an audio file to read spans of it; raise InputError if it is missing or not audio.

    >>> import soundfile, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.wav"
    >>> soundfile.write(path, np.full(32000, 0.5), 32000)
    >>> with open_recording(path) as reader:
    ...     reader.read(0.25, 0.75, rate_hz=16000).shape
    (8000,)
    """
    return Reader(path, name or path.as_posix(), source_rate_hz)


def normalise_peak(signal: Signal, peak_dbfs: float) -> Signal:
    """Return the signal scaled so that its peak is 10 ** (peak_dbfs / 20); silence stays silence.

    >>> normalise_peak(np.array([0.0, -0.1, 0.05], np.float32), -20.0)
    array([ 0.  , -0.1 ,  0.05], dtype=float32)
    """
    check_range("peak_dbfs", peak_dbfs, *PEAKS_DBFS, "dBFS")
    highest = float(signal.max(initial=0.0))
    lowest = float(signal.min(initial=0.0))
    peak = max(highest, -lowest)
    if not math.isfinite(peak):
        raise InputError(
            f"peak normalisation: expected finite samples, got a peak of {peak}"
        )
    if peak == 0.0:
        return signal.copy()
    gain = 10 ** (peak_dbfs / 20) / peak
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
    signal = reader.read_decodable(
        segment.start_s - segment.collar_s,
        segment.end_s + segment.collar_s,
        rate_hz=segment.rate_hz,
        channel_rule=segment.channel_rule,
    )
    if segment.peak_dbfs is None:
        return signal
    return normalise_peak(signal, segment.peak_dbfs)


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
    batch_size = max(1, min(MAX_BATCH, ahead // (2 * threads)))
    with Pool(threads, thread_name_prefix="callshot-audio") as pool:
        for batch in _make_batches(segments, batch_size):
            while _is_full(pending, batch, ahead):
                yield from _take_first(pending)
            indices, _ = batch
            future = pool.submit(
                recordings.read,
                segments[indices.start : indices.stop],
                pool.check_stopped,
            )
            pending.append((batch, future))
        while pending:
            yield from _take_first(pending)
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
    length_s = segment.end_s - segment.start_s + 2 * segment.collar_s
    samples = length_s * segment.rate_hz
    if not math.isfinite(samples):
        return 0
    return int(samples)


class _OpenRecordings:
    """The recordings that threads have open, one per thread."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._readers: dict[int, tuple[tuple[str, float | None], Reader]] = {}

    def read(self, segments: Sequence[Segment], check: Check) -> list[SignalOrError]:
        """Return the audio of each segment, or the error."""
        signals = []
        for segment in segments:
            check()
            signals.append(self._read(segment))
        return signals

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
