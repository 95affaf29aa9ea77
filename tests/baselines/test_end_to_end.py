"""The end-to-end rival: it learns what time and frequency decide together, sees nothing of the queries, and repeats."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from callshot.baselines import end_to_end
from callshot.baselines.crops import cut_whole
from callshot.baselines.end_to_end import score_aerd
from callshot.baselines.frame_classifier import (
    FrameLesson,
    Recipe,
    balance,
    build,
    frame_log_odds,
    frame_loss,
    log_odds,
)
from callshot.baselines.sequence_batches import lay_out
from callshot.baselines.torch_arrays import open_feed
from callshot.baselines.transformer import Ast
from callshot.errors import InputError, LeakError, OptionError
from callshot.records import FloatArray, IntArray

torch = pytest.importorskip("torch", reason="torch is not here: make test-torch")
pytest.importorskip("safetensors")

Task = tuple[list[NDArray[np.float32]], NDArray[np.bool_], IntArray, IntArray, list[str]]
SMALL = partial(Ast, width=32, layers=2, heads=2, inner=64)


def chirp(rng: np.random.Generator, rising: bool, seconds: float = 0.5) -> NDArray[np.float32]:
    """Make a chirp up or down, somewhere between 300 Hz and 5 kHz, in noise; both ways have the same spectrum."""
    low, high = rng.uniform(300, 900), rng.uniform(3000, 5000)
    time = np.arange(int(16_000 * seconds)) / 16_000
    phase = 2 * np.pi * (low * time + (high - low) * time**2 / (2 * seconds))
    tone = np.sin(phase + rng.uniform(0, 6)) * rng.uniform(0.1, 0.4)
    return np.asarray(
        (tone if rising else tone[::-1]) + 0.02 * rng.normal(size=len(time)), np.float32
    )


def chirps(count: int = 96, folds: int = 2, seed: int = 1) -> Task:
    rng = np.random.default_rng(seed)
    rising = np.arange(count) // 2 % 2 == 0
    signals = [chirp(rng, up) for up in rising.tolist()]
    targets = np.stack([rising, ~rising], axis=1)
    return (
        signals,
        targets,
        np.arange(count) // 4 % folds,
        np.arange(count) // 2,
        ["rising", "falling"],
    )


def auroc(targets: NDArray[np.bool_], fold: IntArray, scores: FloatArray) -> float:
    """Average over folds and outputs, by scikit-learn."""
    parts = [(targets[fold == f], scores[fold == f]) for f in range(int(fold.max()) + 1)]
    return float(
        np.mean(
            [roc_auc_score(truth[:, n], s[:, n]) for truth, s in parts for n in range(s.shape[1])]
        )
    )


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a small network, and one thread: two on two busy cores take ten times as long."""
    torch.set_num_threads(1)
    monkeypatch.setattr(end_to_end, "Ast", SMALL)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learn in larger steps, and stop sooner."""
    monkeypatch.setattr(
        end_to_end, "Recipe", partial(Recipe, rate=3e-3, batch=8, warm=4, epochs=9, patience=5)
    )


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take two epochs at most: enough to tell two trainings apart."""
    monkeypatch.setattr(end_to_end, "Recipe", partial(Recipe, epochs=2))


# Networks


def test_a_network_has_the_parameters_that_are_told(brief: None) -> None:
    signals, targets, fold, groups, names = chirps(16)
    _, told = score_aerd(signals, targets, fold, groups, names)
    patch, grid, head = 257 * 32, 64 * 8 * 32, 33 * 2
    block = 2 * 64 + 33 * 96 + 33 * 32 + 33 * 64 + 65 * 32
    assert told["parameters"] == patch + grid + 2 * block + 64 + head
    assert Recipe(Ast(), 3).parameters == 693_891


def test_every_frame_is_scored_once_however_long_the_segment(rng: np.random.Generator) -> None:
    """A slow twin takes the windows one by one."""
    lengths = [16, 31, 64 * 16, 65 * 16, 200 * 16 + 7]
    feed = open_feed(
        lay_out([rng.normal(size=(n, 128)) for n in lengths]), np.zeros((5, 3), bool), "cpu"
    )
    recipe = Recipe(SMALL(), 3)
    network = FrameLesson(feed, recipe).start(np.arange(5)).network
    torch.nn.init.normal_(network["head"].weight, generator=torch.Generator().manual_seed(1))
    wanted = []
    for row, length in enumerate(lengths):
        cuts, frames = (
            cut_whole(np.array(lengths), np.array([row])),
            feed.table.frames[feed.table.start[row] :],
        )
        assert cuts.columns.sum() == length // 16
        assert cuts.first.tolist() == (16 * (np.cumsum(cuts.columns) - cuts.columns)).tolist()
        parts = [frames[a : a + 16 * n] for a, n in zip(cuts.first, cuts.columns, strict=True)]
        with torch.no_grad():
            found = [
                frame_log_odds(recipe.encoder, network, torch.from_numpy(part)[None])[0]
                for part in parts
            ]
        wanted.append(torch.cat(found).double().mean(dim=0).numpy())
    assert np.abs(log_odds(feed, np.arange(5), recipe.encoder, network) - wanted).max() <= 1e-5


def test_the_head_is_a_linear_layer_for_each_token_and_a_mean_over_mel(
    rng: np.random.Generator,
) -> None:
    recipe = Recipe(SMALL(), 2)
    network = build(recipe)
    recipe.encoder.draw(network["encoder"], torch.Generator().manual_seed(1))
    frames = torch.from_numpy(rng.normal(size=(1, 48, 128)).astype(np.float32))
    patches = [
        frames[0, 16 * t : 16 * t + 16, 16 * f : 16 * f + 16].ravel()
        for t in range(3)
        for f in range(8)
    ]
    with torch.no_grad():
        tokens = recipe.encoder.encode(
            network["encoder"], torch.stack(patches).view(1, 3, 8, 256), None, lambda x: x
        )
        wanted = torch.stack([network["head"](tokens[0, t]).mean(dim=0) for t in range(3)])
        assert (frame_log_odds(recipe.encoder, network, frames)[0] - wanted).abs().max() <= 1e-5


def test_the_loss_weighs_both_sides_of_an_output_alike(rng: np.random.Generator) -> None:
    truth = np.array([[True, False], [False, False], [False, True], [False, True]])
    found, there = (
        rng.normal(size=(4, 3, 2)),
        np.array([[True, True, True], [True, False, False]] * 2),
    )
    wanted = 0.0
    for row in range(4):
        for output in range(2):
            positives = truth[:, output].sum()
            weight = 4 / (2 * (positives if truth[row, output] else 4 - positives))
            sign = -1 if truth[row, output] else 1
            frames = [
                np.log1p(np.exp(sign * found[row, t, output])) for t in range(3) if there[row, t]
            ]
            wanted += weight * np.mean(frames) / 8
    loss = frame_loss(torch.from_numpy(found), torch.from_numpy(there), truth, balance(truth))
    assert float(loss) == pytest.approx(wanted, rel=1e-5)


# What it learns


def test_the_way_of_a_chirp_is_learnt_where_its_spectrum_says_nothing(quick: None) -> None:
    signals, targets, fold, groups, names = chirps()
    scores, told = score_aerd(signals, targets, fold, groups, names)
    assert auroc(targets, fold, scores) >= 0.95
    assert told["searched"]
    assert told["trained"] == 2
    assert len(told["epochs"]) == 2


def test_segments_may_have_several_labels_or_none(brief: None) -> None:
    signals, targets, fold, groups, names = chirps(16)
    targets = np.column_stack([targets, targets.any(axis=1), np.zeros(16, bool)])
    targets[::3] = False
    targets[:8:4, 3] = targets[1:8:4, 3] = True
    scores, _ = score_aerd(signals, targets, fold, groups, [*names, "both", "few"])
    assert scores.shape == (16, 4)
    assert np.isfinite(scores).all()


# What it must not see


def test_labels_permuted_on_the_support_side_score_chance(quick: None) -> None:
    signals, targets, fold, groups, names = chirps(64)
    rng, found = np.random.default_rng(9), []
    for number in range(2):
        mixed, side = targets.copy(), np.flatnonzero(fold != number)
        mixed[side] = mixed[rng.permutation(side)]
        scores, _ = score_aerd(signals, mixed, fold, groups, names, epochs=5)
        found.append(roc_auc_score(targets[fold == number, 0], scores[fold == number, 0]))
    assert abs(np.mean(found) - 0.5) <= 0.2


def test_what_only_queries_have_does_not_help(quick: None) -> None:
    """A tone marks one class or the other: learnt where it does so everywhere, and in fold 0 alone, as well wrong."""
    rng, (_, targets, fold, groups, names) = np.random.default_rng(4), chirps(32)
    noise = [rng.normal(0.0, 0.03, 2800).astype(np.float32) for _ in range(32)]
    tone = 0.3 * np.sin(2 * np.pi * 2000 * np.arange(2800) / 16_000).astype(np.float32)

    def found(output: int, told: NDArray[np.bool_]) -> float:
        signals = [
            s + tone * mark for s, mark in zip(noise, targets[:, output] & told, strict=True)
        ]
        scores, _ = score_aerd(signals, targets, fold, groups, names, epochs=9)
        return float(roc_auc_score(targets[fold == 0, 0], scores[fold == 0, 0]))

    assert found(0, np.ones(32, bool)) >= 0.95
    assert found(1, np.ones(32, bool)) >= 0.95
    assert abs(found(0, fold == 0) + found(1, fold == 0) - 1.0) <= 0.4


def test_queries_and_their_labels_do_not_change_what_is_learnt(brief: None, tmp_path: Path) -> None:
    signals, targets, fold, groups, names = chirps(24)
    score_aerd(signals, targets, fold, groups, names, folder=tmp_path / "one")
    others = [s[::-1].copy() if f == 0 else s for s, f in zip(signals, fold, strict=True)]
    turned = np.where((fold == 0)[:, None], ~targets, targets)
    score_aerd(others, turned, fold, groups, names, folder=tmp_path / "two")
    first, second = (
        [*(tmp_path / name).glob("fold0*[0-9a-f].safetensors")] for name in ("one", "two")
    )
    assert first[0].name == second[0].name
    assert first[0].read_bytes() == second[0].read_bytes()


def test_the_common_fold_is_learnt_and_never_scored(brief: None) -> None:
    signals, targets, fold, groups, names = chirps(24)
    fold[-4:] = -1
    scores, _ = score_aerd(signals, targets, fold, groups, names)
    assert np.array_equal(np.isnan(scores).all(axis=1), fold == -1)
    fold[-4:] = 1
    assert not np.array_equal(
        score_aerd(signals, targets, fold, groups, names)[0][fold == 1], scores[fold == 1]
    )


# The same every time


@pytest.mark.parametrize("threads", [1, 2])
def test_the_seed_decides_everything(threads: int, brief: None) -> None:
    task = chirps(16)
    first, _ = score_aerd(*task, seeds=2)
    again, _ = score_aerd(*task, seeds=2, threads=threads)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, score_aerd(*task, seeds=2, seed=1)[0])


def test_scores_are_averaged_over_the_seeds(brief: None, tmp_path: Path) -> None:
    task = chirps(16)
    both, told = score_aerd(*task, seeds=2, folder=tmp_path)
    assert [len(epochs) for epochs in told["epochs"]] == [2, 2]
    one, told = score_aerd(*task, seeds=1, folder=tmp_path)
    assert told["trained"] == 0
    assert not np.array_equal(one, both)


def test_the_search_can_be_left_out(brief: None) -> None:
    heard: list[str] = []
    _, told = score_aerd(*chirps(16), epochs=1, progress=lambda share, what: heard.append(what))
    assert told["epochs"] == [[1], [1]]
    assert not told["searched"]
    assert not any("search" in what for what in heard)


def test_each_signal_is_asked_for_once(brief: None) -> None:
    signals, targets, fold, groups, names = chirps(16)

    class Lazy(Sequence[NDArray[np.float32]]):
        asked: ClassVar[list[int]] = []

        def __len__(self) -> int:
            return len(signals)

        def __getitem__(self, row: Any) -> Any:
            self.asked.append(row)
            return signals[row]

    score_aerd(Lazy(), targets, fold, groups, names)
    assert Lazy.asked == [*range(16)]


# What is refused


def bad(**other: Any) -> dict[str, Any]:
    signals, targets, fold, groups, names = chirps(16)
    return {
        "signals": signals,
        "targets": targets,
        "fold": fold,
        "groups": groups,
        "names": names,
        **other,
    }


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (
            {"names": ["rising"]},
            InputError,
            r"targets: wanted a truth for each row and each of 1 outputs, found shape",
        ),
        (
            {"targets": np.ones((16, 2))},
            InputError,
            r"targets: .* found shape \(16, 2\) of float64",
        ),
        ({"groups": np.arange(3)}, InputError, "groups: wanted one for each of 16 rows, found 3"),
        ({"groups": np.zeros(16, np.int64)}, LeakError, "recording '0' is in folds 0 and 1"),
        ({"fold": np.zeros(16, np.int64)}, InputError, "folds must be numbered 0, 1"),
        ({"seeds": 0}, OptionError, "seeds: a whole number from 1, got 0"),
        ({"epochs": 0}, OptionError, "epochs: a whole number from 1, got 0"),
        ({"device": "tpu"}, OptionError, "device: cpu or cuda, got 'tpu'"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(
    other: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        score_aerd(**bad(**other))


def test_a_class_with_one_exemplar_on_a_support_side_is_refused() -> None:
    given = bad()
    given["targets"][:, 0] = False
    given["targets"][[0, 2, 4], 0] = True
    with pytest.raises(
        InputError,
        match=r"class 'rising' has 1 on the support side of fold 0, .* needs 2 exemplars",
    ):
        score_aerd(**given)


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        (np.zeros(0, np.float32), "found none; leave its segment out"),
        (np.full(9, np.nan, np.float32), "finite, found NaN, infinity or above a million"),
        (np.full(9, np.inf, np.float32), "finite, found NaN"),
        (np.zeros((9, 2), np.float32), r"of floats, found \(9, 2\) of float32"),
        (np.zeros(9, np.int16), "of floats, found .* of int16"),
        (None, "of floats, found .* of NoneType"),
    ],
)
def test_a_signal_that_is_none_is_refused(signal: Any, message: str) -> None:
    given = bad()
    given["signals"][5] = signal
    with pytest.raises(
        InputError, match=f"signal of row 5: wanted samples at 16 kHz, one channel, {message}"
    ):
        score_aerd(**given)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)
