"""Events and the clock times of recordings → detections by day and hour, as a table and a picture.

An event counts in the hour in which it starts. An hour without any recording is not an hour without
detections: it has no row in the table, and the picture shows it hatched. A dot marks hours that
were recorded for less than half as long as usual. Colours are counts, of one scale for all maps; of
few days, the counts are written in the cells; of many, a row is the mean of one or four weeks.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.detection.events import RecordingFolder
from callshot.detection.index.clock import find_clock_time, parse_clock
from callshot.errors import InputError
from callshot.records import FloatArray
from callshot.records.frames import ACTIVITY, Frame
from callshot.records.table_files import write_csv_frame
from callshot.report.figures.figure_io import Pages, draw_page, make_pages
from callshot.report.figures.layout import (
    INK,
    PAGE_HEIGHT_IN,
    PAGE_WIDTH_IN,
    SHADES,
    SILVER,
    TITLE_FONT,
    Legend,
    Style,
    add_legend,
    add_panels,
    shorten,
)
from callshot.results import open_output_folder
from callshot.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TABLE = "activity.csv"
PROVENANCE = "provenance.json"
SET = "callshot activity"
MINUTE_DIGITS = 3
NO_CLOCK = (
    "no recording has a clock time in its name (such as SITE_20260302_053000.wav) or in its "
    "header, so there is no activity by hour"
)

Cells = NDArray[np.intp]  # days and hours (n, 2)

HOURS = 24
COLUMNS = 2
ROW_IN = 0.17  # of one day
MIN_PANEL_IN = 0.3
MAX_PANEL_IN = 2.4
FEW_DAYS = 7  # that have panels as wide as the page, with numbers
MAX_ROWS = 62
STEPS = {1: "a day", 7: "a week", 28: "four weeks"}  # days of a row
TITLE_IN = 0.45
ABOVE_IN = 0.5
MAX_MAPS = 12  # of single classes
MAX_DATES = 14  # beside a panel
FEW = 0.5  # of the usual minutes
NOT_RECORDED: Style = {
    "facecolor": "white",
    "edgecolor": SILVER,
    "hatch": "//////",
    "linewidth": 0.0,
}
SHORT: Style = {"color": INK, "marker": ".", "linestyle": "none", "markersize": 2.5}
TITLE_ROOM_IN = 0.9  # beside the title: dates
NUMBER_SIZE = 6.0
DARK = 0.6  # share of the scale from which numbers are white
ALL = "all labels"
Hour = tuple[date, int]
Times = Mapping[str, tuple[str | None, float]]


def count_activity(
    events: Frame, times: Times, labels: Sequence[str] | None = None
) -> Frame:
    """Count events by the hour in which they start, and the minutes recorded in that hour.

    `times` has, by the name of a recording, when it began (as ISO 8601, or None) and how many
    seconds it has, also for recordings without events. Minutes of several recorders in the same
    hour are added. Every recorded hour has a row for each of `labels` (by default, the labels of
    the events). Events of recordings without a clock time are not counted.

    >>> events = pl.DataFrame({"recording": ["a"], "start_s": [1800.0], "label": ["roar"]})
    >>> times = {"a": ("2026-03-02T05:45:00", 3600.0)}
    >>> for row in count_activity(events, times).rows():
    ...     print(*row)
    2026-03-02 5 roar 0 15.0
    2026-03-02 6 roar 1 45.0
    """
    if labels is None:
        labels = sorted(set(events["label"]))
    minutes: dict[Hour, float] = defaultdict(float)
    begins = {}  # when each recording began
    for name, (clock, duration_s) in times.items():
        begin = parse_clock(clock)
        if begin is None:
            continue
        begins[name] = begin
        recording_end = begin + timedelta(seconds=duration_s)
        start = begin
        while start < recording_end:  # cut where an hour begins
            whole_hour = start.replace(minute=0, second=0, microsecond=0)
            end = min(whole_hour + timedelta(hours=1), recording_end)
            recorded_s = (end - start).total_seconds()
            minutes[start.date(), start.hour] += recorded_s / 60
            start = end
    detections: Counter[tuple[Hour, str]] = Counter()
    for name, start_s, label in events.select("recording", "start_s", "label").rows():
        if name in begins:  # others have no clock time
            start = begins[name] + timedelta(seconds=start_s)
            detections[(start.date(), start.hour), label] += 1
    rows = []
    # An event that starts after the end of its recording may be in an hour of its own.
    hours = {hour for hour, _ in detections}
    for hour in sorted(hours | minutes.keys()):
        recorded = round(minutes.get(hour, 0.0), MINUTE_DIGITS)
        for label in labels:
            count = detections[hour, label]
            rows.append((*hour, label, count, recorded))
    return pl.DataFrame(rows, schema=dict(ACTIVITY), orient="row")


def make_activity_files(counts: Frame, folder: Path) -> list[str]:
    """Write activity.csv, and the picture as PDF and PNG, to a folder; return the names."""
    write_csv_frame(counts, folder / TABLE)
    names = [TABLE]
    for page in plan_activity(counts):
        names += [path.name for path in draw_page(page, folder)]
    return names


def write_activity(events: Frame, recordings: RecordingFolder, out: Path) -> int:
    """Count the events on recordings, and write the table and the picture to a folder.

    Return how many events are of recordings without a clock time, and not counted.
    """
    times = {}
    for name, duration_s in recordings.durations_s.items():
        path = recordings.find_file(name)
        clock = find_clock_time(path, name)
        times[name] = (clock, duration_s)
    if not any(clock for clock, _ in times.values()):
        raise InputError(f"{recordings.library.root}: {NO_CLOCK}")
    counts = count_activity(events, times)
    undated = len(events) - int(counts["detections"].sum())

    facts = {"version": __version__, "undated": undated}
    with open_output_folder(out, [TABLE], PROVENANCE, owner=SET) as output:
        output.write(lambda folder: make_activity_files(counts, folder), facts)
    return undated


def plan_activity(counts: Frame) -> Pages:
    """Yield pages of heat maps of a frame with the columns of ACTIVITY."""
    if counts.is_empty():
        return
    all_dates = pl.date_range(pl.min("date"), pl.max("date"))
    days = counts.select(all_dates).to_series().to_list()
    labels = choose_labels(counts)
    parts = {label: counts.filter(label=label) for label in labels}
    # An hour has the same minutes for every label.
    minutes = fill_days(parts[labels[0]], "recorded_minutes", days)
    if len(parts) > 1:
        of_all_labels = counts.group_by("date", "hour").agg(pl.col("detections").sum())
        parts = {ALL: of_all_labels, **parts}
    fitting = [step for step in STEPS if len(days) <= MAX_ROWS * step]
    step = fitting[0] if fitting else max(STEPS)  # days in a row of a map
    maps = []
    highest = 1.0  # end of the colour scale that all maps share
    for name, part in parts.items():
        total = part["detections"].sum()
        by_day = fill_days(part, "detections", days)
        values = pool_days(by_day, step)
        maps.append((f"{name}: {total}", values))
        highest = max(highest, float(np.nanmax(values)))
    _, first_values = maps[0]
    wanted_in = ROW_IN * len(first_values)
    panel_in = min(max(wanted_in, MIN_PANEL_IN), MAX_PANEL_IN)
    columns = 1 if len(days) <= FEW_DAYS else COLUMNS
    room_in = PAGE_HEIGHT_IN - ABOVE_IN
    rows = int(room_in // (panel_in + TITLE_IN))
    maps_per_page = columns * max(1, rows)
    pooled_minutes = pool_days(minutes, step)
    short = find_short(pooled_minutes)
    options = (days[::step], step, short, panel_in, columns, highest)
    yield from make_pages("activity", maps, maps_per_page, _compose, *options)


def choose_labels(counts: Frame) -> list[str]:
    """Return the classes to draw, by name: all, or those with the most detections.

    >>> rows = {"label": ["b", "a", "b"], "detections": [1, 5, 2]}
    >>> choose_labels(pl.DataFrame(rows))
    ['a', 'b']
    """
    totals = counts.group_by("label").agg(pl.col("detections").sum())
    ordered = totals.sort("detections", "label", descending=[True, False])
    return sorted(ordered["label"].head(MAX_MAPS))


def fill_days(rows: Frame, column: str, days: Sequence[date]) -> FloatArray:
    """Return a column of rows of ACTIVITY as an array (days, hours); NaN where no row is."""
    values = np.full((len(days), HOURS), np.nan)
    day_numbers = (rows["date"] - days[0]).dt.total_days()
    values[day_numbers, rows["hour"]] = rows[column]
    return values


def pool_days(values: FloatArray, step: int) -> FloatArray:
    """Return the mean of each `step` days at each hour: from (days, hours) to (days / step, hours).

    NaN does not count; the mean of nothing but NaN is NaN.

    >>> pool_days(np.array([[1.0, np.nan], [3.0, np.nan], [5.0, 6.0]]), 2).tolist()
    [[2.0, nan], [5.0, 6.0]]
    """
    days, hours = values.shape
    rows = math.ceil(days / step)
    padded = np.full((rows * step, hours), np.nan)
    padded[:days] = values
    by_row = padded.reshape(rows, step, hours)
    counts = np.isfinite(by_row).sum(axis=1)
    sums = np.nansum(by_row, axis=1)
    means = sums / np.maximum(counts, 1)
    return np.where(counts > 0, means, np.nan)


def find_short(minutes: FloatArray) -> Cells:
    """Return rows and hours, (n, 2), that were recorded for less than half as long as usual.

    `minutes` are (rows, hours), NaN where nothing was recorded.
    """
    usual = float(np.nanmedian(minutes))
    return np.argwhere(minutes < FEW * usual)


def _write_counts(ax: "Axes", counts: FloatArray, highest: float) -> None:
    """Write the counts above 0 into the cells of a map, whose colours end at `highest`."""
    for day, hour in np.argwhere(counts > 0):
        count = counts[day, hour]
        is_dark = count > DARK * highest
        colour = "white" if is_dark else INK
        style: Style = {"ha": "center", "va": "center", "fontsize": NUMBER_SIZE}
        ax.text(hour + 0.5, day + 0.5, f"{count:.0f}", color=colour, **style)


def _compose(
    figure: "Figure",
    maps: Sequence[tuple[str, FloatArray]],
    days: Sequence[date],
    step: int,
    short: Cells,
    panel_in: float,
    columns: int,
    highest: float,
) -> None:
    """Draw a heat map for each class, with a dot in the cells of `short`.

    `maps` are pairs of a title and detections, (rows, hours); a row is the mean of `step` days, and
    `days` has the first day of each row. A map is `panel_in` inches high, and the colour scale of
    all maps ends at `highest` detections.
    """
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm
    from matplotlib.ticker import MaxNLocator

    is_wide = columns == 1
    columns = min(columns, len(maps))
    rows = math.ceil(len(maps) / columns)
    width_in = PAGE_WIDTH_IN
    if not is_wide:
        width_in *= max(columns, 1.4) / COLUMNS
    height_in = rows * (panel_in + TITLE_IN) + ABOVE_IN
    figure.set_size_inches(width_in, height_in)
    axes = add_panels(figure, len(maps), columns)[:, 0]
    room_pt = 72 * (width_in / columns - TITLE_ROOM_IN)
    days_per_tick = math.ceil(len(days) / MAX_DATES)
    ticks = range(0, len(days), days_per_tick)
    for ax, (title, counts) in zip(axes, maps, strict=True):
        ax.patch.set(**NOT_RECORDED)
        image = ax.imshow(
            np.ma.masked_invalid(counts),
            cmap=LinearSegmentedColormap.from_list("detections", SHADES),
            norm=PowerNorm(0.5, 0, highest),  # of square roots: few calls are seen, too
            extent=(0, HOURS, len(counts), 0),
            aspect="auto",
            interpolation="nearest",
        )
        days_short, hours_short = short.T + 0.5  # middles of cells
        ax.plot(hours_short, days_short, **SHORT)
        ax.grid(visible=False)
        ax.spines[:].set_visible(True)
        if is_wide:
            _write_counts(ax, counts, highest)
        ax.set(xlim=(0, HOURS), ylim=(len(days), 0), xticks=range(0, HOURS + 1, 6))
        ax.tick_params(labelbottom=True, labelleft=True)
        names = [f"{days[tick]:%Y-%m-%d}" for tick in ticks]
        ax.set_yticks([tick + 0.5 for tick in ticks], names)
        ax.set_title(shorten(title, room_pt, TITLE_FONT))
    bar = figure.colorbar(image, ax=axes, ticks=MaxNLocator(4), pad=0.02, aspect=30)
    bar.outline.set_linewidth(0.4)
    legend: Legend = {"no recording": NOT_RECORDED}
    if len(short):
        legend["recorded for less than half as long as usual"] = SHORT
    rows_are = "" if step == 1 else f"; a row is the mean of {STEPS[step]}"
    label = f"hour of the day; colours are detections in an hour{rows_are}"
    add_legend(figure, legend, label)
