"""Keys → supports and bootstrap picks, the same bits as on the CPU."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
FIRST_FACTOR = tl.constexpr(0xBF58476D1CE4E5B9)
SECOND_FACTOR = tl.constexpr(0x94D049BB133111EB)
BLOCK = 128

Tensor = Any


class Pool(NamedTuple):
    """The exemplars that a draw puts in order, as `supports.Members`, and the keys of classes.

    `members` are row numbers inside the class, those of class n from start[n]; `class_start` is the
    first row of each class, `outside` whether each row may be in a support.
    """

    members: Tensor
    start: Tensor
    class_start: Tensor
    outside: Tensor
    class_key: Tensor


class Supports(NamedTuple):
    """Supports of every class, in order: chosen[n, i, lane] is a row number inside the class.

    Class n has steps[n] exemplars. slot[n, i] is the row of the results that the first i + 1 of
    them give, −1 where they give none. weight[n, i, lane] is 1 where it is missing.
    """

    chosen: Tensor
    steps: Tensor
    slot: Tensor
    weight: Tensor | None = None


@triton.jit
def as_word(x):
    """Read 64 bits as an unsigned number."""
    return x.to(tl.uint64, bitcast=True)


@triton.jit
def mix(x):
    """Scramble 64 bits, as `streams.mix`."""
    x = (x ^ (x >> 30)) * FIRST_FACTOR
    x = (x ^ (x >> 27)) * SECOND_FACTOR
    return x ^ (x >> 31)


@triton.jit
def enter(stream, key_or_counter):
    """Return the stream of a key, or of a counter, inside a stream."""
    return mix(stream + key_or_counter * GOLDEN)


@triton.jit
def below(stream, position, n):
    """Return a whole number in [0, n) from the word at a position; all unsigned."""
    word = mix(stream + (position + 1) * GOLDEN)
    return ((word >> 32) * n) >> 32


@triton.jit
def _draw_supports(
    base,
    query_key,
    class_key,
    members,
    start,
    class_start,
    outside,
    steps,
    chosen,
    swapped,
    moved,
    lanes,
    draws,
    first,
    longest,
    depth,
    PER_QUERY: tl.constexpr,
    DISTINCT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Draw like Fisher and Yates, without an array of the members.

    Step t has put member moved[t] at place swapped[t]; what stands at a place is found by looking
    through the steps before.
    """
    n = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    stream = as_word(tl.load(base + tl.zeros((BLOCK,), tl.int64)))
    if PER_QUERY:
        stream = enter(stream, as_word(tl.load(query_key + lane // draws, valid, 0)))
    stream = enter(stream, as_word(lane % draws + first))
    stream = enter(stream, as_word(tl.load(class_key + n)))
    begin = tl.load(start + n)
    size = tl.load(start + n + 1) - begin
    wanted = tl.load(steps + n)
    row_start = tl.load(class_start + n)
    chosen += n * longest * lanes + lane
    swapped += n * depth * lanes + lane
    moved += n * depth * lanes + lane
    count = tl.where(valid, 0, wanted)
    position = tl.zeros((BLOCK,), tl.int32)
    while tl.min(count, 0) < wanted:
        i = tl.max(position, 0)
        past = position * DISTINCT
        j = below(stream, position.to(tl.uint64), (size - past).to(tl.uint64))
        place = past + j.to(tl.int32)
        new = place
        if DISTINCT:
            front = position
            for t in range(i):
                where = tl.load(swapped + t * lanes, valid, -1)
                what = tl.load(moved + t * lanes, valid, 0)
                new = tl.where(where == place, what, new)
                front = tl.where(where == position, what, front)
            tl.store(swapped + i * lanes, place, valid)
            tl.store(moved + i * lanes, front, valid)
            tl.debug_barrier()
        row = tl.load(members + begin + new, valid, 0)
        allowed = tl.load(outside + row_start + row, valid, 0) != 0
        kept = valid & allowed & (count < wanted)
        tl.store(chosen + count * lanes, row, kept)
        count += kept.to(tl.int32)
        position += 1


def draw_supports(
    supports: Supports,
    pool: Pool,
    base: Tensor,
    query_key: Tensor | None,
    draws: int,
    first: int,
    depth: int,
    distinct: bool,
) -> None:
    """Fill supports.chosen[n, i, lane] with the first steps[n] exemplars of every draw.

    With keys of queries, each has draws of its own, and lane q · draws + r is draw first + r of
    query q. `depth` is how many members a draw goes through at most.
    """
    chosen = supports.chosen
    classes, longest, lanes = chosen.shape
    scratch = chosen.new_empty((2, classes, depth if distinct else 0, lanes))
    _draw_supports[(triton.cdiv(lanes, BLOCK), classes)](
        base,
        base if query_key is None else query_key,
        pool.class_key,
        pool.members,
        pool.start,
        pool.class_start,
        pool.outside,
        supports.steps,
        chosen,
        scratch[0],
        scratch[1],
        lanes,
        draws,
        first,
        longest,
        depth,
        query_key is not None,
        int(distinct),
        BLOCK,
    )


@triton.jit
def _bootstrap_picks(base, query_key, picks, samples, draws, BLOCK: tl.constexpr):
    q = tl.program_id(0).to(tl.int64)
    b = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    stream = as_word(tl.load(base + tl.zeros((BLOCK,), tl.int64)))
    stream = enter(stream, as_word(tl.load(query_key + q)))
    size = (tl.zeros((BLOCK,), tl.int64) + draws).to(tl.uint64)
    pick = below(stream, b.to(tl.uint64), size)
    out = picks + q * samples + b
    tl.store(out, pick.to(picks.dtype.element_ty), b < samples)


def bootstrap_picks(
    base: Tensor, query_key: Tensor, draws: int, samples: int
) -> Tensor:
    """Return picks[q, b]: the draw that sample b takes for query q."""
    queries = len(query_key)
    size = (queries, samples)
    picks = torch.empty(size, dtype=torch.int32, device=query_key.device)
    grid = (queries, triton.cdiv(samples, BLOCK))
    _bootstrap_picks[grid](base, query_key, picks, samples, draws, BLOCK)
    return picks
