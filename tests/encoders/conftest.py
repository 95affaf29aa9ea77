"""Fixtures of tests that get weights: an empty cache, and a server with faults."""

import pytest

from callshot.encoders import download
from weightfiles import serving


@pytest.fixture
def cache(tmp_path_factory, monkeypatch):
    """The folder of callshot; it does not exist until something is written to it."""
    home = tmp_path_factory.mktemp("cache") / "home"
    monkeypatch.setenv("CALLSHOT_HOME", str(home))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE_S", 0.001)
    return home


@pytest.fixture
def server():
    with serving() as server:
        yield server
