"""Arrays or tables of embeddings → tables and their folds, checked."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from callshot.errors import InputError
from callshot.fewshot.dataset import Dataset, distinct_tables
from callshot.fewshot.folds import check_tables, choose_folds
from callshot.records import Embeddings, Evaluation, Folds
from callshot.records.duplicates import describe_grouping
from callshot.tables.dataset import group_tables

Data = Embeddings | Sequence[Embeddings] | Any


def collect_tables(
    X: Data,
    y: Sequence[str] | None,
    groups: Sequence[Any] | None,
    prefix: str = "",
) -> Sequence[Embeddings]:
    """Return tables of embeddings, from tables or from arrays.

    `prefix` begins the names of rows of an array.
    """
    if isinstance(X, Embeddings):
        return [X]
    if isinstance(X, Sequence) and len(X) > 0 and isinstance(X[0], Embeddings):
        return X
    if y is None:
        raise InputError("y: an array X needs the label of each row")
    names = [f"{prefix}{row:08}" for row in range(len(y))]
    recordings = _texts("groups", names if groups is None else groups)
    labels = _texts("y", y)
    vectors: Any = X
    return [
        Embeddings(
            encoder="X",
            vectors=vectors,
            segment=names,
            recording=recordings,
            label=labels,
            labels=[()] * len(y),
        )
    ]


def collect_queries(queries: Any) -> Sequence[Embeddings]:
    """Return tables of queries, from tables, or from arrays (X, y) or (X, y, groups)."""
    is_arrays = isinstance(queries, tuple) and len(queries) in (2, 3)
    if is_arrays and not isinstance(queries[0], Embeddings):
        X, y, groups = (*queries, None)[:3]
        return collect_tables(X, y, groups, prefix="query ")
    try:
        return collect_tables(queries, None, None)
    except InputError:
        raise InputError(
            "queries: expected embeddings, or arrays in a tuple: (X, y) or (X, y, groups)"
        ) from None


def _texts(name: str, values: Iterable[Any]) -> list[str]:
    """Return values as texts; check that none is missing or blank."""
    texts = []
    for row, value in enumerate(values, 1):
        is_missing = value is None or value != value
        text = "" if is_missing else str(value)
        if not text.strip():
            raise InputError(f"{name}: row {row}: expected a value, got {value!r}")
        texts.append(text)
    return texts


def resolve_folds(tables: Sequence[Embeddings], folds: Folds | int | None) -> Folds:
    """Check the tables; return their folds, given, or built by number."""
    if not isinstance(folds, Folds):
        count = None if folds is None else operator.index(folds)
        one_fold = np.zeros(len(tables[0]), np.int64)
        check_tables(tables, Folds(one_fold, 1, "given"))
        folds = choose_folds(tables[0], count)
    return check_tables(tables, folds)


def make_dataset(
    corpus: str,
    tables: Sequence[Embeddings],
    folds: Folds | int | None,
    group_duplicates: bool,
    categories: Mapping[str, str] | None = None,
) -> Dataset:
    """Return checked tables with their folds; notes name recordings that were grouped."""
    recordings = tables[0].recording
    if group_duplicates:
        tables = group_tables(tables)
    return Dataset(
        corpus=corpus,
        tables=tables,
        folds=resolve_folds(tables, folds),
        categories=categories,
        notes=list(describe_grouping(recordings, tables[0].recording)),
    )


def check_same_data(tables: Sequence[Embeddings], against: Evaluation) -> None:
    """Check that results come from the same segments and encoders."""
    for name in ("segment", "recording", "label"):
        if getattr(tables[0], name) != getattr(against.segments, name):
            raise InputError(
                f"against: column {name} differs; pass the results of the same data"
            )
    encoders = [table.encoder for table in distinct_tables(tables)]
    if encoders != against.encoders:
        raise InputError(
            f"against: has the encoders {', '.join(against.encoders)}; pass the same tables"
        )
