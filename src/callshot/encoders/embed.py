"""Embed spans of recordings with an encoder, through a store that keeps every vector.

Only audio that the store does not have is read and encoded; reading runs ahead in threads while the
model works. A span that cannot be read is a reject, and the run continues.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from callshot.corpus.mixing import (
    MIXED,
    SNRS_DB,
    background_spans,
    load_spans,
    mix_spans,
)
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
)
from callshot.encoders.joined_encoder import (
    JoinedEncoder,
    find_joined_encoder,
    join_tables,
)
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.store import FINGERPRINT, Store, audio_key
from callshot.encoders.windows import Float32Array
from callshot.encoders.workers import (
    EmbedWork,
    Pace,
    Unit,
    Workers,
    default_threads,
    keep_ahead,
    run_here,
    run_on_cluster,
)
from callshot.errors import InputError, OptionError, OutputError, check_range
from callshot.files import sha256_text, why_not_writable
from callshot.jobs import Cluster
from callshot.records import Progress, Reject, no_progress, scale_progress
from callshot.spans import Row, Spans
from callshot.storage import home
from callshot.vectors import Vectors

Embedded = tuple[str, Float32Array | None, Float32Array | None]
"""The key of a span's audio, and its vector and sequence; None where these are known."""
Results = Generator[tuple[int, Embedded | InputError], None, None]
"""The rows of spans, in any order, each with its result."""
Submitted = Generator[tuple[int, tuple[str, PreparedSegment] | InputError], None, None]
"""The rows of spans that the model works on, each with the key of its audio and the model's input,
or with the error of reading it."""
WriteSequences = Callable[[Sequence[str], Iterator[Float32Array]], object]
"""Called with the names of spans and their sequences."""

RATIOS_DB = (-30, 60)  # of a call and the background that it is mixed into
MAX_SPANS = 32  # of one recording, that a worker gets at once
MAX_AHEAD = 64  # segments that are prepared while the model works
MAX_AHEAD_SAMPLES = 2**24  # of these segments together, at the model's rate
# fmt: off
AUDIO_COLUMNS = (
    "start_s", "end_s", "collar_s", "rate_hz", "channel_rule", "peak_dbfs", "source_rate_hz",
)
# fmt: on


@dataclass(frozen=True)
class EmbedOptions:
    """How an encoder is opened, and where its vectors are kept.

    encoder_options
             options that differ from the defaults of the encoder, as text
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


def find_source_keys(spans: Spans) -> list[str]:
    """Return a hash for each span, which changes if its audio may have changed.

    It is made from the path, size and times of the file, the span, and how it is read; for mixed
    spans also from the background and the ratio. No audio is read.
    """

    @cache
    def describe_file(path: Path) -> tuple[str, int, int, int]:
        """Return absolute path, size and times of a file, which may be missing."""
        absolute = str(path.absolute())
        with suppress(OSError):
            status = path.stat()
            return absolute, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        return absolute, -1, -1, -1  # reading it will give the error

    def hash_source(root: Path, row: Row) -> str:
        """Return the hash of one span."""
        file = describe_file(root / row["path"])
        parts = (*file, *(row[name] for name in AUDIO_COLUMNS))
        return sha256_text(repr(parts))[:32]

    sources = [hash_source(spans.root, row) for row in spans.rows()]
    if MIXED not in spans.frame.columns:
        return sources
    background = background_spans(spans)
    backgrounds = [hash_source(background.root, row) for row in background.rows()]
    mixtures = zip(sources, backgrounds, spans[MIXED], strict=True)
    return [sha256_text(repr(mixture))[:32] for mixture in mixtures]


def embed(
    spans: Spans,
    encoder: str,
    options: EmbedOptions = DEFAULTS,
    *,
    write_sequences: WriteSequences | None = None,
    progress: Progress = no_progress,
) -> tuple[Vectors, list[Reject]]:
    """Embed spans with an encoder of the catalogue; vectors in the store are not made again.

    `encoder` may be several names joined by +. Return the vectors, a row per embedded span, and the
    other spans as rejects. Raise InputError if no span could be embedded.
    """
    requested_encoder = find_joined_encoder(encoder, options.encoder_options)
    joined_encoder = replace_auto_speed(requested_encoder, spans)
    if write_sequences is not None and len(joined_encoder.specs) > 1:
        raise OptionError(
            f"{joined_encoder.name}: joined encoders have no sequence in common; "
            "embed each of them by itself, or remove sequences"
        )
    tables = []
    rejects: dict[int | None, Reject] = {}  # by row of `spans`, with the first reason
    for spec in joined_encoder.specs:
        device = joined_encoder.device(spec, options.device)
        rows, vectors, rejected = embed_rows(
            spans,
            spec,
            replace(options, device=device),
            write_sequences=write_sequences,
            progress=scale_progress(progress, 1 / len(joined_encoder.specs)),
        )
        if not rows:
            reason = f" (the first: {rejected[0].reason})" if rejected else ""
            raise InputError(
                f"{spans.source}: no segment could be embedded from {spans.root}{reason}"
            )
        tables.append(Vectors(spans.take(rows), vectors, display_name(spec)))
        rejects = {reject.row: reject for reject in rejected} | rejects
    joined = join_tables(tables, requested_encoder.name, joined_encoder, options.device)
    if joined_encoder != requested_encoder:
        note = (
            f"{requested_encoder.name}: chosen from where the energy of the calls lies: "
            f"{joined_encoder.name}"
        )
        joined = replace(joined, note=note)
    rows_in_order = sorted(rejects, key=lambda row: row or 0)  # None: of no row
    return joined, [rejects[row] for row in rows_in_order]


def replace_auto_speed(
    joined_encoder: JoinedEncoder, spans: Spans, *, can_join: bool = True
) -> JoinedEncoder:
    """Replace speed=auto by numbers, chosen from some of the spans (see `resolve_speeds`)."""
    if not any("speed" in spec.auto for spec in joined_encoder.specs):
        return joined_encoder
    spectra = measure_spectra(sample_spans(spans))
    return resolve_speeds(joined_encoder, spectra, can_join=can_join)


def embed_rows(
    spans: Spans,
    spec: EncoderSpec,
    options: EmbedOptions,
    *,
    write_sequences: WriteSequences | None = None,
    progress: Progress = no_progress,
) -> tuple[list[int], Float32Array, list[Reject]]:
    """Embed spans with one encoder at one speed, through the store.

    Return the rows of spans that have a vector, these vectors, and the other spans as rejects.
    """
    no_vectors = np.zeros((0, spec.dimension), np.float32)
    if len(spans) == 0:
        return [], no_vectors, []
    check_rates(spec, spans)
    sequences = write_sequences is not None
    device = options.device
    check_runs_on(spec, device)
    fingerprint = encoder_fingerprint(spec, device, sequences=sequences)
    folder = default_store() if options.store is None else options.store
    with Store(folder, fingerprint, sequences=sequences) as store:
        if options.cluster is None:
            threads = options.threads or default_threads()
            encoder = open_encoder(
                spec, device=device, threads=threads, sequences=sequences
            )
            all_keys, rejects = embed_spans(
                spans, encoder, store, progress, threads=options.threads
            )
        else:
            work = EmbedWork(
                kind="embed",
                spec=spec,
                fingerprint=fingerprint,
                device=device,
                encode=encode_on_worker,
                sequences=sequences,
            )
            run = partial(run_on_cluster, options.cluster, work)
            all_keys, rejects = _embed_missing(
                spans, spec.name, store, run, progress, max_spans=MAX_SPANS
            )
        rows = [row for row, key in enumerate(all_keys) if key is not None]
        keys = [key for key in all_keys if key is not None]
        vectors = store.vectors(keys) if keys else no_vectors
        if write_sequences is not None and rows:
            write_sequences(spans.take(rows)["segment"], store.sequences(keys))
    return rows, vectors, rejects


def embed_spans(
    spans: Spans,
    encoder: Encoder,
    store: Store,
    progress: Progress = no_progress,
    *,
    threads: int | None = None,
) -> tuple[list[str | None], list[Reject]]:
    """Encode spans in this process, and add the vectors of new audio to the store.

    Return the key of each span in the store, None for rejects; and the rejects. `threads` read
    audio.
    """
    encode = partial(encode_spans, threads=threads, is_known=store.has)
    with Workers(encoder) as workers:

        def run(units: Sequence[Unit]) -> Iterator[tuple[int, Any]]:
            return run_here(workers, encode, units)

        return _embed_missing(spans, encoder.spec.name, store, run, progress)


def _embed_missing(
    spans: Spans,
    name: str,
    store: Store,
    run: Callable[[Sequence[Unit]], Iterator[tuple[int, Any]]],
    progress: Progress,
    max_spans: int | None = None,
) -> tuple[list[str | None], list[Reject]]:
    """Encode the spans that the store does not have; return keys and rejects as `embed_spans` does.

    `name` is the encoder, for progress. `run` encodes units of work, and yields the number of a
    unit with each of its results. A unit has up to `max_spans` of one recording; without a limit,
    there is one unit of all spans.
    """
    sources = find_source_keys(spans)
    stored_keys = store.find(sources)
    keys = [stored_keys.get(source) for source in sources]  # None: to be encoded
    missing = [row for row, key in enumerate(keys) if key is None]
    paths = spans.paths
    durations_s = spans.durations_s
    total = max(1, len(spans))
    progress((total - len(missing)) / total, f"{name}: found in the store")
    groups = [missing] if missing else []  # the rows of spans of each unit
    if max_spans is not None:
        spans = replace(spans, root=spans.root.absolute())  # workers have other folders
        groups = _group_by_recording(missing, paths, max_spans)
    units = []
    for rows in groups:
        size = float(durations_s[rows].sum())
        units.append(Unit(paths[rows[0]], size, spans.take(rows)))

    def list_results() -> Results:
        """Yield each span's row and result; an error of a unit is the result of all its spans."""
        for unit, result in run(units):
            rows = groups[unit]
            if isinstance(result, InputError):
                yield from ((row, result) for row in rows)
            else:
                position, embedded = result  # position of the span in its unit
                yield rows[position], embedded

    rejects = []
    pace = Pace(name, progress)
    try:
        with closing(list_results()) as results:
            for row, result in results:
                if isinstance(result, InputError):
                    rejects.append(Reject(paths[row], row + 1, str(result)))
                else:
                    key, vector, sequence = result
                    keys[row] = key
                    if vector is None and not store.keeps_sequences:
                        # Known audio from another source: added, so that it is not read again.
                        vector = store.vectors([key])[0]
                    if vector is not None:
                        store.add(sources[row], key, vector, sequence)
                pace.report(1 / total, durations_s[row])
    except BaseException:
        with suppress(OutputError):  # the first error is what the user must see
            store.flush()
        raise
    store.flush()
    return keys, sorted(rejects, key=lambda reject: reject.row or 0)


def _group_by_recording(
    rows: Sequence[int], paths: Sequence[str], max_rows: int
) -> list[list[int]]:
    """Return rows in groups of one recording and at most `max_rows`; `paths` are of all rows."""
    rows_by_path = defaultdict[str, list[int]](list)
    for row in rows:
        rows_by_path[paths[row]].append(row)
    groups = []
    for _, of_path in sorted(rows_by_path.items()):
        starts = range(0, len(of_path), max_rows)
        groups += [of_path[start : start + max_rows] for start in starts]
    return groups


def encode_spans(
    workers: Workers,
    spans: Spans,
    *,
    threads: int | None = None,
    is_known: Callable[[str], bool] = lambda _: False,
) -> Results:
    """Encode spans with the threads of a model; yield the row of each span with its result.

    A result is an error, or the key of the audio, its vector, and its sequence if the model gives
    sequences. Audio that occurs several times, or that `is_known`, gives the key alone after that.
    `threads` read audio.
    """
    encoder = workers.encoder
    order = np.arange(len(spans))
    if encoder.batches_segments:  # spans of one length one after another
        order = np.argsort(spans.durations_s, kind="stable")
    ordered = spans.take(order).with_columns(passband_hz=encoder.spec.band)
    # How many spans are prepared while the model works: few if one is long.
    collars_s = np.array([span["collar_s"] for span in ordered.rows()])
    longest_s = (ordered.durations_s + 2 * collars_s).max(initial=1.0)
    samples = longest_s * encoder.spec.rate_hz / encoder.spec.speed  # of the longest
    ahead = min(MAX_AHEAD, int(MAX_AHEAD_SAMPLES / samples) + 1)
    outputs = {}  # by key: a function that waits for the output of the model
    encoded = set()  # keys that were yielded with a vector

    def prepare(span: Row, signal: Float32Array) -> tuple[str, PreparedSegment]:
        """Return the key of a span's audio, and the input of the model; runs while audio loads."""
        rate_hz = span["rate_hz"]
        return f"{audio_key(signal)}@{rate_hz}", encoder.prepare(signal, rate_hz)

    def load_and_submit() -> Submitted:
        """Load spans, and give their audio to the model where it is new; yield every row."""
        loaded = load_spans(ordered, threads=threads, ahead=ahead, prepare=prepare)
        with closing(loaded):
            for row, (_, result) in zip(order.tolist(), loaded, strict=True):
                if not isinstance(result, InputError):
                    key, prepared = result
                    if key not in outputs and key not in encoded and not is_known(key):
                        outputs[key] = workers.submit(prepared)
                yield row, result

    with closing(load_and_submit()) as submitted:
        for row, result in keep_ahead(submitted, workers.ahead):
            if isinstance(result, InputError):
                yield row, result
                continue
            key, prepared = result
            if key not in outputs:  # the store or an earlier result has the vector
                yield row, (key, None, None)
                continue
            try:
                output = outputs[key]()
            except InputError as error:  # also for other spans with this audio
                yield row, error
                continue
            del outputs[key]
            encoded.add(key)
            sequence = output if encoder.sequences else None
            yield row, (key, encoder.pool(prepared, output), sequence)


def encode_on_worker(workers: Workers, spans: Spans) -> Results:
    """Encode spans of one recording on a worker of a cluster.

    If every span fails, raise the error, so that another worker tries to read them.
    """
    results = list(encode_spans(workers, spans, threads=1))
    errors = [result for _, result in results if isinstance(result, InputError)]
    if len(errors) == len(results):
        raise errors[0]
    yield from results


# Options


def default_store() -> Path:
    """Return the folder in which embeddings are kept by default."""
    return home() / "store"


def check_store(folder: Path) -> None:
    """Raise OutputError if a folder can neither be written to nor is a store to read from.

    It need not exist yet.
    """
    reason = why_not_writable(folder)
    if reason and not any(folder.glob(f"*/{FINGERPRINT}")):
        raise OutputError(
            f"{folder}: cannot store embeddings there ({reason}); "
            "choose another folder: --store DIR"
        )


def check_rates(spec: EncoderSpec, spans: Spans) -> None:
    """Raise InputError if a model of whole segments gets one at a lower rate than its own."""
    if spec.windowing is not None or spec.speed != 1 or "speed" in spec.auto:
        return
    for row, rate_hz in enumerate(spans["rate_hz"]):
        if rate_hz < spec.rate_hz:
            raise InputError(
                f"{spans.source}: {spec.name} needs segments at {spec.rate_hz} Hz, but "
                f"row {row + 1} ({spans.paths[row]}) is at {rate_hz}; "
                f"cut the segments again with --rate-hz {spec.rate_hz}"
            )


@dataclass(frozen=True)
class BackgroundMix:
    """Recordings to take background from, and the signal-to-noise ratios of calls mixed into it."""

    recordings: Path
    snr_db: Sequence[float] = SNRS_DB

    def __post_init__(self) -> None:
        """Raise OptionError unless the ratios are different numbers in their range."""
        values = self.snr_db
        if not values or len(set(values)) < len(values):
            listed = ",".join(f"{value:g}" for value in values)
            raise OptionError(
                f"snr_db: expected values in dB, each once, got {listed!r}"
            )
        for value in values:
            check_range("snr_db", value, *RATIOS_DB, "dB")


def embed_mixed_segments(
    segments: Spans,
    mix: BackgroundMix,
    encoder: str,
    options: EmbedOptions,
    progress: Progress = no_progress,
) -> tuple[Vectors, list[Reject]]:
    """Embed segments mixed into background; the vector of a segment is the mean of its mixtures.

    A segment of which a mixture fails is a reject.
    """
    if options.cluster is not None:
        raise OptionError(
            "cluster: cannot be combined with site; remove one of the two"
        )
    mixed = mix_spans(segments, mix.recordings, mix.snr_db)
    table, rejects = embed(mixed, encoder, options, progress=progress)
    copies = len(mix.snr_db)  # of each segment, one after another
    segment_rows = np.array(table.spans["mixed_from"])  # of each mixture
    embedded_copies = np.bincount(segment_rows, minlength=len(segments))
    complete = np.flatnonzero(embedded_copies == copies)
    if len(complete) == 0:
        raise InputError(f"{table.source}: no segment could be embedded in background")
    vectors = table.matrix[np.isin(segment_rows, complete)]
    by_segment = vectors.reshape(len(complete), copies, vectors.shape[1])
    means = by_segment.mean(axis=1, dtype=np.float64).astype(vectors.dtype)
    name = f"{table.encoder}, at site"
    levels = ", ".join(f"{value:g}" for value in mix.snr_db)
    note = (
        f"{name}: calls were mixed into background of {mix.recordings} at {levels} dB "
        "before they were embedded"
    )
    if table.note:
        note = f"{table.note}; {note}"
    averaged = replace(
        table, spans=segments.take(complete), matrix=means, encoder=name, note=note
    )
    by_row: dict[int, Reject] = {}
    for reject in rejects:
        assert reject.row is not None  # it is a segment, not a file
        row = (reject.row - 1) // copies + 1  # both count from 1
        by_row.setdefault(row, replace(reject, row=row))
    return averaged, list(by_row.values())
