"""Jobs run in threads, each with one thread of torch."""

from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from callshot.baselines.executor import run_jobs
from callshot.records import no_progress

torch = pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
)


def test_a_job_keeps_one_thread_of_torch_whatever_other_threads_set() -> None:
    """With two threads, losses and weights differ in their last digits."""
    job = SimpleNamespace(title="job", task=SimpleNamespace(device=torch.device("cpu")))

    def count_threads(*_: Any) -> int:
        other = Thread(target=torch.set_num_threads, args=(2,))
        other.start()
        other.join()
        return torch.get_num_threads()

    before = torch.get_num_threads()
    assert run_jobs([job] * 3, count_threads, 2, no_progress) == [1, 1, 1]
    assert torch.get_num_threads() == before
