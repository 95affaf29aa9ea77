"""The same audio, or the same vector, in several recordings: a leak that folds cannot see.

Contents of segments come in (checksums of audio, or vectors); a number for each group of equal
ones goes out, and recordings that are kept together because of them.
"""

import hashlib
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from callshot.spans import IntArray
from callshot.vectors import Vectors

NO_GROUP = -1


def find_duplicates(content: Sequence[Hashable], recording: Sequence[str]) -> IntArray:
    """Return the group of each segment whose content is also in another recording, else −1."""
    rows_by_content: dict[Hashable, list[int]] = {}
    for row, key in enumerate(content):
        rows_by_content.setdefault(key, []).append(row)
    groups = np.full(len(content), NO_GROUP, np.int64)
    count = 0
    for rows in rows_by_content.values():
        if len({recording[row] for row in rows}) > 1:
            groups[rows] = count
            count += 1
    return groups


def find_equal_vectors(table: Vectors) -> IntArray:
    """Return the group of each segment with an equal vector in another recording, else −1."""
    vectors = np.ascontiguousarray(table.matrix + 0.0)  # −0 is 0
    hashes = [hashlib.sha256(vector).digest() for vector in vectors]
    return find_duplicates(hashes, table.recording)


def group_recordings(recording: Sequence[str], groups: Sequence[IntArray]) -> list[str]:
    """Return the recording of each segment; those connected by a chain of groups become one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names, numbers = np.unique(recording, return_inverse=True)
    # A graph whose nodes are the recordings and, numbered after them, the groups of each grouping;
    # an edge joins a recording with a group that it has a segment in.
    recording_nodes = []
    group_nodes = []
    count = len(names)  # of nodes
    for grouping in groups:
        is_grouped = grouping != NO_GROUP
        recording_nodes += numbers[is_grouped].tolist()
        group_nodes += (count + grouping[is_grouped]).tolist()
        count += len(grouping)  # no group has a larger number
    weights = np.ones(len(group_nodes))
    graph = coo_array((weights, (recording_nodes, group_nodes)), (count, count))
    _, components = connected_components(graph, directed=False)
    component_of = components[: len(names)]  # of each recording
    merged = {}  # name of the joined recording, by component
    for component in np.unique(component_of):
        is_inside = component_of == component
        name, *others = names[is_inside].tolist()
        if others:
            name += f" and {len(others)} more"
        merged[component] = name
    return [merged[component_of[number]] for number in numbers]


def describe_duplicates(
    groups: IntArray, segments: Sequence[str], content: str
) -> Iterator[str]:
    """Yield a note on segments with the same content in several recordings, if there are any.

    `groups` and `segments` are the group and the name of each segment; `content` says what is the
    same, such as "audio".

    >>> names = ["a.wav@0-1", "b.wav@0-1", "b.wav@2-3"]
    >>> for note in describe_duplicates(np.array([0, 0, -1]), names, "audio"): print(note)
    2 segments have the same audio as a segment of another recording (the first: a.wav@0-1 and \
b.wav@0-1), so a query may be among its own examples; --group-duplicates of evaluate, or \
group_duplicates = true in a study, keeps such recordings in one fold
    """
    rows = np.flatnonzero(groups != NO_GROUP)
    if rows.size == 0:
        return
    first_group = groups[rows[0]]
    pair = np.flatnonzero(groups == first_group)[:2]
    names = " and ".join(segments[row] for row in pair)
    yield (
        f"{rows.size} segments have the same {content} as a segment of another recording "
        f"(the first: {names}), so a query may be among its own examples; --group-duplicates of "
        "evaluate, or group_duplicates = true in a study, keeps such recordings in one fold"
    )


def describe_grouping(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield a note on recordings that were grouped, if there are any.

    `before` and `after` are the recording of each segment before and after grouping.

    >>> list(describe_grouping(["a", "b", "c"], ["a and 1 more", "a and 1 more", "c"]))
    ['2 recordings are kept together as 1, because they share segments with the same vector']
    """
    new_names = dict(zip(before, after, strict=True))
    changed = {old for old, new in new_names.items() if old != new}
    if changed:
        merged = {new_names[old] for old in changed}
        yield (
            f"{len(changed)} recordings are kept together as {len(merged)}, "
            "because they share segments with the same vector"
        )
