"""Reviewed events → a verdict for each of the detections that they are about.

Reviewers may have given an event another label, another span, or cut it into parts; a review keeps
no scores. So every reviewed event is first brought back to its detection: the one with the same
span, else one of the same label that shares time with it, else the one that fits it best. The
detection is a call of its label if a reviewer said so of any part of it. If a reviewer gave it
another label, it is not a call of its own label, but one of the other.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from callshot.detection.events.events import rename_recordings
from callshot.detection.scores.event_matching import find_partners
from callshot.errors import InputError
from callshot.records import FloatArray
from callshot.records.frames import Frame

ANY_OVERLAP = 1e-9  # an IoU that only rounding errors are below
SAME_S = 1e-6  # times that differ by less are the same
SPAN = ("start_s", "end_s")


@dataclass(frozen=True)
class Verdicts:
    """What reviewers said of detections.

    detections  those that were reviewed, with `confirmed`: whether they are calls of their label
    relabelled  how many calls of each label are among detections of other labels
    elsewhere   how many reviewed events are on no detection
    """

    detections: Frame
    relabelled: Mapping[str, int]
    elsewhere: int


def find_verdicts(detections: Frame, reviewed: Frame) -> Verdicts:
    """Return the verdict on every detection that was reviewed.

    Rows of `reviewed` without a verdict in `confirmed` do not count.
    """
    rows = reviewed.filter(pl.col("confirmed").is_not_null())
    if rows.is_empty():
        raise InputError("reviewed: no row has yes or no in its column confirmed")
    rows = rename_recordings(rows, detections["recording"].unique())
    numbered = detections.with_row_index("number")
    found = _Found()
    for (name,), part in rows.partition_by("recording", as_dict=True).items():
        found.add(numbered.filter(recording=name), part)
    if not found.is_call:
        raise InputError(
            f"reviewed: none of the {len(rows)} reviewed events is on one of the "
            f"{len(detections)} detections; give the detections that were reviewed"
        )
    numbers = sorted(found.is_call)
    confirmed = pl.Series([found.is_call[number] for number in numbers])
    verdicts = detections[numbers].with_columns(confirmed=confirmed)
    relabelled = Counter(label for _, label in found.new_labels)
    return Verdicts(verdicts, relabelled, found.elsewhere)


@dataclass
class _Found:
    """What was found so far: verdicts by the number of a detection, and new labels."""

    is_call: dict[int, bool] = field(default_factory=dict)
    new_labels: set[tuple[int, str]] = field(default_factory=set)
    elsewhere: int = 0

    def add(self, detections: Frame, rows: Frame) -> None:
        """Add the verdicts on detections of one recording."""
        spans = _spans(detections)
        numbers = detections["number"].to_list()
        labels = detections["label"].to_list()
        row_spans = _spans(rows)
        partners = find_partners(row_spans, spans, ANY_OVERLAP)
        verdicts = rows.select("label", "confirmed").iter_rows()
        for number, (label, confirmed) in enumerate(verdicts):
            candidates = partners[number]
            if not confirmed:
                # That it is no roar says nothing of a detection of another label.
                candidates = [one for one in candidates if labels[one] == label]
            if not candidates:
                self.elsewhere += 1
                continue
            is_same = np.abs(spans[candidates] - row_spans[number]).max(axis=1) < SAME_S
            order = [
                (not same, labels[one] != label, rank)
                for rank, (one, same) in enumerate(
                    zip(candidates, is_same, strict=True)
                )
            ]
            best = candidates[min(order)[-1]]
            self._take(numbers[best], labels[best], label, confirmed)

    def _take(self, number: int, own: str, label: str, confirmed: bool) -> None:
        is_own = confirmed and label == own
        self.is_call[number] = self.is_call.get(number, False) or is_own
        if confirmed and not is_own:
            self.new_labels.add((number, label))


def _spans(events: Frame) -> FloatArray:
    return events.select(SPAN).to_numpy().astype(np.float64).reshape(-1, 2)
