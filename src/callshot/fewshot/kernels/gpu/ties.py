"""Scores → how many of the positives' are also another query's, for every shot and class.

A first pass over the scores of a shot and a class sets one bit for each, by a hash, and notes the
bits that were set before. Only scores with a noted bit can be equal to another: these few are
sorted.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from callshot.fewshot.kernels.gpu.draws import mix

Tensor = Any

BLOCK = 1024
BITS_PER_SCORE = 32


@triton.jit
def _word_of(scores, lane, valid, mask):
    """Return the bits of each score, the word of the bit map that is its own, and the bit."""
    score = tl.load(scores + lane, valid, 0.0) + 0.0
    bits = score.to(tl.int64, bitcast=True)
    place = (mix(bits.to(tl.uint64, bitcast=True)) >> 20).to(tl.int64) & mask
    bit = tl.full(lane.shape, 1, tl.int32) << (place & 31).to(tl.int32)
    return bits, place >> 5, bit


@triton.jit
def _note_scores(scores, seen, again, lanes, words, mask, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    _, word, bit = _word_of(scores + row * lanes, lane, valid, mask)
    before = tl.atomic_or(seen + row * words + word, bit, valid)
    repeated = valid & ((before & bit) != 0)
    tl.atomic_or(again + row * words + word, bit, repeated)


@triton.jit
def _mark_repeated(scores, again, marked, lanes, words, mask, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    _, word, bit = _word_of(scores + row * lanes, lane, valid, mask)
    noted = tl.load(again + row * words + word, valid, 0)
    found = ((noted & bit) != 0).to(tl.int8)
    tl.store(marked + row * lanes + lane, found, valid)


def count_ties(scores: Tensor, relevant: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    """Return whether any scores of two queries are equal, and how many positives' scores are.

    Both are (shots, classes). `scores` is (shots, classes, lanes), `relevant` (classes, queries).
    """
    shots, classes, lanes = scores.shape
    rows = shots * classes
    words = triton.next_power_of_2(max(lanes * BITS_PER_SCORE // 32, 1))
    device = scores.device
    seen = torch.zeros((rows, words), dtype=torch.int32, device=device)
    again = torch.zeros_like(seen)
    marked = torch.empty((rows, lanes), dtype=torch.int8, device=device)
    grid = (triton.cdiv(lanes, BLOCK), rows)
    mask = words * 32 - 1
    _note_scores[grid](scores, seen, again, lanes, words, mask, BLOCK)
    _mark_repeated[grid](scores, again, marked, lanes, words, mask, BLOCK)
    row, lane = marked.nonzero(as_tuple=True)
    size = (shots, classes)
    tied = torch.zeros(rows, dtype=torch.int64, device=device)
    tied_positives = torch.zeros_like(tied)
    if not len(row):
        return tied.reshape(size), tied_positives.reshape(size)
    several, row, lane = _equal_to_others(scores.reshape(rows, lanes), row, lane, draws)
    positive = relevant[row % classes, lane // draws] != 0
    tied.index_add_(0, row, several.to(torch.int64))
    tied_positives.index_add_(0, row, (several & positive).to(torch.int64))
    return tied.reshape(size), tied_positives.reshape(size)


def _equal_to_others(
    table: Tensor, row: Tensor, lane: Tensor, draws: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Sort some scores inside their rows; return whether each is also another query's."""
    score = table[row, lane] + 0.0
    order = torch.argsort(score, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    row = row[order]
    lane = lane[order]
    score = score[order]
    new = torch.ones_like(row, dtype=torch.bool)
    new[1:] = (row[1:] != row[:-1]) | (score[1:] != score[:-1])
    group = torch.cumsum(new, 0) - 1
    query = lane // draws
    least = torch.full_like(query, table.shape[1])
    least.scatter_reduce_(0, group, query, "amin")
    largest = torch.full_like(query, -1)
    largest.scatter_reduce_(0, group, query, "amax")
    return (least != largest)[group], row, lane
