"""One episode, alone: the support set of a query in one draw, and its scores.

The streams have no state, so one draw of a sweep can be repeated without the others.
"""

from functools import partial

import numpy as np

from callshot.errors import InputError, OptionError
from callshot.fewshot.centroid import log_odds, softmax
from callshot.fewshot.classifiers import find_classifier, unit
from callshot.fewshot.engine import transform_split
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import count_classes
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import per_query_support, shared_support
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
    """Return the support set of a query in one draw of a sweep, and its scores by a classifier.

    Parameters
    ----------
    embeddings : Embeddings
        The table of the sweep.
    folds : Folds
        Its folds.
    segment : str
        The id of the query.
    k : int
        Exemplars per class.
    draw : int
        The number of the draw, from 0.
    protocol : Protocol
        The protocol of the sweep.
    spread : {"per-query", "shared"}
        Whether the draw is the query's own, or that of all queries.
    classifier : str
        The rule that scores the query.

    Returns
    -------
    Episode

    Raises
    ------
    InputError
        If the segment is no query.
    OptionError
        If k or the draw is out of range.

    Examples
    --------
    >>> vectors = np.array([[0.0], [0.1], [1.0], [1.2]] * 2)
    >>> label = ["rumble", "rumble", "roar", "roar"] * 2
    >>> table = Embeddings("mine", vectors, "abcdefgh", "xxxxyyyy", label, [()] * 8)
    >>> folds = Folds(np.array([0, 0, 0, 0, 1, 1, 1, 1]), 2, "given")
    >>> rerun_episode(table, folds, "a", k=1, draw=0, protocol=Protocol()).support
    {'roar': ('g',), 'rumble': ('e',)}
    """
    _check_names(embeddings, segment, k, draw)
    episodes = plan_episodes(embeddings, folds, count_classes(embeddings.label, folds))
    query = _find_query(episodes, segment)
    draw_support = partial(per_query_support, episodes, query)
    if spread == "shared":
        draw_support = partial(shared_support, episodes, int(episodes.fold[query]))
    numbers = range(len(episodes.classes))
    rows = [draw_support(n, k, draw, protocol) for n in numbers]
    to_scores = softmax if protocol.score == "softmax" else log_odds
    scores = to_scores(_evidence(episodes, query, rows, classifier, protocol))
    segments = [tuple(episodes.segment[row] for row in support) for support in rows]
    return Episode(
        segment,
        k,
        draw,
        support=dict(zip(episodes.classes, segments, strict=True)),
        scores=dict(zip(episodes.classes, scores.tolist(), strict=True)),
    )


def _check_names(embeddings: Embeddings, segment: str, k: int, draw: int) -> None:
    """Check what an episode is named by."""
    if k < 1 or draw < 0:
        raise OptionError(
            f"an episode has k ≥ 1 and a draw ≥ 0, got k = {k} and draw = {draw}"
        )
    if segment not in embeddings.segment:
        raise InputError(
            f"{embeddings.source}: column segment: no segment is called {segment!r}"
        )


def _find_query(episodes: Episodes, segment: str) -> int:
    if segment in episodes.segment:
        row = episodes.segment.index(segment)
        if episodes.fold[row] >= 0:
            return row
    raise InputError(
        f"segment {segment!r} is no query: its label is not eligible, or it is in the common fold"
    )


def _evidence(
    episodes: Episodes,
    query: int,
    rows: list[IntArray],
    name: str,
    protocol: Protocol,
) -> FloatArray:
    """Return a_n of a query by the support rows of each class, straight from the definitions."""
    classifier = find_classifier(name)
    rule = classifier.rule
    fold = int(episodes.fold[query])
    if not classifier.centred:
        episodes = episodes.uncentred()
    vectors = transform_split(episodes, classifier, fold).vectors
    z = vectors[query]
    if protocol.distinct:
        rows = _sort_whole_pools(episodes, fold, rows)
    supports = [vectors[support] for support in rows]
    if rule == "nearest":
        evidence = [2.0 * x @ z - (x**2).sum(axis=1) for x in supports]
        return np.array([one.max() for one in evidence])
    find_centre = _medoid if rule == "medoid" else _mean
    centres = np.stack([find_centre(x) for x in supports])
    if rule == "cosine":
        return np.asarray(unit(centres) @ unit(z[None])[0])
    squares = np.einsum("nd,nd->n", centres, centres)
    return np.asarray(z @ (2.0 * centres).T - squares)


def _sort_whole_pools(
    episodes: Episodes, fold: int, rows: list[IntArray]
) -> list[IntArray]:
    """Return supports in which a whole pool is one set, whatever order it was drawn in."""
    sizes = np.bincount(episodes.label[episodes.is_support(fold)])
    pairs = zip(rows, sizes, strict=True)
    return [np.sort(row) if len(row) == size else row for row, size in pairs]


def _mean(support: FloatArray) -> FloatArray:
    return np.asarray(support.mean(axis=0))


def _medoid(support: FloatArray) -> FloatArray:
    """Return the exemplar with the least sum of distances to the others."""
    sums = [np.sqrt(((support - x) ** 2).sum(axis=1)).sum() for x in support]
    return np.asarray(support[np.argmin(sums)])
