"""Tables of a source and a target corpus → one table, in which the source is the common fold.

All supports come from the source, and the folds of the target only query. Two tables are of one
encoder by its fingerprint, or by its name where that is not known.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from callshot.errors import InputError, quote_names
from callshot.fewshot.dataset import Dataset, Names
from callshot.records import COMMON_FOLD, Embeddings

CENTRED = "{}, centred"
# Of names in the source that the target has too. Random numbers depend on it.
PREFIX = "library: "


def pair_tables(source: Dataset, target: Dataset) -> Dataset:
    """Return the target with one table for each of the source, by the same encoder."""
    tables = [find_partner(table, target.tables) for table in source.tables]
    return replace(target, tables=tables)


def add_centred(corpus: Dataset, source: Dataset) -> Dataset:
    """Return a corpus with further tables: every vector minus the mean of its table.

    Their names are those of the source's tables. Labels are not used.
    """
    tables = list(corpus.tables)
    for table, named in zip(corpus.tables, source.tables, strict=True):
        vectors = np.asarray(table.vectors, np.float64)
        centred = vectors - vectors.mean(axis=0)
        name = CENTRED.format(named.encoder)
        tables.append(replace(table, encoder=name, vectors=centred))
    return replace(corpus, tables=tables)


def common_labels(source: Dataset, target: Dataset) -> Names:
    """Return the labels that both corpora have; there must be two."""
    common = source.labels & target.labels
    if len(common) < 2:
        raise InputError(
            f"{target.first.source}: expected two labels or more that {source.first.source} has "
            f"too, got {quote_names(sorted(common)) or 'none'} (labels of the queries: "
            f"{quote_names(sorted(target.labels))}; of the examples: "
            f"{quote_names(sorted(source.labels))}); "
            "rename labels with callshot segment --rename"
        )
    return common


def join_corpora(source: Dataset, target: Dataset) -> Dataset:
    """Return the tables of the source, each followed by the queries of its partner.

    Segments that the target has in a common fold of its own are left out.
    """
    queries = target.only_queries()
    pairs = zip(source.tables, queries.tables, strict=True)
    tables = [_join_tables(examples, query) for examples, query in pairs]
    example_fold = np.full(len(source.first), COMMON_FOLD)
    fold = np.concatenate([example_fold, queries.folds.fold])
    folds = replace(target.folds, fold=fold, only_common=True)
    return replace(target, tables=tables, folds=folds)


def _join_tables(source: Embeddings, target: Embeddings) -> Embeddings:
    """Return the rows of both; no segment or recording is in both.

    Random numbers depend on names, so only names that both have are changed, in the source.
    """
    return replace(
        source,
        vectors=np.concatenate([source.vectors, target.vectors]),
        segment=[*_rename(source.segment, target.segment), *target.segment],
        recording=[*_rename(source.recording, target.recording), *target.recording],
        label=[*source.label, *target.label],
        labels=[*source.labels, *target.labels],
        fold=None,
    )


def _rename(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    used = set(taken)
    return [PREFIX + name if name in used else name for name in names]


def find_partner(table: Embeddings, candidates: Sequence[Embeddings]) -> Embeddings:
    """Return the table that is by the same encoder.

    >>> from callshot.records import Embeddings
    >>> one = Embeddings("mfcc", [[0.0]], "a", "x", ["roar"], [()])
    >>> find_partner(one, [one]).encoder
    'mfcc'
    """
    matching = [other for other in candidates if is_same_encoder(table, other)]
    if not matching and len(candidates) == 1 and _lacks_name(table, candidates[0]):
        matching = list(candidates)
    if not matching:
        listed = ", ".join(
            f"{other.encoder!r} ({other.source})" for other in candidates
        )
        raise InputError(
            f"{table.source}: its encoder is {table.encoder!r}{_explain(table, candidates)}, "
            f"that of the queries is {listed}; embed both with the same encoder and options"
        )
    _check_dimension(table, matching[0])
    return matching[0]


def _check_dimension(table: Embeddings, partner: Embeddings) -> None:
    size = table.vectors.shape[1]
    partner_size = partner.vectors.shape[1]
    if size != partner_size or table.joined_dimensions != partner.joined_dimensions:
        raise InputError(
            f"{table.source}: expected vectors of {partner_size} dimensions, as in "
            f"{partner.source}, got {size}; embed both with the same encoder and options"
        )


def is_same_encoder(one: Embeddings, other: Embeddings) -> bool:
    """Return whether two tables are by one encoder, with the same options and weights."""
    if one.fingerprint and other.fingerprint:
        return one.fingerprint == other.fingerprint
    return one.encoder == other.encoder


def _explain(table: Embeddings, candidates: Sequence[Embeddings]) -> str:
    """Return how encoders of one name differ, where they do."""
    if any(other.encoder == table.encoder for other in candidates):
        return " with other weights, speeds or options"
    return ""


def _lacks_name(one: Embeddings, other: Embeddings) -> bool:
    """Return whether one of two tables has no name of an encoder but that of its file."""
    if one.fingerprint and other.fingerprint:
        return False
    return any(table.encoder == Path(table.source).stem for table in (one, other))
