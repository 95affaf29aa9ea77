"""Are two tables of one encoder? By its fingerprint, or by its name where that is not known."""

from collections.abc import Sequence
from pathlib import Path

from callshot.errors import InputError
from callshot.records import Embeddings


def find_partner(table: Embeddings, others: Sequence[Embeddings]) -> Embeddings:
    """Return the table of others that is by the same encoder.

    >>> from callshot.records import Embeddings
    >>> one = Embeddings("mfcc", [[0.0]], "a", "x", ["roar"], [()])
    >>> find_partner(one, [one]).encoder
    'mfcc'
    """
    matching = [other for other in others if is_same_encoder(table, other)]
    if not matching and len(others) == 1 and _lacks_name(table, others[0]):
        matching = list(others)
    if not matching:
        listed = ", ".join(f"{other.encoder!r} ({other.source})" for other in others)
        raise InputError(
            f"{table.source}: its encoder is {table.encoder!r}{_explain(table, others)}, that of "
            f"the queries is {listed}; embed both with the same encoder and options"
        )
    _check_dimension(table, matching[0])
    return matching[0]


def _check_dimension(table: Embeddings, partner: Embeddings) -> None:
    size = table.vectors.shape[1]
    partner_size = partner.vectors.shape[1]
    if size != partner_size or table.views != partner.views:
        raise InputError(
            f"{table.source}: expected vectors of {partner_size} dimensions, as in "
            f"{partner.source}, got {size}; embed both with the same encoder and options"
        )


def is_same_encoder(one: Embeddings, other: Embeddings) -> bool:
    """Return whether two tables are by one encoder, with the same options and weights."""
    if one.fingerprint and other.fingerprint:
        return one.fingerprint == other.fingerprint
    return one.encoder == other.encoder


def _explain(table: Embeddings, others: Sequence[Embeddings]) -> str:
    """Return how encoders of one name differ, where they do."""
    if any(other.encoder == table.encoder for other in others):
        return " with other weights, speeds or options"
    return ""


def _lacks_name(one: Embeddings, other: Embeddings) -> bool:
    """Return whether one of two tables has no name of an encoder but that of its file."""
    if one.fingerprint and other.fingerprint:
        return False
    return any(table.encoder == Path(table.source).stem for table in (one, other))
