"""Events → ranked detections: by events that match annotations, and by windows of a fixed length.

`Task` has what both need: detections, annotations, and the recordings with their lengths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from callshot.detection.scores.event_matching import UNMATCHED, match_events
from callshot.detection.scores.ranked_detections import RankedDetections
from callshot.records import FloatArray, IntArray
from callshot.records.frames import OUTCOMES, Frame, concat_frames

SPAN = ("start_s", "end_s")
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Task:
    """Detections to be scored, annotations, and all recordings, by name.

    `durations_s` is empty where lengths are not known. Detections that are left over and match an
    annotation of the label `unknown` are neither correct nor false.
    """

    detections: Frame
    annotations: Frame
    recordings: Sequence[str]
    durations_s: Mapping[str, float]
    min_iou: float
    unknown: str | None = None

    @property
    def labels(self) -> list[str]:
        """All classes."""
        names = {*self.detections["label"], *self.annotations["label"]}
        return sorted(names - {self.unknown})

    @property
    def unknown_events(self) -> Frame:
        """The annotations whose label means that nobody knows."""
        if self.unknown is None:
            return self.annotations.clear()
        return self.annotations.filter(label=self.unknown)

    @property
    def hours(self) -> FloatArray:
        """The length of each recording; NaN where it is not known."""
        seconds = [self.durations_s.get(name, np.nan) for name in self.recordings]
        return np.array(seconds) / SECONDS_PER_HOUR


def rank_events(task: Task, label: str) -> tuple[RankedDetections, Frame]:
    """Match the events of a class; return them ranked, and the outcome of each."""
    detections = _split(task.detections.filter(label=label))
    annotations = _split(task.annotations.filter(label=label))
    unknown = _split(task.unknown_events)
    no_detections = task.detections.clear()
    no_annotations = task.annotations.clear()
    outcomes = [
        _match_recording(
            detections.get(name, no_detections),
            annotations.get(name, no_annotations),
            unknown.get(name, no_annotations),
            task.min_iou,
        )
        for name in task.recordings
    ]
    outcome = concat_frames(outcomes, OUTCOMES)
    correct = pl.col("outcome") == "correct"
    counted = outcome.filter(pl.col("outcome").is_in(["correct", "false"]))
    counted = counted.with_columns(is_correct=correct)
    annotated = [len(annotations.get(name, ())) for name in task.recordings]
    return _rank(task, label, counted, np.array(annotated)), outcome


def _split(events: Frame) -> dict[str, Frame]:
    """Return the events of each recording, detections by falling score."""
    ordered = events.sort(
        "score", descending=True, nulls_last=True, maintain_order=True
    )
    parts = ordered.partition_by("recording", as_dict=True)
    return {str(name): part for (name,), part in parts.items()}


def _match_recording(
    detections: Frame, annotations: Frame, unknown: Frame, min_iou: float
) -> Frame:
    """Return the outcome of every detection and annotation of a class in one recording."""
    spans = _spans(detections)
    matches = match_events(spans, _spans(annotations), min_iou)
    is_left = matches == UNMATCHED
    second = match_events(spans[is_left], _spans(unknown), min_iou)
    outcome = np.where(is_left, "false", "correct").astype(object)
    outcome[np.flatnonzero(is_left)[second != UNMATCHED]] = "unknown"
    is_missed = np.ones(len(annotations), bool)
    is_missed[matches[~is_left]] = False
    detected = detections.with_columns(outcome=pl.Series(outcome, dtype=pl.String))
    missed = annotations.filter(is_missed).with_columns(
        outcome=pl.lit("missed"), score=pl.lit(None, pl.Float64)
    )
    return pl.concat([detected.select(*OUTCOMES), missed.select(*OUTCOMES)])


def _spans(events: Frame) -> FloatArray:
    return events.select(SPAN).to_numpy().astype(np.float64).reshape(-1, 2)


def _rank(
    task: Task, label: str, detections: Frame, annotated: IntArray
) -> RankedDetections:
    """Return detections with `recording`, `score` and `is_correct` by falling score."""
    numbers = {name: number for number, name in enumerate(task.recordings)}
    ordered = detections.sort("score", descending=True, nulls_last=True)
    score = ordered["score"].fill_null(np.nan).to_numpy()
    recording = [numbers[name] for name in ordered["recording"]]
    return RankedDetections(
        label=label,
        score=score.astype(np.float64),
        is_correct=ordered["is_correct"].to_numpy().astype(np.int64),
        recording=np.array(recording, np.int64),
        annotated=annotated,
        hours=task.hours,
    )


def rank_windows(task: Task, label: str, window_s: float) -> RankedDetections:
    """Rank the windows that detections of a class touch; those that annotations touch are correct.

    Windows follow each other without a gap from the start of each recording; the last may be
    shorter. The score of a window is that of the best detection in it.
    """
    touched = _touched_windows(task.detections.filter(label=label), window_s)
    annotated = _touched_windows(task.annotations.filter(label=label), window_s)
    unknown = _touched_windows(task.unknown_events, window_s)
    place = ["recording", "window"]
    best = touched.group_by(place, maintain_order=True).agg(pl.col("score").max())
    positive = annotated.select(place).unique()
    others = unknown.select(place).unique().join(positive, on=place, how="anti")
    marked = positive.with_columns(is_correct=pl.lit(True))
    known = best.join(others, on=place, how="anti", maintain_order="left")
    joined = known.join(marked, on=place, how="left", maintain_order="left")
    detections = joined.with_columns(pl.col("is_correct").fill_null(False))
    counts = dict(positive["recording"].value_counts().iter_rows())
    per_recording = [counts.get(name, 0) for name in task.recordings]
    return _rank(task, label, detections, np.array(per_recording))


def _touched_windows(events: Frame, window_s: float) -> Frame:
    """Return a row for every window that an event shares time with: recording, window and score."""
    first = (pl.col("start_s") / window_s).floor().cast(pl.Int64)
    last = (pl.col("end_s") / window_s).ceil().cast(pl.Int64)
    numbered = events.select("recording", "score", window=pl.int_ranges(first, last))
    return numbered.explode("window")


def sort_outcomes(outcomes: list[Frame]) -> Frame:
    """Return the outcomes of all classes, by recording and time."""
    return concat_frames(outcomes, OUTCOMES).sort("recording", *SPAN, "label")
