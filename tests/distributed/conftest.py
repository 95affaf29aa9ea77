"""The cluster that all tests of this folder share."""

import time

import pytest

import callshot

WORKERS = 2
READY_S = 60.0


@pytest.fixture(scope="package")
def shared_cluster():
    with callshot.open_cluster(f"local:{WORKERS}") as opened:
        yield opened


@pytest.fixture
def cluster(shared_cluster):
    """Return the cluster when the workers of earlier tests are gone, or started again."""
    end_s = time.monotonic() + READY_S
    while shared_cluster.workers != WORKERS and time.monotonic() < end_s:
        time.sleep(0.05)
    assert shared_cluster.workers == WORKERS
    return shared_cluster
