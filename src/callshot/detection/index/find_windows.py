"""A sound and an index come in; the windows that are most similar to it go out, ranked."""

import math
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.recordings import Library
from callshot.detection.index.clock import shift_clock
from callshot.detection.index.import_index import pool_windows
from callshot.detection.index.index_files import (
    INDEX_FOLDER,
    Index,
    IndexedRecording,
    IndexSettings,
    is_index,
    open_index,
)
from callshot.detection.index.windows import (
    SILENCE_DBFS,
    RecordingAtSpeed,
    embed_windows,
    find_spec,
    make_grid,
)
from callshot.encoders.spec import find_differences
from callshot.encoders.windows import Float32Array
from callshot.encoders.workers import open_workers
from callshot.errors import InputError, check_choice, check_whole_number
from callshot.files import atomic_path, check_new_file, has_header, make_folder
from callshot.records import FloatArray, IntArray, Progress, Reject, no_progress
from callshot.records.table_files import write_csv_frame
from callshot.storage import to_path

TINY = np.finfo(np.float64).tiny
DISTANCES = ("euclidean", "cosine")
EXAMPLE = re.compile(r"(?P<path>.+)@(?P<start>\d+\.?\d*)-(?P<end>\d+\.?\d*)")
COLUMNS = {
    "rank": pl.Int64,
    "recording": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "clock": pl.String,
    "rms_dbfs": pl.Float32,
    "distance": pl.Float64,
}


@dataclass(frozen=True)
class FoundWindows:
    """The windows that are most similar to a sound, nearest first, and damaged recordings."""

    windows: pl.DataFrame
    rejects: list[Reject]


def parse_example(text: str) -> tuple[Path, float, float]:
    """Return path, start_s and end_s of the example that a user names: FILE or FILE@START-END.

    >>> parse_example("site/a.wav@12.5-14")
    (PosixPath('site/a.wav'), 12.5, 14.0)
    """
    match = EXAMPLE.fullmatch(text)
    if match is None or Path(text).exists():
        return to_path(text), 0.0, math.inf
    return to_path(match["path"]), float(match["start"]), float(match["end"])


def find_windows(
    example: str | Path,
    index: Index | Path | str,
    *,
    count: int = 20,
    per_recording: int | None = None,
    distance: str = "euclidean",
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress = no_progress,
) -> FoundWindows:
    """Find the windows of an index that are most similar to one sound.

    The sound is embedded as windows of the index are: with what is around it, if it is shorter
    than a window; as the mean of its windows, if it is longer. Of windows that overlap, the
    nearest one counts.

    Parameters
    ----------
    example : str or path
        A recording, or a span of one as "FILE@START-END" in seconds. In an index of another tool
        it is one of its recordings.
    index : Index or path
        Made by `index_recordings`; or a folder of a scan or of labels, with an index inside.
    count, per_recording : int
        Windows to return, at most, and of one recording; no limit for one by default.
    distance : str
        "euclidean", or "cosine", which ignores the length of vectors.
    device, threads, progress
        As for `index_recordings`.

    Returns
    -------
    FoundWindows
        `.windows`, the nearest first, and `.rejects`, recordings whose files are damaged.

    Raises
    ------
    InputError
        If the example or all recordings cannot be read, or if the index has another encoder.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> from callshot import index_recordings
    >>> folder = Path(tempfile.mkdtemp())
    >>> noise = np.random.default_rng(0).normal(0, 0.1, 64000)
    >>> soundfile.write(folder / "a.wav", noise, 16000)
    >>> result = index_recordings(folder, folder / "index", "mfcc", window_s=1)
    >>> found = find_windows(f"{folder}/a.wav@2-3", result.index).windows
    >>> found["start_s"][0], found["distance"][0] < 0.2
    (2.0, True)
    """
    check_whole_number("count", count)
    if per_recording is None:
        per_recording = count
    check_whole_number("per_recording", per_recording)
    check_choice("distance", distance, DISTANCES)
    if isinstance(index, Index):
        opened = index
    else:
        folder = to_path(index)
        inside = folder / INDEX_FOLDER  # of a folder of a scan or of labels
        is_inside = not is_index(folder) and is_index(inside)
        opened = open_index(inside if is_inside else folder)
    vector = embed_example(str(example), opened, device=device, threads=threads)
    nearest = []  # windows of each recording
    rejects = list(opened.rejects)
    for recording in opened.recordings:
        try:
            nearest.append(_search(opened, recording, vector, distance, per_recording))
        except InputError as error:
            rejects.append(Reject(recording.path, row=None, reason=str(error)))
        progress(1 / len(opened.recordings), "comparing windows")
    if rejects and not nearest:
        raise InputError(rejects[0].reason)
    windows = pl.concat([pl.DataFrame(schema=COLUMNS), *nearest])
    ranked = windows.sort("distance", "recording", "start_s").head(count)
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
    return FoundWindows(ranked.with_columns(rank=rank), rejects)


def check_window_list(path: Path) -> None:
    """Check, before any work, that a list can be written and replaces no file of others."""
    check_new_file(path, "list of windows", partial(has_header, columns=COLUMNS))


def write_window_list(windows: pl.DataFrame, path: Path) -> None:
    """Write windows as CSV."""
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary:
        write_csv_frame(windows, temporary)


def embed_example(
    example: str, index: Index, *, device: str = "cpu", threads: int | None = None
) -> Float32Array:
    """Return the vector of a sound, embedded as the windows of an index are.

    In an index of another tool, it is the mean of the windows of a span of its recordings.
    """
    path, start_s, end_s = parse_example(example)
    settings = index.settings
    if settings.is_imported:
        by_path = {recording.path: recording for recording in index.recordings}
        name = Library(index.folder, tuple(by_path)).find(str(path))
        vector, _ = pool_windows(index.read_rows(by_path[name]), start_s, end_s)
        return vector
    return embed_span(
        path, start_s, end_s, index.folder, settings, device=device, threads=threads
    )


def embed_span(
    path: Path,
    start_s: float,
    end_s: float,
    folder: Path,
    settings: IndexSettings,
    *,
    device: str = "cpu",
    threads: int | None = None,
) -> Float32Array:
    """Return the vector of a span of a recording, embedded as the windows of an index are.

    It is the vector of one window around a short span, or the mean of windows inside a long one.
    `folder` and `settings` are those of the index.
    """
    spec = find_spec(settings.encoder, settings.choices)
    window_s = None if spec.windowing is not None else settings.window_s
    grid = make_grid(spec, window_s, settings.hop_s)
    with (
        open_workers(spec, device=device, threads=threads) as workers,
        RecordingAtSpeed(path, str(path), spec, settings.channel) as audio,
    ):
        differing = find_differences(settings.fingerprint, workers.encoder.fingerprint)
        if differing:
            raise InputError(
                f"{folder}: was made with another {' and '.join(differing)} of {settings.name} "
                "than the one installed here; index the recordings again, in another folder"
            )
        duration_s = audio.recording.duration_s
        if not start_s < min(end_s, duration_s):
            raise InputError(
                f"{path}: expected a span inside its {duration_s:.3f} s, "
                f"got {start_s:g} s to {end_s:g} s"
            )
        first = grid.to_samples(start_s)
        end = min(grid.to_samples(min(end_s, duration_s)), audio.samples)
        if end - first > grid.window:
            starts = first + grid.find_starts(end - first)
        else:  # one window with the span in its middle, inside the recording
            last_start = max(0, audio.samples - grid.window)
            centred = (first + end - grid.window) // 2
            starts = np.array([min(max(0, centred), last_start)])
        total = np.zeros(spec.dimension)
        loudest = SILENCE_DBFS
        for _, levels, vectors in embed_windows(audio, starts, grid, workers):
            total += vectors.sum(axis=0, dtype=np.float64)
            loudest = max(loudest, levels.max())
    if loudest <= SILENCE_DBFS:
        raise InputError(f"{path}: the example is silent; give a span with a sound")
    return (total / len(starts)).astype(np.float32)


def _search(
    index: Index,
    recording: IndexedRecording,
    vector: Float32Array,
    distance: str,
    max_count: int,
) -> pl.DataFrame:
    """Return the nearest windows of a recording, as COLUMNS; none overlap.

    Their rank is 0: it is known only when all recordings have been searched.
    """
    blocks = list(index.read_recording(recording))
    distances = np.concatenate(
        [measure_distances(block.matrix, vector, distance) for block in blocks]
    )
    windows = pl.concat([block.spans.frame for block in blocks])
    start_s = windows["start_s"].to_numpy()
    end_s = windows["end_s"].to_numpy()
    rows = choose_apart(distances, start_s, end_s, max_count)
    nearest = windows[rows]
    clocks = [shift_clock(recording.clock, start_s) for start_s in nearest["start_s"]]
    nearest = nearest.with_columns(
        rank=pl.lit(0, pl.Int64),
        clock=pl.Series(clocks, dtype=pl.String),
        distance=distances[rows],
    )
    return nearest.select(*COLUMNS)


def measure_distances(
    vectors: Float32Array, vector: Float32Array, distance: str
) -> FloatArray:
    """Return the distance of each row of `vectors` from a vector, in float64.

    >>> rows = np.array([[3, 4], [0, 2]], np.float32)
    >>> measure_distances(rows, np.array([0, 1], np.float32), "euclidean").round(3).tolist()
    [4.243, 1.0]
    >>> measure_distances(rows, np.array([0, 1], np.float32), "cosine").round(3).tolist()
    [0.2, 0.0]
    """
    rows = vectors.astype(np.float64)
    centre = vector.astype(np.float64)
    if distance == "euclidean":
        rows -= centre
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    if distance == "euclidean":
        return np.asarray(lengths)
    lengths *= np.linalg.norm(centre)
    products = np.einsum("nd,d->n", rows, centre)
    return np.asarray(1 - products / np.maximum(lengths, TINY))


def choose_apart(
    distances: FloatArray, start_s: FloatArray, end_s: FloatArray, max_count: int
) -> IntArray:
    """Return rows of the nearest windows, nearest first; none overlaps a nearer one.

    The first three arguments have a value for each window; the result has at most `max_count`.
    """
    chosen: list[int] = []
    is_free = np.ones(len(distances), bool)
    for row in np.argsort(distances, kind="stable").tolist():
        if len(chosen) == max_count:
            break
        if is_free[row]:
            chosen.append(row)
            overlaps = (start_s < end_s[row]) & (end_s > start_s[row])
            is_free &= ~overlaps
    return np.array(chosen, np.int64)
