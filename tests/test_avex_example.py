"""The example of encoders in a package of one's own, with stand-ins that have avex's signatures."""

import importlib.metadata
import sys
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from callshot.encoders import catalogue
from callshot.encoders.catalogue import find_encoder, list_specs
from callshot.encoders.encode import encoder_fingerprint, open_encoder
from callshot.encoders.install import list_needs

torch = pytest.importorskip("torch", reason="avex needs torch: pip install torch")

GROUP = "callshot.encoders"
ENTRIES = {"avex-beats": "avex_encoders:BEATS", "birdaves": "avex_encoders:BIRDAVES"}


class Network(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Takes (batch, samples) and a mask; returns (batch, frames, 768), a frame for each 20 ms."""

    def __init__(self, gain):
        super().__init__()
        self.gain = gain
        self.dropout = torch.nn.Dropout(0.5)  # acts unless eval() was called

    def forward(self, x, padding_mask=None):
        assert padding_mask is None
        frames = x.unfold(1, 320, 320).abs().mean(dim=2)
        scale = self.gain * torch.arange(1, 769)
        return self.dropout(frames[:, :, None] * scale)


class AvesModel(Network):
    """Has the constructor of avex.models.aves_model.Model."""

    def __init__(
        self, *, num_classes, pretrained=False, device="cuda", audio_config=None
    ):
        super().__init__(gain=3.0)
        assert device == "cpu"


def load_model(model, device="cpu", checkpoint_path=None, return_features_only=False):
    """Have the parameters of avex.load_model."""
    assert (device, return_features_only) == ("cpu", True)
    return Network({"esp_aves2_sl_beats_all": 1.0, "another": 2.0}[str(model)])


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    """Install stand-ins for avex, and entry points for the example."""
    avex = ModuleType("avex")
    avex.load_model = load_model  # type: ignore[attr-defined]
    aves = ModuleType("avex.models.aves_model")
    aves.Model = AvesModel  # type: ignore[attr-defined]
    modules = {
        "avex": avex,
        "avex.models": ModuleType("avex.models"),
        aves.__name__: aves,
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "avex_encoders", raising=False)
    known = importlib.metadata.version

    def version(package):
        return "1.2.3" if package == "avex" else known(package)

    monkeypatch.setattr(importlib.metadata, "version", version)
    entries = [EntryPoint(name, value, GROUP) for name, value in ENTRIES.items()]
    monkeypatch.setattr(catalogue, "entry_points", lambda group: entries)


def embed(name, signal, **choices):
    encoder = open_encoder(find_encoder(name, choices))
    prepared = encoder.prepare(signal, 16000)
    return encoder.pool(prepared, encoder.encode([prepared])[0])


@pytest.mark.parametrize(
    ("name", "choices", "gain"),
    [
        ("avex-beats", {}, 1.0),
        ("avex-beats", {"model": "another"}, 2.0),
        ("birdaves", {}, 3.0),
    ],
)
def test_a_segment_becomes_the_mean_of_the_frames_of_avex(name, choices, gain):
    signal = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
    expected = gain * np.abs(signal).mean() * np.arange(1, 769)
    vector = embed(name, signal, **choices)
    np.testing.assert_allclose(vector, expected, rtol=1e-5)
    np.testing.assert_array_equal(vector, embed(name, signal, **choices))


def test_the_encoders_are_listed_and_the_version_of_avex_is_in_the_fingerprint():
    assert [spec.name for spec in list_specs()][-2:] == list(ENTRIES)
    for name in ENTRIES:
        assert list_needs(find_encoder(name)) == []
        choices: Any = encoder_fingerprint(find_encoder(name))["options"]
        assert choices["avex"] == "1.2.3"
