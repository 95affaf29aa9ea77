"""Labelled spans and the windows of recordings in; a vector for each span out, or why it has none.

A span's vector is the vector of the window with the same times; else the mean of the windows whose
centre lies in the span (its start included, its end not); else the vector of the window with the
largest overlap, the first of equals. Windows are not weighted. Spans and windows may name
recordings differently: `match_recordings` decides which names mean the same.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.chunks import Rows
from callshot.errors import count_text
from callshot.records import FloatArray, IntArray

Vector = NDArray[np.floating]

SAME_TIME_S = 1e-6
NO_OVERLAP = "no window overlaps it"
NO_RECORDING = "no windows of its recording"
AUDIO_SUFFIX = re.compile(
    r"(?<!^)\.(wav|wave|bwf|rf64|w64|flac|ogg|oga|opus|mp3|mp2|m4a"
    r"|mp4|aac|wma|aif|aiff|aifc|au|snd|caf|sph|nist|voc)\Z"
)


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
    spans: pl.DataFrame, readers: WindowReaders
) -> tuple[list[Vector | str], str]:
    """Return the vector of each span (path, start_s, end_s), or why it has none; and a note.

    The windows of a recording are read when a span needs them, one recording at a time.
    """
    matches = match_recordings(spans["path"].to_list(), readers)
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


def labels_of_spans(spans: pl.DataFrame) -> list[list[str]]:
    """Return every label on the same recording that overlaps a span; the span's label comes first.

    Spans without a label have none, and count for no other.

    >>> frame = pl.DataFrame({"path": list("xxxy"), "start_s": [0, 1, 2, 0],
    ...                       "end_s": [2, 3, 3, 9], "label": list("abcd")})
    >>> labels_of_spans(frame)
    [['a', 'b'], ['b', 'a', 'c'], ['c', 'b'], ['d']]
    """
    labels: list[list[str]] = [[] for _ in range(spans.height)]
    columns = spans.select("path", "start_s", "end_s", "label").with_row_index("row")
    labelled = columns.filter(pl.col("label").str.strip_chars() != "")
    for group in labelled.partition_by("path"):
        ordered = group.sort("start_s", maintain_order=True)
        names = ordered["label"].to_numpy()
        starts_s = ordered["start_s"].to_numpy()
        ends_s = ordered["end_s"].to_numpy()
        for row, _, start_s, end_s, label in group.iter_rows():
            overlaps = (starts_s < end_s) & (ends_s > start_s)
            labels[row] = list(dict.fromkeys([label, *names[overlaps]]))
    return labels


def match_recordings(
    names: Sequence[str], recordings: Collection[str]
) -> dict[str, tuple[str, str]]:
    """Return for each name the recording it means and "", or "" and why there is none.

    A name means a recording if the path of one ends in the path of the other, and no other name
    means the same. Case, suffixes of audio files and the encoding of accents do not matter; folders
    do, where both have them.

    >>> matches = match_recordings(["/card/A/x.WAV", "y.wav", "b/y.wav", "z.wav"], ["a/x", "y"])
    >>> for recording, reason in matches.values():
    ...     print(recording or reason)
    a/x
    y
    several names match its recording 'y'
    no windows of its recording
    """
    stems = {}
    for name in {*names, *recordings}:
        stems[name] = AUDIO_SUFFIX.sub("", _normalise(name))
    namesakes = defaultdict[str, list[str]](list)
    for recording in recordings:
        namesakes[_file_name(stems[recording])].append(recording)
    matches = {}
    claimants = defaultdict[str, list[str]](list)
    for name in dict.fromkeys(names):
        ranks = {}
        for one in namesakes[_file_name(stems[name])]:
            is_end = _is_path_end(stems[name], stems[one])
            if is_end or _is_path_end(stems[one], stems[name]):
                length = len(stems[one]) if is_end else 0
                has_suffix = _normalise(name).endswith(_normalise(one))
                ranks[one] = (one == name, length, has_suffix)
        best = max(ranks.values(), default=())
        candidates = [one for one, rank in ranks.items() if rank == best]
        if len(candidates) == 1:
            matches[name] = (candidates[0], "")
            claimants[candidates[0]].append(name)
        elif candidates:
            first, second = candidates[:2]
            matches[name] = ("", f"its recording may be {first!r} or {second!r}")
        else:
            matches[name] = ("", NO_RECORDING)
    for recording, rivals in claimants.items():
        exact = [name for name in rivals if stems[name] == stems[recording]]
        for name in rivals if len(rivals) > 1 else []:
            if exact != [name]:
                matches[name] = ("", f"several names match its recording {recording!r}")
    return matches


def _is_path_end(path: str, end: str) -> bool:
    return f"/{path}".endswith(f"/{end}")


def _file_name(stem: str) -> str:
    return stem.rpartition("/")[2]


def _normalise(name: str) -> str:
    path = unicodedata.normalize("NFC", name.strip().replace("\\", "/"))
    return path.casefold().removeprefix("./")
