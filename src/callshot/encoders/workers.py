"""Threads that run a model on prepared segments, or on windows of a long recording.

A model that several threads may call at once gets one window (or whole segment) from each: larger
batches gain nothing on a CPU. So an output depends neither on the number of threads nor on other
windows, and an interrupted run ends soon. On a GPU two threads, and for any other model one, take
the windows of several segments together, or whole segments of one length.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import numpy as np

from callshot.encoders.encode import Encoder, PreparedSegment, open_encoder
from callshot.encoders.spec import EncoderSpec, find_differences
from callshot.encoders.windows import Float32Array, split_windows
from callshot.errors import InputError
from callshot.jobs import Cluster, Job, Pool, TryLater
from callshot.records import Progress

Output = Callable[[], Float32Array]
"""Waits for the output of a segment; raises InputError if the model fails on it."""

T = TypeVar("T")

LATER_S = 0.2  # between looks at units that other processes work on
BATCH_WINDOWS = 32
MAX_SAMPLES = 2**21  # of whole segments in the model at once: 130 s at 16 kHz
MAX_BATCH_SAMPLES = 2**23  # of whole segments in one batch on a GPU: 520 s at 16 kHz


@dataclass
class Batch:
    """Segments that go into the model together; `outputs` is None until they are handed over."""

    segments: list[PreparedSegment] = field(default_factory=list)
    outputs: Future[list[Float32Array | InputError]] | None = None


class Workers:
    """The threads that run the model of an encoder.

    batch_size  windows that go into the model together
    batch       segments that wait until there are enough of them for the model
    samples     of whole segments that are in the model now; `changed` guards it
    """

    def __init__(self, encoder: Encoder) -> None:
        """Start the threads; a model that many threads may call on the CPU gets no batches."""
        self.encoder = encoder
        self.executor = Pool(encoder.workers, thread_name_prefix="callshot-model")
        can_batch = encoder.spec.windowing is not None or encoder.batches_segments
        self.batch_size = 1
        if can_batch and not encoder.runs_in_parallel:
            self.batch_size = BATCH_WINDOWS
        self.batch = Batch()
        self.samples = 0
        self.changed = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: Any) -> None:
        """End the threads; after an error, what has not begun is dropped."""
        self.executor.__exit__(*details)

    @property
    def ahead(self) -> int:
        """The number of segments that keep the model busy."""
        return 2 * max(self.encoder.workers, self.batch_size)

    def submit(self, segment: PreparedSegment) -> Output:
        """Give a segment to the threads; return a function that waits for its output.

        If several threads may call the model, each window is a call of its own. Otherwise segments
        are collected into a batch, which starts when it is full, or when an output of it is needed.
        """
        if self.encoder.runs_in_parallel:
            parts = [segment.input]
            if self.encoder.spec.windowing is not None:
                parts = [window[np.newaxis] for window in segment.input]
            futures = [self.executor.submit(self._run, part) for part in parts]
            return lambda: np.concatenate([future.result() for future in futures])

        batch = self.batch
        position = len(batch.segments)
        batch.segments.append(segment)
        windows = sum(collected.windows for collected in batch.segments)
        samples = sum(collected.input.size for collected in batch.segments)
        is_long = self.encoder.batches_segments and samples >= MAX_BATCH_SAMPLES
        if windows >= self.batch_size or is_long:
            self._start_batch()

        def wait() -> Float32Array:
            """Return the output of the segment, after starting its batch if necessary."""
            if batch.outputs is None:  # not started, so it is still self.batch
                self._start_batch()
            assert batch.outputs is not None
            output = batch.outputs.result()[position]
            if isinstance(output, InputError):
                raise output
            return output

        return wait

    def submit_windows(self, windows: Sequence[Float32Array]) -> Output:
        """Give windows of a recording to the threads; return a function that waits for vectors.

        A window that is shorter than the model expects is padded. A model of whole segments gets
        each window as a segment, and its frames are pooled.
        """
        options = self.encoder.spec.windowing
        if options is None:
            segments = [
                PreparedSegment(np.ascontiguousarray(window)) for window in windows
            ]
            outputs = [self.submit(segment) for segment in segments]

            def wait() -> Float32Array:
                """Return the vectors of all windows when their frames are computed."""
                pairs = zip(segments, outputs, strict=True)
                vectors = [
                    self.encoder.pool(segment, output()) for segment, output in pairs
                ]
                return np.stack(vectors)

            return wait
        # None is longer than a window of the model, so each becomes one row.
        rows = np.concatenate([split_windows(window, options) for window in windows])
        return self.submit(PreparedSegment(rows, np.ones(len(rows))))

    def _run(self, batch: Float32Array) -> Float32Array:
        """Run the model on one window, (1, samples), or on a whole segment, (samples,).

        To limit memory, a whole segment waits while the other threads have too many samples in the
        model.
        """
        samples = batch.size if self.encoder.spec.windowing is None else 0
        with self.changed:
            self.changed.wait_for(
                lambda: self.samples == 0 or self.samples + samples <= MAX_SAMPLES
            )
            self.samples += samples
        try:
            return self.encoder.run(batch)
        finally:
            with self.changed:
                self.samples -= samples
                self.changed.notify_all()

    def _start_batch(self) -> None:
        """Give the batch to the threads, and begin a new one."""
        batch = self.batch
        batch.outputs = self.executor.submit(_encode_each, batch.segments, self.encoder)
        self.batch = Batch()


def _encode_each(
    batch: Sequence[PreparedSegment], encoder: Encoder
) -> list[Float32Array | InputError]:
    """Return the output of each segment of a batch; if the batch fails, encode them one by one."""
    try:
        return [*encoder.encode(batch)]
    except InputError as error:
        if len(batch) == 1:
            return [error]
    outputs = []
    for segment in batch:
        outputs += _encode_each([segment], encoder)
    return outputs


# Units of work: here, or on a cluster


@dataclass(frozen=True)
class Unit:
    """Work on one recording: its name, its size against other units, and what is to be encoded."""

    name: str
    size: float
    content: Any


@dataclass(frozen=True)
class EmbedWork:
    """What a worker of a cluster has to know: the encoder as the client found it, and the work.

    encode  called with the threads of the model and the content of a unit; yields results
    check   called first: raises an error if the worker has other folders than the client
    """

    kind: str
    spec: EncoderSpec
    fingerprint: Mapping[str, object]
    device: str
    encode: Callable[["Workers", Any], Iterable[Any]]
    sequences: bool = False
    check: Callable[[], None] | None = None


def run_here(
    workers: Workers,
    encode: Callable[[Workers, Any], Iterable[Any]],
    units: Sequence[Unit],
) -> Iterator[tuple[int, Any]]:
    """Encode units in this process; yield the number of a unit with each result, or its error.

    A unit that another process works on (TryLater) is tried again after all others.
    """
    numbers = list(range(len(units)))
    while numbers:
        busy = []
        for number in numbers:
            try:
                for result in encode(workers, units[number].content):
                    yield number, result
            except TryLater:
                busy.append(number)
            except InputError as error:
                yield number, error
        numbers = busy
        if busy:
            time.sleep(LATER_S)


def run_on_cluster(
    cluster: Cluster, work: EmbedWork, units: Sequence[Unit]
) -> Iterator[tuple[int, Any]]:
    """Yield what `run_here` yields, from workers of a cluster."""
    job = Job(
        kind=work.kind,
        prepare=open_on_worker,
        function=run_on_worker,
        common=work,
        items=[unit.content for unit in units],
        names=[unit.name for unit in units],
        sizes=[unit.size for unit in units],
        needs_gpu=work.device == "cuda",
    )
    for outcome in cluster.run(job):
        results = [InputError(outcome.reason)] if outcome.reason else outcome.value
        for result in results:
            yield outcome.number, result


def open_on_worker(work: EmbedWork, threads: int) -> tuple[EmbedWork, Workers]:
    """Open the encoder in the process of a worker of a cluster, for `run_on_worker`.

    Raise InputError unless its weights and versions are those of the client.
    """
    if work.check is not None:
        work.check()
    workers = open_workers(
        work.spec, device=work.device, threads=threads, sequences=work.sequences
    )
    names = find_differences(work.fingerprint, workers.encoder.fingerprint)
    if names:
        raise InputError(
            f"worker and client differ in {work.spec.name} ({', '.join(names)}); install the same "
            "versions and weights on both"
        )
    return work, workers


def run_on_worker(state: tuple[EmbedWork, Workers], content: Any) -> list[Any]:
    """Return the results of a unit; `state` is what `open_on_worker` returned."""
    work, workers = state
    return list(work.encode(workers, content))


def keep_ahead(items: Iterable[T], count: int) -> Iterator[T]:
    """Yield items in order, each only after `count` more were taken, which starts work on them."""
    waiting: deque[T] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    yield from waiting


class Pace:
    """Reports progress, and how fast audio is encoded since the start."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name = name
        self.progress = progress
        self.start_s = time.monotonic()
        self.audio_s = 0.0

    def report(self, share: float, audio_s: float) -> None:
        """Report a share of the work, with the seconds of audio that were encoded for it."""
        self.audio_s += audio_s
        elapsed_s = max(time.monotonic() - self.start_s, 1e-3)
        pace = f"{self.audio_s / elapsed_s:,.0f} h of audio per hour"
        self.progress(share, f"{self.name}: {pace}")


def default_threads() -> int:
    """Return the number of threads of a model: one for each core that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_workers(
    spec: EncoderSpec,
    *,
    device: str = "cpu",
    threads: int | None = None,
    sequences: bool = False,
) -> Workers:
    """Open an encoder with its threads, by default one for each core."""
    threads = threads or default_threads()
    return Workers(
        open_encoder(spec, device=device, threads=threads, sequences=sequences)
    )
