"""Events and the clock times of recordings → detections by day and hour, as a table and a picture.

An event counts in the hour in which it starts. An hour without any recording is not an hour without
detections: it has no row in the table, and the picture shows it hatched. Of many classes, heat maps
of those with the most detections are drawn, and one for all. Colours are counts; a dot marks hours
that were recorded for less than half as long as usual, in which there may have been more calls than
were detected.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.detection.events import RecordingFolder
from callshot.detection.index.clock import RecordedTime, find_clock_time, parse_clock
from callshot.errors import InputError
from callshot.records import FloatArray
from callshot.records.frames import ACTIVITY, Frame
from callshot.records.table_files import write_csv_frame
from callshot.report.figures.figure_io import Pages, make_pages, render
from callshot.report.figures.layout import (
    Legend,
    add_legend,
    add_panels,
    area_handle,
    line_handle,
)
from callshot.report.figures.style import (
    INK,
    PAGE_HEIGHT_IN,
    PAGE_WIDTH_IN,
    SHADES,
    SILVER,
    TITLE_FONT,
    Style,
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
PANEL_IN = (0.9, 2.4)  # the heights that a panel may have
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
TITLE_ROOM_IN = 0.9  # beside the title: dates and the colour bar
ALL = "all classes"
Hour = tuple[date, int]
Times = Mapping[str, RecordedTime]


@dataclass(frozen=True)
class Activity:
    """How many events start in each hour that was recorded.

    counts   a frame with the columns of ACTIVITY: a row for each hour and label
    undated  events of recordings without a clock time, which are not counted
    """

    counts: Frame
    undated: int


def find_recorded_times(recordings: RecordingFolder) -> dict[str, RecordedTime]:
    """Return when recordings began, and how long they are; some do not say it and are left out."""
    times = {}
    for name, duration_s in recordings.durations_s.items():
        start = parse_clock(find_clock_time(recordings.find_file(name), name))
        if start is not None:
            times[name] = RecordedTime(start, duration_s)
    return times


def count_activity(
    events: Frame, times: Times, labels: Sequence[str] | None = None
) -> Activity:
    """Count events by the hour in which they start, and the minutes recorded in that hour.

    Minutes of several recorders in the same hour are added. Every recorded hour has a row for each
    label, also where nothing was detected.

    Parameters
    ----------
    events : polars.DataFrame
        Events, in the EVENTS schema.
    times : mapping
        When recordings began, by the names that the events use; also those without events.
    labels : sequence of str, optional
        The labels to count; those of the events by default.

    Returns
    -------
    Activity

    Examples
    --------
    >>> from datetime import datetime
    >>> events = pl.DataFrame({"recording": ["a"], "start_s": [1800.0], "label": ["roar"]})
    >>> times = {"a": RecordedTime(datetime(2026, 3, 2, 5, 45), 3600.0)}
    >>> for row in count_activity(events, times).counts.rows():
    ...     print(*row)
    2026-03-02 5 roar 0 15.0
    2026-03-02 6 roar 1 45.0
    """
    if labels is None:
        labels = sorted(set(events["label"]))
    minutes: dict[Hour, float] = defaultdict(float)
    for time in times.values():
        start = time.start
        while start < time.end:  # cut where an hour begins
            whole_hour = start.replace(minute=0, second=0, microsecond=0)
            end = min(whole_hour + timedelta(hours=1), time.end)
            minutes[start.date(), start.hour] += (end - start).total_seconds() / 60
            start = end
    dated = events.filter(pl.col("recording").is_in(list(times)))
    detections: Counter[tuple[Hour, str]] = Counter()
    for name, start_s, label in dated.select("recording", "start_s", "label").rows():
        start = times[name].start + timedelta(seconds=start_s)
        detections[(start.date(), start.hour), label] += 1
    rows = []
    for hour in sorted(minutes.keys() | {hour for hour, _ in detections}):
        recorded = round(minutes.get(hour, 0.0), MINUTE_DIGITS)
        rows += [(*hour, name, detections[hour, name], recorded) for name in labels]
    counts = pl.DataFrame(rows, schema=dict(ACTIVITY), orient="row")
    return Activity(counts, undated=len(events) - len(dated))


def make_activity_files(activity: Activity, folder: Path) -> list[str]:
    """Write activity.csv, and the picture as PDF and PNG, to a folder; return the names."""
    write_csv_frame(activity.counts, folder / TABLE)
    names = [TABLE]
    for page in plan_activity(activity.counts):
        names += [path.name for path in render(page, folder)]
    return names


def write_activity(events: Frame, recordings: RecordingFolder, out: Path) -> Activity:
    """Count the events on recordings, and write the table and the picture to a folder."""
    times = find_recorded_times(recordings)
    if not times:
        raise InputError(f"{recordings.library.root}: {NO_CLOCK}")
    activity = count_activity(events, times)

    def make(folder: Path) -> list[str]:
        return make_activity_files(activity, folder)

    facts = {"version": __version__, "undated": activity.undated}
    with open_output_folder(out, [TABLE], PROVENANCE, owner=SET) as output:
        output.write(make, facts)
    return activity


@dataclass(frozen=True)
class ActivityMap:
    """The counts of one class (days, hours), NaN where nothing was recorded."""

    title: str
    counts: FloatArray


def plan_activity(counts: Frame) -> Pages:
    """Yield pages of heat maps of a frame with the columns of ACTIVITY."""
    if counts.is_empty():
        return
    days = _list_days(counts)
    labels = choose_labels(counts)
    maps = [make_map(label, counts.filter(label=label), days) for label in labels]
    if len(maps) > 1:
        total = counts.group_by("date", "hour").agg(pl.col("detections").sum())
        maps.insert(0, make_map(ALL, total, days))
    minutes = _fill(counts.filter(label=labels[0]), "recorded_minutes", days)
    rows = int((PAGE_HEIGHT_IN - ABOVE_IN) // (_panel_height(days) + TITLE_IN))
    most = COLUMNS * max(1, rows)
    yield from make_pages("activity", maps, most, _compose, days, find_short(minutes))


def choose_labels(counts: Frame) -> list[str]:
    """Return the classes to draw, by name: all, or those with the most detections.

    >>> rows = {"label": ["b", "a", "b"], "detections": [1, 5, 2]}
    >>> choose_labels(pl.DataFrame(rows))
    ['a', 'b']
    """
    totals = counts.group_by("label").agg(pl.col("detections").sum())
    ordered = totals.sort("detections", "label", descending=[True, False])
    return sorted(ordered["label"].head(MAX_MAPS))


def _list_days(counts: Frame) -> list[date]:
    """Return all days from the first to the last."""
    dates = counts["date"].to_list()
    count = (max(dates) - min(dates)).days + 1
    return [min(dates) + timedelta(days=number) for number in range(count)]


def make_map(title: str, counts: Frame, days: Sequence[date]) -> ActivityMap:
    """Return the map of a class; its counts are NaN where no row is."""
    return ActivityMap(title, _fill(counts, "detections", days))


def _fill(rows: Frame, column: str, days: Sequence[date]) -> FloatArray:
    """Return a column as an array (days, hours)."""
    values = np.full((len(days), HOURS), np.nan)
    numbers = (rows["date"] - days[0]).dt.total_days()
    values[numbers, rows["hour"]] = rows[column]
    return values


def find_short(minutes: FloatArray) -> Cells:
    """Return days and hours (n, 2) that were recorded for less than half as long as usual."""
    usual = float(np.nanmedian(minutes))
    return np.argwhere(minutes < FEW * usual)


def _panel_height(days: Sequence[date]) -> float:
    low_in, high_in = PANEL_IN
    return min(max(ROW_IN * len(days), low_in), high_in)


def _compose(
    figure: "Figure",
    maps: Sequence[ActivityMap],
    days: Sequence[date],
    short: Cells,
) -> None:
    columns = min(COLUMNS, len(maps))
    rows = -(-len(maps) // columns)
    height_in = rows * (_panel_height(days) + TITLE_IN) + ABOVE_IN
    width_in = PAGE_WIDTH_IN * max(columns, 1.4) / COLUMNS
    figure.set_size_inches(width_in, height_in)
    axes = add_panels(figure, len(maps), columns)[:, 0]
    room_pt = 72 * (width_in / columns - TITLE_ROOM_IN)
    for ax, activity_map in zip(axes, maps, strict=True):
        _draw_map(ax, activity_map.counts, short)
        _label_axes(ax, days)
        total = int(np.nansum(activity_map.counts))
        ax.set_title(shorten(f"{activity_map.title}: {total}", room_pt, TITLE_FONT))
    legend: Legend = {"no recording": area_handle(NOT_RECORDED)}
    if len(short):
        legend["recorded for less than half as long as usual"] = line_handle(SHORT)
    add_legend(figure, legend, "hour of the day; colours are detections in an hour")


def _draw_map(ax: "Axes", counts: FloatArray, short: Cells) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.ticker import MaxNLocator

    ax.patch.set(**NOT_RECORDED)
    image = ax.imshow(
        np.ma.masked_invalid(counts),
        cmap=LinearSegmentedColormap.from_list("detections", SHADES),
        vmin=0,
        vmax=max(1.0, float(np.nanmax(counts))),
        extent=(0, HOURS, len(counts), 0),
        aspect="auto",
        interpolation="nearest",
    )
    ax.plot(short[:, 1] + 0.5, short[:, 0] + 0.5, **SHORT)
    ax.grid(visible=False)
    ax.spines[:].set_visible(True)
    figure = ax.figure
    ticks = MaxNLocator(4, integer=True)
    bar = figure.colorbar(image, ax=ax, ticks=ticks, pad=0.02, fraction=0.05)
    bar.outline.set_linewidth(0.4)


def _label_axes(ax: "Axes", days: Sequence[date]) -> None:
    """Label every sixth hour, and as many days as there is room for."""
    ax.set_xlim(0, HOURS)
    ax.set_ylim(len(days), 0)
    ax.set_xticks(range(0, HOURS + 1, 6))
    ax.tick_params(labelbottom=True, labelleft=True)
    step = -(-len(days) // MAX_DATES)
    ticks = range(0, len(days), step)
    names = [f"{days[tick]:%Y-%m-%d}" for tick in ticks]
    ax.set_yticks([tick + 0.5 for tick in ticks], names)
