"""Trainings that diverge: told, not kept, and never taken for the best."""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from baselines.test_recurrent import order_alone
from callshot.baselines import recurrent_network, train_loop, training_jobs
from callshot.baselines.recurrent import choose_cell, score_recurrent
from callshot.baselines.recurrent_network import CELLS, Recipe
from callshot.errors import InputError

pytest.importorskip("torch", reason="torch is not here: make test-torch")

NAN = float("nan")


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take three epochs at most: enough to tell two trainings apart."""
    monkeypatch.setattr(training_jobs, "Recipe", partial(Recipe, epochs=3))


def losing(monkeypatch: pytest.MonkeyPatch, losses: list[float]) -> None:
    """Let the rows held out have these losses, epoch by epoch."""
    left = itertools.cycle(losses)
    monkeypatch.setattr(recurrent_network, "balanced_loss", lambda *_: next(left))


@pytest.mark.parametrize("losses", [[NAN, 2.0, 1.0], [2.0, NAN, 1.0], [float("inf"), NAN, 1.0]])
def test_a_loss_that_is_not_finite_is_the_worst(
    losses: list[float], monkeypatch: pytest.MonkeyPatch, brief: None
) -> None:
    losing(monkeypatch, losses)
    given = order_alone(pairs=12)
    assert score_recurrent(*given, seeds=1, hidden=4)[1]["epochs"] == [[3], [3]]
    assert choose_cell(*given, seeds=1, hidden=4)[1]["inner_loss"] == {
        cell: [1.0, 1.0] for cell in CELLS
    }


@pytest.mark.parametrize("ask", [score_recurrent, choose_cell])
def test_a_search_that_diverges_is_told_and_not_kept(
    ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: None
) -> None:
    losing(monkeypatch, [NAN])
    for _ in range(2):
        with pytest.raises(
            InputError,
            match=r"^[A-Za-z]+, fold \d, seed 0: the training diverged: after no epoch .*; look",
        ):
            ask(*order_alone(pairs=12), seeds=1, hidden=4, folder=tmp_path)
    assert [*tmp_path.glob("*.json")] == []


def test_weights_that_diverge_are_told_and_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_jobs, "Recipe", partial(Recipe, rate=float("inf"), epochs=2))
    losing(monkeypatch, [1.0])
    with pytest.raises(
        InputError,
        match="fold 0, seed 0: the training diverged: after 1 epochs its weights are not finite",
    ):
        score_recurrent(*order_alone(pairs=12), seeds=1, hidden=4, folder=tmp_path)
    assert [*tmp_path.glob("*[0-9a-f].json")] == []


def test_a_loss_that_stays_nan_ends_the_search_too() -> None:
    assert not train_loop.State(None, None, 2, [NAN, NAN]).is_stale(3)
    assert train_loop.State(None, None, 3, [NAN, NAN, NAN]).is_stale(3)
    assert not train_loop.State(None, None, 3, [NAN, 1.0, NAN]).is_stale(2)
