"""Fixtures that several tests of detection share."""

import pytest

from callshot.detection import clips
from field_recordings import write_site


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return a folder of recordings with calls, which tests must not change."""
    return write_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Return a store of embeddings: what one test embeds, others need not."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def no_pictures(monkeypatch):
    """Do not draw spectrograms, which takes most of the time."""
    monkeypatch.setattr(clips, "draw_spectrogram", lambda *facts: b"a picture")
