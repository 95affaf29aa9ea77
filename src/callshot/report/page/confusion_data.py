"""Decisions and embeddings → what the heat map of confusions shows: shares, and the calls behind.

The evaluation stores how often a call type is named another one, not for which calls; `call_scores`
ranks those.
"""

from collections.abc import Sequence
from typing import Any

from callshot.records import CorpusResults, Evaluation
from callshot.records.frames import Frame, Shots
from callshot.report.call_scores import rank_confused, score_calls
from callshot.report.page.html import clean


def confusion_data(evaluation: Evaluation, shots: Shots) -> dict[str, Any]:
    """Return the shares of decisions by encoder and k, in percent; rows are the true call types."""
    labels = [count.label for count in evaluation.eligible_classes]
    cells = evaluation.confusion
    evaluated = sorted(set(cells["k"]))
    shown = [k for k in dict.fromkeys(shots) if k in evaluated] or evaluated[-1:]
    matrices = {}
    for number, encoder in enumerate(evaluation.encoders):
        for k in shown:
            rows = cells.filter(encoder=encoder, k=k)
            matrices[f"{number}.{k}"] = _fill_matrix(rows, labels)
    return {"shots": shown, "matrices": matrices}


def _fill_matrix(cells: Frame, labels: Sequence[str]) -> list[list[float]]:
    numbers = {label: number for number, label in enumerate(labels)}
    matrix = [[0.0] * len(labels) for _ in labels]
    columns = cells.select("true", "predicted", "recall").fill_nan(0.0)
    for true, predicted, recall in columns.iter_rows():
        matrix[numbers[true]][numbers[predicted]] = round(100 * recall, 1)
    return matrix


def call_data(results: CorpusResults) -> dict[str, Any]:
    """Return all calls, and for each encoder the calls behind each cell of the heat map."""
    evaluation = results.evaluation
    labels = [count.label for count in evaluation.eligible_classes]
    numbers = {label: number for number, label in enumerate(labels)}
    segments = evaluation.segments
    confused = []
    for table in results.tables:
        scores = score_calls(table, evaluation.folds, labels)
        confused.append(rank_confused(scores, table.label, labels))
    return {
        "labels": [clean(label) for label in labels],
        "calls": [clean(name) for name in segments.segment],
        "call_labels": [numbers.get(label, -1) for label in segments.label],
        "confused": confused,
    }
