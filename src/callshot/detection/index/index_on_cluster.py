"""The recordings of an index as a job: each is an item, and writes its own files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from callshot.detection.index.add_recording import AddedRecording, IndexTarget
from callshot.detection.index.index_files import read_settings
from callshot.detection.index.windows import WindowEncoder
from callshot.encoders.embed_on_cluster import check_fingerprint_of_client
from callshot.encoders.spec import EncoderSpec
from callshot.errors import InputError
from callshot.jobs import Cluster, Job, Outcome, TryLater


@dataclass(frozen=True)
class IndexWork:
    """What a worker has to know: the target, and the encoder as the client found it."""

    target: IndexTarget
    spec: EncoderSpec
    device: str


@dataclass(frozen=True)
class _OpenIndex:
    """An index on a worker, with the open model."""

    target: IndexTarget
    model: WindowEncoder


def index_on_cluster(
    cluster: Cluster, work: IndexWork, paths: Sequence[str], sizes: Mapping[str, int]
) -> Iterator[Outcome]:
    """Yield what became of each recording: an AddedRecording, or why it was left out."""
    absolute = replace(
        work,
        target=replace(
            work.target,
            root=work.target.root.absolute(),
            out=work.target.out.absolute(),
        ),
    )
    job = Job(
        "index",
        open_index_on_worker,
        add_on_worker,
        absolute,
        paths,
        paths,
        [sizes[path] for path in paths],
        work.device == "cuda",
    )
    return cluster.run(job)


def open_index_on_worker(work: IndexWork, threads: int) -> _OpenIndex:
    """Open the model in the process of a worker; check that folders and weights are the same."""
    target = work.target
    if not target.root.is_dir():
        raise InputError(
            f"{target.root}: the folder of the recordings is not there; use a shared folder"
        )
    if read_settings(target.out) != target.settings:
        raise InputError(f"{target.out}: is another index there; use a shared folder")
    model = WindowEncoder(work.spec, device=work.device, threads=threads)
    check_fingerprint_of_client(
        target.settings.fingerprint, model.plain_fingerprint, work.spec.name
    )
    return _OpenIndex(target, model)


def add_on_worker(state: _OpenIndex, path: str) -> AddedRecording:
    """Add a recording; TryLater if another process is adding it."""
    added = state.target.add(path, state.model, wait=False)
    if added is None:
        raise TryLater
    return added
