"""The paper end to end, on one page: recordings and annotations → k-shot curves with intervals.

    segmentation = segment_corpus(audio, annotations)   recordings and annotations → segments
    table, rejects = embed(segmentation.segments, …)    audio of segments → vectors of an encoder
    result = evaluate(dataset, protocol)                folds, support sets, centroids, intervals
    baselines = train(dataset, options, protocol)       would training be better?
    compare(result, baselines)                          which encoder, and from which k

The Python API, the commands and the steps of `callshot run` call these functions, except `compare`:
commands and steps compare where they make the report. They read files before and write files after
them (`study/file_steps.py`). Read this first;
`callshot.fewshot.reference` has the evaluation itself, slow and literal.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from callshot.baselines.options import BaselineOptions
from callshot.baselines.run import BaselineResults, train_dataset
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segments import segment_corpus
from callshot.encoders.embed import (
    BackgroundMix,
    EmbedOptions,
    WriteSequences,
    embed_mixed_segments,
)
from callshot.encoders.embed import embed as embed_spans
from callshot.encoders.joined_encoder import check_title
from callshot.errors import OptionError, check_options
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.differences import compare_baselines, compare_encoders
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol, make_protocol
from callshot.fewshot.transfer import evaluate_transfer
from callshot.records import (
    Evaluation,
    Progress,
    Reject,
    no_progress,
    reference_classifier,
)
from callshot.records.frames import unique_values
from callshot.spans import Spans
from callshot.storage import know_files, to_path
from callshot.tables.read_dataset import make_dataset
from callshot.vectors import Vectors


def run(
    audio: Path | str,
    annotations: Path | str | None = None,
    encoders: Sequence[str] = ("mfcc",),
    protocol: Protocol | None = None,
    *,
    store: Path | None = None,
    **segmentation: Any,
) -> Evaluation:
    """Run the paper's method on a folder of recordings.

    Parameters
    ----------
    audio, annotations : path
        Recordings and their annotations, as in `callshot.segment`.
    encoders : sequence of str
        Names of encoders; `callshot.list_encoders` lists them.
    protocol : Protocol, optional
        The paper's by default.
    store : Path, optional
        Folder that stores embeddings; the user's cache by default.
    **segmentation
        Fields of `callshot.corpus.options.SegmentationOptions`.

    Returns
    -------
    Evaluation
        With `.differences` between encoders and from baselines, and `.crossovers`.
    """
    if not encoders:
        raise OptionError(
            "encoders: name at least one; callshot.list_encoders lists them"
        )
    protocol = protocol or make_protocol()
    check_options(segmentation, SegmentationOptions)
    options = SegmentationOptions(**segmentation)
    segments = segment_corpus(audio, annotations, options=options).segments
    embedding = EmbedOptions(store=store)
    tables = [embed(segments, name, embedding)[0] for name in encoders]
    # The segments that every encoder could embed.
    names = frozenset.intersection(*(frozenset(table.segment) for table in tables))
    shared = [table.only(names) for table in tables]
    dataset = make_dataset("corpus", shared, folds=None, group_duplicates=False)
    result = evaluate(dataset, protocol)
    baselines = train(dataset, BaselineOptions(("logistic",)), protocol, against=result)
    differences = compare(result, baselines)
    return replace(result, differences=differences, crossovers=baselines.crossovers)


def embed(
    segments: Spans,
    encoder: str,
    options: EmbedOptions,
    *,
    name: str | None = None,
    audio: Path | str | None = None,
    mix: BackgroundMix | None = None,
    write_sequences: WriteSequences | None = None,
    progress: Progress = no_progress,
) -> tuple[Vectors, list[Reject]]:
    """Embed segments with a frozen encoder; with a `mix`, in background of a site.

    `name` is the name of the encoder in results, `audio` the folder of the recordings, where they
    are not those that the encoder and the segments have. Sequences are of the segments alone:
    with a mix, none are written.
    """
    if name is not None:
        check_title(name, "name")
    root = segments.root if audio is None else to_path(audio)
    segments = replace(segments, root=know_files(root, segments.paths))
    if mix is None:
        table, rejects = embed_spans(
            segments,
            encoder,
            options,
            write_sequences=write_sequences,
            progress=progress,
        )
    else:
        table, rejects = embed_mixed_segments(segments, mix, encoder, options, progress)
    return table if name is None else replace(table, encoder=name), rejects


def evaluate(
    dataset: Dataset,
    protocol: Protocol,
    *,
    queries: Dataset | None = None,
    centre: bool = False,
    **machine: Any,
) -> Evaluation:
    """Measure how well classifiers without training do with k examples per class.

    With `queries` of another corpus, the examples are from the dataset and the result is a
    `TransferEvaluation`; `centre` adds curves on vectors minus the mean of their corpus. `machine`
    are the options of `evaluate_tables` that do not change the numbers.
    """
    if queries is None:
        result = evaluate_tables(
            dataset.tables,
            protocol,
            folds=dataset.folds,
            categories=dataset.categories,
            corpus=dataset.corpus,
            **machine,
        )
        return replace(result, notes=[*dataset.notes, *result.notes])
    transfer = evaluate_transfer(dataset, queries, protocol, centre=centre, **machine)
    notes = [*dataset.notes, *queries.notes, *transfer.notes]
    return replace(transfer, notes=list(dict.fromkeys(notes)))


def train(
    dataset: Dataset,
    options: BaselineOptions,
    protocol: Protocol,
    *,
    against: Evaluation | None = None,
    **inputs: Any,
) -> BaselineResults:
    """Train baselines on the labels of the support sides; score them on the same queries.

    With the evaluation of the same dataset, `against`, crossovers are found: the k at which the
    centroid passes a baseline trained on all labels, and the k from which a baseline trained on the
    same k examples beats the centroid. `inputs` are those of `train_dataset`.
    """
    results = train_dataset(dataset, options, protocol, **inputs)
    if against is None:
        return results
    return results.with_crossovers(select_reference(against))


def compare(
    result: Evaluation, baselines: BaselineResults | None = None
) -> pl.DataFrame:
    """Compare every pair of encoders on the same draws, and each encoder with baselines.

    Parameters
    ----------
    result : Evaluation
    baselines : BaselineResults, optional
        The result of `train_baselines`.

    Returns
    -------
    polars.DataFrame
        The mean difference at each k with percentiles, the share of samples that `one` wins, the
        98 % interval of all pairs and k at once, and whether it excludes 0.

    Raises
    ------
    InputError
        If two encoders were evaluated with different options.

    Examples
    --------
    >>> import callshot
    >>> import numpy as np
    >>> y = ["rumble", "roar"] * 20
    >>> X = np.random.default_rng(0).normal(size=(40, 8))
    >>> result = callshot.evaluate(X, y, shots="1,5", spread="shared")
    >>> compare(result).height  # one encoder alone
    0
    """
    values = select_reference(result).values
    complete_shots = result.complete_shots
    differences = compare_encoders(values, complete_shots)
    if baselines is None:
        return differences
    from_baselines = compare_baselines(values, baselines.baselines, complete_shots)
    return pl.concat([differences, from_baselines])


def select_reference(result: Evaluation) -> Evaluation:
    """Return the results of the centroid, or of the first classifier where it was not evaluated."""
    names = unique_values(result.values, "classifier")
    return result.select_classifiers([reference_classifier(names)])
