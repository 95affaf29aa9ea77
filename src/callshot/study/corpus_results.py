"""The files that the steps of a study wrote for one corpus → its CorpusResults for the report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from callshot.baselines.run import BaselineResults
from callshot.corpus.options import Corpus
from callshot.corpus.segment_table import (
    REJECTS,
    SEGMENTS,
    measure_durations,
    read_rejects,
    read_segments,
    read_stats,
)
from callshot.fewshot.differences import add_baselines
from callshot.records import CorpusResults, Embeddings, Evaluation, Reject
from callshot.records.frames import BASELINES, REFINEMENT, concat_frames
from callshot.report.results import merge_results, read_results
from callshot.study.file_steps import SEGMENTS_INFO
from callshot.study.steps import describe_equal_encoders, is_measured
from callshot.study.train_baselines import read_baseline_results
from callshot.tables.embedding_tables import read_table
from callshot.tables.fold_files import read_categories, read_references


@dataclass(frozen=True)
class CorpusFolders:
    """Where the steps of one corpus wrote segments, embeddings and results."""

    corpus: str
    corpora: Sequence[str]  # all of the study
    segments: Path
    tables: Sequence[Path]
    results: Sequence[Path]
    baselines: Sequence[Path] = ()
    reference: str = "centroid"
    references: Path | None = None
    categories: Path | None = None
    known_corpus: Corpus | None = None


def read_corpus_results(folders: CorpusFolders) -> CorpusResults:
    """Read the results of a corpus, and compare encoders and baselines."""
    measured = [folder for folder in folders.results if is_measured(folder)]
    whole = merge_results([read_results(folder) for folder in measured])
    segments = set(whole.segments.segment)
    all_tables = [read_table(path).only(segments) for path in folders.tables]
    tables = [table for table in all_tables if table.encoder in whole.encoders]
    trained_on = [folder for folder in folders.baselines if is_measured(folder)]
    trained = [read_baseline_results(folder) for folder in trained_on]
    other_classifiers = _other_classifiers(whole, trained, folders.reference)
    names = [table.encoder for table in all_tables]
    baselines = join_baselines(trained, folders, names)
    evaluation = _compare(whole, other_classifiers, baselines, folders.reference)
    equal = describe_equal_encoders(folders.results)
    stats, notes = read_stats(folders.segments / SEGMENTS_INFO)
    durations = _query_durations(evaluation, folders.segments / SEGMENTS)
    refinement = [results.refinement for results in trained]
    return CorpusResults(
        replace(evaluation, segments=tables[0]),  # with the overlapping labels
        stats,
        measure_durations(durations),
        tables,
        _read_categories(folders, tables[0]),
        rejects=_read_rejects(folders),
        notes=[*equal, *notes, *evaluation.notes],
        other_classifiers=other_classifiers,
        baselines=baselines,
        refinement=concat_frames(refinement, REFINEMENT),
    )


def _compare(
    whole: Evaluation,
    other_classifiers: Evaluation | None,
    baselines: pl.DataFrame,
    reference: str,
) -> Evaluation:
    """Return the evaluation of the reference, compared with baselines."""
    trained = None
    if other_classifiers is not None:
        trained = other_classifiers.values.filter(classifier="logistic")
    centroid = whole.select_classifiers([reference])
    return add_baselines(centroid, baselines, trained)


def _read_categories(
    folders: CorpusFolders, table: Embeddings
) -> Mapping[str, str] | None:
    if folders.categories is not None:
        return read_categories(folders.categories, table)
    if folders.known_corpus is not None:
        return folders.known_corpus.categories_of(set(table.label))
    return None


def _other_classifiers(
    whole: Evaluation, trained: Sequence[BaselineResults], reference: str
) -> Evaluation | None:
    """Return the curves of every classifier but the reference; None where there is no other."""
    names = set(whole.curve["classifier"]) - {reference}
    untrained = whole.select_classifiers(names)
    results = [untrained]
    for baselines in trained:
        results += baselines.per_k
    other_classifiers = replace(
        untrained,
        curve=pl.concat([result.curve for result in results]),
        values=pl.concat([result.values for result in results]),
        per_class=pl.concat([result.per_class for result in results]),
    )
    return None if other_classifiers.curve.is_empty() else other_classifiers


def join_baselines(
    trained: Sequence[BaselineResults], folders: CorpusFolders, encoders: Sequence[str]
) -> pl.DataFrame:
    """Return trained baselines, then those of a file, marked as references where names clash."""
    baselines = concat_frames([results.baselines for results in trained], BASELINES)
    if folders.references is None:
        return baselines
    references = read_references(folders.references, folders.corpora, encoders)
    references = references.filter(corpus=folders.corpus)
    is_taken = pl.col("name").is_in(baselines["name"].to_list())
    name = pl.when(is_taken).then(pl.format("{} (reference)", "name")).otherwise("name")
    return pl.concat([baselines, references.with_columns(name.alias("name"))])


def _query_durations(evaluation: Evaluation, path: Path) -> list[float]:
    """Return the durations of the queries in seconds."""
    eligible = {count.label for count in evaluation.eligible_classes}
    table = evaluation.segments
    columns = (table.segment, table.label, evaluation.folds.fold)
    queries = set()
    for segment, label, fold in zip(*columns, strict=True):
        if label in eligible and fold >= 0:
            queries.add(segment)
    durations_s: list[float] = read_segments(path).only(queries).durations_s.tolist()
    return durations_s


def _read_rejects(folders: CorpusFolders) -> list[Reject]:
    """Return the annotations that became no segment, and the segments that were not embedded."""
    rejects = read_rejects(folders.segments / REJECTS)
    for table in folders.tables:
        path = table.with_suffix(".rejects.csv")
        if path.exists():
            rejects += read_rejects(path)
    return rejects
