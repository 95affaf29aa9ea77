"""Events → those to listen to first, of each class, and why."""

from collections import defaultdict
from collections.abc import Mapping
from zlib import crc32

import numpy as np
import polars as pl

from callshot.errors import OptionError
from callshot.records.frames import Frame, unique_values

BEST = "best"
UNCERTAIN = "uncertain"
SAMPLE = "sample"


def choose_events(events: Frame, count: int, *, seed: int = 0) -> Frame:
    """Choose events of each class: the best, the most uncertain, and a sample over all scores.

    The best have the highest scores, the most uncertain the lowest: a little less, and they would
    not have been detected. For the sample, the events of a class are divided by score into `count`
    parts of equal size, and one is drawn from each. An event may be chosen for several reasons.

    Parameters
    ----------
    events : polars.DataFrame
        Events, in the EVENTS schema.
    count : int
        How many to choose of each class, for each of the three reasons.
    seed : int
        The same seed draws the same sample.

    Returns
    -------
    polars.DataFrame
        The chosen events by class and falling score, with columns `rank` (1: the best of its
        class) and `why`.

    Examples
    --------
    >>> names = {"recording": "a.wav", "label": "roar", "end_s": 9.0}
    >>> events = pl.DataFrame(
    ...     [{**names, "start_s": float(n), "score": n / 10} for n in range(8)]
    ... )
    >>> choose_events(events, 1).select("score", "rank", "why").rows()
    [(0.7, 1, 'best'), (0.2, 6, 'sample'), (0.0, 8, 'uncertain')]
    """
    if count < 1:
        raise OptionError(f"clips: expected 1 or more, got {count}")
    parts = [events.clear().with_columns(rank=pl.lit(0, pl.Int64), why=pl.lit(""))]
    for label in sorted(unique_values(events, "label")):
        ranked = events.filter(label=label).sort(
            ["score", "recording", "start_s"],
            descending=[True, False, False],
            nulls_last=True,
            maintain_order=True,
        )
        random = np.random.default_rng([seed, crc32(label.encode())])
        scored = len(ranked) - ranked["score"].null_count()
        reasons = _choose_ranks(len(ranked), scored, count, random)
        parts.append(_take_ranks(ranked, reasons))
    return pl.concat(parts)


def _choose_ranks(
    size: int, scored: int, count: int, random: np.random.Generator
) -> dict[int, list[str]]:
    """Return why ranks are chosen, from 0; those from `scored` on have no score."""
    reasons: dict[int, list[str]] = defaultdict(list)
    for rank in range(min(count, scored)):
        reasons[rank].append(BEST)
    for rank in range(max(0, scored - count), scored):
        reasons[rank].append(UNCERTAIN)
    parts = min(count, size)
    for part in range(parts):
        first = part * size // parts
        end = (part + 1) * size // parts
        rank = int(random.integers(first, end))
        reasons[rank].append(SAMPLE)
    return reasons


def _take_ranks(ranked: Frame, reasons: Mapping[int, list[str]]) -> Frame:
    ranks = sorted(reasons)
    why = [", ".join(reasons[rank]) for rank in ranks]
    return ranked[ranks].with_columns(
        rank=pl.Series([rank + 1 for rank in ranks], dtype=pl.Int64),
        why=pl.Series(why, dtype=pl.String),
    )
