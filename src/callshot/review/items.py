"""The items of a review: spans of recordings, the order in which they are shown, and filters.

The number of an item is its row. To split an item adds two rows at the end, which stay for ever,
also when the split is undone. Columns, beside those of all spans:

label            what the source calls it; empty: nothing
score            of its label
distance         from the nearest class
runner_up        best other label, and `runner_up_score`
clock            when it begins, ISO 8601
hour             time of day at which it begins, in hours
parent           the item that it was split off; empty for those of the source
row              the item of the source that it comes from: its own number, or that of an ancestor
"""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from operator import eq, ge, le
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import RequestError, suggest_name
from callshot.records import IntArray
from callshot.records.frames import EVENTS
from callshot.spans import Spans

SCORES = ("score", "distance", "runner_up", "runner_up_score")
PLACE = ("recording", "start_s", "end_s", "label")
ORDERS = {
    "best": "best first",
    "uncertain": "most uncertain first",
    "novel": "far from every class first",
    "sample": "random sample of every class and score",
    "time": "by recording and time",
}
NEED_SCORES = ("best", "uncertain", "novel")
FILTERS = {
    "label": ("label", eq),
    "recording": ("recording", eq),
    "min_score": ("score", ge),
    "max_score": ("score", le),
}
SCORE_BINS = 4  # of equal size, in each class


def make_items(events: pl.DataFrame) -> Spans:
    """Return the rows of a frame of the EVENTS schema as items."""
    names = (*PLACE, *SCORES, "clock")
    types = {name: EVENTS[name] for name in names}
    frame = events.select(names).cast(pl.Schema(types))
    clock = pl.col("clock").str.slice(len("2026-03-02T"), len("05:30:00"))
    time = clock.str.to_time(strict=False).dt
    hour = time.hour() + time.minute() / 60
    hour += time.second() / 3600
    numbers = pl.col("score", "distance", "runner_up_score")
    frame = frame.with_columns(
        pl.when(numbers.is_finite()).then(numbers),
        hour=hour,
        parent=pl.lit(None, pl.Int64),
        row=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    return Spans(frame)


def replace_scores(items: Spans, ranking: pl.DataFrame) -> Spans:
    """Return items with other scores; a part has those of the item that it is of.

    `ranking` has the columns of SCORES, and a row for each item of the source.
    """
    scores = ranking[items.frame["row"].to_numpy()]
    return replace(items, frame=items.frame.with_columns(scores))


def find_checksum(items: Spans) -> str:
    """Return a checksum of the places and labels of items."""
    rows = items.frame.select(PLACE).rows()
    return sha256(repr(rows).encode()).hexdigest()


def draw_sample(items: Spans, seed: int) -> IntArray:
    """Return a random order of items, of which every beginning is a fair sample of each class.

    Each class is cut into bins of equal size by score. The order takes an item of each bin at
    random, then another of each, and so on; classes take turns. It is the same for the same seed.
    """
    # The raw output of Philox is the same in all versions of NumPy.
    generator = np.random.Philox(key=seed)
    first_key, second_key = generator.random_raw((2, len(items)))
    drawn = items.frame.select(
        pl.Series("first_key", first_key),
        pl.Series("second_key", second_key),
        "label",
        item="row",
        rank=pl.col("score").fill_null(0.0).rank("ordinal").over("label"),
        count=pl.len().over("label"),
    )
    number = pl.col("rank").cast(pl.Int64) - 1
    drawn = drawn.with_columns(bin=number * SCORE_BINS // pl.col("count"))
    turn = pl.col("first_key").rank("ordinal").over("label", "bin")
    drawn = drawn.with_columns(turn=turn).sort("turn", "second_key")
    turn_of_class = pl.int_range(pl.len()).over("label")
    drawn = drawn.with_columns(turn=turn_of_class).sort("turn", "first_key")
    return drawn["item"].to_numpy()


def order_items(
    name: str, items: Spans, thresholds: Mapping[str, float], sample: IntArray
) -> IntArray:
    """Return the numbers of all items in one of ORDERS; parts of split items follow each other."""
    if name not in ORDERS:
        raise RequestError(f"order: {name}: {suggest_name(name, ORDERS)}")
    if name == "sample":
        parts = np.arange(len(sample), len(items))
        return np.concatenate([sample, parts])
    score = pl.col("score")
    limits = pl.Series(list(thresholds.values()), dtype=pl.Float64)
    threshold = pl.col("label").replace_strict(
        list(thresholds), limits, default=None, return_dtype=pl.Float64
    )
    from_threshold = (score - threshold).abs()
    from_other = (score - pl.col("runner_up_score")).abs()
    keys = {
        "best": [-score],
        "uncertain": [pl.min_horizontal(from_threshold, from_other)],
        "novel": [-pl.col("distance")],
        "time": [pl.col("recording"), pl.col("start_s")],
    }
    ordered = pl.arg_sort_by(keys[name], nulls_last=True, maintain_order=True)
    return items.frame.select(ordered).to_series().cast(pl.Int64).to_numpy()


def select_items(items: Spans, filters: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which items are shown: by FILTERS, and from_hour and to_hour.

    Hours may pass midnight, as from 22 to 4.
    """
    keep = pl.repeat(True, pl.len())
    for name, (column, compare) in FILTERS.items():
        if name in filters:
            keep &= compare(pl.col(column), filters[name])
    if "from_hour" in filters or "to_hour" in filters:
        start = filters.get("from_hour", 0.0)
        end = filters.get("to_hour", 24.0)
        is_late = pl.col("hour") >= start
        is_early = pl.col("hour") < end
        keep &= is_late & is_early if start <= end else is_late | is_early
    return items.frame.select(keep.fill_null(False)).to_series().to_numpy().copy()
