"""The differences of an evaluation → which encoder is better with a few examples, if any is.

A difference is clear where its simultaneous 98 % interval excludes 0.
"""

from collections.abc import Iterator
from typing import Any

from callshot.records import Evaluation
from callshot.records.terms import preferred_spread

FEW_SHOTS = 5  # the largest k that counts as a few examples
Row = dict[str, Any]


def describe_better(evaluation: Evaluation) -> Iterator[str]:
    """Yield a sentence for each encoder but the best: how far it is behind, and if it is clear."""
    if evaluation.differences.is_empty():
        return
    spread = preferred_spread(evaluation.spreads)
    differences = evaluation.differences.filter(
        scoring="all", metric="map", spread=spread
    )
    shots = differences["k"].unique().sort().to_list()
    most = min(FEW_SHOTS, evaluation.complete_shots)
    k = max((shot for shot in shots if shot <= most), default=shots[0])
    rows = differences.filter(k=k).to_dicts()
    compared = {name for row in rows for name in (row["one"], row["other"])}
    points = evaluation.curve.filter(scoring="all", metric="map", spread=spread, k=k)
    means = dict(points.select("encoder", "mean").iter_rows())
    best = max(compared, key=lambda name: (means[name], name))
    for row in rows:
        if best in (row["one"], row["other"]):
            yield _describe(row if row["one"] == best else _turn(row), k)


def _turn(row: Row) -> Row:
    """Return the other encoder less the one."""
    return row | {
        "one": row["other"],
        "other": row["one"],
        "mean": -row["mean"],
        "low": None if row["high"] is None else -row["high"],
        "high": None if row["low"] is None else -row["low"],
        "wins": 1.0 - row["wins"],
    }


def _describe(row: Row, k: int) -> str:
    """Return by how much the first encoder of a row is ahead of the other."""
    examples = "1 example" if k == 1 else f"{k} examples"
    few = f"With {examples} per class"
    lead = f"mAP is {row['mean']:.3f} higher"
    if row["low"] is None:
        wins = f"in {100 * row['wins']:.0f} % of samples"
        return (
            f"{few}, {row['one']} is ahead of {row['other']}: {lead}, and higher {wins}; whether "
            "that is clear is not known."
        )
    interval = f"98 % interval: {row['low']:.3f} to {row['high']:.3f}"
    if row["low"] > 0:
        return f"{few}, {row['one']} is clearly better than {row['other']}: {lead} ({interval})."
    return (
        f"{few}, it is not clear whether {row['one']} is better than {row['other']}: {lead} "
        f"({interval})."
    )
