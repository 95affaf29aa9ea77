"""Tables of a source and a target corpus → how well examples of the source work in the target.

Three evaluations: examples of the source on queries of the target, examples of the target itself on
the same queries in the same folds, and the source by itself. The first two are paired. For the
first, both are joined to one table, in which the source is the common fold: all supports come from
the source, and the folds of the target only query. Two tables are of one encoder by its
fingerprint, or by its name where that is not known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from callshot.errors import InputError, OptionError, quote_names
from callshot.fewshot.dataset import Dataset, Names
from callshot.fewshot.differences import Comparison, summarise_comparisons
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep_on_cluster import SweepStore
from callshot.jobs import Cluster
from callshot.records import (
    COMMON_FOLD,
    Embeddings,
    Evaluation,
    Progress,
    TransferEvaluation,
    no_progress,
)
from callshot.records.evaluation import TARGET_EXAMPLES
from callshot.records.frames import Frame, split_curves, value_matrix

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


EVALUATIONS = 3  # for progress

EncoderPairs = Mapping[str, tuple[str, str]]


def evaluate_transfer(
    source: Dataset,
    target: Dataset,
    protocol: Protocol | None = None,
    *,
    centre: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    store: SweepStore | None = None,
    progress: Progress = no_progress,
) -> TransferEvaluation:
    """Evaluate examples of a source corpus on queries of a target corpus, and within both.

    Parameters
    ----------
    source, target : Dataset
        Each table of the source needs one of the target by the same encoder. Categories are
        those of the target.
    protocol : Protocol, optional
        The paper's by default.
    centre : bool
        Whether to add curves on vectors minus the mean of their own table.
    threads, memory, device, cluster, store, progress
        As in `evaluate_tables`.

    Returns
    -------
    TransferEvaluation

    Raises
    ------
    InputError
        If encoders differ, or if fewer than two labels can be evaluated.
    """
    protocol = protocol or Protocol()
    if protocol.repeat_folds > 1:
        raise OptionError("repeat-folds: expected 1 with queries of another table")
    if protocol.seeds > 1:
        raise OptionError("seeds: expected 1 with queries of another table")
    task = plan_task(source, target, centre)
    run = partial(
        evaluate_tables,
        protocol=protocol,
        categories=target.categories,
        threads=threads,
        memory=memory,
        device=device,
        cluster=cluster,
        store=store,
        progress=lambda share, what: progress(share / EVALUATIONS, what),
    )
    results: list[Evaluation] = []
    notes = list(task.notes)
    for dataset in (task.joined, task.target, task.source):
        try:
            result = run(dataset.tables, folds=dataset.folds, corpus=dataset.corpus)
        except InputError as error:
            if dataset is not task.source:
                raise
            notes.append(f"no curve within {source.corpus}: {error}")
        else:
            results.append(result)
    transfer, within_target, *others = results
    within_source = others[0] if others else None
    if within_source is not None:
        notes += describe_classes(within_source)
    frames = {field.name: getattr(transfer, field.name) for field in fields(Evaluation)}
    frames["notes"] = _join_notes([*notes, *transfer.notes], results[1:])
    difference = compare_with_target(
        transfer, within_target, task.encoder_pairs, protocol.reference
    )
    frames["differences"] = pl.concat([difference, transfer.differences])
    return TransferEvaluation(
        **frames,
        source_corpus=task.source.corpus,
        within_target=within_target,
        within_source=within_source,
        encoder_pairs=task.encoder_pairs,
    )


@dataclass(frozen=True)
class TransferTask:
    """What is evaluated: both corpora with the same labels, and joined.

    `encoder_pairs` are the encoders of source and target by those of the joined tables.
    """

    joined: Dataset
    target: Dataset
    source: Dataset
    encoder_pairs: EncoderPairs
    notes: list[str]


def plan_task(source: Dataset, target: Dataset, centre: bool) -> TransferTask:
    """Find partners by encoder, leave out labels that one corpus alone has, and join the rest."""
    matched = pair_tables(source, target)
    notes = [*describe_left_out(source, target), *describe_recordings(source, target)]
    different = {table.encoder: table for table in matched.tables}
    target_data = replace(target, tables=list(different.values()))
    target_data = target_data.only(common_labels(source, target))
    classes = target_data.eligible_labels
    pairs = list(zip(source.encoders, matched.encoders, strict=True))
    examples = source
    if centre:
        examples = add_centred(source, source)
        matched = add_centred(matched, source)
        pairs *= 2
    return TransferTask(
        join_corpora(examples.only(classes), matched.only(classes)),
        target_data,
        source.only(classes),
        dict(zip(examples.encoders, pairs, strict=True)),
        notes,
    )


def describe_left_out(source: Dataset, target: Dataset) -> Iterator[str]:
    """Yield a note on the labels that one corpus alone has."""
    for one, other in ((source, target), (target, source)):
        names = sorted(one.labels - other.labels)
        if names:
            yield f"left out, because only {one.corpus} has them: {quote_names(names)}"


def describe_recordings(source: Dataset, target: Dataset) -> Iterator[str]:
    """Yield a note on recordings that have the same name in both corpora."""
    names = sorted(set(source.first.recording) & set(target.first.recording))
    if names:
        count = f"{len(names)} recordings have"
        if len(names) == 1:
            count = "1 recording has"
        yield (
            f"{count} the same name in {source.corpus} and {target.corpus} "
            f"(the first: {names[0]!r}); if they are the same recordings, queries meet "
            "examples of their own recording and "
            "the scores are too high: remove them from one of the tables"
        )


def describe_classes(within_source: Evaluation) -> Iterator[str]:
    """Yield a note if the curve within the source has fewer classes than the others."""
    names = [count.label for count in within_source.excluded_classes]
    if names:
        yield (
            f"the curve within {within_source.corpus} is without {quote_names(names)}: too few "
            "recordings; it is not comparable with the others"
        )


def compare_with_target(
    transfer: Evaluation,
    within_target: Evaluation,
    encoder_pairs: EncoderPairs,
    reference: str,
) -> Frame:
    """Return every transfer curve minus the curve within the target, as DIFFERENCES.

    Both have the same queries in the same folds, with the same weights in `total`. Classifiers
    other than the reference are named beside the encoder.
    """
    curves = {_curve_key(curve): curve for curve in split_curves(within_target.values)}
    other_name = TARGET_EXAMPLES.format(within_target.corpus)
    comparisons = []
    for curve in split_curves(transfer.values):
        encoder, classifier, *key = _curve_key(curve)
        _, partner = encoder_pairs[encoder]
        other = curves[(partner, classifier, *key)]
        name = encoder if classifier == reference else f"{encoder}, {classifier}"
        # The row `all`, the last, has the sizes of different pools as k; one may not have it.
        common = min(len(curve), len(other))
        shown = curve.head(common).with_columns(encoder=pl.lit(name))
        difference = value_matrix(shown) - value_matrix(other.head(common))
        comparisons.append(Comparison(shown, other_name, difference))
    last = min(transfer.complete_shots, within_target.complete_shots)
    return pl.concat(summarise_comparisons(comparisons, last))


def _curve_key(curve: Frame) -> tuple[str, ...]:
    columns = ("encoder", "classifier", "scoring", "metric", "spread")
    return curve.select(columns).row(0)


def _join_notes(notes: list[str], within: Sequence[Evaluation]) -> list[str]:
    """Return all notes, each once; those of the curves within a corpus name it."""
    joined = list(notes)
    for evaluation in within:
        for note in evaluation.notes:
            if note not in joined:
                joined.append(f"within {evaluation.corpus}: {note}")
    return joined
