"""Results of the corpora of a study → everything that people read, in one folder.

report.html                      the page
tables/                          LaTeX, Markdown and CSV
CORPUS/curve.csv …               all numbers, with differences.csv and rejects.csv; with baselines,
                                 also baselines.csv, crossovers.csv and refinement.csv
CORPUS/figures/                  PDF and PNG
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from callshot.corpus.segment_table import write_rejects
from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults, Evaluation, Progress, no_progress
from callshot.records.frames import Shots
from callshot.report.calls import CorpusCalls, choose_sounds, find_calls
from callshot.report.classifiers import all_curves, all_values
from callshot.report.figures import plan_figures
from callshot.report.figures.figure_io import render_all
from callshot.report.methods import describe_methods, list_references
from callshot.report.page import PageContent, Picture, write_page
from callshot.report.results import RESULT_FILES, write_evaluation, write_frame
from callshot.report.sounds import MOST_BYTES, CorpusAudio, make_clips
from callshot.report.summary import Summary
from callshot.report.tables.write_tables import DOCUMENT, build_tables, write_tables

PAGE = "report.html"
ALWAYS_WRITTEN = ("differences.csv",)
CAPTIONS = {
    "episode": "An episode chosen as an illustration: a query, its draw, and what is left",
    "sweep": "mAP against k, exemplars per class",
    "reduced": "mAP over categories against k",
    "inset": "The curves at few examples, up to k = 7",
    "classes": "The curve of every class",
    "spreads": (
        "The three spreads: the paper's, the luck of which examples were labelled, and what one "
        "labelled set would score on other recordings"
    ),
    "differences": "Encoders and baselines, compared pair by pair over the same draws",
    "training": "When training pays: the centroid and a baseline trained on the same exemplars",
    "classifiers": "The centroid and other classifiers without training, against k",
    "refinement": "Gradient steps from the centroid of all labels to logistic regression",
    "confusion": "Labels against decisions",
    "map": "The embeddings in the plane of largest variance, with the centroids of the labels",
}


@dataclass(frozen=True)
class ReportOptions:
    """What a report shows: title, shots of tables and of confusion figures, spread, how to repeat.

    Most of the time is saved without `figures`. `target` is a mAP that the summary is asked about.
    """

    title: str
    shots: Shots
    confusion: Shots
    spread: str
    protocol: Protocol
    commands: Sequence[str]
    figures: bool = True
    sounds: bool = True
    target: float | None = None


def certain_names(corpora: Sequence[str]) -> list[str]:
    """Return the names of files that every report has, known before there are results."""
    names = [PAGE, f"tables/{DOCUMENT}"]
    for corpus in corpora:
        names += [f"{corpus}/{name}" for name in (*RESULT_FILES, "rejects.csv")]
    return names


def write_report(
    folder: Path,
    all_results: Mapping[str, CorpusResults],
    options: ReportOptions,
    summaries: Mapping[str, Summary],
    provenance: Mapping[str, Any],
    audio: Mapping[str, CorpusAudio] | None = None,
    processes: int = 1,
    progress: Progress = no_progress,
) -> list[str]:
    """Write all files to a folder; return their names. `processes` draw figures."""
    names = []
    pictures = {}
    for corpus, results in all_results.items():
        numbers = write_numbers(results, folder / corpus)
        figures = _draw(results, folder / corpus / "figures", options, processes)
        names += [f"{corpus}/{name}" for name in numbers]
        names += [f"{corpus}/figures/{path.name}" for path in figures]
        pictures[corpus] = _caption_pictures(figures)
        progress(0.8 / len(all_results), f"figures of {corpus}")
    shown: dict[str, Any] = {"shots": options.shots, "spread": options.spread}
    every = list(all_results.values())
    tables = write_tables(every, folder / "tables", **shown)
    names += [f"tables/{name}" for name in tables]
    content = PageContent(
        every,
        summaries,
        {one.corpus: build_tables([one], **shown) for one in every},
        pictures,
        _write_methods(every, options.protocol),
        provenance,
        options.commands,
        options.confusion,
        calls=_find_calls(every, options, audio or {}),
    )
    write_page(folder / PAGE, options.title, content)
    progress(0.2, "the page")
    return [*names, PAGE]


def _draw(
    results: CorpusResults, folder: Path, options: ReportOptions, processes: int
) -> list[Path]:
    if not options.figures:
        return []
    pages = plan_figures(results, options.confusion, options.protocol)
    return render_all(pages, folder, processes)


def _find_calls(
    all_results: Sequence[CorpusResults],
    options: ReportOptions,
    audio: Mapping[str, CorpusAudio],
) -> dict[str, CorpusCalls]:
    """Return the calls of corpora, with sounds of some where there is audio."""
    share = MOST_BYTES / len(all_results)
    every = {}
    for results in all_results:
        calls = find_calls(results)
        if options.sounds and results.corpus in audio:
            names = choose_sounds(calls, results)
            clips = make_clips(audio[results.corpus], names, share)
            calls = replace(calls, clips=clips)
        every[results.corpus] = calls
    return every


def _write_methods(
    all_results: Sequence[CorpusResults], protocol: Protocol
) -> dict[str, list[str]]:
    return {
        one.corpus: [*describe_methods(one, protocol), *list_references(one)]
        for one in all_results
    }


def _caption_pictures(figures: Sequence[Path]) -> list[Picture]:
    """Return the PNG files with their captions."""
    pictures = []
    for path in figures:
        if path.suffix == ".png":
            name, _, number = path.stem.partition("-")
            caption = CAPTIONS[name]
            if number:
                caption += f", {number}"
            pictures.append(Picture(path.stem, caption, path))
    return pictures


def write_numbers(results: CorpusResults, folder: Path) -> list[str]:
    """Write what was measured on a corpus; return the names of the files.

    Curves, values and classes are those of every classifier, the reference first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_evaluation(_join_classifiers(results), folder)
    write_rejects(results.rejects, folder / "rejects.csv")
    evaluation = results.evaluation
    frames = {
        "differences.csv": evaluation.differences,
        "baselines.csv": results.baselines.drop("samples"),
        "crossovers.csv": evaluation.crossovers,
        "refinement.csv": results.refinement,
    }
    names = list(RESULT_FILES)
    for name, frame in frames.items():
        if name in ALWAYS_WRITTEN or not frame.is_empty():
            write_frame(frame, folder / name)
            names.append(name)
    return [*names, "rejects.csv"]


def _join_classifiers(results: CorpusResults) -> Evaluation:
    evaluation = results.evaluation
    if results.others is None:
        return evaluation
    return replace(
        evaluation,
        curve=all_curves(results),
        values=all_values(results),
        per_class=pl.concat([evaluation.per_class, results.others.per_class]),
    )
