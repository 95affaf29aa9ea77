"""Which workers get tasks of a job: those that failed wait, and come back."""

from pathlib import Path

import pytest

from callshot.distributed import run_job as job_workers
from callshot.distributed.run_job import FailedOpenings, JobWorkers
from callshot.errors import ClusterError
from cluster_jobs import make_job

pytest.importorskip("distributed")


@pytest.fixture
def listed(monkeypatch):
    """Return the list of the workers that the scheduler has."""
    addresses = ["a", "b"]
    monkeypatch.setattr(job_workers, "COUNT_S", 0.0)
    monkeypatch.setattr(job_workers, "PAUSE_S", 0.0)
    monkeypatch.setattr(job_workers, "list_workers", lambda *_, **__: list(addresses))
    return addresses


def open_workers(**changes) -> JobWorkers:
    workers = JobWorkers(None, make_job(Path(), ["good"], **changes))
    workers.count_again()
    return workers


def fail(workers: JobWorkers, address: str, times: int) -> None:
    for _ in range(times):
        workers.note_failed(address, "the disk failed", sent_s=1e12)


def test_a_failure_of_a_task_that_was_sent_before_the_pause_is_not_counted():
    failed = FailedOpenings()
    failed.add("503", sent_s=1.0)
    end_s = failed.end_s
    for sent_s in (1.0, end_s - 0.001):
        failed.add("503", sent_s)
    assert (failed.count, failed.end_s) == (1, end_s)
    failed.add("503", sent_s=end_s + 0.001)
    assert failed.count == 2
    assert failed.end_s > end_s


def test_a_worker_that_failed_too_often_is_given_up_with_its_reason(listed):
    workers = open_workers()
    fail(workers, "a", 2)
    assert workers.given_up == {}
    fail(workers, "a", 1)
    assert workers.given_up == {"a": "the disk failed"}
    assert workers.ready == ["b"]


def test_a_worker_that_was_started_again_at_the_same_address_gets_tasks(listed):
    workers = open_workers()
    fail(workers, "a", 3)
    listed.remove("a")
    workers.count_again()
    listed.append("a")
    workers.count_again()
    assert sorted(workers.ready) == ["a", "b"]
    assert not workers.pausing


def test_the_reason_of_the_worker_that_is_left_is_named(listed, monkeypatch):
    workers = open_workers()
    fail(workers, "a", 3)
    listed.remove("b")
    monkeypatch.setattr(job_workers, "NO_WORKERS_S", -1.0)
    message = "test: worker a: the disk failed; no other worker came in -1 s$"
    with pytest.raises(ClusterError, match=message):
        workers.count_again()


@pytest.mark.parametrize(
    ("needs_gpu", "kind"), [(False, "workers"), (True, "workers with a GPU")]
)
def test_a_job_without_workers_says_which_it_needs(
    listed, monkeypatch, needs_gpu, kind
):
    workers = open_workers(needs_gpu=needs_gpu)
    listed.clear()
    monkeypatch.setattr(job_workers, "NO_WORKERS_S", -1.0)
    with pytest.raises(ClusterError, match=f"the cluster has had no {kind} for -1 s"):
        workers.count_again()
