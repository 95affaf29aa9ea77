"""An open review → what the page shows of it as a whole: the session, and the progress."""

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np

from callshot.errors import CallshotError
from callshot.records import FloatArray
from callshot.review.estimates import (
    count_classes,
    count_status,
    estimate_precision,
    measure_agreement,
)
from callshot.review.orders import NEED_SCORES, ORDERS
from callshot.review.session import MAX_CONTEXT_S, Review
from callshot.review.spectrogram import Picture, make_levels
from callshot.version import __version__

KEYS = "123456789"
# What suits calls of some pitch: spectrogram settings, and the speed of the sound.
PRESETS: dict[str, dict[str, Any]] = {
    "infrasound": {"window_s": 0.5, "max_hz": 250.0, "speed": 8.0},
    "audible": {"window_s": 0.032, "max_hz": 12000.0, "speed": 1.0},
    "ultrasound": {"window_s": 0.004, "max_hz": 125000.0, "speed": 0.125},
}
COMMON = {"min_hz": 0.0, "scale": "linear", "colours": "viridis", "range_db": 60.0}
INFRASOUND_RATE_HZ = 4000.0  # recordings up to this rate have been made for low calls
ULTRASOUND_RATE_HZ = 96000.0
LEVEL_ITEMS = 5  # from which the quietest colour is chosen
LEVEL_QUANTILE = 0.3
FLOOR_DB = -100.0
FLOOR_STEP_DB = 5.0


def describe_session(review: Review, reviewer: str) -> dict[str, Any]:
    """Return everything about a session that the page needs once."""
    presets, preset = review.once("presets", lambda: _make_presets(review))
    with review.lock:
        items = review.items
        return {
            "title": review.source.title,
            "kind": review.source.kind,
            "review_id": review.id,
            "reviewer": reviewer,
            "reviewers": _list_reviewers(review, reviewer),
            "blind": review.blind,
            "version": __version__,
            "labels": list_labels(review),
            "orders": _describe_orders(review),
            "total": int(items.is_active.sum()),
            "recordings": _describe_recordings(review),
            "score_range": _find_range(items.score),
            "has_clock": bool(np.isfinite(items.hour).any()),
            "can_refresh": review.can_refresh,
            "why_no_refresh": review.why_no_scores or None,
            "presets": presets,
            "preset": preset,
            "max_context_s": MAX_CONTEXT_S,
            "learn_command": describe_learning(review),
            "seq": review.seq,
            "score_version": review.score_version,
        }


def _list_reviewers(review: Review, reviewer: str) -> list[str]:
    """Return by whom decisions can be shown."""
    reviewers = [] if review.blind else review.decisions.reviewers
    return sorted({*reviewers, reviewer})


def _find_range(scores: FloatArray) -> list[float] | None:
    """Return the lowest and the highest score, None if there are none."""
    finite = scores[np.isfinite(scores)]
    if len(finite) == 0:
        return None
    return [float(finite.min()), float(finite.max())]


def describe_learning(review: Review) -> str:
    """Return the command that makes a model with the confirmed calls; a new one without a model."""
    folder = shlex.quote(str(review.journal.path.parent))
    facts = review.source.facts
    if facts.get("model") is None:
        encoder = "" if facts.get("encoder") else " --encoder NAME"
        return f"callshot learn {folder}{encoder} --out calls.npz"
    return f"callshot learn --add {folder} --out better.npz"


def list_labels(review: Review) -> list[dict[str, Any]]:
    """Return all labels with their number of items and the key for each."""
    counts = count_classes(review.items)
    labels = []
    for number, name in enumerate(review.items.labels):
        key = KEYS[number] if number < len(KEYS) else None
        labels.append({"name": name, "key": key, "count": int(counts[number])})
    return labels


def _describe_orders(review: Review) -> list[dict[str, Any]]:
    has_scores = bool(np.isfinite(review.items.score).any())
    orders = []
    for name, title in ORDERS.items():
        available = has_scores or name not in NEED_SCORES
        why = (
            None if available else review.source.why_no_scores or "there are no scores"
        )
        orders.append(
            {"name": name, "title": title, "available": available, "why": why}
        )
    return orders


def _describe_recordings(review: Review) -> list[dict[str, Any]]:
    items = review.items
    counts = np.bincount(items.recording, minlength=len(items.recordings))
    durations = review.source.durations_s
    return [
        {"path": name, "duration_s": durations.get(name), "count": count}
        for name, count in zip(items.recordings, counts.tolist(), strict=True)
    ]


def _make_presets(review: Review) -> tuple[dict[str, Any], str]:
    """Return the presets, their quietest colour at the noise of some items, and which suits."""
    rates = _read_rates(review)
    name = "audible"
    if rates and max(rates) <= INFRASOUND_RATE_HZ:
        name = "infrasound"
    elif rates and max(rates) >= ULTRASOUND_RATE_HZ:
        name = "ultrasound"
    presets = {}
    for key, settings in PRESETS.items():
        picture = Picture(100, 64, settings["window_s"], 0.0, settings["max_hz"])
        floor_db = _find_floor(review, picture)
        presets[key] = {**COMMON, **settings, "floor_db": floor_db}
    return presets, name


def _sample_items(review: Review) -> Sequence[int]:
    return [int(item) for item in review.sample.order[:LEVEL_ITEMS]]


def _read_rates(review: Review) -> list[float]:
    rates = []
    for item in _sample_items(review):
        name = review.items.recordings[review.items.recording[item]]
        try:
            rates.append(review.source.files.describe(name).rate_hz)
        except CallshotError:
            continue
    return rates


def _find_floor(review: Review, picture: Picture) -> float:
    """Return the level of the quieter part of some items, in steps of 5 dB."""
    levels = []
    for item in _sample_items(review):
        row = review.items.describe(item)
        end_s = min(row["end_s"], row["start_s"] + 10.0)
        try:
            clip = review.source.files.read(row["recording"], row["start_s"], end_s)
        except CallshotError:
            continue
        levels.append(np.quantile(make_levels(clip, picture), LEVEL_QUANTILE))
    if not levels:
        return FLOOR_DB
    floor_db = float(np.median(levels)) // FLOOR_STEP_DB * FLOOR_STEP_DB
    return float(np.clip(floor_db, -160.0, 0.0))


def describe_progress(review: Review, reviewer: str) -> dict[str, Any]:
    """Return what the decisions amount to."""
    with review.lock:
        counts = review.count_progress(reviewer)
        return {
            **counts,
            "reviewers": _count_decisions(review),
            "classes": _describe_classes(review),
            "agreement": _describe_agreement(review, counts["undecided"]),
            "curve": review.curve(),
            "seq": review.seq,
            "score_version": review.score_version,
        }


def _describe_agreement(review: Review, undecided: int) -> dict[str, Any]:
    """Return how far reviewers agree.

    A blind reviewer learns it after the last item: each step of it would show what others said.
    """
    if review.blind and undecided > 0:
        return {"pairs": 0, "agreed": 0, "kappa": None, "conflicts": []}
    conflicts = [] if review.blind else sorted(review.decisions.conflicts)
    return {**measure_agreement(review.decisions), "conflicts": conflicts}


def _count_decisions(review: Review) -> list[dict[str, Any]]:
    decisions = review.decisions
    is_active = review.items.is_active
    reviewers = []
    for name in decisions.reviewers:
        _, decided, skipped = count_status(decisions.status(name), is_active).tolist()
        reviewers.append({"name": name, "decisions": decided + skipped})
    return reviewers


def _describe_classes(review: Review) -> list[dict[str, Any]]:
    """Return precision and examples of each label."""
    added = _count_confirmed(review)
    examples = _count_examples(review)
    classes = []
    for number, label in enumerate(review.items.labels):
        estimate = estimate_precision(
            number, review.items, review.decisions, review.sample
        )
        low, high = estimate.interval
        classes.append(
            {
                "label": label,
                "threshold": review.source.thresholds.get(label),
                "detections": estimate.detections,
                "reviewed": estimate.reviewed,
                "confirmed": estimate.confirmed,
                "precision": estimate.share,
                "low": low,
                "high": high,
                "more_for_5_percent": estimate.more_for_aim,
                "examples": examples.get(label, 0),
                "added": added.get(label, 0),
            }
        )
    return classes


def _count_examples(review: Review) -> dict[str, int]:
    """Return how many examples the model has of each label."""
    scores = review.scores
    if scores is None or scores.model is None:
        return {}
    counts = scores.model.counts.tolist()
    return dict(zip(scores.model.classes, counts, strict=True))


def _count_confirmed(review: Review) -> dict[str, int]:
    """Return how many calls of each label were confirmed."""
    counts: dict[str, int] = {}
    for verdict in review.decisions.verdicts.values():
        if verdict.call_label is not None:
            counts[verdict.call_label] = counts.get(verdict.call_label, 0) + 1
    return counts
