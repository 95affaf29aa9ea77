"""Calls in recordings → the windows of audio that an encoder gets, as an index has them.

A call that fits into a window gets one, with the call in its middle and the recording around it; at
the ends of a recording it is moved inside. A longer call gets windows side by side, all inside the
call, which overlap as little as possible. Nothing is padded, unless the recording is shorter than a
window.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from callshot.detection.index.windows import WindowGrid, make_grid
from callshot.detection.models.model import AudioSettings
from callshot.encoders.spec import EncoderSpec
from callshot.records import Recording, Segment

ROUNDING_S = 1e-9


def place_windows(
    start_s: float, end_s: float, window_s: float, duration_s: float
) -> list[float]:
    """Return where the windows of a call begin, in seconds.

    >>> place_windows(4.0, 5.0, window_s=3.0, duration_s=60.0)
    [3.0]
    >>> place_windows(0.5, 1.0, window_s=3.0, duration_s=60.0)
    [0.0]
    >>> place_windows(10.0, 17.0, window_s=3.0, duration_s=60.0)
    [10.0, 12.0, 14.0]
    """
    length_s = end_s - start_s
    last_start_s = max(0.0, duration_s - window_s)
    if length_s <= window_s + ROUNDING_S:
        centred_s = (start_s + end_s - window_s) / 2
        starts_s = np.array([centred_s])
    else:
        count = math.ceil((length_s - ROUNDING_S) / window_s)
        starts_s = np.linspace(start_s, end_s - window_s, count)
    inside_s: list[float] = np.clip(starts_s, 0.0, last_start_s).tolist()
    return inside_s


def find_grid(spec: EncoderSpec, settings: AudioSettings) -> WindowGrid:
    """Return the windows of an encoder: its own, or those of the settings."""
    if spec.windowing is None:
        return make_grid(spec, settings.window_s)
    return make_grid(spec)


def cut_windows(
    call: Segment, recording: Recording, grid: WindowGrid, settings: AudioSettings
) -> list[Segment]:
    """Return the windows of a call as segments of the recording at the encoder's speed.

    Their times are those at that speed, in whole samples, so that it is resampled once.
    """
    duration_s = recording.duration_s
    starts_s = place_windows(call.start_s, call.end_s, grid.window_s, duration_s)
    last_start = max(0, grid.to_samples(duration_s) - grid.window)
    call_at_speed = replace(
        read_as(call, grid.rate_hz, settings),
        source_rate_hz=recording.rate_hz * grid.speed,
    )
    windows = []
    for start_s in starts_s:
        start = min(grid.to_samples(start_s), last_start)
        end = start + grid.window
        windows.append(
            replace(
                call_at_speed, start_s=start / grid.rate_hz, end_s=end / grid.rate_hz
            )
        )
    return windows


def read_as(call: Segment, rate_hz: int, settings: AudioSettings) -> Segment:
    """Return a call that is read at a rate, without a collar, at the level of the recording."""
    return replace(
        call,
        collar_s=0.0,
        rate_hz=rate_hz,
        channel_rule=settings.channel_rule,
        peak_dbfs=None,
        source_rate_hz=settings.source_rate_hz,
    )


def default_window_s(calls: Sequence[Segment]) -> float:
    """Return the length of a window for encoders without one: the median length of calls.

    It is rounded to 0.01 s, and at least that.
    """
    lengths_s = [call.end_s - call.start_s for call in calls]
    return max(0.01, round(float(np.median(lengths_s)), 2))
