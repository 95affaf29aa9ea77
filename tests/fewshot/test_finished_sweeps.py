"""Names of finished parts of sweeps: they differ where the numbers may."""

import numba
import numpy as np
import pytest

from callshot.fewshot import finished_sweeps
from callshot.records import Embeddings, Folds


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (finished_sweeps, "__version__"),
        (finished_sweeps, "SWEEP_VERSION"),
        (np, "__version__"),
        (numba, "__version__"),
    ],
)
def test_sweeps_of_another_version_are_not_found(monkeypatch, module, name):
    table = Embeddings("e", np.eye(2), "ab", "xy", "uv", [(), ()])
    folds = Folds(np.array([0, 1]), 2, "given")
    before = finished_sweeps.hash_dataset(table, folds, [], None)
    assert before == finished_sweeps.hash_dataset(table, folds, [], None)
    monkeypatch.setattr(module, name, "another")
    assert before != finished_sweeps.hash_dataset(table, folds, [], None)
