"""Context → sentences on which call types are named right, and which are confused."""

from collections.abc import Sequence

import polars as pl

from callshot.records.frames import Frame
from callshot.report.summary.context import Context, Sentences

IS_RIGHT = pl.col("true") == pl.col("predicted")
MIN_SHARE = 0.005  # of a row, that a sentence gives


def describe_confusions(context: Context) -> Sentences:
    """Yield the call types that are named right most and least often, and the largest confusion."""
    cells = confusion_at(context)
    if cells.is_empty():
        return
    by_share = cells.sort("recall", descending=True, maintain_order=True)
    right = by_share.filter(IS_RIGHT)
    examples = context.examples(cells["k"][0])
    most, most_share = right.select("true", "recall").row(0)
    least, least_share = right.select("true", "recall").row(-1)
    yield (
        f"With {examples}, {context.best} names '{most}' right most often: "
        f"{100 * most_share:.0f} %. "
        f"It names '{least}' right least often: {100 * least_share:.0f} %."
    )
    yield from _describe_largest(by_share.filter(~IS_RIGHT))


def _describe_largest(wrong: Frame) -> Sentences:
    """Yield the largest share of wrong names, if there are any."""
    for row in wrong.head(1).iter_rows(named=True):
        if row["recall"] >= MIN_SHARE:
            share = 100 * row["recall"]
            yield (
                f"The largest confusion: it names {share:.0f} % of '{row['true']}' as "
                f"'{row['predicted']}'."
            )


def confusion_at(context: Context) -> Frame:
    """Return the decisions of the best encoder at the k of the headline, or the nearest below."""
    cells = context.evaluation.confusion.filter(
        pl.col("recall").is_not_nan(), encoder=context.best
    )
    if cells.is_empty():
        return cells
    return cells.filter(k=confusion_shot(cells["k"].unique().to_list(), context.k))


def confusion_shot(shots: Sequence[int], k: int) -> int:
    """Return the largest evaluated shot up to k, or the smallest if all are larger.

    >>> confusion_shot((1, 5, 20), 4), confusion_shot((8, 20), 4)
    (1, 8)
    """
    few = [shot for shot in shots if shot <= k]
    return max(few, default=min(shots))
