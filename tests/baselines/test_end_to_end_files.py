"""The end-to-end rival in files: nothing is trained twice, and a kill costs an epoch."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callshot.baselines import end_to_end, frame_classifier, train_loop
from callshot.baselines.end_to_end import score_aerd
from callshot.baselines.executor import CancelToken, Options, StoppedError
from callshot.baselines.frame_classifier import Recipe
from callshot.baselines.transformer import Ast
from callshot.errors import InputError
from callshot.records import FloatArray

torch = pytest.importorskip("torch", reason="torch is not here: make test-torch")
pytest.importorskip("safetensors")

CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import test_aerd_files as here
here.make_small(setattr)
def die(share, what):
    if what == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
here.score(here.Path(sys.argv[2]), report=die)
"""


def make_small(patch: Any) -> None:
    torch.set_num_threads(1)
    patch(end_to_end, "Ast", partial(Ast, width=16, layers=1, heads=2, inner=16))
    patch(end_to_end, "Recipe", partial(Recipe, epochs=3))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch.setattr)


def score(folder: Path, **options: Any) -> tuple[FloatArray, dict[str, Any]]:
    """Score two classes of noise in two folds."""
    rng = np.random.default_rng(1)
    signals = [rng.normal(0, 0.1, rng.integers(3000, 7000)).astype(np.float32) for _ in range(16)]
    targets = np.arange(16)[:, None] // 2 % 2 == np.arange(2)
    fold = np.arange(16) // 4 % 2
    return score_aerd(
        signals, targets, fold, np.arange(16), ["bark", "roar"], **{"folder": folder, **options}
    )


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Killed(BaseException):
    """What a training cannot catch."""


def test_a_rerun_trains_nothing_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, told = score(tmp_path)
    assert told["trained"] == 2
    before = content(tmp_path)
    assert len(before) == 6
    monkeypatch.setattr(train_loop, "run_epochs", lambda *_: pytest.fail("trained again"))
    again, told = score(tmp_path)
    assert told["trained"] == 0
    assert np.array_equal(first, again)
    assert content(tmp_path) == before


@pytest.mark.parametrize("other", [{"seed": 1}, {"epochs": 2}])
def test_whatever_decides_a_network_makes_another_of_it(
    other: dict[str, Any], tmp_path: Path
) -> None:
    score(tmp_path)
    assert score(tmp_path, **other)[1]["trained"] == 2


@pytest.mark.parametrize(
    ("owner", "name", "other"),
    [(torch, "__version__", "0.1"), (Options, "kind", "cuda"), (end_to_end, "FORMAT", 0)],
)
def test_another_torch_device_or_format_makes_another_network(
    owner: Any, name: str, other: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(tmp_path)
    monkeypatch.setattr(owner, name, other)
    assert score(tmp_path)[1]["trained"] == 2


@pytest.mark.parametrize("phase", ["search", "all"])
def test_an_interrupted_training_ends_in_the_same_weights(phase: str, tmp_path: Path) -> None:
    def kill(share: float, what: str) -> None:
        if f"{phase}: epoch 1" in what:
            raise Killed

    wanted, _ = score(tmp_path / "whole")
    for _ in range(2):  # one for each fold
        with pytest.raises(Killed):
            score(tmp_path / "cut", progress=kill)
    found, _ = score(tmp_path / "cut")
    assert np.array_equal(found, wanted)
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def test_a_process_that_is_killed_loses_an_epoch_at_most(tmp_path: Path) -> None:
    place, source = str(Path(__file__).parent), str(Path(end_to_end.__file__).parents[2])
    command = [
        sys.executable,
        "-c",
        CHILD,
        place,
        str(tmp_path / "cut"),
        "AST-seq, fold 1, seed 0, search: epoch 2",
    ]
    child = subprocess.run(command, env={**os.environ, "PYTHONPATH": source}, check=False)
    assert child.returncode == -signal.SIGKILL
    assert len([*(tmp_path / "cut").glob("*checkpoint*")]) == 1
    heard: list[str] = []
    score(tmp_path / "cut", progress=lambda share, what: heard.append(what))
    assert heard[0] == "AST-seq, fold 0, seed 0"  # finished
    assert heard[1] == "AST-seq, fold 1, seed 0, search: epoch 3"
    score(tmp_path / "whole")
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


@pytest.mark.parametrize("calls", [1, 4, 5, 6])
def test_a_stop_takes_a_batch_at_most_and_changes_nothing(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(end_to_end, "Recipe", partial(Recipe, epochs=3, batch=2))
    score(tmp_path / "whole")
    watch, forward, done = CancelToken(lambda *_: None), frame_classifier.frame_log_odds, 0

    def stop_after(*given: Any) -> Any:
        nonlocal done
        done += 1
        if done == calls:
            watch.stopped.set()
        return forward(*given)

    with monkeypatch.context() as patch:
        patch.setattr(frame_classifier, "frame_log_odds", stop_after)
        patch.setattr(end_to_end, "do_jobs", lambda jobs, do, *_: [do(job, watch) for job in jobs])
        with pytest.raises(StoppedError):
            score(tmp_path / "cut")
    assert done == calls
    score(tmp_path / "cut")
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def test_a_damaged_checkpoint_is_refused_and_nothing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(share: float, what: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        score(tmp_path, progress=kill)
    path = next(tmp_path.glob("*checkpoint*"))
    path.write_bytes(path.read_bytes()[:-9])
    monkeypatch.setattr(train_loop, "run_epochs", lambda *_: pytest.fail("trained"))
    with pytest.raises(
        InputError, match=r"checkpoint.safetensors: cannot be read .* remove it to train anew"
    ):
        score(tmp_path)
