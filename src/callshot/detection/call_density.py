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
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import stats

from callshot.detection.events import rename_recordings
from callshot.detection.matching import ANY_OVERLAP, find_partners
from callshot.errors import InputError
from callshot.fewshot.kernels import streams
from callshot.records import FloatArray
from callshot.records.frames import CALL_DENSITY, Frame, concat_frames, make_frame

SAME_S = 1e-6  # times that differ by less are the same
PRIOR = 0.5  # of calls and of others in each bin: Jeffreys'
SAMPLES = 10_000
INTERVAL = (1, 99)


@dataclass(frozen=True)
class Verdicts:
    """What reviewers said of detections.

    detections  those that were reviewed, with `confirmed`: whether they are calls of their label
    relabelled  how many calls of each label are among detections of other labels
    elsewhere   how many reviewed events are on no detection
    """

    detections: Frame
    relabelled: Counter[str]
    elsewhere: int


def find_verdicts(detections: Frame, reviewed: Frame) -> Verdicts:
    """Return the verdict on every detection that was reviewed.

    Rows of `reviewed` without a verdict in `confirmed` do not count.
    """
    rows = reviewed.filter(pl.col("confirmed").is_not_null())
    if rows.is_empty():
        raise InputError("reviewed: no row has yes or no in its column confirmed")
    rows = rename_recordings(rows, detections["recording"].unique())
    labels = detections["label"].to_list()
    spans = detections.select("start_s", "end_s").to_numpy()
    partners = find_partners(rows, detections, ANY_OVERLAP)
    is_call: dict[int, bool] = {}  # by the row of a detection
    new_labels = set()
    elsewhere = 0
    verdicts = rows.select("start_s", "end_s", "label", "confirmed").rows()
    for (*span, label, confirmed), near in zip(verdicts, partners, strict=True):
        # That it is no roar says nothing of a detection of another label.
        candidates = [one for one in near if confirmed or labels[one] == label]
        if not candidates:
            elsewhere += 1
            continue
        differences_s = np.abs(spans[candidates] - span)
        is_other = differences_s.max(axis=1) >= SAME_S
        has_other_label = [labels[one] != label for one in candidates]
        # Of equal ones the first, which fits best
        order = np.lexsort((has_other_label, is_other))
        best = candidates[order[0]]
        is_own = confirmed and label == labels[best]
        is_call[best] = is_call.get(best, False) or is_own
        if confirmed and not is_own:
            new_labels.add((best, label))
    if not is_call:
        raise InputError(
            f"reviewed: none of the {len(rows)} reviewed events is on one of the "
            f"{len(detections)} detections; give the detections that were reviewed"
        )
    reviewed_rows = sorted(is_call)
    confirmed_calls = pl.Series([is_call[row] for row in reviewed_rows])
    return Verdicts(
        detections=detections[reviewed_rows].with_columns(confirmed=confirmed_calls),
        relabelled=Counter(label for _, label in new_labels),
        elsewhere=elsewhere,
    )


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
        part = pl.DataFrame([{"label": label}], dict(CALL_DENSITY)).with_columns(
            pl.col("detections", "reviewed", "confirmed").fill_null(0),
            pl.col("calls", "calls_p01", "calls_p99").fill_null(0.0),
        )
        if len(scores) > 0:
            own = reviewed.filter(label=label)
            part = _estimate_class(label, scores, own, bins, seed)
        in_total = pl.col("bin").is_null()
        relabelled = pl.when(in_total).then(verdicts.relabelled[label]).otherwise(0)
        part = part.with_columns(
            pl.col("calls", "calls_p01", "calls_p99") + relabelled,
            relabelled=relabelled.cast(pl.Int64),
        )
        parts.append(part)
    return concat_frames(parts, CALL_DENSITY)


def _estimate_class(
    label: str, scores: FloatArray, verdicts: Frame, bins: int, seed: int
) -> Frame:
    """Return a row for each bin of the scores of a class, and one for all together."""
    edges = quantile_edges(scores, bins)
    reviewed_scores = verdicts["score"].to_numpy()
    scores_counted = {
        "detections": scores,
        "reviewed": reviewed_scores,
        "confirmed": reviewed_scores[verdicts["confirmed"].to_numpy()],
    }
    counts = {}
    for name, values in scores_counted.items():
        # Scores beyond the edges are in the first or last bin.
        number = np.searchsorted(edges[1:-1], values, side="right")
        in_bins = np.bincount(number, minlength=len(edges) - 1)
        counts[name] = in_bins.astype(np.float64)
    sizes = counts["detections"]
    rejected = counts["reviewed"] - counts["confirmed"]
    shares = stats.beta(counts["confirmed"] + PRIOR, rejected + PRIOR)
    quantiles = np.array(INTERVAL) / 100
    low, high = shares.ppf(quantiles[:, None])
    # Numbers in (0, 1), (SAMPLES, bins), that depend on the seed and the label only
    picks = np.empty((len(sizes), SAMPLES), np.uint32)
    key = streams.key(label)
    base = streams.make_stream(seed, "call density", key)
    largest = 2**32 - 1
    bin_numbers = np.arange(len(sizes), dtype=np.uint64)
    streams.bootstrap_picks(base, bin_numbers, largest, picks)
    uniform = (picks.T + 0.5) / largest
    calls = (shares.ppf(uniform) * sizes).sum(axis=1)
    total_low, total_high = np.percentile(calls / len(scores), INTERVAL)
    # The last row is on all bins together.
    columns = {
        "bin": [*range(1, len(sizes) + 1), None],
        "lowest_score": [*edges[:-1], edges[0]],
        "highest_score": [*edges[1:], edges[-1]],
    }
    for name, count in counts.items():
        columns[name] = [*count, count.sum()]
    means = shares.mean()
    estimates = {
        "": [*means, means @ sizes / len(scores)],
        "_p01": [*low, total_low],
        "_p99": [*high, total_high],
    }
    for suffix, of_bins in estimates.items():
        columns[f"share{suffix}"] = of_bins
        columns[f"calls{suffix}"] = of_bins * np.array(columns["detections"])
    return make_frame(CALL_DENSITY, columns, {"label": label, "relabelled": 0})


def quantile_edges(scores: FloatArray, bins: int) -> FloatArray:
    """Return the scores between which bins lie; equal scores are in one bin.

    >>> quantile_edges(np.array([1.0, 2.0, 3.0, 4.0]), 2).tolist()
    [1.0, 2.5, 4.0]
    """
    shares = np.linspace(0, 1, bins + 1)
    edges = np.unique(np.quantile(scores, shares))
    if len(edges) == 1:
        return np.repeat(edges, 2)
    return edges
