"""The cluster that all tests of this folder share."""

import pytest

import callshot


@pytest.fixture(scope="package")
def cluster():
    with callshot.open_cluster("local:2") as opened:
        yield opened
