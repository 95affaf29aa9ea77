"""Results of a corpus → the curves and samples of all its classifiers, and what people call them.

The reference is the classifier of `results.evaluation`. `results.other_classifiers` has the
others without training, and baselines trained at every k.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import polars as pl

from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.records import COMMON_FOLD, CorpusResults, Evaluation
from callshot.records.frames import Frame
from callshot.records.terms import MEAN, comparison_spread, preferred_spread

FEW_SHOTS = 5  # the largest k that counts as a few examples
NAMES = {"cl2n": "CL2N", "root-cl2n": "root CL2N", "logistic": "logistic at k"}
SPREAD_NOTES = {
    "per-query": "the paper's, over bootstrap samples",
    "shared": "the choice of labelled examples",
    "total": "one labelled set on other recordings",
    MEAN: "the mean over labelled sets, on other recordings",
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
        return "logistic regression, trained on the same k exemplars of every class"
    return CLASSIFIERS[name].description


def is_trained(name: str) -> bool:
    """Return whether a classifier is a baseline, trained at every k.

    >>> is_trained("logistic"), is_trained("cosine")
    (True, False)
    """
    return name not in CLASSIFIERS


def reads_encoder(encoder: str) -> pl.Expr:
    """Return an expression: whether a baseline read this encoder, or audio (encoder "")."""
    return pl.col("encoder").is_in(["", encoder])


def largest_shot(shots: Iterable[int], most: int) -> int:
    """Return the largest evaluated shot up to `most`, or the smallest if all are larger.

    >>> largest_shot((1, 5, 20), 4), largest_shot((8, 20), 4)
    (1, 8)
    """
    evaluated = set(shots)
    return max((k for k in evaluated if k <= most), default=min(evaluated))


def main_spread(evaluation: Evaluation) -> str:
    """Return the spread (what intervals are over) of a summary: `total` if known, else `shared`."""
    return preferred_spread(evaluation.curve["spread"])


def list_queries(evaluation: Evaluation) -> list[str]:
    """Return the segments of an evaluation that are queries of a class."""
    eligible = evaluation.eligible_labels
    fold = pl.Series("fold", evaluation.folds.fold)
    queries = evaluation.segments.frame.with_columns(fold).filter(
        pl.col("label").is_in(eligible), pl.col("fold") != COMMON_FOLD
    )
    return queries["segment"].to_list()


def common_spread(results: CorpusResults) -> str:
    """Return the spread (what intervals are over) that all classifiers have, or the main one."""
    curves = join_classifiers(results).curve.partition_by("classifier")
    spreads_by_classifier = [set(curve["spread"]) for curve in curves]
    shared = set.intersection(*spreads_by_classifier)
    return preferred_spread(shared or {main_spread(results.evaluation)})


def join_classifiers(results: CorpusResults) -> Evaluation:
    """Return an evaluation with the curves, values and classes of all classifiers."""
    evaluation = results.evaluation
    others = results.other_classifiers
    if others is None:
        return evaluation
    return replace(
        evaluation,
        curve=pl.concat([evaluation.curve, others.curve]),
        values=pl.concat([evaluation.values, others.values]),
        per_class=pl.concat([evaluation.per_class, others.per_class]),
    )


def list_classifiers(results: CorpusResults) -> list[str]:
    """Return the classifiers of a corpus: the reference first, trained ones last."""
    names = join_classifiers(results).curve["classifier"].unique(maintain_order=True)
    return sorted(names, key=is_trained)


def paired_values(results: CorpusResults) -> Iterator[tuple[Frame, Frame]]:
    """Yield two frames for every encoder and classifier other than the reference.

    They are the samples of mAP of this classifier, and of the reference with the same encoder, both
    of the mean over labelled sets if it is known, else in the preferred one of their spreads.
    """
    if results.other_classifiers is None:
        return
    reference = results.evaluation.values.filter(metric="map", scoring="all")
    other_values = results.other_classifiers.values.filter(metric="map", scoring="all")
    for values in other_values.partition_by(
        "encoder", "classifier", maintain_order=True
    ):
        same_encoder = reference.filter(encoder=values["encoder"][0])
        spreads = set(values["spread"]) & set(same_encoder["spread"])
        if spreads:
            spread = comparison_spread(spreads)
            yield values.filter(spread=spread), same_encoder.filter(spread=spread)


def turn_differences(rows: Frame) -> Frame:
    """Swap the two sides of differences: other minus one, from rows of the DIFFERENCES schema."""
    return rows.with_columns(
        one="other",
        other="one",
        mean=-pl.col("mean"),
        p01=-pl.col("p99"),
        p99=-pl.col("p01"),
        low=-pl.col("high"),
        high=-pl.col("low"),
        wins=1.0 - pl.col("wins"),
    )
