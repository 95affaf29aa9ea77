"""Threads that run a model on prepared segments.

A model that several threads may call at once gets one window (or whole segment) from each: LiteRT
and ONNX Runtime do most with one thread per core and a model (or a run of it) each, and larger
batches gain nothing. So an output depends neither on the number of threads nor on other windows,
and an interrupted run ends soon. On a GPU two threads, and for any other model one, take the
windows of several segments together, or whole segments of one length.

Audio is prepared ahead while the model works (`prepare_ahead`); the size of a batch is doubled
until that makes the model slower (`Batching`).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from callshot.corpus.mixing import load_spans
from callshot.encoders.encode import Encoder, PreparedSegment
from callshot.encoders.store import audio_key
from callshot.encoders.validation import Float32Array
from callshot.errors import InputError
from callshot.jobs import Pool
from callshot.spans import Spans

Loaded = tuple[int, Float32Array | InputError]
"""The position of a segment, and its audio or the error."""
Prepared = Future[tuple[str, PreparedSegment]]
"""The key of a segment's audio, and what the model gets."""

LARGEST_BATCH = 64  # windows
SLOWER = 0.9  # of the highest speed: no larger batch is tried
TRIALS = 5  # batches of one size before the next size is tried
MAX_AHEAD = 64  # segments that are prepared while the model works
MAX_AHEAD_SAMPLES = 2**24  # of these segments together, at the model's rate


def prepare_ahead(
    encoder: Encoder, spans: Spans, threads: int | None
) -> Generator[Prepared, None, None]:
    """Yield the prepared audio of each span in order; a thread works ahead."""
    samples_per_s = encoder.spec.rate_hz / encoder.spec.speed
    most = _count_ahead(spans, samples_per_s)
    loaded = load_spans(spans, threads=threads)
    stream = map(partial(prepare_segment, encoder), spans["rate_hz"], loaded)
    waiting = deque[Prepared]()
    with Pool(1, thread_name_prefix="callshot-windows") as pool:
        for _ in range(len(spans)):
            waiting.append(pool.submit(next, stream))
            if len(waiting) > most:
                yield waiting.popleft()
        yield from waiting


def prepare_segment(
    encoder: Encoder, rate_hz: int, loaded: Loaded
) -> tuple[str, PreparedSegment]:
    """Return the key of a segment's audio, and what the model gets."""
    _, signal = loaded
    if isinstance(signal, InputError):
        raise signal
    key = f"{audio_key(signal)}@{rate_hz}"
    return key, encoder.prepare(signal, rate_hz)


def _count_ahead(spans: Spans, samples_per_s: float) -> int:
    """Return how many spans may wait for the model: few, if one is long."""
    longest_s = 1.0
    for row in spans.rows():
        duration_s = row["end_s"] - row["start_s"] + 2 * row["collar_s"]
        longest_s = max(longest_s, duration_s)
    return min(MAX_AHEAD, int(MAX_AHEAD_SAMPLES / (longest_s * samples_per_s)) + 1)


@dataclass
class Batching:
    """The number of windows in one batch: doubled until that makes the model slower.

    The fastest size is kept.
    """

    size: int = 1
    settled: bool = False
    _speeds: list[float] = field(default_factory=list)
    _best: float = 0.0
    _best_size: int = 1

    def record(self, windows: int, samples: int, seconds: float) -> None:
        """Record the duration of a batch; after some of one size, change the size or settle.

        Speed is in samples per second: whole segments, which count as a window, differ in length.
        """
        if self.settled or windows < self.size:
            return
        if windows >= 2 * self.size and not self._speeds:  # one segment has so many
            self.size = min(windows, LARGEST_BATCH)
        self._speeds.append(samples / max(seconds, 1e-9))
        if len(self._speeds) < TRIALS:
            return
        speed = max(self._speeds)  # the first batches of a size take longer
        self._speeds.clear()
        if speed > 1.05 * self._best:
            self._best = speed
            self._best_size = self.size
        is_slower = speed < SLOWER * self._best
        self.settled = is_slower or self.size * 2 > LARGEST_BATCH
        self.size = self._best_size if self.settled else self.size * 2


def describe_speed(segments: int, audio_s: float, elapsed_s: float) -> str:
    """Return the speed of an encoder so far, for progress."""
    elapsed_s = max(elapsed_s, 1e-3)
    return (
        f"{segments / elapsed_s:.0f} segments/s, "
        f"{audio_s / elapsed_s:.0f} h of audio per hour"
    )


Output = Callable[[], Float32Array]
"""Waits for the output of a segment; raises InputError if the model fails on it."""

MAX_SAMPLES = 2**21  # of whole segments in the model at once: 130 s at 16 kHz
MAX_BATCH_SAMPLES = 2**23  # of whole segments in one batch on a GPU: 520 s at 16 kHz


class Workers:
    """The threads that run the model of an encoder."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.executor = Pool(encoder.workers, thread_name_prefix="callshot-model")
        self.limit = _SampleLimit(MAX_SAMPLES)
        has_batches = encoder.spec.windowing is not None or encoder.batches_segments
        self.batching = Batching(settled=not has_batches)
        self.lock = threading.Lock()  # of `batching`
        self.batch: list[PreparedSegment] = []
        self.batch_outputs: Future[list[Float32Array | InputError]] = Future()

    def submit(self, segment: PreparedSegment) -> Output:
        """Give a segment to the threads."""
        if self.encoder.runs_in_parallel:
            return self._submit_parts(segment)
        return self._submit_to_batch(segment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: Any) -> None:
        """End the threads; after an error, what has not begun is dropped."""
        self.executor.__exit__(*details)

    # One window, or whole segment, for each thread

    def _submit_parts(self, segment: PreparedSegment) -> Output:
        parts = [segment.input]
        if self.encoder.spec.windowing is not None:
            parts = [window[np.newaxis] for window in segment.input]
        futures = [self.executor.submit(self._run_part, part) for part in parts]
        return lambda: np.concatenate([future.result() for future in futures])

    def _run_part(self, part: Float32Array) -> Float32Array:
        samples = part.size if self.encoder.spec.windowing is None else 0
        with self.limit.reserve(samples):
            return self.encoder.run(part)

    # The windows of several segments together

    def _submit_to_batch(self, segment: PreparedSegment) -> Output:
        position = len(self.batch)
        outputs = self.batch_outputs
        self.batch.append(segment)
        if self._is_full():
            self._start_batch()

        def wait() -> Float32Array:
            if outputs is self.batch_outputs:
                self._start_batch()
            output = outputs.result()[position]
            if isinstance(output, InputError):
                raise output
            return output

        return wait

    def _is_full(self) -> bool:
        windows, samples = _count(self.batch)
        if self.encoder.batches_segments and samples >= MAX_BATCH_SAMPLES:
            return True
        return windows >= self.batching.size

    def _start_batch(self) -> None:
        batch = self.batch
        outputs = self.batch_outputs
        self.batch = []
        self.batch_outputs = Future()
        self.executor.submit(self._run_batch, batch, outputs)

    def _run_batch(
        self,
        batch: Sequence[PreparedSegment],
        outputs: Future[list[Float32Array | InputError]],
    ) -> None:
        start_s = time.perf_counter()
        try:
            results = _encode_each(batch, self.encoder)
        except BaseException as error:
            outputs.set_exception(error)
            return
        duration_s = time.perf_counter() - start_s
        with self.lock:
            self.batching.record(*_count(batch), duration_s)
        outputs.set_result(results)


def _count(batch: Sequence[PreparedSegment]) -> tuple[int, int]:
    """Return the number of windows and of samples of a batch."""
    windows = sum(segment.windows for segment in batch)
    samples = sum(segment.input.size for segment in batch)
    return windows, samples


def _encode_each(
    batch: Sequence[PreparedSegment], encoder: Encoder
) -> list[Float32Array | InputError]:
    """Return the outputs of a batch; if the model fails on it, encode one by one."""
    try:
        return [*encoder.encode(batch)]
    except InputError as error:
        if len(batch) == 1:
            return [error]
    results: list[Float32Array | InputError] = []
    for segment in batch:
        results += _encode_each([segment], encoder)
    return results


class _SampleLimit:
    """A number of samples that threads may hold together; one alone may hold any number."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0
        self.changed = threading.Condition()

    @contextmanager
    def reserve(self, samples: int) -> Iterator[None]:
        """Wait until there is room, and hold it."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.used == 0 or self.used + samples <= self.most
            )
            self.used += samples
        try:
            yield
        finally:
            with self.changed:
                self.used -= samples
                self.changed.notify_all()
