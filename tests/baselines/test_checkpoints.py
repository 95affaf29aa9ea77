"""Saved trainings of both kinds of networks: nothing is trained twice, a kill costs one epoch."""

import os
import subprocess
import sys
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from callshot.baselines.training import TrainingContext
from callshot.errors import OutputError
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

torch = pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
)

from callshot.baselines import recurrent, training  # noqa: E402
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


def test_a_finished_training_leaves_weights_with_their_key(tmp_path):
    score_sequences(tmp_path)
    assert saved_phases(tmp_path) == {
        "fold0-seed0-gru": "finished",
        "fold1-seed0-gru": "finished",
    }
    header = read_header(next(tmp_path.glob("fold0*")))
    assert header["key"]["config"]["cell"] == "gru"
    assert header["key"]["torch"] == torch.__version__
    assert header["key"]["device"] == "cpu"
    assert 1 <= header["epoch"] <= 4 == len(header["losses"])


def test_more_seeds_keep_the_first_networks(tmp_path):
    score_sequences(tmp_path)
    before = folder_content(tmp_path)
    _, metadata = score_sequences(tmp_path, seeds=2)
    assert metadata["trained"] == 2
    assert before.items() <= folder_content(tmp_path).items()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (RECURRENT, {"cell": "lstm"}),
        (RECURRENT, {"hidden": 5}),
        (END_TO_END, {"seed": 1}),
    ],
)
def test_another_option_trains_another_network(kind, options, tmp_path):
    kind.score(tmp_path)
    assert kind.score(tmp_path, **options)[1]["trained"] == 2


@pytest.mark.parametrize("change", ["frames", "labels", "recordings", "config"])
def test_other_data_or_another_config_trains_another_network(
    change, tmp_path, monkeypatch
):
    score_sequences(tmp_path)
    episodes, groups, sequences = make_dataset()
    if change == "frames":
        sequences = [sequence + 1e-3 for sequence in sequences]
    if change == "labels":
        episodes = Episodes(**{**vars(episodes), "classes": ("bark", "rumble")})
    if change == "recordings":
        groups[2] = groups[0]
    if change == "config":
        set_recurrent(monkeypatch.setattr, batch_size=8)
    context = TrainingContext(folder=tmp_path)
    _, metadata = score_recurrent(
        episodes, groups, sequences, hidden=4, context=context
    )
    assert metadata["trained"] >= 1


@both_kinds
def test_another_torch_or_format_trains_another_network(kind, tmp_path, monkeypatch):
    kind.score(tmp_path)
    changes: list[tuple[Any, str, Any]] = [
        (torch, "__version__", "0.1"),
        (training, "FORMAT", 0),
    ]
    for owner, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            assert kind.score(tmp_path)[1]["trained"] == 2


def test_without_a_folder_no_file_is_written(tmp_path, monkeypatch):
    torch.optim.AdamW([torch.zeros(1)])  # the first one makes a cache folder of torch
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    score_recurrent(*make_dataset(), hidden=4)
    assert [*tmp_path.iterdir()] == []


def test_a_missing_file_is_trained_again(tmp_path):
    expected, _ = score_sequences(tmp_path)
    before = folder_content(tmp_path)
    next(tmp_path.glob("fold1*")).unlink()
    scores, metadata = score_sequences(tmp_path)
    assert metadata["trained"] == 1
    assert np.array_equal(scores, expected)
    assert folder_content(tmp_path) == before


def test_a_search_is_not_repeated(tmp_path, monkeypatch):
    context = TrainingContext(folder=tmp_path)
    choose_cell(*make_dataset(), hidden=4, context=context)
    assert set(saved_phases(tmp_path).values()) == {"searched"}

    def fail(*_):
        pytest.fail("a search was repeated")

    monkeypatch.setattr(recurrent, "balanced_loss", fail)
    score_sequences(tmp_path)
    assert saved_phases(tmp_path)["fold0-seed0-gru"] == "finished"


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
        (RECURRENT, {"cell": "elman"}, "search"),
        (RECURRENT, {"cell": "lstm"}, "all"),
        (END_TO_END, {}, "search"),
        (END_TO_END, {}, "all"),
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
        score_sequences(tmp_path, threads=2, seeds=3, progress=fail)
    phases = [*saved_phases(tmp_path).values()]
    assert "finished" not in phases
    assert len(phases) <= 2


@pytest.mark.parametrize(
    ("kind", "all_calls"),
    [(RECURRENT, (1, 7, 40)), (END_TO_END, (5,))],
    ids=["recurrent", "end-to-end"],
)
def test_a_cancelled_training_stops_after_its_batch_and_can_be_resumed(
    kind, all_calls, tmp_path, monkeypatch
):
    kind.configure(monkeypatch.setattr, batch_size=2)
    kind.score(tmp_path / "whole")
    forward = kind.network.forward
    for calls in all_calls:
        pools: list[Pool] = []
        done = 0

        def make_pool(*arguments, pools=pools, **options):
            pools.append(Pool(*arguments, **options))
            return pools[0]

        def cancel_after(*arguments, calls=calls, pools=pools):
            nonlocal done
            done += 1
            if done == calls:
                pools[0].stopped.set()
            return forward(*arguments)

        folder = tmp_path / f"cut after {calls}"
        with monkeypatch.context() as patch:
            patch.setattr(kind.network, "forward", cancel_after)
            patch.setattr(training, "Pool", make_pool)
            with pytest.raises(CancelledError):
                kind.score(folder)
        assert done == calls
        kind.score(folder)
        assert folder_content(folder) == folder_content(tmp_path / "whole")
