"""What packages hand to each other.

Recording          one audio file
Reject             a row or a file that was left out, and why
Segmentation       all of these, for a corpus
Folds              the fold of each segment, and how folds were made
ClassCount         one class: its exemplars, its complete shots, whether it is eligible
Episode            one query against one draw
Inspection         what a folder holds, before anything is decided
Evaluation         the result of the protocol; its tables are data frames (see `records.frames`)
TransferEvaluation the same with examples from another corpus than the queries
CorpusResults      everything that one corpus's part of a report is made from
"""

from callshot.records.evaluation import (
    ClassCount,
    CorpusResults,
    CorpusStats,
    DurationStats,
    Episode,
    Evaluation,
    Folds,
    Inspection,
    Recording,
    Reject,
    Segmentation,
    TransferEvaluation,
)
from callshot.records.terms import (
    BASELINE_KINDS,
    CLASS_METRICS,
    DECISION_METRICS,
    FAILURES,
    METRIC_NAMES,
    METRICS,
    RANKING_METRICS,
    SPREADS,
    STATES,
    Finding,
    Progress,
    no_progress,
    reference_classifier,
    scale_progress,
)
from callshot.spans import COMMON_FOLD, FloatArray, IntArray, given_folds, number_folds

__all__ = [
    "BASELINE_KINDS",
    "CLASS_METRICS",
    "COMMON_FOLD",
    "DECISION_METRICS",
    "FAILURES",
    "METRICS",
    "METRIC_NAMES",
    "RANKING_METRICS",
    "SPREADS",
    "STATES",
    "ClassCount",
    "CorpusResults",
    "CorpusStats",
    "DurationStats",
    "Episode",
    "Evaluation",
    "Finding",
    "FloatArray",
    "Folds",
    "Inspection",
    "IntArray",
    "Progress",
    "Recording",
    "Reject",
    "Segmentation",
    "TransferEvaluation",
    "given_folds",
    "no_progress",
    "number_folds",
    "reference_classifier",
    "scale_progress",
]
