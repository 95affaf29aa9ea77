"""Examples of one table, queries of another: from files to files."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from callshot.fewshot.dataset import Dataset
from callshot.fewshot.moved_examples import evaluate_moved
from callshot.fewshot.protocol import Protocol
from callshot.jobs import Cluster
from callshot.records import Evaluation, MovedEvaluation, Progress, no_progress
from callshot.report.figures.moved import draw_moved
from callshot.report.finished_sweeps import FinishedSweeps
from callshot.report.moved_results import open_moved_results, write_moved_results
from callshot.report.provenance import describe_evaluation
from callshot.study.file_steps import DatasetChoice


def evaluate_moved_files(
    paths: Sequence[Path],
    out: Path,
    protocol: Protocol,
    *,
    queries: Sequence[Path],
    choice: DatasetChoice | None = None,
    centre: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    figure: bool = True,
    progress: Progress = no_progress,
) -> MovedEvaluation:
    """Read tables of a library and of a site, evaluate them and write the results to a folder.

    A file of folds, categories and the name of the corpus are those of the site.
    """
    choice = choice or DatasetChoice()
    with open_moved_results(out) as output:
        finished = FinishedSweeps(output.folder)
        library, site = read_corpora(paths, queries, choice)
        result = evaluate_moved(
            library,
            site,
            protocol,
            centre=centre,
            threads=threads,
            memory=memory,
            device=device,
            cluster=cluster,
            store=finished,
            progress=progress,
        )
        notes = [*library.notes, *site.notes, *result.notes]
        result = replace(result, notes=list(dict.fromkeys(notes)))
        options = {
            "folds": choice.folds,
            "corpus": choice.corpus,
            "group_duplicates": choice.group_duplicates,
            "centre": centre,
            "threads": threads,
            "memory": memory,
            "device": device,
            "figure": figure,
        }
        files = _describe_files(library, site)
        provenance = describe_evaluation(result, protocol, files, options)
        draw = partial(draw_moved, result) if figure else None
        write_moved_results(output, result, provenance | _describe_inside(result), draw)
        finished.remove()
    return result


def read_corpora(
    paths: Sequence[Path], queries: Sequence[Path], choice: DatasetChoice
) -> tuple[Dataset, Dataset]:
    """Read the tables of a library and of a site; their names differ.

    Names are those in the tables or of their folders, else those of the files.
    """
    own = replace(choice, fold_file=None, categories=None, corpus=None)
    library = own.read(paths)
    site = choice.read(queries)
    if library.corpus == site.corpus:
        library = replace(library, corpus=paths[0].stem)
        site = replace(site, corpus=choice.corpus or queries[0].stem)
    if library.corpus == site.corpus:
        library = replace(library, corpus="library")
        site = replace(site, corpus=choice.corpus or "site")
    return library, site


def _describe_files(library: Dataset, site: Dataset) -> list[dict[str, Any]]:
    """Return the files of both; the role of a table is what it was used for."""
    files = []
    for dataset, role in ((library, "library"), (site, "queries")):
        for file in dataset.files:
            is_table = file["role"] == "table"
            files.append({**file, "role": role if is_table else file["role"]})
    return files


def _describe_inside(result: MovedEvaluation) -> dict[str, Any]:
    """Return the corpora, and what was evaluated inside each."""
    facts: dict[str, Any] = {"library": result.library, "site": result.corpus}
    facts["inside_site"] = _describe_folds(result.at_site)
    if result.in_library is not None:
        facts["inside_library"] = _describe_folds(result.in_library)
    return facts


def _describe_folds(evaluation: Evaluation) -> dict[str, Any]:
    folds = evaluation.folds
    return {
        "classes": [count.label for count in evaluation.eligible_classes],
        "queries": evaluation.queries,
        "complete_shots": evaluation.complete_shots,
        "folds": {"count": folds.count, "origin": folds.origin, "proof": folds.proof},
    }
