"""A reading → sentences on trained classifiers: from where on the centroid beats them, or they the centroid."""

from collections.abc import Iterator, Sequence

from callshot.fewshot.differences import baseline_name
from callshot.records import Baseline, Difference
from callshot.report.summary.context import Reading, against, clearly, examples, from_on

BASELINES = {"logistic": "logistic regression"}


def describe_baselines(r: Reading) -> Iterator[str]:
    """Say from how few examples on the best encoder beats each rival, on average and clearly.

    Reduced scoring is told of those that hear the audio themselves, and of those that have no other.
    """
    met = [v for v in r.corpus_results.baselines if v.metric == "map" and v.encoder in ("", r.best)]
    whole = {v.name for v in met if v.scoring == "all"}
    baselines = [
        v for v in met if v.scoring == "all" or v.kind == "end-to-end" or v.name not in whole
    ]
    for baseline in baselines:
        several = len({other.name for other in baselines if other.kind == baseline.kind}) > 1
        who = baseline.name if several else BASELINES.get(baseline.kind, baseline.name)
        if rows := r.differences(r.best, baseline_name(baseline), baseline.scoring):
            yield _crossover(r, baseline, who + " trained on all labelled data", rows)


def _crossover(r: Reading, baseline: Baseline, who: str, rows: Sequence[Difference]) -> str:
    points = {c.k: c for c in r.curve(r.best, baseline.scoring)}
    where = "" if baseline.scoring == "all" else f" in the {baseline.scoring} scoring"
    passed = from_on(rows, lambda d: d.mean > 0)
    at = points[(passed or rows[-1]).k]
    early = next((d for d in rows if d.mean > 0), None)
    means = against(at.mean, baseline.value)
    if passed is None:
        brief = "" if early is None else f", though with {examples(points[early.k])} it did"
        return (
            f"With {examples(at)}, {r.best} does not beat {who}{where} on average ({means}){brief}."
        )
    first = "" if early is None or early.k == passed.k else f"; the first time with {early.k}"
    clear = clearly([d for d in rows if d.k >= passed.k and r.is_sure(d)], rows[-1].k)
    return (
        f"{r.best} beats {who}{where} from {examples(at)} on, on average ({means}{first}){clear}."
    )
