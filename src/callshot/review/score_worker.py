"""Scores that follow the decisions of a review, computed beside it in a thread."""

import time
from collections.abc import Callable
from threading import Condition, Thread
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from callshot.errors import CallshotError

if TYPE_CHECKING:
    from callshot.review.held_out_scores import HeldOutScores
    from callshot.review.model_scores import ModelScores

    Scores = ModelScores | HeldOutScores

LONGEST_WAIT_S = 30.0
# The next card comes first: scores wait until no decision came for a while, but not for ever.
PAUSE_S = 0.2
LONGEST_PAUSE_S = 1.0


class ScoreWorker:
    """Opens the model and its vectors, then updates scores whenever confirmed calls change.

    scores  None until they are open
    why_no_scores
            the reason, where there are none
    """

    def __init__(
        self, load: "Callable[[], Scores]", update: "Callable[[Scores], None]"
    ) -> None:
        self.scores: Scores | None = None
        self.why_no_scores = "the vectors of the detections are being read"
        self.took_s = 0.0
        self._load = load
        self._update = update
        self._wanted = 0  # how often scores were asked for
        self._made = -1  # the last request that was done
        self._is_urgent = False  # somebody waits for the scores
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
        """Wait until a request is done, without a pause; return whether it is."""
        with self._condition:
            self._is_urgent = True
            self._condition.notify_all()
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
            self.why_no_scores = f"scores do not follow the decisions: {error}"
            with self._condition:
                self._stops = True
                self._condition.notify_all()
            return
        self.why_no_scores = ""
        while (request := self._next_request()) is not None:
            with threadpool_limits(1):  # the other cores serve the page
                begin_s = time.perf_counter()
                self._update(self.scores)
                self.took_s = time.perf_counter() - begin_s
            with self._condition:
                self._made = request
                self._condition.notify_all()

    def _next_request(self) -> int | None:
        """Wait for a request, and until no other follows soon; None at the end."""
        with self._condition:
            self._condition.wait_for(lambda: self._made < self._wanted or self._stops)
            latest_s = time.monotonic() + LONGEST_PAUSE_S
            while not self._may_start(latest_s):
                pass
            self._is_urgent = False
            return None if self._stops else self._wanted

    def _may_start(self, latest_s: float) -> bool:
        """Wait for a pause; return whether there was one, or whether it is time."""
        before = self._wanted
        left_s = min(PAUSE_S, latest_s - time.monotonic())
        if left_s <= 0:
            return True
        is_disturbed = self._condition.wait_for(
            lambda: self._wanted > before or self._is_urgent or self._stops, left_s
        )
        return not is_disturbed or self._is_urgent or self._stops
