"""An index and a detector → the windows with a call, recording by recording.

The best class of a window is the one with the highest score. The window is active if that score
reaches the threshold of its class; otherwise it is none of the classes. So is a silent window.
Files of an index are read and scored in several threads; the result does not depend on them.
On a cluster, each recording is an item of work.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from callshot.detection.index.index_files import (
    Index,
    IndexedRecording,
    Rows,
    read_span,
    span_paths,
)
from callshot.detection.index.windows import SILENCE_DBFS, split_range
from callshot.detection.models.detector import Detector
from callshot.encoders.embed import default_threads
from callshot.errors import InputError
from callshot.jobs import Cluster, Job, Outcome
from callshot.pools import Pool
from callshot.records import FloatArray, IntArray

FILES_AHEAD = 4  # for each thread
BLOCK_WINDOWS = 64  # that are scored at once
ARRAYS = (
    "start_s",
    "end_s",
    "label",
    "score",
    "distance",
    "runner_up",
    "runner_up_score",
)

Tasks = Sequence["Future[ActiveWindows]"]
Scored = tuple[IndexedRecording, Tasks]


@dataclass(frozen=True, eq=False)
class ActiveWindows:
    """The active windows of a recording in order of time, an entry of each array for each.

    label            number of the best class, with its `score` and `distance` from the class mean
    runner_up        number of the second-best class, −1 if there is only one
    scanned, silent  how many windows there were in all, and without any sound
    """

    start_s: FloatArray
    end_s: FloatArray
    label: IntArray
    score: FloatArray
    distance: FloatArray
    runner_up: IntArray
    runner_up_score: FloatArray
    scanned: int
    silent: int

    def __len__(self) -> int:
        return len(self.start_s)


def decide(rows: Rows, detector: Detector) -> ActiveWindows:
    """Return which windows are active, and what they are."""
    vectors = np.asarray(rows["vector"])
    scores = _score_in_blocks(vectors, detector)
    is_silent = rows["rms_dbfs"] <= SILENCE_DBFS
    active = _find_calls(scores, detector, is_silent)
    label, score = _take_best(scores[active])
    runner_up, runner_up_score = _find_runner_up(scores[active], label)
    active_rows = rows[["start_s", "end_s"]][active]
    return ActiveWindows(
        start_s=active_rows["start_s"],
        end_s=active_rows["end_s"],
        label=label,
        score=score,
        distance=_measure_distances(vectors[active], label, detector),
        runner_up=runner_up,
        runner_up_score=runner_up_score,
        scanned=len(rows),
        silent=int(is_silent.sum()),
    )


def _find_calls(
    scores: FloatArray, detector: Detector, is_silent: NDArray[np.bool_]
) -> IntArray:
    """Return the windows whose best class reaches its threshold, without silent ones."""
    best, score = _take_best(scores)
    reaches = score >= detector.thresholds[best]
    return np.flatnonzero(reaches & ~is_silent)


def _score_in_blocks(vectors: NDArray[np.floating], detector: Detector) -> FloatArray:
    """Return the scores of windows; a few at a time stay in the processor's cache."""
    parts = []
    for part in split_range(len(vectors), BLOCK_WINDOWS):
        block = vectors[part].astype(np.float64)
        parts.append(detector.score(block))
    return np.concatenate(parts)


def _take_best(scores: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the best class of each window, and its score."""
    best = scores.argmax(axis=1)
    best_scores = scores[np.arange(len(scores)), best]
    return best, best_scores


def _find_runner_up(scores: FloatArray, best: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the second-best class of each window, and its score; −1 and NaN if there is none."""
    count, classes = scores.shape
    if classes < 2:
        return np.full(count, -1), np.full(count, np.nan)
    other_scores = scores.copy()
    other_scores[np.arange(count), best] = -np.inf
    return _take_best(other_scores)


def _measure_distances(
    vectors: NDArray[np.floating], label: IntArray, detector: Detector
) -> FloatArray:
    """Return how far each window is from the mean of its class."""
    if not len(vectors):
        return np.zeros(0)
    distances = detector.distances(vectors)
    return np.asarray(distances[np.arange(len(vectors)), label])


def join_windows(parts: Sequence[ActiveWindows]) -> ActiveWindows:
    """Return the windows of several parts of a recording as one."""
    arrays = {}
    for name in ARRAYS:
        arrays[name] = np.concatenate([getattr(part, name) for part in parts])
    scanned = sum(part.scanned for part in parts)
    silent = sum(part.silent for part in parts)
    return ActiveWindows(**arrays, scanned=scanned, silent=silent)


def find_active_windows(
    index: Index,
    recordings: Sequence[IndexedRecording],
    detector: Detector,
    *,
    threads: int | None = None,
) -> Iterator[tuple[IndexedRecording, ActiveWindows | InputError]]:
    """Yield the active windows of each recording, or why its windows cannot be read."""
    threads = threads or default_threads()
    waiting: deque[Scored] = deque()
    # Files are the parallel work; threads inside each product would only wait for each other.
    with threadpool_limits(1, "blas"), Pool(threads) as pool:
        for recording in recordings:
            paths = span_paths(index.folder, recording)
            tasks = [pool.submit(decide_file, path, index, detector) for path in paths]
            waiting.append((recording, tasks))
            while sum(len(tasks) for _, tasks in waiting) > FILES_AHEAD * threads:
                yield _collect(*waiting.popleft())
        while waiting:
            yield _collect(*waiting.popleft())


def decide_file(path: Path, index: Index, detector: Detector) -> ActiveWindows:
    """Return the active windows in a file of an index."""
    return decide(read_span(path, index.settings), detector)


def _collect(
    recording: IndexedRecording, tasks: Tasks
) -> tuple[IndexedRecording, ActiveWindows | InputError]:
    """Wait for the files of a recording."""
    try:
        return recording, join_windows([task.result() for task in tasks])
    except InputError as error:
        return recording, error


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
