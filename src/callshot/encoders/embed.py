"""Embed spans of recordings with an encoder, through a store that keeps every vector.

Only audio that the store does not have is read and encoded. Reading, resampling and cutting windows
run ahead in threads while the model works, by default on all cores. A span that cannot be read is a
reject, and the run continues; everything that was encoded before a crash is in the store.
"""

import time
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

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
from callshot.encoders.store import FINGERPRINT, Store, audio_key, open_store
from callshot.encoders.validation import Float32Array
from callshot.encoders.workers import Output, Workers, default_threads, open_workers
from callshot.errors import InputError, OptionError, OutputError
from callshot.files import sha256_text, why_not_writable
from callshot.jobs import Cluster, Job, Pool
from callshot.records import (
    Embeddings,
    Progress,
    Reject,
    given_folds,
    no_progress,
)
from callshot.spans import Row, Spans
from callshot.storage import home

Embedded = tuple[str, Float32Array | None, Float32Array | None]
"""The key of a span's audio, its vector, None if the store has it, and its sequence."""
Results = Generator[tuple[int, Embedded | InputError], None, None]
"""The rows of spans, in any order, each with its result."""
WriteSequences = Callable[[Sequence[str], Iterator[Float32Array]], object]
"""Called with the names of spans and their sequences."""

MAX_SPANS = 32  # of one recording, that a worker gets at once
MAX_AHEAD = 64  # segments that are prepared while the model works
MAX_AHEAD_SAMPLES = 2**24  # of these segments together, at the model's rate
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

    def name_source(root: Path, row: Row) -> str:
        path = root / row["path"]
        absolute = str(path.absolute())
        if absolute not in files:
            files[absolute] = (-1, -1, -1)
            with suppress(OSError):
                status = path.stat()
                times = (status.st_mtime_ns, status.st_ctime_ns)
                files[absolute] = (status.st_size, *times)
        parts = (absolute, *files[absolute], *(row[name] for name in AUDIO_COLUMNS))
        return sha256_text(repr(parts))[:32]

    sources = [name_source(spans.root, row) for row in spans.rows()]
    if MIXED not in spans.frame.columns:
        return sources
    background = background_spans(spans)
    noises = [name_source(background.root, row) for row in background.rows()]
    parts = zip(sources, noises, spans[MIXED], strict=True)
    return [sha256_text(repr(part))[:32] for part in parts]


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
    device = options.device
    folder = default_store() if options.store is None else options.store
    if options.cluster is None:
        threads = options.threads or default_threads()
        encoder = open_encoder(
            spec, device=device, threads=threads, sequences=sequences
        )
        fingerprint = encoder.fingerprint
    else:
        check_runs_on(spec, device)
        fingerprint = encoder_fingerprint(spec, device, sequences=sequences)
    with open_store(folder, fingerprint, sequences=sequences) as store:
        if options.cluster is None:
            all_keys, rejects = embed_spans(
                spans, encoder, store, progress, threads=options.threads
            )
        else:
            work = EmbedWork(spec, fingerprint, device, sequences)
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
    with Workers(encoder) as workers:
        encode = partial(_encode_here, workers, threads)
        return _embed_missing(spans, encoder.spec.name, store, encode, progress)


def _embed_missing(
    spans: Spans,
    name: str,
    store: Store,
    encode: Callable[[Spans, Sequence[int], Callable[[str], bool]], Results],
    progress: Progress,
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
        with closing(encode(spans, missing, store.has)) as results:
            for count, (n, result) in enumerate(results, 1):
                if isinstance(result, InputError):
                    rejects.append(Reject(paths[n], n + 1, str(result)))
                else:
                    key, vector, sequence = result
                    keys[n] = key
                    if vector is None and not store.keeps_sequences:
                        # Known audio from another source: added, so that it is not read again.
                        vector = store.vectors([key])[0]
                    if vector is not None:
                        store.add(sources[n], key, vector, sequence)
                audio_s += durations_s[n]
                elapsed_s = max(time.monotonic() - start_s, 1e-3)
                speed = f"{count / elapsed_s:.0f} segments/s"
                pace = f"{audio_s / elapsed_s:.0f} h of audio per hour"
                progress(1 / total, f"{name}: {speed}, {pace}")
    except BaseException:
        with suppress(OutputError):  # the first error is what the user must see
            store.flush()
        raise
    store.flush()
    return keys, sorted(rejects, key=lambda reject: reject.row or 0)


def _encode_here(
    workers: Workers,
    threads: int | None,
    spans: Spans,
    missing: Sequence[int],
    is_known: Callable[[str], bool],
) -> Results:
    """Encode spans in threads of this process; audio is encoded once, wherever it is from.

    `is_known` says whether the vector of a key has been stored since.
    """
    encoder = workers.encoder
    if encoder.batches_segments:  # those of one length one after another
        durations_s = spans.durations_s
        missing = sorted(missing, key=lambda n: (durations_s[n], n))
    running: deque[tuple[int, str, PreparedSegment]] = deque()
    outputs: dict[str, Output] = {}  # by key, of `running`

    def finish_first() -> tuple[int, Embedded | InputError]:
        n, key, item = running.popleft()
        if is_known(key):
            outputs.pop(key, None)
            return n, (key, None, None)
        try:
            output = outputs[key]()
        except InputError as error:
            return n, error
        del outputs[key]
        return n, (key, encoder.pool(item, output), unroll(output))

    with closing(_prepare_ahead(encoder, spans.take(missing), threads)) as prepared:
        for n, future in zip(missing, prepared, strict=True):
            try:
                key, item = future.result()
            except InputError as error:
                yield n, error
                continue
            if key not in outputs and not is_known(key):
                outputs[key] = workers.submit(item)
            running.append((n, key, item))
            if len(running) > workers.ahead:
                yield finish_first()
        while running:
            yield finish_first()


def _prepare_ahead(
    encoder: Encoder, spans: Spans, threads: int | None
) -> Generator[Future[tuple[str, PreparedSegment]], None, None]:
    """Yield key and prepared audio of each span in order; a thread works ahead."""
    loaded = load_spans(spans, threads=threads)

    def prepare(rate_hz: int) -> tuple[str, PreparedSegment]:
        _, signal = next(loaded)
        if isinstance(signal, InputError):
            raise signal
        return f"{audio_key(signal)}@{rate_hz}", encoder.prepare(signal, rate_hz)

    # Few, if one is long.
    longest_s = 1.0
    for row in spans.rows():
        length_s = row["end_s"] - row["start_s"] + 2 * row["collar_s"]
        longest_s = max(longest_s, length_s)
    samples = longest_s * encoder.spec.rate_hz / encoder.spec.speed
    most = min(MAX_AHEAD, int(MAX_AHEAD_SAMPLES / samples) + 1)
    waiting = deque[Future[tuple[str, PreparedSegment]]]()
    with Pool(1, thread_name_prefix="callshot-windows") as pool:
        for rate_hz in spans["rate_hz"]:
            waiting.append(pool.submit(prepare, rate_hz))
            if len(waiting) > most:
                yield waiting.popleft()
        yield from waiting


# On a cluster


@dataclass(frozen=True)
class EmbedWork:
    """What a worker has to know: the encoder as the client found it."""

    spec: EncoderSpec
    fingerprint: Mapping[str, object]
    device: str
    sequences: bool = False


def _encode_on_cluster(
    cluster: Cluster,
    work: EmbedWork,
    spans: Spans,
    missing: Sequence[int],
    is_known: Callable[[str], bool],
) -> Results:
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


def open_encoder_on_worker(work: EmbedWork, threads: int) -> tuple[EmbedWork, Workers]:
    """Open the encoder in the process of a worker; its weights must be those of the client."""
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


def embed_on_worker(
    state: tuple[EmbedWork, Workers], spans: Spans
) -> list[Embedded | InputError]:
    """Return the result of each span of a recording; raise if every span fails."""
    work, workers = state
    known: set[str] = set()
    results: dict[int, Embedded | InputError] = {}
    rows = range(len(spans))
    for n, result in _encode_here(workers, 1, spans, rows, known.__contains__):
        if not isinstance(result, InputError):
            key, vector, sequence = result
            known.add(key)
            result = (key, vector, sequence if work.sequences else None)
        results[n] = result
    if all(isinstance(result, InputError) for result in results.values()):
        raise results[0]  # type: ignore[misc]
    return [results[n] for n in rows]


# Options


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
