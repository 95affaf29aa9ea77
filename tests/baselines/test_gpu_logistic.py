"""Logistic regression at every k on a GPU, or in Triton's interpreter, against the CPU's."""

import dataclasses

import numpy as np
import pytest

from callshot.baselines.logistic import fit_nested, sweep_logistic
from callshot.errors import OptionError
from callshot.fewshot.episodes import make_split, open_engine
from callshot.fewshot.ridge import support_rows
from callshot.fewshot.spreads import make_spread
from corpora import SMALL, episodes_of, gaussian_corpus

triton_device = pytest.importorskip("triton_device")
torch = pytest.importorskip("torch")

from callshot.baselines.gpu_logistic import BatchedSolver, GpuTrainer  # noqa: E402
from callshot.fewshot.gpu.device import Gpu  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
SHOTS = np.array([1, 2, 4, 9])


def gaussian_episodes(dimensions, sizes=(20, 4, 9, 6)):
    """Return episodes of classes of different sizes, with columns of different scale."""
    table = gaussian_corpus(sizes, dimensions, common=0)
    vectors = table.matrix * 10.0 ** np.linspace(-2, 2, dimensions)
    vectors[3] = vectors[0]  # two queries of a fold that tie
    return episodes_of(dataclasses.replace(table, matrix=vectors))


def fit_on_gpu(episodes, draws, c):
    """Return the layers of some draws of the first fold, (shots, draws, classes, columns)."""
    with open_engine(episodes, SMALL, 1, 2**30, gpu=triton_device.GPU) as engine:
        spread = make_spread("shared", episodes, SMALL)
        split = make_split(episodes, 0)
        trainer = GpuTrainer(engine, split, SHOTS, spread, solver=BatchedSolver(c))
        rows = np.stack([rows for rows, _ in draws])
        table = torch.from_numpy(rows).to(triton_device.GPU.torch_device)
        fits = [torch.cat(layers, 2) for layers in trainer.fit_nested(table)]
        return torch.stack(fits).cpu().numpy()


@pytest.mark.parametrize(
    ("c", "dimensions"), [(0.01, 3), (10.0, 60)], ids=["by weights", "in the span"]
)
def test_every_fit_is_that_of_the_cpu(dimensions, c):
    episodes = gaussian_episodes(dimensions)
    draws = [
        support_rows(make_spread("shared", episodes, SMALL), 0, draw, SHOTS)
        for draw in range(2)
    ]
    fits = fit_on_gpu(episodes, draws, c)
    for draw, (rows, sizes) in enumerate(draws):
        vectors = episodes.vectors[rows]
        label = episodes.label[rows]
        weights, biases = fit_nested(vectors, label, sizes[: len(fits)], 4, c)
        golden = np.concatenate([weights, biases[..., None]], axis=2)
        scale = np.abs(golden).max(axis=(1, 2), keepdims=True)
        np.testing.assert_allclose(fits[:, draw] / scale, golden / scale, atol=1e-9)


def test_a_fit_does_not_depend_on_those_beside_it_and_bad_starts_do_not_matter():
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(3, 12, 20)))
    label = torch.from_numpy(np.arange(12) % 3)
    zeros = torch.zeros((3, 3, 64), dtype=torch.float64)
    solver = BatchedSolver(1.0, 1e-12)
    golden = solver.solve(rows, label, zeros)[0].clone()
    far = 1e3 * torch.from_numpy(rng.normal(size=zeros.shape))
    far[..., 12:-1] = 0.0
    found, gap = solver.solve(rows, label, far)
    torch.testing.assert_close(found, golden, rtol=0.0, atol=1e-6)
    assert gap < 1e-12
    alone, _ = solver.solve(rows[1:2], label, zeros[1:2])
    torch.testing.assert_close(alone[0], golden[1], rtol=0.0, atol=1e-12)


def run_both(episodes, protocol, spread):
    return [
        sweep_logistic(episodes, protocol, spread, c=1.0, gpu=gpu)[1]
        for gpu in (None, triton_device.GPU)
    ]


@pytest.mark.parametrize(
    ("spread", "sampler"),
    [("shared", "distinct"), ("per-query", "replacement"), ("total", "distinct")],
)
def test_values_ties_and_decisions_are_those_of_the_cpu(spread, sampler):
    protocol = dataclasses.replace(SMALL, shots=(2,), sampler=sampler)
    cpu, gpu = run_both(gaussian_episodes(4, (6, 3)), protocol, spread)
    assert cpu.tied.any() == (spread == "shared")
    triton_device.assert_same(cpu, gpu)


def test_small_batches_and_shots_all_change_nothing(monkeypatch):
    monkeypatch.setattr(Gpu, "score_bytes", 1)
    changes = {"shots": (2,), "shared_draws": 2, "whole_pool": True}
    protocol = dataclasses.replace(SMALL, **changes)
    triton_device.assert_same(
        *run_both(gaussian_episodes(3, (5, 3)), protocol, "shared")
    )


def test_a_fit_that_stops_early_is_reported(monkeypatch):
    monkeypatch.setattr("callshot.baselines.gpu_logistic.MAX_STEPS", 1)
    episodes = gaussian_episodes(6)
    draw = support_rows(make_spread("shared", episodes, SMALL), 0, 0, SHOTS)
    with pytest.raises(OptionError, match="above its optimum"):
        fit_on_gpu(episodes, [draw], 100.0)
