"""How an evaluation looks in a notebook: a plot, a short text, an HTML table."""

from collections.abc import Sequence
from html import escape
from typing import Any

import polars as pl

from callshot.errors import check_choice
from callshot.records.frames import unique_values
from callshot.records.terms import METRIC_NAMES, preferred_spread

SHOWN_SHOTS = (1, 2, 5, 10, 20, 40)


def plot_curves(curve: pl.DataFrame, metric: str, spread: str, ax: Any = None) -> Any:
    """Draw the mean of every curve against k, with its 98 % interval and the chance level."""
    from matplotlib import pyplot

    check_choice("metric", metric, list(METRIC_NAMES))
    check_choice("spread", spread, unique_values(curve, "spread"))
    if ax is None:
        _, ax = pyplot.subplots()
    points = curve.filter(metric=metric, spread=spread, scoring="all")
    lines = points.partition_by("encoder", "classifier", maintain_order=True)
    for line in lines:
        _draw_curve(ax, line)
    for line, label in zip(lines, ["chance", *[None] * len(lines)], strict=False):
        ax.plot(line["k"], line["chance"], color="grey", linestyle=":", label=label)
    ax.set_xlabel("examples per call type (k)")
    ax.set_ylabel(METRIC_NAMES[metric])
    ax.legend()
    return ax


def _draw_curve(ax: Any, curve: pl.DataFrame) -> None:
    name, classifier = curve.select("encoder", "classifier").row(0)
    if classifier != "centroid":
        name += f", {classifier}"
    (line,) = ax.plot(curve["k"], curve["mean"], label=name)
    color = line.get_color()
    ax.fill_between(curve["k"], curve["p01"], curve["p99"], color=color, alpha=0.2)


def summary_rows(curve: pl.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return the header and rows of a short table: mAP with its 98 % interval at a few k."""
    spread = preferred_spread(curve["spread"])
    points = curve.filter(metric="map", spread=spread, scoring="all")
    evaluated = points["k"].unique().sort().to_list()
    shots = [k for k in SHOWN_SHOTS if k in evaluated] or evaluated
    header = [f"mAP, {spread}", *(f"k = {k}" for k in shots)]
    rows = []
    for line in points.partition_by("encoder", "classifier", maintain_order=True):
        cells = [", ".join(line.select("encoder", "classifier").row(0))]
        for k in shots:
            mean, low, high = line.filter(k=k).select("mean", "p01", "p99").row(0)
            cells.append(f"{mean:.2f} [{low:.2f}–{high:.2f}]")
        rows.append(cells)
    return header, rows


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as lines of text, with aligned columns."""
    table = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def html_table(
    caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
    """Return a table as HTML, escaped."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = []
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        body.append(f"<tr>{cells}</tr>")
    return (
        f"<table><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )
