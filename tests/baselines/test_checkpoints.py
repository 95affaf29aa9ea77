"""Recurrent networks in files: nothing is trained twice, a kill costs an epoch, and what is damaged is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callshot.baselines import recurrent, recurrent_network, train_loop, training_jobs
from callshot.baselines.checkpoints import _pack_arrays
from callshot.baselines.executor import CancelToken, Options, StoppedError
from callshot.baselines.recurrent import choose_cell, score_recurrent
from callshot.baselines.recurrent_network import Recipe
from callshot.errors import InputError, OutputError
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.records import Embeddings, FloatArray, IntArray

torch = pytest.importorskip("torch", reason="torch is not here: make test-torch")
safetensors = pytest.importorskip("safetensors.numpy")

EPOCHS = 4
CHILD = """
import os, sys
from functools import partial
import numpy as np
from callshot.baselines import training_jobs
sys.path.insert(0, sys.argv[1])
import test_recurrent_files as here
training_jobs.Recipe = partial(training_jobs.Recipe, epochs=here.EPOCHS)
here.score(here.Path(sys.argv[2]), report=lambda share, what: os._exit(9) if what == sys.argv[3] else None)
"""


@pytest.fixture(autouse=True)
def four_epochs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(training_jobs, "Recipe", partial(Recipe, epochs=EPOCHS))
    return


def made() -> tuple[Episodes, IntArray, list[FloatArray]]:
    """Two classes of noise, two folds."""
    names, label = [f"{n:02d}" for n in range(24)], ["bark"] * 12 + ["roar"] * 12
    folds = check_folds(names, np.arange(24) % 2)
    table = Embeddings("made", np.zeros((24, 1)), names, names, label, [()] * 24)
    rng = np.random.default_rng(1)
    sequences = [rng.normal(size=(rng.integers(1, 5), 3)) for _ in names]
    return plan_episodes(table, folds, count_classes(label, folds)), np.arange(24), sequences


def score(folder: Path, **options: Any) -> tuple[FloatArray, dict[str, Any]]:
    return score_recurrent(*made(), **{"seeds": 1, "hidden": 4, "folder": folder, **options})


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Nothing twice


def test_a_rerun_trains_nothing_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, told = score(tmp_path)
    assert told["trained"] == 2
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    monkeypatch.setattr(train_loop, "run_epochs", lambda *_: pytest.fail("trained again"))
    again, told = score(tmp_path)
    assert np.array_equal(first, again)
    assert told["trained"] == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_finished_trainings_leave_weights_and_what_decided_them(tmp_path: Path) -> None:
    score(tmp_path)
    assert sorted(
        path.name.rpartition("-")[0] + path.name[path.name.index(".") :]
        for path in tmp_path.iterdir()
    ) == [
        f"fold{fold}-seed0-gru{suffix}"
        for fold in (0, 1)
        for suffix in (".json", ".safetensors", ".search.json")
    ]
    told = json.loads(next(tmp_path.glob("fold0*[0-9a-f].json")).read_text())
    assert told["key"]["recipe"]["cell"] == "gru"
    assert told["key"]["torch"] == torch.__version__
    assert 1 <= told["epochs"] <= EPOCHS == len(told["losses"])


def test_more_seeds_leave_the_first_ones_as_they_are(tmp_path: Path) -> None:
    score(tmp_path)
    before = content(tmp_path)
    _, told = score(tmp_path, seeds=2)
    assert told["trained"] == 2
    assert before.items() <= content(tmp_path).items()


@pytest.mark.parametrize(
    "other", ["cell", "hidden", "seed", "frames", "labels", "recordings", "recipe"]
)
def test_whatever_decides_a_network_makes_another_of_it(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(tmp_path)
    episodes, groups, sequences = made()
    options: dict[str, Any] = {
        "cell": {"cell": "lstm"},
        "hidden": {"hidden": 5},
        "seed": {"seed": 1},
    }.get(other, {})
    if other == "frames":
        sequences = [sequence + 1e-3 for sequence in sequences]
    if other == "labels":
        episodes = Episodes(**{**vars(episodes), "classes": ("bark", "rumble")})
    if other == "recordings":
        groups[2] = groups[0]
    if other == "recipe":
        monkeypatch.setattr(training_jobs, "Recipe", partial(Recipe, epochs=EPOCHS, batch=8))
    options = {"seeds": 1, "hidden": 4, "folder": tmp_path, **options}
    _, told = score_recurrent(episodes, groups, sequences, **options)
    assert told["trained"] >= 1


@pytest.mark.parametrize(
    ("owner", "name", "other"),
    [(torch, "__version__", "0.1"), (Options, "kind", "cuda"), (training_jobs, "FORMAT", 0)],
)
def test_another_torch_device_or_format_makes_another_network(
    owner: Any, name: str, other: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    score(tmp_path)
    monkeypatch.setattr(owner, name, other)
    assert score(tmp_path)[1]["trained"] == 2


def test_the_number_of_a_device_makes_no_other_network(tmp_path: Path) -> None:
    assert [Options(1, device, 1, tmp_path, 0).kind for device in ("cpu", "cuda", "cuda:1")] == [
        "cpu",
        "cuda",
        "cuda",
    ]


def test_without_a_folder_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    score_recurrent(*made(), seeds=1, hidden=4)
    assert [*tmp_path.iterdir()] == []


def test_what_is_told_of_weights_that_are_gone_is_no_finished_network(tmp_path: Path) -> None:
    wanted, _ = score(tmp_path)
    before = content(tmp_path)
    next(tmp_path.glob("fold1*[0-9a-f].safetensors")).unlink()
    found, told = score(tmp_path)
    assert told["trained"] == 1
    assert np.array_equal(found, wanted)
    assert content(tmp_path) == before


def test_a_checkpoint_beside_finished_weights_is_not_read(tmp_path: Path) -> None:
    """A process that dies between the two leaves it."""
    wanted, _ = score(tmp_path)
    path = next(tmp_path.glob("fold1*[0-9a-f].safetensors"))
    path.with_suffix(".checkpoint.safetensors").write_bytes(b"")
    found, told = score(tmp_path)
    assert told["trained"] == 0
    assert np.array_equal(found, wanted)


def test_all_that_is_written_has_reached_the_disk_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, replaced, fsync, replace = 0, 0, os.fsync, Path.replace

    def count_fsync(number: int) -> None:
        nonlocal synced
        assert os.fstat(number).st_size > 0
        synced += 1
        fsync(number)

    def count_replace(path: Path, target: Path) -> Path:
        nonlocal replaced
        replaced += 1
        assert synced == replaced, target
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", count_fsync)
    monkeypatch.setattr(Path, "replace", count_replace)
    score(tmp_path)
    assert replaced > 2 * (EPOCHS + 2)


def test_what_dead_processes_left_is_removed_and_what_others_write_is_not(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    score(tmp_path)
    path = next(tmp_path.glob("fold1*[0-9a-f].safetensors"))
    path.unlink()
    gone = [
        f".{path.stem}.checkpoint.safetensors.{n}.part" for n in (dead.pid, os.getpid(), 10**30)
    ]
    stay = [f".{path.name}.{os.getppid()}.part", f".other-{path.name}.{dead.pid}.part"]
    for name in (*gone, *stay):
        (tmp_path / name).write_bytes(b"half")
    score(tmp_path)
    assert sorted(part.name for part in tmp_path.glob(".*")) == sorted(stay)


# Interruptions


class Killed(BaseException):
    """What a training cannot catch."""


@pytest.mark.parametrize("phase", ["search", "all"])
@pytest.mark.parametrize("cell", ["elman", "gru", "lstm"])
def test_an_interrupted_training_ends_in_the_same_weights(
    cell: str, phase: str, tmp_path: Path
) -> None:
    def kill(share: float, what: str) -> None:
        if f"{phase}: epoch 1" in what:
            raise Killed

    wanted, _ = score(tmp_path / "whole", cell=cell)
    for _ in range(2):  # one for each fold
        with pytest.raises(Killed):
            score(tmp_path / "cut", cell=cell, progress=kill)
    assert len([*(tmp_path / "cut").glob("*checkpoint*")]) == 1
    found, _ = score(tmp_path / "cut", cell=cell)
    assert np.array_equal(found, wanted)
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def test_a_training_that_is_taken_up_does_not_begin_anew(tmp_path: Path) -> None:
    def kill(share: float, what: str) -> None:
        if "search: epoch 3" in what:
            raise Killed

    with pytest.raises(Killed):
        score(tmp_path, progress=kill)
    heard: list[str] = []
    score(tmp_path, progress=lambda share, what: heard.append(what))
    assert heard[0] == "GRU, fold 0, seed 0, search: epoch 4"


@pytest.mark.parametrize("when", ["search: epoch 2", "all: epoch 1"])
def test_a_process_that_is_killed_loses_an_epoch_at_most(when: str, tmp_path: Path) -> None:
    place, source = str(Path(__file__).parent), str(Path(training_jobs.__file__).parents[2])
    command = [
        sys.executable,
        "-c",
        CHILD,
        place,
        str(tmp_path / "cut"),
        f"GRU, fold 1, seed 0, {when}",
    ]
    child = subprocess.run(command, env={**os.environ, "PYTHONPATH": source}, check=False)
    assert child.returncode == 9
    assert len([*(tmp_path / "cut").glob("*checkpoint*")]) == 1
    score(tmp_path / "cut")
    score(tmp_path / "whole")
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


def test_one_that_fails_stops_the_others(tmp_path: Path) -> None:
    def fail(share: float, what: str) -> None:
        if "fold 0" in what:
            raise OutputError("the disk is full")

    with pytest.raises(OutputError, match="the disk is full"):
        score(tmp_path, threads=2, seeds=3, progress=fail)
    assert [*tmp_path.glob("*[0-9a-f].safetensors")] == []
    assert len([*tmp_path.glob("*checkpoint*")]) <= 2


@pytest.mark.parametrize("calls", [1, 3, 6, 7, 9, 14, 40])
def test_a_stop_takes_a_batch_at_most_and_changes_nothing(
    calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_jobs, "Recipe", partial(Recipe, epochs=EPOCHS, batch=2))
    score(tmp_path / "whole")
    watch, forward, done = CancelToken(lambda *_: None), recurrent_network.forward, 0

    def stop_after(*given: Any) -> Any:
        nonlocal done
        done += 1
        if done == calls:
            watch.stopped.set()
        return forward(*given)

    monkeypatch.setattr(recurrent_network, "forward", stop_after)
    options = Options(1, "cpu", 1, tmp_path / "cut", 0)
    with pytest.raises(StoppedError):
        recurrent._score(training_jobs.plan_jobs(*made(), [("gru",)] * 2, 4, options)[0], watch)
    assert done == calls
    score(tmp_path / "cut")
    assert content(tmp_path / "cut") == content(tmp_path / "whole")


# What is refused before anything is trained


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)


def reshape(path: Path) -> None:
    arrays = safetensors.load_file(path)
    path.write_bytes(
        safetensors.save({**arrays, "mean": np.zeros(7, np.float32)}, {"callshot": "{}"})
    )


def lose(path: Path) -> None:
    arrays = safetensors.load_file(path)
    del arrays["head.bias"]
    path.write_bytes(safetensors.save(arrays, {"callshot": "{}"}))


def write(text: str) -> Callable[[Path], None]:
    return lambda path: (path.write_text(text), None)[1]


def tell(**facts: Any) -> Callable[[Path], None]:
    """Leave the key in a file, and tell other things beside it."""

    def harm(path: Path) -> None:
        path.write_text(json.dumps({"key": json.loads(path.read_text())["key"], **facts}))

    return harm


@pytest.mark.parametrize(
    ("which", "harm", "message"),
    [
        ("*[0-9a-f].safetensors", cut, "cannot be read"),
        ("*[0-9a-f].safetensors", write("pickle"), "cannot be read"),
        ("*[0-9a-f].safetensors", flip, "wanted tensors of the hash in its header, found others"),
        ("*[0-9a-f].safetensors", reshape, r"wanted mean of shape \(3,\), found \(7,\)"),
        ("*[0-9a-f].safetensors", lose, r"wanted head.bias of shape \(2,\), found None"),
        ("*[0-9a-f].json", write("{"), "cannot be read"),
        ("*[0-9a-f].json", write("[]"), "cannot be read"),
        (
            "*[0-9a-f].json",
            write('{"key": 1}'),
            "wanted the key that its name ends in, found another",
        ),
        (
            "*search.json",
            write('{"key": 1}'),
            "wanted the key that its name ends in, found another",
        ),
        ("*search.json", write("[" * 100_000), "cannot be read"),
        ("*search.json", tell(), "wanted losses, a list of numbers"),
        ("*search.json", tell(losses=1.0), "wanted losses, a list of numbers"),
        ("*search.json", tell(losses=[1.0, "low"]), "wanted losses, a list of numbers"),
        ("*search.json", tell(losses=[1.0, True]), "wanted losses, a list of numbers"),
        ("*search.json", tell(losses=[10**400]), "wanted losses, a list of numbers"),
        ("*search.json", tell(losses={"1": 0.5}), "wanted losses, a list of numbers"),
        ("*checkpoint.safetensors", cut, "cannot be read"),
        ("*checkpoint.safetensors", flip, "wanted tensors of the hash in its header, found others"),
        ("*checkpoint.safetensors", reshape, r"wanted mean of shape \(3,\), found \(7,\)"),
        ("*checkpoint.safetensors", lose, r"wanted head.bias of shape \(2,\), found None"),
    ],
)
@pytest.mark.parametrize("ask", [score_recurrent, choose_cell])
def test_a_damaged_file_is_refused_and_nothing_is_trained(
    ask: Callable[..., Any],
    which: str,
    harm: Callable[[Path], None],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kill(share: float, what: str) -> None:
        if "fold 1" in what and "all: epoch 1" in what:
            raise Killed

    with pytest.raises(Killed):
        score(tmp_path, progress=kill)
    harmed = next(tmp_path.glob(which))
    harm(harmed)
    monkeypatch.setattr(train_loop, "run_epochs", lambda *_: pytest.fail("trained"))
    with pytest.raises(InputError, match=f"{message}.*; remove it to train anew") as refused:
        ask(*made(), seeds=1, hidden=4, folder=tmp_path)
    assert str(harmed.with_suffix("")) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "about",
    [
        {"epoch": "two"},
        {"epoch": float("inf")},
        {"losses": "none"},
        {"losses": ["1.0"]},
        {"losses": None},
    ],
)
def test_a_checkpoint_of_another_program_is_refused(about: dict[str, Any], tmp_path: Path) -> None:
    def kill(share: float, what: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        score(tmp_path, progress=kill)
    path = next(tmp_path.glob("*checkpoint*"))
    about = {"phase": "search", "epoch": 1, "losses": [], **about}
    path.write_bytes(_pack_arrays(safetensors.load_file(path), about))
    with pytest.raises(
        InputError, match="wanted a checkpoint of callshot's; remove it to train anew"
    ):
        score(tmp_path)


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file/.*cannot be written .* make room and run again"):
        score(tmp_path / "file")
