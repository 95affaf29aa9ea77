"""The published networks of AERD, with a module in place of its package."""

import enum
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from callshot.baselines.aerd_package import (
    load_aerd,
    score_aerd_package,
    score_published,
)
from callshot.errors import InputError
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.protocol import Protocol
from corpora import folds_of, gaussian_corpus

torch = pytest.importorskip("torch")

SIGNALS = [np.full(16_000 + 160 * n, 0.01 * n, np.float32) for n in range(6)]


class Weights(enum.Enum):
    EV_SUBCALL = "ev"

    num_classes = property(lambda self: 3)
    num_folds = property(lambda self: 2)
    class_labels = property(
        lambda self: {0: "not-call", 1: "comment-rumble", 2: "trumpet-blast"}
    )


class Network:
    def __init__(self, fold):
        self.fold = fold

    def predict(self, waveform, output="tensor"):
        """Return probabilities that depend on the fold, the level and the length."""
        assert output == "tensor"
        frames = waveform.shape[1] // 2560
        level = waveform.mean() + torch.arange(frames) / 100
        fold = torch.full((frames,), float(self.fold))
        outputs = [torch.zeros(frames), torch.sigmoid(level), torch.sigmoid(fold)]
        return torch.stack(outputs, dim=-1)[None]


@pytest.fixture
def opened_folds(monkeypatch):
    """Replace the package; return the folds that are opened, which count from 1."""
    folds: list[int] = []

    def aerd(weights=Weights.EV_SUBCALL, fold=1, progress=True):
        folds.append(fold)
        return Network(fold), None

    module: Any = ModuleType("aerd")
    module.aerd = aerd
    module.AERD_Weights = Weights
    monkeypatch.setitem(sys.modules, "aerd", module)
    return folds


def test_each_segment_is_scored_by_the_network_of_its_fold(opened_folds):
    fold = np.array([0, 1, -1, 0, 1, 1])
    names = ["trumpet-blast", "comment-rumble", "not-call"]
    scores = score_published("EV_SUBCALL", SIGNALS, fold, names)
    assert opened_folds == [1, 2]
    assert np.isnan(scores[2]).all()
    query = fold >= 0
    assert scores[query, 0] == pytest.approx(fold[query] + 1.0, abs=1e-5)
    frames = np.array([len(signal) // 2560 for signal in SIGNALS])
    expected = 0.01 * np.arange(6) + (frames - 1) / 200
    assert scores[query, 1] == pytest.approx(expected[query], abs=1e-5)
    assert np.isfinite(scores[query, 2]).all()  # of probability 0


def test_the_error_about_the_missing_package_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "aerd", None)
    message = "AERD as published: aerd is not installed; pip install aerd"
    with pytest.raises(InputError, match=message):
        load_aerd("EV_SUBCALL")


@pytest.mark.parametrize(
    ("fold", "name", "message"),
    [
        (np.arange(6) % 2, "roar", "has no output 'roar'; it has not-call, "),
        (np.arange(6) % 3, "not-call", "the authors' 2 folds, 0 to 1, got 0, 1, 2"),
        (np.arange(2), "not-call", "signals: expected one for each of 2 rows, got 6"),
    ],
)
def test_input_that_does_not_fit_is_an_error_before_a_network_is_opened(
    fold, name, message, opened_folds
):
    with pytest.raises(InputError, match=message):
        score_published("EV_SUBCALL", SIGNALS, fold, [name])
    assert opened_folds == []


def test_published_networks_have_rows_of_baselines_and_match_labels_by_their_letters(
    opened_folds, monkeypatch
):
    labels = {0: "not-call", 1: "Ro-ar", 2: "rum ble"}
    monkeypatch.setattr(Weights, "class_labels", labels)
    table = gaussian_corpus((6, 6), 2, folds=2, common=0)
    table = table.with_columns(label=["roar"] * 6 + ["rumble"] * 6)
    dataset = Dataset("herd", [table], folds_of(table))
    encoder_data = next(dataset.per_encoder())
    episodes = encoder_data.episodes
    levels = np.where(episodes.relevant[:, 0], 0.5, 0.05)
    signals = [np.full(16_000, level, np.float32) for level in levels]
    frame = score_aerd_package(encoder_data, "EV_SUBCALL", Protocol(), signals)
    assert frame.select("kind", "name", "encoder").unique().rows() == [
        ("end-to-end", "AERD", "")
    ]
    # Louder signals are roars; all scores of rumbles are equal in a fold.
    values = dict(frame.select("metric", "value").rows())
    assert values["auroc"] == pytest.approx((1.0 + 0.5) / 2)
    assert values["map"] == pytest.approx((1.0 + 0.5) / 2)
