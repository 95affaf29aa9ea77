"""Episodes and a protocol → the values of one spread at every k, fold by fold: nothing larger than a fold is held."""

from collections.abc import Mapping

import numpy as np

from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.engine import Engine
from callshot.fewshot.episodes import splits
from callshot.fewshot.per_query_resampling import sweep_per_query
from callshot.fewshot.shared_resampling import sweep_pool, sweep_shared
from callshot.records import IntArray


def sweep(
    engine: Engine, spread: str, categories: Mapping[str, str] | None = None
) -> tuple[IntArray, MetricSums]:
    """Run one spread over every fold; return k of each row and the values.

    Where `all` is asked for, its row comes last and carries the largest pool as k.
    """
    protocol, parts = engine.protocol, splits(engine.episodes)
    shots = np.array(protocol.shots, np.int64)
    largest = max(int(np.diff(part.pool_start).max()) for part in parts)
    whole = protocol.whole_pool and largest not in protocol.shots
    samples, draws = protocol.samples(spread), protocol.supports(spread)
    tally = MetricSums(len(shots) + whole, samples, engine.episodes.classes, categories)
    for part in parts:
        own = engine.at_split(part)
        if shots.size:
            (sweep_per_query if spread == "per-query" else sweep_shared)(own, part, shots, tally)
        if whole:
            sweep_pool(own, part, len(shots), samples, draws, tally)
        tally.close_fold(part)
    tally.finish(draws)
    return np.append(shots, largest) if whole else shots, tally
