"""Embeddings and classes → notes: what a reader of the numbers should know about the data."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from callshot.errors import count_text, quote_names
from callshot.records import COMMON_FOLD, ClassCount, Embeddings, Folds
from callshot.records.duplicates import (
    NO_GROUP,
    describe_duplicates,
    find_equal_vectors,
)
from callshot.records.frames import DUPLICATES, Frame, make_frame


def describe_doubtful_labels(table: Embeddings) -> Iterator[str]:
    """Yield a note on labels that differ only in space or case, and on overlapping labels only.

    >>> labels = [("roar, rumble",), ()]
    >>> table = Embeddings("e", [[0.0], [1.0]], "ab", "xy", ["roar", "Roar "], labels)
    >>> for note in describe_doubtful_labels(table): print(note)
    the labels 'Roar ', 'roar' differ only in space or case; they count as different classes
    only in the column labels, never a segment's own label: 'roar, rumble'
    """
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


def list_duplicates(corpus: str, table: Embeddings, folds: Folds) -> Frame:
    """Return the segments whose vector is also in another recording."""
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
    """Yield a note on equal vectors in different folds, if there are any.

    Where all examples come from the common fold, that is vectors in it and in another fold.
    """
    is_query = pl.col("fold") != COMMON_FOLD
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


def describe_uncategorised(
    categories: Mapping[str, str] | None, counts: Sequence[ClassCount]
) -> list[str]:
    """Return a note on the eligible classes that reduced scoring leaves out."""
    if categories is None:
        return []
    names = [
        count.label
        for count in counts
        if count.eligible and count.label not in categories
    ]
    if not names:
        return []
    return [f"without a category, so not in the reduced scoring: {quote_names(names)}"]
