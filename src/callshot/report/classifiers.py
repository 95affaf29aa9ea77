"""A chapter → the classifiers beside its reference: other rules without training, and rivals trained at every k."""

from collections.abc import Iterator

from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.records import CorpusResults, Curve, Values

NAMES = {"cl2n": "CL2N", "logistic": "logistic at k"}
TOLD = {"logistic": "logistic regression, trained on the same k exemplars of every class"}


def rule_name(classifier: str) -> str:
    """Return how tables and figures call a classifier.

    >>> rule_name("cosine"), rule_name("logistic")
    ('cosine', 'logistic at k')
    """
    return NAMES.get(classifier, classifier)


def rule_told(classifier: str) -> str:
    """Return what a classifier does, in words.

    >>> rule_told("medoid")
    'squared distance to the most central exemplar'
    """
    return (
        CLASSIFIERS[classifier].description
        if classifier in CLASSIFIERS
        else TOLD.get(classifier, "trained at every k")
    )


def is_trained(classifier: str) -> bool:
    """Tell whether a classifier is a rival, trained at every k.

    >>> is_trained("logistic"), is_trained("cosine")
    (True, False)
    """
    return classifier not in CLASSIFIERS


def every_curve(corpus_results: CorpusResults) -> list[Curve]:
    """Return the points of every classifier, those of the reference first."""
    return [
        *corpus_results.evaluation.curve,
        *(corpus_results.others.curve if corpus_results.others else ()),
    ]


def rules_of(corpus_results: CorpusResults) -> list[str]:
    """Return the classifiers of a chapter, the reference first, those that are trained last."""
    there = dict.fromkeys(c.classifier for c in every_curve(corpus_results))
    return sorted(there, key=is_trained)


def samples_of(corpus_results: CorpusResults, spread: str) -> dict[str, int]:
    """Return how many samples of a spread each classifier has."""
    return {v.classifier: v.value.shape[1] for v in _values(corpus_results) if v.spread == spread}


def beside(
    corpus_results: CorpusResults, spread: str, metric: str = "map", scoring: str = "all"
) -> Iterator[tuple[Values, Values]]:
    """Yield the values of every other classifier, each with those of the reference on the same encoder."""
    own = {
        v.encoder: v
        for v in corpus_results.evaluation.values
        if (v.spread, v.metric, v.scoring) == (spread, metric, scoring)
    }
    for v in corpus_results.others.values if corpus_results.others else ():
        if (v.spread, v.metric, v.scoring) == (spread, metric, scoring) and v.encoder in own:
            yield v, own[v.encoder]


def _values(corpus_results: CorpusResults) -> Iterator[Values]:
    yield from corpus_results.evaluation.values
    yield from corpus_results.others.values if corpus_results.others else ()
