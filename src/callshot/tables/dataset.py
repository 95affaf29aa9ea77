"""Files of a corpus → a `Dataset`: tables of one or more encoders, folds and categories."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from callshot.fewshot.dataset import Dataset
from callshot.fewshot.folds import (
    DEFAULT_FOLDS,
    check_no_leak,
    choose_folds,
)
from callshot.files import describe_file
from callshot.records import Embeddings
from callshot.records.duplicates import (
    describe_grouping,
    find_equal_vectors,
    group_recordings,
)
from callshot.storage import to_path
from callshot.tables.embedding_tables import read_tables, table_corpus
from callshot.tables.fold_files import (
    FOLDS,
    read_categories,
    read_folds,
    read_folds_dir,
    take_recordings,
)


class KnownCorpus(Protocol):
    """What is known in advance about a corpus."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def folds(self) -> int:
        """The number of folds."""

    def categories_of(self, labels: Collection[str]) -> Mapping[str, str] | None:
        """Return the category of each label that has one."""


def read_dataset(
    paths: Sequence[Path],
    *,
    folds: int | None = None,
    fold_file: Path | None = None,
    folds_dir: Path | None = None,
    categories: Path | None = None,
    corpus: str | None = None,
    group_duplicates: bool = False,
    known_corpora: Mapping[str, KnownCorpus] | None = None,
) -> Dataset:
    """Read tables, and choose their folds and categories.

    Folds are built, given by a file, or read from a folder with `folds.csv` and `folds.json`; then
    only the segments in that folder count. A corpus among `known_corpora` brings its number of
    folds and its categories, where none are given. With `group_duplicates`, recordings that
    share a segment with the same vector are one recording; so are those that have one name in the
    file of folds.
    """
    paths = [to_path(path) for path in paths]
    tables = read_tables(paths)
    recordings = tables[0].recording
    table_name = table_corpus(paths[0]) or ""
    name = corpus or table_name or paths[0].absolute().parent.name or "corpus"
    known_corpora = known_corpora or {}
    known_corpus = known_corpora.get(name) or known_corpora.get(table_name)
    if folds_dir is None:
        default = DEFAULT_FOLDS if known_corpus is None else known_corpus.folds
        fold = None if fold_file is None else read_folds(fold_file, tables[0])
        if group_duplicates:
            tables = group_tables(tables)
        chosen_folds = choose_folds(tables[0], folds, fold, fold_file, default=default)
    else:
        fold_file = folds_dir / FOLDS
        parts = [read_folds_dir(folds_dir, table) for table in tables]
        tables = [part for part, _ in parts]
        chosen_folds = parts[0][1]
        recordings = tables[0].recording
    if fold_file is not None:
        check_no_leak(tables[0].recording, chosen_folds.fold)
        tables = [take_recordings(fold_file, table) for table in tables]
    return Dataset(
        corpus=name,
        tables=tables,
        folds=chosen_folds,
        categories=_choose_categories(categories, known_corpus, tables[0]),
        files=_describe_files(paths, tables, fold_file, categories),
        known_corpus="" if known_corpus is None else known_corpus.name,
        notes=list(describe_grouping(recordings, tables[0].recording)),
    )


def _choose_categories(
    file: Path | None, known_corpus: KnownCorpus | None, table: Embeddings
) -> Mapping[str, str] | None:
    """Return the category of each label, from a file or of a known corpus."""
    if file is not None:
        return read_categories(file, table)
    if known_corpus is None:
        return None
    return known_corpus.categories_of(set(table.label))


def group_tables(tables: Sequence[Embeddings]) -> list[Embeddings]:
    """Return tables in which recordings that share an equal vector are one recording."""
    groups = [find_equal_vectors(table) for table in tables]
    recordings = group_recordings(tables[0].recording, groups)
    return [replace(table, recording=recordings) for table in tables]


def _describe_files(
    paths: Sequence[Path],
    tables: Sequence[Embeddings],
    fold_file: Path | None,
    categories: Path | None,
) -> list[dict[str, Any]]:
    files = []
    for path, table in zip(paths, tables, strict=True):
        files.append(describe_file(path, encoder=table.encoder, role="table"))
    if fold_file is not None:
        files.append(describe_file(fold_file, role="folds"))
    if categories is not None:
        files.append(describe_file(categories, role="categories"))
    return files
