"""Saved end-to-end trainings: nothing is trained twice, and a kill costs one epoch."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callshot.baselines import end_to_end, train_loop
from callshot.baselines.end_to_end import score_end_to_end
from callshot.baselines.executor import CancelledError, CancelToken, TrainingOptions
from callshot.baselines.train_loop import TrainingTask
from callshot.errors import InputError
from callshot.records import FloatArray, no_progress
from networks import Interrupted, folder_content, interrupt_at, saved_phases

torch = pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
)
pytest.importorskip("safetensors")

from callshot.baselines import frame_classifier  # noqa: E402
from callshot.baselines.frame_classifier import FrameClassifier, FrameConfig  # noqa: E402
from callshot.baselines.transformer import AstConfig  # noqa: E402

CHILD = """
import os, signal, sys
from pathlib import Path
import test_end_to_end_files as tests

def die(share, what):
    if what == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

tests.make_small(setattr)
tests.score(Path(sys.argv[1]), progress=die)
"""


def make_small(set_attribute: Any, **settings: Any) -> None:
    torch.set_num_threads(1)
    encoder = AstConfig(width=16, layers=1, heads=2, inner=16)
    set_attribute(frame_classifier, "DEFAULT_ENCODER", encoder)
    set_attribute(
        frame_classifier, "FrameConfig", partial(FrameConfig, epochs=3, **settings)
    )


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch.setattr)


def score(
    folder: Path, seed: int = 0, epochs: int | None = None, progress: Any = no_progress
) -> tuple[FloatArray, dict[str, Any]]:
    """Score two classes of noise in two folds."""
    rng = np.random.default_rng(1)
    row = np.arange(16)
    return score_end_to_end(
        [rng.normal(0, 0.1, rng.integers(3000, 7000)).astype(np.float32) for _ in row],
        row[:, None] // 2 % 2 == np.arange(2),
        row // 4 % 2,
        row,
        ["bark", "roar"],
        epochs=epochs,
        options=TrainingOptions(folder=folder, seed=seed),
        progress=progress,
    )


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        pytest.fail("a network was trained")

    monkeypatch.setattr(TrainingTask, "run_epoch", fail)


def test_a_rerun_trains_nothing_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, metadata = score(tmp_path)
    assert metadata["trained"] == 2
    before = folder_content(tmp_path)
    assert len(before) == 2
    forbid_training(monkeypatch)
    again, metadata = score(tmp_path)
    assert metadata["trained"] == 0
    assert np.array_equal(first, again)
    assert folder_content(tmp_path) == before


@pytest.mark.parametrize("options", [{"seed": 1}, {"epochs": 2}])
def test_another_option_trains_another_network(
    options: dict[str, Any], tmp_path: Path
) -> None:
    score(tmp_path)
    assert score(tmp_path, **options)[1]["trained"] == 2


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (torch, "__version__", "0.1"),
        (TrainingOptions, "device_type", "cuda"),
        (train_loop, "FORMAT", 0),
    ],
)
def test_another_torch_device_or_format_trains_another_network(
    owner: Any, name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(tmp_path)
    monkeypatch.setattr(owner, name, value)
    assert score(tmp_path)[1]["trained"] == 2


@pytest.mark.parametrize("phase", ["search", "all"])
def test_an_interrupted_training_ends_with_the_same_weights(
    phase: str, tmp_path: Path
) -> None:
    expected, _ = score(tmp_path / "whole")
    for _ in range(2):  # one for each fold
        with pytest.raises(Interrupted):
            score(tmp_path / "cut", progress=interrupt_at(f"{phase}: epoch 1"))
    scores, _ = score(tmp_path / "cut")
    assert np.array_equal(scores, expected)
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")


def test_a_killed_process_loses_at_most_one_epoch(tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    here = Path(__file__).parent
    source = Path(end_to_end.__file__).parents[2]
    path = os.pathsep.join(map(str, (source, here, here.parent)))
    moment = "AST-seq, fold 1, seed 0, search: epoch 2"
    command = [sys.executable, "-c", CHILD, str(cut), moment]
    child = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert child.returncode == -signal.SIGKILL
    assert saved_phases(cut) == {
        "fold0-seed0-aerd": "finished",
        "fold1-seed0-aerd": "search",
    }
    messages: list[str] = []
    score(cut, progress=lambda share, what: messages.append(what))
    epochs = [message for message in messages if "epoch" in message]
    assert epochs[0] == "AST-seq, fold 1, seed 0, search: epoch 3"
    assert not any("fold 0" in message for message in epochs)  # finished before
    assert "AST-seq, fold 0, seed 0" in messages
    score(tmp_path / "whole")
    assert folder_content(cut) == folder_content(tmp_path / "whole")


@pytest.mark.parametrize("calls", [1, 4, 5, 6])
def test_a_cancelled_training_stops_after_its_batch_and_can_be_resumed(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch.setattr, batch_size=2)
    score(tmp_path / "whole")
    token = CancelToken(no_progress)
    forward = FrameClassifier.forward
    done = 0

    def cancel_after(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        if done == calls:
            token.stopped.set()
        return forward(*arguments)

    def run_jobs(jobs: Any, work: Any, threads: int, progress: Any) -> Any:
        return [work(job, token) for job in jobs]

    with monkeypatch.context() as patch:
        patch.setattr(FrameClassifier, "forward", cancel_after)
        patch.setattr(end_to_end, "run_jobs", run_jobs)
        with pytest.raises(CancelledError):
            score(tmp_path / "cut")
    assert done == calls
    score(tmp_path / "cut")
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")


def test_a_damaged_file_is_an_error_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Interrupted):
        score(tmp_path, progress=interrupt_at("epoch 1"))
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:-9])
    forbid_training(monkeypatch)
    message = r"aerd-.*.safetensors: cannot be read .* remove it to train again"
    with pytest.raises(InputError, match=message):
        score(tmp_path)
