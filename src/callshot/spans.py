"""Spans of recordings: the table that the steps of callshot take and return.

A row is a span of a recording: `recording`, `start_s`, `end_s`, and any other columns. Annotations,
segments, windows, examples and events are spans with other columns. Columns that have a meaning:

path            audio file, relative to the root; the recording itself where there is no such column
recording       what must not be split over folds: the file, or a group of files
segment         unique name
label, labels   label at the centre; all labels that overlap the span
fold            fold as the annotations give it
collar_s        audio before and after the span that is read too, inside the recording
rate_hz         rate at which audio is read
channel_rule    "first", "mean", or the number of a channel
peak_dbfs       level that the peak is set to; empty: as recorded
source_rate_hz  true rate of a time-expanded recording; empty: as its header says
passband_hz     band of frequencies that is read, such as "300-1000"; empty: all
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import InputError, count_text

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Row = dict[str, Any]

COMMON_FOLD = -1  # the number of the fold whose segments are in every support set
INTEGER = re.compile(r"[+-]?[0-9]{1,18}(?:\.0+)?")  # 2.0: pandas, beside a missing one
MISSING = ("", "na", "nan", "none", "null")

SCHEMA: dict[str, Any] = {
    "recording": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
}
COLUMN_TYPES: dict[str, Any] = {
    **SCHEMA,
    "path": pl.String,
    "segment": pl.String,
    "label": pl.String,
    "labels": pl.List(pl.String),
    "collar_s": pl.Float64,
    "rate_hz": pl.Int64,
    "channel_rule": pl.String,
    "peak_dbfs": pl.Float64,
    "source_rate_hz": pl.Float64,
    "passband_hz": pl.String,
}
READING_DEFAULTS: Row = {
    "collar_s": 0.0,
    "channel_rule": "first",
    "peak_dbfs": None,
    "source_rate_hz": None,
    "passband_hz": None,
}


@dataclass(frozen=True, eq=False)
class Spans:
    """A table of spans, and where their recordings are.

    frame     columns as above, and any others
    root      folder that paths are relative to
    metadata  what the file of the table says: `corpus`, `folds`, …
    source    what messages call the table
    """

    frame: pl.DataFrame
    root: Path = Path()
    metadata: Mapping[str, str] = field(default_factory=dict)
    source: str = "memory"

    def __post_init__(self) -> None:
        missing = [name for name in SCHEMA if name not in self.frame.columns]
        if missing:
            raise InputError(
                f"{self.source}: spans have no column {missing[0]}; expected recording, "
                "start_s and end_s"
            )

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any]],
        columns: Iterable[str] = (),
        **fields: Any,
    ) -> Self:
        """Make spans from rows; `columns` are there even if no row has them.

        Columns that have a meaning have one type, those of others are inferred.

        >>> Spans.from_rows([{"recording": "a.wav", "start_s": 0, "end_s": 2, "label": "roar"}])
        Spans(1 span of 1 recording: recording, start_s, end_s, label)
        """
        listed = list(rows)
        names = dict.fromkeys([*columns, *SCHEMA])
        for row in listed:
            names.update(dict.fromkeys(row))
        series = []
        for name in names:
            values = [row.get(name) for row in listed]
            dtype = COLUMN_TYPES.get(name)
            series.append(pl.Series(name, values, dtype, strict=False))
        # A column without any value has no type yet.
        frame = pl.DataFrame(series).with_columns(pl.col(pl.Null).cast(pl.String))
        return cls(frame, **fields)

    def __len__(self) -> int:
        return self.frame.height

    def __repr__(self) -> str:
        spans = count_text(len(self), "span")
        recordings = count_text(self.frame["recording"].n_unique(), "recording")
        names = ", ".join(self.frame.columns)
        return f"Spans({spans} of {recordings}: {names})"

    def __getitem__(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return self.frame[name].to_list()

    @property
    def paths(self) -> list[str]:
        """The audio file of each span."""
        return self["path" if "path" in self.frame.columns else "recording"]

    @property
    def durations_s(self) -> NDArray[np.float64]:
        """The length of each span, without collar."""
        return (self.frame["end_s"] - self.frame["start_s"]).to_numpy()

    def rows(self) -> Iterator[Row]:
        """Yield each span by column, with the defaults of columns that say how audio is read."""
        names = self.frame.columns
        defaults = {
            name: value for name, value in READING_DEFAULTS.items() if name not in names
        }
        for row in self.frame.iter_rows(named=True):
            row.setdefault("path", row["recording"])
            yield defaults | row

    def take(self, rows: Sequence[int] | NDArray[Any]) -> Self:
        """Return spans by their row numbers, in that order."""
        return replace(self, frame=self.frame[np.asarray(rows, np.int64)])

    def only(self, names: Collection[str]) -> Self:
        """Return the spans with these values of `segment`, in the same order."""
        return replace(self, frame=self.frame.filter(pl.col("segment").is_in(names)))

    def with_columns(self, **columns: Any) -> Self:
        """Return spans with columns added or replaced.

        A sequence has a value for each row; a text or a number is the value of all rows.
        """
        series: list[Any] = []
        for name, values in columns.items():
            dtype = COLUMN_TYPES.get(name)
            if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
                series.append(pl.lit(values, dtype).alias(name))
            else:
                series.append(pl.Series(name, values, dtype))
        return replace(self, frame=self.frame.with_columns(series))

    def without(self, *names: str) -> Self:
        """Return spans without some columns."""
        return replace(self, frame=self.frame.drop(*names))


def concat_spans(parts: Sequence[Spans]) -> Spans:
    """Concatenate spans of one root; a column that a part does not have is empty there."""
    frame = pl.concat([part.frame for part in parts], how="diagonal_relaxed")
    return replace(parts[0], frame=frame)


def name_spans(
    frame: pl.DataFrame, is_whole: Sequence[bool] | NDArray[np.bool_]
) -> list[str]:
    """Return unique names: path and times, or only the path of a whole recording.

    If two are the same, their labels and a number are added.

    >>> frame = pl.DataFrame({
    ...     "path": ["x.wav", "x.wav", "y.wav"], "start_s": [0.0, 0.0, 0.0],
    ...     "end_s": [1.5, 1.5, 9.0], "label": ["a", "b", "a"],
    ... })
    >>> name_spans(frame, [False, False, True])
    ['x.wav@0-1.5 a', 'x.wav@0-1.5 b', 'y.wav']
    """
    labels = frame["label"].to_list()
    stems = []
    places = frame.select("path", "start_s", "end_s").iter_rows()
    for (path, start_s, end_s), whole in zip(places, is_whole, strict=True):
        times = f"{_format_time(start_s)}-{_format_time(end_s)}"
        stems.append(path if whole else f"{path}@{times}")
    counts = Counter(stems)
    used = set()
    names = []
    for stem, label in zip(stems, labels, strict=True):
        first = f"{stem} {label}" if counts[stem] > 1 else stem
        name = first
        number = 1
        while name in used:
            number += 1
            name = f"{first} #{number}"
        used.add(name)
        names.append(name)
    return names


def _format_time(seconds: float) -> str:
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def number_folds(names: Iterable[object]) -> list[int]:
    """Return the number of each fold; None and empty names are the common fold.

    Integers stay as they are. If one fold is not an integer, all are numbered from 0 in the order
    of their names, in which numbers count as numbers.

    >>> number_folds(["1", "5", -1, None])
    [1, 5, -1, -1]
    >>> number_folds(["site 10", "site 9", "", "site 10"])
    [1, 0, -1, 1]
    """
    texts = []
    for name in names:
        text = "" if name is None else str(name).strip()
        text = text.replace("\N{MINUS SIGN}", "-")
        if text.casefold() in MISSING:
            text = str(COMMON_FOLD)
        elif INTEGER.fullmatch(text):
            text = str(int(text.partition(".")[0]))
        texts.append(text)
    fold_names = {text for text in texts if text != str(COMMON_FOLD)}
    if all(map(INTEGER.fullmatch, fold_names)):
        return [int(text) for text in texts]
    numbers = {text: n for n, text in enumerate(sorted(fold_names, key=_natural_key))}
    return [numbers.get(text, COMMON_FOLD) for text in texts]


def given_folds(segments: Spans) -> IntArray | None:
    """Return the folds that came with the annotations of segments; None if there are none."""
    if "fold" not in segments.frame.columns:
        return None
    folds = segments["fold"]
    if all(fold is None for fold in folds):
        return None
    return np.array(number_folds(folds), np.int64)


def _natural_key(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts "fold 9" before "fold 10"."""
    parts = re.split(r"([0-9]{1,18})", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
