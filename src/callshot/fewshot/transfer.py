"""Tables of a source and a target corpus → how well examples of the source work in the target.

Three evaluations: examples of the source on queries of the target, examples of the target itself on
the same queries in the same folds (paired with the first), and the source by itself. For the first,
both are joined to one table, in which the source is the common fold: all supports come from it, and
the folds of the target only query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from callshot.errors import InputError, OptionError, count_text, quote_names
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.differences import Comparison, summarise_comparisons
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import evaluated_classes
from callshot.fewshot.protocol import Protocol
from callshot.records import (
    COMMON_FOLD,
    Evaluation,
    Progress,
    TransferEvaluation,
    no_progress,
)
from callshot.records.evaluation import TARGET_EXAMPLES
from callshot.records.frames import Frame, split_curves, value_matrix
from callshot.vectors import Vectors, concat_vectors

CENTRED = "{}, centred"
# Of names in the source that the target has too. Random numbers depend on it.
PREFIX = "library: "


def find_partner(table: Vectors, candidates: Sequence[Vectors]) -> Vectors:
    """Return the candidate made by the same encoder as `table`, with the same options and weights.

    Encoders are the same if their fingerprints are, or their names if a fingerprint is not known. A
    single candidate also matches if the encoder of one of the two tables is not known.

    >>> from callshot.vectors import Vectors, concat_vectors
    >>> one = Vectors.from_columns("mfcc", [[0.0]], "a", "x", ["roar"], [()])
    >>> find_partner(one, [one]).encoder
    'mfcc'
    """
    is_only = len(candidates) == 1
    matches = [other for other in candidates if _may_match(table, other, is_only)]
    if not matches:
        listed = ", ".join(
            f"{other.encoder!r} ({other.source})" for other in candidates
        )
        same_name = any(other.encoder == table.encoder for other in candidates)
        how = " with other weights, speeds or options" if same_name else ""
        raise InputError(
            f"{table.source}: its encoder is {table.encoder!r}{how}, "
            f"the encoder of the queries is {listed}; embed both with the same encoder and options"
        )
    other = matches[0]
    size = table.matrix.shape[1]
    other_size = other.matrix.shape[1]
    if size != other_size or table.joined_dimensions != other.joined_dimensions:
        raise InputError(
            f"{table.source}: expected vectors of {other_size} dimensions, as in "
            f"{other.source}, got {size}; embed both with the same encoder and options"
        )
    return other


def _may_match(table: Vectors, other: Vectors, is_only: bool) -> bool:
    """Return whether two tables have the same encoder, as far as is known.

    An encoder that is not known has the name of its file. With `is_only`, `other` is the only
    candidate.
    """
    if table.fingerprint and other.fingerprint:
        return table.fingerprint == other.fingerprint
    if table.encoder == other.encoder:
        return True
    is_unknown = any(one.encoder == Path(one.source).stem for one in (table, other))
    return is_only and is_unknown


def add_centred(corpus: Dataset, source: Dataset) -> Dataset:
    """Add a centred copy of each table: every vector minus the table's mean.

    A copy is named after the encoder of the corresponding table of `source`.
    """
    tables = list(corpus.tables)
    for table, named in zip(corpus.tables, source.tables, strict=True):
        vectors = np.asarray(table.matrix, np.float64)
        centred = vectors - vectors.mean(axis=0)
        name = CENTRED.format(named.encoder)
        tables.append(replace(table, encoder=name, matrix=centred))
    return replace(corpus, tables=tables)


def join_corpora(source: Dataset, target: Dataset) -> Dataset:
    """Join each table of the source with the queries of the corresponding table of the target.

    The source becomes the common fold. Names of segments and recordings that both corpora have get
    a prefix in the source; other names stay, because random numbers depend on them.
    """
    is_query = target.folds.fold != COMMON_FOLD
    query_segments = set(np.array(target.first.segment)[is_query])
    tables = []
    for examples, partner in zip(source.tables, target.tables, strict=True):
        queries = partner.only(query_segments)
        columns = {}
        for column in ("segment", "recording"):
            used = set(queries.spans[column])
            names = []
            for name in examples.spans[column]:
                if name in used:
                    name = PREFIX + name
                names.append(name)
            columns[column] = names
        renamed = examples.with_columns(**columns)
        tables.append(concat_vectors([renamed, queries]))
    example_fold = np.full(len(source.first), COMMON_FOLD)
    query_fold = target.folds.fold[is_query]
    fold = np.concatenate([example_fold, query_fold])
    folds = replace(target.folds, fold=fold, only_common=True)
    return replace(target, tables=tables, folds=folds)


EVALUATIONS = 3  # for progress

EncoderPairs = Mapping[str, tuple[str, str]]


def evaluate_transfer(
    source: Dataset,
    target: Dataset,
    protocol: Protocol | None = None,
    *,
    centre: bool = False,
    progress: Progress = no_progress,
    **options: Any,
) -> TransferEvaluation:
    """Evaluate examples of a source corpus on queries of a target corpus, and within both.

    Each table of the source needs one of the target by the same encoder. Categories are the
    target's. With `centre`, there are also curves on vectors minus the mean of their own table.
    `options` are threads, memory, device and cluster, as in `evaluate_tables`.
    """
    protocol = protocol or Protocol()
    # Both are for one corpus: folds that are built anew would mix the two.
    for name in ("repeat_folds", "repeat_samples"):
        if getattr(protocol, name) > 1:
            option = name.replace("_", "-")
            raise OptionError(f"{option}: expected 1 with queries of another table")
    datasets, encoder_pairs, notes = plan_task(source, target, centre)
    # Both corpora together, and each alone with the labels and encoders that both have.
    joined, matched_target, matched_source = datasets

    def evaluate(dataset: Dataset) -> Evaluation:
        """Evaluate one of these datasets, each a third of the progress."""
        return evaluate_tables(
            dataset.tables,
            protocol,
            folds=dataset.folds,
            categories=target.categories,
            corpus=dataset.corpus,
            progress=lambda share, what: progress(share / EVALUATIONS, what),
            **options,
        )

    transfer = evaluate(joined)
    within_target = evaluate(matched_target)
    within_source = None
    try:
        within_source = evaluate(matched_source)
    # The source alone may have too few recordings for folds
    except InputError as error:
        notes.append(f"no curve within {source.corpus}: {error}")
    if within_source is not None and within_source.excluded_classes:
        names = [count.label for count in within_source.excluded_classes]
        notes.append(
            f"the curve within {within_source.corpus} is without {quote_names(names)}: too few "
            "recordings; it is not comparable with the others"
        )
    notes += transfer.notes
    for evaluation in (within_target, within_source):
        if evaluation is not None:
            notes += [
                f"within {evaluation.corpus}: {note}"
                for note in evaluation.notes
                if note not in notes
            ]
    values = {field.name: getattr(transfer, field.name) for field in fields(Evaluation)}
    values["notes"] = notes
    difference = compare_with_target(
        transfer, within_target, encoder_pairs, protocol.reference
    )
    values["differences"] = pl.concat([difference, transfer.differences])
    return TransferEvaluation(
        **values,
        source_corpus=source.corpus,
        within_target=within_target,
        within_source=within_source,
        encoder_pairs=encoder_pairs,
    )


def plan_task(
    source: Dataset, target: Dataset, centre: bool
) -> tuple[tuple[Dataset, Dataset, Dataset], EncoderPairs, list[str]]:
    """Match tables by encoder, leave out labels that only one corpus has, and join the rest.

    Return three datasets to evaluate (both corpora joined, the target, the source), for each
    encoder of the joined dataset its names in source and target, and notes. With `centre`, the
    joined one also has centred copies of the tables.
    """
    partners = [find_partner(table, target.tables) for table in source.tables]
    matched = replace(target, tables=partners)
    common = source.labels & target.labels
    if len(common) < 2:
        raise InputError(
            f"{target.first.source}: expected two labels or more that {source.first.source} has "
            f"too, got {quote_names(sorted(common))} (labels of the queries: "
            f"{quote_names(sorted(target.labels))}; of the examples: "
            f"{quote_names(sorted(source.labels))}); "
            "rename labels with callshot segment --rename"
        )
    notes = []
    for one, other in ((source, target), (target, source)):
        names = sorted(one.labels - other.labels)
        if names:
            notes.append(
                f"left out, because only {one.corpus} has them: {quote_names(names)}"
            )
    recordings = sorted(set(source.first.recording) & set(target.first.recording))
    if recordings:
        verb = "has" if len(recordings) == 1 else "have"
        notes.append(
            f"{count_text(len(recordings), 'recording')} {verb} the same name in {source.corpus} "
            f"and {target.corpus} (the first: {recordings[0]!r}); if they are the same "
            "recordings, queries meet examples of their own recording and "
            "the scores are too high: remove them from one of the tables"
        )
    # Two tables of the source may have the same partner: it is evaluated once.
    different = {table.encoder: table for table in matched.tables}
    target_data = replace(target, tables=list(different.values()))
    target_data = target_data.only(common)
    try:
        classes = frozenset(evaluated_classes(target_data.classes))
    except InputError as error:
        raise InputError(f"{target.first.source}: {error}") from None
    pairs = list(zip(source.encoders, matched.encoders, strict=True))
    examples = source
    if centre:
        examples = add_centred(source, source)
        matched = add_centred(matched, source)
        pairs *= 2  # the centred copies come after all others
    joined = join_corpora(examples.only(classes), matched.only(classes))
    datasets = joined, target_data, source.only(classes)
    return datasets, dict(zip(examples.encoders, pairs, strict=True)), notes


def compare_with_target(
    transfer: Evaluation,
    within_target: Evaluation,
    encoder_pairs: EncoderPairs,
    reference: str,
) -> Frame:
    """Subtract from every transfer curve the curve within the target: rows of DIFFERENCES.

    Both have the same queries in the same folds, with the same weights in `total`, so samples are
    paired. Classifiers other than the `reference` are named beside the encoder.
    """
    curves = {_curve_key(curve): curve for curve in split_curves(within_target.values)}
    other_name = TARGET_EXAMPLES.format(within_target.corpus)
    comparisons = []
    for curve in split_curves(transfer.values):
        encoder, classifier, *key = _curve_key(curve)
        _, partner = encoder_pairs[encoder]  # its name in the target
        other = curves[(partner, classifier, *key)]
        name = encoder
        if classifier != reference:
            name = f"{encoder}, {classifier}"
        # Both curves have a row for each k of the protocol, in the same order. A row `all` comes
        # last, and has the size of the largest pool as k. If both have one, all examples of one
        # corpus are compared with all of the other, whatever these k are. A curve lacks it if the
        # size is a k of the protocol already: then the other's row is left out.
        common = min(len(curve), len(other))
        shown = curve.head(common).with_columns(encoder=pl.lit(name))
        values = value_matrix(shown)
        other_values = value_matrix(other.head(common))
        difference = values - other_values
        comparisons.append(Comparison(shown, other_name, difference))
    last = min(transfer.complete_shots, within_target.complete_shots)
    return pl.concat(summarise_comparisons(comparisons, last))


def _curve_key(curve: Frame) -> tuple[str, ...]:
    """Return what identifies a curve within one corpus: encoder, classifier and so on."""
    columns = ("encoder", "classifier", "scoring", "metric", "spread")
    return curve.select(columns).row(0)
