"""Labelled spans and the windows of recordings in; a vector for each span out, or why it has none.

A span's vector is that of the window with the same times; else the mean of the windows whose centre
lies in the span (its start included, its end not); else that of the window which overlaps it most,
the first of equals. Windows are not weighted. Spans and windows may name recordings differently:
`match_recordings` decides which names mean the same.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one recording, a row each: times and vectors."""

    start_s: FloatArray
    end_s: FloatArray
    vectors: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Span:
    """A labelled span of a recording."""

    path: str
    start_s: float
    end_s: float
    label: str


WindowReaders = Mapping[str, Callable[[], Windows]]  # by the name of the recording


def pool_spans(
    spans: Sequence[Span], readers: WindowReaders
) -> tuple[list[Vector | str], str]:
    """Return the vector of each span, or why it has none; and a note with counts.

    The windows of a recording are read when a span needs them, one recording at a time.
    """
    matches = match_recordings([span.path for span in spans], readers)
    outcomes: list[Vector | str] = []
    rows_of = defaultdict[str, list[int]](list)
    for row, span in enumerate(spans):
        recording, reason = matches[span.path]
        outcomes.append(reason)
        if not reason:
            rows_of[recording].append(row)
    total = 0
    used = 0
    for recording, rows in rows_of.items():
        windows = readers[recording]()
        is_used = np.zeros(len(windows.start_s), bool)
        for row in rows:
            used_rows = choose_windows(windows, spans[row])
            is_used[used_rows] = True
            outcomes[row] = _mean_vector(windows.vectors[used_rows])
        total += is_used.size
        used += int(is_used.sum())
    note = (
        f"labelled: {len(rows_of):,} of {count_text(len(readers), 'recording')}; "
        f"used: {used:,} of their {count_text(total, 'window')}"
    )
    return outcomes, note


def _mean_vector(vectors: NDArray[np.float32]) -> Vector | str:
    if len(vectors) == 0:
        return NO_OVERLAP
    mean: Vector = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def choose_windows(windows: Windows, span: Span) -> IntArray:
    """Return the rows of the windows that stand for a span; none where no window overlaps it.

    >>> start = np.arange(0.0, 12.0, 3.0)
    >>> windows = Windows(start, start + 3, np.zeros((4, 2), np.float32))
    >>> for times in ((3, 6), (1, 8), (2.5, 4), (20, 21)):
    ...     print(choose_windows(windows, Span("x", *times, "roar")).tolist())
    [1]
    [0, 1, 2]
    [1]
    []
    """
    start_s = windows.start_s
    end_s = windows.end_s
    distance_s = np.abs(start_s - span.start_s) + np.abs(end_s - span.end_s)
    same = np.flatnonzero(distance_s < SAME_TIME_S)
    if same.size > 0:
        return same
    centre_s = (start_s + end_s) / 2
    inside = np.flatnonzero((span.start_s <= centre_s) & (centre_s < span.end_s))
    if inside.size > 0:
        return inside
    overlap_s = np.minimum(end_s, span.end_s) - np.maximum(start_s, span.start_s)
    longest_s = overlap_s.max(initial=0)
    if longest_s > 0:
        return np.flatnonzero(overlap_s == longest_s)[:1]
    return np.flatnonzero([])


def overlapping_labels(spans: Sequence[Span]) -> list[tuple[str, ...]]:
    """Return every label on the same recording that overlaps a span; the span's label comes first.

    >>> a = Span("x", 0, 2, "a")
    >>> b = Span("x", 1, 3, "b")
    >>> c = Span("x", 2, 3, "c")
    >>> overlapping_labels([a, b, c, Span("y", 0, 9, "d")])
    [('a', 'b'), ('b', 'a', 'c'), ('c', 'b'), ('d',)]
    """
    spans_of = defaultdict[str, list[Span]](list)
    for span in sorted(spans, key=attrgetter("start_s")):
        spans_of[span.path].append(span)
    labels: dict[Span, tuple[str, ...]] = {}
    for group in spans_of.values():
        start_s = np.array([span.start_s for span in group])
        end_s = np.array([span.end_s for span in group])
        names = np.array([span.label for span in group], object)
        for span in group:
            overlaps = (start_s < span.end_s) & (end_s > span.start_s)
            labels[span] = tuple(dict.fromkeys([span.label, *names[overlaps]]))
    return [labels[span] for span in spans]


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
    the name of its recording also matches 'y.wav'
    no windows of its recording
    """
    by_file_name = defaultdict[str, list[str]](list)
    for recording in recordings:
        by_file_name[_file_name(recording)].append(recording)
    matches: dict[str, tuple[str, str]] = {}
    names_of = defaultdict[str, list[str]](list)
    for name in dict.fromkeys(names):
        match = _match_recording(name, by_file_name[_file_name(name)])
        matches[name] = match
        names_of[match[0]].append(name)
    names_of.pop("", None)
    for recording, claimants in names_of.items():
        matches |= _reject_ambiguous(recording, claimants)
    return matches


def _reject_ambiguous(recording: str, names: list[str]) -> dict[str, tuple[str, str]]:
    """Return why names do not mean a recording that several match; an exact name does."""
    rejects = {}
    exact = [name for name in names if _stem(name) == _stem(recording)]
    for name in names:
        matches = [other for other in exact + names if other != name]
        if matches and exact != [name]:
            reason = f"the name of its recording also matches {matches[0]!r}"
            rejects[name] = ("", reason)
    return rejects


def _match_recording(name: str, namesakes: Sequence[str]) -> tuple[str, str]:
    """Return which recording with the same file name is meant, or why none."""
    if name in namesakes:
        return name, ""
    stem = _stem(name)
    candidates = [other for other in namesakes if _is_path_end(stem, _stem(other))]
    if candidates:
        longest = max(len(_stem(other)) for other in candidates)
        candidates = [other for other in candidates if len(_stem(other)) == longest]
    else:
        candidates = [other for other in namesakes if _is_path_end(_stem(other), stem)]
    path = _normalise(name)
    same_suffix = [other for other in candidates if path.endswith(_normalise(other))]
    candidates = same_suffix or candidates
    if not candidates:
        return "", NO_RECORDING
    if len(candidates) > 1:
        return "", f"its recording may be {candidates[0]!r} or {candidates[1]!r}"
    return candidates[0], ""


def _is_path_end(path: str, end: str) -> bool:
    return f"/{path}".endswith(f"/{end}")


def _file_name(name: str) -> str:
    return _stem(name).rpartition("/")[2]


def _normalise(name: str) -> str:
    path = unicodedata.normalize("NFC", name.strip().replace("\\", "/"))
    return path.casefold().removeprefix("./")


def _stem(name: str) -> str:
    """Return a normalised name without the suffix of an audio file."""
    return AUDIO_SUFFIX.sub("", _normalise(name))
