"""Segments come in; their audio goes out, prepared ahead for the model, and the size of a batch."""

from collections import deque
from collections.abc import Generator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from callshot.corpus.mixing import load_spans
from callshot.encoders.encode import Encoder, PreparedSegment
from callshot.encoders.store.store import audio_key
from callshot.encoders.validation import Float32Array
from callshot.errors import InputError
from callshot.pools import Pool
from callshot.spans import Spans

Loaded = tuple[int, Float32Array | InputError]
"""The position of a segment, and its audio or the error."""
Prepared = Future[tuple[str, PreparedSegment]]
"""The key of a segment's audio, and what the model gets."""

LARGEST_BATCH = 64  # windows
SLOWER = 0.9  # of the highest speed: no larger batch is tried
TRIALS = 5  # batches of one size before the next size is tried
MOST_AHEAD = 64  # segments that are prepared while the model works
MOST_AHEAD_SAMPLES = 2**24  # of these segments together, at the model's rate


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
    return min(MOST_AHEAD, int(MOST_AHEAD_SAMPLES / (longest_s * samples_per_s)) + 1)


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
