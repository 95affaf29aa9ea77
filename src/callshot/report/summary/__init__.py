"""Results of a corpus → sentences computed from them, the most important first.

All sentences are about mAP, on the spread `shared` where it was evaluated: one labelled set for all
queries is what a person has. A difference is clear if its 98 % interval excludes 0 (or chance), and
only where that interval is reliable, see `context`. Otherwise sentences give means only.
"""

from callshot.errors import printable
from callshot.records import CorpusResults
from callshot.report.summary.cautions import (
    describe_cautions,
    describe_excluded,
    describe_intervals,
    describe_not_compared,
    describe_repeated_folds,
)
from callshot.report.summary.comparisons import (
    describe_baselines,
    describe_other_classifiers,
    describe_refinement,
    describe_training,
)
from callshot.report.summary.context import Context
from callshot.report.summary.encoders import (
    describe_accuracy,
    describe_budget,
    describe_chance,
    describe_expectation,
    describe_later_best,
    describe_next_best,
    describe_no_success,
    describe_random,
    describe_saturation,
)

PARTS = (
    describe_no_success,
    describe_baselines,
    describe_training,
    describe_expectation,
    describe_accuracy,
    describe_next_best,
    describe_later_best,
    describe_other_classifiers,
    describe_refinement,
    describe_saturation,
    describe_chance,
    describe_random,
    describe_budget,
    describe_excluded,
    describe_cautions,
    describe_not_compared,
    describe_repeated_folds,
    describe_intervals,
)


def write_summary(results: CorpusResults) -> list[str]:
    """Return the sentences on a corpus, the most important first.

    The first says that nothing is better than chance, if so; else whether training would have been
    better, if baselines were trained; else what to expect of a few examples.
    """
    context = Context(results)
    sentences = []
    for describe in PARTS:
        sentences += [printable(sentence) for sentence in describe(context)]
    return sentences
