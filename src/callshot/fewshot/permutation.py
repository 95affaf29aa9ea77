"""Is an encoder better than chance? Episodes → a permutation test of their labels.

The statistic is the mean of a metric over the first shared draws, for the true labels and for
shuffled ones. Vectors are multiplied once: a labelling only changes which rows make up which class.

Within each fold, recordings are permuted and their label sequences reassigned, so that every fold
keeps its number of calls of each class. A shuffle depends on the seed, its number and the names of
the recordings alone.

p = (1 + shuffles that score at least as much as the true labels) / (1 + shuffles)
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from callshot.fewshot import ridge
from callshot.fewshot.episodes import (
    Engine,
    Episodes,
    Keys,
    Split,
    blocks,
    class_matrices,
    make_splits,
)
from callshot.fewshot.kernels import streams, supports
from callshot.fewshot.kernels.streams import key, purpose_key
from callshot.fewshot.kernels.supports import RULES, recording_words
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import fold_products, measure_logits
from callshot.records import RANKING_METRICS, FloatArray, IntArray
from callshot.records.frames import CHANCE_TEST, Frame, concat_frames, make_frame

TESTED_SHOTS = (1, 2, 5, 10, 20, 40)
TEST_DRAWS = 10
TOO_FEW_ORDERS = (
    "no test against chance: folds have so few recordings that their labels "
    "can be put in fewer than 50 orders"
)
ROUNDING = 1e-12  # equal rankings, summed in another order, may differ by less
BLOCK_BYTES = 2**21  # of logits that a task holds


def shots_to_test(protocol: Protocol, complete_shots: int) -> list[int]:
    """Return the k of the sweep at which the test is made: a few up to k*, and k* itself.

    >>> shots_to_test(Protocol(), complete_shots=4)
    [1, 2, 4]
    """
    if protocol.permutations == 0:
        return []
    shots = {*TESTED_SHOTS, complete_shots}
    return [k for k in protocol.shots if k in shots and k <= complete_shots]


def chance_test(engine: Engine, shots: Sequence[int], key: Mapping[str, str]) -> Frame:
    """Test one encoder against chance at some k: rows of CHANCE_TEST.

    A metric that is undefined with any labels has no rows.
    """
    statistics = measure_labellings(engine, np.array(shots))
    constants = {**key, "permutations": engine.protocol.permutations}
    frames = []
    for metric, values in zip(RANKING_METRICS, statistics, strict=True):
        if np.isfinite(values).all():
            # values is (labellings, shots).
            true = values[0]
            permuted = values[1:]
            reached = np.sum(permuted >= true - ROUNDING, axis=0)
            columns = {
                "k": shots,
                "value": true,
                "permuted": permuted.mean(axis=0),
                "p": (1 + reached) / (1 + len(permuted)),
            }
            frames.append(
                make_frame(CHANCE_TEST, columns, {**constants, "metric": metric})
            )
    return concat_frames(frames, CHANCE_TEST)


def measure_labellings(engine: Engine, shots: IntArray) -> FloatArray:
    """Return mAP and AUROC of all labellings, the true one first: (metrics, labellings, shots)."""
    episodes = engine.episodes
    labellings = list(
        make_labellings(episodes, engine.protocol.seed, engine.protocol.permutations)
    )
    progress = len(shots) / episodes.folds  # of a fold
    fold_means = []  # (metrics, labellings, shots) of each fold
    matrix = None  # products or distances (rows, rows), or empty
    for split in make_splits(episodes):
        fitted = engine.for_split(split)
        is_transformed = fitted is not engine  # the split changes the vectors
        if matrix is None or is_transformed:
            matrix = _compute_matrix(fitted)
        if engine.rule in ("mean", "ridge") and matrix.size > 0:
            products: FloatArray | None = np.ascontiguousarray(matrix[:, split.rows])
        else:
            products = fold_products(fitted, split)
        measure = partial(_measure_labelling, fitted, split, shots, matrix, products)
        tasks = [partial(measure, labelling) for labelling in labellings]
        # Of each labelling (metrics, shots, classes).
        results = engine.run(tasks, progress)
        ap, auroc = np.stack(results, axis=1)
        mean_ap = ap.mean(axis=-1)
        # AUROC is undefined for a class that all queries have, and NaN if all classes are such.
        has_negatives = split.positives < len(split.rows)
        defined_auroc = auroc[..., has_negatives]
        total = defined_auroc.sum(axis=-1)
        mean_auroc = total / (has_negatives.sum() or np.nan)
        fold_means.append([mean_ap, mean_auroc])
    # The mean over the folds that have a value; NaN if none has.
    total = np.nansum(fold_means, axis=0)
    count = np.isfinite(fold_means).sum(axis=0)
    known_count = np.where(count > 0, count, np.nan)
    return total / known_count


def _compute_matrix(engine: Engine) -> FloatArray:
    """Return the products of all rows, (rows, rows), or for the medoid their distances.

    It is empty if the rule does not read it, or if it exceeds half of the memory limit.
    """
    rows = len(engine.episodes.fold)
    is_large = engine.direct or 8 * rows**2 > engine.memory / 2  # float64
    if engine.rule == "nearest" or is_large:
        return np.empty((0, 0))
    block, _ = class_matrices(engine.episodes.as_one_class, engine.rule)
    return block.reshape(rows, rows)


class Labelling(NamedTuple):
    """One assignment of labels to rows: row i has the labels of row source[i].

    `members` are the rows of each class by these labels, one class after the other, by segment id.
    """

    source: IntArray
    members: Keys


def make_labellings(episodes: Episodes, seed: int, count: int) -> Iterator[Labelling]:
    """Yield the true labels, then `count` permutations.

    Inside each fold, the recordings are put in a random order, and the labels of their calls, one
    after another, are given to the calls in the true order.
    """
    _, segment = np.unique(episodes.segment, return_inverse=True)
    names, recording = np.unique(episodes.recording, return_inverse=True)
    # The rows in the true order: by fold, recording and segment id.
    calls = np.lexsort((segment, recording, episodes.fold))
    fold = episodes.fold[calls]
    # One random number for each recording. In the first row, for the true labels, all stay 0, which
    # keeps the order; `recording_words` fills the other rows in place.
    keys = np.array([key(name) for name in names.tolist()], np.uint64)
    random_words = np.zeros((1 + count, len(keys)), np.uint64)
    base = purpose_key(seed, "permutation")
    recording_words(base, keys, random_words[1:])
    recording_of_call = recording[calls]
    for recording_word in random_words:
        # Places in `calls`, by fold, then by the random order of recordings.
        call_word = recording_word[recording_of_call]
        shuffled = np.lexsort((call_word, fold))
        # The i-th call in the true order gets the label of the i-th call in the random order.
        source = np.empty_like(calls)
        source[calls] = calls[shuffled]
        # Rows by their new class, then by segment id.
        new_label = episodes.label[source]
        members = np.lexsort((segment, new_label))
        yield Labelling(source, members.astype(np.uint64))


def count_orders(episodes: Episodes) -> int:
    """Return in how many orders recordings can be put inside their folds: so many labellings."""
    folds = episodes.fold.tolist()
    recordings = set(zip(folds, episodes.recording, strict=True))
    orders = 1
    for count in Counter(fold for fold, _ in recordings).values():
        orders *= math.factorial(count)
    return orders


def _measure_labelling(
    engine: Engine,
    split: Split,
    shots: IntArray,
    matrix: FloatArray,
    products: FloatArray | None,
    labelling: Labelling,
) -> FloatArray:
    """Return AP and AUROC of each class in one fold by one labelling, (metrics, shots, classes).

    The vectors stay: the supports are drawn from the rows that `labelling` gives each class, and
    the queries get the labels of their source rows. `matrix` is as in `_compute_matrix`. `products`
    (rows, queries) are None if they exceed the memory limit, so that only those of the drawn rows
    are computed.
    """
    episodes = engine.episodes
    source = labelling.source[split.rows]
    label = episodes.label[source]
    relevant = np.ascontiguousarray(episodes.relevant[source].T)
    relabelled = replace(split, label=label, relevant=relevant)
    classes = len(episodes.classes)
    # The rows of each class's support in each draw.
    drawn = np.empty((TEST_DRAWS, classes, int(shots[-1])), np.uint64)
    supports.draw_members(
        streams.purpose_key(engine.protocol.seed, "shared"),
        episodes.class_key,
        engine.protocol.distinct,
        labelling.members,
        episodes.class_start,
        split.outside,
        drawn,
    )
    vectors = episodes.vectors
    squares = episodes.squares
    if products is None:
        # From here on, a row's number is its place among the drawn rows, each of them once.
        rows, place = np.unique(drawn.astype(np.int64), return_inverse=True)
        drawn = place.reshape(drawn.shape).astype(np.uint64)
        distinct, row_place = episodes.distinct_at(rows)
        queries, query_place = engine.queries(split)
        distinct_products = distinct @ queries.T
        products = distinct_products[np.ix_(row_place, query_place)]
        vectors = vectors[rows]
        squares = squares[rows]
    bytes_per_draw = 8 * len(shots) * classes * len(split.rows)
    values = []  # (metrics, draws, shots, classes) of some draws
    for span in blocks(TEST_DRAWS, BLOCK_BYTES // bytes_per_draw):
        chosen = drawn[span]
        logits = np.empty((len(chosen), len(shots), classes, len(split.rows)))
        if engine.rule == "ridge":
            for draw, members in enumerate(chosen.astype(np.int64)):
                logits[draw] = _regress(vectors, matrix, products, members, shots)
        else:
            rule = RULES.index(engine.rule)
            exemplars = (vectors, squares, matrix, products, chosen)
            supports.score_members(rule, *exemplars, shots, logits)
        tables = measure_logits(engine, relabelled, logits).tables
        values.append(np.stack([tables.ap, tables.auroc]))
    by_draw = np.concatenate(values, axis=1)
    return by_draw.mean(axis=1)


def _regress(
    vectors: FloatArray,
    matrix: FloatArray,
    products: FloatArray,
    members: IntArray,
    shots: IntArray,
) -> FloatArray:
    """Return the logits (shots, classes, queries) by ridge regression on one draw.

    `members` (classes, exemplars) are the rows of `vectors` drawn for each class, `products` (rows,
    queries) those of `vectors` with the queries. `matrix` has the products of all rows, (rows,
    rows), or is empty.
    """
    classes, exemplars = members.shape
    rows = members.T.ravel()  # one of each class in turn
    if matrix.size > 0:
        gram = matrix[np.ix_(rows, rows)]
    else:
        gram = supports.multiply_rows(vectors[rows], vectors[rows])
    label = np.tile(np.arange(classes), exemplars)
    table = np.hstack([gram, products[rows]])
    sizes = classes * shots  # k exemplars of each class
    return ridge.score_support(table, label, classes, sizes)
