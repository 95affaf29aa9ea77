"""Arrays or tables of embeddings → tables and their folds, checked."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from callshot.errors import InputError
from callshot.fewshot.evaluate import check_tables
from callshot.fewshot.folds import choose_folds
from callshot.records import Embeddings, Evaluation, Folds

Data = Embeddings | Sequence[Embeddings] | Any


def collect_tables(
    X: Data, y: Sequence[str] | None, groups: Sequence[Any] | None
) -> Sequence[Embeddings]:
    """Return tables of embeddings, from tables or from arrays."""
    if isinstance(X, Embeddings):
        return [X]
    if isinstance(X, Sequence) and len(X) > 0 and isinstance(X[0], Embeddings):
        return X
    if y is None:
        raise InputError("y: an array X needs the label of each row")
    names = [f"{row:08}" for row in range(len(y))]
    recordings = _texts("groups", names if groups is None else groups)
    labels = _texts("y", y)
    vectors: Any = X
    return [Embeddings("X", vectors, names, recordings, labels, [()] * len(y))]


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


def check_same_data(tables: Sequence[Embeddings], against: Evaluation) -> None:
    """Check that results come from the same segments and encoders."""
    for name in ("segment", "recording", "label"):
        if getattr(tables[0], name) != getattr(against.segments, name):
            raise InputError(
                f"against: column {name} differs; pass the results of the same data"
            )
    if [table.encoder for table in tables] != against.encoders:
        raise InputError(
            f"against: has the encoders {', '.join(against.encoders)}; pass the same tables"
        )
