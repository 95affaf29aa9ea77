"""Results of a corpus → a headline, three cards, and sentences by the question they answer.

All sentences are about mAP, on the spread `total` where it was evaluated: what one labelled set
would score on other recordings is what a person needs. The share of right names has sentences of
its own. The first screen has one k; a sentence about another k says why. A difference is clear if
its simultaneous 98 % interval excludes 0, see `context`; better than chance is by a permutation
test. Otherwise sentences give means, or count wins. No sentence has more than 25 words, a quoted
label counting as one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from callshot.errors import printable
from callshot.records import CorpusResults
from callshot.report.methods import describe_licences
from callshot.report.summary.context import Context, Sentences
from callshot.report.summary.first_screen import (
    Card,
    Headline,
    write_cards,
    write_headline,
)
from callshot.report.summary.sentences import (
    describe_accuracy,
    describe_baselines,
    describe_budget,
    describe_cautions,
    describe_chance,
    describe_confusions,
    describe_excluded,
    describe_expectation,
    describe_intervals,
    describe_later_best,
    describe_next_best,
    describe_no_success,
    describe_not_compared,
    describe_other_classifiers,
    describe_random,
    describe_refinement,
    describe_repeated_folds,
    describe_saturation,
    describe_target,
    describe_training,
)

__all__ = ["Card", "Headline", "Summary", "write_summary"]

# In the order in which people ask: the name of a section of the page, and what answers it.
QUESTIONS: dict[str, tuple[Callable[[Context], Sentences], ...]] = {
    "encoder": (
        describe_no_success,
        describe_expectation,
        describe_accuracy,
        describe_next_best,
        describe_later_best,
        describe_chance,
        describe_random,
    ),
    "confused": (describe_confusions,),
    "labels": (describe_saturation, describe_budget, describe_target),
    "training": (
        describe_training,
        describe_baselines,
        describe_other_classifiers,
        describe_refinement,
    ),
    "certainty": (
        describe_cautions,
        describe_repeated_folds,
        describe_not_compared,
        describe_intervals,
    ),
    "left-out": (describe_excluded,),
}


@dataclass(frozen=True)
class Summary:
    """What a report says on a corpus.

    `answers` has paragraphs of a few sentences, by section.
    """

    headline: Headline
    cards: Sequence[Card]
    answers: Mapping[str, Sequence[str]]
    best: str

    @property
    def paragraphs(self) -> list[str]:
        """All paragraphs, in the order of the sections."""
        return [text for texts in self.answers.values() for text in texts]


def write_summary(
    results: CorpusResults,
    target: float | None = None,
    licences: Mapping[str, str] | None = None,
) -> Summary:
    """Return what a report says on a corpus, most important first.

    With a target, a mAP, the headline and a sentence say how many examples it needs. The last
    section gives the licences of the encoders' weights.
    """
    context = Context(results, target)
    answers: dict[str, list[str]] = {}
    for section, parts in QUESTIONS.items():
        paragraphs = [text for describe in parts for text in describe(context)]
        answers[section] = [printable(text) for text in paragraphs]
    answers["provenance"] = list(describe_licences(licences or {}))
    headline = write_headline(context)
    cards = []
    for card in write_cards(context):
        answer = printable(card.answer)
        cards.append(replace(card, answer=answer, text=printable(card.text)))
    return Summary(
        replace(
            headline,
            sentence=printable(headline.sentence),
            details=[printable(text) for text in headline.details],
        ),
        cards,
        answers,
        context.best,
    )
