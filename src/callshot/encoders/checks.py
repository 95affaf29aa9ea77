"""An encoder on fixed sounds → lines that say whether it gives what it must, or the fingerprint of what it gives."""

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from callshot.encoders.catalogue import Row
from callshot.encoders.encode import open_encoder, pool

RATE_HZ, SECONDS = 16000, 4
DECIMALS = 3  # to which vectors are told: machines differ in later digits
# The mean, the standard deviation and the first value of each sound's vector, with default choices.
REFERENCES: dict[str, dict[str, tuple[float, float, float]]] = {}


def fixed_sounds() -> dict[str, NDArray[np.float32]]:
    """Return sounds that are the same on every machine: a tone, a sweep, clicks, and noise by a formula."""
    t = np.arange(RATE_HZ * SECONDS) / RATE_HZ
    noise = np.sin(1e4 * np.sin(1e4 * np.arange(t.size)))
    sounds = {
        "tone": np.sin(2 * np.pi * 440 * t),
        "sweep": np.sin(2 * np.pi * (50 + 250 * t) * t),
        "clicks": (np.arange(t.size) % 4000 == 0).astype(np.float64),
        "noise": noise,
    }
    return {name: (0.5 * sound).astype(np.float32) for name, sound in sounds.items()}


def check_encoder(row: Row, *, device: str = "cpu") -> Iterator[str]:
    """Run a row on fixed sounds; compare with the references of that row, where there are any."""
    encoder = open_encoder(row, device=device)
    known = REFERENCES.get(row.name, {}) if row.choices() == _default(row) else {}
    digest = hashlib.sha256()
    for name, sound in fixed_sounds().items():
        vector = pool(encoder.encode([encoder.prepare(sound, RATE_HZ)])[0])
        digest.update(np.round(vector, DECIMALS).tobytes())
        told = (float(vector.mean()), float(vector.std()), float(vector[0]))
        line = f"{name}: {len(vector)} values, mean {told[0]:.4f}, std. dev. {told[1]:.4f}, first {told[2]:.4f}"
        if name in known:
            agrees = np.allclose(told, known[name], rtol=1e-3, atol=1e-3)
            line += "  as it must be" if agrees else f"  WRONG: wanted {known[name]}"
        yield line
    yield f"fingerprint of the vectors, to {DECIMALS} decimals: {digest.hexdigest()[:16]}"
    if not known:
        yield "no reference vectors are known for it: compare the fingerprint with another machine's"


def _default(row: Row) -> dict[str, object]:
    from callshot.encoders.catalogue import find_encoder

    return dict(find_encoder(row.name).choices()) if not row.name.startswith("onnx:") else {}
