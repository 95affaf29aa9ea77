"""Jobs run in threads; nothing that was set in torch before decides their last digits."""

from concurrent.futures import CancelledError
from threading import Event, Thread
from types import SimpleNamespace

import pytest

from callshot.baselines.training import TrainingContext, run_jobs

torch = pytest.importorskip("torch")


JOB = SimpleNamespace(title="job", data=SimpleNamespace(device=torch.device("cpu")))


def test_a_job_keeps_one_thread_of_torch_whatever_other_threads_set():
    def count_threads(*_):
        other = Thread(target=torch.set_num_threads, args=(2,))
        other.start()
        other.join()
        return torch.get_num_threads()

    before = torch.get_num_threads()
    assert run_jobs([JOB] * 3, count_threads, TrainingContext(threads=2)) == [1, 1, 1]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("enabled", [True, False])
def test_jobs_use_onednn_even_if_torch_has_switched_it_off(enabled, monkeypatch):
    """A product of bfloat16 numbers on a CPU that cannot multiply them switches it off."""
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", enabled)

    def is_enabled(*_):
        return torch.backends.mkldnn.enabled

    assert run_jobs([JOB], is_enabled, TrainingContext(threads=1)) == [True]
    assert torch.backends.mkldnn.enabled == enabled


def test_after_ctrl_c_nobody_waits_for_a_batch_and_no_job_writes_a_file():
    may_end = Event()
    has_begun = Event()
    outcomes: list[object] = []

    def work(_, pool):
        if has_begun.is_set():
            return  # the job that is done first, so that progress is reported
        has_begun.set()
        may_end.wait()
        try:
            pool.check_stopped()
            outcomes.append("written")
        except CancelledError as error:
            outcomes.append(error)
        finally:
            is_over.set()

    def interrupt(*_):
        raise KeyboardInterrupt

    is_over = Event()
    with pytest.raises(KeyboardInterrupt):
        run_jobs([JOB] * 2, work, TrainingContext(threads=2, progress=interrupt))
    assert not outcomes
    may_end.set()
    is_over.wait()
    assert isinstance(outcomes[0], CancelledError)
