"""The recordings of a scan as a job: each item gives back the active windows of a recording."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from callshot.detection.index.index_files import Index, IndexedRecording, span_paths
from callshot.detection.models.detector import Detector
from callshot.detection.scans.active_windows import (
    ActiveWindows,
    decide_file,
    join_windows,
)
from callshot.errors import InputError
from callshot.jobs import Cluster, Job, Outcome


@dataclass(frozen=True)
class ScanWork:
    """What a worker has to know: an index, without its recordings, and the detector."""

    index: Index
    detector: Detector


def find_on_cluster(
    cluster: Cluster,
    index: Index,
    recordings: Sequence[IndexedRecording],
    detector: Detector,
) -> Iterator[tuple[IndexedRecording, ActiveWindows | InputError]]:
    """Yield the active windows of each recording in order, as `find_active_windows` does."""
    absolute = replace(index, folder=index.folder.absolute(), recordings=(), rejects=())
    job = Job(
        kind="scan",
        prepare=open_scan_on_worker,
        function=decide_recording,
        common=ScanWork(absolute, detector),
        items=recordings,
        names=[recording.path for recording in recordings],
        sizes=[float(recording.windows) for recording in recordings],
    )
    ended: dict[int, Outcome] = {}
    following = 0
    for outcome in cluster.run(job):
        ended[outcome.number] = outcome
        while following in ended:
            recording = recordings[following]
            yield recording, _get_windows(ended.pop(following), index.folder)
            following += 1


def _get_windows(outcome: Outcome, folder: Path) -> ActiveWindows | InputError:
    if outcome.reason:
        absolute = str(folder.absolute())
        return InputError(outcome.reason.replace(absolute, str(folder)))
    windows: ActiveWindows = outcome.value
    return windows


def open_scan_on_worker(work: ScanWork, threads: int) -> ScanWork:
    """Return what the items need; nothing has to be opened."""
    return work


def decide_recording(work: ScanWork, recording: IndexedRecording) -> ActiveWindows:
    """Return the active windows of a recording."""
    paths = span_paths(work.index.folder, recording)
    parts = [decide_file(path, work.index, work.detector) for path in paths]
    return join_windows(parts)
