"""The floor: a segment's samples come in, a Gaussian vector drawn by their hash goes out. It carries nothing."""

import numpy as np
from numpy.typing import NDArray

from callshot.encoders.store.store import audio_key


def draw(signal: NDArray[np.float32], dimension: int) -> NDArray[np.float32]:
    """Return the vector of a signal: the same audio always gets the same one, and no two audios alike.

    >>> silence = np.zeros(100, np.float32)
    >>> bool((draw(silence, 3) == draw(silence, 3)).all()), draw(silence, 3).shape
    (True, (3,))
    """
    seed = np.random.SeedSequence(int(audio_key(signal), 16))
    return np.random.Generator(np.random.Philox(seed)).standard_normal(dimension, np.float32)
