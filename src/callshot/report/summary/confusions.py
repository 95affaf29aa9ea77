"""Context → sentences on which call types are named right, and which are confused."""

import polars as pl

from callshot.records.frames import Frame
from callshot.report.summary.context import Context, Sentences

IS_RIGHT = pl.col("true") == pl.col("predicted")
LEAST_SHARE = 0.005  # of a row, that a sentence gives


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
        if row["recall"] >= LEAST_SHARE:
            share = 100 * row["recall"]
            yield (
                f"The largest confusion: it names {share:.0f} % of '{row['true']}' as "
                f"'{row['predicted']}'."
            )


def confusion_at(context: Context) -> Frame:
    """Return the decisions of the best encoder at the largest of a few shots that has them."""
    cells = context.evaluation.confusion.filter(
        pl.col("recall").is_not_nan(), encoder=context.best
    )
    few = cells.filter(pl.col("k") <= context.k)
    if few.is_empty():
        few = cells
    return few.filter(pl.col("k") == pl.col("k").max())
