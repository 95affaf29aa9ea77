"""(keys) → random words, without state.

A key is 64 bits: the BLAKE2b digest of a text (seed and purpose, a segment's id, a class's name). A stream is the
chain of keys and counters mixed by SplitMix64's finaliser; its word at a position is one more mix. So a word is a
pure function of what it is for: no row number, no encoder, no k, no order of work enters it.
"""

import hashlib

import numpy as np

from callshot.fewshot.kernels import formula, kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_ONE = np.uint64(1)


def key(text: str) -> np.uint64:
    """Return the 64-bit key of a text.

    >>> hex(key("musth rumble"))
    '0x265ca6f857118690'
    """
    return np.uint64(
        int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    )


def purpose_key(seed: int, purpose: str) -> np.uint64:
    """Return the key that starts every stream of one seed and one purpose."""
    return key(f"callshot/{seed}/{purpose}")


@formula
def mix(x):
    """Scramble 64 bits (SplitMix64's finaliser, a bijection)."""
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@formula
def enter(stream, key_or_counter):
    """Go down one level: the stream of a key, or of a counter, inside a stream."""
    return mix(stream + key_or_counter * GOLDEN)


@formula
def below(stream, position, n):
    """Return a whole number in [0, n), n < 2³², from the word at a position (bias < n / 2³²); all unsigned."""
    word = mix(stream + (position + _ONE) * GOLDEN)
    return ((word >> _S32) * n) >> _S32


@kernel
def bootstrap_picks(base, query_key, draws, out):
    """Fill out[q, b] with the draw that sample b takes for query q: a hash of (seed, query, b)."""
    for q in range(out.shape[0]):
        stream = enter(base, query_key[q])
        for b in range(out.shape[1]):
            out[q, b] = below(stream, np.uint64(b), np.uint64(draws))
