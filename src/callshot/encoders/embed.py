"""Embed spans of recordings with an encoder, through a store that keeps every vector.

Only audio that the store does not have is read and encoded. Reading, resampling and cutting windows
run ahead in threads while the model works, by default on all cores. A span that cannot be read is a
reject, and the run continues; everything that was encoded before a crash is in the store.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from callshot.corpus.mixing import MIXED, background_spans
from callshot.encoders.band_coverage import (
    measure_spectra,
    resolve_speeds,
    sample_spans,
)
from callshot.encoders.catalogue import display_name
from callshot.encoders.embed_on_cluster import (
    EmbedWork,
    embed_on_cluster,
    spec_fingerprint,
)
from callshot.encoders.encode import Encoder, PreparedSegment, open_encoder, unroll
from callshot.encoders.joined_encoder import (
    JoinedEncoder,
    find_joined_encoder,
    join_tables,
)
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.store import FINGERPRINT, Store, open_store
from callshot.encoders.validation import Float32Array
from callshot.encoders.workers import (
    Output,
    Prepared,
    Workers,
    describe_speed,
    prepare_ahead,
)
from callshot.errors import InputError, OptionError, OutputError
from callshot.files import sha256_text, why_not_writable
from callshot.jobs import Cluster
from callshot.records import (
    Embeddings,
    Progress,
    Reject,
    given_folds,
    no_progress,
)
from callshot.spans import Row, Spans
from callshot.storage import home


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


WriteSequences = Callable[[Sequence[str], Iterator[Float32Array]], object]
"""Called with the names of spans and their sequences."""

EmbedMissing = Callable[[Store, Progress], tuple[list[str | None], list[Reject]]]
"""Adds what is missing to a store; returns the key of each span, and the rejects."""

AUDIO_COLUMNS = (
    "start_s",
    "end_s",
    "collar_s",
    "rate_hz",
    "channel_rule",
    "peak_dbfs",
    "source_rate_hz",
)


@dataclass(frozen=True)
class EmbedOptions:
    """How an encoder is opened, and where its vectors are kept.

    encoder_options
             those that differ from the defaults of the encoder, as text
    store    folder in which embeddings are kept; by default the user's cache
    device   "cpu" or "cuda"
    threads  of the model; by default one for each core
    cluster  workers that encode; they must be able to load the audio
    """

    encoder_options: Mapping[str, str] | None = None
    store: Path | None = None
    device: str = "cpu"
    threads: int | None = None
    cluster: Cluster | None = None


DEFAULTS = EmbedOptions()


def name_sources(spans: Spans) -> list[str]:
    """Name where the audio of each span comes from: file, size, time, span, how it is read."""
    files: dict[str, tuple[object, ...]] = {}
    sources = [_name_source(spans.root, row, files) for row in spans.rows()]
    if MIXED not in spans.frame.columns:
        return sources
    background = background_spans(spans)
    noises = [_name_source(background.root, row, files) for row in background.rows()]
    parts = zip(sources, noises, spans[MIXED], strict=True)
    return [sha256_text(repr(part))[:32] for part in parts]


def _name_source(root: Path, row: Row, files: dict[str, tuple[object, ...]]) -> str:
    path = root / row["path"]
    absolute = str(path.absolute())
    if absolute not in files:
        try:
            status = path.stat()
            files[absolute] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        except OSError:
            files[absolute] = (-1, -1, -1)
    parts = (absolute, *files[absolute], *(row[name] for name in AUDIO_COLUMNS))
    return sha256_text(repr(parts))[:32]


def embed(
    spans: Spans,
    encoder: str,
    options: EmbedOptions = DEFAULTS,
    *,
    write_sequences: WriteSequences | None = None,
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[Reject]]:
    """Embed spans with an encoder of the catalogue; vectors in the store are not made again.

    Parameters
    ----------
    spans
        Spans of recordings, such as those of `read_segments`.
    encoder
        Name of an encoder, such as "birdnet-v2.4", or of several joined; `encoders()` lists them.
    options
        How the encoder is opened, and where its vectors are kept.
    write_sequences
        Called with the names of the spans and the sequence of each one.
    progress
        Called with each share of the work.

    Returns
    -------
    tuple
        The vectors, one row per embedded span; the other spans, with the reasons.

    Raises
    ------
    InputError
        If no span could be embedded.
    """
    requested_encoder = find_joined_encoder(encoder, options.encoder_options)
    joined_encoder = replace_auto_speed(requested_encoder, spans)
    if write_sequences is not None and len(joined_encoder.specs) > 1:
        raise OptionError(
            f"{joined_encoder.name}: joined encoders have no sequence in common; "
            "embed each of them by itself, or remove sequences"
        )
    tables = []
    rejects: dict[int | None, Reject] = {}
    for spec in joined_encoder.specs:
        device = joined_encoder.device(spec, options.device)
        table, rejected = embed_spec(
            spans,
            spec,
            replace(options, device=device),
            write_sequences=write_sequences,
            progress=lambda share, what: progress(
                share / len(joined_encoder.specs), what
            ),
        )
        tables.append(table)
        rejects = {reject.row: reject for reject in rejected} | rejects
    joined = join_tables(tables, requested_encoder.name, joined_encoder, options.device)
    if joined_encoder != requested_encoder:
        note = (
            f"{requested_encoder.name}: chosen from where the energy of the calls lies: "
            f"{joined_encoder.name}"
        )
        joined = replace(joined, note=note)
    return joined, [rejects[row] for row in sorted(rejects, key=lambda row: row or 0)]


def replace_auto_speed(joined_encoder: JoinedEncoder, spans: Spans) -> JoinedEncoder:
    """Return an encoder with numbers in place of speed=auto, chosen from some of the spans."""
    if not any(spec.auto_speed for spec in joined_encoder.specs):
        return joined_encoder
    return resolve_speeds(joined_encoder, measure_spectra(sample_spans(spans)))


def embed_spec(
    spans: Spans,
    spec: EncoderSpec,
    options: EmbedOptions = DEFAULTS,
    *,
    write_sequences: WriteSequences | None = None,
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[Reject]]:
    """Embed spans with one encoder at one speed; see `embed`."""
    check_rates(spec, spans)
    sequences = write_sequences is not None
    fingerprint, embed_missing = _choose_encoding(spans, spec, options, sequences)
    folder = default_store() if options.store is None else options.store
    with open_store(folder, fingerprint, sequences=sequences) as store:
        all_keys, rejects = embed_missing(store, progress)
        keys = [key for key in all_keys if key is not None]
        if not keys:
            reason = f" (the first: {rejects[0].reason})" if rejects else ""
            raise InputError(
                f"{spans.source}: no segment could be embedded from {spans.root}{reason}"
            )
        rows = [row for row, key in enumerate(all_keys) if key is not None]
        vectors = store.vectors(keys)
        table = make_table(display_name(spec), spans.take(rows), vectors)
        if write_sequences is not None:
            write_sequences(table.segment, store.sequences(keys))
    return table, rejects


def _choose_encoding(
    spans: Spans, spec: EncoderSpec, options: EmbedOptions, sequences: bool
) -> tuple[Mapping[str, object], EmbedMissing]:
    """Return the fingerprint of an encoder, and what embeds spans: a model here, or workers."""
    if options.cluster is not None:
        fingerprint = spec_fingerprint(spec, options.device, sequences=sequences)
        work = EmbedWork(spec, fingerprint, options.device, sequences)
        sources = name_sources(spans)
        return fingerprint, partial(
            embed_on_cluster, options.cluster, work, spans, sources
        )
    threads = options.threads or default_threads()
    opened = open_encoder(
        spec, device=options.device, threads=threads, sequences=sequences
    )
    return opened.fingerprint, partial(
        embed_spans, spans, opened, threads=options.threads
    )


def embed_spans(
    spans: Spans,
    encoder: Encoder,
    store: Store,
    progress: Progress = no_progress,
    *,
    threads: int | None = None,
) -> tuple[list[str | None], list[Reject]]:
    """Encode the spans that the store does not have, and add them to it.

    Return the key of each span, None for rejects, and the rejects. `threads` read audio.
    """
    sources = name_sources(spans)
    stored_keys = store.find(sources)
    keys = [stored_keys.get(source) for source in sources]
    workers = Workers(encoder)
    run = EmbeddingRun(
        paths=spans.paths,
        sources=sources,
        keys=keys,
        encoder=encoder,
        store=store,
        workers=workers,
    )
    durations_s = spans.durations_s
    missing = [n for n, key in enumerate(keys) if key is None]
    if encoder.batches_segments:  # those of one length one after another
        missing.sort(key=lambda n: (durations_s[n], n))
    name = encoder.spec.name
    total = max(1, len(spans))
    progress((total - len(missing)) / total, f"{name}: found in the store")
    start_s = time.monotonic()
    audio_s = 0.0
    prepared = prepare_ahead(encoder, spans.take(missing), threads)
    with workers, closing(prepared), run.flush_on_error():
        for count, (n, future) in enumerate(zip(missing, prepared, strict=True), 1):
            run.add(n, future)
            audio_s += durations_s[n]
            speed = describe_speed(count, audio_s, time.monotonic() - start_s)
            progress(1 / total, f"{name}: {speed}")
        run.finish()
    store.flush()
    return keys, sorted(run.rejects, key=lambda reject: reject.row or 0)


def default_threads() -> int:
    """Return the number of threads of a model: one for each core that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_store() -> Path:
    """Return the folder in which embeddings are kept by default."""
    return home() / "store"


def check_store(folder: Path) -> None:
    """Check that a folder, which need not exist yet, can be written to, or is a store to read."""
    reason = why_not_writable(folder)
    if reason and not any(folder.glob(f"*/{FINGERPRINT}")):
        raise OutputError(
            f"{folder}: cannot store embeddings there ({reason}); "
            "choose another folder: --store DIR"
        )


def check_rates(spec: EncoderSpec, spans: Spans) -> None:
    """Check the rate of spans, before any audio is read."""
    for row, rate_hz in enumerate(spans["rate_hz"]):
        if not spec.takes_rate(rate_hz):
            raise InputError(
                f"{spans.source}: {spec.name} needs segments at {spec.rate_hz} Hz, but "
                f"row {row + 1} ({spans.paths[row]}) is at {rate_hz}; "
                f"cut the segments again with --rate-hz {spec.rate_hz}"
            )


def make_table(encoder: str, spans: Spans, vectors: Float32Array) -> Embeddings:
    """Return vectors as a table, with the names and labels of their spans."""
    return Embeddings(
        encoder=encoder,
        vectors=vectors,
        segment=spans["segment"],
        recording=spans["recording"],
        label=spans["label"],
        labels=[tuple(labels) for labels in spans["labels"]],
        fold=given_folds(spans),
        source=spans.source,
    )
