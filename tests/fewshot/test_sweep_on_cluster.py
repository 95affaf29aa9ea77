"""Names of finished parts of sweeps: they differ where the numbers may."""

import numba
import numpy as np
import pytest

from callshot import Protocol
from callshot.fewshot import sweep_on_cluster
from callshot.fewshot.sweep_on_cluster import SweepWork, hash_dataset
from callshot.records import Embeddings, Folds


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (sweep_on_cluster, "__version__"),
        (sweep_on_cluster, "SWEEP_VERSION"),
        (np, "__version__"),
        (numba, "__version__"),
    ],
)
def test_sweeps_of_another_version_are_not_found(monkeypatch, module, name):
    table = Embeddings("e", np.eye(2), "ab", "xy", "uv", [(), ()])
    folds = Folds(np.array([0, 1]), 2, "given")
    work = SweepWork(Protocol(), folds, [], None, 0)
    before = hash_dataset(table, work)
    assert before == hash_dataset(table, work)
    monkeypatch.setattr(module, name, "another")
    assert before != hash_dataset(table, work)
