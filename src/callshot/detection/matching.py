"""Detections of a class matched with annotations, by falling score; precision, recall and the rest.

By events, detections are matched with annotations; by windows, both mark windows of a fixed length.
A detection that is not correct may be another class's call under a wrong name, a call of its class
in a wrong place or found before, or no annotated call at all: only the last is a false alarm.

A detection and an annotation may be a pair if their IoU is large enough. As in the few-shot task of
DCASE, pairs are a maximum matching. Detections are added by falling score, and one that has found a
partner keeps one: so one pass serves all thresholds. Recordings have weights: 1 for the scores
themselves, and how often each was drawn for a sample of recordings.
"""

from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.fewshot.kernels import streams
from callshot.records import FloatArray, IntArray
from callshot.records.frames import (
    AIM_THRESHOLDS,
    OUTCOMES,
    PRECISION_RECALL,
    Frame,
    make_frame,
)

Numbers = FloatArray | IntArray
Scores = dict[str, FloatArray]  # of each metric, one value per row of weights

UNMATCHED = -1
KEYS = ("recording", "window")
SECONDS_PER_HOUR = 3600.0
ANY_OVERLAP = 1e-9  # an IoU that only rounding errors are below
SHORT_SHARE = 0.05  # of detections: shorter ones may be cut at the end of a recording
# What a detection that counts may be, as numbers: the worse, the higher.
CORRECT, MISPLACED, WRONG_NAME, FALSE_ALARM = range(4)
OUTCOME_NUMBERS = {
    "correct": CORRECT,
    "misplaced": MISPLACED,
    "wrong_name": WRONG_NAME,
    "false_alarm": FALSE_ALARM,
}
COUNTS = ("correct", "misplaced", "wrong_name", "false_alarms")  # by these numbers


def find_partners(
    detections: Frame, annotations: Frame, min_iou: float
) -> list[list[int]]:
    """Return for each detection the rows of annotations with at least `min_iou`, the best first.

    They are annotations of the recording of the detection; the IoU is that of the two in time.
    """
    partners: list[list[int]] = [[] for _ in range(len(detections))]
    ordered = annotations.with_row_index().sort("start_s", maintain_order=True)
    by_recording = ordered.partition_by("recording", as_dict=True)
    numbered = detections.with_row_index()
    parts = numbered.partition_by("recording", as_dict=True)
    for recording, part in parts.items():
        if recording not in by_recording:
            continue
        annotated = by_recording[recording]
        rows = annotated["index"].to_numpy()
        starts_s = annotated["start_s"].to_numpy()
        ends_s = annotated["end_s"].to_numpy()
        # Only annotations from `first` up to `end` can share time with a detection. They are sorted
        # by their starts; ends are not sorted, but the latest so far are.
        latest_ends_s = np.maximum.accumulate(ends_s)
        firsts = np.searchsorted(latest_ends_s, part["start_s"], side="right")
        ends = np.searchsorted(starts_s, part["end_s"], side="left")
        spans = part.select("index", "start_s", "end_s").iter_rows()
        for (detection, start_s, end_s), first, end in zip(
            spans, firsts, ends, strict=True
        ):
            near = slice(first, end)
            near_starts_s = starts_s[near]
            near_ends_s = ends_s[near]
            latest_start_s = np.maximum(near_starts_s, start_s)
            earliest_end_s = np.minimum(near_ends_s, end_s)
            shared_s = np.maximum(earliest_end_s - latest_start_s, 0.0)
            both_s = near_ends_s - near_starts_s + (end_s - start_s)
            iou = shared_s / (both_s - shared_s)
            order = np.argsort(-iou, kind="stable")
            matching = order[iou[order] >= min_iou]
            partners[detection] = rows[near][matching].tolist()
    return partners


def match_events(partners: Sequence[Sequence[int]]) -> IntArray:
    """Return the row of the annotation that each detection is matched with, or UNMATCHED.

    `partners` are those of `find_partners`, detections by falling score. A detection gets an
    annotation if all earlier ones that have one can keep one, if need be another. This is a maximum
    bipartite matching by shortest augmenting paths (Kuhn).

    >>> match_events([[0, 1], [0], [1]]).tolist()
    [1, 0, -1]
    """
    matches = np.full(len(partners), UNMATCHED, np.int64)
    owner: dict[int, int] = {}  # the detection of each annotation that has one
    for detection in range(len(partners)):
        reached_from = {}  # the detection from which the search reached each annotation
        waiting = deque([detection])
        free = UNMATCHED  # an annotation without a detection
        while waiting and free == UNMATCHED:
            current = waiting.popleft()
            for annotation in partners[current]:
                if annotation in reached_from:
                    continue
                reached_from[annotation] = current
                if annotation not in owner:
                    free = annotation
                    break
                waiting.append(owner[annotation])
        # Along the path back to the new detection, each detection takes the annotation that it
        # reached, and leaves its own to the one before it.
        while free != UNMATCHED:
            mover = reached_from[free]
            previous = int(matches[mover])
            matches[mover] = free
            owner[free] = mover
            free = previous
    return matches


@dataclass(frozen=True)
class RankedDetections:
    """The n detections of one class, by falling score.

    score        (n,), all NaN if detections have no scores
    outcome      (n,), CORRECT, MISPLACED, WRONG_NAME or FALSE_ALARM
    recording    (n,), the number of the recording
    annotated    (recordings,), the number of annotations
    hours        (recordings,), the length; NaN where it is not known
    unreachable  annotations that no detection can match: too short, or several on one detection
    """

    label: str
    score: FloatArray
    outcome: IntArray
    recording: IntArray
    annotated: IntArray
    hours: FloatArray
    unreachable: int = 0

    @property
    def has_scores(self) -> bool:
        """Whether detections can be ranked."""
        return not np.isnan(self.score).any()

    def cumulate(self, weights: FloatArray) -> Scores:
        """Return how many have at least each score, in all (detected) and of each outcome.

        Counts are by falling score, one for all equal ones; `weights` are of recordings.
        """
        is_last_of_score = np.diff(self.score, append=-np.inf) != 0
        weight = weights[self.recording]
        counts = {"detected": np.cumsum(weight)[is_last_of_score]}
        for number, name in enumerate(COUNTS):
            weight_of_outcome = weight * (self.outcome == number)
            counts[name] = np.cumsum(weight_of_outcome)[is_last_of_score]
        return counts


def measure(
    classes: Sequence[RankedDetections],
    weights: FloatArray,
    threshold: float | None = None,
) -> Scores:
    """Return counts and metrics over all classes, one value for each row of weights.

    Weights are (samples, recordings). Precision, recall, F1 and false alarms are of summed counts
    of detections with at least the threshold; average precision is the mean over classes.
    """
    recordings = weights.shape[1]
    names = ("annotated", "detected", *COUNTS)
    # Of each recording, over all classes
    counts = {name: np.zeros(recordings) for name in names}
    ap_of_classes = []
    for ranked in classes:
        recording = ranked.recording
        outcome = ranked.outcome
        if threshold is not None:
            reaches = ranked.score >= threshold
            recording = recording[reaches]
            outcome = outcome[reaches]
        counts["annotated"] += ranked.annotated
        counts["detected"] += np.bincount(recording, minlength=recordings)
        for number, name in enumerate(COUNTS):
            recording_of_outcome = recording[outcome == number]
            counts[name] += np.bincount(recording_of_outcome, minlength=recordings)
        if ranked.annotated.any():
            ap_of_samples = [average_precision(ranked, row) for row in weights]
            ap_of_classes.append(ap_of_samples)
    values = {name: weights @ count for name, count in counts.items()}
    hours = weights @ classes[0].hours  # the same recordings for all classes
    values = _rate(values, values["annotated"], hours)
    detected_and_annotated = values["detected"] + values["annotated"]
    values["f1"] = divide(2 * values["correct"], detected_and_annotated)
    ap = np.array(ap_of_classes).reshape(-1, len(weights))  # (classes, samples)
    is_defined = ~np.isnan(ap)
    total_ap = np.where(is_defined, ap, 0.0).sum(axis=0)
    defined_classes = is_defined.sum(axis=0)
    values["average_precision"] = divide(total_ap, defined_classes)
    return values


def average_precision(ranked: RankedDetections, weights: FloatArray) -> float:
    """Return the sum of precision times the gain in recall, over all thresholds; NaN: undefined.

    `weights` are of recordings. It is undefined without annotations, or without scores.
    """
    annotated = float(weights @ ranked.annotated)
    if annotated == 0 or not ranked.has_scores:
        return float("nan")
    counts = ranked.cumulate(weights)
    gains = np.diff(counts["correct"], prepend=0.0)
    has_gain = gains > 0
    precision = counts["correct"][has_gain] / counts["detected"][has_gain]
    return float(np.sum(gains[has_gain] * precision) / annotated)


def precision_recall_curve(ranked: RankedDetections, by: str) -> Frame:
    """Return PRECISION_RECALL with a row for each threshold, from the highest down.

    Detections must have scores. `by` is whether they are "events" or "windows".
    """
    weights = np.ones(len(ranked.annotated))
    counts = ranked.cumulate(weights)
    thresholds = np.unique(ranked.score)[::-1]
    size = len(thresholds)
    annotated = np.full(size, ranked.annotated.sum(), np.float64)
    hours = np.full(size, ranked.hours.sum())
    columns = {"threshold": thresholds, **_rate(counts, annotated, hours)}
    constants = {"by": by, "label": ranked.label}
    return make_frame(PRECISION_RECALL, columns, constants).fill_nan(None)


def _rate(counts: Scores, annotated: FloatArray, hours: FloatArray) -> Scores:
    """Return `counts` and also precision, recall, and false alarms per hour."""
    return {
        **counts,
        "precision": divide(counts["correct"], counts["detected"]),
        "recall": divide(counts["correct"], annotated),
        "false_alarms_per_hour": divide(counts["false_alarms"], hours),
    }


def find_threshold(
    curve: Frame, label: str, aim_per_hour: float, by: str = "events"
) -> Frame:
    """Return the lowest threshold of a class with at most so many false alarms per hour.

    `curve` has the columns of PRECISION_RECALL. The result is a row of AIM_THRESHOLDS, empty but
    for the aim if no threshold meets it. False alarms are counted by events; precision and recall
    are by `by`.
    """
    events = curve.filter(by="events", label=label)
    meeting_aim = events.filter(events["false_alarms_per_hour"] <= aim_per_hour)
    row: dict[str, object] = {
        "by": by,
        "label": label,
        "aim_per_hour": aim_per_hour,
        "is_lowest": len(meeting_aim) == len(events),
    }
    if len(meeting_aim) > 0:
        lowest = meeting_aim.row(-1, named=True)  # thresholds of a curve fall
        row["threshold"] = lowest["threshold"]
        row["false_alarms_per_hour"] = lowest["false_alarms_per_hour"]
        reaching = pl.col("threshold") >= lowest["threshold"]
        points = curve.filter(reaching, by=by, label=label)
        if len(points) > 0:  # windows may all be on calls without a name
            row["precision"] = points["precision"][-1]
            row["recall"] = points["recall"][-1]
    return pl.DataFrame([row], dict(AIM_THRESHOLDS))


def sample_weights(recordings: int, samples: int, seed: int) -> FloatArray:
    """Return how often each recording is drawn with replacement, (samples, recordings)."""
    picks = np.empty((recordings, samples), np.uint32)
    base = streams.purpose_key(seed, "recordings of scores")
    numbers = np.arange(recordings, dtype=np.uint64)
    streams.bootstrap_picks(base, numbers, recordings, picks)
    weights = np.zeros((samples, recordings))
    # A pick is the number of a recording; column n of `picks` has those of sample n.
    np.add.at(weights, (np.arange(samples), picks), 1.0)
    return weights


def divide(numerator: Numbers, denominator: Numbers) -> FloatArray:
    """Return quotients; NaN where the denominator is 0 or not known."""
    quotients = np.full(len(denominator), np.nan)
    np.divide(numerator, denominator, out=quotients, where=denominator > 0)
    return quotients


@dataclass(frozen=True)
class Task:
    """Detections to score against annotations.

    recordings   names, sorted
    durations_s  lengths of recordings, by name; empty where they are not known
    min_iou      of a detection and an annotation that match
    unknown      label of annotations without a name: other detections that match one are
                 neither correct nor false
    searched     the classes of the model, if known: annotations of others are not missed
    """

    detections: Frame
    annotations: Frame
    recordings: Sequence[str]
    durations_s: Mapping[str, float]
    min_iou: float
    unknown: str | None = None
    searched: Collection[str] | None = None

    @property
    def labels(self) -> list[str]:
        """All classes."""
        annotated = {*self.annotations["label"]}
        if self.searched is not None:
            annotated &= {*self.searched}
        return sorted({*self.detections["label"], *annotated} - {self.unknown})

    @property
    def not_searched(self) -> list[str]:
        """Labels that are annotated, but not among the classes."""
        return sorted({*self.annotations["label"]} - {*self.labels, self.unknown})

    @property
    def unknown_events(self) -> Frame:
        """Annotations labelled as unknown."""
        is_unknown = pl.col("label") == pl.lit(self.unknown, pl.String)
        return self.annotations.filter(is_unknown)

    def find_shortest(self, label: str) -> float:
        """Return how long the shortest detections are: of a class, or of all if it has none."""
        detections = self.detections.filter(label=label)
        if detections.is_empty():
            detections = self.detections
        lengths = detections["end_s"] - detections["start_s"]
        return lengths.quantile(SHORT_SHARE, "lower") or 0.0  # None: no detections

    def rank(
        self, label: str, detections: Frame, annotated: Frame, unreachable: int = 0
    ) -> RankedDetections:
        """Rank detections or windows of a class.

        `detections` has recording, score, and outcome as one of OUTCOME_NUMBERS; `annotated` has a
        row for each annotation or annotated window.
        """
        ordered = detections.sort("score", descending=True, nulls_last=True)
        counts = Counter(annotated["recording"])
        seconds = [self.durations_s.get(name, np.nan) for name in self.recordings]
        return RankedDetections(
            label=label,
            score=ordered["score"].fill_null(np.nan).to_numpy(),
            outcome=ordered["outcome"].to_numpy().astype(np.int64),
            recording=np.searchsorted(self.recordings, ordered["recording"]),
            annotated=np.array([counts[name] for name in self.recordings]),
            hours=np.array(seconds) / SECONDS_PER_HOUR,
            unreachable=unreachable,
        )


def rank_events(task: Task, label: str) -> tuple[RankedDetections, Frame]:
    """Match the detections of a class with its annotations; return them ranked, and OUTCOMES.

    OUTCOMES has a row for each detection, and one for each annotation that was missed.
    """
    detections = task.detections.filter(label=label).sort(
        "score", descending=True, nulls_last=True, maintain_order=True
    )
    annotations = task.annotations.filter(label=label)
    partners = find_partners(detections, annotations, task.min_iou)
    matches = match_events(partners)  # row of an annotation for each detection
    is_unmatched = matches == UNMATCHED
    detected = _name_outcomes(task, label, detections, is_unmatched)
    is_missed = ~np.isin(np.arange(len(annotations)), matches)
    missed = annotations.filter(is_missed).with_columns(
        outcome=pl.lit("missed"), score=None, annotated_label=None
    )
    schema = pl.Schema(OUTCOMES)
    detected_rows = detected.select(*OUTCOMES).cast(schema)
    missed_rows = missed.select(*OUTCOMES).cast(schema)
    outcomes = pl.concat([detected_rows, missed_rows])

    is_counted = pl.col("outcome").is_in([*OUTCOME_NUMBERS])  # not unknown or missed
    counted = outcomes.filter(is_counted)
    numbers = pl.col("outcome").replace_strict(OUTCOME_NUMBERS, return_dtype=pl.Int64)
    numbered = counted.with_columns(outcome=numbers)
    unreachable = _count_unreachable(task, label, detections, annotations, is_missed)
    return task.rank(label, numbered, annotations, unreachable), outcomes


def _count_unreachable(
    task: Task,
    label: str,
    detections: Frame,
    annotations: Frame,
    is_missed: NDArray[np.bool_],
) -> int:
    """Return how many annotations of a class no detection can match: see RankedDetections.

    `is_missed` is a mask of the annotations.
    """
    # The best that a detection can do is to contain a call: its IoU is then the length of the call
    # divided by its own length. Of several calls on a detection, it matches one.
    min_length_s = task.min_iou * task.find_shortest(label) * (1 - ANY_OVERLAP)
    lengths_s = annotations["end_s"] - annotations["start_s"]
    is_unreachable = lengths_s.to_numpy() < min_length_s
    for rows in find_partners(detections, annotations, ANY_OVERLAP):
        if len(rows) > 1:
            is_unreachable[rows] |= is_missed[rows]
    return int(is_unreachable.sum())


def _name_outcomes(
    task: Task, label: str, detections: Frame, is_unmatched: NDArray[np.bool_]
) -> Frame:
    """Return the detections of a class with two columns: outcome and annotated_label.

    `is_unmatched` is a mask of those that match no annotation of the class. Such a detection is
    "unknown" if it matches one that could not be named; "misplaced" if it touches one of these or
    of the class; "wrong_name" if it touches only others, the first of which is the annotated label;
    otherwise "false_alarm". All others are "correct".
    """
    outcomes = np.full(len(detections), "correct", object)
    annotated_labels = np.full(len(detections), None, object)
    unmatched = np.flatnonzero(is_unmatched)
    outcomes[unmatched] = "unknown"
    unknown_partners = find_partners(
        detections[unmatched], task.unknown_events, task.min_iou
    )
    wrong = unmatched[match_events(unknown_partners) == UNMATCHED]
    touched = find_partners(detections[wrong], task.annotations, ANY_OVERLAP)
    labels = task.annotations["label"].to_list()
    for row, annotations in zip(wrong, touched, strict=True):
        names = [labels[number] for number in annotations]
        outcomes[row] = "false_alarm"
        if label in names or task.unknown in names:
            outcomes[row] = "misplaced"
        elif names:
            outcomes[row] = "wrong_name"
            annotated_labels[row] = names[0]
    return detections.with_columns(
        outcome=pl.Series(outcomes.tolist(), dtype=pl.String),
        annotated_label=pl.Series(annotated_labels.tolist(), dtype=pl.String),
    )


def rank_windows(
    task: Task, label: str, outcome: Frame, window_s: float
) -> RankedDetections:
    """Rank the windows that detections of a class touch; they are correct if annotations do.

    Windows of `window_s` follow each other without a gap from the start of each recording. A window
    has score and outcome of the best detection in it, unless it is correct; `outcome` is the frame
    that `rank_events` returns.
    """
    # Only annotations make windows correct, below. Beside a call, a detection that is on it is
    # misplaced, not a false alarm.
    number = pl.col("outcome").replace_strict(
        OUTCOME_NUMBERS, default=MISPLACED, return_dtype=pl.Int64
    )
    detected = outcome.filter(pl.col("outcome") != "missed")
    detected = detected.with_columns(outcome=pl.max_horizontal(number, MISPLACED))
    touched = _touched_windows(detected, window_s, "score", "outcome")
    by_score = touched.sort("score", "outcome", descending=True, nulls_last=True)
    best = by_score.unique(KEYS, keep="first", maintain_order=True)
    annotations = task.annotations.filter(label=label)
    annotated = _touched_windows(annotations, window_s).unique()
    # Windows with a call without a name, and no annotation of the class, do not count.
    unknown = _touched_windows(task.unknown_events, window_s)
    unknown = unknown.join(annotated, on=KEYS, how="anti")
    counted = best.join(unknown, on=KEYS, how="anti")
    correct = annotated.with_columns(correct=CORRECT)
    joined = counted.join(correct, on=KEYS, how="left")
    windows = joined.with_columns(outcome=pl.coalesce("correct", "outcome"))
    return task.rank(label, windows, annotated)


def _touched_windows(events: Frame, window_s: float, *columns: str) -> Frame:
    """Return a row (recording, window, `columns`) for each window that each event touches."""
    first = (pl.col("start_s") / window_s).floor()
    last = (pl.col("end_s") / window_s).ceil()
    windows = pl.int_ranges(first.cast(pl.Int64), last.cast(pl.Int64))
    numbered = events.select("recording", *columns, window=windows)
    return numbered.explode("window")
