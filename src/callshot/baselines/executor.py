"""Run training jobs in threads; options and input checks that all networks share.

torch uses one thread in each of our threads, so results do not depend on the number of threads.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Any, TypeVar

from callshot.errors import InputError, OptionError, check_range
from callshot.pools import Pool
from callshot.records import IntArray, Progress

MIN_EXAMPLES = 2  # of each class on the support side of a split
Outcome = TypeVar("Outcome")


def check_positive(name: str, value: int | None) -> None:
    """Check that an option, if given, is at least 1."""
    if value is not None:
        check_range(name, value, 1)


@dataclass(frozen=True)
class TrainingOptions:
    """Options of all network baselines.

    `seeds` is the number of networks to average. `threads` is the number of networks to train at a
    time. `folder` keeps trained networks and the state after each epoch; None keeps nothing.
    """

    seeds: int = 1
    device: str = "cpu"
    threads: int = 1
    folder: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive("seeds", self.seeds)
        check_positive("threads", self.threads)
        if self.device_type not in ("cpu", "cuda"):
            raise OptionError(f"device: expected cpu or cuda, got {self.device!r}")

    @property
    def device_type(self) -> str:
        """The type of device, which decides the last digits; its number does not."""
        return self.device.partition(":")[0]


DEFAULT_OPTIONS = TrainingOptions()


@dataclass(frozen=True)
class CancelToken:
    """Receives the progress of jobs, and stops them all."""

    progress: Progress
    stopped: Event = field(default_factory=Event)
    saving: Lock = field(default_factory=Lock)

    def check_cancelled(self, *_: Any) -> None:
        """Raise CancelledError if another job failed, or the user stopped all of them."""
        if self.stopped.is_set():
            raise CancelledError

    def stop(self) -> None:
        """Stop all jobs; none writes a file after this."""
        self.stopped.set()
        with self.saving:
            pass

    @contextmanager
    def hold_saving(self) -> Iterator[None]:
        """Let a job write a file in the block, unless all jobs are to stop."""
        with self.saving:
            self.check_cancelled()
            yield


Work = Callable[[Any, CancelToken], Outcome]


def require_torch(device: str = "cpu") -> None:
    """Check that torch and safetensors are installed and that torch can use the device."""
    try:
        import safetensors  # noqa: F401
        import torch
    except ImportError as error:
        message = f"{error.name} is not installed; pip install 'callshot[baselines]'"
        raise InputError(f"trained networks: {message}") from error
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise OptionError("device: torch finds no CUDA device; use cpu")


def check_lengths(rows: int, **lengths: int) -> None:
    """Check that each input has one item per row."""
    for name, length in lengths.items():
        if length != rows:
            raise InputError(
                f"{name}: expected one for each of {rows} rows, got {length}"
            )


def check_examples(counts: IntArray, names: Sequence[str], fold: int) -> None:
    """Check that each class has enough examples on the support side of a split."""
    for name, count in zip(names, counts.tolist(), strict=True):
        if count < MIN_EXAMPLES:
            raise InputError(
                f"class '{name}': expected at least {MIN_EXAMPLES} examples on the support side of "
                f"fold {fold} to train a network, got {count}; label more, or leave the class out"
            )


def run_jobs(
    jobs: Sequence[Any],
    work: Work[Outcome],
    threads: int,
    progress: Progress,
) -> list[Outcome]:
    """Run all jobs, several at a time, and return their outcomes in order.

    If one fails, the others stop after their current batch.
    """
    with _reproducible_torch(), Pool(threads, initializer=_use_one_thread) as pool:
        token = CancelToken(progress, pool.stopped)
        futures = {pool.submit(_run_job, job, work, token): job for job in jobs}
        try:
            for future in as_completed(futures):
                if isinstance(future.exception(), CancelledError):
                    continue  # the job that failed reports why
                future.result()
                progress(1 / len(jobs), futures[future].title)
        except BaseException:
            token.stop()
            raise
    return [future.result() for future in futures]


def _run_job(job: Any, work: Work[Outcome], token: CancelToken) -> Outcome:
    """Run a job unless another has failed; on a GPU in its own stream, so that none waits."""
    token.check_cancelled()
    try:
        if job.task.device.type != "cuda":
            return work(job, token)
        import torch

        with torch.cuda.stream(torch.cuda.Stream(job.task.device)):
            return work(job, token)
    except BaseException:
        token.stopped.set()
        raise


@contextmanager
def _reproducible_torch() -> Iterator[None]:
    """Set everything in torch that decides the last digits while the block runs.

    With one thread, sums have one order; with full precision on a GPU, a row does not depend on the
    other rows of its batch. oneDNN is switched on, because torch switches it off for the rest of
    the process after a product of bfloat16 numbers on a CPU that cannot multiply them.
    """
    import torch

    rnn = torch.backends.cudnn.rnn
    onednn: Any = torch.backends.mkldnn
    threads = torch.get_num_threads()
    precision = rnn.fp32_precision
    enabled = onednn.enabled
    torch.set_num_threads(1)
    rnn.fp32_precision = "ieee"
    onednn.enabled = True
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        rnn.fp32_precision = precision
        onednn.enabled = enabled


def _use_one_thread() -> None:
    """Give torch one thread in this thread, whatever other threads set later.

    torch reads the number that was set last, in any thread, when a thread first needs it. So the
    number is asked for, and then set.
    """
    import torch

    torch.get_num_threads()
    torch.set_num_threads(1)
