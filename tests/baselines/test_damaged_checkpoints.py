"""Damaged files of saved trainings are errors before anything is trained."""

import json
import shutil

import numpy as np
import pytest

from callshot.baselines.training import TrainingContext
from callshot.errors import InputError
from networks import (
    Interrupted,
    forbid_training,
    interrupt_at,
    read_header,
    saved_phases,
)

safetensors = pytest.importorskip("safetensors.numpy")

from callshot.baselines.recurrent import choose_cell  # noqa: E402
from small_trainings import END_TO_END, RECURRENT, make_dataset, score_sequences  # noqa: E402

CHECKSUM_ERROR = "expected content with the checksum in its header"


@pytest.fixture(autouse=True)
def few_epochs(monkeypatch):
    RECURRENT.configure(monkeypatch.setattr)


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def replace_by_text(path):
    path.write_text("pickle")


def rewrite(path, tensors, **facts):
    """Write a file with other tensors or facts, and the checksum of the old ones."""
    header = json.dumps(read_header(path) | facts)
    path.write_bytes(safetensors.save(tensors, {"callshot": header}))


def reshape(path):
    rewrite(path, {**safetensors.load_file(path), "mean": np.zeros(7, np.float32)})


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


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut, "cannot be read"),
        (replace_by_text, "cannot be read"),
        (remove_header, "cannot be read"),
        (flip, CHECKSUM_ERROR),
        (reshape, CHECKSUM_ERROR),
        (remove_tensor, CHECKSUM_ERROR),
        (change(epoch=float("inf")), CHECKSUM_ERROR),
        (change(phase="other"), CHECKSUM_ERROR),
        (change(losses=None), CHECKSUM_ERROR),
    ],
)
def test_a_damaged_file_is_an_error_before_anything_is_trained(
    damage, message, saved, tmp_path, monkeypatch
):
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    path = next(folder.glob("fold1*"))
    damage(path)
    forbid_training(monkeypatch)
    with pytest.raises(
        InputError, match=f"{message}.*; remove it to train again"
    ) as error:
        choose_cell(*make_dataset(), hidden=4, context=TrainingContext(folder=folder))
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


def test_the_file_of_another_training_is_an_error(saved, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    first = next(folder.glob("fold0*"))
    next(folder.glob("fold1*")).replace(first)
    with pytest.raises(InputError, match=f"fold0.*{CHECKSUM_ERROR}"):
        score_sequences(folder)


def test_a_damaged_file_of_an_end_to_end_training_is_an_error(tmp_path, monkeypatch):
    END_TO_END.configure(monkeypatch.setattr)
    with pytest.raises(Interrupted):
        END_TO_END.score(tmp_path, progress=interrupt_at("epoch 1"))
    path = next(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:-9])
    forbid_training(monkeypatch)
    message = r"aerd-.*.safetensors: cannot be read .* remove it to train again"
    with pytest.raises(InputError, match=message):
        END_TO_END.score(tmp_path)
