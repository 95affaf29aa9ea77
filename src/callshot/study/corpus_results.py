"""What the steps of a study left of one corpus → the chapter that its part of the report is made from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from callshot.corpus.inspection import measure_durations, read_stats
from callshot.corpus.known_corpora import Corpus
from callshot.corpus.segment_table import REJECTS, SEGMENTS, read_rejects, read_segments
from callshot.fewshot.crossover import find_crossovers
from callshot.fewshot.differences import compare
from callshot.fewshot.label_budget import label_budget
from callshot.records import Baseline, CorpusResults, Evaluation, Reject
from callshot.report.results import merge, read_results
from callshot.study.file_steps import TOLD_IN
from callshot.study.train_baselines import BaselineResults, read_baseline_results
from callshot.tables.embedding_tables import read_table
from callshot.tables.fold_files import read_categories, read_references

CURVES = ("curve", "values", "per_class")


@dataclass(frozen=True)
class Outcome:
    """Where the steps of one corpus put things: folders of segments and of results, and tables of embeddings."""

    corpus: str
    corpora: Sequence[str]  # all of the study
    segments: Path
    tables: Sequence[Path]
    results: Sequence[Path]
    contests: Sequence[Path] = ()
    reference: str = "centroid"
    references: Path | None = None
    categories: Path | None = None
    known: Corpus | None = None


def read_corpus_results(left: Outcome) -> CorpusResults:
    """Read what was found of a corpus, and compare encoders and rivals."""
    whole, contests = (
        merge([read_results(folder) for folder in left.results]),
        [*map(read_baseline_results, left.contests)],
    )
    found, others = whole.under([left.reference]), _others(whole, contests, left.reference)
    tables = [read_table(path).only(set(found.segments.segment)) for path in left.tables]
    facts, notes = read_stats(left.segments / TOLD_IN)
    names = [table.encoder for table in tables]
    groups = None if left.known is None else left.known.categories_of(set(tables[0].label))
    told = [] if left.references is None else read_references(left.references, left.corpora, names)
    baselines = _rivals(
        [baseline for baseline_results in contests for baseline in baseline_results.baselines],
        told,
        left.corpus,
    )
    trained = [] if others is None else [v for v in others.values if v.classifier == "logistic"]
    return CorpusResults(
        evaluation=replace(
            found, segments=tables[0]
        ),  # with the labels that overlap, which results do not have
        facts=facts,
        evaluated=measure_durations(_query_lengths(found, left.segments / SEGMENTS)),
        tables=tables,
        baselines=baselines,
        differences=compare(found.values, baselines),
        budget=label_budget(found.per_class, found.classes),
        categories=groups
        if left.categories is None
        else read_categories(left.categories, tables[0]),
        rejects=[*read_rejects(left.segments / REJECTS), *_not_embedded(left.tables)],
        notes=[*notes, *found.notes],
        others=others,
        crossovers=find_crossovers(found.values, baselines, trained, found.complete_shots),
        refinement=[step for baseline_results in contests for step in baseline_results.refinement],
    )


def _others(
    whole: Evaluation, contests: Sequence[BaselineResults], reference: str
) -> Evaluation | None:
    """Return the curves of every classifier but one: other rules, and rivals at every k."""
    rules = whole.under({c.classifier for c in whole.curve} - {reference})
    parts = [
        part
        for part in (rules, *(baseline_results.swept for baseline_results in contests))
        if part is not None and part.curve
    ]
    lists: dict[str, Any] = {
        name: [row for e in parts for row in getattr(e, name)] for name in CURVES
    }
    return replace(rules, **lists) if parts else None


def _rivals(trained: Sequence[Baseline], told: Sequence[Baseline], corpus: str) -> list[Baseline]:
    """Put what was trained before what is told in a file, which is called a reference where both have a name."""
    names = {baseline.name for baseline in trained}
    references = [baseline for baseline in told if baseline.corpus == corpus]
    return [
        *trained,
        *(
            replace(one, name=f"{one.name} (reference)") if one.name in names else one
            for one in references
        ),
    ]


def _query_lengths(found: Evaluation, path: Path) -> list[float]:
    """Return how long the queries are."""
    eligible = {c.label for c in found.classes if c.eligible}
    table = found.segments
    rows = zip(table.segment, table.label, found.folds.fold.tolist(), strict=True)
    queries = {name for name, label, fold in rows if label in eligible and fold >= 0}
    return [s.end_s - s.start_s for s in read_segments(path)[0] if s.segment in queries]


def _not_embedded(tables: Sequence[Path]) -> list[Reject]:
    places = [path.with_suffix(".rejects.csv") for path in tables]
    return [reject for path in places if path.exists() for reject in read_rejects(path)]
