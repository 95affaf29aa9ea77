"""One support set for all queries of a fold → a_n, and from a_n the AP, AUROC and hits of every draw.

A shared draw puts the exemplars of each class, over the whole corpus, in one random order. In fold f the support of
class n is the first of that order that are not in f: nearly the same set in every fold, nested over k.
"""

import numpy as np

from callshot.fewshot.kernels import inner, kernel
from callshot.fewshot.kernels.ranks import metrics_by_positives, ranking_metrics
from callshot.fewshot.kernels.streams import below, enter
from callshot.fewshot.kernels.supports import a_of, sum_at

FEW = 64  # positives up to which counting beats sorting


@kernel
def shared_support(stream, fold, query_fold, wanted, distinct, out):
    """Fill out with the first `wanted` exemplars of one class's order that are outside the query fold; return how many.

    `fold` is the fold of each exemplar of the class. Distinct: a Fisher–Yates order, and fewer when it is used up.
    With replacement: an endless sequence of picks, those inside the query fold skipped.
    """
    size, found, i = np.uint64(fold.size), 0, np.uint64(0)
    order = np.empty(fold.size, np.uint64)
    for m in range(fold.size):
        order[m] = m
    while found < wanted and (i < size or not distinct):
        past = i if distinct else np.uint64(0)
        j = past + below(stream, i, size - past)
        new = order[j]
        if distinct:
            order[j] = order[i]
        i += np.uint64(1)
        if fold[new] != query_fold:
            out[found] = new
            found += 1
    return found


@inner
def arrange_pool(fold, query_fold, size, chosen):
    """Put the whole pool in its own order if the support is all of it, and tell whether it is.

    A support that is the whole pool is one set, whatever order it came in: its sums must be the same bits.
    """
    outside = 0
    for m in range(fold.size):
        outside += fold[m] != query_fold
    if outside != size:
        return False
    i = 0
    for m in range(fold.size):
        if fold[m] != query_fold:
            chosen[i] = m
            i += 1
    return True


@inner
def take_in(block, start, side, chosen, i, products, inner_sum):
    """Add the products of the i-th exemplar with the queries; return what it adds to the square of the sum."""
    row = start + chosen[i] * side
    for q in range(inner_sum.size):
        inner_sum[q] += products[q]
    return 2.0 * sum_at(block, row, chosen, i) + block[row + chosen[i]]


@kernel
def shared_by_gram(
    base,
    first,
    class_key,
    fold,
    query_fold,
    cross,
    block,
    block_start,
    class_start,
    shots,
    distinct,
    cosine,
    out,
):
    """Fill out[d, shot, n, q] with a_n of every query of a fold, for the draws first, first + 1, …

    `cross` is (rows, queries): the products of every row with the queries of the fold.
    """
    longest = shots[-1]
    chosen = np.empty(longest, np.uint64)
    inner_sum = np.empty(cross.shape[1])
    for d in range(out.shape[0]):
        draw = enter(base, np.uint64(first + d))
        for n in range(class_key.size):
            folds, column = fold[class_start[n] : class_start[n + 1]], np.uint64(class_start[n])
            start, side = np.uint64(block_start[n]), np.uint64(class_start[n + 1] - class_start[n])
            size = shared_support(
                enter(draw, class_key[n]), folds, query_fold, longest, distinct, chosen
            )
            square, shot = 0.0, 0
            for q in range(inner_sum.size):
                inner_sum[q] = 0.0
            for i in range(size):
                square += take_in(
                    block, start, side, chosen, i, cross[column + chosen[i]], inner_sum
                )
                if i + 1 == shots[shot]:
                    for q in range(inner_sum.size):
                        out[d, shot, n, q] = a_of(inner_sum[q], square, i + 1, cosine)
                    shot += 1
            if distinct and arrange_pool(folds, query_fold, size, chosen):
                shot -= shot > 0 and shots[shot - 1] == size
                square = 0.0
                for q in range(inner_sum.size):
                    inner_sum[q] = 0.0
                for i in range(size):
                    square += take_in(
                        block, start, side, chosen, i, cross[column + chosen[i]], inner_sum
                    )
            for rest in range(shot, shots.size):
                for q in range(inner_sum.size):
                    out[d, rest, n, q] = a_of(inner_sum[q], square, size, cosine)


@kernel
def shared_centroids(
    base, draw, class_key, fold, query_fold, vectors, class_start, shots, distinct, out
):
    """Fill out[shot, n] with the centroid of class n in one draw: the way without a Gram matrix."""
    longest = shots[-1]
    chosen = np.empty(longest, np.uint64)
    total = np.empty(vectors.shape[1])
    stream = enter(base, np.uint64(draw))
    for n in range(class_key.size):
        folds, column = fold[class_start[n] : class_start[n + 1]], np.uint64(class_start[n])
        size = shared_support(
            enter(stream, class_key[n]), folds, query_fold, longest, distinct, chosen
        )
        shot = 0
        for again in range(2):
            if again == 1:
                if not (distinct and arrange_pool(folds, query_fold, size, chosen)):
                    continue
                shot -= shot > 0 and shots[shot - 1] == size
            for d in range(total.size):
                total[d] = 0.0
            for i in range(size):
                for d in range(total.size):
                    total[d] += vectors[column + chosen[i], d]
                if again == 0 and i + 1 == shots[shot]:
                    for d in range(total.size):
                        out[shot, n, d] = total[d] / (i + 1)
                    shot += 1
        for rest in range(shot, shots.size):
            for d in range(total.size):
                out[rest, n, d] = total[d] / size


@kernel
def shared_metrics(
    scores, decided, relevant, label, positives, positive_start, ap, auroc, hits, decisions, tied
):
    """Fill ap, auroc and hits[d, shot, n] from scores[d, shot, n, q] and decided[d, shot, q].

    `relevant` is (classes, queries), `label` the class of each query; the positives of class n are
    positives[positive_start[n] : positive_start[n + 1]]. hits counts the queries of a class whose decision is any of
    their labels; decisions[shot, true, predicted] and tied[shot, n] are added to.
    """
    draws, shots, classes, queries = scores.shape
    for d in range(draws):
        for s in range(shots):
            for n in range(classes):
                own = positives[positive_start[n] : positive_start[n + 1]]
                if own.size <= FEW:
                    ap[d, s, n], auroc[d, s, n], ties = metrics_by_positives(scores[d, s, n], own)
                else:
                    ap[d, s, n], auroc[d, s, n], ties = ranking_metrics(
                        scores[d, s, n], relevant[n]
                    )
                tied[s, n] += ties
                hits[d, s, n] = 0.0
            for q in range(queries):
                n = decided[d, s, q]
                hit = relevant[n, q]
                hits[d, s, label[q]] += hit
                decisions[s, n if hit else np.uint16(label[q]), n] += 1
