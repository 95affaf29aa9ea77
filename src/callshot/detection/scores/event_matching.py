"""Detections and annotations of one class in one recording → pairs, each used once.

A detection and an annotation may be a pair if their IoU (the time they share, divided by the time
that they cover together) is large enough. As in the few-shot task of DCASE, pairs are a maximum
matching. Detections are added by falling score, and one that has found a partner keeps one: so the
first n detections always have as many partners as a maximum matching of those n alone can give,
and one pass serves all thresholds.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from callshot.records import FloatArray, IntArray

Partners = Sequence[Sequence[int]]  # of each detection: its possible annotations

UNMATCHED = -1


def match_events(
    detections_s: FloatArray, annotations_s: FloatArray, min_iou: float
) -> IntArray:
    """Return the annotation of each detection, or UNMATCHED.

    Both are spans (n, 2) in seconds, detections by falling score.

    >>> spans = np.array([[0.0, 2.0], [10.0, 12.0]])
    >>> match_events(spans, np.array([[10.5, 12.5]]), 0.3).tolist()
    [-1, 0]
    """
    partners = find_partners(detections_s, annotations_s, min_iou)
    partner_by_detection: dict[int, int] = {}
    owner: dict[int, int] = {}
    for detection in range(len(detections_s)):
        _add_detection(detection, partners, partner_by_detection, owner)
    matches = np.full(len(detections_s), UNMATCHED, np.int64)
    for detection, annotation in partner_by_detection.items():
        matches[detection] = annotation
    return matches


def find_partners(
    detections_s: FloatArray, annotations_s: FloatArray, min_iou: float
) -> list[list[int]]:
    """Return the annotations that each detection may be matched with, the best first."""
    order = np.argsort(annotations_s[:, 0], kind="stable")
    starts = annotations_s[order, 0]
    latest_ends = np.maximum.accumulate(annotations_s[order, 1])
    first = np.searchsorted(latest_ends, detections_s[:, 0], side="right")
    last = np.searchsorted(starts, detections_s[:, 1], side="left")
    partners = []
    for span, low, high in zip(detections_s, first, last, strict=True):
        candidates = order[low:high]
        iou = interval_iou(span, annotations_s[candidates])
        best = np.argsort(-iou, kind="stable")
        fitting = best[iou[best] >= min_iou]
        partners.append(candidates[fitting].tolist())
    return partners


def interval_iou(span_s: FloatArray, others_s: FloatArray) -> FloatArray:
    """Return the IoU of one span with each of others (n, 2).

    >>> interval_iou(np.array([0.0, 2.0]), np.array([[1.0, 3.0], [2.0, 3.0]])).round(3).tolist()
    [0.333, 0.0]
    """
    start_s, end_s = span_s
    latest_start = np.maximum(others_s[:, 0], start_s)
    earliest_end = np.minimum(others_s[:, 1], end_s)
    shared = np.maximum(earliest_end - latest_start, 0.0)
    lengths = others_s[:, 1] - others_s[:, 0]
    together = lengths + (end_s - start_s) - shared
    return np.asarray(shared / together, np.float64)


def _add_detection(
    detection: int,
    partners: Partners,
    partner_by_detection: dict[int, int],
    owner: dict[int, int],
) -> None:
    """Give a detection a partner, if earlier ones can keep one; the shortest way of moving them."""
    reached_from: dict[int, int] = {}
    waiting = deque([detection])
    while waiting:
        current = waiting.popleft()
        for annotation in partners[current]:
            if annotation in reached_from:
                continue
            reached_from[annotation] = current
            if annotation not in owner:
                _move_partners(annotation, reached_from, partner_by_detection, owner)
                return
            waiting.append(owner[annotation])


def _move_partners(
    annotation: int,
    reached_from: dict[int, int],
    partner_by_detection: dict[int, int],
    owner: dict[int, int],
) -> None:
    """Give a free annotation to the detection that reached it, and so on, back to the new one."""
    free: int | None = annotation
    while free is not None:
        detection = reached_from[free]
        previous = partner_by_detection.get(detection)
        partner_by_detection[detection] = free
        owner[free] = detection
        free = previous
