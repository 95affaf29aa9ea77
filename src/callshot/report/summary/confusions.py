"""Context → sentences on which call types are named right, and which are confused."""

import polars as pl

from callshot.records.frames import Frame
from callshot.report.summary.context import Context, Sentences

LEAST_SHARE = 0.005  # of a row, that a sentence gives


def describe_confusions(context: Context) -> Sentences:
    """Yield the call types that are named right most and least often, and the largest confusion."""
    cells = confusion_at(context)
    if cells.is_empty():
        return
    k = cells["k"][0]
    is_right = pl.col("true") == pl.col("predicted")
    right = cells.filter(is_right).sort("recall", descending=True, maintain_order=True)
    wrong = cells.filter(~is_right).sort("recall", descending=True, maintain_order=True)
    most = right.row(0, named=True)
    least = right.row(-1, named=True)
    yield (
        f"With {context.examples(k)}, {context.best} names '{most['true']}' right most often: "
        f"{100 * most['recall']:.0f} %. It names '{least['true']}' right least often: "
        f"{100 * least['recall']:.0f} %."
    )
    if wrong.is_empty() or wrong["recall"][0] < LEAST_SHARE:
        return
    row = wrong.row(0, named=True)
    yield (
        f"The largest confusion: it names {100 * row['recall']:.0f} % of '{row['true']}' as "
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
