"""The items of a review: detections or segments, as arrays with an entry for each.

The number of an item is its row. Splitting an item adds two rows at the end, which stay for ever:
where a split is undone they are only not active.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.detection.index.clock import parse_clock
from callshot.records import FloatArray, IntArray
from callshot.records.frames import EVENTS

ARRAYS = (
    "recording",
    "start_s",
    "end_s",
    "label",
    "score",
    "distance",
    "runner_up",
    "runner_up_score",
    "hour",
    "parent",
    "row",
    "is_active",
)


@dataclass(frozen=True)
class Ranking:
    """Of each item: the score of its label, the best other label, and the nearest distance."""

    score: FloatArray
    distance: FloatArray
    runner_up: IntArray
    runner_up_score: FloatArray


@dataclass
class Items:
    """Arrays of all items.

    recordings  names; `recording` is a number of one of them
    labels      names; `label` and `runner_up` are numbers of them, −1 for none
    hour        time of day at which an item begins, in hours; NaN if no clock says it
    parent      the item that it was split off, −1 for those of the source
    row         the item of the source that it comes from: its own number, or that of an ancestor
    clock       when each item of the source begins, ISO 8601 or None
    """

    recordings: list[str]
    labels: list[str]
    recording: IntArray
    start_s: FloatArray
    end_s: FloatArray
    label: IntArray
    score: FloatArray
    distance: FloatArray
    runner_up: IntArray
    runner_up_score: FloatArray
    hour: FloatArray
    parent: IntArray
    row: IntArray
    is_active: NDArray[np.bool_]
    clock: Sequence[str | None]
    original_count: int = field(init=False)

    def __post_init__(self) -> None:
        self.original_count = len(self.start_s)

    def __len__(self) -> int:
        return len(self.start_s)

    def number_label(self, name: str) -> int:
        """Return the number of a label, which becomes known if it is not."""
        if name not in self.labels:
            self.labels.append(name)
        return self.labels.index(name)

    def add_part(self, parent: int, start_s: float, end_s: float) -> int:
        """Add a part of an item; return its number."""
        for name in ARRAYS:
            values = getattr(self, name)
            setattr(self, name, np.append(values, values[parent]))
        self.start_s[-1] = start_s
        self.end_s[-1] = end_s
        self.parent[-1] = parent
        self.is_active[-1] = True
        return len(self) - 1

    def take(self, ranking: Ranking) -> None:
        """Take the scores of the items of the source; parts have those of the item they are of."""
        self.score = ranking.score[self.row]
        self.distance = ranking.distance[self.row]
        self.runner_up = ranking.runner_up[self.row]
        self.runner_up_score = ranking.runner_up_score[self.row]

    def describe(self, item: int) -> dict[str, Any]:
        """Return where an item is and what it was called, as the journal keeps it."""
        return {
            "recording": self.recordings[self.recording[item]],
            "start_s": float(self.start_s[item]),
            "end_s": float(self.end_s[item]),
            "label": self.name(int(self.label[item])),
        }

    def name(self, number: int) -> str | None:
        """Return the name of a label, None for −1."""
        return None if number < 0 else self.labels[number]

    def checksum(self) -> str:
        """Return a checksum of the places and labels of the items of the source."""
        digest = sha256("\n".join([*self.recordings, "", *self.labels]).encode())
        for name in ("recording", "start_s", "end_s", "label"):
            digest.update(getattr(self, name)[: self.original_count].tobytes())
        return digest.hexdigest()


def make_items(events: pl.DataFrame) -> Items:
    """Return the rows of a frame of the EVENTS schema as items."""
    recordings = sorted(events["recording"].unique())
    labels = sorted(_known_labels(events))
    clocks = events["clock"].to_list()
    return Items(
        recordings=recordings,
        labels=labels,
        recording=_number(events["recording"], recordings),
        start_s=_floats(events["start_s"]),
        end_s=_floats(events["end_s"]),
        label=_number(events["label"], labels),
        score=_floats(events["score"]),
        distance=_floats(events["distance"]),
        runner_up=_number(events["runner_up"], labels),
        runner_up_score=_floats(events["runner_up_score"]),
        hour=np.array([_find_hour(clock) for clock in clocks], np.float64),
        clock=clocks,
        **_first_rows(len(events)),
    )


def _first_rows(count: int) -> dict[str, Any]:
    """Return the arrays of items that were not split."""
    return {
        "parent": np.full(count, -1),
        "row": np.arange(count),
        "is_active": np.ones(count, bool),
    }


def make_empty_items(count: int) -> Items:
    """Return items of which nothing is known but their number."""
    rows = pl.DataFrame(schema=dict(EVENTS)).clear(count)
    return make_items(rows.with_columns(recording=pl.lit("")))


def _known_labels(events: pl.DataFrame) -> set[str]:
    names = pl.concat([events["label"], events["runner_up"]]).drop_nulls()
    return set(names.unique())


def _number(names: pl.Series, first_names: list[str]) -> IntArray:
    numbers = {name: number for number, name in enumerate(first_names)}
    column = names.replace_strict(numbers, default=-1, return_dtype=pl.Int64)
    return column.fill_null(-1).to_numpy().copy()


def _floats(column: pl.Series) -> FloatArray:
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy().copy()


def _find_hour(clock: str | None) -> float:
    time = parse_clock(clock)
    if time is None:
        return float("nan")
    return time.hour + time.minute / 60 + time.second / 3600


def rank_columns(
    all_scores: Any,
    distances: Any,
    columns: Sequence[str],
    labels: Sequence[str],
    label: IntArray,
) -> Ranking:
    """Return the ranking of items by scores, items × columns; NaN: a label without a score.

    `label` has the number of the label of each item in `labels`, −1 for none.
    """
    column_of_label = [_find(name, columns) for name in labels]
    own_column = np.array([*column_of_label, -1])[label]
    rows = np.arange(len(own_column))
    score = np.where(own_column >= 0, all_scores[rows, own_column], np.nan)
    other, other_score = _find_best_other(all_scores, own_column)
    to_label = np.array([_find(name, labels) for name in columns])
    return Ranking(
        score.astype(np.float64),
        _find_nearest(distances),
        np.where(np.isnan(other_score), -1, to_label[other]),
        other_score,
    )


def _find(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else -1


def _find_nearest(distances: Any) -> FloatArray:
    """Return the least distance of each item, NaN if it has none."""
    nearest = np.where(np.isnan(distances), np.inf, distances).min(axis=1)
    return np.where(np.isfinite(nearest), nearest, np.nan).astype(np.float64)


def _find_best_other(
    all_scores: Any, own_column: IntArray
) -> tuple[IntArray, FloatArray]:
    """Return the best column of each item beside its own, and the score; NaN if there is none."""
    rows = np.arange(len(own_column))
    has_own = own_column >= 0
    other_scores = np.where(np.isnan(all_scores), -np.inf, all_scores)
    other_scores[rows[has_own], own_column[has_own]] = -np.inf
    best = other_scores.argmax(axis=1)
    score = other_scores[rows, best].astype(np.float64)
    score[np.isneginf(score)] = np.nan
    return best, score
