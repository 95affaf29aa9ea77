"""Keys → random words and draws, without state.

A key is 64 bits: the BLAKE2b digest of a text (seed and purpose, a segment's id, a class's name). A
stream is a chain of keys and counters, mixed by the finaliser of SplitMix64; its word at a position
is one more mix.
"""

import hashlib
import math
from typing import Any

import numpy as np

from callshot.fewshot.kernels import formula, kernel
from callshot.fewshot.kernels.scores import log1p

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
ONE = np.uint64(1)
HALF = np.uint64(32)  # bits of half a word


def key(text: str) -> np.uint64:
    """Return the 64-bit key of a text.

    >>> hex(key("musth rumble"))
    '0x265ca6f857118690'
    """
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def purpose_key(seed: int, purpose: str) -> np.uint64:
    """Return the key that starts every stream of one seed and one purpose."""
    return key(f"callshot/{seed}/{purpose}")


def make_stream(seed: int, purpose: str, *words: Any) -> np.uint64:
    """Return the stream of a seed, a purpose, and keys or counters."""
    stream = purpose_key(seed, purpose)
    for word in words:
        stream = np.uint64(enter(stream, np.uint64(word)))
    return stream


@formula
def mix(x):
    """Scramble 64 bits (the finaliser of SplitMix64, a bijection)."""
    x = (x ^ (x >> np.uint64(30))) * FIRST_FACTOR
    x = (x ^ (x >> np.uint64(27))) * SECOND_FACTOR
    return x ^ (x >> np.uint64(31))


@formula
def enter(stream, key_or_counter):
    """Return the stream of a key, or of a counter, inside a stream."""
    return mix(stream + key_or_counter * GOLDEN)


@formula
def below(stream, position, n):
    """Return a whole number in [0, n) from the word at a position; all unsigned.

    n is below 2³², and the bias below n / 2³².
    """
    word = mix(stream + (position + ONE) * GOLDEN)
    return ((word >> HALF) * n) >> HALF


@kernel
def bootstrap_picks(base, query_key, draws, out):
    """Fill out[q, b] with the draw of sample b for query q: a hash of (seed, query, b)."""
    for q in range(out.shape[0]):
        stream = enter(base, query_key[q])
        for b in range(out.shape[1]):
            out[q, b] = below(stream, np.uint64(b), np.uint64(draws))


@kernel
def draw_support(stream, order, swaps, allowed, steps, distinct, chosen):
    """Fill `chosen` with the first `steps` members of a random order that are allowed.

    With `distinct`, the order is a permutation of the members, of which `steps` must be allowed;
    otherwise it is an endless sequence of picks with replacement. `order` holds the members; it is
    shuffled, and in the end put back as it was. allowed[member] says whether a member is allowed.
    `swaps` is scratch.
    """
    count = 0
    i = np.uint64(0)
    while count < steps:
        taken = i if distinct else np.uint64(0)  # members at the front of the order
        j = taken + below(stream, i, np.uint64(order.size) - taken)
        new = order[j]
        if distinct:  # Fisher-Yates: the chosen one goes to the front
            order[j] = order[i]
            order[i] = new
            swaps[i] = j
        i += ONE
        if allowed[new]:
            chosen[np.uint64(count)] = new
            count += 1
    while distinct and i > 0:  # undo the swaps
        i -= ONE
        new = order[i]
        order[i] = order[swaps[i]]
        order[swaps[i]] = new


@kernel
def fill_exponentials(base, keys, first, out):
    """Fill out[b, i] with an exponential number: a hash of (seed, purpose, key i, first + b).

    `base` is the key of seed and purpose.
    """
    for i in range(keys.size):
        stream = enter(base, keys[i])
        for b in range(out.shape[0]):
            word = mix(stream + (np.uint64(first + b) + ONE) * GOLDEN)
            u = (np.float64(word >> HALF) + 0.5) * 2.0**-32  # uniform
            out[b, i] = log1p(1.0 / u - 1.0)  # −log u, by a log1p that numba vectorises


@kernel
def fill_normals(base, other_base, keys, out):
    """Fill out[i, b] with a normal random number: a hash of (seed, purposes, key i, b).

    `base` and `other_base` are the keys of the seed with two purposes. A normal number is made of
    two uniform ones (Box and Muller).
    """
    for i in range(keys.size):
        stream = enter(base, keys[i])
        other = enter(other_base, keys[i])
        for b in range(out.shape[1]):
            position = (np.uint64(b) + ONE) * GOLDEN
            word = mix(stream + position)
            other_word = mix(other + position)
            # Uniform numbers between 0 and 1; −log u is exponential.
            u = (np.float64(word >> HALF) + 0.5) * 2.0**-32
            v = (np.float64(other_word >> HALF) + 0.5) * 2.0**-32
            radius = math.sqrt(2.0 * log1p(1.0 / u - 1.0))
            out[i, b] = radius * math.cos(2.0 * math.pi * v)
