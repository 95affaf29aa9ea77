"""Baselines and crossovers → what a terminal shows."""

from math import isfinite
from typing import Any

from rich.console import Console
from rich.table import Table

from callshot.errors import printable
from callshot.records import METRIC_NAMES, RANKING_METRICS
from callshot.records.frames import Frame

# By the labels of the baseline: which curve passes which, and the words before the k of means.
EVENTS = {
    "all": ("the centroid passes {baseline} on all labels", "at k = {k_mean}"),
    "k": ("{baseline} at the same k passes the centroid", "from k = {k_mean}"),
}


def show_baselines(baselines: Frame, console: Console) -> None:
    """Print the scores of each baseline with their intervals, by encoder and scoring."""
    if baselines.is_empty():
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    metric_names = [METRIC_NAMES[metric] for metric in RANKING_METRICS]
    for heading in ("baseline", "encoder", "scoring", *metric_names, "how"):
        table.add_column(heading, no_wrap=heading in metric_names)
    for rows in baselines.partition_by("name", "encoder", "scoring"):
        scores = dict.fromkeys(RANKING_METRICS, "")
        for row in rows.iter_rows(named=True):
            scores[row["metric"]] = _format_score(row)
        name, encoder, scoring, how = rows.select(
            "name", "encoder", "scoring", "how"
        ).row(-1)
        cells = [name, encoder, scoring, *scores.values(), how]
        table.add_row(*map(printable, cells))
    console.print(table, markup=False, highlight=False)


def _format_score(row: dict[str, Any]) -> str:
    """Return the value of a baseline, and the 98 % interval of the spread `total` if it has one."""
    if not isfinite(row["p01"]):
        return f"{row['value']:.3f}"
    return f"{row['value']:.3f} [{row['p01']:.2f}, {row['p99']:.2f}]"


def show_crossovers(crossovers: Frame, console: Console) -> None:
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
    >>> describe_crossover(row | {"labels": "k", "k_mean": None})
    'mfcc: LR at the same k passes the centroid at no k on average, never clearly (mAP, shared)'
    """
    event, mean = EVENTS[row["labels"]]
    if row["k_mean"] is None:
        mean = "at no k"
    clear = "never clearly" if row["k_clear"] is None else "clearly from k = {k_clear}"
    basis = METRIC_NAMES[row["metric"]]
    if row["scoring"] != "all":
        basis = f"{row['scoring']} scoring, {basis}"
    template = f"{{encoder}}: {event} {mean} on average, {clear} ({basis}, {{spread}})"
    return template.format(**row)
