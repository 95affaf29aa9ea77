"""Chapters → every table of a study."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from callshot.records import CorpusResults
from callshot.report.tables.baselines import baselines
from callshot.report.tables.classifiers import classifiers
from callshot.report.tables.comparisons import differences, intervals
from callshot.report.tables.corpora import classes, corpora, segments
from callshot.report.tables.file_names import safe_name, safe_names
from callshot.report.tables.scores import reduced, results
from callshot.report.tables.shots import PAPER_SHOTS
from callshot.report.tables.table import Table


def build_tables(
    all_results: Sequence[CorpusResults],
    *,
    shots: Sequence[int] = PAPER_SHOTS,
    spread: str = "per-query",
) -> list[Table]:
    """Build all tables that there is something for: those of the study, then those of each corpus. Names differ."""
    tables = [corpora(all_results), segments(all_results)]
    corpus_names = [corpus_results.evaluation.corpus for corpus_results in all_results]
    for corpus_results, corpus, name in zip(
        all_results, corpus_names, safe_names(corpus_names), strict=True
    ):
        made = _chapter_tables(corpus_results, shots, spread)
        tables += [
            replace(table, name=table.name.removesuffix(safe_name(corpus)) + name) for table in made
        ]
    return tables


def _chapter_tables(
    corpus_results: CorpusResults, shots: Sequence[int], spread: str
) -> Iterator[Table]:
    scored = (results(corpus_results, shots, spread), reduced(corpus_results, shots, spread))
    trained = (baselines(corpus_results), classifiers(corpus_results, shots))
    compared = (intervals(corpus_results, shots), differences(corpus_results, shots))
    yield from (
        table
        for table in (classes(corpus_results), *scored, *trained, *compared)
        if table is not None
    )
