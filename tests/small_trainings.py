"""Small trainings of both kinds of networks, on noise, for the tests of saved trainings."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callshot.baselines.training import TrainingContext
from callshot.fewshot.episodes import Episodes
from callshot.records import FloatArray, IntArray
from killed_runs import kill_self
from networks import sequence_dataset

pytest.importorskip("torch")

from callshot.baselines import end_to_end, recurrent
from callshot.baselines.end_to_end import FrameClassifier, FrameConfig, score_end_to_end
from callshot.baselines.recurrent import (
    RecurrentConfig,
    RecurrentNetwork,
    score_recurrent,
)
from callshot.baselines.transformer import AstConfig

SetAttribute = Callable[[Any, str, Any], None]
Scores = tuple[FloatArray, dict[str, Any]]


def make_dataset() -> tuple[Episodes, IntArray, list[FloatArray]]:
    """Make two classes of noise in two folds."""
    rng = np.random.default_rng(1)
    sequences = [rng.normal(size=(rng.integers(1, 5), 3)) for _ in range(24)]
    row = np.arange(24)
    return sequence_dataset(["bark"] * 12 + ["roar"] * 12, row, row % 2, sequences)


def score_sequences(
    folder: Path,
    cell: str = "gru",
    networks: int = 1,
    **options: Any,
) -> Scores:
    context = TrainingContext(folder=folder, **{"threads": 1, **options})
    return score_recurrent(
        *make_dataset(), cell=cell, networks=networks, context=context
    )


def score_signals(folder: Path, **options: Any) -> Scores:
    """Score two classes of noise in two folds."""
    rng = np.random.default_rng(1)
    row = np.arange(16)
    return score_end_to_end(
        [rng.normal(0, 0.1, rng.integers(3000, 7000)).astype(np.float32) for _ in row],
        row[:, None] // 2 % 2 == np.arange(2),
        row // 4 % 2,
        row,
        ["bark", "roar"],
        context=TrainingContext(folder=folder, **{"threads": 1, **options}),
    )


def set_recurrent(set_attribute: SetAttribute, **settings: Any) -> None:
    config = partial(RecurrentConfig, **{"epochs": 4, **settings})
    set_attribute(recurrent, "RecurrentConfig", config)
    set_attribute(recurrent, "HIDDEN", dict.fromkeys(recurrent.CELLS, 4))


def set_end_to_end(set_attribute: SetAttribute, **settings: Any) -> None:
    encoder = AstConfig(width=16, layers=1, heads=2, inner=16)
    config = partial(FrameConfig, epochs=3, **settings)
    set_attribute(end_to_end, "DEFAULT_ENCODER", encoder)
    set_attribute(end_to_end, "FrameConfig", config)


@dataclass(frozen=True)
class Kind:
    """A kind of network: how its files and jobs are named, how it is trained in few epochs."""

    name: str
    title: str
    network: Any
    configure: Callable[..., None]
    score: Callable[..., Scores]


RECURRENT = Kind("gru", "GRU", RecurrentNetwork, set_recurrent, score_sequences)
END_TO_END = Kind("aerd", "AST-seq", FrameClassifier, set_end_to_end, score_signals)


def run_until_message(name: str, folder: Path, message: str) -> None:
    """Train a kind of network until a message, and kill the process."""
    kind = {kind.name: kind for kind in (RECURRENT, END_TO_END)}[name]

    def die(share: float, what: str) -> None:
        if what == message:
            kill_self()

    kind.configure(setattr)
    kind.score(folder, progress=die)
