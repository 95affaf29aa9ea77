"""The chapters of a study → everything that people read of it, in one folder.

report.html                      the page
tables/                          LaTeX, Markdown and CSV
CORPUS/curve.csv …               all numbers, with differences.csv, budget.csv and rejects.csv, and where there are any
                                 rivals, rivals.csv, crossings.csv and refinement.csv
CORPUS/figures/                  PDF and PNG
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults, Evaluation, Progress, no_progress
from callshot.report.figures import draw_figures
from callshot.report.page import write_page
from callshot.report.results import (
    WRITERS,
    write_baselines,
    write_budget,
    write_crossovers,
    write_differences,
    write_refinement,
)
from callshot.report.tables.write_tables import build_tables, write_tables

PAGE = "report.html"
CAPTIONS = {
    "episode": "A real episode, chosen to illustrate: a query, what is drawn for it, and what is left",
    "sweep": "mAP against k, exemplars per class",
    "reduced": "mAP over categories against k",
    "inset": "The few-shot regime, k = 1 to 7",
    "classes": "The curve of every class",
    "spreads": "The two spreads: a draw for each query, and one labelled set for all",
    "differences": "Encoders and rivals, compared pair by pair over the same draws",
    "training": "When training pays: the centroid and a rival trained on the same exemplars, at every k",
    "rules": "The centroid and other rules without training, against k",
    "refinement": "What gradient steps make of the centroid of all labels, up to logistic regression",
    "confusion": "Labels against decisions",
    "map": "The embeddings in the plane of largest variance, with the centroids of the labels",
}


@dataclass(frozen=True)
class FigureStyle:
    """What of a study is shown: its title, the shots of tables and confusions, their spread, and how to repeat it.

    Without `figures`, there are none, which saves most of the time.
    """

    title: str
    shots: Sequence[int]
    confusion: Sequence[int]
    spread: str
    protocol: Protocol
    commands: Sequence[str]
    figures: bool = True


def write_report(
    folder: Path,
    all_results: Mapping[str, CorpusResults],
    look: FigureStyle,
    answers: Mapping[str, Sequence[str]],
    provenance: Mapping[str, Any],
    progress: Progress = no_progress,
) -> list[str]:
    """Write everything to a folder; return the names of the files."""
    names, pictures, every = (
        list[str](),
        dict[str, list[tuple[str, Path]]](),
        list(all_results.values()),
    )
    for corpus, corpus_results in all_results.items():
        names += [f"{corpus}/{name}" for name in write_numbers(corpus_results, folder / corpus)]
        figures = folder / corpus / "figures"
        drawn = _draw(corpus_results, figures, look)
        names += [f"{corpus}/figures/{name}" for name in drawn]
        pictures[corpus] = [
            (_caption(name), figures / name) for name in drawn if name.endswith(".png")
        ]
        progress(0.8 / len(all_results), f"figures of {corpus}")
    written = write_tables(every, folder / "tables", shots=look.shots, spread=look.spread)
    tables = {
        c: build_tables([corpus_results], shots=look.shots, spread=look.spread)
        for c, corpus_results in all_results.items()
    }
    write_page(
        folder / PAGE,
        look.title,
        every,
        answers=answers,
        tables=tables,
        pictures=pictures,
        provenance=provenance,
        commands=look.commands,
    )
    progress(0.2, "the page")
    return [*names, *(f"tables/{name}" for name in written), PAGE]


def _draw(corpus_results: CorpusResults, folder: Path, look: FigureStyle) -> list[str]:
    if not look.figures:
        return []
    return draw_figures(corpus_results, folder, confusion_at=look.confusion, protocol=look.protocol)


def _caption(name: str) -> str:
    stem, _, number = Path(name).stem.partition("-")
    return f"{CAPTIONS[stem]}{f', {number}' if number else ''}"


def write_numbers(corpus_results: CorpusResults, folder: Path) -> list[str]:
    """Write what was measured of one corpus; return the names of the files.

    Curves, their values and those of classes are of every classifier, the reference first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    everything = _together(corpus_results)
    for name, write in WRITERS.items():
        write(everything, folder / name)
    write_differences(corpus_results.differences, folder / "differences.csv")
    write_budget(corpus_results.budget, folder / "budget.csv")
    trained = list(_write_trained(corpus_results, folder))
    with (folder / "rejects.csv").open(
        "w", encoding="utf-8", errors="backslashreplace", newline=""
    ) as file:
        rows = ((r.file, "" if r.row is None else r.row, r.reason) for r in corpus_results.rejects)
        csv.writer(file, lineterminator="\n").writerows([("file", "row", "reason"), *rows])
    return [*WRITERS, "differences.csv", "budget.csv", *trained, "rejects.csv"]


def _together(corpus_results: CorpusResults) -> Evaluation:
    """Return the evaluation with the curves of the other classifiers behind its own."""
    found, others = corpus_results.evaluation, corpus_results.others
    if others is None:
        return found
    return replace(
        found,
        curve=[*found.curve, *others.curve],
        values=[*found.values, *others.values],
        per_class=[*found.per_class, *others.per_class],
    )


def _write_trained(corpus_results: CorpusResults, folder: Path) -> Iterator[str]:
    """Write what is known of trained classifiers, where there is something; yield the names of the files."""
    if corpus_results.baselines:
        write_baselines(corpus_results.baselines, folder / "rivals.csv")
        yield "rivals.csv"
    if corpus_results.crossovers:
        write_crossovers(corpus_results.crossovers, folder / "crossings.csv")
        yield "crossings.csv"
    if corpus_results.refinement:
        write_refinement(corpus_results.refinement, folder / "refinement.csv")
        yield "refinement.csv"
