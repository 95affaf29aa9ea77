"""Files of a corpus → a `Dataset`: tables of one or more encoders, folds and categories."""

import operator
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from callshot.corpus.options import CORPORA
from callshot.errors import InputError
from callshot.fewshot.dataset import Dataset, distinct_tables
from callshot.fewshot.folds import (
    DEFAULT_FOLDS,
    check_no_leak,
    check_tables,
    choose_folds,
)
from callshot.files import describe_file
from callshot.records import Evaluation, Folds
from callshot.records.duplicates import (
    describe_grouping,
    find_equal_vectors,
    group_recordings,
)
from callshot.storage import to_path
from callshot.tables.embedding_tables import read_tables
from callshot.tables.fold_files import (
    FOLDS,
    read_categories,
    read_folds,
    read_folds_dir,
    take_recordings,
)
from callshot.vectors import Vectors


def read_dataset(
    paths: Sequence[Path],
    *,
    folds: int | None = None,
    fold_file: Path | None = None,
    folds_dir: Path | None = None,
    categories: Path | None = None,
    corpus: str | None = None,
    group_duplicates: bool = False,
    role: str = "table",
) -> Dataset:
    """Read tables of one or more encoders over the same segments, and choose folds and categories.

    Folds are built, given by `fold_file`, or read from `folds_dir`, a folder with `folds.csv` and
    `folds.json`; then only the segments in these files count. A known corpus brings its number of
    folds and its categories, where none are given. With `group_duplicates`, recordings that share
    a segment with the same vector are one recording; so are recordings with one name in the file
    of folds. `role` says in the provenance what the tables are used for.
    """
    paths = [to_path(path) for path in paths]
    tables = read_tables(paths)
    recordings = tables[0].recording  # before any are grouped
    table_name = tables[0].spans.metadata.get("corpus", "")
    name = corpus or table_name or paths[0].absolute().parent.name or "corpus"
    known_corpus = CORPORA.get(name) or CORPORA.get(table_name)
    if folds_dir is None:
        default = DEFAULT_FOLDS if known_corpus is None else known_corpus.folds
        given = None if fold_file is None else read_folds(fold_file, tables[0].spans)
        if group_duplicates:
            tables = group_tables(tables)
        chosen_folds = choose_folds(
            tables[0].spans, folds, given, fold_file, default=default
        )
    else:
        fold_file = folds_dir / FOLDS
        tables_and_folds = [read_folds_dir(folds_dir, table) for table in tables]
        tables = [table for table, _ in tables_and_folds]
        _, chosen_folds = tables_and_folds[0]  # the same for all tables
        recordings = tables[0].recording
    if fold_file is not None:
        check_no_leak(tables[0].recording, chosen_folds.fold)
        tables = [take_recordings(fold_file, table) for table in tables]
    files = [
        describe_file(path, encoder=table.encoder, role=role)
        for path, table in zip(paths, tables, strict=True)
    ]
    for kind, file in {"folds": fold_file, "categories": categories}.items():
        if file is not None:
            files.append(describe_file(file, role=kind))
    category_of = None
    if categories is not None:
        category_of = read_categories(categories, tables[0].spans)
    elif known_corpus is not None:
        category_of = known_corpus.categories_of(set(tables[0].label))
    return Dataset(
        corpus=name,
        tables=tables,
        folds=chosen_folds,
        categories=category_of,
        files=files,
        known_corpus="" if known_corpus is None else known_corpus.name,
        notes=list(describe_grouping(recordings, tables[0].recording)),
    )


def group_tables(tables: Sequence[Vectors]) -> list[Vectors]:
    """Return tables in which recordings that share an equal vector are one recording."""
    groups = [find_equal_vectors(table) for table in tables]
    recordings = group_recordings(tables[0].recording, groups)
    return [table.with_columns(recording=recordings) for table in tables]


Data = Vectors | Sequence[Vectors] | Any


def collect_tables(
    X: Data,
    y: Sequence[str] | None = None,
    groups: Sequence[Any] | None = None,
    prefix: str = "",
) -> Sequence[Vectors]:
    """Return tables as they are, or make one of arrays.

    `groups` are the recordings of rows; without them, each row is a recording of its own. `prefix`
    begins the names of rows, so that those of examples and queries differ.
    """
    if isinstance(X, Vectors):
        return [X]
    if isinstance(X, Sequence) and len(X) > 0 and isinstance(X[0], Vectors):
        return X
    if y is None:
        raise InputError("y: an array X needs the label of each row")
    names = [f"{prefix}{row:08}" for row in range(len(y))]
    recordings = _texts("groups", names if groups is None else groups)
    vectors: Any = X
    labels = [()] * len(y)
    return [
        Vectors.from_columns("X", vectors, names, recordings, _texts("y", y), labels)
    ]


def collect_queries(queries: Any) -> Sequence[Vectors]:
    """Return tables of queries, from tables, or from arrays (X, y) or (X, y, groups)."""
    is_arrays = isinstance(queries, tuple) and len(queries) in (2, 3)
    if is_arrays and not isinstance(queries[0], Vectors):
        X, y, groups = (*queries, None)[:3]
        return collect_tables(X, y, groups, prefix="query ")
    try:
        return collect_tables(queries)
    except InputError:
        raise InputError(
            "queries: expected embeddings, or arrays in a tuple: (X, y) or (X, y, groups)"
        ) from None


def _texts(name: str, values: Iterable[Any]) -> list[str]:
    """Return values as texts; raise InputError if one is missing or blank. `name` is for errors."""
    texts = []
    for row, value in enumerate(values, 1):
        is_missing = value is None or value != value  # NaN
        text = "" if is_missing else str(value)
        if not text.strip():
            raise InputError(f"{name}: row {row}: expected a value, got {value!r}")
        texts.append(text)
    return texts


def resolve_folds(tables: Sequence[Vectors], folds: Folds | int | None) -> Folds:
    """Check the tables; return the given folds, or build as many as asked for."""
    if not isinstance(folds, Folds):
        count = None if folds is None else operator.index(folds)
        # The tables must be valid before folds can be built from them.
        one_fold = np.zeros(len(tables[0]), np.int64)
        check_tables(tables, Folds(one_fold, 1, "given"))
        folds = choose_folds(tables[0].spans, count)
    return check_tables(tables, folds)


def make_dataset(
    corpus: str,
    tables: Sequence[Vectors],
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


def check_same_data(tables: Sequence[Vectors], against: Evaluation) -> None:
    """Raise InputError unless an evaluation is of the segments and encoders of these tables."""
    for name in ("segment", "recording", "label"):
        if tables[0].spans[name] != against.segments[name]:
            raise InputError(
                f"against: column {name} differs; pass the results of the same data"
            )
    encoders = [table.encoder for table in distinct_tables(tables)]
    if encoders != against.encoders:
        raise InputError(
            f"against: has the encoders {', '.join(against.encoders)}; pass the same tables"
        )
