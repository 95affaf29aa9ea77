"""Scores that follow the decisions of a review, computed beside it in a thread."""

import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import TYPE_CHECKING

from callshot.errors import CallshotError

if TYPE_CHECKING:
    from callshot.review.held_out_scores import HeldOutScores
    from callshot.review.model_scores import ModelScores
    from callshot.review.session import Review

    Scores = ModelScores | HeldOutScores

LONGEST_WAIT_S = 30.0


class ScoreWorker:
    """Opens the model and its vectors, then computes scores whenever confirmed calls change.

    scores  None until they are open
    why     there are none, where there are none
    """

    def __init__(self, review: "Review", load: "Callable[[], Scores]") -> None:
        self.scores: Scores | None = None
        self.why = "the vectors of the detections are being read"
        self.took_s = 0.0
        self._review = review
        self._load = load
        self._wanted = (
            0  # how often scores were asked for, and how often they were made
        )
        self._made = -1
        self._stops = False
        self._condition = Condition()
        self._thread = Thread(target=self._run, name="callshot-scores", daemon=True)
        self._thread.start()

    def ask(self) -> int:
        """Ask for scores by the decisions as they are now; return the number of the request."""
        with self._condition:
            self._wanted += 1
            self._condition.notify_all()
            return self._wanted

    def wait(self, request: int) -> bool:
        """Wait until a request is done; return whether it is."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self._made >= request or self._stops, LONGEST_WAIT_S
            )

    def stop(self) -> None:
        """End the thread."""
        with self._condition:
            self._stops = True
            self._condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.scores = self._load()
        except (CallshotError, MemoryError, OSError) as error:
            self.why = f"scores do not follow the decisions: {error}"
            with self._condition:
                self._stops = True
                self._condition.notify_all()
            return
        self.why = ""
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: self._made < self._wanted or self._stops
                )
                if self._stops:
                    return
                request = self._wanted
            self._refresh(self.scores)
            with self._condition:
                self._made = request
                self._condition.notify_all()

    def _refresh(self, scores: "Scores") -> None:
        review = self._review
        begin_s = time.perf_counter()
        added = review.list_confirmed()
        changed = scores.update(added)
        if changed:
            review.take_scores(scores)
        self.took_s = time.perf_counter() - begin_s
