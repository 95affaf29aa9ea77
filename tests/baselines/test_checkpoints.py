"""Saved trainings of both kinds of networks: nothing is trained twice, a kill costs one epoch."""

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import CancelledError

import numpy as np
import pytest

from callshot.baselines.training import TrainingContext
from callshot.errors import InputError, OutputError
from callshot.fewshot.episodes import Episodes
from callshot.jobs import Pool
from killed_runs import run_killed
from networks import (
    Interrupted,
    folder_content,
    forbid_training,
    interrupt_at,
    read_header,
    saved_phases,
)

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.numpy")

from callshot.baselines import training  # noqa: E402
from callshot.baselines.recurrent import choose_cell, score_recurrent  # noqa: E402
from small_trainings import (  # noqa: E402
    END_TO_END,
    RECURRENT,
    make_dataset,
    run_until_message,
    score_sequences,
    set_recurrent,
)

both_kinds = pytest.mark.parametrize(
    "kind", [RECURRENT, END_TO_END], ids=["recurrent", "end-to-end"]
)


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    RECURRENT.configure(monkeypatch.setattr)
    END_TO_END.configure(monkeypatch.setattr)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a finished training of fold 0 and an interrupted one of fold 1."""
    folder = tmp_path_factory.mktemp("saved")
    with pytest.MonkeyPatch.context() as patch:
        RECURRENT.configure(patch.setattr)
        with pytest.raises(Interrupted):
            score_sequences(
                folder, progress=interrupt_at("fold 1, seed 0, all: epoch 1")
            )
    assert saved_phases(folder) == {
        "fold0-seed0-gru": "finished",
        "fold1-seed0-gru": "all",
    }
    return folder


# Nothing is trained twice


@both_kinds
def test_a_rerun_trains_nothing_and_writes_nothing(kind, tmp_path, monkeypatch):
    first, metadata = kind.score(tmp_path)
    assert metadata["trained"] == 2
    before = folder_content(tmp_path)
    assert len(before) == 2
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    forbid_training(monkeypatch)
    again, metadata = kind.score(tmp_path)
    assert np.array_equal(first, again)
    assert metadata["trained"] == 0
    assert folder_content(tmp_path) == before
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


@pytest.mark.parametrize(
    "change", ["cell", "frames", "labels", "recordings", "config", "torch", "format"]
)
def test_whatever_decides_the_weights_trains_another_network(
    change, saved, tmp_path, monkeypatch
):
    folder = shutil.copytree(saved, tmp_path / "copy")
    episodes, groups, sequences = make_dataset()
    if change == "frames":
        sequences = [sequence + 1e-3 for sequence in sequences]
    if change == "labels":
        episodes = Episodes(**{**vars(episodes), "classes": ("bark", "rumble")})
    if change == "recordings":
        groups[2] = groups[0]
    if change == "config":
        set_recurrent(monkeypatch.setattr, batch_size=8)
    if change == "torch":
        monkeypatch.setattr(torch, "__version__", "0.1")
    if change == "format":
        monkeypatch.setattr(training, "FORMAT", 0)
    score_recurrent(
        episodes,
        groups,
        sequences,
        cell="lstm" if change == "cell" else "gru",
        context=TrainingContext(folder=folder),
    )
    assert len([*folder.iterdir()]) > 2


def test_without_a_folder_no_file_is_written(tmp_path, monkeypatch):
    torch.optim.AdamW([torch.zeros(1)])  # the first one makes a cache folder of torch
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    score_recurrent(*make_dataset())
    assert [*tmp_path.iterdir()] == []


def test_unfinished_files_of_dead_processes_are_removed(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    score_sequences(tmp_path)
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
    score_sequences(tmp_path)
    assert sorted(path.name for path in tmp_path.glob(".*")) == sorted(remaining)


# Interruptions


@pytest.mark.parametrize(
    ("kind", "options", "phase"),
    [
        (RECURRENT, {"cell": "lstm"}, "all"),
        (END_TO_END, {}, "search"),
    ],
)
def test_an_interrupted_training_ends_with_the_same_weights(
    kind, options, phase, tmp_path
):
    expected, _ = kind.score(tmp_path / "whole", **options)
    interrupt = interrupt_at(f"{phase}: epoch 1")
    for _ in range(2):  # one for each fold
        with pytest.raises(Interrupted):
            kind.score(tmp_path / "cut", progress=interrupt, **options)
    assert phase in saved_phases(tmp_path / "cut").values()
    scores, _ = kind.score(tmp_path / "cut", **options)
    assert np.array_equal(scores, expected)
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_a_killed_process_loses_at_most_one_epoch(tmp_path):
    cut = tmp_path / "cut"
    title = f"{RECURRENT.title}, fold 1, seed 0"
    run_killed(run_until_message, RECURRENT.name, cut, f"{title}, search: epoch 2")
    assert saved_phases(cut) == {
        f"fold0-seed0-{RECURRENT.name}": "finished",
        f"fold1-seed0-{RECURRENT.name}": "search",
    }
    messages: list[str] = []
    RECURRENT.score(cut, progress=lambda share, what: messages.append(what))
    epochs = [message for message in messages if "epoch" in message]
    assert epochs[0] == f"{title}, search: epoch 3"
    assert not any("fold 0" in message for message in epochs)  # finished before
    RECURRENT.score(tmp_path / "whole")
    assert folder_content(cut) == folder_content(tmp_path / "whole")


def test_a_job_that_fails_stops_the_others(tmp_path):
    def fail(share, what):
        if "fold 0" in what:
            raise OutputError("the disk is full")

    with pytest.raises(OutputError, match="the disk is full"):
        score_sequences(tmp_path, threads=2, networks=3, progress=fail)
    phases = [*saved_phases(tmp_path).values()]
    assert "finished" not in phases
    assert len(phases) <= 4  # two at once; on a busy machine, the next may have begun


@pytest.mark.parametrize("calls", [1, 7])
def test_a_cancelled_training_stops_after_its_batch_and_can_be_resumed(
    calls, tmp_path, monkeypatch
):
    RECURRENT.configure(monkeypatch.setattr, batch_size=2)
    score_sequences(tmp_path / "whole")
    forward = RECURRENT.network.forward
    pools: list[Pool] = []
    done = 0

    def make_pool(*arguments, **options):
        pools.append(Pool(*arguments, **options))
        return pools[0]

    def cancel_after(*arguments):
        nonlocal done
        done += 1
        if done == calls:
            pools[0].stopped.set()
        return forward(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(RECURRENT.network, "forward", cancel_after)
        patch.setattr(training, "Pool", make_pool)
        with pytest.raises(CancelledError):
            score_sequences(tmp_path / "cut")
    assert done == calls
    score_sequences(tmp_path / "cut")
    assert folder_content(tmp_path / "cut") == folder_content(tmp_path / "whole")


CHECKSUM_ERROR = "expected content with the checksum in its header"


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def rewrite(path, tensors, **facts):
    """Write a file with other tensors or facts, and the checksum of the old ones."""
    header = json.dumps(read_header(path) | facts)
    path.write_bytes(safetensors.save(tensors, {"callshot": header}))


def remove_tensor(path):
    tensors = safetensors.load_file(path)
    del tensors["head.bias"]
    rewrite(path, tensors)


def remove_header(path):
    path.write_bytes(safetensors.save(safetensors.load_file(path)))


def change(**facts):
    def damage(path):
        rewrite(path, safetensors.load_file(path), **facts)

    return damage


def take_other(path):
    next(path.parent.glob("fold0*")).replace(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "cannot be read"),
        (remove_header, "cannot be read"),
        (flip, CHECKSUM_ERROR),
        (remove_tensor, CHECKSUM_ERROR),
        (change(epoch=float("inf")), CHECKSUM_ERROR),
        (take_other, CHECKSUM_ERROR),
    ],
)
def test_a_damaged_file_is_an_error_before_anything_is_trained(
    damage, message, saved, tmp_path, monkeypatch
):
    folder = shutil.copytree(saved, tmp_path / "copy")
    path = next(folder.glob("fold1*"))
    damage(path)
    forbid_training(monkeypatch)
    with pytest.raises(
        InputError, match=f"{message}.*; remove it to train again"
    ) as error:
        choose_cell(*make_dataset(), context=TrainingContext(folder=folder))
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
