"""The workers of a cluster, as they come and go, and which of them get tasks of a job.

A worker that cannot open what a job needs, because storage or a shared disk failed, gets no task
for some seconds, and none at all after a few tries. The job ends when no other worker is left.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from callshot.errors import ClusterError
from callshot.jobs import Job

if TYPE_CHECKING:
    from distributed import Client

COUNT_S = 2.0
NO_WORKERS_S = 300.0
MAX_OPENINGS = 3  # tries of a worker to open what a job needs
PAUSE_S = 5.0  # after the first of them, twice as long after the next
GPU = "GPU"  # the resource that workers with a GPU announce


def ignore_missing() -> None:
    """Leave it to others to start workers again."""


@dataclass
class FailedOpenings:
    """How often a worker could not open what a job needs, why, and until when it gets no task."""

    count: int = 0
    end_s: float = 0.0
    reason: str = ""

    @property
    def is_last(self) -> bool:
        """Whether the worker gets no task any more."""
        return self.count >= MAX_OPENINGS

    @property
    def is_pausing(self) -> bool:
        """Whether the worker gets no task now."""
        return self.is_last or time.monotonic() < self.end_s

    def add(self, reason: str, sent_s: float) -> None:
        """Count a failure, but not that of a task that was sent before the end of the pause."""
        self.reason = reason
        if self.is_last or sent_s < self.end_s:
            return
        self.end_s = time.monotonic() + PAUSE_S * 2**self.count
        self.count += 1


@dataclass
class JobWorkers:
    """The workers that can have tasks of a job.

    restore    starts workers again that are gone for good, where we started them
    addresses  of all workers, of those with a GPU if the job needs one
    failed     those that could not open what the job needs, by address
    """

    client: "Client"
    job: Job
    restore: Callable[[], None] = ignore_missing
    addresses: list[str] = field(default_factory=list)
    failed: dict[str, FailedOpenings] = field(default_factory=dict)
    counted_s: float = -COUNT_S
    seen_s: float = field(default_factory=time.monotonic)  # when there were workers

    def count_again(self) -> bool:
        """Ask now and then which workers there are: some die, others come."""
        if time.monotonic() - self.counted_s < COUNT_S:
            return False
        self.restore()
        list_them = list_gpu_workers if self.job.needs_gpu else list_workers
        self.addresses = list_them(self.client)
        for address in self.failed.keys() - set(self.addresses):
            del self.failed[address]
        self.counted_s = time.monotonic()
        if not self._all_failed:
            self.seen_s = self.counted_s
        elif self.counted_s - self.seen_s > NO_WORKERS_S:
            raise ClusterError(f"{self.job.kind}: {self._describe_missing()}")
        return True

    def _describe_missing(self) -> str:
        """Return why no worker can have tasks."""
        if self.failed:
            address, failed = next(iter(self.failed.items()))
            waited = f"no other worker came in {NO_WORKERS_S:g} s"
            return f"worker {address}: {failed.reason}; {waited}"
        kind = "workers with a GPU" if self.job.needs_gpu else "workers"
        return (
            f"the cluster has had no {kind} for {NO_WORKERS_S:g} s; start some, and run the "
            "command again"
        )

    @property
    def ready(self) -> list[str]:
        """The workers that may have tasks now."""
        pausing = self._pausing
        return [one for one in self.addresses if one not in pausing]

    @property
    def all_pause(self) -> bool:
        """Whether there are workers, and none may have a task now."""
        return bool(self.addresses) and not self.ready

    @property
    def some_pause(self) -> bool:
        """Whether tasks must name the workers that may have them."""
        return bool(self._pausing)

    @property
    def _all_failed(self) -> bool:
        """Whether no worker gets tasks any more, or there is none."""
        return self.given_up.keys() >= set(self.addresses)

    @property
    def _pausing(self) -> set[str]:
        return {one for one, failed in self.failed.items() if failed.is_pausing}

    def note_opened(self, address: str) -> None:
        """Forget the failures of a worker, which has opened what the job needs."""
        self.failed.pop(address, None)

    @property
    def given_up(self) -> dict[str, str]:
        """The workers that get no task any more, with the reasons."""
        failed = self.failed.items()
        return {
            address: openings.reason for address, openings in failed if openings.is_last
        }

    def note_failed(self, address: str, reason: str, sent_s: float) -> None:
        """Count that a worker failed to open what the job needs; raise if all did, too often.

        `sent_s` is when its task was sent.
        """
        self.failed.setdefault(address, FailedOpenings()).add(reason, sent_s)
        if address in self.addresses and self._all_failed:
            raise ClusterError(
                f"{self.job.kind}: worker {address}: {reason}; every worker failed like this, "
                f"{MAX_OPENINGS} times"
            )


def list_workers(client: "Client") -> list[str]:
    """Return the addresses of the workers that the scheduler has now."""
    check_alive(client)
    try:
        return list(client.nthreads())
    except Exception as error:
        raise ClusterError(lost_message(client)) from error


def list_gpu_workers(client: "Client") -> list[str]:
    """Return the addresses of the workers that announce a GPU."""
    check_alive(client)
    try:  # what scheduler_info returns may be without workers
        identity = client.sync(client.scheduler.identity, n_workers=-1)
    except Exception as error:
        raise ClusterError(lost_message(client)) from error
    workers = identity["workers"].items()
    return [address for address, facts in workers if GPU in facts["resources"]]


def check_alive(client: "Client") -> None:
    """Raise ClusterError if the scheduler is gone."""
    if client.status != "running":
        raise ClusterError(lost_message(client))


def lost_message(client: "Client") -> str:
    """Return what to do when the scheduler is gone."""
    address = getattr(client.scheduler, "address", "")
    return (
        f"the scheduler {address} is gone; what was finished is kept: start a scheduler and "
        "workers, and run the command again"
    )
