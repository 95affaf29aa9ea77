"""Detections with scores, and a few of them reviewed → how many of the detections are calls.

A count over a threshold is biased: it has false alarms, and their share is not known. Instead,
detections of a class are split into bins of equal numbers by their scores, listeners review a few
of each bin, and the share of calls in a bin has a Beta distribution. Its sum over bins, each by its
size, is the number of calls with its uncertainty (Navine et al. 2024, "All thresholds barred").
Detections of other labels that reviewers gave the label of a class are added to its total as they
are: how many more there are among detections that nobody reviewed is not estimated.

Reviewers may have given an event another label, another span, or cut it into parts; a review keeps
no scores. So every reviewed event is first brought back to its detection: the one with the same
span, else one of the same label that shares time with it, else the one that fits it best. The
detection is a call of its label if a reviewer said so of any part of it. If a reviewer gave it
another label, it is not a call of its own label, but one of the other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from scipy import stats

from callshot.detection.events import rename_recordings
from callshot.detection.matching import find_partners
from callshot.errors import InputError
from callshot.fewshot.kernels import streams
from callshot.records import FloatArray
from callshot.records.frames import CALL_DENSITY, Frame, concat_frames, make_frame

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


PRIOR = 0.5  # of calls and of others in each bin: Jeffreys'
SAMPLES = 10_000
INTERVAL = (1, 99)

Columns = dict[str, Sequence[float]]


def estimate_density(
    detections: Frame, verdicts: Verdicts, bins: int, seed: int
) -> Frame:
    """Estimate the number of calls of each class with reviewed or relabelled detections."""
    if detections["score"].has_nulls():
        raise InputError("reviewed: every detection needs a score, to know its bin")
    reviewed = verdicts.detections
    parts = []
    for label in sorted({*reviewed["label"], *verdicts.relabelled}):
        scores = detections.filter(label=label)["score"].to_numpy()
        relabelled = verdicts.relabelled.get(label, 0)
        if len(scores) == 0:
            parts.append(_count_relabelled(label, relabelled))
            continue
        own = reviewed.filter(label=label)
        part = _estimate_class(label, scores, own, bins, seed)
        parts.append(_add_relabelled(part, relabelled))
    return concat_frames(parts, CALL_DENSITY)


def _count_relabelled(label: str, relabelled: int) -> Frame:
    """Return the total of a class without detections of its own."""
    row: dict[str, float | str | None] = dict.fromkeys(CALL_DENSITY)
    row |= dict.fromkeys(("detections", "reviewed", "confirmed"), 0)
    row |= dict.fromkeys(("relabelled", "calls", "calls_p01", "calls_p99"), relabelled)
    row["label"] = label
    return pl.DataFrame([row], schema=dict(CALL_DENSITY))


def _add_relabelled(density: Frame, relabelled: int) -> Frame:
    """Return the bins and the total of a class with the calls of other labels in the total."""
    added = pl.when(pl.col("bin").is_null()).then(relabelled).otherwise(0)
    calls = [pl.col(name) + added for name in ("calls", "calls_p01", "calls_p99")]
    return density.with_columns(added.cast(pl.Int64).alias("relabelled"), *calls)


@dataclass(frozen=True)
class _Bins:
    """Bins of the scores of a class: their edges, and counts of detections in each."""

    edges: FloatArray
    detections: FloatArray
    reviewed: FloatArray
    confirmed: FloatArray

    def merge(self) -> "_Bins":
        """Return all bins as one."""
        return _Bins(
            self.edges[[0, -1]],
            self.detections.sum(keepdims=True),
            self.reviewed.sum(keepdims=True),
            self.confirmed.sum(keepdims=True),
        )

    def columns(self, share: FloatArray, low: FloatArray, high: FloatArray) -> Columns:
        """Return the columns of CALL_DENSITY for shares of calls and their intervals."""
        return {
            "lowest_score": self.edges[:-1].tolist(),
            "highest_score": self.edges[1:].tolist(),
            "detections": self.detections.tolist(),
            "reviewed": self.reviewed.tolist(),
            "confirmed": self.confirmed.tolist(),
            "share": share.tolist(),
            "share_p01": low.tolist(),
            "share_p99": high.tolist(),
            "calls": (share * self.detections).tolist(),
            "calls_p01": (low * self.detections).tolist(),
            "calls_p99": (high * self.detections).tolist(),
        }


def _estimate_class(
    label: str, scores: FloatArray, verdicts: Frame, bins: int, seed: int
) -> Frame:
    parts = _fill_bins(quantile_edges(scores, bins), scores, verdicts)
    rejected = parts.reviewed - parts.confirmed
    shares = stats.beta(parts.confirmed + PRIOR, rejected + PRIOR)
    low, high = shares.ppf(np.array(INTERVAL)[:, None] / 100)
    rows = parts.columns(shares.mean(), low, high)
    uniform = _uniform_samples(label, len(parts.detections), seed)
    calls = (shares.ppf(uniform) * parts.detections).sum(axis=1)
    total_low, total_high = np.percentile(calls / len(scores), INTERVAL)
    mean = shares.mean() @ parts.detections / len(scores)
    total = parts.merge().columns(
        np.array([mean]), np.array([total_low]), np.array([total_high])
    )
    numbers = [*range(1, len(parts.detections) + 1), None]
    columns = {name: [*rows[name], *total[name]] for name in rows}
    constants = {"label": label, "relabelled": 0}
    return make_frame(CALL_DENSITY, {"bin": numbers, **columns}, constants)


def _fill_bins(edges: FloatArray, scores: FloatArray, verdicts: Frame) -> _Bins:
    reviewed_scores = verdicts["score"].to_numpy()
    is_call = verdicts["confirmed"].to_numpy()
    return _Bins(
        edges,
        _count_per_bin(edges, scores),
        _count_per_bin(edges, reviewed_scores),
        _count_per_bin(edges, reviewed_scores[is_call]),
    )


def quantile_edges(scores: FloatArray, bins: int) -> FloatArray:
    """Return the scores between which bins lie; equal scores are in one bin.

    >>> quantile_edges(np.array([1.0, 2.0, 3.0, 4.0]), 2).tolist()
    [1.0, 2.5, 4.0]
    """
    edges = np.unique(np.quantile(scores, np.linspace(0, 1, bins + 1)))
    if len(edges) == 1:
        return np.repeat(edges, 2)
    return edges


def _count_per_bin(edges: FloatArray, scores: FloatArray) -> FloatArray:
    """Count scores per bin; those beyond the edges are in the first or last."""
    inner = edges[1:-1]
    number = np.searchsorted(inner, scores, side="right")
    return np.bincount(number, minlength=len(edges) - 1).astype(np.float64)


def _uniform_samples(label: str, bins: int, seed: int) -> FloatArray:
    """Return numbers in (0, 1), (SAMPLES, bins), that depend on the seed and the label only."""
    picks = np.empty((bins, SAMPLES), np.uint32)
    base = streams.make_stream(seed, "call density", streams.key(label))
    largest = 2**32 - 1
    streams.bootstrap_picks(base, np.arange(bins, dtype=np.uint64), largest, picks)
    return (picks.T + 0.5) / largest
