"""Recurrent networks: they learn what order alone decides, see nothing of the queries, and are the same every time."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from callshot.baselines import recurrent_network, train_loop, training_jobs
from callshot.baselines.recurrent import choose_cell, score_recurrent
from callshot.baselines.recurrent_network import (
    CELLS,
    HIDDEN,
    Recipe,
    build,
    forward,
    log_probabilities,
    start_state,
)
from callshot.baselines.sequence_batches import lay_out
from callshot.baselines.torch_arrays import give_weights, open_feed
from callshot.errors import InputError, OptionError
from callshot.fewshot.centroid import score
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.records import Embeddings, FloatArray, IntArray

torch = pytest.importorskip("torch", reason="torch is not here: make test-torch")
load_file = pytest.importorskip("safetensors.numpy").load_file

Task = tuple[Episodes, IntArray, list[FloatArray]]


def task(
    label: list[str], recording: IntArray, fold: IntArray, sequences: list[FloatArray]
) -> Task:
    """Make episodes of sequences, with their means as vectors; rows come as the episodes order them."""
    names = [f"{n:04d}" for n in range(len(label))]
    folds = check_folds([str(r) for r in recording], fold)
    vectors = np.array([sequence.mean(axis=0) for sequence in sequences])
    table = Embeddings(
        "made", vectors, names, [str(r) for r in recording], label, [()] * len(label)
    )
    rows = np.lexsort((names, label))
    episodes = plan_episodes(table, folds, count_classes(label, folds))
    return episodes, recording[rows], [sequences[row] for row in rows]


def order_alone(pairs: int = 40, folds: int = 2, common: int = 0) -> Task:
    """Make pairs of the same frames, rising and falling in time, each pair a recording; the last ones are common."""
    rng = np.random.default_rng(5)
    rising = [np.sort(rng.normal(size=(rng.integers(6, 15), 2)), axis=0) for _ in range(pairs)]
    sequences = [sequence for one in rising for sequence in (one, one[::-1].copy())]
    fold = np.where(np.arange(pairs) < pairs - common, np.arange(pairs) % folds, -1)
    return task(
        ["rising", "falling"] * pairs, np.repeat(np.arange(pairs), 2), np.repeat(fold, 2), sequences
    )


def auroc(episodes: Episodes, scores: FloatArray) -> float:
    """Average over folds and classes, by scikit-learn."""
    parts = [
        (scores[episodes.fold == f], episodes.relevant[episodes.fold == f])
        for f in range(episodes.folds)
    ]
    return float(
        np.mean(
            [roc_auc_score(truth[:, n], s[:, n]) for s, truth in parts for n in range(s.shape[1])]
        )
    )


def logistic_on_means(episodes: Episodes) -> FloatArray:
    scores = np.full(episodes.relevant.shape, np.nan)
    for fold in range(episodes.folds):
        query = episodes.fold == fold
        model = LogisticRegression().fit(episodes.vectors[~query], episodes.label[~query])
        scores[query] = model.predict_log_proba(episodes.vectors[query])
    return scores


def weights(folder: Path) -> dict[str, bytes]:
    """Return the finished networks of a folder, by fold and seed."""
    return {p.name.rpartition("-")[0]: p.read_bytes() for p in sorted(folder.glob("*.safetensors"))}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Two threads of torch on two busy cores take ten times as long as one."""
    torch.set_num_threads(1)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learn in larger steps, and stop sooner."""
    monkeypatch.setattr(training_jobs, "Recipe", partial(Recipe, rate=1e-2, epochs=16, patience=3))


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take three epochs at most: enough to tell two trainings apart."""
    monkeypatch.setattr(training_jobs, "Recipe", partial(Recipe, epochs=3))


# Networks


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dimension", [40, 768, 1024, 1280, 1536])
@pytest.mark.parametrize("classes", [10, 12])
def test_a_network_has_the_parameters_that_are_stated(
    cell: str, dimension: int, classes: int
) -> None:
    recipe = Recipe(cell, dimension, classes, HIDDEN[cell])
    assert recipe.parameters == sum(tensor.numel() for tensor in build(recipe).parameters())
    assert 10_000 <= recipe.parameters <= 100_000


def literal(recipe: Recipe, weight: dict[str, NDArray[Any]], sequence: FloatArray) -> FloatArray:
    """Run a network on one sequence, step by step, as the textbook has it."""
    h, c, outputs = np.zeros(recipe.hidden), np.zeros(recipe.hidden), []
    for frame in np.clip((sequence - weight["mean"]) * weight["scale"], -10, 10):
        x = frame
        if "narrow.weight" in weight:
            x = weight["narrow.weight"] @ x + weight["narrow.bias"]
        a = np.split(
            weight["cell.weight_ih_l0"] @ x + weight["cell.bias_ih_l0"], CELLS[recipe.cell][1]
        )
        b = np.split(
            weight["cell.weight_hh_l0"] @ h + weight["cell.bias_hh_l0"], CELLS[recipe.cell][1]
        )
        if recipe.cell == "elman":
            h = np.tanh(a[0] + b[0])
        elif recipe.cell == "gru":
            reset, update = expit(a[0] + b[0]), expit(a[1] + b[1])
            h = (1 - update) * np.tanh(a[2] + reset * b[2]) + update * h
        else:
            enter, forget, leave = (expit(a[n] + b[n]) for n in (0, 1, 3))
            c = forget * c + enter * np.tanh(a[2] + b[2])
            h = leave * np.tanh(c)
        outputs.append(h)
    logits = weight["head.weight"] @ np.mean(outputs, axis=0) + weight["head.bias"]
    return np.asarray(logits - np.log(np.exp(logits).sum()))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dimension", [3, 80])
def test_log_probabilities_are_those_of_a_literal_network(cell: str, dimension: int) -> None:
    rng, recipe = np.random.default_rng(2), Recipe(cell, dimension, 4, 8)
    sequences = [rng.normal(5.0, 3.0, (length, dimension)) for length in (1, 7, 3, 7, 2)]
    feed = open_feed(lay_out(sequences), np.zeros(5, np.int64), "cpu")
    network = start_state(feed, np.arange(3), recipe).network
    weight = {
        name: tensor.double().numpy() for name, tensor in recurrent_network.state_dict().items()
    }
    wanted = [literal(recipe, weight, sequence.astype(np.float32)) for sequence in sequences]
    assert np.abs(log_probabilities(feed, np.arange(5), network) - wanted).max() <= 1e-5


@pytest.mark.parametrize("cell", CELLS)
def test_logits_and_gradients_are_those_of_a_batch_that_torch_packs(cell: str) -> None:
    rng = np.random.default_rng(3)
    sequences = [torch.from_numpy(rng.normal(size=(n, 2)).astype(np.float32)) for n in (2, 5, 5, 1)]
    feed = open_feed(
        lay_out([sequence.numpy() for sequence in sequences]), np.zeros(4, np.int64), "cpu"
    )
    network = start_state(feed, np.arange(4), Recipe(cell, 2, 3, 4)).network
    scaled = torch.nn.utils.rnn.pad_sequence(
        [(s - recurrent_network.mean) * recurrent_network.scale for s in sequences]
    )
    packed = torch.nn.utils.rnn.pack_padded_sequence(scaled, [2, 5, 5, 1], enforce_sorted=False)
    outputs, lengths = torch.nn.utils.rnn.pad_packed_sequence(network["cell"](packed)[0])
    wanted = network["head"](outputs.sum(dim=0) / lengths[:, None])
    found = forward(feed, np.arange(4), network)
    assert torch.allclose(found, wanted, rtol=0, atol=1e-6)
    both = [
        torch.autograd.grad((x**2).sum(), [*recurrent_network.parameters()], retain_graph=True)
        for x in (found, wanted)
    ]
    assert all(torch.allclose(a, b, rtol=0, atol=1e-5) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("cell", CELLS)
def test_a_rows_score_does_not_depend_on_its_batch(cell: str) -> None:
    rng = np.random.default_rng(4)
    sequences = [rng.normal(size=(n, 40)) for n in rng.integers(1, 200, 40)]
    feed = open_feed(lay_out(sequences), np.zeros(40, np.int64), "cpu")
    network = start_state(feed, np.arange(40), Recipe(cell, 40, 5, HIDDEN[cell])).network
    whole = log_probabilities(feed, np.arange(40), network)
    alone = [log_probabilities(feed, np.array([row]), network)[0] for row in range(40)]
    assert np.abs(score(whole) - score(alone)).max() <= 1e-5


# What they learn


@pytest.mark.parametrize("cell", CELLS)
def test_order_alone_is_learnt_where_means_say_nothing(cell: str, quick: None) -> None:
    episodes, groups, sequences = order_alone()
    scores, told = score_recurrent(episodes, groups, sequences, cell=cell, seeds=1, hidden=16)
    assert auroc(episodes, scores) >= 0.95
    assert abs(auroc(episodes, logistic_on_means(episodes)) - 0.5) <= 0.05
    assert told["cells"] == (cell,) * 2


def test_a_wide_input_is_learnt_too(quick: None) -> None:
    episodes, groups, sequences = order_alone()
    wide = np.random.default_rng(6).normal(size=(2, 200))
    scores, told = score_recurrent(
        episodes, groups, [s @ wide for s in sequences], seeds=1, hidden=16
    )
    assert auroc(episodes, scores) >= 0.95
    assert told["width"] == 64


def test_long_sequences_are_shortened_and_still_learnt(quick: None) -> None:
    episodes, groups, sequences = order_alone()
    long = [np.repeat(sequence, 40, axis=0) for sequence in sequences]
    scores, told = score_recurrent(episodes, groups, long, seeds=1, hidden=16)
    assert auroc(episodes, scores) >= 0.95
    assert min(told["frames_per_step"]) >= 5


def test_the_frames_that_make_a_step_are_counted_on_the_support_side(brief: None) -> None:
    episodes, groups, sequences = order_alone(pairs=24, common=2)
    rows = [
        np.repeat(s, 40, axis=0) if episodes.fold[n] == 0 else s for n, s in enumerate(sequences)
    ]
    _, told = score_recurrent(episodes, groups, rows, seeds=1, hidden=4)
    sides = [
        np.median([len(row) for row, f in zip(rows, episodes.fold, strict=True) if f != fold])
        for fold in (0, 1)
    ]
    assert told["frames_per_step"] == tuple(int(np.ceil(side / 64)) for side in sides)
    assert told["frames_per_step"][0] == 1 < told["frames_per_step"][1]


def test_a_rare_class_is_not_given_up(quick: None) -> None:
    """Without weights, a class with 6 % of the rows that overlaps the other is hardly ever decided for."""
    rng = np.random.default_rng(8)
    label = ["often"] * 90 + ["rare"] * 6
    sequences = [rng.normal(1.2 * (name == "rare"), 1.0, (1, 2)) for name in label]
    episodes, groups, rows = task(label, np.arange(96), np.arange(96) % 3, sequences)
    scores, _ = score_recurrent(episodes, groups, rows, seeds=2, hidden=8)
    assert (scores.argmax(axis=1) == 1).mean() >= 0.15


# What they must not see


def test_labels_permuted_on_the_support_side_score_chance(quick: None) -> None:
    """In 100 dimensions a direction by chance tells nothing; and what is memorised would show, if a query were."""
    rng = np.random.default_rng(9)
    label = rng.permutation(np.repeat(["bark", "roar"], 90))
    sequences = [rng.normal(0.3 * (name == "roar"), 1.0, (1, 100)) for name in label]
    fold, found = np.arange(180) % 3, []
    for number in range(3):
        mixed = label.copy()
        mixed[fold != number] = rng.permutation(mixed[fold != number])
        episodes, groups, rows = task([*mixed], np.arange(180), fold, sequences)
        scores, _ = score_recurrent(episodes, groups, rows, seeds=1, hidden=16)
        found.append(
            roc_auc_score(*(x[episodes.fold == number, 0] for x in (episodes.relevant, scores)))
        )
    assert abs(np.mean(found) - 0.5) <= 0.1
    episodes, groups, rows = task([*label], np.arange(180), fold, sequences)
    assert auroc(episodes, score_recurrent(episodes, groups, rows, seeds=1, hidden=16)[0]) >= 0.9


def test_a_feature_that_only_queries_have_does_not_help(brief: None) -> None:
    episodes, groups, sequences = order_alone()
    query = episodes.fold == 0

    def told(tell: bool) -> list[FloatArray]:
        extra = np.where(query & tell, 2.0 * episodes.label - 1.0, 0.0)
        return [
            np.column_stack([s[:, ::-1] ** 2, np.full(len(s), e)])
            for s, e in zip(sequences, extra, strict=True)
        ]

    with_it, without = (
        score_recurrent(episodes, groups, told(t), seeds=1, hidden=8)[0] for t in (True, False)
    )
    assert np.array_equal(with_it[query], without[query])


def test_nothing_of_a_fold_reaches_the_networks_that_score_it(tmp_path: Path, brief: None) -> None:
    episodes, groups, sequences = order_alone(pairs=30, common=3)
    other = [7.0 + 3.0 * s[:1] if episodes.fold[n] == 1 else s for n, s in enumerate(sequences)]
    for name, rows in (("one", sequences), ("other", other)):
        score_recurrent(episodes, groups, rows, seeds=2, hidden=8, folder=tmp_path / name)
        choose_cell(episodes, groups, rows, seeds=1, hidden=8, folder=tmp_path / name)
    same = [n for n, w in weights(tmp_path / "one").items() if weights(tmp_path / "other")[n] == w]
    assert same == ["fold1-seed0-gru", "fold1-seed1-gru"]
    searches = [
        sorted(p.name for p in (tmp_path / name).glob("fold1*search.json"))
        for name in ("one", "other")
    ]
    assert searches[0] == searches[1]
    assert len(searches[0]) == 4


def test_rows_of_the_common_fold_are_learnt_from_and_not_scored(
    tmp_path: Path, brief: None
) -> None:
    episodes, groups, sequences = order_alone(pairs=30, common=3)
    scores, _ = score_recurrent(
        episodes, groups, sequences, seeds=1, hidden=8, folder=tmp_path / "one"
    )
    assert np.array_equal(np.isnan(scores).all(axis=1), episodes.fold == -1)
    assert not np.isnan(scores[episodes.fold >= 0]).any()
    changed = [s + 1.0 if episodes.fold[n] == -1 else s for n, s in enumerate(sequences)]
    score_recurrent(episodes, groups, changed, seeds=1, hidden=8, folder=tmp_path / "other")
    one, other = weights(tmp_path / "one"), weights(tmp_path / "other")
    assert all(one[name] != other[name] for name in one)


# The same every time


@pytest.mark.parametrize("cell", CELLS)
def test_the_same_call_gives_the_same_bits_with_any_number_of_threads(
    cell: str, tmp_path: Path, brief: None
) -> None:
    given = order_alone(pairs=24)
    before = torch.get_num_threads()
    runs = [
        score_recurrent(
            *given, cell=cell, seeds=2, hidden=8, threads=threads, folder=tmp_path / str(threads)
        )
        for threads in (1, 3)
    ]
    assert np.array_equal(runs[0][0], runs[1][0])
    assert weights(tmp_path / "1") == weights(tmp_path / "3")
    assert len(weights(tmp_path / "1")) == 4
    assert torch.get_num_threads() == before


def test_another_seed_gives_other_networks_and_leaves_torch_alone(brief: None) -> None:
    given = order_alone(pairs=24)
    torch.manual_seed(1)
    first, _ = score_recurrent(*given, seeds=1, hidden=8)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    second, _ = score_recurrent(*given, seeds=1, hidden=8, seed=1)
    assert torch.equal(torch.rand(1), drawn)
    assert not np.array_equal(first, second)


def test_neither_numbers_of_recordings_nor_labels_of_others_matter(brief: None) -> None:
    episodes, groups, sequences = order_alone(pairs=24)
    first, _ = score_recurrent(episodes, groups, sequences, seeds=1, hidden=8)
    second, _ = score_recurrent(episodes, 500 - groups, sequences, seeds=1, hidden=8)
    assert np.array_equal(first, second)


def test_scores_are_the_log_odds_of_the_mean_log_probability(tmp_path: Path, brief: None) -> None:
    episodes, groups, sequences = order_alone(pairs=24)
    scores, told = score_recurrent(episodes, groups, sequences, seeds=3, hidden=8, folder=tmp_path)
    feed = open_feed(lay_out(sequences), episodes.label, "cpu")
    query = np.flatnonzero(episodes.fold == 1)
    members = []
    for path in sorted(tmp_path.glob("fold1-*.safetensors")):
        network = build(Recipe("gru", 2, 2, 8))
        give_weights(network, load_file(path))
        members.append(log_probabilities(feed, query, network))
    assert np.array_equal(scores[query], score(np.mean(members, axis=0)))
    assert len(members) == told["seeds"] == 3
    assert np.shape(told["epochs"]) == (2, 3)


def test_a_split_in_which_nothing_can_be_held_out_is_trained_for_a_set_number_of_epochs(
    brief: None,
) -> None:
    """Two folds, and each class in one recording of each: on a support side no class has two."""
    rng = np.random.default_rng(1)
    sequences = [rng.normal(size=(3, 2)) for _ in range(8)]
    given = task(
        ["bark"] * 4 + ["roar"] * 4, np.repeat(np.arange(4), 2), np.tile([0, 0, 1, 1], 2), sequences
    )
    _, told = score_recurrent(*given, seeds=1, hidden=4)
    assert told["epochs"] == [[train_loop.EPOCHS]] * 2
    with pytest.raises(
        InputError, match=r"fold 0: no class has two recordings .* to choose a network by; name one"
    ):
        choose_cell(*given, seeds=1, hidden=4)


# The choice


def test_the_cell_is_chosen_by_the_loss_on_inner_folds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brief: None
) -> None:
    given = order_alone(pairs=24)
    chosen, told = choose_cell(*given, seeds=2, hidden=8, folder=tmp_path)
    assert [min(CELLS, key=lambda cell: told["inner_loss"][cell][fold]) for fold in range(2)] == [
        *chosen
    ]
    losses = [json_losses(path) for path in tmp_path.glob(f"fold1-*-{chosen[1]}-*.search.json")]
    assert told["inner_loss"][chosen[1]][1] == pytest.approx(
        np.mean([min(loss) for loss in losses]), rel=1e-12
    )
    monkeypatch.setattr(
        recurrent_network, "balanced_loss", lambda *_: pytest.fail("a search was done again")
    )
    scores, told = score_recurrent(*given, cell=chosen, seeds=2, hidden=8, folder=tmp_path)
    assert told["cells"] == chosen
    assert np.isfinite(scores).all()


def json_losses(path: Path) -> list[float]:
    return list(json.loads(path.read_text())["losses"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")
@pytest.mark.parametrize("cell", CELLS)
def test_a_gpu_learns_the_same_task(cell: str, quick: None) -> None:
    episodes, groups, sequences = order_alone()
    scores, _ = score_recurrent(
        episodes, groups, sequences, cell=cell, seeds=1, hidden=16, device="cuda"
    )
    assert auroc(episodes, scores) >= 0.95


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_gpu_that_is_not_here_is_refused() -> None:
    with pytest.raises(OptionError, match="device: cuda is not there for torch; use cpu"):
        score_recurrent(*order_alone(pairs=12), device="cuda")
