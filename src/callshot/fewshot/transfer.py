"""Tables of a source and a target corpus → how well examples of the source work in the target.

Three evaluations: examples of the source on queries of the target, examples of the target itself on
the same queries in the same folds, and the source by itself. The first two are paired.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import polars as pl

from callshot.errors import InputError, OptionError, quote_names
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.differences import Comparison, summarise_comparisons
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.finished_sweeps import SweepStore
from callshot.fewshot.joined_corpora import (
    add_centred,
    common_labels,
    join_corpora,
    pair_tables,
)
from callshot.fewshot.protocol import Protocol
from callshot.jobs import Cluster
from callshot.records import Evaluation, Progress, TransferEvaluation, no_progress
from callshot.records.evaluation import TARGET_EXAMPLES
from callshot.records.frames import Frame, split_curves, value_matrix

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
    transfer = _run(run, task.joined)
    within_target = _run(run, task.target)
    notes = list(task.notes)
    within_source = None
    try:
        within_source = _run(run, task.source)
        notes += describe_classes(within_source)
    except InputError as error:
        notes.append(f"no curve within {source.corpus}: {error}")
    return _make_result(task, transfer, within_target, within_source, notes)


def _make_result(
    task: "TransferTask",
    transfer: Evaluation,
    within_target: Evaluation,
    within_source: Evaluation | None,
    notes: list[str],
) -> TransferEvaluation:
    results = {
        field.name: getattr(transfer, field.name) for field in fields(Evaluation)
    }
    within = (
        [within_target] if within_source is None else [within_target, within_source]
    )
    results["notes"] = _join_notes([*notes, *transfer.notes], within)
    reference = Protocol(**transfer.settings).reference
    transfer_difference = compare_with_target(
        transfer, within_target, task.encoder_pairs, reference
    )
    results["differences"] = pl.concat([transfer_difference, transfer.differences])
    return TransferEvaluation(
        **results,
        source_corpus=task.source.corpus,
        within_target=within_target,
        within_source=within_source,
        encoder_pairs=task.encoder_pairs,
    )


def _run(run: Any, dataset: Dataset) -> Evaluation:
    result: Evaluation = run(dataset.tables, folds=dataset.folds, corpus=dataset.corpus)
    return result


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
