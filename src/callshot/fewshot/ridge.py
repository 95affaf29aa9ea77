"""Ridge regression in closed form, on the draws that the other rules see.

The evidence of class n for a query z is w_n·z, with the w_n that minimises

    Σ_i v_i (w_n·x_i − t_i)² + penalty · |w_n|²

over the exemplars x_i of a support of all classes. There is no intercept, as the vectors are
centred. The target t_i is 10 for exemplars of class n, else 0. Other targets would decide the same,
but log-odds of a_n that are close together would be the lead over the mean of the other classes
instead of that over the best. v_i is the weight of an exemplar in the spread `total`, and 1 in
others: an exemplar of weight 2 counts as two equal ones. The penalty is the mean eigenvalue of the
Gram matrix of a support. This is 1 for vectors of length 1, so it does not depend on the draw or k.

The dual is solved: a = T' (K + penalty · V⁻¹)⁻¹ P, with K the products of the exemplars, T their
targets and P their products with the queries. Exemplars are taken from each class in turn, so that
each support is the beginning of the next, and one elimination serves every k.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from callshot.fewshot.episodes import Engine, Split, class_matrices
from callshot.fewshot.kernels.ridge import eliminate
from callshot.fewshot.kernels.supports import multiply_rows
from callshot.fewshot.spreads import UNIT, Spread, make_spread
from callshot.records import FloatArray, IntArray

PENALTY = 1.0
TARGET = 10.0

Multiply = Callable[[IntArray, IntArray], FloatArray]


def shared_evidence(
    engine: Engine, split: Split, shots: IntArray, spread: Spread
) -> Callable[[slice], FloatArray]:
    """Return the function that computes a[draw, shot, n, q] of draws that all queries share."""
    score = partial(score_draw, find_products(engine), split, shots, spread)

    def compute(span: slice) -> FloatArray:
        """Return the evidence by the draws in `span`, (draws, shots, classes, queries)."""
        draws = range(span.start, span.stop)
        return np.stack([score(split.number, draw, split.rows) for draw in draws])

    return compute


def query_evidence(
    engine: Engine, split: Split, shots: IntArray, out: FloatArray
) -> Callable[[slice], None]:
    """Return the function that fills in the evidence for queries, by their own draws.

    It gets a slice of the queries, and writes to `out` (shots, classes, queries, draws).
    """
    spread = make_spread("per-query", engine.episodes, engine.protocol)
    score = partial(score_draw, find_products(engine), split, shots, spread)

    def fill(span: slice) -> None:
        """Fill in the evidence for some queries."""
        for q in range(span.start, span.stop):
            query = split.rows[q : q + 1]
            for draw in range(engine.protocol.draws):
                out[:, :, q, draw] = score(int(query[0]), draw, query)[:, :, 0]

    return fill


def find_products(engine: Engine) -> Multiply:
    """Return the function that gives the products of some rows with others.

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
    place: int,
    draw: int,
    queries: IntArray,
) -> FloatArray:
    """Return a[shot, n, q] of some queries by one draw; `place` as in `support_rows`.

    A support of all pools is one set: its exemplars are taken in their own order.
    """
    episodes = spread.episodes
    classes = len(episodes.classes)
    rows, sizes = support_rows(spread, place, draw, shots)
    drawn = len(shots)
    if spread.protocol.distinct or spread.rank is not None:
        drawn = int(np.searchsorted(sizes, len(split.pool)))
    a = np.empty((len(shots), classes, len(queries)))
    for part, order in (
        (slice(drawn), rows),
        (slice(drawn, None), np.sort(rows)),
    ):
        if len(sizes[part]) == 0:
            continue
        chosen = order[: sizes[part][-1]]
        weight = None
        if spread.support_units is not None:
            weight = spread.support_units[draw, chosen] * UNIT
        products = multiply(chosen, np.concatenate([chosen, queries]))
        label = episodes.label[chosen]
        a[part] = score_support(products, label, classes, sizes[part], weight)
    return a


def score_support(
    products: FloatArray,
    label: IntArray,
    classes: int,
    sizes: IntArray,
    weight: FloatArray | None = None,
) -> FloatArray:
    """Return a[s, n, q] by the first sizes[s] exemplars of a support.

    `products` (rows, rows + queries) are those of the exemplars with each other and with the
    queries, `label` and `weight` their class numbers and weights.
    """
    rows = len(label)
    targets = TARGET * (label[:, None] == np.arange(classes))
    table = np.hstack([products[:, :rows], targets, products[:, rows:]])
    diagonal = np.arange(rows)
    table[diagonal, diagonal] += PENALTY if weight is None else PENALTY / weight
    queries = products.shape[1] - rows
    a = np.empty((len(sizes), classes, queries))
    eliminate(table, sizes, classes, a)
    return a


def support_rows(
    spread: Spread, place: int, draw: int, shots: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the rows of one draw, one of each class in turn, and the number of rows at each k.

    So the support at each k is the first rows. `place` is the fold of the queries; if each query
    has draws of its own, it is the query.
    """
    supports = spread.supports(place, int(shots[-1]), draw)
    turn = np.concatenate([np.arange(len(support)) for support in supports])
    order = np.argsort(turn, kind="stable")
    rows = np.concatenate(supports)[order]
    return rows, np.searchsorted(turn[order], shots)
