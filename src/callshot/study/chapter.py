"""What the steps of a study left of one corpus → the chapter that its part of the report is made from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from callshot.corpus.corpora import Corpus
from callshot.corpus.facts import measure_lengths, read_facts
from callshot.corpus.table import REJECTS, SEGMENTS, read_rejects, read_segment_table
from callshot.encoders.sidecars import read_categories, read_rivals
from callshot.encoders.table import read_table
from callshot.fewshot.budget import label_budget
from callshot.fewshot.paired import compare
from callshot.pipeline import TOLD_IN
from callshot.records import Chapter, Evaluation, Reject
from callshot.report.results import merge, read_results


@dataclass(frozen=True)
class Outcome:
    """Where the steps of one corpus put things: folders of segments and of results, and tables of embeddings."""

    corpus: str
    corpora: Sequence[str]  # all of the study
    segments: Path
    tables: Sequence[Path]
    results: Sequence[Path]
    references: Path | None = None
    categories: Path | None = None
    known: Corpus | None = None


def read_chapter(left: Outcome) -> Chapter:
    """Read what was found of a corpus, and compare encoders and rivals."""
    found = merge([read_results(folder) for folder in left.results])
    tables = [read_table(path).only(set(found.segments.segment)) for path in left.tables]
    facts, notes = read_facts(left.segments / TOLD_IN)
    names = [table.encoder for table in tables]
    groups = None if left.known is None else left.known.categories_of(set(tables[0].label))
    rivals = [] if left.references is None else read_rivals(left.references, left.corpora, names)
    rivals = [rival for rival in rivals if rival.corpus == left.corpus]
    return Chapter(
        evaluation=replace(found, segments=tables[0]),  # with the labels that overlap, which results do not have
        facts=facts,
        evaluated=measure_lengths(_query_lengths(found, left.segments / SEGMENTS)),
        tables=tables,
        rivals=rivals,
        differences=compare(found.values, rivals),
        budget=label_budget(found.per_class, found.classes),
        categories=groups if left.categories is None else read_categories(left.categories, tables[0]),
        rejects=[*read_rejects(left.segments / REJECTS), *_not_embedded(left.tables)],
        notes=[*notes, *found.notes],
    )


def _query_lengths(found: Evaluation, path: Path) -> list[float]:
    """Return how long the queries are."""
    eligible = {c.label for c in found.classes if c.eligible}
    table = found.segments
    rows = zip(table.segment, table.label, found.folds.fold.tolist(), strict=True)
    queries = {name for name, label, fold in rows if label in eligible and fold >= 0}
    return [s.end_s - s.start_s for s in read_segment_table(path)[0] if s.segment in queries]


def _not_embedded(tables: Sequence[Path]) -> list[Reject]:
    places = [path.with_suffix(".rejects.csv") for path in tables]
    return [reject for path in places if path.exists() for reject in read_rejects(path)]
