"""A synthetic corpus to learn and test on: a seed and a scale → recordings with annotations.

Call types can be learnt from it, but not at a glance: seed 0 at scale 1, with the mean of 40 MFCCs,
gives mAP (shared) 0.39, 0.51 and 0.55 at k = 1, 5 and 20; chance is 0.15. The same seed gives the
same bytes on one machine; another version of NumPy, SciPy or libsndfile may give others.
"""

from callshot.corpus.synthetic.corpus import CorpusSummary, make_corpus, make_recording
from callshot.corpus.synthetic.plan import COUNTS, RARE, plan_corpus
from callshot.corpus.synthetic.sounds import RecordingPlan

__all__ = [
    "COUNTS",
    "RARE",
    "CorpusSummary",
    "RecordingPlan",
    "make_corpus",
    "make_recording",
    "plan_corpus",
]
