"""The same audio, or the same vector, in several recordings: a leak that folds cannot see.

Contents of segments come in (checksums of audio, or vectors); a number for each group of equal
ones goes out, and recordings that are kept together because of them.
"""

import hashlib
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from callshot.records.embeddings import Embeddings, IntArray

NO_GROUP = -1


def find_duplicates(content: Sequence[Hashable], recording: Sequence[str]) -> IntArray:
    """Return the group of each segment whose content is also in another recording, −1 for others.

    >>> find_duplicates(["x", "y", "x", "y"], ["a.wav", "a.wav", "b.wav", "a.wav"])
    array([ 0, -1,  0, -1])
    """
    places: dict[Hashable, list[int]] = {}
    for row, key in enumerate(content):
        places.setdefault(key, []).append(row)
    groups = np.full(len(content), NO_GROUP, np.int64)
    count = 0
    for rows in places.values():
        if len({recording[row] for row in rows}) > 1:
            groups[rows] = count
            count += 1
    return groups


def find_equal_vectors(table: Embeddings) -> IntArray:
    """Return the group of each segment whose vector is also in another recording, −1 for others."""
    vectors = np.ascontiguousarray(table.vectors + 0.0)  # −0 is 0
    hashes = [hashlib.sha256(vector).digest() for vector in vectors]
    return find_duplicates(hashes, table.recording)


def group_recordings(recording: Sequence[str], groups: Sequence[IntArray]) -> list[str]:
    """Return the recording of each segment, where recordings that share a group become one.

    >>> group_recordings(["a", "b", "c", "d"], [np.array([0, 0, -1, -1])])
    ['a and 1 more', 'a and 1 more', 'c', 'd']
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names, numbers = np.unique(recording, return_inverse=True)
    first: list[int] = []
    second: list[int] = []
    for rows in groups:
        pairs = _pair_with_first(rows, numbers)
        first += pairs[0]
        second += pairs[1]
    shape = (len(names), len(names))
    links = coo_array((np.ones(len(first)), (first, second)), shape)
    _, parts = connected_components(links, directed=False)
    merged = [_name_part(names[parts == part]) for part in range(parts.max() + 1)]
    return [merged[parts[number]] for number in numbers]


def _pair_with_first(
    groups: IntArray, recording: IntArray
) -> tuple[list[int], list[int]]:
    """Return the recording of each grouped segment, and that of the first in its group."""
    numbers, first = np.unique(groups, return_index=True)
    recording_of = dict(zip(numbers.tolist(), recording[first].tolist(), strict=True))
    grouped = groups != NO_GROUP
    firsts = [recording_of[group] for group in groups[grouped].tolist()]
    return recording[grouped].tolist(), firsts


def _name_part(names: Sequence[str]) -> str:
    """Return the name of recordings that are kept together."""
    if len(names) == 1:
        return str(names[0])
    return f"{names[0]} and {len(names) - 1} more"


def describe_duplicates(
    groups: IntArray, segment: Sequence[str], what: str
) -> Iterator[str]:
    """Yield a note on segments with the same content in several recordings, if there are any.

    >>> names = ["a.wav@0-1", "b.wav@0-1", "b.wav@2-3"]
    >>> for note in describe_duplicates(np.array([0, 0, -1]), names, "audio"): print(note)
    2 segments have the same audio as a segment of another recording (the first: a.wav@0-1 and \
b.wav@0-1), so a query may be among its own examples; --group-duplicates of evaluate, or \
group_duplicates = true in a study, keeps such recordings in one fold
    """
    rows = np.flatnonzero(groups != NO_GROUP)
    if rows.size == 0:
        return
    pair = np.flatnonzero(groups == groups[rows[0]])[:2]
    names = " and ".join(segment[row] for row in pair)
    yield (
        f"{rows.size} segments have the same {what} as a segment of another recording "
        f"(the first: {names}), so a query may be among its own examples; --group-duplicates of "
        "evaluate, or group_duplicates = true in a study, keeps such recordings in one fold"
    )


def describe_grouping(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield a note on recordings that were grouped, if there are any.

    >>> list(describe_grouping(["a", "b", "c"], ["a and 1 more", "a and 1 more", "c"]))
    ['2 recordings are kept together as 1, because they share segments with the same vector']
    """
    changed = {old: new for old, new in zip(before, after, strict=True) if old != new}
    if changed:
        yield (
            f"{len(changed)} recordings are kept together as {len(set(changed.values()))}, "
            "because they share segments with the same vector"
        )
