"""Windows that another tool embedded come in; an index without audio goes out.

`learn`, `scan` and `find` work on it by its vectors alone. Only indexes with the same name of an
encoder are compared: nothing else shows which tool made the vectors. Levels are not known.
"""

from pathlib import Path, PureWindowsPath

import numpy as np

from callshot.chunks import Rows
from callshot.corpus.segment_table import write_rejects
from callshot.detection.index.clock import find_clock_time
from callshot.detection.index.index_files import (
    IMPORTED,
    REJECTS,
    Index,
    IndexedRecording,
    IndexSettings,
    list_files,
    open_index,
    recording_folder,
    write_indexed,
    write_span,
)
from callshot.detection.index.index_recordings import (
    SPAN_WINDOWS,
    check_index_folder,
    make_index,
)
from callshot.encoders.windows import Float32Array
from callshot.errors import InputError, OptionError
from callshot.files import make_folder, sha256_text
from callshot.storage import to_path
from callshot.tables.imports import IMPOSSIBLE_TIMES, choose_windows, read_windows

DIGITS = 6  # of the window and the hop: microseconds


def import_index(
    source: Path | str,
    out: Path | str,
    encoder: str,
    *,
    times: Path | str | None = None,
    kind: str = "auto",
    window_s: float | None = None,
    hop_s: float | None = None,
) -> tuple[Index, list[str]]:
    """Make an index of the embeddings of another tool, or add their recordings to one.

    Parameters
    ----------
    source : path
        A `.npy` or `.npz` file with a row for each window, a perch-hoplite database, or embedding
        files of BirdNET-Analyzer.
    out : path
        Folder of the index. A recording that it has already is replaced.
    encoder : str
        Name of the encoder that made the vectors. A model learned from the index scans only
        indexes with this name.
    times : path, optional
        For arrays: a CSV with a row for each vector, with recording, start_s and end_s; by default
        the one beside the array.
    kind : str
        "arrays", "hoplite", "birdnet-analyzer", or "auto".
    window_s, hop_s : float, optional
        For arrays of one recording, instead of `times`: length of a window, and seconds from the
        start of one to the next.

    Returns
    -------
    Index, list of str
        The index, and notes.

    Raises
    ------
    InputError
        If files are damaged, if vectors differ in length, or if the index is another one.
    OptionError
        If the times of windows are not known.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "night.npy", np.eye(5, dtype=np.float32))
    >>> index, _ = import_index(folder / "night.npy", folder / "index", "aves", window_s=0.64)
    >>> index
    Index(5 windows of 1 recording, aves)
    """
    if not encoder.strip():
        raise OptionError("encoder: expected the name of the encoder, got nothing")
    folder = to_path(out)
    check_index_folder(folder)
    readers, notes = read_windows(
        to_path(source),
        None if times is None else to_path(times),
        kind=kind,
        window_s=window_s,
        hop_s=hop_s,
    )
    # Recordings are read twice, one at a time: all of them may be too many for the memory. The
    # first time is to check them, and to measure what all have in common.
    readers_by_path = {}  # by the path in the index
    dimensions = set()
    lengths_s = []  # of the windows of each recording
    steps_s = []
    for name, read in readers.items():
        windows = read()
        path = clean_name(name)
        if len(windows) == 0:
            notes.append(f"{path}: has no windows")
            continue
        if path in readers_by_path:
            raise InputError(f"{source}: two recordings are called {path}")
        _check_times(windows, f"{source}: {path}")
        readers_by_path[path] = read
        dimensions.add(windows["vector"].shape[1])
        lengths_s.append(windows["end_s"] - windows["start_s"])
        steps_s.append(np.diff(np.sort(windows["start_s"])))
    if len(dimensions) != 1:
        raise InputError(
            f"{source}: expected windows with vectors of one length, got "
            f"{sorted(dimensions) or 'none'}"
        )
    dimension = dimensions.pop()
    usual_window_s = find_usual(np.concatenate(lengths_s))
    settings = IndexSettings(
        encoder=encoder.strip(),
        choices={},
        fingerprint={IMPORTED: encoder.strip(), "dimension": dimension},
        dimension=dimension,
        window_s=usual_window_s,
        # 0, where no recording has two windows, becomes the window.
        hop_s=find_usual(np.concatenate(steps_s)) or usual_window_s,
        channel="first",
        dtype="float32",
    )
    make_index(folder, settings)
    write_rejects([], folder / REJECTS)
    for path, read in readers_by_path.items():
        _write_recording(folder, settings, path, read())
    return open_index(folder), notes


def _check_times(windows: Rows, place: str) -> None:
    """Raise InputError unless windows have possible times; `place` says where they come from."""
    for start_s, end_s in zip(windows["start_s"], windows["end_s"], strict=True):
        if not 0 <= start_s < end_s:
            raise InputError(
                f"{place}: a window from {start_s:g} to {end_s:g} s: {IMPOSSIBLE_TIMES}"
            )


def clean_name(name: str) -> str:
    """Return the name of a recording as a path that leads to no other folder.

    >>> clean_name("C:\\\\card\\\\a.wav"), clean_name("/card/../b.wav")
    ('card/a.wav', 'card/b.wav')
    """
    path = PureWindowsPath(name)
    parts = [part for part in path.parts if part not in (path.anchor, "..")]
    return "/".join(parts)


def find_usual(times_s: np.typing.NDArray[np.float64]) -> float:
    """Return the median of times that are not 0, or 0 if there are none."""
    positive_s = times_s[times_s > 0]
    return round(float(np.median(positive_s)), DIGITS) if len(positive_s) > 0 else 0.0


def _write_recording(
    index: Path, settings: IndexSettings, path: str, windows: Rows
) -> None:
    """Write the windows of a recording to an index, in order of time; replace earlier ones."""
    windows = windows[np.lexsort((windows["end_s"], windows["start_s"]))]
    rows = np.zeros(len(windows), settings.row_dtype())
    for name in ("start_s", "end_s", "vector"):
        rows[name] = windows[name]
    rows["rms_dbfs"] = np.nan  # not known
    folder = recording_folder(index, path)
    make_folder(folder)
    for file in list_files(index, path):
        file.unlink()
    stamp = sha256_text(path)[:8]  # there is no audio file to take it from
    spans: list[str] = []  # names of files
    for first in range(0, len(rows), SPAN_WINDOWS):
        rows_of_file = rows[first : first + SPAN_WINDOWS]
        spans.append(write_span(folder, stamp, len(spans), rows_of_file))
    recording = IndexedRecording(
        path=path,
        root="",
        stamp=stamp,
        duration_s=float(rows["end_s"].max()),
        rate_hz=0.0,  # not known
        clock=find_clock_time(Path(path), path),
        windows=len(rows),
        spans=spans,
    )
    write_indexed(index, recording)


def pool_windows(
    windows: Rows, start_s: float, end_s: float
) -> tuple[Float32Array, int]:
    """Return the mean vector of the windows that stand for a span (`choose_windows`), and how many.

    `windows` are those of the recording.
    """
    rows = choose_windows(windows, start_s, end_s)
    if len(rows) == 0:
        raise InputError(f"no window overlaps {start_s:g} to {end_s:g} s")
    mean = windows["vector"][rows].mean(axis=0, dtype=np.float64)
    return mean.astype(np.float32), len(rows)
