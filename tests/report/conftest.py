"""Results that several modules read: a study for pages, and results with trained classifiers."""

from dataclasses import replace

import pytest

from corpus_results import SMALL, make_baselines, make_trained_results
from pages import make_study


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="session")
def trained():
    row = ("corpus", "", "end-to-end", "AERD", "all", "map", 0.7)
    return make_trained_results(
        protocol=replace(SMALL, shots=(1, 2, 5), shared_draws=120, total_samples=120),
        more_baselines=make_baselines(row),
        categories={"rumble": "low", "roar": "low", "trumpet": "high"},
        classifiers=("centroid", "cosine", "cl2n"),
    )
