"""The kernels for a GPU against those for the CPU: on a GPU, or in Triton's interpreter."""

import dataclasses
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from callshot.fewshot import spreads
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.sweep import sweep
from corpora import SMALL, corpora, engine_for, random_corpus, repeat_vectors

triton_device = pytest.importorskip("triton_device")
torch = pytest.importorskip("torch")

from callshot.fewshot.gpu import sweep as gpu_supports  # noqa: E402
from callshot.fewshot.gpu.device import KERNELS, Gpu  # noqa: E402
from callshot.fewshot.gpu.supports import to_scores  # noqa: E402
from callshot.fewshot.kernels import scores  # noqa: E402

# Lanes beyond the last one compute on anything.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
SPREADS = ("per-query", "shared", "total")
ON_GPU = [name for name, rule in CLASSIFIERS.items() if rule.rule in KERNELS]
# Fitted vectors are no whole numbers: scores that are equal but for rounding are ties on one
# device alone.
WITHOUT_FIT = [name for name in ON_GPU if CLASSIFIERS[name].fit is None]
# The interpreter is slow: each kernel and each spread once. The other rules change vectors.
PAIRS = [("centroid", "per-query"), ("cosine", "shared"), ("centroid", "total")]
if triton_device.HAS_GPU:
    PAIRS = list(product(ON_GPU, SPREADS))
on_gpu = pytest.mark.skipif(not triton_device.HAS_GPU, reason="needs a GPU")
FEW = settings(
    max_examples=300,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
protocols = st.builds(
    dataclasses.replace,
    st.just(SMALL),
    sampler=st.sampled_from(["distinct", "replacement"]),
    seed=st.integers(0, 3),
)


def run_both(table, protocol, spread, classifier="centroid", categories=None, **more):
    """Return the sums of one spread by the CPU and by the GPU."""
    results = []
    for gpu in (None, triton_device.GPU):
        with engine_for(table, protocol, classifier=classifier, gpu=gpu) as engine:
            results.append(sweep(engine, spread, categories, **more)[1])
    return results


@on_gpu
@FEW
@given(corpora(), protocols, st.sampled_from(SPREADS), st.sampled_from(WITHOUT_FIT))
def test_values_are_those_of_the_cpu(table, protocol, spread, classifier):
    triton_device.assert_same(*run_both(table, protocol, spread, classifier))


@pytest.mark.parametrize(("classifier", "spread"), PAIRS)
def test_every_rule_and_spread(classifier, spread):
    table = random_corpus(7, classes=2, folds=2, dimensions=3, values=9)
    protocol = dataclasses.replace(SMALL, shots=(1, 3))
    triton_device.assert_same(*run_both(table, protocol, spread, classifier))


def test_equal_vectors_categories_and_the_row_all():
    table = repeat_vectors(random_corpus(5, classes=3, folds=2))
    protocol = dataclasses.replace(SMALL, shots=(3,), whole_pool=True)
    categories = {"c0": "one", "c1": "one", "c2": "other"}
    cpu, gpu = run_both(table, protocol, "shared", categories=categories)
    assert cpu.tied.sum() > 0
    triton_device.assert_same(cpu, gpu)


@pytest.mark.parametrize("values", [2, 1000])  # with many ties, and with none
def test_draws_without_groups_of_recordings(monkeypatch, values):
    monkeypatch.setattr(spreads, "MIN_DRAWS", 1)
    monkeypatch.setattr(spreads, "TIMES_LEFT_OUT", 1)
    table = random_corpus(7, classes=2, folds=2, dimensions=3, values=values)
    protocol = dataclasses.replace(SMALL, shots=(1,), shared_draws=3)
    cpu, gpu = run_both(table, protocol, "shared", without_groups=True)
    assert (cpu.tied.sum() > 0) == (values == 2)
    triton_device.assert_same(cpu.left_out, gpu.left_out)
    triton_device.assert_same(cpu, gpu)


def test_blocks_of_shots_queries_and_draws_change_nothing(monkeypatch):
    table = random_corpus(7, classes=2, folds=2, size=0, dimensions=3, values=9)
    monkeypatch.setattr(gpu_supports, "SUPPORT_BYTES", 1)
    monkeypatch.setattr(gpu_supports, "PRODUCT_BYTES", 1)
    monkeypatch.setattr(Gpu, "score_bytes", 1)
    for spread, shots in (("per-query", (1, 2)), ("shared", (1,))):
        protocol = dataclasses.replace(SMALL, shots=shots, shared_draws=2, draws=2)
        triton_device.assert_same(*run_both(table, protocol, spread))


def test_scores_are_those_of_the_cpu_to_the_bit():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(1, 5, 1, 64)) * 10.0 ** rng.integers(-3, 4, 64)
    a[..., 0] = 2.0
    ours = torch.from_numpy(a[0, :, 0][None].copy()).to(triton_device.GPU.torch_device)
    relevant = torch.ones((5, 64), dtype=torch.int8, device=ours.device)
    decisions = to_scores(ours, relevant, 1, ranking=False)
    expected_decisions = np.empty((1, 1, 64), np.uint16)
    scores.to_scores(a, 0, 1, False, False, expected_decisions)
    np.testing.assert_array_equal(ours.cpu().numpy()[0], a[0, :, 0])
    found = decisions.cpu().numpy()
    np.testing.assert_array_equal(found >> 1, expected_decisions[0])
    assert (found & 1).all()
