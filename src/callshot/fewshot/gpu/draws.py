"""The rows of episodes on a GPU, and keys → supports of every draw: the same bits as on the CPU."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from callshot.fewshot.episodes import Engine, Episodes, Split
from callshot.fewshot.gpu.device import Gpu
from callshot.fewshot.kernels import streams
from callshot.fewshot.spreads import UNIT, Spread
from callshot.records import IntArray

GOLDEN = tl.constexpr(0x9E3779B97F4A7C15)
FIRST_FACTOR = tl.constexpr(0xBF58476D1CE4E5B9)
SECOND_FACTOR = tl.constexpr(0x94D049BB133111EB)
BLOCK = 128

Tensor = Any


def upload(array: NDArray[Any], gpu: Gpu, kind: Any = None) -> Tensor:
    """Copy an array to the GPU; keys keep their 64 bits in signed numbers.

    From pinned memory, so that nothing waits for the work that the GPU has to do before.
    """
    if array.dtype == np.uint64:
        array = array.view(np.int64)
    if not array.flags.writeable:  # torch warns of these
        array = array.copy()
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if gpu.torch_device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(gpu.torch_device, kind, non_blocking=True)


@dataclass(frozen=True)
class GpuRows:
    """The rows of some episodes on a GPU, for one rule.

    Each distinct vector is multiplied once, as on the CPU, so that equal rows give equal bits.
    `kept` has the arrays that `keep` has uploaded, with their copies, by the id of the array.
    """

    episodes: Episodes
    rule: str
    gpu: Gpu
    kept: dict[int, tuple[NDArray[Any], Tensor]] = field(default_factory=dict)

    def keep(self, array: NDArray[Any], kind: Any = None) -> Tensor:
        """Upload an array once for all folds."""
        key = id(array)  # the array is kept too, so that no other gets its id
        if key not in self.kept:
            self.kept[key] = (array, upload(array, self.gpu, kind))
        return self.kept[key][1]

    @cached_property
    def distinct(self) -> tuple[Tensor, Tensor]:
        """Each distinct vector once, and for each row the number of its vector among these."""
        vectors, number = self.episodes.distinct
        return upload(vectors, self.gpu), upload(number, self.gpu)

    @cached_property
    def class_start(self) -> Tensor:
        """The first row of each class."""
        return upload(self.episodes.class_start, self.gpu, torch.int64)

    @cached_property
    def squares(self) -> Tensor:
        """The squared length of every row."""
        vectors, number = self.distinct
        return (vectors * vectors).sum(1)[number]

    @cached_property
    def matrices(self) -> tuple[Tensor, Tensor]:
        """The products inside each class, flat, and where those of each class start."""
        vectors, number = self.distinct
        matrices = []
        for rows in number.split(np.diff(self.episodes.class_start).tolist()):
            # `place` is the number of each row's vector among the distinct ones of the class.
            numbers, place = torch.unique(rows, return_inverse=True)
            distinct = vectors[numbers]
            table = distinct @ distinct.T
            matrices.append(table[place[:, None], place].flatten())
        ends = np.cumsum([0, *map(len, matrices)])
        return torch.cat(matrices), upload(ends, self.gpu)

    def products(self, split: Split, span: slice) -> Tensor:
        """Multiply a slice of the queries of a fold with every row, (queries, rows).

        For the rule `cosine` queries have length 1.
        """
        vectors, number = self.distinct
        # Not by torch, which would wait for the GPU.
        of_rows = self.episodes.distinct[1][split.rows[span]]
        numbers, place = np.unique(of_rows, return_inverse=True)
        queries = vectors[upload(numbers, self.gpu)]
        if self.rule == "cosine":
            length = (queries * queries).sum(1, keepdim=True).sqrt()
            queries = queries / torch.where(length > 0, length, 1.0)
        place = upload(place[:, None], self.gpu)
        return (queries @ vectors.T)[place, number]


class Supports(NamedTuple):
    """Supports of every class, in order: chosen[n, i, lane] is a row number inside the class.

    A lane is one draw, of one query or of all. Class n has steps[n] exemplars. slot[n, i] is the
    row of the results (a shot) that the first i + 1 of them give, −1 where they give none.
    weight[n, i, lane] is the weight of an exemplar; without the table all are 1.
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
    """Fill chosen[n, i, lane] with the first steps[n] members of a random order that are outside.

    A lane is a draw, from `first` on, with PER_QUERY of one query. The members of class n are
    members[start[n] : start[n + 1]], as row numbers inside the class, whose first row is
    class_start[n]; `outside` says which rows may be drawn. The keys `base`, `query_key` (queries)
    and `class_key` (classes) give the random numbers. `chosen` (classes, longest, lanes) is the
    result.

    With DISTINCT this is the shuffle of Fisher and Yates, without an array of the members: step t
    has put member moved[t] at place swapped[t], both (classes, depth, lanes), and which member
    stands at a place is found by looking through the steps before.
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
    count = tl.where(valid, 0, wanted)  # lanes beyond the last have all they want
    position = tl.zeros((BLOCK,), tl.int32)
    while tl.min(count, 0) < wanted:
        i = tl.max(position, 0)  # the same in all lanes
        taken = position * DISTINCT  # members at the front of the order
        j = below(stream, position.to(tl.uint64), (size - taken).to(tl.uint64))
        place = taken + j.to(tl.int32)
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


class SupportDrawer:
    """Draws the supports of one split on a GPU.

    The first shots_drawn[n] shots leave a choice of exemplars of class n, of which steps[n] are
    drawn; at the other shots the class gives its whole pool. With `nested`, all exemplars of the
    largest support are drawn, also where there is no choice.
    """

    def __init__(
        self,
        engine: Engine,
        split: Split,
        shots: IntArray,
        spread: Spread,
        *,
        nested: bool = False,
    ) -> None:
        """Count how many exemplars of each class are drawn for a split, and at which shots."""
        self.engine = engine
        self.split = split
        self.shots = shots
        self.spread = spread
        self.on_gpu = engine.on_gpu
        self.gpu = self.on_gpu.gpu
        sizes = split.pool_sizes
        self.distinct = engine.protocol.distinct or spread.rank is not None
        # Of each class: how many of the shots leave a choice of exemplars.
        self.shots_drawn = np.full(len(sizes), len(shots))
        if self.distinct:
            self.shots_drawn = np.searchsorted(shots, sizes)
        self.steps: IntArray = np.concatenate([[0], shots])[self.shots_drawn]
        if self.distinct and nested:
            self.steps = np.minimum(shots[-1], sizes)

    def own_supports(self, span: slice, draws: int) -> Supports:
        """Draw the supports of the queries in `span`, each its own.

        Lane q · draws + r of the result is draw r of query q.
        """
        split = self.split
        keys = self.engine.episodes.segment_key[split.rows[span]]
        query_keys = upload(keys, self.gpu)
        supports = self._new_supports(len(keys) * draws)
        self._draw(
            supports,
            "support",
            split.pool,
            split.pool_start,
            draws,
            query_key=query_keys,
        )
        return supports

    def shared_supports(self, span: slice) -> Supports:
        """Return the supports of the draws in `span`, which all queries share."""
        episodes = self.engine.episodes
        draws = span.stop - span.start
        supports = self._new_supports(draws)
        if self.spread.rank is None:
            self._draw(
                supports,
                "shared",
                episodes.members,
                episodes.class_start,
                draws,
                first_draw=span.start,
            )
            return supports
        # A given order of the exemplars: take the first on the support side.
        rank = self.on_gpu.keep(self.spread.rank, torch.int32)[span]
        outside = upload(self.split.outside, self.gpu)
        start = episodes.class_start.tolist()
        for n, steps in enumerate(self.steps.tolist()):
            rows = slice(start[n], start[n + 1])
            order = rank[:, rows]
            is_outside = outside[rows][order]
            kept = order[is_outside].reshape(draws, -1)  # as many in every draw
            supports.chosen[n, :steps] = kept[:, :steps].T
        return self._weighted(supports, span)

    def whole_pools(self, span: slice) -> Supports:
        """Return the supports of the shots at which a class gives its whole pool, in its own order.

        They have a lane for each sample of a span if exemplars have weights, else one lane. Their
        one result is row 0, after the last exemplar.
        """
        is_whole = self.shots_drawn < len(self.shots)
        steps = np.where(is_whole, self.split.pool_sizes, 0)
        longest = max(int(steps.max()), 1)
        table = np.zeros((len(steps), longest), np.int64)
        slots = np.full(table.shape, -1)
        for n in np.flatnonzero(is_whole):
            begin = self.split.pool_start[n]
            count = steps[n]
            table[n, :count] = self.split.pool[begin : begin + count]
            slots[n, count - 1] = 0
        table, steps, slots = (
            upload(array, self.gpu, torch.int32) for array in (table, steps, slots)
        )
        if self.spread.rank is None:
            return Supports(table[:, :, None], steps, slots)
        samples = span.stop - span.start
        chosen = table[:, :, None].repeat(1, 1, samples)
        return self._weighted(Supports(chosen, steps, slots), span)

    def _new_supports(self, lanes: int) -> Supports:
        """Return memory for the supports of every class; their exemplars are not drawn yet.

        slots[n, k − 1] is the row of the results that the first k exemplars of class n give, −1 if
        k is not one of the shots, or takes the whole pool. A lane is a draw of one query or of all.
        """
        longest = max(int(self.steps.max()), 1)
        slots = np.full((len(self.steps), longest), -1)
        for n, count in enumerate(self.shots_drawn):
            last_exemplar = self.shots[:count] - 1
            slots[n, last_exemplar] = np.arange(count)
        slot = upload(slots, self.gpu, torch.int32)
        chosen = slot.new_empty((*slots.shape, lanes))
        return Supports(chosen, upload(self.steps, self.gpu, torch.int32), slot)

    def _draw(
        self,
        supports: Supports,
        purpose: str,
        members: NDArray[Any],
        start: IntArray,
        draws: int,
        *,
        query_key: Tensor | None = None,
        first_draw: int = 0,
    ) -> None:
        """Draw steps[n] exemplars of each class n in every lane, into `supports.chosen`.

        The members of class n are members[start[n] : start[n + 1]]. With keys of queries, each
        query has draws of its own, and lane q · draws + r is draw first_draw + r of query q; else
        lane r is draw first_draw + r.
        """
        chosen = supports.chosen
        classes, longest, lanes = chosen.shape
        # How many members a draw goes through at most: some may not be drawn, and are skipped.
        skipped = np.diff(start) - self.split.pool_sizes
        depth = max(int((self.steps + skipped).max()), 1)
        # Without swaps no memory is needed for them
        entries = depth if self.distinct else 0
        scratch = chosen.new_empty((2, classes, entries, lanes))
        stream = streams.purpose_key(self.engine.protocol.seed, purpose)
        base = upload(np.array([stream]), self.gpu)
        _draw_supports[(triton.cdiv(lanes, BLOCK), classes)](
            base,
            base if query_key is None else query_key,  # not read without keys
            upload(self.engine.episodes.class_key, self.gpu),
            upload(members, self.gpu, torch.int32),
            upload(start, self.gpu, torch.int32),
            self.on_gpu.class_start,
            upload(self.split.outside.view(np.int8), self.gpu),
            supports.steps,
            chosen,
            scratch[0],
            scratch[1],
            lanes,
            draws,
            first_draw,
            longest,
            depth,
            query_key is not None,
            int(self.distinct),
            BLOCK,
        )

    def _weighted(self, supports: Supports, span: slice) -> Supports:
        """Return supports with the weights of exemplars in the samples of `span`, if any."""
        if self.spread.support_units is None:
            return supports
        units = self.on_gpu.keep(self.spread.support_units)[span]
        start = self.on_gpu.class_start[:-1, None, None]
        rows = (start + supports.chosen).flatten(0, 1)
        # Places beyond the exemplars of a class may hold any number.
        rows = rows.clamp(0, units.shape[1] - 1)
        weight = torch.gather(units.T, 0, rows) * UNIT
        weight = weight.reshape(supports.chosen.shape)
        return supports._replace(weight=weight)
