"""Ridge regression in closed form, on the draws that the other rules see.

The logit of class n for a query z is w_n·z, with the w_n that minimises

    Σ_i v_i (w_n·x_i − t_i)² + penalty · |w_n|²

over the exemplars x_i of a support of all classes. There is no intercept, as the vectors are
centred. The target t_i is 10 for exemplars of class n, else 0: with other targets the log-odds of
a_n that are close together would be the lead over the mean of the other classes instead of the
best. v_i is the weight of an exemplar in the spread `total`, else 1. The penalty is the mean
eigenvalue of the Gram matrix of a support: 1 for vectors of length 1.

The dual is solved: a = T' (K + penalty · V⁻¹)⁻¹ P, with K the products of the exemplars, T their
targets and P their products with the queries. Exemplars are taken from each class in turn, so that
each support is the beginning of the next, and one elimination serves every k.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from callshot.fewshot.episodes import Engine, Split, class_matrices
from callshot.fewshot.kernels.supports import eliminate, multiply_rows
from callshot.fewshot.spreads import UNIT, Spread, make_spread
from callshot.records import FloatArray, IntArray

PENALTY = 1.0
TARGET = 10.0

Multiply = Callable[[IntArray, IntArray], FloatArray]


def shared_logits(
    engine: Engine, split: Split, shots: IntArray, spread: Spread
) -> Callable[[slice], FloatArray]:
    """Return a function that computes the logits of a split by draws that all queries share.

    It gets a slice of the draws, and returns (draws, shots, classes, queries).
    """
    score = partial(score_draw, find_products(engine), split, shots, spread)

    def compute(span: slice) -> FloatArray:
        """Return the logits by the draws in `span`, (draws, shots, classes, queries)."""
        draws = range(span.start, span.stop)
        logits = [
            score(query_or_fold=split.fold, draw=draw, queries=split.rows)
            for draw in draws
        ]
        return np.stack(logits)

    return compute


def query_logits(
    engine: Engine, split: Split, shots: IntArray, out: FloatArray
) -> Callable[[slice], None]:
    """Return a function that fills in the logits of queries by their own draws.

    It gets a slice of the queries of the split, and writes to `out` (shots, classes, queries,
    draws).
    """
    spread = make_spread("per-query", engine.episodes, engine.protocol)
    score = partial(score_draw, find_products(engine), split, shots, spread)

    def fill(span: slice) -> None:
        """Fill in the logits of the queries in `span`."""
        for position in range(span.start, span.stop):
            only_query = split.rows[position : position + 1]  # an array of one row
            query = int(only_query[0])
            for draw in range(engine.protocol.draws):
                # (shots, classes, 1)
                logits = score(query_or_fold=query, draw=draw, queries=only_query)
                out[:, :, position, draw] = logits[:, :, 0]

    return fill


def find_products(engine: Engine) -> Multiply:
    """Return a function from row numbers (m) and (n) to the products of these vectors, (m, n).

    They are looked up in the Gram matrix, unless this exceeds the memory limit.
    """
    vectors = engine.episodes.vectors
    if engine.direct:
        return lambda rows, others: multiply_rows(vectors[rows], vectors[others])
    block, _ = class_matrices(engine.episodes.as_one_class, engine.rule)
    gram = block.reshape(len(vectors), len(vectors))
    return lambda rows, others: gram[np.ix_(rows, others)]


def score_draw(
    multiply: Multiply,
    split: Split,
    shots: IntArray,
    spread: Spread,
    query_or_fold: int,
    draw: int,
    queries: IntArray,
) -> FloatArray:
    """Return the logits of some queries by one draw, (shots, classes, queries).

    `queries` are rows of the episodes; for `query_or_fold` see `Spread.supports`. A support of all
    exemplars is one set: these are taken in their own order, not in the draw's.
    """
    episodes = spread.episodes
    classes = len(episodes.classes)
    rows, sizes = support_rows(spread, query_or_fold, draw, shots)
    smaller = len(shots)  # how many supports leave out an exemplar of their pools
    if spread.protocol.distinct or spread.rank is not None:
        smaller = int(np.searchsorted(sizes, len(split.pool)))
    logits = np.empty((len(shots), classes, len(queries)))
    # The shots of each kind, and the exemplars in their order.
    in_order_of_draw = (slice(smaller), rows)
    in_own_order = (slice(smaller, None), np.sort(rows))
    for supports, ordered in (in_order_of_draw, in_own_order):
        if len(sizes[supports]) == 0:
            continue
        chosen = ordered[: sizes[supports][-1]]
        weight = None  # all exemplars weigh 1
        if spread.support_units is not None:
            weight = spread.support_units[draw, chosen] * UNIT
        products = multiply(chosen, np.concatenate([chosen, queries]))
        label = episodes.label[chosen]
        logits[supports] = score_support(
            products, label, classes, sizes[supports], weight
        )
    return logits


def score_support(
    products: FloatArray,
    label: IntArray,
    classes: int,
    sizes: IntArray,
    weight: FloatArray | None = None,
) -> FloatArray:
    """Return the logits (sizes, classes, queries) by ridge regression on nested supports.

    The support of each size is the first so many exemplars. `products` (exemplars, exemplars +
    queries) are of the exemplars with each other and with the queries; `label` is the class of each
    exemplar, `weight` its weight, 1 without.
    """
    rows = len(label)
    is_class = label[:, None] == np.arange(classes)
    targets = TARGET * is_class
    with_exemplars = products[:, :rows]
    with_queries = products[:, rows:]
    table = np.hstack([with_exemplars, targets, with_queries])
    diagonal = np.arange(rows)
    penalty: FloatArray | float = PENALTY
    if weight is not None:
        penalty = PENALTY / weight
    table[diagonal, diagonal] += penalty
    queries = with_queries.shape[1]
    logits = np.empty((len(sizes), classes, queries))
    eliminate(table, sizes, classes, logits)
    return logits


def support_rows(
    spread: Spread, query_or_fold: int, draw: int, shots: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the exemplars of one draw as rows of the episodes, and how many of them each k has.

    They are one of each class in turn, so that the support of every k is the first rows of the
    largest. For `query_or_fold` see `Spread.supports`.
    """
    supports = spread.supports(query_or_fold, int(shots[-1]), draw)
    # The place of each exemplar in the support of its class.
    places = [np.arange(len(support)) for support in supports]
    place = np.concatenate(places)
    order = np.argsort(place, kind="stable")
    rows = np.concatenate(supports)[order]
    ordered_place = place[order]
    sizes = np.searchsorted(ordered_place, shots)  # exemplars with a place below k
    return rows, sizes
