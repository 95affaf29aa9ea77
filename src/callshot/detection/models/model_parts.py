"""Background and clips of a model ↔ facts and arrays of its file; absent ones have no entries."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.detection.models.background import (
    ORIGINS,
    Background,
    BackgroundRecording,
)
from callshot.detection.models.example_clips import Clips

Arrays = dict[str, NDArray[Any]]

BACKGROUND_ARRAYS = (
    "background_vectors",
    "background_recording",
    "background_start_s",
)
CLIP_ARRAYS = ("clip_samples", "clip_length")


def check_number(name: str, value: Any, lowest: float = 0.0) -> None:
    """Raise ValueError unless a value of a file is a finite number greater than `lowest`."""
    if type(value) not in (int, float) or not lowest < value < math.inf:
        raise ValueError(f"{name}: {value!r}")


def check_texts(name: str, values: Iterable[Any]) -> None:
    """Raise ValueError unless all values of a file are text that can be written again."""
    for value in values:
        if not isinstance(value, str):
            raise ValueError(f"{name}: expected text, got {value!r}")
        value.encode()


def check_spans(start_s: NDArray[Any], end_s: NDArray[Any]) -> None:
    """Raise ValueError unless times are finite and no end is before its start."""
    times_s = np.concatenate([start_s, end_s])
    if not np.isfinite(times_s).all():
        raise ValueError("start_s, end_s: expected finite numbers")
    if (end_s < start_s).any():
        raise ValueError("end_s: before start_s")


def describe_background(background: Background | None) -> dict[str, Any]:
    """Return the facts of background."""
    if background is None:
        return {}
    facts = {
        "window_s": background.window_s,
        "hop_s": background.hop_s,
        "recordings": [asdict(recording) for recording in background.recordings],
    }
    return {"background": facts}


def background_arrays(background: Background | None) -> Arrays:
    """Return the arrays of background."""
    if background is None:
        return {}
    arrays = (background.vectors, background.number, background.start_s)
    return dict(zip(BACKGROUND_ARRAYS, arrays, strict=True))


def build_background(facts: dict[str, Any], arrays: Arrays) -> Background | None:
    """Return the background of a file; raise ValueError if it is damaged."""
    if "background" not in facts:
        return None
    entries = facts["background"]
    recordings = tuple(_build_recording(entry) for entry in entries["recordings"])
    vectors, number, start_s = (arrays[name] for name in BACKGROUND_ARRAYS)
    _check_vectors(vectors, (len(start_s), arrays["vectors"].shape[1]))
    for name in ("window_s", "hop_s"):
        check_number(name, entries[name])
    is_known = np.isin(number, np.arange(len(recordings)))
    if len(number) != len(start_s) or not is_known.all():
        raise ValueError("background: a window is of no recording")
    return Background(
        recordings=recordings,
        vectors=vectors,
        number=number.astype(np.int64),
        start_s=start_s.astype(np.float64),
        window_s=float(entries["window_s"]),
        hop_s=float(entries["hop_s"]),
    )


def _check_vectors(vectors: NDArray[Any], shape: tuple[int, int]) -> None:
    """Raise ValueError unless vectors of background are finite float32 of this shape."""
    if vectors.dtype != np.float32 or vectors.shape != shape:
        raise ValueError(f"background vectors have shape {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise ValueError("background vectors: expected finite numbers")


def _build_recording(entry: dict[str, Any]) -> BackgroundRecording:
    calls_s = tuple((float(start), float(end)) for start, end in entry["calls_s"])
    origin = ORIGINS[ORIGINS.index(entry["origin"])]
    check_number("windows", entry["windows"], -1)
    check_texts("place", [entry["place"]])
    return BackgroundRecording(
        str(entry["sha256"]), int(entry["windows"]), calls_s, origin, entry["place"]
    )


def describe_clips(clips: Clips | None) -> dict[str, Any]:
    """Return the facts of clips."""
    return {} if clips is None else {"clip_rate_hz": clips.rate_hz}


def clip_arrays(clips: Clips | None) -> Arrays:
    """Return the arrays of clips: all samples, and how many each example has."""
    if clips is None:
        return {}
    nothing = np.zeros(0, np.int16)
    samples = [nothing if clip is None else clip for clip in clips.samples]
    lengths = np.array([len(clip) for clip in samples], np.int64)
    return {"clip_samples": np.concatenate(samples), "clip_length": lengths}


def build_clips(facts: dict[str, Any], arrays: Arrays) -> Clips | None:
    """Return the clips of a file; raise ValueError if they are damaged."""
    if "clip_rate_hz" not in facts:
        return None
    check_number("clip_rate_hz", facts["clip_rate_hz"])
    samples, length = (arrays[name] for name in CLIP_ARRAYS)
    examples = len(arrays["label"])
    is_whole = (length >= 0).all() and length.sum() == len(samples)
    if samples.dtype != np.int16 or len(length) != examples or not is_whole:
        raise ValueError(f"clips: {len(samples)} samples for {len(length)} examples")
    parts = np.split(samples, np.cumsum(length)[:-1])
    clips = tuple(clip if len(clip) > 0 else None for clip in parts)
    return Clips(int(facts["clip_rate_hz"]), clips)
