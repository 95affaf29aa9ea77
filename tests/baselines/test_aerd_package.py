"""AERD as published, on a module that stands in for its package, with the same names and signatures."""

import enum
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from callshot.baselines.aerd_package import load_aerd, score_published
from callshot.errors import InputError, OptionError

torch = pytest.importorskip("torch", reason="torch is not here: make test-torch")
SIGNALS = [np.full(16_000 + 160 * n, 0.01 * n, np.float32) for n in range(6)]


class Weights(enum.Enum):
    EV_SUBCALL = "ev"

    num_classes = property(lambda self: 3)
    num_folds = property(lambda self: 2)
    class_labels = property(lambda self: {0: "not-call", 1: "comment-rumble", 2: "trumpet-blast"})


class Network:
    def __init__(self, fold: int) -> None:
        self.fold = fold

    def predict(self, waveform: Any, output: str = "tensor") -> Any:
        """Return probabilities that tell the fold, the level and the length."""
        assert output == "tensor"
        frames = waveform.shape[1] // 2560
        level = waveform.mean() + torch.arange(frames) / 100
        return torch.stack(
            [level * 0, torch.sigmoid(level), torch.sigmoid(level * 0 + self.fold)], dim=-1
        )[None]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stand in for the package; return the folds that were opened."""
    opened: list[int] = []

    def aerd(
        weights: Weights = Weights.EV_SUBCALL, fold: int = 1, progress: bool = True
    ) -> tuple[Network, Any]:
        opened.append(fold)
        return Network(fold), None

    module: Any = ModuleType("aerd")
    module.aerd, module.AERD_Weights = aerd, Weights
    monkeypatch.setitem(sys.modules, "aerd", module)
    return opened


def test_each_segment_is_scored_by_the_network_of_its_fold(package: list[int]) -> None:
    fold = np.array([0, 1, -1, 0, 1, 1])
    scores = score_published(load_aerd(), SIGNALS, fold, ["trumpet-blast", "comment-rumble"])
    assert package == [1, 2]
    assert np.isnan(scores[2]).all()
    kept = fold >= 0
    assert scores[kept, 0] == pytest.approx(fold[kept] + 1.0, abs=1e-5)
    frames = np.array([len(signal) // 2560 for signal in SIGNALS])
    assert scores[kept, 1] == pytest.approx(
        (0.01 * np.arange(6) + (frames - 1) / 200)[kept], abs=1e-5
    )


def test_a_probability_that_is_nothing_has_finite_log_odds(package: list[int]) -> None:
    assert np.isfinite(score_published(load_aerd(), SIGNALS, np.arange(6) % 2, ["not-call"])).all()


def test_the_package_that_is_not_here_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aerd", None)
    with pytest.raises(InputError, match=r"AERD as published: aerd is missing; pip install aerd"):
        load_aerd()


def test_what_it_has_no_network_for_is_refused(package: list[int]) -> None:
    with pytest.raises(OptionError, match=r"variant: one of EV_CALL, .*, got 'EV'"):
        load_aerd("EV")
    published = load_aerd()
    with pytest.raises(InputError, match=r"wanted outputs among not-call, .*, got 'roar'"):
        score_published(published, SIGNALS, np.arange(6) % 2, ["roar"])
    with pytest.raises(
        InputError, match=r"wanted its 2 folds, 0 to 1, as its authors made them, found 0, 1, 2"
    ):
        score_published(published, SIGNALS, np.arange(6) % 3, ["not-call"])
    with pytest.raises(InputError, match="fold: wanted one for each of 6 signals, found 2"):
        score_published(published, SIGNALS, np.arange(2), ["not-call"])
    assert package == []
