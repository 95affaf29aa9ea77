"""Jobs run in threads; nothing that was set in torch before decides their last digits."""

from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from callshot.baselines.executor import run_jobs
from callshot.records import no_progress

torch = pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
)


JOB = SimpleNamespace(title="job", task=SimpleNamespace(device=torch.device("cpu")))


def test_a_job_keeps_one_thread_of_torch_whatever_other_threads_set() -> None:
    def count_threads(*_: Any) -> int:
        other = Thread(target=torch.set_num_threads, args=(2,))
        other.start()
        other.join()
        return torch.get_num_threads()

    before = torch.get_num_threads()
    assert run_jobs([JOB] * 3, count_threads, 2, no_progress) == [1, 1, 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("enabled", [True, False])
def test_jobs_use_onednn_even_if_torch_has_switched_it_off(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product of bfloat16 numbers on a CPU that cannot multiply them switches it off."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", enabled)

    def is_enabled(*_: Any) -> bool:
        return torch.backends.mkldnn.enabled

    assert run_jobs([JOB], is_enabled, 1, no_progress) == [True]
    assert torch.backends.mkldnn.enabled == enabled
