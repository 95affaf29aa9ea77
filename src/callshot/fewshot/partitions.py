"""Other partitions of the recordings into folds → how much mAP depends on the partition.

Folds are one of many partitions that are about as good. The evaluation is repeated over others, and
the mean of mAP in each is reported. Partitions share all recordings, so their range is smaller than
what other recordings would give: it is no interval.
"""

from collections import Counter

import numpy as np
import polars as pl

from callshot.fewshot.fold_optimizer import build_folds
from callshot.fewshot.folds import count_classes, evaluated_classes
from callshot.fewshot.kernels.streams import key, make_stream
from callshot.fewshot.protocol import Protocol
from callshot.records import Embeddings, Folds, IntArray
from callshot.records.frames import PARTITIONS, Frame


def other_partitions(
    table: Embeddings, folds: Folds, protocol: Protocol
) -> dict[int, Folds]:
    """Return the other partitions that the protocol asks for, by number from 1 on.

    They have the same number of folds, whether those were given or built. One that is not new, or
    in which other classes are eligible, is left out.
    """
    partitions: dict[int, Folds] = {}
    seen = {_name_partition(folds.fold)}
    for number in range(1, protocol.repeat_folds):
        other = make_partition(table, folds.count, protocol.seed, number)
        name = _name_partition(other.fold)
        if name not in seen and _same_classes(table, folds, other):
            partitions[number] = other
        seen.add(name)
    return partitions


def describe_partitions(partitions: dict[int, Folds], protocol: Protocol) -> list[str]:
    """Return a note on partitions that were left out, if there are any."""
    used = 1 + len(partitions)
    count = protocol.repeat_folds
    if used == count:
        return []
    return [
        f"{used} of {count} partitions into folds were evaluated: the others were not new, or "
        "other classes are eligible in them"
    ]


def partition_spread(protocol: Protocol) -> str:
    """Return the spread whose means are compared: `shared` where evaluated, else the first."""
    return "shared" if "shared" in protocol.spreads else protocol.spreads[0]


def partition_frame(curve: Frame, number: int) -> Frame:
    """Return the rows of the PARTITIONS schema from the curves of one partition."""
    points = curve.filter(metric="map", scoring="all")
    return points.with_columns(partition=pl.lit(number, pl.Int64)).select(*PARTITIONS)


def make_partition(table: Embeddings, count: int, seed: int, number: int) -> Folds:
    """Build folds whose search takes the recordings in another order, by seed and number."""
    recordings = sorted(set(table.recording))
    rank = [make_stream(seed, "folds", key(name), number) for name in recordings]
    order = np.argsort(np.array(rank, np.uint64))
    return build_folds(table.label, table.recording, count, nodes=0, order=order)


def summarise_partitions(partitions: Frame) -> Frame:
    """Return the mean and the range of mAP over partitions, by encoder and k.

    >>> columns = {"encoder": ["mfcc"] * 2, "k": [5, 5], "mean": [0.5, 0.75]}
    >>> summarise_partitions(pl.DataFrame(columns)).row(0)
    ('mfcc', 5, 0.625, 0.5, 0.75)
    """
    mean = pl.col("mean")
    return partitions.group_by("encoder", "k", maintain_order=True).agg(
        mean=mean.mean(), low=mean.min(), high=mean.max()
    )


def order_encoders(partitions: Frame, k: int) -> dict[int, list[str]]:
    """Return the encoders of each partition, the best at k first.

    >>> columns = {"encoder": ["a", "b"] * 2, "partition": [0, 0, 2, 2], "k": [5] * 4}
    >>> order_encoders(pl.DataFrame(columns | {"mean": [0.5, 0.25, 0.5, 0.75]}), 5)
    {0: ['a', 'b'], 2: ['b', 'a']}
    """
    points = partitions.filter(k=k).sort("mean", descending=True, maintain_order=True)
    orders: dict[int, list[str]] = {}
    for number in points["partition"].unique().sort():
        orders[number] = points.filter(partition=number)["encoder"].to_list()
    return orders


def describe_repetition(partitions: Frame, k: int) -> list[str]:
    """Return the mean and range of each encoder's mAP at k, and how often each order occurs."""
    points = summarise_partitions(partitions.filter(k=k))
    if points.is_empty():
        return []
    ranges = [
        f"{encoder} {mean:.3f} ({low:.3f} to {high:.3f})"
        for encoder, _, mean, low, high in points.iter_rows()
    ]
    orders = Counter(map(", ".join, order_encoders(partitions, k).values()))
    total = orders.total()
    lines = [f"mAP at k = {k} over {total} partitions into folds: {'; '.join(ranges)}."]
    if len(points) > 1:
        texts = [
            f"{order} in {count} of {total}" for order, count in orders.most_common()
        ]
        lines.append(f"The order of encoders: {'; '.join(texts)} partitions.")
    return lines


def _name_partition(fold: IntArray) -> tuple[int, ...]:
    """Return the folds numbered by their first segment: the same for equal partitions."""
    _, first, member = np.unique(fold, return_index=True, return_inverse=True)
    return tuple(np.argsort(np.argsort(first))[member].tolist())


def _same_classes(table: Embeddings, folds: Folds, other: Folds) -> bool:
    classes = evaluated_classes(count_classes(table.label, folds))
    return classes == evaluated_classes(count_classes(table.label, other))
