"""Results of a corpus → the curves and samples of all its classifiers, and what people call them.

The reference is the classifier of `results.evaluation`. `results.others` has the other classifiers
without training, and baselines trained at every k.
"""

from collections.abc import Iterator

import polars as pl

from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.records import CorpusResults, Evaluation
from callshot.records.frames import Frame, split_curves

NAMES = {"cl2n": "CL2N", "logistic": "logistic at k"}
DESCRIPTIONS = {
    "logistic": "logistic regression, trained on the same k exemplars of every class"
}


def classifier_name(name: str) -> str:
    """Return the name of a classifier in tables and figures.

    >>> classifier_name("cosine"), classifier_name("logistic")
    ('cosine', 'logistic at k')
    """
    return NAMES.get(name, name)


def describe_classifier(name: str) -> str:
    """Return what a classifier does.

    >>> describe_classifier("medoid")
    'squared distance to the most central exemplar'
    """
    if is_trained(name):
        return DESCRIPTIONS.get(name, "trained at every k")
    return CLASSIFIERS[name].description


def is_trained(name: str) -> bool:
    """Return whether a classifier is a baseline, trained at every k.

    >>> is_trained("logistic"), is_trained("cosine")
    (True, False)
    """
    return name not in CLASSIFIERS


def main_spread(evaluation: Evaluation) -> str:
    """Return the spread that a summary uses: `shared` where evaluated, else the first.

    One labelled set for all queries is what a person has.
    """
    spreads = evaluation.curve["spread"]
    return "shared" if "shared" in spreads else str(spreads[0])


def all_curves(results: CorpusResults) -> Frame:
    """Return the curves of every classifier, those of the reference first."""
    if results.others is None:
        return results.evaluation.curve
    return pl.concat([results.evaluation.curve, results.others.curve])


def all_values(results: CorpusResults) -> Frame:
    """Return the samples of every classifier, those of the reference first."""
    if results.others is None:
        return results.evaluation.values
    return pl.concat([results.evaluation.values, results.others.values])


def list_classifiers(results: CorpusResults) -> list[str]:
    """Return the classifiers of a corpus: the reference first, trained ones last."""
    names = all_curves(results)["classifier"].unique(maintain_order=True)
    return sorted(names, key=is_trained)


def paired_values(results: CorpusResults, spread: str) -> Iterator[tuple[Frame, Frame]]:
    """Yield the samples of mAP of every other classifier, and the reference's with its encoder."""
    if results.others is None:
        return
    curve = {"spread": spread, "metric": "map", "scoring": "all"}
    reference = results.evaluation.values.filter(**curve)
    for values in split_curves(results.others.values.filter(**curve)):
        reference_values = reference.filter(encoder=values["encoder"][0])
        if not reference_values.is_empty():
            yield values, reference_values
