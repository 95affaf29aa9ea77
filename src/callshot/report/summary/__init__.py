"""A chapter → what it says, in plain sentences computed from the results, the one that matters first.

A difference is called clear where its interval from the 1st to the 99th percentile leaves 0 (or chance) out, but only
where the interval is one: over 100 samples or more, up to k*, and not all alike. Beyond k* pools run out, and draws
that must be alike have no spread. Elsewhere means are told, and no more. All is about mAP, on the spread `shared` where
it was evaluated: that is one labelled set for all queries, as a person has it.
"""

from collections.abc import Callable, Iterator, Sequence

from callshot.errors import printable
from callshot.records import CorpusResults
from callshot.report.summary.baselines import describe_baselines
from callshot.report.summary.cautions import (
    say_cautions,
    say_intervals,
    say_left_out,
    say_not_compared,
)
from callshot.report.summary.classifiers import say_refinement, say_rules, say_training
from callshot.report.summary.context import Reading, open_reading
from callshot.report.summary.encoders import (
    say_budget,
    say_chance,
    say_expectation,
    say_floor,
    say_hopeless,
    say_later_leader,
    say_levelling,
    say_next,
)

PARTS: Sequence[Callable[[Reading], Iterator[str]]] = (
    say_hopeless,
    describe_baselines,
    say_training,
    say_expectation,
    say_next,
    say_later_leader,
    say_rules,
    say_refinement,
    say_levelling,
    say_chance,
    say_floor,
    say_budget,
    say_left_out,
    say_cautions,
    say_not_compared,
    say_intervals,
)


def write_summary(corpus_results: CorpusResults) -> list[str]:
    """Return what the results say, as sentences, the one that matters first.

    First comes whether training would have been better, on everything or on the same examples, where rivals were
    trained; else what to expect of a few examples; before both, that nothing is better than chance, where nothing is.
    """
    reading = open_reading(corpus_results)
    return [printable(sentence) for say in PARTS for sentence in say(reading)]
