"""Helpers of the tests that train networks: interruptions, and saved trainings."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.records import FloatArray, IntArray, Progress
from callshot.vectors import Vectors


class Interrupted(BaseException):
    """An interruption that no training can catch."""


def interrupt_at(text: str) -> Progress:
    """Return a progress function that interrupts the run when a message contains a text."""

    def interrupt(share: float, what: str) -> None:
        if text in what:
            raise Interrupted

    return interrupt


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail the test if a network is trained."""
    from callshot.baselines import training

    def fail(*_: Any) -> None:
        pytest.fail("a network was trained")

    monkeypatch.setattr(training, "run_epoch", fail)


def folder_content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def saved_trainings(folder: Path) -> dict[str, bytes]:
    """Return the files of trainings by fold, seed and kind of network."""
    paths = sorted(folder.glob("*.safetensors"))
    return {path.name.rpartition("-")[0]: path.read_bytes() for path in paths}


def read_header(path: Path) -> dict[str, Any]:
    """Return how far a saved training is, and its key."""
    with pytest.importorskip("safetensors").safe_open(path, framework="np") as file:
        return dict(json.loads(file.metadata()["callshot"]))


def saved_phases(folder: Path) -> dict[str, str]:
    """Return the phase of each training by fold, seed and kind of network."""
    paths = sorted(folder.glob("*.safetensors"))
    return {path.name.rpartition("-")[0]: read_header(path)["phase"] for path in paths}


def sequence_dataset(
    label: Sequence[str],
    recording: IntArray,
    fold: IntArray,
    sequences: Sequence[FloatArray],
) -> tuple[Episodes, IntArray, list[FloatArray]]:
    """Make episodes of sequences with their means as vectors, in the order of the episodes."""
    names = [f"{number:04d}" for number in range(len(label))]
    recordings = [str(number) for number in recording]
    folds = check_folds(recordings, fold)
    vectors = np.array([sequence.mean(axis=0) for sequence in sequences])
    table = Vectors.from_columns(
        "noise", vectors, names, recordings, label, [()] * len(label)
    )
    rows = np.lexsort((names, label))
    episodes = plan_episodes(table, folds, count_classes(label, folds))
    return episodes, recording[rows], [sequences[row] for row in rows]


def mean_auroc(
    relevant: NDArray[np.bool_], fold: IntArray, scores: FloatArray
) -> float:
    """Return the mean over folds and columns (rows, columns), computed by scikit-learn."""
    values = []
    for number in range(int(fold.max()) + 1):
        query = fold == number
        for truth, score in zip(relevant[query].T, scores[query].T, strict=True):
            values.append(roc_auc_score(truth, score))
    return float(np.mean(values))


@contextmanager
def short_training(epochs: int = 4) -> Iterator[None]:
    """Train small networks for a few epochs at most."""
    from callshot.baselines import end_to_end, recurrent
    from callshot.baselines.transformer import AstConfig

    recurrent_config = partial(recurrent.RecurrentConfig, epochs=epochs)
    frame_config = partial(end_to_end.FrameConfig, epochs=epochs)
    encoder = AstConfig(width=16, layers=1, heads=2, inner=16)
    with (
        patch.object(recurrent, "RecurrentConfig", recurrent_config),
        patch.object(end_to_end, "FrameConfig", frame_config),
        patch.object(end_to_end, "DEFAULT_ENCODER", encoder),
    ):
        yield
