"""Embeddings and classes → notes: what a reader of the numbers should know about the data."""

from collections.abc import Iterator, Mapping, Sequence

from callshot.records import ClassCount, Embeddings


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
                f"the labels {_quote_names(names)} differ only in space or case; "
                "they count as different classes"
            )
    extra = {name for names in table.labels for name in names} - set(table.label)
    if extra:
        yield (
            f"only in the column labels, never a segment's own label: {_quote_names(sorted(extra))}"
        )


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
    return [f"without a category, so not in the reduced scoring: {_quote_names(names)}"]


def _quote_names(names: Sequence[str], most: int = 8) -> str:
    text = ", ".join(repr(name) for name in names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text
