"""Segments and an encoder come in; the store is filled, and a table of embeddings goes out.

Only audio that the store does not have is read and encoded. Reading, resampling and cutting windows
run ahead in threads while the model works. A segment that cannot be read is a reject, and the run
continues; everything that was encoded before a crash is in the store.
"""

import os
import tempfile
import time
from collections import deque
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import median

import numpy as np

from callshot.encoders.catalogue import EncoderSpec, display_name, find_encoder
from callshot.encoders.encode import Encoder, open_encoder, pool, unroll
from callshot.encoders.store.store import Store, audio_key, open_store
from callshot.encoders.validation import Float32Array
from callshot.encoders.weights.weight_files import home
from callshot.errors import InputError, OutputError
from callshot.files import error_reason, sha256_text
from callshot.records import (
    Embeddings,
    IntArray,
    Progress,
    Reject,
    Segment,
    no_progress,
)

LoadAudio = Callable[
    [Sequence[Segment]], Iterable[tuple[int, Float32Array | InputError]]
]
"""Yields the position and the audio, or the error, of each segment in order."""
WriteSequences = Callable[[Sequence[str], Iterator[Float32Array]], object]
"""Called with the names of segments and their sequences."""
Prepared = Future[tuple[str, Float32Array]]
"""The key of a segment's audio, and the input of the model."""

LARGEST_BATCH = 64  # windows
TRIALS = 3  # batches of one size before the next size is tried
MOST_AHEAD = 64  # segments that are prepared while the model works
MOST_AHEAD_SAMPLES = 2**24  # of these segments together, at the model's rate
AUDIO_OPTIONS = attrgetter(
    "start_s",
    "end_s",
    "collar_s",
    "rate_hz",
    "channel_rule",
    "level_dbfs",
    "source_rate_hz",
)


def embed(
    segments: Sequence[Segment],
    encoder: str,
    *,
    root: Path,
    load_audio: LoadAudio,
    choices: Mapping[str, str] | None = None,
    store: Path | None = None,
    device: str = "cpu",
    threads: int | None = None,
    write_sequences: WriteSequences | None = None,
    source: Path | str = "memory",
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[Reject]]:
    """Embed segments with an encoder of the catalogue; vectors in the store are not made again.

    Parameters
    ----------
    segments
        The segments, for example of `read_segments`.
    encoder
        Name of an encoder, such as "birdnet-v2.4"; `encoders()` lists them.
    root
        Folder of the recordings.
    load_audio
        Reads the audio of segments, as `callshot.corpus.audio.load_audio` does.
    choices
        Options of the encoder that differ from its defaults, as text.
    store
        Folder in which embeddings are kept; by default the user's cache.
    device, threads
        "cpu" or "cuda", and the threads of the model.
    write_sequences
        Called with the names of the segments and the sequence of each one.
    source
        Name of the segments in error messages.
    progress
        Called with each share of the work.

    Returns
    -------
    tuple
        The vectors, one row per embedded segment; the other segments, with the reasons.

    Raises
    ------
    InputError
        If no segment could be embedded.
    """
    spec = find_encoder(encoder, choices)
    check_segments(spec, segments, source)
    has_sequences = write_sequences is not None
    opened = open_encoder(
        spec,
        device=device,
        threads=threads or default_threads(),
        sequences=has_sequences,
    )
    folder = default_store() if store is None else store
    with open_store(
        folder, opened.fingerprint, sequences=has_sequences
    ) as opened_store:
        all_keys, rejects = embed_segments(
            segments,
            opened,
            opened_store,
            root=root,
            load_audio=load_audio,
            progress=progress,
        )
        keys = [key for key in all_keys if key is not None]
        if not keys:
            reason = f" (the first: {rejects[0].reason})" if rejects else ""
            raise InputError(
                f"{source}: no segment could be embedded from {root}{reason}"
            )
        pairs = zip(segments, all_keys, strict=True)
        embedded = [segment for segment, key in pairs if key is not None]
        vectors = opened_store.vectors(keys)
        table = make_table(display_name(spec), embedded, vectors, source)
        if write_sequences is not None:
            write_sequences(table.segment, opened_store.sequences(keys))
    return table, rejects


def embed_segments(
    segments: Sequence[Segment],
    encoder: Encoder,
    store: Store,
    *,
    root: Path,
    load_audio: LoadAudio,
    progress: Progress = no_progress,
) -> tuple[list[str | None], list[Reject]]:
    """Encode the segments that the store does not have, and add them to it.

    Return the key of each segment, None for rejects, and the rejects.
    """
    sources = [segment_source(root, segment) for segment in segments]
    known = store.find(sources)
    keys = [known.get(source) for source in sources]
    run = _EmbeddingRun(segments, sources, keys, encoder, store)
    missing = [n for n, key in enumerate(keys) if key is None]
    name = encoder.spec.name
    total = max(1, len(segments))
    progress((total - len(missing)) / total, f"{name}: found in the store")
    start_s = time.monotonic()
    audio_s = 0.0
    prepared = _prepare_ahead(load_audio, [segments[n] for n in missing], encoder)
    with closing(prepared):
        for count, (n, future) in enumerate(zip(missing, prepared, strict=True), 1):
            run.add(n, future)
            audio_s += segments[n].end_s - segments[n].start_s
            elapsed_s = max(time.monotonic() - start_s, 1e-3)
            progress(
                1 / total,
                f"{name}: {count / elapsed_s:.0f} segments/s, "
                f"{audio_s / elapsed_s:.0f} h of audio per hour",
            )
    run.encode_waiting()
    store.flush()
    return keys, sorted(run.rejects, key=lambda reject: reject.row or 0)


@dataclass
class _EmbeddingRun:
    """The keys and rejects of the segments so far, and the audio that waits for the model."""

    segments: Sequence[Segment]
    sources: Sequence[str]
    keys: list[str | None]
    encoder: Encoder
    store: Store
    rejects: list[Reject] = field(default_factory=list)
    waiting: list[tuple[int, str, Float32Array]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.batching = Batching(settled=self.encoder.spec.windowing is None)

    def add(self, n: int, prepared: Prepared) -> None:
        """Add the audio of a segment, and run the model if a batch is full."""
        try:
            key, item = prepared.result()
        except InputError as error:
            self.reject(n, error)
            return
        self.waiting.append((n, key, item))
        items = [item for _, _, item in self.waiting]
        if self.count_windows(items) >= self.batching.size:
            self.encode_waiting()

    def encode_waiting(self) -> None:
        """Encode the audio that waits, each one once, and add it to the store."""
        unknown = {
            key: item for _, key, item in self.waiting if not self.store.has(key)
        }
        start_s = time.perf_counter()
        outputs = _encode_each(unknown, self.encoder)
        duration_s = time.perf_counter() - start_s
        self.batching.record(self.count_windows(unknown.values()), duration_s)
        for n, key, _ in self.waiting:
            output = outputs.get(key)
            source = self.sources[n]
            if isinstance(output, InputError):
                self.reject(n, output)
                continue
            self.keys[n] = key
            if output is not None:
                self.store.add(source, key, pool(output), unroll(output))
            elif not self.store.keeps_sequences:
                # The same audio from another source: add it, so that it is not read again.
                self.store.add(source, key, self.store.vectors([key])[0])
        self.waiting.clear()

    def count_windows(self, items: Collection[Float32Array]) -> int:
        """Return the number of windows; a whole segment counts as one."""
        if self.encoder.spec.windowing is None:
            return len(items)
        return sum(len(windows) for windows in items)

    def reject(self, n: int, error: InputError) -> None:
        """Count a segment among the rejects."""
        path = self.segments[n].path
        self.rejects.append(Reject(path, n + 1, str(error)))


@dataclass
class Batching:
    """The number of windows in one batch: doubled as long as that makes the model faster."""

    size: int = 1
    settled: bool = False
    _speeds: list[float] = field(default_factory=list)
    _best: float = 0.0

    def record(self, windows: int, seconds: float) -> None:
        """Record the duration of a batch; after some of one size, change the size or settle."""
        if self.settled or windows < self.size:
            return
        self._speeds.append(windows / max(seconds, 1e-9))
        if len(self._speeds) < TRIALS:
            return
        speed = median(self._speeds)
        self._speeds.clear()
        if speed < 1.05 * self._best:
            self.size = max(1, self.size // 2)
            self.settled = True
        else:
            self._best = speed
            self.settled = self.size * 2 > LARGEST_BATCH
            self.size = min(self.size * 2, LARGEST_BATCH)


def segment_source(root: Path, segment: Segment) -> str:
    """Name where a segment's audio comes from: file, size, time, span, and how it is read."""
    path = root / segment.path
    try:
        status = path.stat()
        identity = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    except OSError:
        identity = (-1, -1, -1)
    parts = (str(path.absolute()), *identity, *AUDIO_OPTIONS(segment))
    return sha256_text(repr(parts))[:32]


def _prepare_ahead(
    load_audio: LoadAudio,
    segments: Sequence[Segment],
    encoder: Encoder,
) -> Generator[Prepared, None, None]:
    """Yield the prepared audio of each segment in order; a thread works ahead."""

    def prepare(
        segment: Segment,
        loaded: tuple[int, Float32Array | InputError],
    ) -> tuple[str, Float32Array]:
        _, signal = loaded
        if isinstance(signal, InputError):
            raise signal
        key = f"{audio_key(signal)}@{segment.rate_hz}"
        return key, encoder.prepare(signal, segment.rate_hz)

    durations_s = [
        segment.end_s - segment.start_s + 2 * segment.collar_s for segment in segments
    ]
    longest = max([1.0, *durations_s]) * encoder.spec.rate_hz
    most = min(MOST_AHEAD, int(MOST_AHEAD_SAMPLES / longest) + 1)
    stream = map(prepare, segments, load_audio(segments))
    waiting = deque[Prepared]()
    executor = ThreadPoolExecutor(1, "callshot-windows")
    try:
        for _ in segments:
            waiting.append(executor.submit(next, stream))
            if len(waiting) > most:
                yield waiting.popleft()
        yield from waiting
    finally:
        executor.shutdown(cancel_futures=True)


def _encode_each(
    items: Mapping[str, Float32Array],
    encoder: Encoder,
) -> dict[str, Float32Array | InputError]:
    """Return the output of the model by key; if it fails on the batch, encode one by one."""
    if not items:
        return {}
    try:
        outputs = encoder.encode(list(items.values()))
        return dict(zip(items, outputs, strict=True))
    except InputError as error:
        if len(items) == 1:
            return dict.fromkeys(items, error)
    results: dict[str, Float32Array | InputError] = {}
    for key, item in items.items():
        results |= _encode_each({key: item}, encoder)
    return results


def default_threads() -> int:
    """Return the number of threads of a model: all cores but the one that reads ahead."""
    return max(1, (os.cpu_count() or 2) - 1)


def default_store() -> Path:
    """Return the folder in which embeddings are kept by default."""
    return home() / "store"


def check_store(folder: Path) -> None:
    """Check that embeddings can be written to a folder, which need not exist yet."""
    folder = folder.absolute()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot store embeddings there ({error_reason(error)}); "
            "choose another folder: --store DIR"
        ) from error


def check_segments(
    spec: EncoderSpec, segments: Sequence[Segment], source: Path | str
) -> None:
    """Check the folds and the rate of segments, before any audio is read."""
    read_given_folds(segments, source)
    if spec.windowing is not None:
        return
    for segment in segments:
        if segment.rate_hz != spec.rate_hz:
            raise InputError(
                f"{source}: {spec.name} needs segments at {spec.rate_hz} Hz, but "
                f"{segment.segment} is at {segment.rate_hz}; "
                f"cut the segments again with --rate-hz {spec.rate_hz}"
            )


def read_given_folds(
    segments: Sequence[Segment], source: Path | str
) -> IntArray | None:
    """Return the folds that came with the annotations; all segments must have one, or none."""
    folds = [segment.extra.get("fold") for segment in segments]
    if None not in folds:
        return np.array(folds, np.int64)
    if set(folds) != {None}:
        name = segments[folds.index(None)].segment
        raise InputError(
            f"{source}: column fold: empty for {name}, but not for all; fill it or drop the column"
        )
    return None


def make_table(
    encoder: str,
    segments: Sequence[Segment],
    vectors: Float32Array,
    source: Path | str,
) -> Embeddings:
    """Return vectors as a table, with the names and labels of their segments."""
    return Embeddings(
        encoder=encoder,
        vectors=vectors,
        segment=[segment.segment for segment in segments],
        recording=[segment.recording for segment in segments],
        label=[segment.label for segment in segments],
        labels=[segment.labels for segment in segments],
        fold=read_given_folds(segments, source),
        source=str(source),
    )
