"""Bytes with one of them changed, for tests of files at rest."""

import random


def damage_bytes(content, count):
    """Yield copies of some bytes with one of them changed; the first and the last among them."""
    rng = random.Random(1)
    places = [0, len(content) - 1]
    places += rng.sample(range(len(content)), min(len(content), count) - 2)
    for place in places:
        other = bytearray(content)
        other[place] ^= rng.randrange(1, 256)
        yield place, bytes(other)
