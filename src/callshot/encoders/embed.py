"""Segments and an open encoder → the store: only what is missing is read and encoded, the rest is found by its content.

Reading, resampling and cutting windows run ahead in threads while the model works. A segment that cannot be read is a
reject, and the run goes on; what was encoded before a crash is in the store.
"""

import hashlib
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from callshot.encoders.catalogue import EncoderSpec
from callshot.encoders.encode import Encoder, pool, unroll
from callshot.encoders.store.store import Store, audio_key
from callshot.errors import InputError, OutputError
from callshot.records import Embeddings, IntArray, Reject, Segment

Signal = NDArray[np.float32]
Waiting = tuple[
    int, str, Signal
]  # which segment, the key of its audio, and what the model is given
Taken = Future[tuple[str, Signal]]
Read = Callable[[Sequence[Segment]], Iterable[tuple[int, Signal | InputError]]]
from callshot.records import Progress, no_progress

LARGEST_BATCH = 64  # windows
AHEAD = 64  # segments that are made ready while the model works
AHEAD_SAMPLES = 2**24  # at the model's rate, that they may have together
TRIALS = 3  # batches of each size, before the next is tried


@dataclass
class Batching:
    """The number of windows that go through the model at once: doubled as long as that makes it faster."""

    size: int = 1
    settled: bool = False
    _speeds: list[float] = field(default_factory=list)
    _best: float = 0.0

    def learn(self, windows: int, seconds: float) -> None:
        """Hear how long a batch took; after some of one size, go on to the next or settle."""
        if self.settled or windows < self.size:
            return
        self._speeds.append(windows / max(seconds, 1e-9))
        if len(self._speeds) == TRIALS:
            speed, self._speeds = sorted(self._speeds)[TRIALS // 2], []
            if speed < 1.05 * self._best:
                self.size, self.settled = max(1, self.size // 2), True
            else:
                self._best, self.size = speed, self.size * 2
                self.settled = self.size > LARGEST_BATCH
                self.size = min(self.size, LARGEST_BATCH)


def embed_segments(
    segments: Sequence[Segment],
    root: Path,
    read: Read,
    encoder: Encoder,
    store: Store,
    progress: Progress = no_progress,
) -> tuple[list[str | None], list[Reject]]:
    """Encode what the store does not have; return the key of each segment, None for those that cannot be read.

    `read` hands out the audio of segments in their order, as `callshot.corpus.audio.read_segments` does. `report` hears
    shares of the work, with the pace.
    """
    sources = [segment_source(root, segment) for segment in segments]
    known = store.find(sources)
    keys: list[str | None] = [known.get(source) for source in sources]
    progress(
        sum(key is not None for key in keys) / max(1, len(keys)),
        f"{encoder.spec.name}: found in the store",
    )
    missing = [n for n, key in enumerate(keys) if key is None]
    rejects, pace, batching = (
        list[Reject](),
        _Pace(encoder.spec.name),
        Batching(settled=encoder.spec.windowing is None),
    )
    waiting: list[Waiting] = []
    with closing(_take_ahead(read, [segments[n] for n in missing], encoder)) as ahead:
        for n, taken in zip(missing, ahead, strict=True):
            try:
                waiting.append((n, *taken.result()))
            except InputError as error:
                rejects.append(Reject(segments[n].path, n + 1, str(error)))
            if (
                sum(len(item) if encoder.spec.windowing else 1 for _, _, item in waiting)
                >= batching.size
            ):
                rejects += _encode(waiting, segments, sources, keys, encoder, store, batching)
            progress(1 / len(keys), pace.tell(segments[n]))
    rejects += _encode(waiting, segments, sources, keys, encoder, store, batching)
    store.flush()
    return keys, sorted(rejects, key=lambda reject: reject.row or 0)


def segment_source(root: Path, segment: Segment) -> str:
    """Name where a segment's audio comes from: its file by path, size and time, its span, and how it is read."""
    try:
        status = (root / segment.path).stat()
        identity = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    except OSError:
        identity = (-1, -1, -1)
    parts = (
        str((root / segment.path).absolute()),
        *identity,
        segment.start_s,
        segment.end_s,
        segment.collar_s,
        segment.rate_hz,
        segment.channel_rule,
        segment.level_dbfs,
        segment.source_rate_hz,
    )
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _take_ahead(
    read: Read, segments: Sequence[Segment], encoder: Encoder
) -> Generator[Taken, None, None]:
    """Yield what the model is given of each segment, in their order, made ready in a thread while others are used."""
    longest = max(
        [1.0, *((s.end_s - s.start_s + 2 * s.collar_s) * encoder.spec.rate_hz for s in segments)]
    )
    most, waiting = min(AHEAD, int(AHEAD_SAMPLES / longest) + 1), deque[Taken]()
    stream = map(partial(_take, encoder), segments, (signal for _, signal in read(segments)))
    pool = ThreadPoolExecutor(1, "callshot-windows")
    try:
        for _ in segments:
            waiting.append(pool.submit(next, stream))
            if len(waiting) > most:
                yield waiting.popleft()
        yield from waiting
    finally:
        pool.shutdown(cancel_futures=True)


def _take(encoder: Encoder, segment: Segment, signal: Signal | InputError) -> tuple[str, Signal]:
    """Return the key of a segment's audio, which is its samples and their rate, and what the model is given of it."""
    if isinstance(signal, InputError):
        raise signal
    return f"{audio_key(signal)}@{segment.rate_hz}", encoder.prepare(signal, segment.rate_hz)


def _encode(
    waiting: list[Waiting],
    segments: Sequence[Segment],
    sources: Sequence[str],
    keys: list[str | None],
    encoder: Encoder,
    store: Store,
    batching: Batching,
) -> list[Reject]:
    """Send what waits through the model, once for each audio, and keep it; return what the model refused."""
    fresh = {key: item for _, key, item in waiting if not store.has(key)}
    start = time.perf_counter()
    found = _encoded(fresh, encoder)
    windows = sum(len(item) for item in fresh.values()) if encoder.spec.windowing else len(fresh)
    batching.learn(windows, time.perf_counter() - start)
    rejects = []
    for n, key, _ in waiting:
        encoded = found.get(key)
        if isinstance(encoded, InputError):
            rejects.append(Reject(segments[n].path, n + 1, str(encoded)))
            continue
        keys[n] = key
        if encoded is not None:
            store.add(sources[n], key, pool(encoded), unroll(encoded))
        elif (
            not store.keeps_sequences
        ):  # audio that is there from elsewhere: it need not be read again
            store.add(sources[n], key, store.vectors([key])[0])
    waiting.clear()
    return rejects


def _encoded(fresh: Mapping[str, Signal], encoder: Encoder) -> dict[str, Signal | InputError]:
    """Return what the model makes of each audio; if it refuses a batch each goes alone, with errors in place."""
    if not fresh:
        return {}
    try:
        return dict(zip(fresh, encoder.encode(list(fresh.values())), strict=True))
    except InputError as error:
        if len(fresh) == 1:
            return dict.fromkeys(fresh, error)
    return {
        key: found
        for one, item in fresh.items()
        for key, found in _encoded({one: item}, encoder).items()
    }


class _Pace:
    """How fast it goes: segments a second, and hours of audio an hour."""

    def __init__(self, name: str) -> None:
        self.name, self.start, self.segments, self.audio_s = name, time.monotonic(), 0, 0.0

    def tell(self, segment: Segment) -> str:
        self.segments += 1
        self.audio_s += segment.end_s - segment.start_s
        spent = max(time.monotonic() - self.start, 1e-3)
        return f"{self.name}: {self.segments / spent:.0f} segments/s, {self.audio_s / spent:.0f} h of audio per hour"


def default_threads() -> int:
    """Return how many threads a model gets: all but the one that reads ahead."""
    return max(1, (os.cpu_count() or 2) - 1)


def check_store(folder: Path) -> None:
    """Refuse a folder that no embeddings can be kept in, before any work; it need not be there."""
    whole = folder.absolute()
    try:
        with tempfile.TemporaryFile(
            dir=next(place for place in (whole, *whole.parents) if place.exists())
        ):
            return
    except OSError as error:
        mend = "name another folder: --store DIR"
        raise OutputError(
            f"{folder}: cannot keep embeddings there ({error.strerror}); {mend}"
        ) from error


def check_segments(spec: EncoderSpec, segments: Sequence[Segment], source: Path) -> None:
    """Refuse folds of some only, and a rate that an encoder of whole segments does not take, before any is read."""
    given_folds(segments, source)
    wrong = [
        segment
        for segment in segments
        if spec.windowing is None and segment.rate_hz != spec.rate_hz
    ]
    if wrong:
        found = f"{wrong[0].segment} is cut at {wrong[0].rate_hz} Hz, and {spec.name} wants {spec.rate_hz}"
        raise InputError(f"{source}: {found}; cut segments anew with --rate {spec.rate_hz}")


def given_folds(segments: Sequence[Segment], source: Path) -> IntArray | None:
    """Return the folds that came with the annotations, of all segments or of none."""
    folds = [segment.extra.get("fold") for segment in segments]
    if None in folds and any(fold is not None for fold in folds):
        name = segments[folds.index(None)].segment
        raise InputError(
            f"{source}: column fold: empty for {name}, and others have one; fill it, or drop the column"
        )
    return None if None in folds else np.array(folds, np.int64)


def make_table(
    encoder: str, segments: Sequence[Segment], vectors: Signal, source: Path
) -> Embeddings:
    """Put vectors beside what is known of their segments."""
    return Embeddings(
        encoder=encoder,
        vectors=vectors,
        segment=[segment.segment for segment in segments],
        recording=[segment.recording for segment in segments],
        label=[segment.label for segment in segments],
        labels=[segment.labels for segment in segments],
        fold=given_folds(segments, source),
        source=str(source),
    )
