"""Saved trainings: nothing is trained twice, a kill costs one epoch, damaged files are errors."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callshot.baselines import recurrent, train_loop
from callshot.baselines.executor import CancelledError, CancelToken, TrainingOptions
from callshot.baselines.recurrent import choose_cell, score_recurrent
from callshot.baselines.train_loop import TrainingTask
from callshot.errors import InputError, OutputError
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.records import Embeddings, FloatArray, IntArray, no_progress
from networks import (
    Interrupted,
    folder_content,
    interrupt_at,
    read_header,
    saved_phases,
)

torch = pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
)
safetensors = pytest.importorskip("safetensors.numpy")

from callshot.baselines import recurrent_network  # noqa: E402
from callshot.baselines.recurrent_network import RecurrentConfig  # noqa: E402

EPOCHS = 4
CHILD = """
import os, sys
from pathlib import Path
import test_checkpoints as tests

def die(share, what):
    if what == sys.argv[2]:
        os._exit(9)

tests.set_config(setattr)
tests.score(Path(sys.argv[1]), progress=die)
"""


def set_config(set_attribute: Callable[[Any, str, Any], None], **settings: Any) -> None:
    config = partial(RecurrentConfig, **{"epochs": EPOCHS, **settings})
    set_attribute(recurrent_network, "RecurrentConfig", config)


@pytest.fixture(autouse=True)
def four_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    set_config(monkeypatch.setattr)


def make_dataset() -> tuple[Episodes, IntArray, list[FloatArray]]:
    """Make two classes of noise in two folds."""
    names = [f"{number:02d}" for number in range(24)]
    label = ["bark"] * 12 + ["roar"] * 12
    folds = check_folds(names, np.arange(24) % 2)
    table = Embeddings("noise", np.zeros((24, 1)), names, names, label, [()] * 24)
    rng = np.random.default_rng(1)
    sequences = [rng.normal(size=(rng.integers(1, 5), 3)) for _ in names]
    return (
        plan_episodes(table, folds, count_classes(label, folds)),
        np.arange(24),
        sequences,
    )


def score(
    folder: Path,
    cell: str = "gru",
    progress: Any = no_progress,
    hidden: int = 4,
    **options: Any,
) -> tuple[FloatArray, dict[str, Any]]:
    return score_recurrent(
        *make_dataset(),
        cell=cell,
        hidden=hidden,
        options=TrainingOptions(folder=folder, **options),
        progress=progress,
    )


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        pytest.fail("a network was trained")

    monkeypatch.setattr(TrainingTask, "run_epoch", fail)


# Nothing is trained twice


def test_a_rerun_trains_nothing_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, metadata = score(tmp_path)
    assert metadata["trained"] == 2
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    forbid_training(monkeypatch)
    again, metadata = score(tmp_path)
    assert np.array_equal(first, again)
    assert metadata["trained"] == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_a_finished_training_leaves_weights_with_their_key(tmp_path: Path) -> None:
    score(tmp_path)
    assert saved_phases(tmp_path) == {
        "fold0-seed0-gru": "finished",
        "fold1-seed0-gru": "finished",
    }
    header = read_header(next(tmp_path.glob("fold0*")))
    assert header["key"]["config"]["cell"] == "gru"
    assert header["key"]["torch"] == torch.__version__
    assert 1 <= header["epoch"] <= EPOCHS == len(header["losses"])


def test_more_seeds_keep_the_first_networks(tmp_path: Path) -> None:
    score(tmp_path)
    before = folder_content(tmp_path)
    _, metadata = score(tmp_path, seeds=2)
    assert metadata["trained"] == 2
    assert before.items() <= folder_content(tmp_path).items()


@pytest.mark.parametrize("options", [{"cell": "lstm"}, {"hidden": 5}, {"seed": 1}])
def test_another_option_trains_another_network(
    options: dict[str, Any], tmp_path: Path
) -> None:
    score(tmp_path)
    assert score(tmp_path, **options)[1]["trained"] == 2


@pytest.mark.parametrize("change", ["frames", "labels", "recordings", "config"])
def test_other_data_or_another_config_trains_another_network(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(tmp_path)
    episodes, groups, sequences = make_dataset()
    if change == "frames":
        sequences = [sequence + 1e-3 for sequence in sequences]
    if change == "labels":
        episodes = Episodes(**{**vars(episodes), "classes": ("bark", "rumble")})
    if change == "recordings":
        groups[2] = groups[0]
    if change == "config":
        set_config(monkeypatch.setattr, batch_size=8)
    options = TrainingOptions(folder=tmp_path)
    _, metadata = score_recurrent(
        episodes, groups, sequences, hidden=4, options=options
    )
    assert metadata["trained"] >= 1


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


@pytest.mark.parametrize(
    ("device", "device_type"), [("cpu", "cpu"), ("cuda", "cuda"), ("cuda:1", "cuda")]
)
def test_the_number_of_a_device_does_not_matter(device: str, device_type: str) -> None:
    assert TrainingOptions(device=device).device_type == device_type


def test_without_a_folder_no_file_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    score_recurrent(*make_dataset(), hidden=4)
    assert [*tmp_path.iterdir()] == []


def test_a_missing_file_is_trained_again(tmp_path: Path) -> None:
    expected, _ = score(tmp_path)
    before = folder_content(tmp_path)
    next(tmp_path.glob("fold1*")).unlink()
    scores, metadata = score(tmp_path)
    assert metadata["trained"] == 1
    assert np.array_equal(scores, expected)
    assert folder_content(tmp_path) == before


def test_a_search_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = TrainingOptions(folder=tmp_path)
    choose_cell(*make_dataset(), hidden=4, options=options)
    assert set(saved_phases(tmp_path).values()) == {"searched"}

    def fail(*_: Any) -> None:
        pytest.fail("a search was repeated")

    monkeypatch.setattr(recurrent_network, "balanced_loss", fail)
    score(tmp_path)
    assert saved_phases(tmp_path)["fold0-seed0-gru"] == "finished"


def test_unfinished_files_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    score(tmp_path)
    path = next(tmp_path.glob("fold1*"))
    removed = [
        f".{path.stem}.{dead.pid}-00000000.part.safetensors",
        f".{path.stem}.{dead.pid}-00000001.part.safetensors",
    ]
    remaining = [
        f".{path.stem}.{os.getppid()}-00000000.part.safetensors",
        f".other-{path.stem[:20]}.{dead.pid}-00000000.part.safetensors",
    ]
    for name in (*removed, *remaining):
        (tmp_path / name).write_bytes(b"half")
    score(tmp_path)
    assert sorted(path.name for path in tmp_path.glob(".*")) == sorted(remaining)


# Interruptions


@pytest.mark.parametrize("phase", ["search", "all"])
@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
def test_an_interrupted_training_ends_with_the_same_weights(
    cell: str, phase: str, tmp_path: Path
) -> None:
    expected, _ = score(tmp_path / "whole", cell=cell)
    for _ in range(2):  # one for each fold
        with pytest.raises(Interrupted):
            score(
                tmp_path / "cut", cell=cell, progress=interrupt_at(f"{phase}: epoch 1")
            )
    assert phase in saved_phases(tmp_path / "cut").values()
    scores, _ = score(tmp_path / "cut", cell=cell)
    assert np.array_equal(scores, expected)
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")


def test_a_resumed_training_continues_after_the_last_epoch(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        score(tmp_path, progress=interrupt_at("search: epoch 3"))
    messages: list[str] = []
    score(tmp_path, progress=lambda share, what: messages.append(what))
    assert messages[0] == "GRU, fold 0, seed 0, search: epoch 4"


@pytest.mark.parametrize("moment", ["search: epoch 2", "all: epoch 1"])
def test_a_killed_process_loses_at_most_one_epoch(moment: str, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    here = Path(__file__).parent
    source = Path(train_loop.__file__).parents[2]
    path = os.pathsep.join(map(str, (source, here, here.parent)))
    command = [sys.executable, "-c", CHILD, str(cut), f"GRU, fold 1, seed 0, {moment}"]
    child = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
    assert child.returncode == 9
    assert saved_phases(cut) == {
        "fold0-seed0-gru": "finished",
        "fold1-seed0-gru": moment.partition(":")[0],
    }
    score(cut)
    score(tmp_path / "whole")
    assert folder_content(cut) == folder_content(tmp_path / "whole")


def test_a_job_that_fails_stops_the_others(tmp_path: Path) -> None:
    def fail(share: float, what: str) -> None:
        if "fold 0" in what:
            raise OutputError("the disk is full")

    with pytest.raises(OutputError, match="the disk is full"):
        score(tmp_path, threads=2, seeds=3, progress=fail)
    phases = [*saved_phases(tmp_path).values()]
    assert "finished" not in phases
    assert len(phases) <= 2


@pytest.mark.parametrize("calls", [1, 3, 6, 7, 9, 14, 40])
def test_a_cancelled_training_stops_after_its_batch_and_can_be_resumed(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_config(monkeypatch.setattr, batch_size=2)
    score(tmp_path / "whole")
    token = CancelToken(no_progress)
    forward = recurrent_network.RecurrentNetwork.forward
    done = 0

    def cancel_after(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        if done == calls:
            token.stopped.set()
        return forward(*arguments)

    monkeypatch.setattr(recurrent_network.RecurrentNetwork, "forward", cancel_after)
    options = TrainingOptions(folder=tmp_path / "cut")
    jobs = recurrent.plan_jobs(*make_dataset(), [("gru",)] * 2, 4, options)
    with pytest.raises(CancelledError):
        train_loop.score_queries(jobs[0], token)
    assert done == calls
    score(tmp_path / "cut")
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")


# Damaged files


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def replace_by_text(path: Path) -> None:
    path.write_text("pickle")


def rewrite(path: Path, tensors: Any, **facts: Any) -> None:
    """Write a file with other tensors or facts, and the checksum of the old ones."""
    header = json.dumps(read_header(path) | facts)
    path.write_bytes(safetensors.save(tensors, {"callshot": header}))


def reshape(path: Path) -> None:
    rewrite(path, {**safetensors.load_file(path), "mean": np.zeros(7, np.float32)})


def remove_tensor(path: Path) -> None:
    tensors = safetensors.load_file(path)
    del tensors["head.bias"]
    rewrite(path, tensors)


def remove_header(path: Path) -> None:
    path.write_bytes(safetensors.save(safetensors.load_file(path)))


def change(**facts: Any) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        rewrite(path, safetensors.load_file(path), **facts)

    return damage


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished training of fold 0 and an interrupted one of fold 1."""
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        set_config(patch.setattr)
        with pytest.raises(Interrupted):
            score(folder, progress=interrupt_at("fold 1, seed 0, all: epoch 1"))
    assert saved_phases(folder) == {
        "fold0-seed0-gru": "finished",
        "fold1-seed0-gru": "all",
    }
    return folder


CHECKSUM_ERROR = "expected content with the checksum in its header, got another"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "cannot be read"),
        (replace_by_text, "cannot be read"),
        (remove_header, "cannot be read"),
        (flip, CHECKSUM_ERROR),
        (reshape, CHECKSUM_ERROR),
        (remove_tensor, CHECKSUM_ERROR),
        (change(epoch="two"), CHECKSUM_ERROR),
        (change(epoch=float("inf")), CHECKSUM_ERROR),
        (change(phase="other"), CHECKSUM_ERROR),
        (change(losses="none"), CHECKSUM_ERROR),
        (change(losses=["1.0"]), CHECKSUM_ERROR),
        (change(losses=[10**400]), CHECKSUM_ERROR),
        (change(losses=None), CHECKSUM_ERROR),
    ],
)
@pytest.mark.parametrize("fold", ["fold0", "fold1"])
@pytest.mark.parametrize("function", [score_recurrent, choose_cell])
def test_a_damaged_file_is_an_error_before_anything_is_trained(
    function: Callable[..., Any],
    fold: str,
    damage: Callable[[Path], None],
    message: str,
    saved: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    path = next(folder.glob(f"{fold}*"))
    damage(path)
    forbid_training(monkeypatch)
    with pytest.raises(
        InputError, match=f"{message}.*; remove it to train again"
    ) as error:
        function(*make_dataset(), hidden=4, options=TrainingOptions(folder=folder))
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_the_file_of_another_training_is_an_error(saved: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    first = next(folder.glob("fold0*"))
    next(folder.glob("fold1*")).replace(first)
    with pytest.raises(InputError, match=f"fold0.*{CHECKSUM_ERROR}"):
        score(folder)


def test_a_folder_that_cannot_be_written_to_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file/fold0.*cannot be written"):
        score(tmp_path / "file")
