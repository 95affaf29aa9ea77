"""What encoders get of calls → a CSV file and a picture."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from callshot.errors import printable
from callshot.records import FloatArray
from callshot.records.table_files import write_csv_frame
from callshot.report.figures.figure_io import FigurePage, draw_page
from callshot.report.figures.style import (
    BLUE,
    COLOURS,
    DASHES,
    GREY,
    PAGE_WIDTH_IN,
    SILVER,
    SMALL_PT,
    TICK_PT,
)
from callshot.results import OutputFolder, open_output_folder
from callshot.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEM = "band-coverage"
FILES = (f"{STEM}.csv", f"{STEM}.pdf", f"{STEM}.png")
PROVENANCE = f"{STEM}.json"
MAX_LABELS = 7  # lines that the eye can separate
ROW_IN = 0.16
SPECTRUM_IN = 2.4
RANGE_DB = 50.0


def open_coverage(folder: Path) -> AbstractContextManager[OutputFolder]:
    """Open a folder for band-coverage.csv, .pdf and .png, before any work."""
    return open_output_folder(folder, FILES, PROVENANCE)


def write_coverage(
    output: OutputFolder,
    table: pl.DataFrame,
    edges_hz: FloatArray,
    power: FloatArray,
    label: Sequence[str],
) -> list[Path]:
    """Write the table and its picture; `power` is calls × bins."""
    page = FigurePage(STEM, _compose, (table, edges_hz, power, label))

    def make_files(folder: Path) -> Sequence[str]:
        write_csv_frame(table, folder / f"{STEM}.csv")
        draw_page(page, folder)
        return FILES

    return output.write(make_files, {"version": __version__})


def _compose(
    figure: "Figure",
    table: pl.DataFrame,
    edges_hz: FloatArray,
    power: FloatArray,
    label: Sequence[str],
) -> None:
    bands_in = ROW_IN * (table.height + 1)
    figure.set_size_inches(PAGE_WIDTH_IN, SPECTRUM_IN + bands_in + 0.6)
    upper, lower = figure.subplots(
        2, 1, sharex=True, height_ratios=(SPECTRUM_IN, bands_in)
    )
    # The mean spectrum of the calls of each type, the commonest first.
    labels = np.asarray(label)
    names, counts = np.unique(labels, return_counts=True)
    commonest = names[np.argsort(-counts, kind="stable")][:MAX_LABELS]
    centres_hz = np.sqrt(edges_hz[:-1] * edges_hz[1:])
    for n, name in enumerate(commonest):
        mean = power[labels == name].mean(axis=0)
        upper.plot(
            centres_hz,
            10 * np.log10(np.maximum(mean, 1e-12)),
            color=COLOURS[n],
            linestyle=DASHES[n % len(DASHES)],
            label=printable(str(name)),
        )
    top_db = upper.get_ylim()[1]
    upper.set_ylim(top_db - RANGE_DB, top_db)
    upper.set_ylabel("share of the energy\nper ⅙ octave, dB")
    upper.legend(fontsize=SMALL_PT, ncols=2)
    # The band of each encoder and speed, from top to bottom; those of auto are dark.
    ticks = []
    text = {"va": "center", "fontsize": SMALL_PT, "color": GREY}
    for row, entry in enumerate(table.iter_rows(named=True)):
        low_hz, high_hz = entry["low_hz"], entry["high_hz"]
        colour = BLUE if entry["auto"] else SILVER
        lower.barh(row, max(0.0, high_hz - low_hz), 0.7, left=low_hz, color=colour)
        lower.text(high_hz, row, f" {entry['energy']:.0%}", **text)
        ticks.append(f"{printable(entry['encoder'])} × {entry['speed']:g}")
    lower.set_yticks(range(len(ticks)), ticks, fontsize=TICK_PT)
    lower.invert_yaxis()
    is_used = power.sum(axis=0) > 0
    lower.set_xscale("log")
    lower.set_xlim(edges_hz[:-1][is_used].min(), edges_hz[1:][is_used].max())
    lower.xaxis.set_major_formatter(lambda hz, _: f"{hz:,.0f}")
    lower.xaxis.set_minor_formatter(lambda hz, _: "")
    lower.set_xlabel("frequency in the recording, Hz")
