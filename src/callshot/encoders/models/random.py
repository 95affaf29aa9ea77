"""Noise instead of an encoder: a Gaussian vector seeded by the hash of the audio."""

import math

import numpy as np

from callshot.encoders.spec import EncoderSpec
from callshot.encoders.store import audio_key
from callshot.encoders.windows import Float32Array, Model
from callshot.records.terms import NO_LICENCE


def load_random(spec: EncoderSpec, **_: object) -> Model:
    """Open one realisation of noise: the same audio always gets the same Gaussian vector."""

    def model(signal: Float32Array) -> Float32Array:
        """Return one vector, (1, dimension), from the hash of the signal."""
        entropy = int(audio_key(signal), 16)
        philox = np.random.Philox(np.random.SeedSequence(entropy))
        generator = np.random.Generator(philox)
        return generator.standard_normal((1, spec.dimension), np.float32)

    return model


ENCODERS = (
    EncoderSpec(
        name="random",
        title="random (numbers that know nothing of the sound)",
        dimension=40,
        rate_hz=16000,
        load=f"{__name__}:load_random",
        licence=NO_LICENCE,
        loudness_effect="gives an unrelated vector",
        parallel=True,
        options={"dimension": 40},
        limits={"dimension": (1, math.inf)},
        pace=0.0005,
        comment="one realisation of noise",
        order=9,
    ),
)
