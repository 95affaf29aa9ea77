"""The k-shot curve of the labels collected so far: how well k confirmed calls name the others.

Examples and queries are of different recordings: these are split into as many folds as the label
in the fewest recordings allows, up to 10. Mean and interval (98 %) are over draws of the examples,
as in `evaluate(spread="shared")`.
"""

from collections.abc import Mapping, Sequence
from threading import Lock, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import CallshotError
from callshot.records.frames import Frame

MIN_CALLS = 4  # of a label, to be on the curve
MIN_LABELS = 2
MIN_RECORDINGS = 2
SHOTS = (1, 2, 3, 5, 8, 10, 15, 20, 30, 40)
MAX_FOLDS = 10
DRAWS = 200

Answer = dict[str, Any]


class CurveWorker:
    """Computes curves in a thread, one at a time, and keeps the latest."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._thread: Thread | None = None
        self._computed: Any = None
        self._answer: Answer = {"why": "the curve is being computed"}

    def get(
        self,
        confirmed: Mapping[str, Sequence[int]],
        recording: NDArray[np.int64],
        vectors: NDArray[np.float32],
    ) -> Answer:
        """Return the curve of these calls, or the one before while it is `pending`."""
        why = find_obstacle(confirmed, recording)
        if why:
            return {"why": why}
        confirmed_rows = {label: sorted(rows) for label, rows in confirmed.items()}
        with self._lock:
            is_running = self._thread is not None and self._thread.is_alive()
            if confirmed_rows != self._computed and not is_running:
                self._thread = Thread(
                    target=self._compute,
                    args=(confirmed_rows, recording, vectors),
                    daemon=True,
                )
                self._thread.start()
            return {**self._answer, "pending": confirmed_rows != self._computed}

    def wait(self) -> None:
        """Wait until the curve that is being computed is done."""
        if self._thread is not None:
            self._thread.join()

    def _compute(self, confirmed_rows: Any, recording: Any, vectors: Any) -> None:
        answer = compute_curve(confirmed_rows, recording, vectors)
        with self._lock:
            self._computed = confirmed_rows
            self._answer = answer


def find_obstacle(confirmed: Mapping[str, Sequence[int]], recording: Any) -> str:
    """Return why there is no curve yet; empty if there can be one."""
    labels = [label for label, rows in confirmed.items() if len(rows) >= MIN_CALLS]
    if len(labels) < MIN_LABELS:
        return (
            f"confirm {MIN_CALLS} calls or more of {MIN_LABELS} labels; "
            f"{len(labels)} have that many"
        )
    for label in labels:
        recordings = {int(recording[row]) for row in confirmed[label]}
        if len(recordings) < MIN_RECORDINGS:
            return f"confirm calls of {label} in {MIN_RECORDINGS} recordings or more"
    return ""


def compute_curve(
    confirmed: Mapping[str, Sequence[int]],
    recording: NDArray[np.int64],
    vectors: NDArray[np.float32],
) -> Answer:
    """Return k, mean average precision and its interval; or why there are none."""
    why = find_obstacle(confirmed, recording)
    if why:
        return {"why": why}
    rows_by_label = {
        name: rows for name, rows in confirmed.items() if len(rows) >= MIN_CALLS
    }
    try:
        points = _evaluate(rows_by_label, recording, vectors)
    except CallshotError as error:
        return {"why": str(error)}
    if len(points) == 0:
        return {"why": "too few calls in different recordings"}
    return {
        "k": points["k"].to_list(),
        "map": points["mean"].to_list(),
        "low": points["p01"].to_list(),
        "high": points["p99"].to_list(),
        "calls": sum(map(len, rows_by_label.values())),
    }


def _evaluate(
    rows_by_label: Mapping[str, Sequence[int]],
    recording: NDArray[np.int64],
    vectors: NDArray[np.float32],
) -> Frame:
    """Return the points of the curve at which all labels have enough calls."""
    from callshot.api import evaluate

    names = sorted(rows_by_label)
    rows = [row for name in names for row in sorted(rows_by_label[name])]
    recordings = [
        len({int(recording[row]) for row in rows_by_label[name]}) for name in names
    ]
    largest = max(len(rows_by_label[name]) for name in names) - 1
    result = evaluate(
        np.asarray(vectors[rows]),
        [name for name in names for _ in rows_by_label[name]],
        groups=[str(recording[row]) for row in rows],
        shots=[k for k in SHOTS if k <= largest],
        spread="shared",
        folds=min(MAX_FOLDS, *recordings),
        shared_draws=DRAWS,
        permutations=0,
        threads=1,
    )
    points = result.curve.filter(metric="map", spread="shared", complete=True)
    return points.sort("k")
