"""Audio of spans of recordings, as one channel at a given rate.

Samples are float32, those of the file scaled to ±1 (16 bit: divided by 32768), and never clipped.
At the rate of the file they are not changed. Long recordings are not loaded: we seek in them.

At another rate than that of the file, a span has the samples from round(start_s · rate_hz) up to
round(end_s · rate_hz) of the whole recording resampled, which has ceil(duration_s · rate_hz)
samples. Beyond its ends the recording is silent. The resampler is soxr at quality VHQ, which
computes in float64: a span read alone differs from the same span of a longer read by at most the
last bit of a float32 (6e-8 at full scale; quality HQ: 5e-7). For that, a span is read with a margin
of 256 periods of the lower rate on both sides (a margin of 128 gives 4e-9, 64 gives 5e-4), from a
frame that coincides with a sample. If there is none nearby, as with 44100.1 and 16000 Hz, the frame
nearest to a sample is used, and the span is off by at most half a frame.

A band of frequencies is read through a symmetric FIR filter, which delays nothing: a windowed sinc
(Kaiser, 60 dB) that is at half amplitude at both edges and changes over a third of the lower one.
It is as long as it needs to be, and a span is read with half of that length on both sides. So the
filtered span is a part of the whole recording filtered.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from fractions import Fraction
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import soxr
from numpy.typing import NDArray

from callshot.corpus.audio_files import (
    DamagedAudio,
    FrameReader,
    Signal,
    check_channel_rule,
)
from callshot.errors import (
    CallshotError,
    InputError,
    OptionError,
    check_range,
    count_text,
)
from callshot.jobs import Pool
from callshot.options import RATES_HZ
from callshot.records import Recording
from callshot.spans import Row, Spans

MARGIN = 256  # periods of the lower rate
GRID = 4096  # samples among which we look for one that coincides with a frame
LoadedAudio = Generator[tuple[int, Any], None, None]
LIBSNDFILE_SUFFIXES = """
    .wav .wave .bwf .rf64 .w64 .flac .ogg .oga .opus .mp3 .mp2 .aif .aiff .aifc .au .snd .caf
    .sph .nist .voc
"""
SUFFIXES = frozenset(LIBSNDFILE_SUFFIXES.split())
MAX_PENDING_SAMPLES = 2**24
STOPBAND_DB = 60.0
TRANSITION = 1 / 3  # of the lower edge of a band: how wide the edges are


class Reader(FrameReader):
    """An open recording, for one thread at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def read(
        self,
        start_s: float,
        end_s: float,
        *,
        rate_hz: int,
        channel_rule: str = "first",
        passband_hz: str | None = None,
    ) -> Signal:
        """Return the part of a span inside the recording; `passband_hz` such as "300-1000"."""
        check_range("rate_hz", rate_hz, *RATES_HZ, "Hz")
        check_channel_rule(channel_rule)
        recording = self.recording
        channel = self._find_channel(channel_rule)
        if not -math.inf < start_s < end_s < math.inf:
            raise self.error(
                f"expected a span that ends after it starts, got {start_s} s to {end_s} s"
            )
        # Frames are those of the file, samples those of the result at `rate_hz`.
        ratio = Fraction(recording.rate_hz) / rate_hz  # frames per sample
        sample_count = math.ceil(recording.frames / ratio)  # of the whole recording
        first_sample = max(0, round(start_s * rate_hz))
        last_sample = min(round(end_s * rate_hz), sample_count)
        if first_sample >= last_sample:
            reason = f"the recording is {recording.duration_s:.3f} s long"
            if note := recording.describe_length():
                reason += f" ({note})"
            raise self.error(
                f"nothing to read from {start_s:.3f} s to {end_s:.3f} s at {rate_hz} Hz: "
                f"{reason}"
            )
        if passband_hz is None:
            return self._read_samples(first_sample, last_sample, rate_hz, channel)
        from scipy.signal import oaconvolve  # its import takes a second

        taps = design_filter(*parse_band(passband_hz), rate_hz)
        margin = len(taps) // 2
        begin_sample = max(0, first_sample - margin)
        end_sample = min(last_sample + margin, sample_count)
        wider = self._read_samples(begin_sample, end_sample, rate_hz, channel)
        # The filter delays by the margin, which is half of its length.
        filtered = oaconvolve(wider.astype(np.float64), taps)
        start = first_sample - begin_sample + margin
        stop = last_sample - begin_sample + margin
        return np.asarray(filtered[start:stop], np.float32)

    def _find_channel(self, channel_rule: str) -> int | None:
        """Return the index of the channel to read; None stands for the mean of all."""
        if channel_rule == "mean":
            return None
        number = 1 if channel_rule == "first" else int(channel_rule)
        if number > self.recording.channels:
            count = count_text(self.recording.channels, "channel")
            raise self.error(f"expected a channel {number}, got {count}")
        return number - 1

    def _read_samples(
        self, first_sample: int, last_sample: int, rate_hz: int, channel: int | None
    ) -> Signal:
        """Return samples of one channel (None: the mean) at `rate_hz`, resampled if need be."""
        recording = self.recording
        ratio = Fraction(recording.rate_hz) / rate_hz  # frames per sample
        if ratio == 1:
            blocks = self._read_channel(first_sample, last_sample, channel)
            return np.concatenate(list(blocks))
        # The resampler needs a margin on both sides; after the end of the file it is silence.
        sample_margin = max(MARGIN, math.ceil(MARGIN / ratio))
        frame_margin = max(MARGIN, math.ceil(MARGIN * ratio))
        begin_sample = _find_aligned_sample(first_sample - sample_margin, ratio)
        begin_frame = round(begin_sample * ratio)
        stop_frame = math.ceil(last_sample * ratio) + frame_margin
        end_frame = min(stop_frame, recording.frames)  # of the file
        stream = soxr.ResampleStream(
            recording.rate_hz, rate_hz, 1, dtype="float32", quality="VHQ"
        )
        blocks = self._read_channel(begin_frame, end_frame, channel)
        parts = [stream.resample_chunk(block) for block in blocks]
        silence = np.zeros(stop_frame - end_frame, np.float32)
        parts.append(stream.resample_chunk(silence, last=True))
        resampled = np.concatenate(parts)  # from `begin_sample` on
        return resampled[first_sample - begin_sample : last_sample - begin_sample]

    def read_decodable(self, start_s: float, end_s: float, **reading: Any) -> Signal:
        """Read a span up to damage in it; DamagedAudio if nothing is before the damage."""
        read = partial(self.read, start_s, end_s, **reading)
        try:
            return read()
        except DamagedAudio as damage:
            whole = self.recording
            if damage.end_frame <= start_s * whole.rate_hz:
                raise
            # Shorten the recording while this span is read: spans after the damage may be readable.
            self.recording = whole.shorten(damage.end_frame)
            try:
                return read()
            finally:
                self.recording = whole

    def _read_channel(
        self, first: int, last: int, channel: int | None
    ) -> Iterator[Signal]:
        """Yield one channel (None: the mean) in blocks; InputError at a sample not finite."""
        for position, block in self.read_blocks(first, last):
            if channel is None:
                # In float64, so that the mean of equal channels is that channel.
                signal = block.mean(axis=1, dtype=np.float64).astype(np.float32)
            else:
                signal = np.ascontiguousarray(block[:, channel])
            finite = np.isfinite(signal)
            if not finite.all():
                bad = finite.argmin()
                time_s = (position + bad) / self.recording.rate_hz
                raise self.error(
                    f"expected finite samples, got {signal[bad]} at {time_s:.3f} s"
                )
            yield signal


def _find_aligned_sample(sample: int, ratio: Fraction) -> int:
    """Return the last sample up to `sample` that is at the time of a frame.

    If none of the GRID samples before is, return the one that is nearest to a frame. `ratio` is
    frames per sample.
    """
    if sample <= 0:
        return 0
    step = ratio.denominator  # every so many samples, one coincides with a frame
    if step <= GRID:
        return sample // step * step

    def distance(candidate: int) -> int:
        """Return how far a sample is from the nearest frame, in 1 / step of a frame."""
        position = candidate * ratio.numerator
        return min(position % step, -position % step)

    candidates = range(max(0, sample - GRID), sample + 1)
    return min(candidates, key=distance)


def parse_band(text: str) -> tuple[float, float]:
    """Return the lower and upper edge of a band in Hz; raise ValueError if these are no numbers."""
    low, _, high = text.partition("-")
    return float(low), float(high)


@cache
def design_filter(low_hz: float, high_hz: float, rate_hz: int) -> NDArray[np.float64]:
    """Return an odd number of symmetric taps; an edge at 0 Hz or from rate / 2 does not filter."""
    from scipy.signal import firwin, kaiserord

    edges_hz = [edge_hz for edge_hz in (low_hz, high_hz) if 0 < edge_hz < rate_hz / 2]
    if not edges_hz:
        return np.ones(1)
    width_hz = edges_hz[0] * TRANSITION
    length, beta = kaiserord(STOPBAND_DB, width_hz / (rate_hz / 2))
    taps = firwin(
        length | 1,  # odd
        edges_hz,
        window=("kaiser", beta),
        pass_zero=low_hz <= 0,
        scale=False,
        fs=rate_hz,
    )
    return np.asarray(taps, np.float64)


def probe(
    path: Path, name: str | None = None, source_rate_hz: float | None = None
) -> Recording:
    """Return the header of an audio file; decode the file only if its header has no length."""
    with open_recording(path, name, source_rate_hz) as reader:
        return reader.recording


def open_recording(
    path: Path, name: str | None = None, source_rate_hz: float | None = None
) -> Reader:
    """Open an audio file, called `name`, to read spans of it; InputError if it is not audio."""
    return Reader(path, name or path.as_posix(), source_rate_hz)


def normalise_peak(signal: Signal, peak_dbfs: float) -> Signal:
    """Return the signal with a peak of 10 ** (peak_dbfs / 20); silence stays silence."""
    highest = float(signal.max(initial=0.0))
    lowest = float(signal.min(initial=0.0))
    peak = max(highest, -lowest)
    if peak == 0.0:
        return signal.copy()
    gain = 10 ** (peak_dbfs / 20) / peak
    # The gain of a very small peak does not fit into a float32.
    precision = np.float32 if peak > 1e-30 else np.float64
    return (signal * precision(gain)).astype(np.float32, copy=False)


def read_span(reader: Reader, span: Row) -> Signal:
    """Return the audio of a span with its collar, read and scaled as its columns say."""
    signal = reader.read_decodable(
        span["start_s"] - span["collar_s"],
        span["end_s"] + span["collar_s"],
        rate_hz=span["rate_hz"],
        channel_rule=span["channel_rule"],
        passband_hz=span.get("passband_hz"),
    )
    if span["peak_dbfs"] is None:
        return signal
    return normalise_peak(signal, span["peak_dbfs"])


def load_audio(
    spans: Spans,
    *,
    threads: int | None = None,
    ahead: int = 32,
    prepare: Callable[[Row, Signal], Any] | None = None,
) -> LoadedAudio:
    """Load the audio of spans in their order, in parallel.

    Order spans by recording: each thread keeps one file open until it needs another. Memory does
    not grow with the number of spans. Closing the generator stops the threads.

    Parameters
    ----------
    spans
        Spans to load, as `read_segments` returns them; the file of a span is `root / path`.
    threads
        Number of threads; all processors by default.
    ahead
        How many spans may wait to be taken; fewer wait if they are long.
    prepare
        Called in the same threads with each span and its audio; its result is yielded instead.

    Returns
    -------
    generator of (int, array or InputError)
        The row of each span with its audio as float32, or the error that prevented loading it.

    Raises
    ------
    OptionError
        If `threads` or `ahead` is below 1.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> soundfile.write(root / "a.wav", np.full(32000, 0.5), 16000)
    >>> call = {"recording": "a.wav", "start_s": 0.5, "end_s": 1.5, "rate_hz": 16000}
    >>> for row, audio in load_audio(Spans.from_rows([call], root=root)):
    ...     print(row, audio.shape)
    0 (16000,)
    """
    if ahead < 1 or (threads is not None and threads < 1):
        raise OptionError(
            f"expected at least 1 thread and 1 span ahead, got {threads} and {ahead}"
        )
    # By thread: the recording that it has open, as (path, source rate), and its reader.
    readers: dict[int, tuple[object, Reader]] = {}
    # Spans that are being read, in order: row, about how many samples it has, and its audio.
    pending = deque[tuple[int, float, Future[Any]]]()
    pending_samples = 0.0
    with Pool(threads, thread_name_prefix="callshot-audio") as pool:

        def read(span: Row) -> Any:
            """Return the audio of a span, prepared, or the error; runs in a thread of the pool."""
            pool.check_stopped()
            thread = threading.get_ident()
            key = (span["path"], span["source_rate_hz"])
            try:
                if thread in readers and readers[thread][0] != key:
                    readers.pop(thread)[1].close()
                if thread not in readers:
                    path, source_rate_hz = key
                    reader = open_recording(
                        spans.root / path, name=path, source_rate_hz=source_rate_hz
                    )
                    readers[thread] = (key, reader)
                signal = read_span(readers[thread][1], span)
                return signal if prepare is None else prepare(span, signal)
            except CallshotError as error:
                # A new error: the traceback of the one raised keeps arrays alive.
                return InputError(str(error))

        for row, span in enumerate(spans.rows()):
            length_s = span["end_s"] - span["start_s"] + 2 * span["collar_s"]
            samples = length_s * span["rate_hz"]
            samples = min(max(0.0, samples), MAX_PENDING_SAMPLES)  # 0 if NaN
            while pending and (
                len(pending) >= ahead or pending_samples + samples > MAX_PENDING_SAMPLES
            ):
                oldest_row, oldest_samples, future = pending.popleft()
                pending_samples -= oldest_samples
                yield oldest_row, future.result()
            pending.append((row, samples, pool.submit(read, span)))
            pending_samples += samples
        for oldest_row, _, future in pending:
            yield oldest_row, future.result()
    for _, reader in readers.values():
        reader.close()
