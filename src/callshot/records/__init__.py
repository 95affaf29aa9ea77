"""The nouns: what the rooms hand to each other.

Recording    one audio file
Annotation   a label on a span of a recording, as an annotation file has it
Call         an annotation in its place
Segment      a span that carries one label, and how its audio is to be read
Reject       a row or a file that was left out, and why
Segmentation all of that, for a corpus
Embeddings   what an encoder made of the segments of a corpus
EncoderState what an encoder needs before it runs
Folds        which fold each segment is in, and how that came about
ClassCount   one class: its exemplars, how far it is complete, and whether it is evaluated
Episode      one query against one draw, told whole
Inspection   what a folder holds, before anything is decided
Curve        one point of a k-shot curve, with ClassCurve, Values, Confusion and Ties behind it
Evaluation   all of that, for every encoder
Rival        what a trained classifier scored, with Difference, Crossing, Refined and Worth: how it compares
Chapter      everything that one corpus's part of a report is made from, with Facts and Lengths
"""

from callshot.records.corpus_results import (
    Baseline,
    BudgetRow,
    CorpusResults,
    CorpusStats,
    Crossover,
    Difference,
    DurationStats,
    RefinementStep,
)
from callshot.records.embeddings import Embeddings, EncoderStatus, FloatArray, IntArray
from callshot.records.recordings import (
    Annotation,
    Call,
    Cell,
    Recording,
    Reject,
    Segment,
    Segmentation,
    Span,
    name_segments,
)
from callshot.records.results import (
    ClassCount,
    ClassCurve,
    Confusion,
    Curve,
    Episode,
    Evaluation,
    Folds,
    Inspection,
    Ties,
    Values,
)
from callshot.records.terms import (
    BASELINE_KINDS,
    COMMON_FOLD,
    METRICS,
    RANKING_METRICS,
    SPREADS,
    Progress,
    no_progress,
)

__all__ = [
    "Annotation",
    "BASELINE_KINDS",
    "Baseline",
    "BudgetRow",
    "COMMON_FOLD",
    "Call",
    "Cell",
    "ClassCount",
    "ClassCurve",
    "Confusion",
    "CorpusResults",
    "CorpusStats",
    "Crossover",
    "Curve",
    "Difference",
    "DurationStats",
    "Embeddings",
    "EncoderStatus",
    "Episode",
    "Evaluation",
    "FloatArray",
    "Folds",
    "Inspection",
    "IntArray",
    "METRICS",
    "Progress",
    "RANKING_METRICS",
    "Recording",
    "RefinementStep",
    "Reject",
    "SPREADS",
    "Segment",
    "Segmentation",
    "Span",
    "Ties",
    "Values",
    "name_segments",
    "no_progress",
]
