"""Short recordings in folders, one of them silent, and events on them."""

from pathlib import Path

import numpy as np
import polars as pl
import soundfile

from callshot.detection.events import events_frame

RATE_HZ = 4410
# Lengths that are no round numbers of seconds.
DURATIONS_S = {"b/x 1.wav": 20.37, "a.wav": 10.1, "silent.wav": 7.03, "z.flac": 15.0}


def make_recordings(folder: Path) -> Path:
    """Write the recordings to a folder."""
    for name, duration_s in DURATIONS_S.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.zeros(round(duration_s * RATE_HZ)), RATE_HZ)
    return folder


def make_events() -> pl.DataFrame:
    """Return events with all columns, with none, and with labels that are hard to write."""
    rows = [
        ("a.wav", 0.1, 0.4, "rumble", 0.9, 1.5, "roar", 10.0, 120.0, True),
        ("a.wav", 3.3, 4.7, "=roar, low", -0.25, None, None, None, None, False),
        ("b/x 1.wav", 7.123456, 9.0, "rumble", 0.5, 2.25, "Ruf é", None, None, None),
        ("z.flac", 0.0, 15.0, "rumble", 0.125, 3.0, None, None, None, None),
    ]
    names = ("recording", "start_s", "end_s", "label", "score", "distance")
    names += ("runner_up", "low_freq_hz", "high_freq_hz", "confirmed")
    return events_frame([dict(zip(names, row, strict=True)) for row in rows])
