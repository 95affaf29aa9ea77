"""The calls of a corpus → what the heat map, the list of sounds and the map read, as plain data."""

from dataclasses import astuple
from typing import Any

import numpy as np

from callshot.records import CorpusResults, FloatArray
from callshot.report.calls import CorpusCalls
from callshot.report.page.html import clean

SIDE = 1000  # of the map, in whole numbers


def call_data(results: CorpusResults, calls: CorpusCalls | None) -> dict[str, Any]:
    """Return all calls, and their places and picks by encoder."""
    if calls is None:
        return {"labels": [], "calls": [], "has_clips": False, "encoder_calls": []}
    segments = results.evaluation.segments
    numbers = {label: number for number, label in enumerate(calls.labels)}
    encoders = []
    for encoder in calls.encoders:
        picks = [astuple(pick) for pick in encoder.picks]
        entry = {
            "map": _scale(encoder.plane),
            "confused": encoder.confused,
            "picks": picks,
        }
        encoders.append(entry)
    return {
        "labels": [clean(label) for label in calls.labels],
        "calls": [clean(name) for name in segments.segment],
        "call_labels": [numbers.get(label, -1) for label in segments.label],
        "encoder_calls": encoders,
        "map_method": calls.method,
        "has_clips": bool(calls.clips),
    }


def clip_data(results: CorpusResults, calls: CorpusCalls | None) -> dict[int, Any]:
    """Return the clips of a corpus by the row of their call."""
    if calls is None:
        return {}
    segments = results.evaluation.segments
    rows = {name: row for row, name in enumerate(segments.segment)}
    return {rows[name]: astuple(clip) for name, clip in calls.clips.items()}


def _scale(points: FloatArray) -> list[list[int]]:
    """Return points as whole numbers; both axes have the same unit."""
    if not len(points):
        return []
    low = points.min(axis=0)
    width = float(np.max(points.max(axis=0) - low)) or 1.0
    middle = (SIDE - SIDE * (points.max(axis=0) - low) / width) / 2
    scaled: list[list[int]] = (
        np.rint(SIDE * (points - low) / width + middle).astype(int).tolist()
    )
    return scaled
