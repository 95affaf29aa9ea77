"""Clips → spectrograms as PNG, with axes in Hz and in seconds of the recording."""

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import signal as scipy_signal

from callshot.corpus.audio_files import Signal
from callshot.records import FloatArray
from callshot.report.figures.figure_io import CREATOR, open_figure
from callshot.report.figures.style import INK, TITLE_FONT, VERMILION
from callshot.report.figures.text_fit import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE_IN = (4.8, 2.6)
DPI = 110
BINS = 256  # of frequency, up to the top of the picture
OVERLAP = 0.75
SMALLEST_WINDOW = 16  # samples
QUIET = 1e-14  # power of silence, so that its logarithm exists
DARKEST = 5  # percentile of the levels in a picture
RANGE_DB = 15.0  # at least, so that noise alone looks like noise


def draw_spectrogram(
    signal: Signal,
    rate_hz: int,
    start_s: float,
    event: Mapping[str, Any],
    top_hz: float | None = None,
) -> bytes:
    """Return the picture of samples from a time of the recording on, with the event in them."""
    highest_hz = rate_hz / 2
    top_hz = highest_hz if top_hz is None else min(top_hz, highest_hz)
    frequency_hz, time_s, level_db = measure_spectrogram(signal, rate_hz, top_hz)
    content = io.BytesIO()
    with open_figure() as figure:
        figure.set_size_inches(*SIZE_IN)
        ax = figure.subplots()
        _draw_levels(ax, start_s + time_s, frequency_hz, level_db)
        ax.set_xlim(start_s, start_s + signal.size / rate_hz)
        ax.set_ylim(0, top_hz)
        _mark_event(ax, event)
        metadata = {"Software": CREATOR}
        figure.savefig(content, format="png", dpi=DPI, metadata=metadata)
    return content.getvalue()


def measure_spectrogram(
    signal: Signal, rate_hz: int, top_hz: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return frequencies in Hz, times in s, and levels in dB (frequencies, times).

    The window is so long that there are about 256 frequencies up to `top_hz`: long for low calls.
    """
    wanted = 2 ** round(np.log2(2 * BINS * rate_hz / (2 * top_hz)))
    size = int(max(SMALLEST_WINDOW, min(wanted, signal.size)))
    padded = np.pad(signal, (0, max(0, size - signal.size)))
    frequency_hz, time_s, power = scipy_signal.spectrogram(
        padded,
        rate_hz,
        window="hann",
        nperseg=size,
        noverlap=int(OVERLAP * size),
        detrend=False,
    )
    is_shown = frequency_hz <= top_hz
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
