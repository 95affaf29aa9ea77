"""Baselines and crossovers → what a terminal shows."""

from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from callshot.errors import printable

METRIC_NAMES = {"map": "mAP", "auroc": "AUROC"}


def show_baselines(baselines: pl.DataFrame, console: Console) -> None:
    """Print the scores of each baseline, a row for each encoder and scoring."""
    if baselines.is_empty():
        return
    key = ["name", "encoder", "scoring"]
    names = ["baseline", "encoder", "scoring", *METRIC_NAMES.values(), "how"]
    table = Table(*names, box=None, pad_edge=False, header_style="dim")
    for rows in baselines.partition_by(key, maintain_order=True):
        values = dict(rows.select("metric", "value").iter_rows())
        cells = [f"{values[metric]:.3f}" if metric in values else "" for metric in METRIC_NAMES]
        row = [*rows.select(key).row(0), *cells, rows["how"][-1]]
        table.add_row(*(printable(cell) for cell in row))
    console.print(table, markup=False, highlight=False)


def show_crossovers(crossovers: pl.DataFrame, console: Console) -> None:
    """Print where curves of mAP cross, a line for each."""
    for row in crossovers.filter(metric="map").iter_rows(named=True):
        line = printable(describe_crossover(row))
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def describe_crossover(row: dict[str, Any]) -> str:
    """Return where one curve passes another, from a row of the CROSSOVERS schema.

    >>> row = {"encoder": "mfcc", "baseline": "LR", "labels": "all", "scoring": "all"}
    >>> row |= {"metric": "map", "spread": "shared", "k_mean": 7, "k_clear": None}
    >>> describe_crossover(row)
    'mfcc: the centroid passes LR on all labels at k = 7 on average, never clearly (mAP, shared)'
    >>> describe_crossover(row | {"labels": "k", "k_mean": 3, "k_clear": 4})
    'mfcc: LR at the same k passes the centroid from k = 3 on average, clearly from k = 4 (mAP, shared)'
    """
    subject = f"the centroid passes {row['baseline']} on all labels"
    word = "at"
    if row["labels"] == "k":
        subject = f"{row['baseline']} at the same k passes the centroid"
        word = "from"
    mean = "at no k" if row["k_mean"] is None else f"{word} k = {row['k_mean']}"
    clear = "never clearly" if row["k_clear"] is None else f"clearly from k = {row['k_clear']}"
    scoring = "" if row["scoring"] == "all" else f"{row['scoring']} scoring, "
    basis = f"{scoring}{METRIC_NAMES[row['metric']]}, {row['spread']}"
    return f"{row['encoder']}: {subject} {mean} on average, {clear} ({basis})"
