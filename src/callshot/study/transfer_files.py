"""Examples of one table, queries of another: from files to files."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from callshot.fewshot.dataset import Dataset
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.transfer import evaluate_transfer
from callshot.jobs import Cluster
from callshot.records import Evaluation, Progress, TransferEvaluation, no_progress
from callshot.report.figures.differences import draw_transfer
from callshot.report.provenance import describe_evaluation
from callshot.report.transfer_results import (
    open_transfer_results,
    write_transfer_results,
)
from callshot.results import FinishedSweeps
from callshot.study.file_steps import DatasetChoice


def evaluate_transfer_files(
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
) -> TransferEvaluation:
    """Read tables of a source and a target corpus, evaluate them and write the results.

    A file of folds, categories and the name of the corpus are those of the target.
    """
    choice = choice or DatasetChoice()
    with open_transfer_results(out) as output:
        finished = FinishedSweeps(output.folder)
        source, target = read_corpora(paths, queries, choice)
        result = evaluate_transfer(
            source,
            target,
            protocol,
            centre=centre,
            threads=threads,
            memory=memory,
            device=device,
            cluster=cluster,
            store=finished,
            progress=progress,
        )
        notes = [*source.notes, *target.notes, *result.notes]
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
        files = _describe_files(source, target)
        provenance = describe_evaluation(result, protocol, files, options)
        draw = partial(draw_transfer, result) if figure else None
        write_transfer_results(
            output, result, provenance | _describe_corpora(result), draw
        )
        finished.remove()
    return result


def read_corpora(
    paths: Sequence[Path], queries: Sequence[Path], choice: DatasetChoice
) -> tuple[Dataset, Dataset]:
    """Read the tables of a source and a target corpus; their names differ.

    Names are those in the tables or of their folders, else those of the files.
    """
    own = replace(choice, fold_file=None, categories=None, corpus=None)
    source = own.read(paths)
    target = choice.read(queries)
    if source.corpus == target.corpus:
        source = replace(source, corpus=paths[0].stem)
        target = replace(target, corpus=choice.corpus or queries[0].stem)
    if source.corpus == target.corpus:
        source = replace(source, corpus="source")
        target = replace(target, corpus=choice.corpus or "target")
    return source, target


def _describe_files(source: Dataset, target: Dataset) -> list[dict[str, Any]]:
    """Return the files of both; the role of a table is what it was used for."""
    files = []
    for dataset, role in ((source, "source"), (target, "target")):
        for file in dataset.files:
            is_table = file["role"] == "table"
            files.append({**file, "role": role if is_table else file["role"]})
    return files


def _describe_corpora(result: TransferEvaluation) -> dict[str, Any]:
    """Return the corpora, and what was evaluated within each."""
    facts: dict[str, Any] = {
        "source_corpus": result.source_corpus,
        "target_corpus": result.corpus,
    }
    facts["within_target"] = _describe_folds(result.within_target)
    if result.within_source is not None:
        facts["within_source"] = _describe_folds(result.within_source)
    return facts


def _describe_folds(evaluation: Evaluation) -> dict[str, Any]:
    folds = evaluation.folds
    return {
        "classes": [count.label for count in evaluation.eligible_classes],
        "queries": evaluation.queries,
        "complete_shots": evaluation.complete_shots,
        "folds": {"count": folds.count, "origin": folds.origin, "proof": folds.proof},
    }
