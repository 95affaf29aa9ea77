"""Decisions → the shares that the heat map of confusions shows.

The evaluation stores how often a call type is named another one, not for which calls; `call_scores`
ranks those.
"""

from collections.abc import Sequence
from typing import Any

from callshot.records import Evaluation
from callshot.records.frames import Frame, Shots
from callshot.report.page.html import clean
from callshot.report.summary.sentences import confusion_shot


def confusion_data(evaluation: Evaluation, shots: Shots, few: int) -> dict[str, Any]:
    """Return the shares of decisions by encoder and k, in percent; rows are the true call types.

    The heat map opens at the k of the headline, `few`, whatever other shots there are to choose.
    """
    labels = [count.label for count in evaluation.eligible_classes]
    cells = evaluation.confusion
    evaluated = sorted(set(cells["k"]))
    first = confusion_shot(evaluated, few) if evaluated else few
    shown = {k for k in (*shots, first) if k in evaluated}
    ordered = sorted(shown)
    matrices = {}
    for number, encoder in enumerate(evaluation.encoders):
        for k in ordered:
            rows = cells.filter(encoder=encoder, k=k)
            matrices[f"{number}.{k}"] = _fill_matrix(rows, labels)
    names = [clean(label) for label in labels]
    return {"labels": names, "shots": ordered, "first": first, "matrices": matrices}


def _fill_matrix(cells: Frame, labels: Sequence[str]) -> list[list[float]]:
    numbers = {label: number for number, label in enumerate(labels)}
    matrix = [[0.0] * len(labels) for _ in labels]
    columns = cells.select("true", "predicted", "recall").fill_nan(0.0)
    for true, predicted, recall in columns.iter_rows():
        matrix[numbers[true]][numbers[predicted]] = round(100 * recall, 1)
    return matrix
