"""Which supports are drawn in a spread, and how queries weigh.

per-query   every query meets draws of its own, and a bootstrap picks one for each
shared      one support set for all queries, as in use; one value for every draw
total       what one labelled set would score on other recordings of the same kind

In each sample of `total` every recording has a random weight (the Bayesian bootstrap). It counts on
both sides: exemplars of heavy recordings come early in the order from which a support takes the
first k, and weigh more in the class mean; queries weigh in the metrics. No exemplar is drawn twice,
whatever the sampler.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.episodes import Episodes, Keys, Split
from callshot.fewshot.kernels import streams
from callshot.fewshot.protocol import Protocol
from callshot.records import COMMON_FOLD, IntArray

Ranks = NDArray[np.uint32]

# Weights are multiples of it, so that their sums are exact in any order.
UNIT = 2.0**-20
# In multiples of UNIT: a weight of 1, and nearly 0 for queries of a group that is left out.
WEIGHT_ONE = round(1 / UNIT)
WEIGHT_LEFT_OUT = 1
TASK_SAMPLES = 32  # of `total`, drawn in one task
MIN_DRAWS = 50  # from which recordings are left out
MAX_GROUPS = 60  # of recordings that are left out together
TIMES_LEFT_OUT = 16  # draws that are measured without each group


@dataclass(frozen=True)
class Spread:
    """How supports are drawn, and how queries weigh, in one spread: per-query, shared or total.

    `samples` is how many values of a metric the spread has at each k. `rank` (samples, rows) holds
    the exemplars of each class in order, by number inside the class; without it, supports are drawn
    from random streams. `units` (samples, rows) are the weights of rows as queries, in multiples of
    UNIT, `support_units` their weights as exemplars; without them all are 1.

    With `group`, the number of the group of each row's recording, every draw is also measured
    `repeats` times without the queries of one group, for `mean_interval.py`.
    """

    name: str
    episodes: Episodes
    protocol: Protocol
    samples: int
    rank: Ranks | None = None
    units: IntArray | None = None
    support_units: IntArray | None = None
    group: IntArray | None = None
    repeats: int = 0

    def left_out(self, samples: slice | IntArray) -> IntArray:
        """Return the group whose queries each sample leaves out: all in turn.

        Sample d · repeats + i is draw d without its i-th group.
        """
        assert self.group is not None
        count = self.samples * self.repeats
        groups = self.group.max() + 1
        group_of_sample = np.arange(count) % groups
        return group_of_sample[samples]

    @property
    def has_own_draws(self) -> bool:
        """Whether every query has draws of its own."""
        return self.name == "per-query"

    def supports(self, query_or_fold: int, k: int, draw: int) -> list[IntArray]:
        """Return the rows of each class's support of k exemplars, in the order of the draw.

        `query_or_fold` is the row of the query in `per-query`, else the fold of the queries.
        """
        episodes = self.episodes
        distinct = self.protocol.distinct
        fold = query_or_fold
        if self.has_own_draws:
            fold = int(episodes.fold[query_or_fold])
        allowed = episodes.is_support(fold)
        supports = []
        for n, class_key in enumerate(episodes.class_key):
            rows = np.flatnonzero(episodes.label == n)
            if self.rank is not None:
                # The first k exemplars of a given order that are on the support side.
                ordered = rows[self.rank[draw, rows]]
                supports.append(ordered[allowed[ordered]][:k])
                continue
            # Otherwise a random order, as the kernels draw it.
            seed = self.protocol.seed
            words = (draw, class_key)
            # A query's own order has only its pool; a shared one has all rows of the class, so that
            # the folds take their supports from one order.
            if self.has_own_draws:
                rows = rows[allowed[rows]]
                query_key = episodes.segment_key[query_or_fold]
                stream = streams.make_stream(seed, "support", query_key, *words)
            else:
                stream = streams.make_stream(seed, "shared", *words)
            is_allowed = allowed[rows]
            size = min(k, int(is_allowed.sum())) if distinct else k
            order = np.arange(len(rows), dtype=np.uint64)  # places in `rows`
            scratch = np.empty_like(order)
            chosen = np.empty(size, np.uint64)
            streams.draw_support(
                stream, order, scratch, is_allowed, size, distinct, chosen
            )
            supports.append(rows[chosen.astype(np.int64)])
        return supports


def make_spread(
    name: str,
    episodes: Episodes,
    protocol: Protocol,
    map_tasks: Callable[..., Iterable[Any]] = map,
) -> Spread:
    """Return one of the spreads of a protocol: per-query, shared or total.

    The weights and orders of `total` are drawn here, in tasks that `map_tasks` runs: `map`, or the
    same in threads.
    """
    samples = protocol.samples(name)
    if name != "total":
        return Spread(name, episodes, protocol, samples)

    def draw(first: int) -> tuple[IntArray, Ranks]:
        """Draw the weights and orders of up to TASK_SAMPLES samples."""
        count = min(TASK_SAMPLES, samples - first)
        units = draw_units(episodes, protocol, count, first)
        return units, draw_orders(episodes, protocol, units, first)

    parts = map_tasks(draw, range(0, samples, TASK_SAMPLES))
    units, rank = map(np.concatenate, zip(*parts, strict=True))
    return Spread(
        name, episodes, protocol, samples, rank, units=units, support_units=units
    )


def leave_out(spread: Spread) -> Spread:
    """Return the spread with groups of recordings, so that draws are also measured without them.

    A spread of few draws is returned unchanged: these would say too little about single recordings.
    """
    if spread.samples < MIN_DRAWS:
        return spread
    group_keys, group = group_recordings(spread.episodes)
    measurements = TIMES_LEFT_OUT * len(group_keys)
    repeats = math.ceil(measurements / spread.samples)
    return replace(spread, group=group, repeats=repeats)


def group_recordings(episodes: Episodes) -> tuple[Keys, IntArray]:
    """Put recordings into groups at random; return the keys of the groups, and each row's group.

    Recordings that are only supports are grouped apart from the others, so that these have the same
    groups without them.
    """
    key = episodes.recording_key.copy()
    has_query = np.isin(key, key[episodes.fold != COMMON_FOLD])
    for side in (has_query, ~has_query):
        if len(np.unique(key[side])) > MAX_GROUPS:
            # Keys are random, and so are these groups.
            key[side] %= np.uint64(MAX_GROUPS)
    keys, group = np.unique(key, return_inverse=True)
    return keys, group


def units_without(left_out: IntArray, group: IntArray) -> IntArray:
    """Return weights (samples, rows): nearly 0 for rows of the group that a sample leaves out."""
    return np.where(left_out[:, None] == group, WEIGHT_LEFT_OUT, WEIGHT_ONE)


def draw_orders(
    episodes: Episodes, protocol: Protocol, units: IntArray, first: int = 0
) -> Ranks:
    """Draw a random order of the exemplars of each class for every sample, (samples, rows).

    Exponential random numbers, divided by the weights `units` (samples, rows), are sorted, so that
    rows of large weight tend to come early. The result has the exemplars of one class after
    another, each by its number inside the class. The samples are numbered from `first` on.
    """
    arrival = np.empty(units.shape)
    base = streams.purpose_key(protocol.seed, "total")
    streams.fill_exponentials(base, episodes.segment_key, first, arrival)
    arrival /= units
    # Where the second class begins, and so on
    inner_bounds = episodes.class_start[1:-1]
    by_class = np.split(arrival, inner_bounds, axis=1)
    ranks_by_class = [np.argsort(part, axis=1, kind="stable") for part in by_class]
    ranks = np.concatenate(ranks_by_class, axis=1)
    return ranks.astype(np.uint32)


def draw_units(
    episodes: Episodes, protocol: Protocol, samples: int, first: int = 0
) -> IntArray:
    """Draw the weight of each row's recording, in multiples of UNIT, (samples, rows).

    Weights are exponentially distributed, and at least one UNIT. The samples are numbered from
    `first` on: their number decides the random words.
    """
    weight = np.empty((samples, len(episodes.rows)))
    base = streams.purpose_key(protocol.seed, "recording")
    streams.fill_exponentials(base, episodes.recording_key, first, weight)
    units = np.rint(weight / UNIT)
    return np.maximum(units, 1.0).astype(np.int64)


def bootstrap_picks(
    episodes: Episodes, split: Split, protocol: Protocol
) -> NDArray[np.uint16]:
    """Return the draw that each sample takes for each query of a fold, (queries, samples)."""
    picks = np.empty((len(split.rows), protocol.bootstraps), np.uint16)
    base = streams.purpose_key(protocol.seed, "bootstrap")
    keys = episodes.segment_key[split.rows]
    streams.bootstrap_picks(base, keys, protocol.draws, picks)
    return picks
