"""Entries → a legend above the panels, in as many columns as fit the page."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.report.figures.text_fit import shorten, width_pt

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE_PT, HANDLE_PT, GAP_PT, LONGEST_PT = 7.0, 21.0, 13.0, 200.0


def put_legend(figure: "Figure", entries: Mapping[str, Any]) -> None:
    """Put a legend above all panels; `entries` are handles by what they mean."""
    room = figure.get_figwidth() * 72 - 10
    names = [shorten(name, min(room - HANDLE_PT, LONGEST_PT), SIZE_PT) for name in entries]
    figure.legend(
        list(entries.values()),
        names,
        loc="outside upper center",
        ncols=_columns([width_pt(name, SIZE_PT) + HANDLE_PT for name in names], room),
        borderaxespad=0.1,
    )


def _columns(widths: list[float], room: float) -> int:
    """Return the most columns that fit; matplotlib fills them one after the other."""
    for count in range(len(widths), 1, -1):
        columns = [max(column) for column in np.array_split(widths, count)]
        if sum(columns) + GAP_PT * (count - 1) <= room:
            return count
    return 1
