"""The random streams of the reference, in plain Python: those of `kernels.streams`, bit by bit."""

from callshot.fewshot.kernels.streams import purpose_key

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x: int) -> int:
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def make_stream(seed: int, purpose: str, *words: int) -> int:
    """Return a random stream: a hash of its purpose, so that any draw can be repeated."""
    stream = int(purpose_key(seed, purpose))
    for word in words:
        stream = mix((stream + int(word) * GOLDEN) & MASK)
    return stream


def below(stream: int, position: int, n: int) -> int:
    """Return the whole number in [0, n) at a position of a stream."""
    return ((mix((stream + (position + 1) * GOLDEN) & MASK) >> 32) * n) >> 32
