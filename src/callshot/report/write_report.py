"""Results of the corpora of a study → everything that people read, in one folder.

report.html             the page
tables/                 LaTeX, Markdown and CSV
CORPUS/curve.csv …      all numbers
CORPUS/figures/         PNG, and PDF if that is asked for
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callshot.corpus.segment_table import write_rejects
from callshot.encoders.catalogue import list_citations
from callshot.fewshot.protocol import Protocol
from callshot.jobs import Pool
from callshot.options import DisplayOptions
from callshot.records import CorpusResults, Progress
from callshot.records.frames import CURVE_KEY
from callshot.records.table_files import write_csv_frame
from callshot.report.calls import MAX_BYTES, choose_sounds, find_calls, start_clips
from callshot.report.choices import join_classifiers
from callshot.report.encoder_names import with_names
from callshot.report.figures import plan_figures
from callshot.report.figures.figure_io import (
    FIGURES,
    ON_CHART,
    FigurePage,
    start_drawing,
)
from callshot.report.page import write_page
from callshot.report.summary import Summary
from callshot.report.summary.context import say
from callshot.report.tables.table import DOCUMENT, build_tables, write_tables
from callshot.results import EarlierFiles, content_key
from callshot.spans import Spans
from callshot.tables.evaluation_files import (
    DIFFERENCES_FILE,
    RESULT_FILES,
    VALUES_FILE,
    write_evaluation,
    write_values,
)
from callshot.version import __version__

PAGE = "report.html"


@dataclass(frozen=True, kw_only=True)
class ReportOptions(DisplayOptions):
    """What a report shows, its title, and how to repeat it."""

    title: str
    protocol: Protocol
    commands: Sequence[str]


def certain_names(corpora: Sequence[str]) -> list[str]:
    """Return the names of the files that every report on some corpora has, whatever the results."""
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
    segments: Mapping[str, Spans],
    workers: Executor | None,
    earlier: EarlierFiles,
    progress: Progress,
) -> list[str]:
    """Write all files of a report to a folder; return their names.

    Results, summaries and segments are by corpus; the page plays some of the segments. `provenance`
    is shown on the page. `workers` draw figures beside this process, and threads make sounds, while
    it writes the numbers. What did not change since the `earlier` report is copied.
    """
    every = list(all_results.values())
    # The page and the figures have names for people; the files of numbers have those of the study.
    named = {corpus: with_names(results) for corpus, results in all_results.items()}
    formats = ("pdf", "png") if options.pdf else ("png",)  # the page shows PNG files
    drawings = {}
    for corpus, results in named.items():
        pages: Iterable[FigurePage] = ()
        if options.figures:
            pages = plan_figures(
                results, options.confusion, options.protocol, charts=options.pdf
            )
        drawings[corpus] = start_drawing(
            pages, folder, f"{corpus}/figures", formats, workers, earlier
        )
    calls = {results.corpus: find_calls(results) for results in every}
    most_bytes = MAX_BYTES / len(every)  # of the sounds of a corpus
    with Pool(thread_name_prefix="callshot-sounds") as pool:
        unfinished_clips = {}
        for corpus, spans in segments.items():
            if options.sounds:
                sounds = choose_sounds(calls[corpus], all_results[corpus])
                unfinished_clips[corpus] = start_clips(spans, sounds, pool, most_bytes)
        names = []
        for results in every:
            names += write_numbers(results, folder, earlier)
        of_tables: dict[str, Any] = {"shots": options.shots, "spread": options.spread}
        tables = build_tables(every, **of_tables)
        names += [f"tables/{name}" for name in write_tables(tables, folder / "tables")]
        progress(0.2, "numbers")

        pictures = {}
        for corpus, finish_figures in drawings.items():
            paths = finish_figures()
            names += [path.relative_to(folder).as_posix() for path in paths]
            pictures[corpus] = list_pictures(paths)
            progress(0.5 / len(drawings), f"figures of {corpus}")
        clips = {corpus: finish() for corpus, finish in unfinished_clips.items()}
        progress(0.1, "sounds")

    methods = {}
    for corpus, results in named.items():
        references = list_references(all_results[corpus])
        methods[corpus] = [*describe_methods(results, options.protocol), *references]
    write_page(
        folder / PAGE,
        options.title,
        every,
        summaries,
        tables={name: build_tables([one], **of_tables) for name, one in named.items()},
        pictures=pictures,
        methods=methods,
        provenance=provenance,
        commands=options.commands,
        confusion_shots=options.confusion,
        calls=calls,
        clips=clips,
    )
    progress(0.2, "the page")
    return [*names, PAGE]


def list_pictures(paths: Iterable[Path]) -> list[tuple[str, str, Path]]:
    """Return the figures that the page shows, by the paths of all: section, caption and path."""
    pictures = []
    for path in paths:
        name, _, number = path.stem.partition("-")
        figure = FIGURES[name]
        if path.suffix == ".png" and figure.section != ON_CHART:
            caption = f"{figure.caption}, {number}" if number else figure.caption
            pictures.append((figure.section, caption, path))
    return pictures


def write_numbers(
    results: CorpusResults, root: Path, earlier: EarlierFiles
) -> list[str]:
    """Write what was measured on a corpus, all classifiers, to `root`/CORPUS; return the names."""
    folder = root / results.corpus
    folder.mkdir(parents=True, exist_ok=True)
    whole = join_classifiers(results)
    write_evaluation(whole, folder, values=False)
    values_name = f"{results.corpus}/{VALUES_FILE}"
    if not earlier.copy(values_name, content_key(whole.values), root):
        write_values(whole.values, list(CURVE_KEY), root / values_name)
    write_rejects(results.rejects, folder / "rejects.csv")
    evaluation = results.evaluation
    frames = {
        DIFFERENCES_FILE: evaluation.differences,
        "baselines.csv": results.baselines.drop("samples", "mean_samples"),
        "crossovers.csv": evaluation.crossovers,
        "refinement.csv": results.refinement,
    }
    names = [*RESULT_FILES, "rejects.csv"]
    for name, frame in frames.items():
        if name == DIFFERENCES_FILE or not frame.is_empty():
            write_csv_frame(frame, folder / name)
            names.append(name)
    return [f"{results.corpus}/{name}" for name in names]


PROTOCOL = (
    "C. M. Geldenhuys, T. R. Niesler: A Parameter-Free Few-Shot Evaluation for Elephant "
    "Vocalisation Classification."
)
CENTROIDS = (
    "J. Snell, K. Swersky, R. Zemel (2017): Prototypical Networks for Few-shot Learning. "
    "Advances in Neural Information Processing Systems 30."
)


def describe_methods(results: CorpusResults, protocol: Protocol) -> list[str]:
    """Return the paragraphs of a methods section: data, evaluation, intervals."""
    evaluation = results.evaluation
    score = "log-odds" if protocol.score == "log" else "softmax"
    return [
        say("data", results),
        say("method", evaluation, evaluation.curve["k"], score),
        say("sampling", evaluation.spreads, protocol, __version__),
    ]


def list_references(results: CorpusResults) -> list[str]:
    """Return the references of the methods section; encoders are named as in the study."""
    citations = list_citations(results.evaluation.encoders)
    references = enumerate([PROTOCOL, CENTROIDS, *citations], 1)
    return [f"[{number}] {text}" for number, text in references]
