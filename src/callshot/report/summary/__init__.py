"""Results of a corpus → sentences computed from them, the most important first.

All sentences are about mAP, on the spread `total` where it was evaluated: what one labelled set
would score on other recordings is what a person needs. A difference is clear if its simultaneous
98 % interval excludes 0, see `context`; better than chance is by a permutation test. Otherwise
sentences give means, or count wins.
"""

from collections.abc import Mapping

from callshot.errors import printable
from callshot.records import CorpusResults
from callshot.report.licences import describe_licences
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
from callshot.report.summary.targets import describe_target

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
    describe_target,
    describe_excluded,
    describe_cautions,
    describe_not_compared,
    describe_repeated_folds,
    describe_intervals,
)


def write_summary(
    results: CorpusResults,
    target: float | None = None,
    licences: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the sentences on a corpus, the most important first.

    The first says that nothing is better than chance, if so; else whether training would have been
    better, if baselines were trained; else what to expect of a few examples. With a target, a mAP,
    one says how many examples it needs. The last gives the licences of the encoders' weights.
    """
    context = Context(results, target)
    sentences = []
    for describe in PARTS:
        sentences += [printable(sentence) for sentence in describe(context)]
    return [*sentences, *describe_licences(licences or {})]
