"""Trainings that diverge are reported, not saved, and never chosen."""

import itertools

import pytest

from callshot.baselines.training import TrainingContext
from callshot.errors import InputError
from networks import saved_phases

pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
)

from baselines.test_recurrent import configure, order_dataset
from callshot.baselines import recurrent
from callshot.baselines.recurrent import CELLS, choose_cell, score_recurrent

NAN = float("nan")


@pytest.fixture
def brief(monkeypatch):
    """Train for at most three epochs."""
    configure(monkeypatch, epochs=3)


def set_losses(monkeypatch, losses):
    """Give the held-out rows these losses, epoch by epoch."""
    remaining = itertools.cycle(losses)
    monkeypatch.setattr(recurrent, "balanced_loss", lambda *_: next(remaining))


@pytest.mark.parametrize(
    "losses", [[NAN, 2.0, 1.0], [2.0, NAN, 1.0], [float("inf"), NAN, 1.0]]
)
def test_a_loss_that_is_not_finite_is_the_worst(losses, monkeypatch, brief):
    set_losses(monkeypatch, losses)
    dataset = order_dataset(pairs=12)
    _, metadata = score_recurrent(*dataset, hidden=4)
    assert metadata["epochs"] == [[3], [3]]
    _, inner_loss = choose_cell(*dataset, hidden=4)
    assert inner_loss == {cell: [1.0, 1.0] for cell in CELLS}


@pytest.mark.parametrize("function", [score_recurrent, choose_cell])
def test_a_search_that_diverges_is_reported_and_not_saved(
    function, tmp_path, monkeypatch, brief
):
    set_losses(monkeypatch, [NAN])
    message = r"^[A-Za-z]+, fold \d, seed 0: the training diverged, the loss .* any epoch; look"
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            function(
                *order_dataset(pairs=12),
                hidden=4,
                context=TrainingContext(threads=1, folder=tmp_path),
            )
    assert set(saved_phases(tmp_path).values()) == {"search"}


def test_weights_that_diverge_are_reported_and_not_saved(tmp_path, monkeypatch):
    configure(monkeypatch, learning_rate=float("inf"), epochs=2)
    set_losses(monkeypatch, [1.0])
    message = "fold 0, seed 0: the training diverged, its weights are not finite after 1 epochs"
    with pytest.raises(InputError, match=message):
        score_recurrent(
            *order_dataset(pairs=12),
            hidden=4,
            context=TrainingContext(threads=1, folder=tmp_path),
        )
    assert saved_phases(tmp_path)["fold0-seed0-gru"] == "all"
