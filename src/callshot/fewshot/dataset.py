"""Datasets: what every classifier of a corpus is evaluated on, and notes on its data."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from callshot.errors import count_text, quote_names
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import complete_shots, count_classes
from callshot.records import COMMON_FOLD, ClassCount, Evaluation, Folds, IntArray
from callshot.records.duplicates import (
    NO_GROUP,
    describe_duplicates,
    find_equal_vectors,
)
from callshot.records.frames import DUPLICATES, Frame, make_frame
from callshot.vectors import Vectors

Names = AbstractSet[str]


@dataclass(frozen=True)
class Dataset:
    """The embeddings of a corpus by several encoders, with its folds and categories.

    `files` describes the files that it was read from. `notes` are for the readers of the results.
    """

    corpus: str
    tables: Sequence[Vectors]
    folds: Folds
    categories: Mapping[str, str] | None = None
    files: Sequence[Mapping[str, Any]] = ()
    known_corpus: str = ""
    notes: Sequence[str] = ()

    @cached_property
    def classes(self) -> list[ClassCount]:
        """The exemplars of each class, and whether it is evaluated."""
        return count_classes(self.first.label, self.folds, self.first.recording)

    def per_encoder(self) -> Iterator["EncoderDataset"]:
        """Yield the data of each encoder."""
        return (EncoderDataset(self, table) for table in self.tables)

    @property
    def first(self) -> Vectors:
        """The table of the first encoder."""
        return self.tables[0]

    @property
    def encoders(self) -> list[str]:
        """The names of the encoders."""
        return [table.encoder for table in self.tables]

    @property
    def labels(self) -> Names:
        """The labels of all segments."""
        return frozenset(self.first.label)

    def only(self, labels: Names) -> "Dataset":
        """Keep the segments whose own label is one of `labels`; drop other overlapping labels."""
        kept = [label in labels for label in self.first.label]
        rows = zip(self.first.segment, kept, strict=True)
        segments = {segment for segment, is_kept in rows if is_kept}
        tables = []
        for table in self.tables:
            selected = table.only(segments)
            overlapping = [
                tuple(name for name in names if name in labels)
                for names in selected.labels
            ]
            tables.append(selected.with_columns(labels=overlapping))
        return replace(
            self, tables=tables, folds=replace(self.folds, fold=self.folds.fold[kept])
        )


def equal_tables(tables: Sequence[Vectors]) -> dict[int, int]:
    """Find the tables that repeat the vectors of an earlier table.

    The keys of the result are the positions of these tables in `tables`, the values the position of
    the first table with the same vectors.

    >>> table = Vectors.from_columns("a", np.eye(2), ["x", "y"], ["x", "y"], ["b", "c"], [(), ()])
    >>> equal_tables([table, replace(table, matrix=np.ones((2, 1))), table])
    {2: 0}
    """
    equal = {}
    for position, table in enumerate(tables):
        for earlier, other in enumerate(tables[:position]):
            # Every split rescales the columns of each joined encoder. So equal vectors give other
            # results if they were joined from encoders with other numbers of columns.
            is_joined_alike = table.joined_dimensions == other.joined_dimensions
            if is_joined_alike and np.array_equal(table.matrix, other.matrix):
                equal[position] = earlier
                break
    return equal


def distinct_tables(tables: Sequence[Vectors]) -> list[Vectors]:
    """Return the tables whose vectors no earlier one has."""
    equal = equal_tables(tables)
    return [table for number, table in enumerate(tables) if number not in equal]


def describe_equal(encoder: str, first: str) -> str:
    """Return that two encoders gave the same vectors, and which name the results have."""
    return f"{encoder} gives the same vectors as {first}: both are measured once, as {first}"


@dataclass(frozen=True)
class EncoderDataset:
    """The data of one encoder: its table, and the episodes made from the rows of that table."""

    dataset: Dataset
    table: Vectors

    @cached_property
    def episodes(self) -> Episodes:
        """The arrays that classifiers are evaluated on."""
        return plan_episodes(self.table, self.dataset.folds, self.dataset.classes)

    @property
    def segments(self) -> tuple[str, ...]:
        """The segment of each row of the episodes."""
        return self.episodes.segment

    @cached_property
    def groups(self) -> IntArray:
        """The number of the recording of each row of the episodes."""
        _, groups = np.unique(self.table.recording, return_inverse=True)
        return groups[self.episodes.rows]

    def empty_evaluation(self) -> Evaluation:
        """Return an evaluation of this dataset without results."""
        dataset = self.dataset
        return Evaluation(
            corpus=dataset.corpus,
            complete_shots=complete_shots(dataset.classes),
            queries=int((self.episodes.fold != COMMON_FOLD).sum()),
            classes=dataset.classes,
            folds=dataset.folds,
            segments=self.table.spans,
        )


def describe_labels(
    table: Vectors,
    categories: Mapping[str, str] | None = None,
    counts: Sequence[ClassCount] = (),
) -> Iterator[str]:
    """Yield notes on labels that may be mistakes, and on evaluated classes without a category.

    >>> labels = [("roar, rumble",), ()]
    >>> table = Vectors.from_columns("e", [[0.0], [1.0]], "ab", "xy", ["roar", "Roar "], labels)
    >>> for note in describe_labels(table): print(note)
    the labels 'Roar ', 'roar' differ only in space or case; they count as different classes
    only in the column labels, never a segment's own label: 'roar, rumble'
    """
    # Labels by their text without case and extra space
    similar: dict[str, list[str]] = {}
    for name in sorted(set(table.label)):
        similar.setdefault(" ".join(name.split()).casefold(), []).append(name)
    for names in similar.values():
        if len(names) > 1:
            yield (
                f"the labels {quote_names(names)} differ only in space or case; "
                "they count as different classes"
            )
    extra = {name for names in table.labels for name in names} - set(table.label)
    if extra:
        yield (
            f"only in the column labels, never a segment's own label: {quote_names(sorted(extra))}"
        )
    if categories is not None:
        classes = [count.label for count in counts if count.eligible]
        names = [name for name in classes if name not in categories]
        if names:
            yield f"without a category, so not in the reduced scoring: {quote_names(names)}"


def list_duplicates(corpus: str, table: Vectors, folds: Folds) -> Frame:
    """Return the segments whose vector is also in another recording: rows of DUPLICATES."""
    columns = {
        "group": find_equal_vectors(table),
        "segment": table.segment,
        "recording": table.recording,
        "label": table.label,
        "fold": folds.fold,
    }
    constants = {"corpus": corpus, "encoder": table.encoder}
    frame = make_frame(DUPLICATES, columns, constants)
    grouped = frame.filter(pl.col("group") != NO_GROUP)
    return grouped.sort("group", maintain_order=True)


def describe_leaks(duplicates: Frame, folds: Folds) -> Iterator[str]:
    """Yield a note for each encoder with equal vectors on both sides of a split.

    `duplicates` are rows of DUPLICATES: segments in groups of equal vectors.
    """
    is_query = pl.col("fold") != COMMON_FOLD
    # If only the common fold gives examples, equal queries in two folds do no harm.
    side = is_query if folds.only_common else pl.col("fold")
    is_leak = side.n_unique().over("encoder", "group") > 1
    leaks = duplicates.filter(is_leak)
    for (encoder,), rows in leaks.group_by("encoder", maintain_order=True):
        if folds.only_common:
            queries = rows.filter(is_query)
            verb = "has" if len(queries) == 1 else "have"
            yield (
                f"{encoder}: {count_text(len(queries), 'query')} {verb} the same vector as an "
                "example (the first: "
                f"{queries['segment'][0]}), so the scores are too high; remove these calls from "
                "one of the tables; duplicates.csv lists them"
            )
            continue
        groups = rows["group"].to_numpy()
        segments = rows["segment"].to_list()
        for note in describe_duplicates(groups, segments, "vector"):
            yield f"{encoder}: {note}; duplicates.csv lists them"
