"""The columns of every data frame that callshot returns, and of the CSV file with the same name.

`metric` is a key of `records.METRICS`; `scoring` is `all` classes or `reduced` to categories;
`spread` says where the interval comes from; p01 … p99 are percentiles over its samples.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from callshot.spans import FloatArray, IntArray

Schema = Mapping[str, Any]
Frame = pl.DataFrame
Shots = Sequence[int]

TEXTS = (
    "annotated_label baseline by classifier clip clock corpus encoder how interval kind label "
    "labels metric name one other outcome picture predicted recording runner_up scoring segment "
    "source spread true why"
)
WHOLE_NUMBERS = (
    "annotated bin correct detected detections exemplars false_alarms first_k fold group hour k "
    "k_clear k_mean last_k misplaced new_exemplars number partition permutations relabelled "
    "reviewed step ties unreachable wrong_name"
)
TYPES: Schema = {
    **dict.fromkeys(TEXTS.split(), pl.String),
    **dict.fromkeys(WHOLE_NUMBERS.split(), pl.Int64),
    **dict.fromkeys(("clear", "complete", "is_lowest", "recommended"), pl.Boolean),
    "date": pl.Date,
}


def _columns(*parts: str | Iterable[str], **types: Any) -> Schema:
    """Return a schema of named columns, with types by `types`, by TYPES, or else floats."""
    schema = {}
    for part in parts:
        names = part.split() if isinstance(part, str) else part
        for name in names:
            usual = TYPES.get(name, pl.Float64)
            schema[name] = types.get(name, usual)
    return schema


CURVE_KEY = _columns("corpus encoder classifier scoring metric spread")
PERCENTILES = (1, 25, 50, 75, 99)
PERCENTILE_NAMES = ("p01", "p25", "p50", "p75", "p99")
SUMMARY = _columns("mean", PERCENTILE_NAMES)

# `chance`: of a random ranking, or of the same decisions for random queries
# `complete`: whether every class has k exemplars outside every fold
# `new_exemplars`: how many classes still have a k-th exemplar
CURVE = _columns(CURVE_KEY, "k", SUMMARY, "chance complete new_exemplars ties")
# One row per point of a curve; `value` holds its samples. `.explode("value")` gives one row each.
VALUES = _columns(CURVE_KEY, "k value", value=pl.List(pl.Float64))
PER_CLASS = _columns(CURVE_KEY, "k label mean p01 p99")
# `count` is the mean number of queries over draws. A decision for any label of a query counts as
# correct, in the row of that label; others are in the row of its centre label. `row_sum` is what
# the counts of a row sum to, `recall` is count / row_sum, so that a row sums to 1.
CONFUSION = _columns("encoder k true predicted count row_sum recall")
# Scores of a class's positives that equal another query's. The cost is the metric with log-odds
# minus the metric with the tied scores, on the same draws.
TIES = _columns("encoder spread k label ties share cost_map cost_auroc")
# `one` minus `other` over the same samples; `wins` is the share of them in which it is larger. From
# `low` to `high` is the 98 % interval of all pairs and all k up to k* at once; null beyond k*, or
# with too few samples. `clear`: 0 is outside. `interval` says what varies: `one-set`, the score of
# one labelled set, or `mean`, the mean over labelled sets, in rows with the spread `mean`. There,
# `recordings_factor` is about how many times as many recordings would make a difference clear.
DIFFERENCES = _columns(
    "corpus one other scoring metric spread interval k",
    SUMMARY,
    "wins samples low high clear recordings_factor",
    samples=pl.Int64,
)
# A permutation of labels over recordings, inside folds: `value` is the mean over the first shared
# draws, `permuted` the mean of the permutations, `p` the share of permutations, the true labels
# among them, that score at least as much.
CHANCE_TEST = _columns(
    "corpus encoder classifier metric k value permuted p permutations"
)
# The mean of mAP in each partition of the recordings into folds; partition 0 is the one of `curve`.
PARTITIONS = _columns("corpus encoder classifier spread partition k mean")
# Where the spread of mAP comes from: folds, labelled examples, queries, or their interactions.
SENSITIVITY = _columns("corpus encoder classifier k source sd share")
# mAP with each partition, labelled set or sample of recordings, averaged over the other two.
SENSITIVITY_MEANS = _columns("corpus encoder classifier k source number mean")
# Segments whose vector is also in another recording; equal ones share a group. In different folds
# they are a leak: a query may be among its own examples.
DUPLICATES = _columns("corpus encoder group segment recording label fold")
# What more exemplars are worth to a class. `value` is the mean at `k`, the last complete shot. A
# curve a − b/k gives the gain of one exemplar more, of twice as many, and the limit a; `error` is
# its RMSE. In the samples of `total`: the interval of `next_gain`, the share in which it is above
# 0 (`prob_gain`), and in which it is larger than the gain of every other class
# (`prob_largest_gain`). A class is `recommended` for more exemplars if it stands out.
BUDGET = _columns(
    "corpus encoder label metric exemplars k value next_gain double_gain limit "
    "error next_gain_p01 next_gain_p99 prob_gain prob_largest_gain recommended"
)
# How many exemplars per class reach a target: by the mean, and in 98 % of samples; null where no
# evaluated k does. `first_k` and `last_k` are the evaluated k up to k*, where there are any.
TARGETS = _columns(
    "corpus encoder classifier metric target k_mean k_clear first_k last_k "
    "last_mean last_share"
)
# What a classifier scored that was trained on all labelled data of each split. `encoder` is empty
# for one that reads audio. `how` describes what was chosen on the support sides. `samples` are what
# the trained model would score on other recordings, paired with the samples of `total`, p01 and
# p99 their percentiles. Without `total` there are none (NaN). `mean_samples` are paired with the
# samples of the mean. CSV files are without both.
BASELINES = _columns(
    "corpus encoder kind name scoring metric value p01 p99 how samples mean_samples",
    samples=pl.List(pl.Float64),
    mean_samples=pl.List(pl.Float64),
)
# Where one curve passes another: `k_mean` by the mean, `k_clear` from where the 98 % interval of
# the difference stays above 0; null where it does not. With labels = "all" the centroid passes a
# baseline trained on all labels; with labels = "k" a baseline trained at every k passes the
# centroid.
CROSSOVERS = _columns(
    "corpus encoder baseline labels scoring metric spread k_mean k_clear"
)
# Gradient steps from the centroid of the whole pool (step 0) to logistic regression (the last).
REFINEMENT = _columns("corpus encoder scoring metric step value temperature")
# Calls on recordings: detected ones, or annotations. `score` is larger for what is more certain.
# `probability` is how likely it is right, by verdicts on others, with an interval of 95 %,
# `distance` is that to the mean of the class, `runner_up` the label that was nearly chosen,
# `confirmed` what a listener said. Cells without a value are null.
# `clock`: when it begins, ISO 8601
EVENTS = _columns(
    "recording start_s end_s label score probability probability_low probability_high distance "
    "runner_up runner_up_score clock low_freq_hz high_freq_hz confirmed",
    confirmed=pl.Boolean,
)
# Clips of events: the files in the folder of clips, the span of the clip in the recording, and why
# the event was chosen. `confirmed` is for the verdict of a person.
CLIPS = _columns(
    "clip picture recording start_s end_s label score why confirmed clip_start_s "
    "clip_end_s",
    confirmed=pl.String,
)
# Events of a class that start in an hour of a day, and for how long there is a recording of it.
ACTIVITY = _columns("date hour label detections recorded_minutes")
# Scores of detections against annotations, per class; the row without a label is on all classes,
# its average precision is the mean over classes. `by` is "events" or "windows". p01 and p99 are
# percentiles over samples of recordings. False alarms are null where lengths are not known.
# `unreachable` counts calls that detections are too long for, by events. What was detected is
# `correct`, `wrong_name` (a call of another class), `misplaced` (a call of the class, but found
# already or not well enough) or among `false_alarms` (no annotated call).
DETECTION_METRICS = (
    "precision",
    "recall",
    "f1",
    "average_precision",
    "false_alarms_per_hour",
)
DETECTED = _columns("detected correct wrong_name misplaced false_alarms")
DETECTION_SCORES = _columns(
    "by label annotated unreachable",
    DETECTED,
    (
        f"{metric}{percentile}"
        for metric in DETECTION_METRICS
        for percentile in ("", "_p01", "_p99")
    ),
)
# One row per threshold: what detections with at least this score give.
PRECISION_RECALL = _columns(
    "by label threshold", DETECTED, "precision recall false_alarms_per_hour"
)
# The lowest threshold with at most `aim_per_hour` false alarms, null if there is none. `is_lowest`:
# all detections meet the aim, so a lower threshold may too. False alarms are counted by events,
# precision and recall are by `by`.
AIM_THRESHOLDS = _columns(
    "by label aim_per_hour threshold false_alarms_per_hour precision recall is_lowest"
)
# The outcome of every detection and annotation. `outcome`: correct, wrong_name, misplaced or
# false_alarm as in DETECTION_SCORES, missed, or unknown (a detection on an annotation whose label
# means unknown). `annotated_label` is the label of the call under a wrong name.
OUTCOMES = _columns("recording start_s end_s label score outcome annotated_label")
# How many detections are calls, from a few that were reviewed: per bin of the scores, and (`bin`
# null) in total. `share` is the mean of the posterior, `calls` is share times detections.
# `relabelled` counts detections of other labels that reviewers gave this label; they are in the
# calls of the total.
CALL_DENSITY = _columns(
    "label bin lowest_score highest_score detections reviewed confirmed relabelled "
    "share share_p01 share_p99 calls calls_p01 calls_p99",
    confirmed=pl.Int64,
)


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
    return frame.select(*schema).cast(pl.Schema(schema))


def concat_frames(frames: list[Frame], schema: Schema) -> Frame:
    """Concatenate frames of one schema, in order; the list may be empty."""
    return pl.concat([empty_frame(schema), *frames])


def summarise_samples(samples: FloatArray) -> dict[str, list[float]]:
    """Return the mean and the percentiles of each row of (rows, samples), as columns by name."""
    percentiles = _percentiles(samples).tolist()
    means = [float(row.mean()) for row in samples]
    return {"mean": means, **dict(zip(PERCENTILE_NAMES, percentiles, strict=True))}


def _percentiles(samples: FloatArray) -> FloatArray:
    """Return np.percentile(samples, PERCENTILES, axis=1); sorting is faster than partitioning."""
    last = samples.shape[1] - 1
    ordered = np.sort(samples, axis=1)
    shares = np.array(PERCENTILES) / 100
    position = shares * last  # in the ordered samples
    below = position.astype(np.int64)
    share = position - below
    above = np.minimum(below + 1, last)
    low = ordered[:, below]
    high = ordered[:, above]
    rise = high - low
    # As NumPy does, interpolate from the nearer of the two samples.
    from_low = low + rise * share
    from_high = high - rise * (1 - share)
    is_low_nearer = share < 0.5
    values = np.where(is_low_nearer, from_low, from_high)
    has_nan = np.isnan(ordered[:, -1])  # NaN is sorted to the end
    values[has_nan] = np.nan
    return np.asarray(values.T)


def values_frame(key: Mapping[str, str], k: IntArray, samples: FloatArray) -> Frame:
    """Return the samples of one curve, (shots, samples), as rows of the VALUES schema.

    `key` has the value of each column of CURVE_KEY, `k` that of each row.
    """
    dtype = pl.Array(pl.Float64, samples.shape[1])
    series = pl.Series("value", samples, dtype=dtype)
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
