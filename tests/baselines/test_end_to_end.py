"""The end-to-end baseline learns time and frequency, sees no queries, and is reproducible."""

import shutil
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from callshot.baselines.sequence_batches import BatchData, stack_sequences, window_crops
from callshot.baselines.training import TrainingContext, start_training
from callshot.errors import InputError
from networks import mean_auroc, saved_trainings

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")

from callshot.baselines import end_to_end  # noqa: E402
from callshot.baselines.end_to_end import (  # noqa: E402
    FrameClassifier,
    FrameConfig,
    balanced_weights,
    frame_loss,
    score_end_to_end,
)
from callshot.baselines.transformer import AstConfig  # noqa: E402

Signal = NDArray[np.float32]
SMALL = AstConfig(width=32, layers=2, heads=2, inner=64)


def make_chirp(rng, rising):
    """Make a chirp between 300 Hz and 5 kHz in noise; both directions have the same spectrum."""
    seconds = 0.5
    low = rng.uniform(300, 900)
    high = rng.uniform(3000, 5000)
    time = np.arange(int(16_000 * seconds)) / 16_000
    phase = 2 * np.pi * (low * time + (high - low) * time**2 / (2 * seconds))
    tone = np.sin(phase + rng.uniform(0, 6)) * rng.uniform(0.1, 0.4)
    if not rising:
        tone = tone[::-1]
    return np.asarray(tone + 0.02 * rng.normal(size=len(time)), np.float32)


def chirp_dataset(count=64):
    """Make rising and falling chirps in two folds, two of each recording."""
    rng = np.random.default_rng(1)
    row = np.arange(count)
    rising = row // 2 % 2 == 0
    signals = [make_chirp(rng, up) for up in rising.tolist()]
    targets = np.stack([rising, ~rising], axis=1)
    return signals, targets, row // 4 % 2, row // 2, ["rising", "falling"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Use a small network, and one thread: two on two busy cores take ten times as long."""
    torch.set_num_threads(1)
    monkeypatch.setattr(end_to_end, "DEFAULT_ENCODER", SMALL)


def configure(monkeypatch, **settings):
    monkeypatch.setattr(end_to_end, "FrameConfig", partial(FrameConfig, **settings))


@pytest.fixture
def quick(monkeypatch):
    """Train in larger steps, and stop sooner."""
    configure(
        monkeypatch,
        learning_rate=3e-3,
        batch_size=8,
        warmup_steps=4,
        epochs=9,
        patience=5,
    )


@pytest.fixture
def brief(monkeypatch):
    """Train for at most two epochs: enough to tell two trainings apart."""
    configure(monkeypatch, epochs=2)


@pytest.fixture
def rng():
    return np.random.default_rng(3)


# Networks


def make_network(frames, outputs, encoder=SMALL):
    label = np.zeros((len(frames), outputs), np.bool_)
    data = BatchData.load(stack_sequences(frames), label, np.arange(len(frames)), "cpu")
    return FrameClassifier(data, FrameConfig(encoder=encoder, outputs=outputs))


def test_the_number_of_parameters_is_that_of_all_layers():
    network = make_network([np.zeros((16, 128))], 2)
    patch = 257 * 32
    grid = 64 * 8 * 32
    block = 2 * 64 + 33 * 96 + 33 * 32 + 33 * 64 + 65 * 32
    head = 33 * 2
    parameters = sum(tensor.numel() for tensor in network.parameters())
    assert parameters == patch + grid + 2 * block + 64 + head


def test_every_frame_is_scored_once_however_long_the_segment(rng):
    """A slow version scores the windows one by one."""
    lengths = [16, 31, 64 * 16, 65 * 16, 200 * 16 + 7]
    network = make_network(
        [rng.normal(size=(length, 128)) for length in lengths], outputs=3
    )
    start_training(network, np.arange(5))
    torch.nn.init.normal_(
        network.head.weight, generator=torch.Generator().manual_seed(1)
    )
    expected = []
    for row, length in enumerate(lengths):
        crops = window_crops(np.array(lengths), np.array([row]))
        assert crops.columns.sum() == length // 16
        assert (
            crops.first.tolist()
            == (16 * (np.cumsum(crops.columns) - crops.columns)).tolist()
        )
        frames = torch.from_numpy(network.data.table.row(row))
        parts = []
        for first, columns in zip(crops.first, crops.columns, strict=True):
            with torch.no_grad():
                parts.append(network(frames[None, first : first + 16 * columns])[0])
        expected.append(torch.cat(parts).double().mean(dim=0).numpy())
    assert np.abs(network.predict(np.arange(5)) - expected).max() <= 1e-5


def test_log_odds_are_the_mean_of_a_linear_layer_over_mel(rng):
    network = make_network([np.zeros((16, 128))], outputs=2)
    with torch.no_grad():
        network.encoder.initialize(torch.Generator().manual_seed(1))
    frames = torch.from_numpy(rng.normal(size=(1, 48, 128)).astype(np.float32))
    patches = [
        frames[0, 16 * column : 16 * column + 16, 16 * band : 16 * band + 16].ravel()
        for column in range(3)
        for band in range(8)
    ]
    with torch.no_grad():
        tokens = network.encoder(torch.stack(patches).view(1, 3, 8, 256))[0]
        expected = torch.stack([network.head(column).mean(dim=0) for column in tokens])
        assert (network(frames)[0] - expected).abs().max() <= 1e-5


def test_the_loss_weights_both_sides_of_an_output_equally(rng):
    truth = np.array([[True, False], [False, False], [False, True], [False, True]])
    log_odds = rng.normal(size=(4, 3, 2))
    mask = np.array([[True, True, True], [True, False, False]] * 2)
    expected = 0.0
    for row, output in np.ndindex(4, 2):
        positives = truth[:, output].sum()
        count = positives if truth[row, output] else 4 - positives
        sign = -1 if truth[row, output] else 1
        losses = np.log1p(np.exp(sign * log_odds[row, mask[row], output]))
        expected += 4 / (2 * count) * np.mean(losses) / 8
    arrays = (log_odds, mask, truth.astype(np.float64), balanced_weights(truth, truth))
    loss = frame_loss(*map(torch.from_numpy, arrays))
    assert float(loss) == pytest.approx(expected, rel=1e-5)


# What it learns


def test_the_direction_of_a_chirp_is_learnt_where_its_spectrum_is_useless(quick):
    signals, targets, fold, groups, names = chirp_dataset()
    scores, metadata = score_end_to_end(signals, targets, fold, groups, names)
    assert mean_auroc(targets, fold, scores) >= 0.95
    assert metadata["trained"] == 2
    assert len(metadata["epochs"]) == 2


# What it must not see


def test_queries_and_their_labels_do_not_change_the_weights(brief, tmp_path):
    signals, targets, fold, groups, names = chirp_dataset(24)
    context = TrainingContext(folder=tmp_path)
    score_end_to_end(signals, targets, fold, groups, names, context=context)
    before = saved_trainings(tmp_path)["fold0-seed0-aerd"]
    shutil.rmtree(tmp_path)
    for row in np.flatnonzero(fold == 0):
        signals[row] = signals[row][::-1].copy()
        targets[row] = ~targets[row]
    score_end_to_end(signals, targets, fold, groups, names, context=context)
    assert saved_trainings(tmp_path)["fold0-seed0-aerd"] == before


# Reproducibility


def test_the_seed_decides_everything_and_each_signal_is_read_once(brief):
    signals, *others = chirp_dataset(16)
    rows: list[int] = []

    class LazySignals(Sequence[Signal]):
        def __len__(self):
            return len(signals)

        def __getitem__(self, row):
            rows.append(row)
            return signals[row]

    first, _ = score_end_to_end(LazySignals(), *others)
    assert rows == [*range(16)]
    again, _ = score_end_to_end(signals, *others, context=TrainingContext(threads=2))
    assert np.array_equal(first, again)
    other, _ = score_end_to_end(signals, *others, context=TrainingContext(seed=1))
    assert not np.array_equal(first, other)


# Checks of the input


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        (np.zeros(0, np.float32), r"of floats, got \(0,\) of float32"),
        (np.full(9, np.inf, np.float32), "finite, got NaN"),
        (np.zeros((9, 2), np.float32), r"of floats, got \(9, 2\) of float32"),
        (None, "of floats, got .* of object"),
    ],
)
def test_a_signal_that_cannot_be_used_is_an_error(signal, message):
    signals, *others = chirp_dataset(16)
    signals[5] = signal
    expected = f"signal of row 5: expected samples at 16 kHz, one channel, {message}"
    with pytest.raises(InputError, match=expected):
        score_end_to_end(signals, *others)
