"""Keys → random words and draws, without state.

A key is 64 bits: the BLAKE2b digest of a text (seed and purpose, a segment's id, a class's name). A
stream is a chain of keys and counters, mixed by the finaliser of SplitMix64; its word at a position
is one more mix. So a word depends only on its purpose: not on row numbers, the encoder, k or the
order of work.
"""

import hashlib

import numpy as np

from callshot.fewshot.kernels import formula, kernel

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
    """Fill out[q, b] with the draw that sample b takes for query q: a hash of (seed, query, b)."""
    for q in range(out.shape[0]):
        stream = enter(base, query_key[q])
        for b in range(out.shape[1]):
            out[q, b] = below(stream, np.uint64(b), np.uint64(draws))


@kernel
def draw_positions(stream, size, k, distinct):
    """Return the positions in a pool of the first k of one draw: what `score_queries` draws."""
    pool = np.arange(size)
    chosen = np.empty(min(k, size) if distinct else k, np.int64)
    for i in range(chosen.size):
        past = np.uint64(i) if distinct else np.uint64(0)
        j = np.int64(past + below(stream, np.uint64(i), np.uint64(size) - past))
        chosen[i] = pool[j]
        if distinct:
            pool[j] = pool[i]
    return chosen


@kernel
def draw_shared(stream, fold, query_fold, wanted, distinct, chosen):
    """Fill `chosen` with the first exemplars of one order that are outside a fold; return how many.

    `fold` is the fold of each exemplar of a class. Distinct: the order is a random permutation of
    the class, and can be used up. With replacement: an endless sequence of picks.
    """
    size = np.uint64(fold.size)
    order = np.empty(fold.size, np.uint64)
    for m in range(fold.size):
        order[m] = m
    count = 0
    i = np.uint64(0)
    while count < wanted and (i < size or not distinct):
        past = i if distinct else np.uint64(0)
        j = past + below(stream, i, size - past)
        new = order[j]
        if distinct:
            order[j] = order[i]
        i += np.uint64(1)
        if fold[new] != query_fold:
            chosen[count] = new
            count += 1
    return count
