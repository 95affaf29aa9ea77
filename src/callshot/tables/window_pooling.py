"""Labelled spans and the windows of recordings come in; a vector for each span goes out, or why there is none.

A span's vector is that of the window with the same times; else the plain mean of the windows whose centre lies in the
span (its start included, its end not); else that of the window which overlaps it most, the first of equals. Windows are
not weighted. Both sides name recordings in their own way; `find_sources` says which means which.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callshot.records import FloatArray, IntArray

Vector = NDArray[np.floating]
SAME_S = 1e-6
SUFFIXES = frozenset(
    {
        "wav",
        "wave",
        "bwf",
        "rf64",
        "w64",
        "flac",
        "ogg",
        "oga",
        "opus",
        "mp3",
        "mp2",
        "m4a",
        "mp4",
        "aac",
        "wma",
    }
    | {"aif", "aiff", "aifc", "au", "snd", "caf", "sph", "nist", "voc"}
)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one recording, a row each: times, vectors, and what their owner calls them, where it does."""

    start_s: FloatArray
    end_s: FloatArray
    vectors: NDArray[np.float32]
    ids: IntArray | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A labelled span of a recording; `window` is the id of the very window that was labelled, where that is known."""

    path: str
    start_s: float
    end_s: float
    label: str
    window: int | None = None


Sources = Mapping[str, Callable[[], Windows]]


def pool_spans(spans: Sequence[Span], sources: Sources) -> tuple[list[Vector | str], str]:
    """Return the vector of each span, or why it has none, and a note that counts recordings and windows.

    The windows of a recording are read when a span needs them, one recording at a time.
    """
    found = find_sources([span.path for span in spans], sources)
    results: list[Vector | str] = [found[span.path][1] for span in spans]
    rows = defaultdict[str, list[int]](list)
    for n, span in enumerate(spans):
        if not results[n]:
            rows[found[span.path][0]].append(n)
    used = seen = 0
    for source, members in rows.items():
        windows = sources[source]()
        chosen = [choose_windows(windows, spans[n]) for n in members]
        used, seen = (
            used + len({row for which in chosen for row in which.tolist()}),
            seen + len(windows.start_s),
        )
        for n, which in zip(members, chosen, strict=True):
            results[n] = _mean(windows, which) if which.size > 0 else "no window overlaps it"
    return (
        results,
        f"{len(rows)} of {len(sources)} recordings are labelled; {used} of their {seen} windows are used",
    )


def choose_windows(windows: Windows, span: Span) -> IntArray:
    """Return the rows of the windows that stand for a span; none where no window overlaps it.

    >>> start = np.arange(0.0, 12.0, 3.0)
    >>> windows = Windows(start, start + 3, np.zeros((4, 2), np.float32))
    >>> [choose_windows(windows, Span("x", *times, "roar")).tolist() for times in ((3, 6), (1, 8), (2.5, 4), (20, 21))]
    [[1], [0, 1, 2], [1], []]
    """
    if span.window is not None and windows.ids is not None:
        return np.flatnonzero(windows.ids == span.window)
    apart_s = np.abs(windows.start_s - span.start_s) + np.abs(windows.end_s - span.end_s)
    centre_s = (windows.start_s + windows.end_s) / 2
    for these in (apart_s < SAME_S, (span.start_s <= centre_s) & (centre_s < span.end_s)):
        if these.any():
            return np.flatnonzero(these)
    overlap_s = np.minimum(windows.end_s, span.end_s) - np.maximum(windows.start_s, span.start_s)
    overlapping = np.flatnonzero(overlap_s > 0)
    return overlapping[np.argsort(-overlap_s[overlapping], kind="stable")[:1]]


def _mean(windows: Windows, rows: IntArray) -> Vector:
    mean: Vector = windows.vectors[rows].mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def overlapping_labels(spans: Sequence[Span]) -> list[tuple[str, ...]]:
    """Return every label on the recording of a span that overlaps it by more than 0 s; its own comes first.

    >>> overlapping_labels([Span("x", 0, 2, "a"), Span("x", 1, 3, "b"), Span("x", 2, 3, "c"), Span("y", 0, 9, "d")])
    [('a', 'b'), ('b', 'a', 'c'), ('c', 'b'), ('d',)]
    """
    members, labels = defaultdict[str, list[int]](list), [tuple[str, ...]()] * len(spans)
    for n in sorted(range(len(spans)), key=lambda n: spans[n].start_s):
        members[spans[n].path].append(n)
    for rows in members.values():
        start_s, end_s = (
            np.array([getattr(spans[n], name) for n in rows]) for name in ("start_s", "end_s")
        )
        first = np.searchsorted(np.maximum.accumulate(end_s), start_s, side="right")
        last = np.searchsorted(start_s, end_s, side="left")
        for at, n in enumerate(rows):
            near = [
                spans[rows[i]].label for i in range(first[at], last[at]) if end_s[i] > start_s[at]
            ]
            labels[n] = tuple(dict.fromkeys([spans[n].label, *near]))
    return labels


def find_sources(names: Sequence[str], sources: Sources) -> dict[str, tuple[str, str]]:
    """Return which source each name means, or why none: one's path ends in the other's, and no two names mean one.

    Case, the suffix of audio files and the encoding of accents do not matter; folders do, where both sides have them.

    >>> found = find_sources(["/card/A/x.WAV", "y.wav", "b/y.wav", "z.wav"], dict.fromkeys(["a/x", "y"], list))
    >>> [source or reason for source, reason in found.values()]
    ['a/x', 'y', "its recording goes by a name that stands for 'y.wav' too", 'no windows of its recording']
    """
    ends = defaultdict[str, list[str]](list)
    for source in sources:
        for end in _ends(_bare(_plain(source))):
            ends[end].append(source)
    meant = {name: _meant(name, sources, ends) for name in dict.fromkeys(names)}
    baselines = defaultdict[str, list[str]](list)
    for name, (source, _) in meant.items():
        baselines[source].append(name)
    for source, claimants in baselines.items():
        owners = [name for name in claimants if _bare(_plain(name)) == _bare(_plain(source))]
        for name in claimants if source and len(claimants) > 1 else ():
            if owners != [name]:
                baseline = next(other for other in owners + claimants if other != name)
                meant[name] = ("", f"its recording goes by a name that stands for {baseline!r} too")
    return meant


def _meant(name: str, sources: Sources, ends: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return the one source that a name means, or why there is none."""
    if name in sources:
        return name, ""
    tails = list(_ends(_bare(_plain(name))))
    whole = (
        [source for source in ends.get(tail, ()) if _bare(_plain(source)) == tail] for tail in tails
    )
    found = next(filter(None, whole), None) or ends.get(tails[0], ())
    found = [source for source in found if _plain(name).endswith(_plain(source))] or found
    if len(found) == 1:
        return found[0], ""
    return (
        "",
        f"its recording may be {found[0]!r} or {found[1]!r}"
        if found
        else "no windows of its recording",
    )


def _ends(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[n:]) for n in range(len(parts)))


def _plain(name: str) -> str:
    return (
        unicodedata.normalize("NFC", name.strip().replace("\\", "/")).casefold().removeprefix("./")
    )


def _bare(name: str) -> str:
    """Return a name without the suffix of an audio file."""
    stem, _, suffix = name.rpartition(".")
    return stem if stem and suffix in SUFFIXES else name
