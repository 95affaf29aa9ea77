"""One episode, alone: the support set of a query and a draw, and the scores it gives.

The streams have no state, so nothing else has to be run to know what one draw of a sweep looked like.
"""

import numpy as np

from callshot.errors import InputError, OptionError
from callshot.fewshot.centroid import linear_layer, score
from callshot.fewshot.classifiers import find_classifier, unit
from callshot.fewshot.engine import fit_split
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import count_classes
from callshot.fewshot.kernels.shared import shared_support
from callshot.fewshot.kernels.streams import enter, key, purpose_key
from callshot.fewshot.kernels.supports import draw_positions
from callshot.fewshot.protocol import Protocol
from callshot.records import Embeddings, Episode, FloatArray, Folds, IntArray


def rerun_episode(
    embeddings: Embeddings,
    folds: Folds,
    segment: str,
    k: int,
    draw: int,
    protocol: Protocol,
    spread: str = "per-query",
    classifier: str = "centroid",
) -> Episode:
    """Return the support set that a query met in one draw of a sweep, and its scores by a classifier.

    >>> vectors = np.array([[0.0], [0.1], [1.0], [1.2]] * 2)
    >>> label = ["rumble", "rumble", "roar", "roar"] * 2
    >>> table = Embeddings("mine", vectors, list("abcdefgh"), list("xxxxyyyy"), label, [()] * 8)
    >>> folds = Folds(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 2, "given")
    >>> rerun_episode(table, folds, "a", k=1, draw=0, protocol=Protocol()).support
    {'roar': ('g',), 'rumble': ('e',)}
    """
    if k < 1 or draw < 0:
        raise OptionError(f"an episode has k ≥ 1 and a draw ≥ 0, got k = {k} and draw = {draw}")
    if segment not in embeddings.segment:
        raise InputError(f"{embeddings.source}: column segment: no segment is called {segment!r}")
    episodes = plan_episodes(embeddings, folds, count_classes(embeddings.label, folds))
    ids = _segments(embeddings, episodes)
    query = _query_row(ids, segment, episodes)
    rows = [
        _support_rows(episodes, query, n, k, draw, protocol, spread)
        for n in range(len(episodes.classes))
    ]
    scores = score(_evidence(episodes, query, rows, classifier, protocol), protocol.score)
    support = {
        name: tuple(ids[i] for i in r) for name, r in zip(episodes.classes, rows, strict=True)
    }
    return Episode(
        segment, k, draw, support, dict(zip(episodes.classes, map(float, scores), strict=True))
    )


def _evidence(
    episodes: Episodes, query: int, rows: list[IntArray], classifier: str, protocol: Protocol
) -> FloatArray:
    """Return a_n of a query by the support rows of each class, in the plain way that the kernels do not take."""
    row, own = find_classifier(classifier), int(episodes.fold[query])
    seen = fit_split(episodes if row.centred else episodes.uncentred(), row, own)
    if (
        protocol.sampler == "distinct"
    ):  # a support that is the whole pool is one set, whatever order it came in
        outside = np.bincount(episodes.label[episodes.fold != own], minlength=len(rows))
        rows = [np.sort(r) if len(r) == size else r for r, size in zip(rows, outside, strict=True)]
    z, supports = seen.vectors[query], [seen.vectors[r] for r in rows]
    if row.rule == "cosine":
        return np.asarray(unit(np.stack([s.mean(axis=0) for s in supports])) @ unit(z[None])[0])
    if row.rule == "nearest":
        return np.array([(2.0 * s @ z - (s**2).sum(axis=1)).max() for s in supports])
    if row.rule == "medoid":
        supports = [s[[_medoid(s)]] for s in supports]
    label = np.repeat(episodes.classes, [len(s) for s in supports])
    return linear_layer(np.concatenate(supports), label)(z)


def _medoid(support: FloatArray) -> int:
    return int(np.argmin([np.sqrt(((support - x) ** 2).sum(axis=1)).sum() for x in support]))


def _segments(embeddings: Embeddings, episodes: Episodes) -> list[str]:
    """Return the id of each row of the episodes."""
    pairs = sorted(
        (name, i)
        for name, i in zip(embeddings.label, embeddings.segment, strict=True)
        if name in episodes.classes
    )
    return [segment for _, segment in pairs]


def _query_row(ids: list[str], segment: str, episodes: Episodes) -> int:
    row = ids.index(segment) if segment in ids else -1
    if row < 0 or episodes.fold[row] < 0:
        raise InputError(
            f"segment {segment!r} is no query: its label is not eligible, or it is in the common fold"
        )
    return row


def _support_rows(
    episodes: Episodes, query: int, n: int, k: int, draw: int, protocol: Protocol, spread: str
) -> IntArray:
    """Return the rows of class n's support, in the order in which they were drawn."""
    first, last = episodes.class_start[n], episodes.class_start[n + 1]
    folds, own, distinct = (
        episodes.fold[first:last],
        episodes.fold[query],
        protocol.sampler == "distinct",
    )
    if spread == "shared":
        stream = _down(
            purpose_key(protocol.seed, "shared"), np.uint64(draw), key(episodes.classes[n])
        )
        out = np.empty(k, np.uint64)
        return np.asarray(
            first + out[: shared_support(stream, folds, own, k, distinct, out)].astype(np.int64)
        )
    return per_query_support(episodes, query, n, k, draw, protocol)


def per_query_support(
    episodes: Episodes, query: int, n: int, k: int, draw: int, protocol: Protocol
) -> IntArray:
    """Return the rows of class n's support in the draw of one query, in the order in which they were drawn."""
    first, last = episodes.class_start[n], episodes.class_start[n + 1]
    pool = np.flatnonzero(episodes.fold[first:last] != episodes.fold[query])
    base = purpose_key(protocol.seed, "support")
    stream = _down(base, episodes.segment_key[query], np.uint64(draw), key(episodes.classes[n]))
    return np.asarray(
        first + pool[draw_positions(stream, len(pool), k, protocol.sampler == "distinct")]
    )


def _down(stream: np.uint64, *words: np.uint64) -> np.uint64:
    for word in words:
        stream = np.uint64(enter(stream, word))
    return stream
