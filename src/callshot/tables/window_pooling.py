"""Labelled spans and the windows of recordings in; a vector for each span out, or why it has none.

A span's vector is the vector of the window with the same times; else the mean of the windows whose
centre lies in the span (its start included, its end not); else the vector of the window with the
largest overlap, the first of equals. Windows are not weighted. Spans and windows may name
recordings differently: `match_recordings` decides which names mean the same.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path, PureWindowsPath

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.chunks import Rows
from callshot.corpus.recordings import Library
from callshot.errors import InputError, count_text
from callshot.records import FloatArray, IntArray

Vector = NDArray[np.floating]

SAME_TIME_S = 1e-6
NO_OVERLAP = "no window overlaps it"
NO_RECORDING = "no windows of its recording"


WindowReaders = Mapping[str, Callable[[], Rows]]  # by the name of the recording


def make_windows(start_s: FloatArray, end_s: FloatArray, vectors: Vector) -> Rows:
    """Return the windows of one recording: start_s, end_s and vector."""
    dtype = [
        ("start_s", "<f8"),
        ("end_s", "<f8"),
        ("vector", "<f4", vectors.shape[1:]),
    ]
    rows = np.zeros(len(vectors), dtype)
    rows["start_s"] = start_s
    rows["end_s"] = end_s
    rows["vector"] = vectors
    return rows


def pool_spans(
    spans: pl.DataFrame, readers: WindowReaders, source: Path
) -> tuple[list[Vector | str], str]:
    """Return the vector of each span (path, start_s, end_s), or why it has none; and a note.

    `source` has the windows; those of a recording are read when a span needs them, one recording
    at a time.
    """
    matches = match_recordings(spans["path"].to_list(), readers, source)
    start_s = spans["start_s"].to_list()
    end_s = spans["end_s"].to_list()
    outcomes: list[Vector | str] = []
    rows_of = defaultdict[str, list[int]](list)
    for row, path in enumerate(spans["path"]):
        recording, reason = matches[path]
        outcomes.append(reason)
        if not reason:
            rows_of[recording].append(row)
    total = 0
    used = 0
    for recording, rows in rows_of.items():
        windows = readers[recording]()
        is_used = np.zeros(len(windows), bool)
        for row in rows:
            used_rows = choose_windows(windows, start_s[row], end_s[row])
            is_used[used_rows] = True
            outcomes[row] = NO_OVERLAP
            if used_rows.size > 0:
                mean = windows["vector"][used_rows].mean(axis=0, dtype=np.float64)
                outcomes[row] = mean.astype(np.float32)
        total += is_used.size
        used += int(is_used.sum())
    note = (
        f"labelled: {len(rows_of):,} of {count_text(len(readers), 'recording')}; "
        f"used: {used:,} of their {count_text(total, 'window')}"
    )
    return outcomes, note


def choose_windows(windows: Rows, start_s: float, end_s: float) -> IntArray:
    """Return the rows of the windows that stand for a span; none where no window overlaps it.

    >>> start = np.arange(0.0, 12.0, 3.0)
    >>> windows = make_windows(start, start + 3, np.zeros((4, 2), np.float32))
    >>> for times in ((3, 6), (1, 8), (2.5, 4), (20, 21)):
    ...     print(choose_windows(windows, *times).tolist())
    [1]
    [0, 1, 2]
    [1]
    []
    """
    starts_s = windows["start_s"]
    ends_s = windows["end_s"]
    distance_s = np.abs(starts_s - start_s) + np.abs(ends_s - end_s)
    same = np.flatnonzero(distance_s < SAME_TIME_S)
    if same.size > 0:
        return same
    centre_s = (starts_s + ends_s) / 2
    inside = np.flatnonzero((start_s <= centre_s) & (centre_s < end_s))
    if inside.size > 0:
        return inside
    overlap_s = np.minimum(ends_s, end_s) - np.maximum(starts_s, start_s)
    longest_s = overlap_s.max(initial=0)
    if longest_s > 0:
        return np.flatnonzero(overlap_s == longest_s)[:1]
    return np.flatnonzero([])


def match_recordings(
    names: Sequence[str], recordings: Collection[str], source: Path
) -> dict[str, tuple[str, str]]:
    """Return for each name the recording it means and "", or "" and why there is none.

    A name means a recording as in an annotation file (`Library.find`), if no other name means the
    same.

    >>> names = ["/card/A/x.WAV", "y.wav", "b/y.wav", "z.wav"]
    >>> matches = match_recordings(names, ["a/x", "y"], Path("hoplite"))
    >>> for recording, reason in matches.values():
    ...     print(recording or reason)
    a/x
    y
    several names match its recording 'y'
    no windows of its recording (no recording z.wav under hoplite)
    """
    library = Library(source, tuple(recordings))
    matches = {}
    claimants = defaultdict[str, list[str]](list)
    for name in dict.fromkeys(names):
        try:
            recording = library.find(name)
        except InputError as error:
            matches[name] = ("", f"{NO_RECORDING} ({error})")
            continue
        matches[name] = (recording, "")
        claimants[recording].append(name)
    for recording, rivals in claimants.items():
        depth = len(PureWindowsPath(recording).parts)
        exact = [name for name in rivals if len(PureWindowsPath(name).parts) == depth]
        for name in rivals if len(rivals) > 1 else []:
            if exact != [name]:
                matches[name] = ("", f"several names match its recording {recording!r}")
    return matches
