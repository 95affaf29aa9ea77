"""Prepared segments come in; the outputs of the model go out, computed by several threads.

A model that several threads may call at once gets one window (or whole segment) from each: LiteRT
and ONNX Runtime do most with one thread per core and a model (or a run of it) each, and larger
batches gain nothing. So an output depends neither on the number of threads nor on other windows,
and an interrupted run ends soon. On a GPU two threads, and for any other model one, take the
windows of several segments together, or whole segments of one length.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from callshot.encoders.batching import Batching
from callshot.encoders.encode import Encoder, PreparedSegment
from callshot.encoders.validation import Float32Array
from callshot.errors import InputError
from callshot.pools import Pool

Output = Callable[[], Float32Array]
"""Waits for the output of a segment; raises InputError if the model fails on it."""

MOST_SAMPLES = 2**21  # of whole segments in the model at once: 130 s at 16 kHz
MOST_BATCH_SAMPLES = 2**23  # of whole segments in one batch on a GPU: 520 s at 16 kHz


class Workers:
    """The threads that run the model of an encoder."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.executor = Pool(encoder.workers, thread_name_prefix="callshot-model")
        self.limit = _SampleLimit(MOST_SAMPLES)
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
        if self.encoder.batches_segments and samples >= MOST_BATCH_SAMPLES:
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
