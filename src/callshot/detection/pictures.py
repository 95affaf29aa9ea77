"""Pictures of events: heat maps of detections by day and hour, and spectrograms of clips.

Of many classes, heat maps of those with the most detections are drawn, and one for all. Colours are
counts. Hours without a recording are hatched; a dot marks hours that were recorded for less than
half as long as usual, in which there may have been more calls than were detected. Spectrograms are
PNG, with axes in Hz and in seconds of the recording.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import signal as scipy_signal

from callshot.corpus.audio_files import Signal
from callshot.records import FloatArray
from callshot.records.frames import Frame
from callshot.report.figures.figure_io import CREATOR, Pages, make_pages, open_figure
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
    VERMILION,
    Style,
    shorten,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
SIZE_IN = (4.8, 2.6)
DPI = 110
BINS = 256  # of frequency, up to the top of the picture
OVERLAP = 0.75
SMALLEST_WINDOW = 16  # samples
QUIET = 1e-14  # power of silence, so that its logarithm exists
DARKEST = 5  # percentile of the levels in a picture
RANGE_DB = 15.0  # at least, so that noise alone looks like noise


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


if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_spectrogram(
    signal: Signal,
    rate_hz: int,
    start_s: float,
    event: Mapping[str, Any],
    max_hz: float | None = None,
) -> bytes:
    """Return the picture of samples from a time of the recording on, with the event in them."""
    highest_hz = rate_hz / 2
    max_hz = highest_hz if max_hz is None else min(max_hz, highest_hz)
    frequency_hz, time_s, level_db = measure_spectrogram(signal, rate_hz, max_hz)
    content = io.BytesIO()
    with open_figure() as figure:
        figure.set_size_inches(*SIZE_IN)
        ax = figure.subplots()
        _draw_levels(ax, start_s + time_s, frequency_hz, level_db)
        ax.set_xlim(start_s, start_s + signal.size / rate_hz)
        ax.set_ylim(0, max_hz)
        _mark_event(ax, event)
        metadata = {"Software": CREATOR}
        figure.savefig(content, format="png", dpi=DPI, metadata=metadata)
    return content.getvalue()


def measure_spectrogram(
    signal: Signal, rate_hz: int, max_hz: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return frequencies in Hz, times in s, and levels in dB (frequencies, times).

    The window is so long that there are about 256 frequencies up to `max_hz`: long for low calls.
    """
    ideal_size = 2 ** round(np.log2(2 * BINS * rate_hz / (2 * max_hz)))
    size = int(max(SMALLEST_WINDOW, min(ideal_size, signal.size)))
    padded = np.pad(signal, (0, max(0, size - signal.size)))
    frequency_hz, time_s, power = scipy_signal.spectrogram(
        padded,
        rate_hz,
        window="hann",
        nperseg=size,
        noverlap=int(OVERLAP * size),
        detrend=False,
    )
    is_shown = frequency_hz <= max_hz
    level_db = 10 * np.log10(power[is_shown] + QUIET)
    return frequency_hz[is_shown], time_s, level_db


def _draw_levels(
    ax: "Axes", time_s: FloatArray, frequency_hz: FloatArray, level_db: FloatArray
) -> None:
    """Draw levels as a picture; its colours follow the levels that there are."""
    low_db = float(np.percentile(level_db, DARKEST))
    high_db = max(float(level_db.max()), low_db + RANGE_DB)
    half_hz = frequency_hz[1] / 2
    half_s = time_s[0]
    if len(time_s) > 1:
        half_s = (time_s[1] - time_s[0]) / 2
    times_s = (time_s[0] - half_s, time_s[-1] + half_s)
    frequencies_hz = (-half_hz, frequency_hz[-1] + half_hz)
    ax.imshow(
        level_db,
        extent=(*times_s, *frequencies_hz),
        cmap="magma",
        vmin=low_db,
        vmax=high_db,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
    )
    ax.grid(visible=False)
    ax.set_xlabel("time in the recording, s")
    ax.set_ylabel("frequency, Hz")


def _mark_event(ax: "Axes", event: Mapping[str, Any]) -> None:
    """Draw lines where the event starts and ends, and write what it is."""
    for time_s in (event["start_s"], event["end_s"]):
        ax.axvline(time_s, color="white", linewidth=0.9)
        ax.axvline(time_s, color=VERMILION, linewidth=0.9, linestyle=(0, (3, 3)))
    title = f"{event['label']}, {event['recording']}"
    if event["score"] is not None:
        title = f"{event['score']:.2f}  {title}"
    ax.set_title(shorten(title, 72 * (SIZE_IN[0] - 0.7), TITLE_FONT), color=INK)
