"""Embed spans of recordings with an encoder, through a store that keeps every vector.

Only audio that the store does not have is read and encoded. Reading, resampling and cutting windows
run ahead in threads while the model works, by default on all cores. A span that cannot be read is a
reject, and the run continues; everything that was encoded before a crash is in the store.
"""

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from callshot.corpus.mixing import MIXED, background_spans, load_spans
from callshot.encoders.band_coverage import (
    measure_spectra,
    resolve_speeds,
    sample_spans,
)
from callshot.encoders.catalogue import display_name
from callshot.encoders.encode import (
    Encoder,
    PreparedSegment,
    check_runs_on,
    encoder_fingerprint,
    open_encoder,
    unroll,
)
from callshot.encoders.joined_encoder import (
    JoinedEncoder,
    find_joined_encoder,
    join_tables,
)
from callshot.encoders.spec import EncoderSpec, find_differences
from callshot.encoders.store import FINGERPRINT, Store, open_store
from callshot.encoders.validation import Float32Array
from callshot.encoders.workers import (
    Output,
    Workers,
    describe_speed,
    prepare_ahead,
    prepare_segment,
)
from callshot.errors import InputError, OptionError, OutputError
from callshot.files import sha256_text, why_not_writable
from callshot.jobs import Cluster, Job
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
class EmbeddedSpan:
    """The key of a span's audio, its vector, None if the store has it, and its sequence."""

    key: str
    vector: Float32Array | None = None
    sequence: Float32Array | None = None


@dataclass(frozen=True)
class EmbedWork:
    """What a worker has to know: the encoder as the client found it."""

    spec: EncoderSpec
    fingerprint: Mapping[str, object]
    device: str
    sequences: bool


Encode = Callable[
    [Spans, Sequence[int]], Iterable[tuple[int, EmbeddedSpan | InputError]]
]
"""Encodes some rows of spans, in any order."""
WriteSequences = Callable[[Sequence[str], Iterator[Float32Array]], object]
"""Called with the names of spans and their sequences."""

MAX_SPANS = 32  # of one recording, that a worker gets at once
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
    folder = default_store() if options.store is None else options.store
    if options.cluster is None:
        threads = options.threads or default_threads()
        encoder = open_encoder(
            spec, device=options.device, threads=threads, sequences=sequences
        )
        fingerprint = encoder.fingerprint
    else:
        check_runs_on(spec, options.device)
        fingerprint = encoder_fingerprint(spec, options.device, sequences=sequences)
    with open_store(folder, fingerprint, sequences=sequences) as store:
        if options.cluster is None:
            all_keys, rejects = embed_spans(
                spans, encoder, store, progress, threads=options.threads
            )
        else:
            work = EmbedWork(spec, fingerprint, options.device, sequences)
            encode = partial(_encode_on_cluster, options.cluster, work)
            all_keys, rejects = _embed_missing(
                spans, spec.name, store, encode, progress
            )
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
    encode = partial(_encode_here, encoder, store, threads)
    return _embed_missing(spans, encoder.spec.name, store, encode, progress)


def _embed_missing(
    spans: Spans, name: str, store: Store, encode: Encode, progress: Progress
) -> tuple[list[str | None], list[Reject]]:
    """Add the spans that the store does not have; return the key of each, and the rejects."""
    sources = name_sources(spans)
    stored_keys = store.find(sources)
    keys = [stored_keys.get(source) for source in sources]
    missing = [n for n, key in enumerate(keys) if key is None]
    paths = spans.paths
    durations_s = spans.durations_s
    total = max(1, len(spans))
    progress((total - len(missing)) / total, f"{name}: found in the store")
    rejects = []
    start_s = time.monotonic()
    audio_s = 0.0
    try:
        for count, (n, result) in enumerate(encode(spans, missing), 1):
            if isinstance(result, InputError):
                rejects.append(Reject(paths[n], n + 1, str(result)))
            else:
                keys[n] = result.key
                if result.vector is not None:
                    store.add(sources[n], result.key, result.vector, result.sequence)
                elif not store.keeps_sequences:
                    # Known audio from another source: add it, so that it is not read again.
                    vector = store.vectors([result.key])[0]
                    store.add(sources[n], result.key, vector)
            audio_s += durations_s[n]
            speed = describe_speed(count, audio_s, time.monotonic() - start_s)
            progress(1 / total, f"{name}: {speed}")
    except BaseException:
        with suppress(OutputError):  # the first error is what the user must see
            store.flush()
        raise
    store.flush()
    return keys, sorted(rejects, key=lambda reject: reject.row or 0)


def _encode_here(
    encoder: Encoder,
    store: Store,
    threads: int | None,
    spans: Spans,
    missing: Sequence[int],
) -> Iterator[tuple[int, EmbeddedSpan | InputError]]:
    """Encode spans in threads of this process; audio is encoded once, wherever it is from."""
    if encoder.batches_segments:  # those of one length one after another
        durations_s = spans.durations_s
        missing = sorted(missing, key=lambda n: (durations_s[n], n))
    running: deque[tuple[int, str, PreparedSegment]] = deque()
    outputs: dict[str, Output] = {}  # by key, of `running`
    workers = Workers(encoder)
    prepared = prepare_ahead(encoder, spans.take(missing), threads)

    def finish_first() -> tuple[int, EmbeddedSpan | InputError]:
        n, key, item = running.popleft()
        if store.has(key):
            outputs.pop(key, None)
            return n, EmbeddedSpan(key)
        try:
            output = outputs[key]()
        except InputError as error:
            return n, error
        del outputs[key]
        return n, EmbeddedSpan(key, encoder.pool(item, output), unroll(output))

    with workers, closing(prepared):
        for n, future in zip(missing, prepared, strict=True):
            try:
                key, item = future.result()
            except InputError as error:
                yield n, error
                continue
            if key not in outputs and not store.has(key):
                outputs[key] = workers.submit(item)
            running.append((n, key, item))
            # Enough wait for the model to keep it busy.
            if len(running) > 2 * max(encoder.workers, workers.batching.size):
                yield finish_first()
        while running:
            yield finish_first()


# On a cluster


def _encode_on_cluster(
    cluster: Cluster, work: EmbedWork, spans: Spans, missing: Sequence[int]
) -> Iterator[tuple[int, EmbeddedSpan | InputError]]:
    """Encode spans on workers, some of one recording at a time."""
    paths = spans.paths
    durations_s = spans.durations_s
    by_recording = defaultdict[str, list[int]](list)
    for n in sorted(missing, key=paths.__getitem__):
        by_recording[paths[n]].append(n)
    groups = [
        rows[start : start + MAX_SPANS]
        for rows in by_recording.values()
        for start in range(0, len(rows), MAX_SPANS)
    ]
    there = replace(spans, root=spans.root.absolute())  # workers have other folders
    job = Job(
        kind="embed",
        prepare=open_encoder_on_worker,
        function=embed_on_worker,
        common=work,
        items=[there.take(group) for group in groups],
        names=[paths[group[0]] for group in groups],
        sizes=[float(durations_s[group].sum()) for group in groups],
        needs_gpu=work.device == "cuda",
    )
    for outcome in cluster.run(job):
        group = groups[outcome.number]
        results = outcome.value or [InputError(outcome.reason)] * len(group)
        for n, result in zip(group, results, strict=True):
            cluster.add_audio(durations_s[n])
            yield n, result


def check_fingerprint_of_client(
    client: Mapping[str, object], worker: Mapping[str, object], name: str
) -> None:
    """Raise InputError unless a worker has the encoder of the client, with the same weights."""
    names = find_differences(client, worker)
    if names:
        raise InputError(
            f"worker and client differ in {name} ({', '.join(names)}); install the same "
            "versions and weights on both"
        )


def open_encoder_on_worker(
    work: EmbedWork, threads: int
) -> tuple[EmbedWork, Encoder, Workers]:
    """Open the encoder in the process of a worker; its weights must be those of the client."""
    encoder = open_encoder(
        work.spec, device=work.device, threads=threads, sequences=work.sequences
    )
    check_fingerprint_of_client(work.fingerprint, encoder.fingerprint, work.spec.name)
    return work, encoder, Workers(encoder)


def embed_on_worker(
    state: tuple[EmbedWork, Encoder, Workers], spans: Spans
) -> list[EmbeddedSpan | InputError]:
    """Return what became of each span of a recording; raise if none could be embedded."""
    work, encoder, workers = state
    results: list[EmbeddedSpan | InputError] = []
    pairs = zip(spans["rate_hz"], load_spans(spans, threads=1), strict=True)
    for rate_hz, loaded in pairs:
        try:
            key, item = prepare_segment(encoder, rate_hz, loaded)
            output = workers.submit(item)()
        except InputError as error:
            results.append(error)
            continue
        vector = np.array(encoder.pool(item, output))
        sequence = np.array(unroll(output)) if work.sequences else None
        results.append(EmbeddedSpan(key, vector, sequence))
    errors = [result for result in results if isinstance(result, InputError)]
    if len(errors) == len(results):
        raise errors[0]
    return results


# Options


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
