"""An S3 server with an empty bucket, and recordings in three formats."""

import pytest

from callshot.storage import requests
from sounds import record
from stores import open_bucket, s3_environment, serve_s3


@pytest.fixture(scope="package")
def server():
    with serve_s3() as proxy:
        yield proxy


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """Yield a client with an empty bucket; `bucket.proxy` is before it."""
    for name, value in s3_environment(server).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(requests, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(requests, "_failures", 0)
    requests.forget_ranges()
    server.reset()
    store = open_bucket(server)
    store.proxy = server
    yield store
    server.reset()


@pytest.fixture
def local(tmp_path):
    """Return a folder with recordings in three formats."""
    folder = tmp_path / "recordings"
    record(folder / "a.wav", 6, 16000, seed=1)
    record(folder / "site/b.flac", 6, 16000, seed=2)
    record(folder / "site/c.ogg", 4, 16000, seed=3)
    return folder
