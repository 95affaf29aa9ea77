"""Recurrent networks learn order in time, see nothing of the queries, and are reproducible."""

import itertools
from functools import partial

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from callshot.baselines import training
from callshot.baselines.sequence_batches import BatchData, stack_sequences
from callshot.baselines.training import TrainingContext, start_training
from callshot.errors import InputError, OptionError
from callshot.fewshot.centroid import log_odds
from networks import (
    mean_auroc,
    read_header,
    saved_phases,
    saved_trainings,
    sequence_dataset,
)

torch = pytest.importorskip("torch")

load_file = pytest.importorskip("safetensors.torch").load_file

from callshot.baselines import recurrent  # noqa: E402
from callshot.baselines.recurrent import (  # noqa: E402
    CELLS,
    HIDDEN,
    RecurrentConfig,
    RecurrentNetwork,
    choose_cell,
    score_recurrent,
)


def order_dataset(pairs=40, common=0):
    """Make pairs of the same frames, rising and falling in time; each pair is a recording.

    The last recordings are in the common fold.
    """
    rng = np.random.default_rng(5)
    sequences = []
    for _ in range(pairs):
        rising = np.sort(rng.normal(size=(rng.integers(6, 15), 2)), axis=0)
        sequences += [rising, rising[::-1].copy()]
    recording = np.arange(pairs)
    fold = np.where(recording < pairs - common, recording % 2, -1)
    return sequence_dataset(
        ["rising", "falling"] * pairs,
        np.repeat(recording, 2),
        np.repeat(fold, 2),
        sequences,
    )


def score_means(episodes):
    """Score the queries with logistic regression on the means over time."""
    scores = np.full(episodes.relevant.shape, np.nan)
    for fold in range(episodes.folds):
        query = episodes.fold == fold
        model = LogisticRegression().fit(
            episodes.vectors[~query], episodes.label[~query]
        )
        scores[query] = model.predict_log_proba(episodes.vectors[query])
    return scores


def make_network(cell, sequences, **sizes):
    """Make a network for sequences with one dimension count."""
    data = BatchData.load(
        stack_sequences(sequences),
        np.zeros(len(sequences), np.int64),
        np.arange(len(sequences)),
        "cpu",
    )
    dimension = sequences[0].shape[1]
    config = RecurrentConfig(cell=cell, dimension=dimension, **sizes)
    return RecurrentNetwork(data, config)


def configure(monkeypatch, **settings):
    config = partial(RecurrentConfig, **settings)
    monkeypatch.setattr(recurrent, "RecurrentConfig", config)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Use small networks, and one thread: two on two busy cores take ten times as long."""
    torch.set_num_threads(1)
    monkeypatch.setattr(recurrent, "HIDDEN", dict.fromkeys(CELLS, 8))


@pytest.fixture
def quick(monkeypatch):
    """Train in larger steps, and stop sooner."""
    configure(monkeypatch, learning_rate=1e-2, epochs=16, patience=3)


@pytest.fixture
def brief(monkeypatch):
    """Train for at most three epochs: enough to tell two trainings apart."""
    configure(monkeypatch, epochs=3)


# Networks


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dimension", [40, 1536])
def test_networks_have_between_10_000_and_100_000_parameters(cell, dimension):
    sequences = [np.zeros((1, dimension))]
    network = make_network(cell, sequences, classes=12, hidden=HIDDEN[cell])
    parameters = sum(tensor.numel() for tensor in network.parameters())
    assert 10_000 <= parameters <= 100_000


def literal_network(config, weight, sequence):
    """Run a network on one sequence, step by step, as in a textbook."""
    gates = {"elman": 1, "gru": 3, "lstm": 4}[config.cell]
    h = np.zeros(config.hidden)
    c = np.zeros(config.hidden)
    outputs = []
    for frame in np.clip((sequence - weight["mean"]) * weight["scale"], -10, 10):
        x = frame
        if "projection.weight" in weight:
            x = weight["projection.weight"] @ x + weight["projection.bias"]
        a = np.split(weight["cell.weight_ih_l0"] @ x + weight["cell.bias_ih_l0"], gates)
        b = np.split(weight["cell.weight_hh_l0"] @ h + weight["cell.bias_hh_l0"], gates)
        if config.cell == "elman":
            h = np.tanh(a[0] + b[0])
        elif config.cell == "gru":
            reset = expit(a[0] + b[0])
            update = expit(a[1] + b[1])
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
def test_log_probabilities_equal_those_of_a_literal_network(cell, dimension):
    rng = np.random.default_rng(2)
    sequences = [
        rng.normal(5.0, 3.0, (length, dimension)) for length in (1, 7, 3, 7, 2)
    ]
    network = make_network(cell, sequences, classes=4, hidden=8)
    start_training(network, np.arange(3))
    weight = {
        name: tensor.double().numpy() for name, tensor in network.state_dict().items()
    }
    expected = [
        literal_network(network.config, weight, sequence.astype(np.float32))
        for sequence in sequences
    ]
    assert np.abs(network.predict(np.arange(5)) - expected).max() <= 1e-5


# What they learn


def check_that_order_is_learnt(cell, context):
    episodes, groups, sequences = order_dataset()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrent, "HIDDEN", {cell: 16})
        scores, metadata = score_recurrent(
            episodes, groups, sequences, cell=cell, context=context
        )
    truth = (episodes.relevant, episodes.fold)
    assert mean_auroc(*truth, scores) >= 0.95
    assert abs(mean_auroc(*truth, score_means(episodes)) - 0.5) <= 0.05
    assert metadata["cells"] == (cell,) * 2


@pytest.mark.parametrize("cell", ["elman", "lstm"])
def test_order_in_time_is_learnt_where_means_are_useless(cell, quick):
    check_that_order_is_learnt(cell, TrainingContext())


def test_the_support_side_decides_how_many_frames_make_a_step(brief):
    episodes, groups, sequences = order_dataset(pairs=24, common=2)
    rows = list(sequences)
    for row in np.flatnonzero(episodes.fold == 0):
        rows[row] = np.repeat(sequences[row], 40, axis=0)
    _, metadata = score_recurrent(episodes, groups, rows)
    lengths = np.array([len(row) for row in rows])
    medians = [np.median(lengths[episodes.fold != fold]) for fold in (0, 1)]
    assert metadata["frames_per_step"] == [
        int(np.ceil(median / 64)) for median in medians
    ]
    assert metadata["frames_per_step"][0] == 1 < metadata["frames_per_step"][1]


def test_a_rare_class_is_predicted(quick):
    """Without weights, a class with 6 % of the rows that overlaps the other is rarely predicted."""
    rng = np.random.default_rng(8)
    label = ["often"] * 90 + ["rare"] * 6
    sequences = [rng.normal(1.2 * (name == "rare"), 1.0, (1, 2)) for name in label]
    dataset = sequence_dataset(label, np.arange(96), np.arange(96) % 3, sequences)
    scores, _ = score_recurrent(*dataset, networks=2)
    assert (scores.argmax(axis=1) == 1).mean() >= 0.15


# What they must not see


def test_a_feature_that_only_queries_have_does_not_help(brief):
    episodes, groups, sequences = order_dataset()
    query = episodes.fold == 0

    def score_with(feature):
        rows = [
            np.column_stack([sequence[:, ::-1] ** 2, np.full(len(sequence), value)])
            for sequence, value in zip(sequences, feature, strict=True)
        ]
        return score_recurrent(episodes, groups, rows)[0][query]

    leaked = np.where(query, 2.0 * episodes.label - 1.0, 0.0)
    assert np.array_equal(score_with(leaked), score_with(np.zeros(len(query))))


def test_a_fold_does_not_influence_the_networks_that_score_it(tmp_path, brief):
    episodes, groups, sequences = order_dataset(pairs=30, common=3)

    def train(name, changed_fold):
        rows = [
            7.0 + 3.0 * sequence[:1] if fold == changed_fold else sequence
            for sequence, fold in zip(sequences, episodes.fold, strict=True)
        ]
        inputs = (episodes, groups, rows)
        context = TrainingContext(folder=tmp_path / name)
        choose_cell(*inputs, context=context)
        scores, _ = score_recurrent(*inputs, networks=2, context=context)
        return scores, saved_trainings(tmp_path / name)

    scores, one = train("plain", None)
    assert np.array_equal(np.isnan(scores).all(axis=1), episodes.fold == -1)
    _, other = train("queries", 1)
    same = [name for name in one if one[name] == other[name]]
    assert same == [
        "fold1-seed0-elman",
        "fold1-seed0-gru",
        "fold1-seed0-lstm",
        "fold1-seed1-gru",
    ]
    _, other = train("common", -1)  # is trained on
    assert all(one[name] != other[name] for name in one)


# Reproducibility


def test_the_number_of_threads_does_not_change_any_bit(tmp_path, brief):
    dataset = order_dataset(pairs=24)
    before = torch.get_num_threads()
    runs = []
    for threads in (1, 3):
        context = TrainingContext(threads=threads, folder=tmp_path / str(threads))
        scores, _ = score_recurrent(*dataset, cell="lstm", networks=2, context=context)
        runs.append(scores)
    assert np.array_equal(runs[0], runs[1])
    assert saved_trainings(tmp_path / "1") == saved_trainings(tmp_path / "3")
    assert len(saved_trainings(tmp_path / "1")) == 4
    assert torch.get_num_threads() == before


def test_another_seed_gives_other_networks_and_keeps_the_global_random_state(brief):
    dataset = order_dataset(pairs=24)
    torch.manual_seed(1)
    first, _ = score_recurrent(*dataset)
    drawn = torch.rand(1)
    torch.manual_seed(1)
    second, _ = score_recurrent(*dataset, context=TrainingContext(seed=1))
    assert torch.equal(torch.rand(1), drawn)
    assert not np.array_equal(first, second)


def test_scores_are_the_log_odds_of_the_mean_log_probability(tmp_path, brief):
    episodes, groups, sequences = order_dataset(pairs=24)
    context = TrainingContext(folder=tmp_path)
    scores, metadata = score_recurrent(
        episodes, groups, sequences, networks=3, context=context
    )
    network = make_network("gru", sequences, classes=2, hidden=8)
    query = np.flatnonzero(episodes.fold == 1)
    members = []
    for path in sorted(tmp_path.glob("fold1-*.safetensors")):
        network.load_state_dict(load_file(path))
        members.append(network.predict(query))
    assert np.array_equal(scores[query], log_odds(np.mean(members, axis=0)))
    assert len(members) == metadata["networks"] == 3
    assert np.shape(metadata["epochs"]) == (2, 3)


def test_a_split_without_held_out_rows_is_trained_for_a_fixed_number_of_epochs(brief):
    """Two folds with one recording of each class: no class has two on a support side."""
    rng = np.random.default_rng(1)
    sequences = [rng.normal(size=(3, 2)) for _ in range(8)]
    label = ["bark"] * 4 + ["roar"] * 4
    recording = np.repeat(np.arange(4), 2)
    dataset = sequence_dataset(label, recording, np.tile([0, 0, 1, 1], 2), sequences)
    _, metadata = score_recurrent(*dataset)
    assert metadata["epochs"] == [[training.UNSEARCHED_EPOCHS]] * 2
    message = r"fold 0: no class has two recordings .* to choose a network; name one"
    with pytest.raises(InputError, match=message):
        choose_cell(*dataset)


# The choice of a cell


def test_the_cell_with_the_lowest_loss_on_inner_folds_is_chosen(
    tmp_path, monkeypatch, brief
):
    dataset = order_dataset(pairs=24)
    context = TrainingContext(folder=tmp_path)
    chosen, inner_loss = choose_cell(*dataset, networks=2, context=context)
    for fold in range(2):
        assert chosen[fold] == min(CELLS, key=lambda cell: inner_loss[cell][fold])
    searches = tmp_path.glob(f"fold1-*-{chosen[1]}-*.safetensors")
    lowest = [min(read_header(path)["losses"]) for path in searches]
    assert inner_loss[chosen[1]][1] == pytest.approx(np.mean(lowest), rel=1e-12)

    def fail(*_):
        pytest.fail("a search was repeated")

    monkeypatch.setattr(recurrent, "balanced_loss", fail)
    scores, metadata = score_recurrent(
        *dataset, cell=chosen, networks=2, context=context
    )
    assert metadata["cells"] == chosen
    assert np.isfinite(scores).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("cell", CELLS)
def test_a_gpu_learns_the_same_task(cell, quick):
    check_that_order_is_learnt(cell, TrainingContext(device="cuda"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_an_error():
    context = TrainingContext(device="cuda")
    message = "device: torch finds no CUDA device; use cpu"
    with pytest.raises(OptionError, match=message):
        score_recurrent(*order_dataset(pairs=12), context=context)


NAN = float("nan")


def set_losses(monkeypatch, losses):
    """Give the held-out rows these losses, epoch by epoch."""
    remaining = itertools.cycle(losses)
    monkeypatch.setattr(recurrent, "balanced_loss", lambda *_: next(remaining))


def test_a_loss_that_is_not_finite_is_the_worst(monkeypatch, brief):
    set_losses(monkeypatch, [float("inf"), NAN, 1.0])
    dataset = order_dataset(pairs=12)
    _, metadata = score_recurrent(*dataset)
    assert metadata["epochs"] == [[3], [3]]
    _, inner_loss = choose_cell(*dataset)
    assert inner_loss == {cell: [1.0, 1.0] for cell in CELLS}


@pytest.mark.parametrize("function", [score_recurrent, choose_cell])
def test_a_search_that_diverges_is_reported_and_not_saved(
    function, tmp_path, monkeypatch, brief
):
    set_losses(monkeypatch, [NAN])
    message = r"^[A-Za-z]+, fold \d, seed 0: the training diverged, the loss .* any epoch; look"
    context = TrainingContext(threads=1, folder=tmp_path)
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            function(*order_dataset(pairs=12), context=context)
    assert set(saved_phases(tmp_path).values()) == {"search"}


def test_weights_that_diverge_are_reported_and_not_saved(tmp_path, monkeypatch):
    configure(monkeypatch, learning_rate=float("inf"), epochs=2)
    set_losses(monkeypatch, [1.0])
    message = "fold 0, seed 0: the training diverged, its weights are not finite after 1 epochs"
    context = TrainingContext(threads=1, folder=tmp_path)
    with pytest.raises(InputError, match=message):
        score_recurrent(*order_dataset(pairs=12), context=context)
    assert saved_phases(tmp_path)["fold0-seed0-gru"] == "all"
