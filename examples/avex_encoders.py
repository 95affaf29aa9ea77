"""Encoders of avex (Earth Species Project), as a package of your own that callshot finds.

Put this file into a package that needs `avex`, and name the encoders in its pyproject.toml:

    [project.entry-points."callshot.encoders"]
    avex-beats = "avex_encoders:BEATS"
    birdaves = "avex_encoders:BIRDAVES"

After `pip install` of that package, `callshot embed SEGMENTS --encoder avex-beats` runs BEATs, and
`--set model=NAME` another model of `avex.list_models()` that returns frames of 768 values. avex
downloads the weights; they are not in the fingerprint, but its version is: vectors of two versions
are never mixed. BEATs takes segments of 0.2 s and more.

Signatures: avex/models/utils/load.py and avex/models/aves_model.py of github.com/earthspecies/avex.
This file was tested with stand-ins that have them, not with avex and its weights.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np

from callshot.encoders.spec import EncoderSpec

RATE_HZ = 16000
DIMENSION = 768

BEATS = EncoderSpec(
    name="avex-beats",
    title="BEATs of avex, trained on animal sounds and AudioSet",
    dimension=DIMENSION,
    rate_hz=RATE_HZ,
    load="avex_encoders:load_avex",
    licence="that of the model, see its page",
    loudness_effect="changes it",
    options={"model": "esp_aves2_sl_beats_all", "avex": version("avex")},
    gpu=True,
)
BIRDAVES = EncoderSpec(
    name="birdaves",
    title="BirdAVES base (biox), last layer, from avex",
    dimension=DIMENSION,
    rate_hz=RATE_HZ,
    load="avex_encoders:load_birdaves",
    licence="that of the model, see its page",
    loudness_effect="changes it",
    options={"avex": version("avex")},
    gpu=True,
)


def load_avex(spec: EncoderSpec, *, device: str, **_: object) -> Callable[[Any], Any]:
    """Open a model of avex's list."""
    avex = import_module("avex")
    name = str(spec.options["model"])
    network = avex.load_model(name, device=device, return_features_only=True)
    return make_model(network, device)


def load_birdaves(
    spec: EncoderSpec, *, device: str, **_: object
) -> Callable[[Any], Any]:
    """Open BirdAVES, whose class loads its own weights; it has no classes to predict."""
    module = import_module("avex.models.aves_model")
    return make_model(module.Model(num_classes=1, device=device), device)


def make_model(network: Any, device: str) -> Callable[[Any], Any]:
    """Return a function from a segment, (samples,), to its frames, (frames, dimension)."""
    import torch

    network.eval()

    def model(signal: np.ndarray) -> np.ndarray:
        wave = torch.from_numpy(np.ascontiguousarray(signal))
        with torch.inference_mode():
            frames = network(wave[None].to(device), padding_mask=None)
        return np.asarray(frames[0].float().cpu())

    return model
