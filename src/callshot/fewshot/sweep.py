"""Episodes and a protocol → the values of one spread at every k.

One fold is processed at a time, so that no array is larger than a fold needs.
"""

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

    The row `all`, where the protocol has it, comes last, with the size of the largest pool as k.
    """
    protocol = engine.protocol
    parts = splits(engine.episodes)
    shots = np.array(protocol.shots, np.int64)
    largest = max(part.largest_pool for part in parts)
    whole = protocol.whole_pool and largest not in protocol.shots
    samples = protocol.samples(spread)
    draws = protocol.supports(spread)
    sums = MetricSums(len(shots) + whole, samples, engine.episodes.classes, categories)
    sweep_fold = sweep_per_query if spread == "per-query" else sweep_shared
    for part in parts:
        fitted = engine.for_split(part)
        if shots.size:
            sweep_fold(fitted, part, shots, sums)
        if whole:
            sweep_pool(
                fitted,
                part,
                len(shots),
                samples,
                draws,
                sums,
            )
        sums.close_fold(part)
    sums.finish(draws)
    return np.append(shots, largest) if whole else shots, sums
