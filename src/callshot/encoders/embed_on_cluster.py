"""The segments of a table as a job: workers give back their vectors, and the client stores them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from callshot.corpus.mixing import load_spans
from callshot.encoders.encode import (
    Encoder,
    check_runs_on,
    encoder_fingerprint,
    open_encoder,
    unroll,
)
from callshot.encoders.spec import EncoderSpec, find_differences
from callshot.encoders.store import Store
from callshot.encoders.validation import Float32Array
from callshot.encoders.workers import Loaded, Workers, describe_speed, prepare_segment
from callshot.errors import InputError
from callshot.jobs import Cluster, Job
from callshot.records import Progress, Reject
from callshot.spans import Spans

MAX_SPANS = 32  # of one recording, in an item


@dataclass(frozen=True)
class EmbedWork:
    """What a worker has to know: the encoder as the client found it."""

    spec: EncoderSpec
    fingerprint: Mapping[str, object]
    device: str
    sequences: bool


@dataclass(frozen=True)
class EmbeddedSegment:
    """The key of a segment's audio, its vector, and its sequence if it was asked for."""

    key: str
    vector: Float32Array
    sequence: Float32Array | None


@dataclass(frozen=True)
class _OpenEncoder:
    work: EmbedWork
    encoder: Encoder
    workers: Workers


def spec_fingerprint(
    spec: EncoderSpec, device: str, *, sequences: bool
) -> dict[str, object]:
    """Return the fingerprint that an open encoder would have, without opening it."""
    check_runs_on(spec, device)
    fingerprint = encoder_fingerprint(spec, device)
    if sequences and spec.windowing is None:
        fingerprint["frames"] = True
    return fingerprint


def embed_on_cluster(
    cluster: Cluster,
    work: EmbedWork,
    spans: Spans,
    sources: Sequence[str],
    store: Store,
    progress: Progress,
) -> tuple[list[str | None], list[Reject]]:
    """Add the segments that the store does not have; return the key of each, and the rejects."""
    stored_keys = store.find(sources)
    keys = [stored_keys.get(source) for source in sources]
    missing = [n for n, key in enumerate(keys) if key is None]
    name = work.spec.name
    total = max(1, len(spans))
    paths = spans.paths
    durations_s = spans.durations_s
    progress((total - len(missing)) / total, f"{name}: found in the store")
    rejects = []
    start_s = time.monotonic()
    audio_s = 0.0
    for count, (n, result) in enumerate(_run(cluster, work, spans, missing), 1):
        if isinstance(result, InputError):
            rejects.append(Reject(paths[n], n + 1, str(result)))
        else:
            keys[n] = result.key
            _store_result(store, sources[n], result)
        audio_s += durations_s[n]
        speed = describe_speed(count, audio_s, time.monotonic() - start_s)
        progress(1 / total, f"{name}: {speed}")
    store.flush()
    return keys, sorted(rejects, key=lambda reject: reject.row or 0)


def _store_result(store: Store, source: str, result: EmbeddedSegment) -> None:
    """Add what a worker made of a segment to the store."""
    if not store.has(result.key) or not store.keeps_sequences:
        store.add(source, result.key, result.vector, result.sequence)


def _run(
    cluster: Cluster, work: EmbedWork, spans: Spans, missing: Sequence[int]
) -> Iterator[tuple[int, EmbeddedSegment | InputError]]:
    """Yield the row of each span, with what a worker made of it or the reason."""
    paths = spans.paths
    durations_s = spans.durations_s
    groups = list(_group_by_recording(missing, paths))
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


def _group_by_recording(
    rows: Sequence[int], paths: Sequence[str]
) -> Iterator[list[int]]:
    """Yield the rows of spans that are read together."""
    for _, group in groupby(sorted(rows, key=paths.__getitem__), paths.__getitem__):
        numbers = list(group)
        for start in range(0, len(numbers), MAX_SPANS):
            yield numbers[start : start + MAX_SPANS]


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


def open_encoder_on_worker(work: EmbedWork, threads: int) -> _OpenEncoder:
    """Open the encoder in the process of a worker; its weights must be those of the client."""
    encoder = open_encoder(
        work.spec, device=work.device, threads=threads, sequences=work.sequences
    )
    check_fingerprint_of_client(work.fingerprint, encoder.fingerprint, work.spec.name)
    return _OpenEncoder(work, encoder, Workers(encoder))


def embed_on_worker(
    state: _OpenEncoder, spans: Spans
) -> list[EmbeddedSegment | InputError]:
    """Return what became of each span of a recording; raise if none could be embedded."""
    pairs = zip(spans["rate_hz"], load_spans(spans, threads=1), strict=True)
    results = [_embed(state, rate_hz, loaded) for rate_hz, loaded in pairs]
    errors = [result for result in results if isinstance(result, InputError)]
    if len(errors) == len(results):
        raise errors[0]
    return results


def _embed(
    state: _OpenEncoder, rate_hz: int, loaded: Loaded
) -> EmbeddedSegment | InputError:
    try:
        key, item = prepare_segment(state.encoder, rate_hz, loaded)
        output = state.workers.submit(item)()
    except InputError as error:
        return error
    vector = np.array(state.encoder.pool(item, output))
    sequence = np.array(unroll(output)) if state.work.sequences else None
    return EmbeddedSegment(key, vector, sequence)
