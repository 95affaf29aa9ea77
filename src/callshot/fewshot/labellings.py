"""Episodes → their labels, laid over other calls: recordings change places inside each fold.

Recordings are put in a random order on the side of the labels only: the labels of a fold's calls,
in this order, are laid over the calls in theirs. Labels of one recording stay together, and every
fold, the common one too, keeps its number of calls of each class. A shuffle depends on the seed,
its number and the names of the recordings alone.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from callshot.fewshot.episodes import Episodes, Keys, Split
from callshot.fewshot.kernels.permutations import recording_words
from callshot.fewshot.kernels.streams import key, purpose_key
from callshot.records import IntArray


@dataclass(frozen=True)
class Labelling:
    """Which labels each row has: those of row `source`.

    `members` are the rows of each class, one class after the other, in the order of segment ids.
    """

    source: IntArray
    members: Keys

    def relabel(self, episodes: Episodes, part: Split) -> Split:
        """Return a fold whose queries have these labels; its pools stay those of the true ones."""
        source = self.source[part.rows]
        relevant = episodes.relevant[source]
        return replace(
            part,
            label=episodes.label[source],
            relevant=np.ascontiguousarray(relevant.T),
        )


def make_labellings(episodes: Episodes, seed: int, count: int) -> Iterator[Labelling]:
    """Yield the true labels, then as many shuffles of recordings."""
    segment = rank_names(episodes.segment)
    recording = rank_names(episodes.recording)
    calls = np.lexsort((segment, recording, episodes.fold))
    fold = episodes.fold[calls]
    for words in shuffle_words(sorted(set(episodes.recording)), seed, count):
        word = words[recording[calls]]
        shuffled = np.lexsort((word, fold))
        source = np.empty_like(calls)
        source[calls] = calls[shuffled]
        label = episodes.label[source]
        members = np.lexsort((segment, label))
        yield Labelling(source, members.astype(np.uint64))


def count_orders(episodes: Episodes) -> float:
    """Return in how many orders the recordings of all folds can be put, at most 1e100."""
    pairs = set(zip(episodes.fold.tolist(), episodes.recording, strict=True))
    recordings = Counter(fold for fold, _ in pairs)
    logarithm = sum(math.lgamma(count + 1) for count in recordings.values())
    return math.exp(min(logarithm, math.log(1e100)))


def shuffle_words(recordings: Sequence[str], seed: int, count: int) -> Keys:
    """Return the words by which recordings are sorted, (1 + shuffles, recordings); 0 first."""
    keys = [key(name) for name in recordings]
    words = np.zeros((1 + count, len(keys)), np.uint64)
    base = purpose_key(seed, "permutation")
    recording_words(base, np.array(keys, np.uint64), words[1:])
    return words


def rank_names(names: Sequence[str]) -> IntArray:
    """Return the place of each name among all different ones.

    >>> rank_names(["b", "a", "b"]).tolist()
    [1, 0, 1]
    """
    place = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names])
