"""Tables of embeddings and the small files beside them → the ground that every classifier of a corpus stands on.

The centroid and its rivals are held against each other on the same segments, folds, queries and categories: those that
are read here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from callshot.corpus.known_corpora import CORPORA
from callshot.fewshot.episodes import Episodes, order_rows, plan_episodes
from callshot.fewshot.evaluate import choose_folds
from callshot.fewshot.folds import DEFAULT_FOLDS, count_classes, evaluated_classes
from callshot.files import describe_file
from callshot.records import ClassCount, Embeddings, Folds, IntArray
from callshot.tables.embedding_tables import read_tables, table_corpus
from callshot.tables.fold_files import FOLDS, read_categories, read_folds, read_folds_dir


@dataclass(frozen=True)
class Dataset:
    """The embeddings of a corpus by several encoders, its folds and categories; `files` tells where they are from."""

    corpus: str
    tables: Sequence[Embeddings]
    folds: Folds
    categories: Mapping[str, str] | None
    files: Sequence[Mapping[str, Any]] = ()
    known: str = ""  # which of the corpora that callshot knows it is

    @cached_property
    def classes(self) -> list[ClassCount]:
        """The bookkeeping of the classes."""
        first = self.tables[0]
        return count_classes(first.label, self.folds, first.recording)

    def encoder_datasets(self) -> Iterator["EncoderDataset"]:
        """Yield the part of each encoder."""
        return (EncoderDataset(self, table) for table in self.tables)


@dataclass(frozen=True)
class EncoderDataset:
    """The part of one encoder: its episodes, and the rows of the table that they are made of."""

    dataset: Dataset
    table: Embeddings

    @cached_property
    def episodes(self) -> Episodes:
        """What the engine reads."""
        return plan_episodes(self.table, self.dataset.folds, self.dataset.classes)

    @cached_property
    def rows(self) -> IntArray:
        """The row of the table that each row of the episodes is."""
        return order_rows(self.table, evaluated_classes(self.dataset.classes))

    @cached_property
    def groups(self) -> IntArray:
        """The number of the recording that each row of the episodes is from."""
        return np.unique(self.table.recording, return_inverse=True)[1][self.rows]

    @property
    def segments(self) -> list[str]:
        """The segment that each row of the episodes is."""
        return [self.table.segment[row] for row in self.rows.tolist()]


def read_dataset(
    paths: Sequence[Path],
    *,
    folds: int | None = None,
    fold_file: Path | None = None,
    folds_dir: Path | None = None,
    categories: Path | None = None,
    corpus: str | None = None,
) -> Dataset:
    """Read tables, and choose their folds and categories.

    Folds are built, given by a file, or `dealt`: what `fold_files` wrote, and of the tables only what is in that. A
    known corpus brings its number of folds and its categories, where none are given.
    """
    tables = read_tables(paths)
    name = corpus or table_corpus(paths[0]) or paths[0].absolute().parent.name or "corpus"
    known = CORPORA.get(name) or CORPORA.get(table_corpus(paths[0]) or "")
    if folds_dir is not None:
        parts = [read_folds_dir(folds_dir, table) for table in tables]
        tables, chosen = [part for part, _ in parts], parts[0][1]
    else:
        given = read_folds(fold_file, tables[0]) if fold_file is not None else None
        default = DEFAULT_FOLDS if known is None else known.folds
        chosen = choose_folds(tables[0], folds, given, fold_file, default=default)
    groups = None if known is None else known.categories_of(set(tables[0].label))
    groups = groups if categories is None else read_categories(categories, tables[0])
    files = [
        describe_file(path, encoder=t.encoder, role="table")
        for path, t in zip(paths, tables, strict=True)
    ]
    for role, path in {
        "folds": folds_dir / FOLDS if folds_dir else fold_file,
        "categories": categories,
    }.items():
        files += [describe_file(path, role=role)] if path is not None else []
    return Dataset(name, tables, chosen, groups, files, "" if known is None else known.name)
