"""How an evaluation looks in a notebook: a plot, a short text, an HTML table."""

from typing import Any

import polars as pl

from callshot.errors import check_choice
from callshot.records.frames import unique_values
from callshot.records.terms import METRIC_NAMES, preferred_spread

SHOWN_SHOTS = (1, 2, 5, 10, 20, 40)


def plot_curves(
    curve: pl.DataFrame, metric: str, spread: str | None, ax: Any = None
) -> Any:
    """Draw the mean of every curve against k, with its 98 % interval and the chance level."""
    from matplotlib import pyplot

    check_choice("metric", metric, list(METRIC_NAMES))
    spread = spread or preferred_spread(curve["spread"])
    check_choice("spread", spread, unique_values(curve, "spread"))
    if ax is None:
        _, ax = pyplot.subplots()
    points = curve.filter(metric=metric, spread=spread, scoring="all")
    lines = points.partition_by("encoder", "classifier", maintain_order=True)
    for number, rows in enumerate(lines):
        name, classifier = rows.select("encoder", "classifier").row(0)
        if classifier != "centroid":
            name += f", {classifier}"
        k = rows["k"]
        (line,) = ax.plot(k, rows["mean"], label=name)
        color = line.get_color()
        ax.fill_between(k, rows["p01"], rows["p99"], color=color, alpha=0.2)
        label = "chance" if number == 0 else None
        ax.plot(k, rows["chance"], color="grey", linestyle=":", label=label)
    ax.set_xlabel("examples per call type (k)")
    ax.set_ylabel(METRIC_NAMES[metric])
    ax.legend()
    return ax


def summarise_curves(curve: pl.DataFrame) -> pl.DataFrame:
    """Return a short table: mAP of every curve with its 98 % interval at a few k."""
    spread = preferred_spread(curve["spread"])
    points = curve.filter(metric="map", spread=spread, scoring="all")
    evaluated = points["k"].unique().sort().to_list()
    shots = [k for k in SHOWN_SHOTS if k in evaluated] or evaluated
    rows = []
    for line in points.partition_by("encoder", "classifier", maintain_order=True):
        name = ", ".join(line.select("encoder", "classifier").row(0))
        cells = {f"mAP, {spread}": name}
        for k in shots:
            point = line.filter(k=k).select("mean", "p01", "p99")
            mean, low, high = point.row(0)
            interval = f"[{low:.2f}–{high:.2f}]"
            cells[f"k = {k}"] = f"{mean:.2f} {interval}"
        rows.append(cells)
    return pl.DataFrame(rows)


def show_whole_tables() -> pl.Config:
    """Return how polars prints these tables, as a context: all of them, and nothing around."""
    return pl.Config(
        tbl_formatting="NOTHING",
        tbl_hide_column_data_types=True,
        tbl_hide_dataframe_shape=True,
        tbl_rows=-1,
        tbl_cols=-1,
        tbl_width_chars=-1,
        fmt_str_lengths=1000,
    )
