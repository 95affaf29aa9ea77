"""Chapters → every table of a study."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from callshot.records import Chapter
from callshot.report.tables.baselines import rivals
from callshot.report.tables.classifiers import classifiers
from callshot.report.tables.comparisons import differences, intervals
from callshot.report.tables.corpora import classes, corpora, segments
from callshot.report.tables.file_names import safe_name, safe_names
from callshot.report.tables.scores import reduced, results
from callshot.report.tables.shots import PAPER_SHOTS
from callshot.report.tables.table import Table


def build_tables(
    chapters: Sequence[Chapter], *, shots: Sequence[int] = PAPER_SHOTS, spread: str = "per-query"
) -> list[Table]:
    """Build all tables that there is something for: those of the study, then those of each corpus. Names differ."""
    tables = [corpora(chapters), segments(chapters)]
    corpus_names = [chapter.evaluation.corpus for chapter in chapters]
    for chapter, corpus, name in zip(chapters, corpus_names, safe_names(corpus_names), strict=True):
        made = _chapter_tables(chapter, shots, spread)
        tables += [
            replace(table, name=table.name.removesuffix(safe_name(corpus)) + name) for table in made
        ]
    return tables


def _chapter_tables(chapter: Chapter, shots: Sequence[int], spread: str) -> Iterator[Table]:
    scored = (results(chapter, shots, spread), reduced(chapter, shots, spread))
    trained = (rivals(chapter), classifiers(chapter, shots))
    compared = (intervals(chapter, shots), differences(chapter, shots))
    yield from (
        table for table in (classes(chapter), *scored, *trained, *compared) if table is not None
    )
