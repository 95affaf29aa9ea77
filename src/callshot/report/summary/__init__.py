"""Results of a corpus → a headline, three cards, and sentences by the question they answer.

All are about mAP, on the spread `total` where it was evaluated, and the first screen about one k.
A difference is clear if its simultaneous 98 % interval excludes 0. No sentence has more than 25
words, a quoted label counting as one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from callshot.errors import printable
from callshot.records import CorpusResults
from callshot.report.encoder_names import name_encoders, with_names
from callshot.report.summary.context import Context
from callshot.report.summary.sentences import (
    QUESTIONS,
    Card,
    Headline,
    describe_licences,
    write_cards,
    write_headline,
)

__all__ = ["Card", "Headline", "Summary", "write_summary"]


@dataclass(frozen=True)
class Summary:
    """What a report says on a corpus; `answers` are paragraphs by section."""

    headline: Headline
    cards: Sequence[Card]
    answers: Mapping[str, Sequence[str]]
    best: str


def write_summary(
    results: CorpusResults,
    target: float | None = None,
    licences: Mapping[str, str] = {},
) -> Summary:
    """Return what a report says on a corpus; `licences` are those of the encoders' weights."""
    names = name_encoders(results.evaluation.encoders)
    typed_names = {name: encoder for encoder, name in names.items()}
    context = Context(with_names(results), target, typed_names)
    answers = {
        section: list(map(printable, describe(context)))
        for section, describe in QUESTIONS.items()
    }
    named_licences = {names.get(name, name): one for name, one in licences.items()}
    answers["provenance"] = list(describe_licences(named_licences))
    headline = write_headline(context)
    return Summary(headline, write_cards(context), answers, context.best)
