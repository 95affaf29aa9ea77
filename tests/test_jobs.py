"""Threads that end with the program."""

import threading
from concurrent.futures import CancelledError

import pytest

from callshot.jobs import Pool


def test_after_ctrl_c_nobody_waits_for_a_task_that_runs():
    begun = threading.Event()
    may_end = threading.Event()

    def wait():
        begun.set()
        may_end.wait()

    pool = Pool(1)
    running = pool.submit(wait)
    waiting = pool.submit(wait)
    begun.wait()
    with pytest.raises(KeyboardInterrupt), pool:
        raise KeyboardInterrupt
    assert not running.done()
    assert waiting.cancelled()
    may_end.set()
    running.result()


def test_after_an_error_tasks_that_run_end_first_and_others_are_dropped():
    begun = threading.Event()

    def wait():
        begun.set()
        pool.stopped.wait()
        pool.check_stopped()

    pool = Pool(1)
    running = pool.submit(wait)
    waiting = pool.submit(wait)
    begun.wait()
    with pytest.raises(ValueError, match="no"), pool:
        raise ValueError("no")
    assert isinstance(running.exception(), CancelledError)
    assert waiting.cancelled()


def test_a_block_that_succeeds_waits_for_its_tasks():
    done = []
    with Pool() as pool:
        pool.submit(done.append, 1)
    assert done == [1]
