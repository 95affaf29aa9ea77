"""The columns of every data frame that callshot returns, and of the CSV file with the same name.

A frame is a `polars.DataFrame`; `.to_pandas()` converts it where pandas is installed. Columns that
several frames share:

corpus, encoder     whose segments, and which frozen model made the vectors
classifier          centroid, cosine, …, or logistic for logistic regression trained at every k
scoring             `all` classes, or `reduced` to categories
metric              map, auroc, accuracy or balanced_accuracy
spread              where the interval comes from: per-query, shared or total
k                   exemplars per class
p01 … p99           percentiles over the samples of the spread
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from callshot.records.embeddings import FloatArray, IntArray

Schema = Mapping[str, Any]
Frame = pl.DataFrame
Shots = Sequence[int]

CURVE_KEY: Schema = dict.fromkeys(
    ("corpus", "encoder", "classifier", "scoring", "metric", "spread"), pl.String
)
PERCENTILES = (1, 25, 50, 75, 99)
PERCENTILE_NAMES = ("p01", "p25", "p50", "p75", "p99")
SUMMARY: Schema = dict.fromkeys(("mean", *PERCENTILE_NAMES), pl.Float64)

CURVE: Schema = {
    **CURVE_KEY,
    "k": pl.Int64,
    **SUMMARY,
    "chance": pl.Float64,  # of a random ranking, or of the same decisions for random queries
    "complete": pl.Boolean,  # whether every class has k exemplars outside every fold
    "new_exemplars": pl.Int64,  # how many classes still have a k-th exemplar
    "ties": pl.Int64,
}
# One row per point of a curve; `value` holds its samples. `.explode("value")` gives one row each.
VALUES: Schema = {**CURVE_KEY, "k": pl.Int64, "value": pl.List(pl.Float64)}
PER_CLASS: Schema = {
    **CURVE_KEY,
    "k": pl.Int64,
    "label": pl.String,
    "mean": pl.Float64,
    "p01": pl.Float64,
    "p99": pl.Float64,
}
# `count` is the mean number of queries over draws. A decision for any label of a query counts as
# correct, in the row of that label; others are in the row of its centre label. `row_sum` is what
# the counts of a row sum to, `recall` is count / row_sum, so that a row sums to 1.
CONFUSION: Schema = {
    "encoder": pl.String,
    "k": pl.Int64,
    "true": pl.String,
    "predicted": pl.String,
    "count": pl.Float64,
    "row_sum": pl.Float64,
    "recall": pl.Float64,
}
# Scores of a class's positives that equal another query's. The cost is the metric with log-odds
# minus the metric with the tied scores, on the same draws.
TIES: Schema = {
    "encoder": pl.String,
    "spread": pl.String,
    "k": pl.Int64,
    "label": pl.String,
    "ties": pl.Int64,
    "share": pl.Float64,
    "cost_map": pl.Float64,
    "cost_auroc": pl.Float64,
}
# `one` minus `other` over the same samples; `wins` is the share of them in which it is larger. From
# `low` to `high` is the 98 % interval of all pairs and all k up to k* at once; null beyond k*, or
# with too few samples. `clear`: 0 is outside.
DIFFERENCES: Schema = {
    "corpus": pl.String,
    "one": pl.String,
    "other": pl.String,
    "scoring": pl.String,
    "metric": pl.String,
    "spread": pl.String,
    "k": pl.Int64,
    **SUMMARY,
    "wins": pl.Float64,
    "samples": pl.Int64,
    "low": pl.Float64,
    "high": pl.Float64,
    "clear": pl.Boolean,
}
# A permutation of labels over recordings, inside folds: `value` is the mean over the first shared
# draws, `permuted` the mean of the permutations, `p` the share of permutations, the true labels
# among them, that score at least as much.
CHANCE_TEST: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "classifier": pl.String,
    "metric": pl.String,
    "k": pl.Int64,
    "value": pl.Float64,
    "permuted": pl.Float64,
    "p": pl.Float64,
    "permutations": pl.Int64,
}
# The mean of mAP in each partition of the recordings into folds; partition 0 is that of `curve`.
PARTITIONS: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "classifier": pl.String,
    "spread": pl.String,
    "partition": pl.Int64,
    "k": pl.Int64,
    "mean": pl.Float64,
}
# Where the spread of mAP comes from: folds, labelled examples, queries, or their interactions.
SENSITIVITY: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "classifier": pl.String,
    "k": pl.Int64,
    "source": pl.String,
    "sd": pl.Float64,
    "share": pl.Float64,
}
# mAP with each partition, labelled set or sample of recordings, averaged over the other two.
SENSITIVITY_MEANS: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "classifier": pl.String,
    "k": pl.Int64,
    "source": pl.String,
    "number": pl.Int64,
    "mean": pl.Float64,
}
# Segments whose vector is also in another recording; equal ones share a group. In different folds
# they are a leak: a query may be among its own examples.
DUPLICATES: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "group": pl.Int64,
    "segment": pl.String,
    "recording": pl.String,
    "label": pl.String,
    "fold": pl.Int64,
}
# What more exemplars are worth to a class. `value` is the mean at `k`, the last complete shot. A
# curve a − b/k gives the gain of one exemplar more, of twice as many, and the limit a; `error` is
# its RMSE. In the samples of `total`: the interval of `next_gain`, the share in which it is above
# 0 (`prob_gain`), and in which it is larger than that of every other class (`prob_largest_gain`).
# A class is `recommended` for more exemplars if it stands out.
BUDGET: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "label": pl.String,
    "metric": pl.String,
    "exemplars": pl.Int64,
    "k": pl.Int64,
    "value": pl.Float64,
    "next_gain": pl.Float64,
    "double_gain": pl.Float64,
    "limit": pl.Float64,
    "error": pl.Float64,
    "next_gain_p01": pl.Float64,
    "next_gain_p99": pl.Float64,
    "prob_gain": pl.Float64,
    "prob_largest_gain": pl.Float64,
    "recommended": pl.Boolean,
}
# How many exemplars per class reach a target: by the mean, and in 98 % of samples; null where no
# evaluated k does. `first_k` and `last_k` are the evaluated k up to k*, where there are any.
TARGETS: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "classifier": pl.String,
    "metric": pl.String,
    "target": pl.Float64,
    "k_mean": pl.Int64,
    "k_clear": pl.Int64,
    "first_k": pl.Int64,
    "last_k": pl.Int64,
    "last_mean": pl.Float64,
    "last_share": pl.Float64,
}
# What a classifier scored that was trained on all labelled data of each split. `encoder` is empty
# for one that reads audio. `how` describes what was chosen on the support sides. `samples` are what
# the trained model would score on other recordings, paired with the samples of `total`, p01 and
# p99 their percentiles. Without `total` there are none (NaN). CSV files are without `samples`.
BASELINES: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "kind": pl.String,
    "name": pl.String,
    "scoring": pl.String,
    "metric": pl.String,
    "value": pl.Float64,
    "p01": pl.Float64,
    "p99": pl.Float64,
    "how": pl.String,
    "samples": pl.List(pl.Float64),
}
# Where one curve passes another: `k_mean` by the mean, `k_clear` from where the 98 % interval of
# the difference stays above 0; null where it does not. With labels = "all" the centroid passes a
# baseline trained on all labels; with labels = "k" a baseline trained at every k passes the
# centroid.
CROSSOVERS: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "baseline": pl.String,
    "labels": pl.String,
    "scoring": pl.String,
    "metric": pl.String,
    "spread": pl.String,
    "k_mean": pl.Int64,
    "k_clear": pl.Int64,
}
# Gradient steps from the centroid of the whole pool (step 0) to logistic regression (the last).
REFINEMENT: Schema = {
    "corpus": pl.String,
    "encoder": pl.String,
    "scoring": pl.String,
    "metric": pl.String,
    "step": pl.Int64,
    "value": pl.Float64,
    "temperature": pl.Float64,
}
# Calls on recordings: detected ones, or annotations. `score` is larger for what is more certain.
# `distance` is that to the mean of the class, `runner_up` the label that was nearly chosen,
# `confirmed` what a listener said. Cells without a value are null.
EVENTS: Schema = {
    "recording": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "label": pl.String,
    "score": pl.Float64,
    "distance": pl.Float64,
    "runner_up": pl.String,
    "runner_up_score": pl.Float64,
    "clock": pl.String,  # when it begins, ISO 8601
    "low_freq_hz": pl.Float64,
    "high_freq_hz": pl.Float64,
    "confirmed": pl.Boolean,
}
# Clips of events: the files in the folder of clips, the span of the clip in the recording, and why
# the event was chosen. `confirmed` is for the verdict of a person.
CLIPS: Schema = {
    "clip": pl.String,
    "picture": pl.String,
    "recording": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "label": pl.String,
    "score": pl.Float64,
    "why": pl.String,
    "confirmed": pl.String,
    "clip_start_s": pl.Float64,
    "clip_end_s": pl.Float64,
}
# Events of a class that start in an hour of a day, and for how long there is a recording of it.
ACTIVITY: Schema = {
    "date": pl.Date,
    "hour": pl.Int64,
    "label": pl.String,
    "detections": pl.Int64,
    "recorded_minutes": pl.Float64,
}
# Scores of detections against annotations, per class; the row without a label is on all classes,
# its average precision is the mean over classes. `by` is "events" or "windows". p01 and p99 are
# percentiles over samples of recordings. False alarms are null where lengths are not known.
# `unreachable` counts calls that are too short for the IoU, by events. What was detected is
# `correct`, `wrong_name` (a call of another class), `misplaced` (a call of the class, but found
# already or not well enough) or among `false_alarms` (no annotated call).
DETECTION_METRICS = (
    "precision",
    "recall",
    "f1",
    "average_precision",
    "false_alarms_per_hour",
)
DETECTED: Schema = {
    "detected": pl.Int64,
    "correct": pl.Int64,
    "wrong_name": pl.Int64,
    "misplaced": pl.Int64,
    "false_alarms": pl.Int64,
}
DETECTION_SCORES: Schema = {
    "by": pl.String,
    "label": pl.String,
    "annotated": pl.Int64,
    "unreachable": pl.Int64,
    **DETECTED,
    **{
        f"{metric}{percentile}": pl.Float64
        for metric in DETECTION_METRICS
        for percentile in ("", "_p01", "_p99")
    },
}
# One row per threshold: what detections with at least this score give.
PRECISION_RECALL: Schema = {
    "by": pl.String,
    "label": pl.String,
    "threshold": pl.Float64,
    **DETECTED,
    "precision": pl.Float64,
    "recall": pl.Float64,
    "false_alarms_per_hour": pl.Float64,
}
# The lowest threshold with at most `aim_per_hour` false alarms, null if there is none. `is_lowest`:
# all detections meet the aim, so a lower threshold may too. False alarms are counted by events,
# precision and recall are by `by`.
AIM_THRESHOLDS: Schema = {
    "by": pl.String,
    "label": pl.String,
    "aim_per_hour": pl.Float64,
    "threshold": pl.Float64,
    "false_alarms_per_hour": pl.Float64,
    "precision": pl.Float64,
    "recall": pl.Float64,
    "is_lowest": pl.Boolean,
}
# What became of every detection and annotation. `outcome`: correct, wrong_name, misplaced or
# false_alarm as in DETECTION_SCORES, missed, or unknown (a detection on an annotation whose label
# means that nobody knows). `annotated_label` is the label of the call under a wrong name.
OUTCOMES: Schema = {
    "recording": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "label": pl.String,
    "score": pl.Float64,
    "outcome": pl.String,
    "annotated_label": pl.String,
}
# How many detections are calls, from a few that were reviewed: per bin of the scores, and (`bin`
# null) in total. `share` is the mean of the posterior, `calls` is share times detections.
# `relabelled` counts detections of other labels that reviewers gave this label; they are in the
# calls of the total.
CALL_DENSITY: Schema = {
    "label": pl.String,
    "bin": pl.Int64,
    "lowest_score": pl.Float64,
    "highest_score": pl.Float64,
    "detections": pl.Int64,
    "reviewed": pl.Int64,
    "confirmed": pl.Int64,
    "relabelled": pl.Int64,
    "share": pl.Float64,
    "share_p01": pl.Float64,
    "share_p99": pl.Float64,
    "calls": pl.Float64,
    "calls_p01": pl.Float64,
    "calls_p99": pl.Float64,
}


def empty_frame(schema: Schema) -> Frame:
    """Return a frame without rows."""
    return pl.DataFrame(schema=dict(schema))


def empty_default(schema: Schema) -> Any:
    """Return a field of a dataclass that is a frame without rows by default."""
    return field(default_factory=partial(empty_frame, schema))


def make_frame(
    schema: Schema, columns: Mapping[str, Any], constants: Mapping[str, Any]
) -> Frame:
    """Return a frame of a schema from columns, and from values that are the same in every row."""
    literals = {name: pl.lit(value) for name, value in constants.items()}
    frame = pl.DataFrame(columns).with_columns(**literals)
    casts = [pl.col(name).cast(dtype) for name, dtype in schema.items()]
    return frame.select(casts)


def concat_frames(frames: list[Frame], schema: Schema) -> Frame:
    """Return the rows of several frames of one schema, in order; none is fine."""
    return pl.concat([empty_frame(schema), *frames])


def _percentiles(ascending: FloatArray) -> FloatArray:
    """Return the percentiles of sorted rows, the bits of `np.percentile`, which is slower."""
    last = ascending.shape[1] - 1
    place = last * (np.array(PERCENTILES) / 100)
    below = np.floor(place).astype(np.int64)
    share = (place - below)[:, None]
    low = ascending[:, below].T
    high = ascending[:, np.minimum(below + 1, last)].T
    step = high - low
    percentiles = np.where(share >= 0.5, high - step * (1 - share), low + step * share)
    return np.where(
        np.isnan(ascending[:, -1]), np.nan, percentiles
    )  # NaN is sorted last


def summarise_samples(samples: FloatArray) -> dict[str, list[float]]:
    """Return the mean and the percentiles of each row of samples, as columns."""
    percentiles = _percentiles(np.sort(samples, axis=1))
    columns = {"mean": [float(row.mean()) for row in samples]}
    columns.update(zip(PERCENTILE_NAMES, percentiles.tolist(), strict=True))
    return columns


def values_frame(key: Mapping[str, str], k: IntArray, samples: FloatArray) -> Frame:
    """Return the samples (shots, samples) of one curve as rows of the VALUES schema.

    >>> key = {name: name for name in CURVE_KEY}
    >>> frame = values_frame(key, np.array([1, 2]), np.array([[0.5, 0.7], [0.6, 0.8]]))
    >>> frame["k"].to_list(), frame["value"].to_list()
    ([1, 2], [[0.5, 0.7], [0.6, 0.8]])
    """
    series = pl.Series("value", samples, dtype=pl.Array(pl.Float64, samples.shape[1]))
    return make_frame(VALUES, {"k": k, "value": series}, key)


def unique_values(frame: Frame, column: str) -> list[Any]:
    """Return the different values of a column, in the order of the frame."""
    return frame[column].unique(maintain_order=True).to_list()


def split_curves(values: Frame) -> list[Frame]:
    """Return the rows of each curve, in the order of the frame."""
    return values.partition_by(list(CURVE_KEY), maintain_order=True)


def value_matrix(values: Frame) -> FloatArray:
    """Return the samples of one curve, (shots, samples), from its rows of the VALUES schema."""
    samples = values["value"].explode().to_numpy()
    return np.asarray(samples, np.float64).reshape(len(values), -1)
