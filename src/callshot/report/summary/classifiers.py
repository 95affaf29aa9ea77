"""A reading → sentences on classifiers beside the centroid: trained on the same examples, refined, or other rules."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from callshot.fewshot.crossover import ALIKE, MIN_SAMPLES, on_same_draws
from callshot.fewshot.differences import summarise_differences
from callshot.records import Difference, Values
from callshot.report.classifiers import beside, is_trained, rule_name
from callshot.report.summary.context import (
    SAMPLES,
    Reading,
    against,
    clearly,
    examples,
    from_on,
    point_at,
    signed,
)

CENTROID = "the nearest centroid"
WORTH = 0.001  # of mAP: what a step on the way must have more than both ends
TRAINED = {"logistic": "logistic regression"}


def say_training(r: Reading) -> Iterator[str]:
    """Say from how many examples on training on the same ones is better than the centroid, on average and clearly."""
    for v, own in beside(r.corpus_results, r.spread):
        if v.encoder == r.best and is_trained(v.classifier):
            rows, who = (
                compare_on_draws(v, own),
                f"{TRAINED.get(v.classifier, v.classifier)} on {v.encoder}",
            )
            passed = from_on(rows, lambda d: d.mean > 0)
            said = (
                _not_ahead(r, v, own, rows) if passed is None else _ahead(r, v, own, rows, passed)
            )
            yield f"With the same examples, {who} is {said}."


def _ahead(
    r: Reading, v: Values, own: Values, rows: Sequence[Difference], passed: Difference
) -> str:
    before, points = [d for d in rows if d.k < passed.k], r.curve(v.encoder)
    if before:
        start, means = f"from {examples(point_at(points, passed.k))} on", _means(v, own, passed.k)
    else:
        k = r.k if any(d.k == r.k for d in rows) else passed.k
        start, means = "at every k", f"{_means(v, own, k)} with {examples(point_at(points, k))}"
    fewer = (
        f"; with fewer, {CENTROID} is better" if before and all(d.mean < 0 for d in before) else ""
    )
    clear = clearly([d for d in _sure(r, rows, v) if d.k >= passed.k], rows[-1].k)
    return f"ahead of {CENTROID} {start}, on average ({means}){clear}{fewer}"


def _not_ahead(r: Reading, v: Values, own: Values, rows: Sequence[Difference]) -> str:
    last, points = rows[-1], r.curve(v.encoder)
    early = next(
        (f", though with {examples(point_at(points, d.k))} it is" for d in rows if d.mean > 0), ""
    )
    behind = from_on(_sure(r, rows, v), lambda d: d.p99 < 0)
    clear = f", and clearly behind from {behind.k} on" if behind else ""
    with_k = f"with {examples(point_at(points, last.k))}"
    return f"not ahead of {CENTROID} on average {with_k} ({_means(v, own, last.k)}){early}{clear}"


def say_rules(r: Reading) -> Iterator[str]:
    """Say which rule without training is clearly better than the centroid with a few examples, or that none is."""
    pairs = [
        (v, own)
        for v, own in beside(r.corpus_results, r.spread)
        if v.encoder == r.best and not is_trained(v.classifier)
    ]
    found = [d for v, own in pairs for d in _sure(r, compare_on_draws(v, own), v) if d.k == r.k]
    better = sorted((d for d in found if d.p01 > 0), key=lambda d: -d.mean)
    where = f"than {CENTROID} with {r.best} and {examples(point_at(r.curve(r.best), r.k))}"
    if better:
        told = "; ".join(f"{rule_name(d.one)} by {_by(r, d)}" for d in better)
        yield f"Clearly better {where}, also without training: {told}."
    elif found:
        yield f"No other rule without training is clearly better {where}."


def _by(r: Reading, d: Difference) -> str:
    return f"{signed(d.mean)} of mAP (1–99 %: {signed(d.p01)} to {signed(d.p99)} over {SAMPLES[r.spread]})"


def say_refinement(r: Reading) -> Iterator[str]:
    """Say what gradient steps from the centroid buy, and where on the way it is most."""
    wanted = (r.best, "all", "map")
    rows = sorted(
        (
            row
            for row in r.corpus_results.refinement
            if (row.encoder, row.scoring, row.metric) == wanted
        ),
        key=lambda row: row.step,
    )
    if len(rows) < 2:
        return
    first, last, best = rows[0], rows[-1], max(rows, key=lambda row: row.value)
    steps = f"{last.step} gradient step{'s' * (last.step != 1)} from the centroid of all labels to logistic regression"
    on_way = f"; step {best.step}, on the way, has {best.value:.3f}: a description of these queries, not a choice"
    tail = on_way if best.value - max(first.value, last.value) >= WORTH else ""
    yield f"With {r.best}, {steps} take mAP from {first.value:.3f} to {last.value:.3f}{tail}."


def compare_on_draws(one: Values, other: Values) -> list[Difference]:
    """Return one classifier less another, by k, over the draws that both met."""
    k, ours, theirs = on_same_draws(one, other)
    return list(
        summarise_differences(
            replace(one, encoder=one.classifier, k=k), other.classifier, ours - theirs
        )
    )


def _sure(r: Reading, rows: Sequence[Difference], v: Values) -> list[Difference]:
    """Return the differences that may be called clear or not: over enough draws, complete, and not all alike."""
    complete = {c.k for c in r.curve(v.encoder) if c.complete}
    enough = min(v.value.shape[1], r.samples()) >= MIN_SAMPLES
    return [d for d in rows if enough and d.k in complete and d.p99 - d.p01 > ALIKE]


def _means(one: Values, other: Values, k: int) -> str:
    shots, ours, theirs = on_same_draws(one, other)
    at = int(np.searchsorted(shots, k))
    return against(float(ours[at].mean()), float(theirs[at].mean()))
