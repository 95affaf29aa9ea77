"""Events → items of a review: what may be wrong with each, their order, and filters.

An item is a row of a table of spans (`make_items`), and its number is that of the row.
"""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from operator import eq, ge, le
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.corpus.annotations.rows import FREQUENCIES
from callshot.errors import RequestError, suggest_name
from callshot.records import IntArray
from callshot.records.frames import EVENTS
from callshot.spans import Spans

SCORES = ("score", "distance", "runner_up", "runner_up_score")
PLACE = ("recording", "start_s", "end_s", "label")
PROBABILITY = ("probability", "probability_low", "probability_high")
DOUBTFUL = "doubtful"
ORDERS = {
    "best": "best first",
    "uncertain": "most uncertain first",
    "novel": "far from every class first",
    "sample": "random sample of every class and score",
    "time": "by recording and time",
    DOUBTFUL: "labels that look wrong first",
}
NEED_SCORES = ("best", "uncertain", "novel", DOUBTFUL)
# What may be wrong with an annotation, as the page says it.
DUPLICATE = "duplicate"
OVERLAPPING = "overlapping"
CLIPPED = "clipped"
MISLABELLED = "mislabelled"
DOUBTS = {
    MISLABELLED: "sounds more like another label",
    DUPLICATE: "annotated twice",
    OVERLAPPING: "overlaps another call",
    CLIPPED: "cut off, or at full scale",
}
NANOSECONDS_PER_HOUR = 3.6e12
# Shared part of the time that two annotations of one call cover together.
SAME_CALL = 0.5
FILTERS = {
    "label": ("label", eq),
    "recording": ("recording", eq),
    "min_score": ("score", ge),
    "max_score": ("score", le),
}


def make_items(events: pl.DataFrame) -> Spans:
    """Return the rows of a frame of the EVENTS schema as items, numbered by row; their columns:

    label            what the source calls it; empty: nothing
    score            of its label
    distance         from the nearest class
    runner_up        best other label, and `runner_up_score`
    probability      that it is right, with `probability_low` and `probability_high`
    low_freq_hz      the band of the call, with `high_freq_hz`
    clock            when it begins, ISO 8601
    hour             time of day at which it begins, in hours
    parent           the item that it was split off; empty for items of the source
    row              the item of the source that it comes from: its own number, or an ancestor's
    doubt            what may be wrong with an annotation: names of DOUBTS
    added            whether a person marked it; it has no scores then
    """
    names = (*PLACE, *SCORES, *PROBABILITY, *FREQUENCIES, "clock")
    types = {name: EVENTS[name] for name in names}
    frame = events.select(names).cast(pl.Schema(types))
    clock = pl.col("clock").str.slice(len("2026-03-02T"), len("05:30:00"))
    hour = clock.str.to_time(strict=False).cast(pl.Int64) / NANOSECONDS_PER_HOUR
    numbers = pl.col("score", "distance", "runner_up_score")
    frame = frame.with_columns(
        pl.when(numbers.is_finite()).then(numbers),
        hour=hour,
        parent=pl.lit(None, pl.Int64),
        row=pl.int_range(pl.len(), dtype=pl.Int64),
        doubt=pl.lit(""),
        added=pl.lit(False),
    )
    return Spans(frame)


def find_doubts(frame: pl.DataFrame) -> list[str]:
    """Return for each item which of DUPLICATE and OVERLAPPING it is.

    Items overlap if they share time and, where both have a band, frequencies. Duplicates have the
    same label, and share half of the time that they cover together.
    """
    doubts: list[set[str]] = [set() for _ in range(len(frame))]
    rows = frame.with_row_index("item").sort("recording", "start_s")
    low, high = FREQUENCIES
    earlier: list[dict[str, Any]] = []  # rows that may overlap the next one
    for row in rows.select("item", *PLACE, *FREQUENCIES).iter_rows(named=True):
        earlier = [
            other
            for other in earlier
            if other["recording"] == row["recording"]
            and other["end_s"] > row["start_s"]
        ]
        for other in earlier:  # which starts first, and ends after the row starts
            has_bands = None not in (row[low], row[high], other[low], other[high])
            if has_bands and (other[high] <= row[low] or row[high] <= other[low]):
                continue
            shared_s = min(row["end_s"], other["end_s"]) - row["start_s"]
            whole_s = max(row["end_s"], other["end_s"]) - other["start_s"]
            is_same_label = row["label"] == other["label"]
            is_duplicate = is_same_label and shared_s >= SAME_CALL * whole_s
            doubt = DUPLICATE if is_duplicate else OVERLAPPING
            doubts[row["item"]].add(doubt)
            doubts[other["item"]].add(doubt)
        earlier.append(row)
    return [" ".join(sorted(names)) for names in doubts]


def replace_scores(items: Spans, ranking: pl.DataFrame) -> Spans:
    """Replace scores by a `ranking` (`Scores.rank`) of the items of the source.

    Parts of an item get its scores, added calls none.
    """
    scored = items.frame.with_columns(ranking[items.frame["row"].to_numpy()])
    columns = pl.when(~pl.col("added")).then(pl.col(SCORES)).name.keep()
    return replace(items, frame=scored.with_columns(columns))


def find_checksum(items: Spans) -> str:
    """Return a checksum of the places and labels of items."""
    rows = items.frame.select(PLACE).rows()
    return sha256(repr(rows).encode()).hexdigest()


def order_items(
    order: str, items: Spans, thresholds: Mapping[str, float], sample: IntArray
) -> IntArray:
    """Return the numbers of all items in one of ORDERS; those without a value to sort by are last.

    `thresholds` are scores by label: items near them are uncertain. `sample` is a result of
    `draw_sample`; parts of split items come after it.
    """
    if order not in ORDERS:
        raise RequestError(f"order: {order}: {suggest_name(order, ORDERS)}")
    if order == "sample":
        return np.append(sample, np.arange(len(sample), len(items)))
    score = pl.col("score")
    lead = score - pl.col("runner_up_score")
    limits = pl.Series(list(thresholds.values()), dtype=pl.Float64)
    threshold = pl.col("label").replace_strict(
        list(thresholds), limits, default=None, return_dtype=pl.Float64
    )
    keys = {  # the lowest first
        "best": [-score],
        "uncertain": [pl.min_horizontal((score - threshold).abs(), lead.abs())],
        "novel": [-pl.col("distance")],
        DOUBTFUL: [lead],
        "time": [pl.col("recording"), pl.col("start_s")],
    }
    ordered = pl.arg_sort_by(keys[order], nulls_last=True, maintain_order=True)
    return items.frame.select(ordered).to_series().cast(pl.Int64).to_numpy()


def select_items(items: Spans, filters: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which items pass all filters, (items,); items without a value do not.

    Filters are those of FILTERS, a doubt, and from_hour and to_hour: 22 and 4 are a night.
    """
    keep = pl.repeat(True, pl.len())
    for name, (column, compare) in FILTERS.items():
        if name in filters:
            keep &= compare(pl.col(column), filters[name])
    doubt = filters.get("doubt")
    if doubt == MISLABELLED:
        keep &= pl.col("runner_up_score") > pl.col("score")
    elif doubt is not None:
        keep &= pl.col("doubt").str.contains(doubt, literal=True)
    if "from_hour" in filters or "to_hour" in filters:
        start = filters.get("from_hour", 0.0)
        end = filters.get("to_hour", 24.0)
        is_late = pl.col("hour") >= start
        is_early = pl.col("hour") < end
        # Past midnight, either of the two is enough.
        keep &= (is_late & is_early) if start <= end else (is_late | is_early)
    kept = items.frame.select(keep.fill_null(value=False)).to_series()
    return kept.to_numpy().copy()  # that callers may change
