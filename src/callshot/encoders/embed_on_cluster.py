"""The segments of a table as a job: workers give back their vectors, and the client stores them."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from callshot.encoders.batching import (
    LoadAudio,
    Loaded,
    describe_speed,
    prepare_segment,
)
from callshot.encoders.encode import (
    Encoder,
    check_runs_on,
    encoder_fingerprint,
    open_encoder,
    unroll,
)
from callshot.encoders.spec import EncoderSpec, find_differences
from callshot.encoders.store.store import Store
from callshot.encoders.validation import Float32Array
from callshot.encoders.workers import Workers
from callshot.errors import InputError
from callshot.jobs import Cluster, Job
from callshot.records import Progress, Reject, Segment

MOST_SEGMENTS = 32  # of one recording, in an item


@dataclass(frozen=True)
class EmbedWork:
    """What a worker has to know: how to read audio, and the encoder as the client found it."""

    load: LoadAudio
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
    segments: Sequence[Segment],
    sources: Sequence[str],
    store: Store,
    progress: Progress,
) -> tuple[list[str | None], list[Reject]]:
    """Add the segments that the store does not have; return the key of each, and the rejects."""
    stored_keys = store.find(sources)
    keys = [stored_keys.get(source) for source in sources]
    missing = {n: segments[n] for n, key in enumerate(keys) if key is None}
    name = work.spec.name
    total = max(1, len(segments))
    progress((total - len(missing)) / total, f"{name}: found in the store")
    rejects = []
    start_s = time.monotonic()
    audio_s = 0.0
    for count, (n, result) in enumerate(_run(cluster, work, missing), 1):
        if isinstance(result, InputError):
            rejects.append(Reject(segments[n].path, n + 1, str(result)))
        else:
            keys[n] = result.key
            _store_result(store, sources[n], result)
        audio_s += segments[n].end_s - segments[n].start_s
        speed = describe_speed(count, audio_s, time.monotonic() - start_s)
        progress(1 / total, f"{name}: {speed}")
    store.flush()
    return keys, sorted(rejects, key=lambda reject: reject.row or 0)


def _store_result(store: Store, source: str, result: EmbeddedSegment) -> None:
    """Add what a worker made of a segment to the store."""
    if not store.has(result.key) or not store.keeps_sequences:
        store.add(source, result.key, result.vector, result.sequence)


def _run(
    cluster: Cluster, work: EmbedWork, segments: Mapping[int, Segment]
) -> Iterator[tuple[int, EmbeddedSegment | InputError]]:
    """Yield the number of each segment, with what a worker made of it or the reason."""
    groups = list(_group_by_recording(segments))
    items = [[segments[n] for n in group] for group in groups]
    job = Job(
        kind="embed",
        prepare=open_encoder_on_worker,
        function=embed_on_worker,
        common=work,
        items=items,
        names=[item[0].path for item in items],
        sizes=[
            sum(segment.end_s - segment.start_s for segment in item) for item in items
        ],
        needs_gpu=work.device == "cuda",
    )
    for outcome in cluster.run(job):
        group = groups[outcome.number]
        results = outcome.value or [InputError(outcome.reason)] * len(group)
        for n, result in zip(group, results, strict=True):
            segment = segments[n]
            cluster.add_audio(segment.end_s - segment.start_s)
            yield n, result


def _group_by_recording(segments: Mapping[int, Segment]) -> Iterator[list[int]]:
    """Yield the numbers of segments that are read together."""

    def find_path(n: int) -> str:
        return segments[n].path

    for _, group in groupby(sorted(segments, key=find_path), find_path):
        numbers = list(group)
        for start in range(0, len(numbers), MOST_SEGMENTS):
            yield numbers[start : start + MOST_SEGMENTS]


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
    state: _OpenEncoder, segments: Sequence[Segment]
) -> list[EmbeddedSegment | InputError]:
    """Return what became of each segment of a recording; raise if none could be embedded."""
    loaded: Iterable[Loaded] = state.work.load(segments)
    pairs = zip(segments, loaded, strict=True)
    results = [_embed(state, segment, signal) for segment, signal in pairs]
    errors = [result for result in results if isinstance(result, InputError)]
    if len(errors) == len(results):
        raise errors[0]
    return results


def _embed(
    state: _OpenEncoder, segment: Segment, loaded: Loaded
) -> EmbeddedSegment | InputError:
    try:
        key, item = prepare_segment(state.encoder, segment, loaded)
        output = state.workers.submit(item)()
    except InputError as error:
        return error
    vector = np.array(state.encoder.pool(item, output))
    sequence = np.array(unroll(output)) if state.work.sequences else None
    return EmbeddedSegment(key, vector, sequence)
