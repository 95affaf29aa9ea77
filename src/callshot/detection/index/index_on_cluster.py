"""The recordings of an index as a job: each, or each span of a long one, writes its own files.

Workers measure large recordings first. The spans of a long one are items of their own, so that
several workers embed it; when all are written, this process enters the recording.
"""

import errno
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from callshot.detection.index.add_recording import AddedRecording, IndexTarget
from callshot.detection.index.index_files import is_index, read_settings
from callshot.detection.index.long_recordings import (
    LongRecording,
    Span,
    WrittenSpan,
    enter_recording,
    measure_recording,
    write_files,
)
from callshot.detection.index.windows import WindowEncoder
from callshot.encoders.embed_on_cluster import check_fingerprint_of_client
from callshot.encoders.spec import EncoderSpec
from callshot.errors import InputError
from callshot.jobs import Cluster, Job, Outcome, TryLater

SPAN_S = 1800.0  # of audio in a span, at least
# of its file in a span, at least: 2 MB more than those are read of a file behind a URL
SPAN_BYTES = 48e6


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


@dataclass(frozen=True)
class IndexProgress:
    """A recording, or a span of one, has ended.

    size        its part of the sizes of all recordings
    embedded_s  seconds of audio that were embedded for it
    outcome     of the recording, an AddedRecording or why it was left out; None if other spans of
                it have not ended
    """

    path: str
    size: float
    embedded_s: float
    outcome: Outcome | None


@dataclass
class _SpansOfRecording:
    """The spans of a recording that have ended, and how many there are."""

    recording: LongRecording
    count: int
    ended: dict[int, Outcome] = field(default_factory=dict)  # by the first file

    @property
    def is_damaged(self) -> bool:
        """Whether the audio file is damaged in one of its spans."""
        values = [ended.value for ended in self.ended.values() if not ended.reason]
        return any(value.is_damaged for value in values)

    def end(self, target: IndexTarget, span: Span, outcome: Outcome) -> Outcome | None:
        """Add what became of a span; with the last one, enter the recording.

        A damaged recording is not entered: it is to be embedded in one go.
        """
        self.ended[span.numbers.start] = outcome
        if len(self.ended) < self.count:
            return None
        names: list[str] = []
        if self.is_damaged:
            return None
        for first in sorted(self.ended):
            ended = self.ended[first]
            # The first in time counts, as if the recording were read in one go.
            if ended.reason:
                return Outcome(outcome.number, reason=ended.reason)
            names += ended.value.names
        try:
            added = enter_recording(target, self.recording, names)
        except InputError as error:
            return Outcome(outcome.number, reason=str(error))
        return Outcome(outcome.number, added)


def index_on_cluster(
    cluster: Cluster, work: IndexWork, sizes: Mapping[str, int]
) -> Iterator[IndexProgress]:
    """Embed recordings, of `sizes` in bytes, on a cluster; yield what became of each."""
    absolute = _use_absolute_paths(work)
    long_recordings: dict[str, LongRecording] = {}
    rejected = set()
    for path, outcome in _measure_large(cluster, absolute, sizes):
        if outcome.reason:
            rejected.add(path)
            yield IndexProgress(path, sizes[path], 0.0, outcome)
        elif outcome.value is not None:
            long_recordings[path] = outcome.value
    rest = {path: size for path, size in sizes.items() if path not in rejected}
    yield from _embed(cluster, absolute, rest, long_recordings)


def _use_absolute_paths(work: IndexWork) -> IndexWork:
    """Return work whose folders and files are found from any folder."""
    root = work.target.root.absolute()
    out = work.target.out.absolute()
    target = replace(work.target, root=root, out=out)
    return replace(work, target=target)


def _measure_large(
    cluster: Cluster, work: IndexWork, sizes: Mapping[str, int]
) -> Iterator[tuple[str, Outcome]]:
    """Yield what workers find of recordings whose files are large enough for two spans.

    This process opens none of them: a file that crashes the decoder would end it.
    """
    paths = [path for path, size in sizes.items() if size >= 2 * SPAN_BYTES]
    job = Job(
        kind="measure",
        prepare=open_folder_on_worker,
        function=measure_on_worker,
        common=work,
        items=paths,
        names=paths,
        sizes=[1.0] * len(paths),
    )
    for outcome in cluster.run(job):
        yield paths[outcome.number], outcome


def _embed(
    cluster: Cluster,
    work: IndexWork,
    sizes: Mapping[str, int],
    long_recordings: Mapping[str, LongRecording],
) -> Iterator[IndexProgress]:
    """Embed recordings and spans of long ones; yield what became of them."""
    items: list[str | Span] = []
    names: list[str] = []
    shares: list[float] = []
    unfinished = {}
    for path, size in sizes.items():
        pieces = _split(path, size, long_recordings.get(path))
        if len(pieces) > 1:
            unfinished[path] = _SpansOfRecording(long_recordings[path], len(pieces))
        items += pieces
        names += [path] * len(pieces)
        shares += [size / len(pieces)] * len(pieces)
    job = Job(
        kind="index",
        prepare=open_index_on_worker,
        function=add_on_worker,
        common=work,
        items=items,
        names=names,
        sizes=shares,
        needs_gpu=work.device == "cuda",
    )
    for outcome in cluster.run(job):
        number = outcome.number
        item = items[number]
        embedded_s = 0.0
        ended: Outcome | None = outcome
        if isinstance(item, Span):
            ended = unfinished[item.path].end(work.target, item, outcome)
            if not outcome.reason:
                embedded_s = outcome.value.embedded_s
        elif not outcome.reason:
            embedded_s = outcome.value.duration_s
        yield IndexProgress(names[number], shares[number], embedded_s, ended)
    damaged = [path for path, spans in unfinished.items() if spans.is_damaged]
    if damaged:
        yield from _embed(cluster, work, dict.fromkeys(damaged, 0), {})


def _split(
    path: str, size: int, recording: LongRecording | None
) -> Sequence[str | Span]:
    """Return the spans of a long recording, or the recording itself."""
    if recording is None:
        return [path]
    longest = recording.entry.duration_s // SPAN_S
    count = int(min(longest, size // SPAN_BYTES))
    spans = recording.split(max(1, count))
    return spans if len(spans) > 1 else [path]


def open_folder_on_worker(work: IndexWork, threads: int) -> IndexWork:
    """Check that the recordings are there; nothing has to be opened."""
    if not work.target.root.is_dir():
        raise FileNotFoundError(
            errno.ENOENT,
            "the folder of the recordings is not there; use a shared folder",
            str(work.target.root),
        )
    return work


def open_index_on_worker(work: IndexWork, threads: int) -> _OpenIndex:
    """Open the model in the process of a worker; check that folders and weights are the same."""
    open_folder_on_worker(work, threads)
    target = work.target
    if not is_index(target.out):
        raise FileNotFoundError(
            errno.ENOENT,
            "the index is not there; use a folder that all machines share",
            str(target.out),
        )
    if read_settings(target.out) != target.settings:
        raise InputError(
            f"{target.out}: the worker has a different index at this path; use a folder that all "
            "machines share"
        )
    model = WindowEncoder(work.spec, device=work.device, threads=threads)
    check_fingerprint_of_client(
        target.settings.fingerprint, model.plain_fingerprint, work.spec.name
    )
    return _OpenIndex(target, model)


def measure_on_worker(work: IndexWork, path: str) -> LongRecording | None:
    """Return what is known of a recording before it is embedded; None if it can have no spans."""
    return measure_recording(work.target, work.spec, path)


def add_on_worker(state: _OpenIndex, item: str | Span) -> AddedRecording | WrittenSpan:
    """Add a recording, or write a span of one; TryLater if another process is adding it."""
    if isinstance(item, Span):
        return write_files(state.target, item, state.model)
    added = state.target.add(item, state.model, wait=False)
    if added is None:
        raise TryLater
    return added
