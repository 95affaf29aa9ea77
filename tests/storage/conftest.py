"""An S3 server with an empty bucket, and recordings in three formats."""

from contextlib import contextmanager
from unittest.mock import patch

import pytest
from fsspec.implementations.memory import MemoryFileSystem

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
def memory(monkeypatch, tmp_path):
    """Yield a store in memory, which is used as a bucket is."""
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(requests, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(requests, "_failures", 0)
    store = MemoryFileSystem()
    store.store.clear()
    store.pseudo_dirs[:] = [""]
    yield store
    store.store.clear()


@pytest.fixture
def refuse():
    """Return a block in which the store in memory refuses a method for some names."""

    @contextmanager
    def refuse(method, *names):
        real = getattr(MemoryFileSystem, method)

        def act(store, *paths, **options):
            if any(name in path for path in paths for name in names):
                raise PermissionError
            return real(store, *paths, **options)

        with patch.object(MemoryFileSystem, method, act):
            yield

    return refuse


@pytest.fixture
def local(tmp_path):
    """Return a folder with recordings in three formats."""
    folder = tmp_path / "recordings"
    record(folder / "a.wav", 6, 16000, seed=1)
    record(folder / "site/b.flac", 6, 16000, seed=2)
    record(folder / "site/c.ogg", 4, 16000, seed=3)
    return folder
