"""An evaluation → plain files in a directory, all of them or none.

with open_results(directory) as staging:                refuses what cannot be written, before anything is computed
    write_results(staging, evaluation, provenance)      stages every file, then puts each in its place
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import polars as pl

from callshot.records import ClassCurve, Confusion, Curve, Evaluation, Ties, Values
from callshot.report.staging import Staging, open_staging

Columns = dict[str, Sequence[Any]]
Draw = Callable[[Evaluation, Path], Sequence[Path]]

PROVENANCE = "provenance.json"
CLASS_COLUMNS = ("label", "exemplars", "complete_to_k", "eligible", "reason")
ROW_GROUP = 2**18
DTYPES = {str: pl.String, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}
NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')


def open_results(directory: Path) -> Staging:
    """Make a directory ready for results; see `open_staging` for what is refused."""
    return open_staging(directory, (*WRITERS, *FIGURES), PROVENANCE)


def write_results(
    staging: Staging, evaluation: Evaluation, provenance: Mapping[str, Any], draw: Draw | None = None
) -> list[Path]:
    """Write the files of an evaluation, all or none; `draw` makes the figures, from a path without suffix."""

    def make(folder: Path) -> list[str]:
        figures = [] if draw is None else [path.name for path in draw(evaluation, folder / "sweep")]
        for name, write in WRITERS.items():
            write(evaluation, folder / name)
        return [*WRITERS, *figures]

    return staging.write(make, provenance)


def _columns(names: Iterable[str], rows: Sequence[object]) -> Columns:
    return {name: [getattr(row, name) for row in rows] for name in names}


def _fold_columns(evaluation: Evaluation) -> Columns:
    table, fold = evaluation.segments, evaluation.folds.fold.tolist()
    return {"segment": table.segment, "recording": table.recording, "label": table.label, "fold": fold}


def _csv(read: Callable[[Evaluation], Columns]) -> Callable[[Evaluation, Path], None]:
    """Return a writer of the columns that `read` takes from an evaluation."""

    def write(evaluation: Evaluation, path: Path) -> None:
        columns = read(evaluation)
        rows = zip(*([_cell(value) for value in column] for column in columns.values()), strict=True)
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(",".join(row) + "\n" for row in chain([tuple(columns)], rows))

    return write


def _cell(value: object) -> str:
    """Return a value as text that reads back as the same value."""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"' if NEEDS_QUOTES.search(value) else value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(value)) if value == value else "NaN"
    return str(value)


def _write_curve(evaluation: Evaluation, path: Path) -> None:
    schema = {name: DTYPES[kind] for name, kind in get_type_hints(Curve).items()}
    frame = pl.DataFrame(_columns(get_type_hints(Curve), evaluation.curve), schema=schema)
    frame.write_parquet(path, compression="zstd", row_group_size=ROW_GROUP)


def _write_values(evaluation: Evaluation, path: Path) -> None:
    """Write every value, streaming: the columns that say whose they are would be larger than the values."""
    rows = [_value_rows(values) for values in evaluation.values]
    pl.concat(rows).sink_parquet(path, compression="zstd", row_group_size=ROW_GROUP)


def _value_rows(values: Values) -> pl.LazyFrame:
    shots, samples = values.value.shape
    keys = [pl.lit(getattr(values, name), pl.String).alias(name) for name in list(get_type_hints(Values))[:-2]]
    k, index = np.repeat(values.k.astype(np.int64), samples), np.tile(np.arange(samples), shots)
    return pl.LazyFrame({"k": k, "index": index, "value": values.value.ravel()}).select(*keys, "k", "index", "value")


WRITERS: dict[str, Callable[[Evaluation, Path], None]] = {
    "curve.csv": _csv(lambda e: _columns(get_type_hints(Curve), e.curve)),
    "curve.parquet": _write_curve,
    "values.parquet": _write_values,
    "classes.csv": _csv(lambda e: _columns(CLASS_COLUMNS, e.classes)),
    "folds.csv": _csv(_fold_columns),
    "per_class.csv": _csv(lambda e: _columns(get_type_hints(ClassCurve), e.per_class)),
    "confusion.csv": _csv(lambda e: _columns(get_type_hints(Confusion), e.confusion)),
    "ties.csv": _csv(lambda e: _columns(get_type_hints(Ties), e.ties)),
}
FIGURES = ("sweep.pdf", "sweep.png")
