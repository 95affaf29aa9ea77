"""Scores are computed when decisions pause, or at once when somebody waits for them."""

import time

from callshot.review.scores import MAX_PAUSE_S, ScoreWorker


class Scores:
    """Counts how often scores are computed."""

    def __init__(self):
        self.updates = 0


def update(scores):
    scores.updates += 1


def make_worker():
    scores = Scores()
    worker = ScoreWorker(lambda: scores, update)
    worker.wait(worker.ask())
    scores.updates = 0
    return worker, scores


def wait_until_made(worker, request):
    """Wait without asking for haste."""
    while worker._made < request:
        time.sleep(0.01)


def test_decisions_that_follow_each_other_are_scored_together():
    worker, scores = make_worker()
    for _ in range(5):
        last = worker.ask()
    wait_until_made(worker, last)
    assert scores.updates == 1
    worker.stop()


def test_scores_do_not_wait_for_ever_for_a_pause():
    worker, scores = make_worker()
    end_s = time.monotonic() + 60 * MAX_PAUSE_S
    while scores.updates == 0 and time.monotonic() < end_s:
        worker.ask()
        time.sleep(0.02)
    assert scores.updates > 0
    worker.stop()


def test_a_request_that_is_waited_for_is_done(monkeypatch):
    monkeypatch.setattr("callshot.review.scores.PAUSE_S", 3600.0)
    monkeypatch.setattr("callshot.review.scores.MAX_PAUSE_S", 3600.0)
    worker, scores = make_worker()
    assert worker.wait(worker.ask())
    assert scores.updates == 1
    worker.stop()


def test_a_worker_stops_while_it_waits_for_a_pause(monkeypatch):
    monkeypatch.setattr("callshot.review.scores.PAUSE_S", 3600.0)
    monkeypatch.setattr("callshot.review.scores.MAX_PAUSE_S", 3600.0)
    worker, scores = make_worker()
    worker.ask()
    worker.stop()
    assert scores.updates == 0
