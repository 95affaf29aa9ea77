"""Segments and an encoder come in; the store is filled, and a table of embeddings goes out.

Only audio that the store does not have is read and encoded. Reading, resampling and cutting windows
run ahead in threads while the model works, by default on all cores. A segment that cannot be read
is a reject, and the run continues; everything that was encoded before a crash is in the store.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from callshot.encoders.band_coverage import (
    measure_spectra,
    resolve_speeds,
    sample_segments,
)
from callshot.encoders.batching import (
    LoadAudio,
    describe_speed,
    prepare_ahead,
)
from callshot.encoders.catalogue import display_name
from callshot.encoders.embed_on_cluster import (
    EmbedWork,
    embed_on_cluster,
    spec_fingerprint,
)
from callshot.encoders.embedding_run import EmbeddingRun
from callshot.encoders.encode import (
    Encoder,
    open_encoder,
)
from callshot.encoders.joined_encoder import (
    JoinedEncoder,
    find_joined_encoder,
    join_tables,
)
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.store.store import FINGERPRINT, Store, open_store
from callshot.encoders.validation import Float32Array
from callshot.encoders.workers import Workers
from callshot.errors import InputError, OptionError, OutputError
from callshot.files import sha256_text, why_not_writable
from callshot.jobs import Cluster
from callshot.records import (
    Embeddings,
    Progress,
    Reject,
    Segment,
    given_folds,
    no_progress,
)
from callshot.storage import home

Source = Path | str
WriteSequences = Callable[[Sequence[str], Iterator[Float32Array]], object]
"""Called with the names of segments and their sequences."""

EmbedMissing = Callable[[Store, Progress], tuple[list[str | None], list[Reject]]]
"""Adds what is missing to a store; returns the key of each segment, and the rejects."""

AUDIO_OPTIONS = attrgetter(
    "start_s",
    "end_s",
    "collar_s",
    "rate_hz",
    "channel_rule",
    "peak_dbfs",
    "source_rate_hz",
)


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


@dataclass(frozen=True)
class SegmentAudio:
    """Segments, and how to read their audio.

    segments     for example of `read_segments`
    root         folder of the recordings
    load         reads the audio of segments, as `callshot.corpus.audio.load_audio` does
    source       name of the segments in error messages
    name_source  names where the audio of a segment comes from, for the store
    """

    segments: Sequence[Segment]
    root: Path
    load: LoadAudio
    source: Source = "memory"
    name_source: Callable[[Path, Segment], str] = segment_source


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


def embed(
    audio: SegmentAudio,
    encoder: str,
    options: EmbedOptions = DEFAULTS,
    *,
    write_sequences: WriteSequences | None = None,
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[Reject]]:
    """Embed segments with an encoder of the catalogue; vectors in the store are not made again.

    Parameters
    ----------
    audio
        The segments, and how to read their audio.
    encoder
        Name of an encoder, such as "birdnet-v2.4", or of several joined; `encoders()` lists them.
    options
        How the encoder is opened, and where its vectors are kept.
    write_sequences
        Called with the names of the segments and the sequence of each one.
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
    requested_encoder = find_joined_encoder(encoder, options.encoder_options)
    joined_encoder = replace_auto_speed(requested_encoder, audio)
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
            audio,
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


def replace_auto_speed(
    joined_encoder: JoinedEncoder, audio: SegmentAudio
) -> JoinedEncoder:
    """Return an encoder with numbers in place of speed=auto, chosen from some of the segments."""
    if not any(spec.auto_speed for spec in joined_encoder.specs):
        return joined_encoder
    segments = sample_segments(audio.segments)
    return resolve_speeds(
        joined_encoder, measure_spectra(segments, audio.load(segments))
    )


def embed_spec(
    audio: SegmentAudio,
    spec: EncoderSpec,
    options: EmbedOptions = DEFAULTS,
    *,
    write_sequences: WriteSequences | None = None,
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[Reject]]:
    """Embed segments with one encoder at one speed; see `embed`."""
    check_segments(spec, audio.segments, audio.source)
    sequences = write_sequences is not None
    fingerprint, embed_missing = _choose_encoding(audio, spec, options, sequences)
    folder = default_store() if options.store is None else options.store
    with open_store(folder, fingerprint, sequences=sequences) as store:
        all_keys, rejects = embed_missing(store, progress)
        keys = [key for key in all_keys if key is not None]
        if not keys:
            reason = f" (the first: {rejects[0].reason})" if rejects else ""
            raise InputError(
                f"{audio.source}: no segment could be embedded from {audio.root}{reason}"
            )
        pairs = zip(audio.segments, all_keys, strict=True)
        embedded = [segment for segment, key in pairs if key is not None]
        vectors = store.vectors(keys)
        table = make_table(display_name(spec), embedded, vectors, audio.source)
        if write_sequences is not None:
            write_sequences(table.segment, store.sequences(keys))
    return table, rejects


def _choose_encoding(
    audio: SegmentAudio, spec: EncoderSpec, options: EmbedOptions, sequences: bool
) -> tuple[Mapping[str, object], EmbedMissing]:
    """Return the fingerprint of an encoder, and what embeds segments: a model here, or workers."""
    if options.cluster is not None:
        fingerprint = spec_fingerprint(spec, options.device, sequences=sequences)
        work = EmbedWork(audio.load, spec, fingerprint, options.device, sequences)
        sources = _name_sources(audio)
        return fingerprint, partial(
            embed_on_cluster, options.cluster, work, audio.segments, sources
        )
    threads = options.threads or default_threads()
    opened = open_encoder(
        spec, device=options.device, threads=threads, sequences=sequences
    )
    return opened.fingerprint, partial(embed_segments, audio, opened)


def _name_sources(audio: SegmentAudio) -> list[str]:
    return [audio.name_source(audio.root, segment) for segment in audio.segments]


def embed_segments(
    audio: SegmentAudio,
    encoder: Encoder,
    store: Store,
    progress: Progress = no_progress,
) -> tuple[list[str | None], list[Reject]]:
    """Encode the segments that the store does not have, and add them to it.

    Return the key of each segment, None for rejects, and the rejects.
    """
    segments = audio.segments
    sources = _name_sources(audio)
    stored_keys = store.find(sources)
    keys = [stored_keys.get(source) for source in sources]
    workers = Workers(encoder)
    run = EmbeddingRun(
        segments=segments,
        sources=sources,
        keys=keys,
        encoder=encoder,
        store=store,
        workers=workers,
    )
    missing = [n for n, key in enumerate(keys) if key is None]
    if encoder.batches_segments:  # those of one length one after another
        missing.sort(key=lambda n: (segments[n].end_s - segments[n].start_s, n))
    name = encoder.spec.name
    total = max(1, len(segments))
    progress((total - len(missing)) / total, f"{name}: found in the store")
    start_s = time.monotonic()
    audio_s = 0.0
    prepared = prepare_ahead(encoder, [segments[n] for n in missing], audio.load)
    with workers, closing(prepared), run.flush_on_error():
        for count, (n, future) in enumerate(zip(missing, prepared, strict=True), 1):
            run.add(n, future)
            audio_s += segments[n].end_s - segments[n].start_s
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


def check_segments(
    spec: EncoderSpec, segments: Sequence[Segment], source: Source
) -> None:
    """Check the rate of segments, before any audio is read."""
    for segment in segments:
        if not spec.takes_rate(segment.rate_hz):
            raise InputError(
                f"{source}: {spec.name} needs segments at {spec.rate_hz} Hz, but "
                f"{segment.segment} is at {segment.rate_hz}; "
                f"cut the segments again with --rate-hz {spec.rate_hz}"
            )


def make_table(
    encoder: str,
    segments: Sequence[Segment],
    vectors: Float32Array,
    source: Source,
) -> Embeddings:
    """Return vectors as a table, with the names and labels of their segments."""
    return Embeddings(
        encoder=encoder,
        vectors=vectors,
        segment=[segment.segment for segment in segments],
        recording=[segment.recording for segment in segments],
        label=[segment.label for segment in segments],
        labels=[segment.labels for segment in segments],
        fold=given_folds(segments),
        source=str(source),
    )
