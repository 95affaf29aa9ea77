"""Prepared segments come in; those that the store does not have go through the model into it."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from callshot.encoders.batching import Prepared
from callshot.encoders.encode import Encoder, PreparedSegment, unroll
from callshot.encoders.store.store import Store
from callshot.encoders.validation import Float32Array
from callshot.encoders.workers import Output, Workers
from callshot.errors import InputError, OutputError
from callshot.records import Reject


@dataclass(frozen=True)
class _Running:
    """A segment in the model: its number, the key of its audio, and what the model gets."""

    n: int
    key: str
    item: PreparedSegment


@dataclass
class EmbeddingRun:
    """The keys and rejects of the segments so far, and the audio that the model works on."""

    paths: Sequence[str]
    sources: Sequence[str]
    keys: list[str | None]
    encoder: Encoder
    store: Store
    workers: Workers
    rejects: list[Reject] = field(default_factory=list)
    running: deque[_Running] = field(default_factory=deque)
    outputs: dict[str, Output] = field(default_factory=dict)  # by key, of `running`

    @contextmanager
    def flush_on_error(self) -> Iterator[None]:
        """Store what the model returned, whatever ends the block, before threads are ended."""
        try:
            yield
        except BaseException:
            with suppress(OutputError):  # the first error is what the user must see
                self.store.flush()
            raise

    def add(self, n: int, prepared: Prepared) -> None:
        """Give the audio of a segment to the model, once; store what is ready, in order."""
        try:
            key, item = prepared.result()
        except InputError as error:
            self.reject(n, error)
            return
        if key not in self.outputs and not self.store.has(key):
            self.outputs[key] = self.workers.submit(item)
        self.running.append(_Running(n, key, item))
        if len(self.running) > self.most_running:
            self.finish_first()

    @property
    def most_running(self) -> int:
        """How many segments may be in the model or wait for it: enough to keep it busy."""
        return 2 * max(self.encoder.workers, self.workers.batching.size)

    def finish(self) -> None:
        """Wait for the model, and store everything."""
        while self.running:
            self.finish_first()

    def finish_first(self) -> None:
        """Wait for the first segment in the model, and add it to the store."""
        first = self.running.popleft()
        output = None
        if not self.store.has(first.key):
            try:
                output = self.outputs[first.key]()
            except InputError as error:
                self.reject(first.n, error)
                return
        self.outputs.pop(first.key, None)
        self.keys[first.n] = first.key
        self.store_output(self.sources[first.n], first.key, first.item, output)

    def store_output(
        self,
        source: str,
        key: str,
        item: PreparedSegment,
        output: Float32Array | None,
    ) -> None:
        """Add the output of the model to the store; None if the store has that audio."""
        if output is not None:
            vector = self.encoder.pool(item, output)
            self.store.add(source, key, vector, unroll(output))
        elif not self.store.keeps_sequences:
            # The same audio from another source: add it, so that it is not read again.
            self.store.add(source, key, self.store.vectors([key])[0])

    def reject(self, n: int, error: InputError) -> None:
        """Count a segment among the rejects."""
        self.rejects.append(Reject(self.paths[n], n + 1, str(error)))
