"""An encoder on fixed sounds → lines that say whether it gives what it must, or the fingerprint of what it gives.

`references/NAME.npz` has the vectors of an encoder with its default choices, made on one machine; others may differ in
late digits.
"""

import hashlib
import io
from collections.abc import Iterator
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from callshot.encoders.catalogue import EncoderSpec, find_encoder
from callshot.encoders.encode import open_encoder, pool
from callshot.errors import InputError

Vectors = dict[str, NDArray[np.float32]]

RATE_HZ, SECONDS = 16000, 4
TOLERANCE = 1e-4  # of the largest value
DECIMALS = 3  # to which the fingerprint is taken


def fixed_sounds() -> Vectors:
    """Return sounds that are the same on every machine: a tone, a sweep, clicks, and noise by a formula."""
    t = np.arange(RATE_HZ * SECONDS) / RATE_HZ
    sounds = {
        "tone": np.sin(2 * np.pi * 440 * t),
        "sweep": np.sin(2 * np.pi * (50 + 250 * t) * t),
        "clicks": (np.arange(t.size) % 4000 == 0).astype(np.float64),
        "noise": np.sin(1e4 * np.sin(1e4 * np.arange(t.size))),
    }
    return {name: (0.5 * sound).astype(np.float32) for name, sound in sounds.items()}


def make_vectors(spec: EncoderSpec, *, device: str = "cpu") -> Vectors:
    """Run a spec on the fixed sounds."""
    encoder = open_encoder(spec, device=device)
    return {
        name: pool(encoder.encode([encoder.prepare(sound, RATE_HZ)])[0])
        for name, sound in fixed_sounds().items()
    }


def check_encoder(spec: EncoderSpec, *, device: str = "cpu") -> Iterator[str]:
    """Compare a spec with its reference vectors, where there are any for its choices; refuse it where it differs."""
    found = make_vectors(spec, device=device)
    digest = hashlib.sha256(
        b"".join(np.round(vector, DECIMALS).tobytes() for vector in found.values())
    )
    yield f"{spec.name}: fingerprint of its vectors, to {DECIMALS} decimals: {digest.hexdigest()[:16]}"
    wanted = references(spec)
    for name, vector in wanted.items():
        difference = float(np.abs(found[name] - vector).max() / np.abs(vector).max())
        if not difference <= TOLERANCE:
            raise InputError(
                f"{spec.name}: its vector for {name} is {difference:.1g} of its largest value away from the reference "
                f"({TOLERANCE:g} is allowed); get the weights again, or compare versions of its runtime"
            )
        yield f"{name}: as it must be, to {difference:.1g} of the largest value"
    if not wanted:
        yield "no reference vectors are known for it with these choices: compare the fingerprint with another machine's"


def references(spec: EncoderSpec) -> Vectors:
    """Return the reference vectors of a spec, if it has the choices that they were made with."""
    source = files("callshot.encoders") / "references" / f"{spec.name}.npz"
    if (
        spec.name.startswith("onnx:")
        or not source.is_file()
        or spec.choices() != find_encoder(spec.name).choices()
    ):
        return {}
    with np.load(io.BytesIO(source.read_bytes()), allow_pickle=False) as kept:
        return {name: kept[name] for name in kept.files}
