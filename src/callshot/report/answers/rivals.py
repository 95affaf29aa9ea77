"""A reading → sentences on trained classifiers: from where on the centroid beats them, or they the centroid."""

from collections.abc import Iterator, Sequence

from callshot.fewshot.paired import told_rival
from callshot.records import Difference, Rival
from callshot.report.answers.reading import Reading, examples, from_on, reach

RIVALS = {"logistic": "logistic regression"}


def say_rivals(r: Reading) -> Iterator[str]:
    """Say from how few examples on the best encoder beats each rival, on average and clearly."""
    rivals = [v for v in r.chapter.rivals if v.metric == "map" and v.encoder in ("", r.best)]
    for rival in rivals:
        several = len({other.name for other in rivals if other.kind == rival.kind}) > 1
        who = rival.name if several else RIVALS.get(rival.kind, rival.name)
        if rows := r.differences(r.best, told_rival(rival), rival.scoring):
            yield _crossover(r, rival, who + " trained on all labelled data", rows)


def _crossover(r: Reading, rival: Rival, who: str, rows: Sequence[Difference]) -> str:
    points = {c.k: c for c in r.curve(r.best, rival.scoring)}
    where = "" if rival.scoring == "all" else f" in the {rival.scoring} scoring"
    passed = from_on(rows, lambda d: d.mean > 0)
    at = points[(passed or rows[-1]).k]
    means = f"mAP {at.mean:.3f} against {rival.value:.3f}"
    if passed is None:
        brief = next((f", though with {examples(points[d.k])} it did" for d in rows if d.mean > 0), "")
        return f"With {examples(at)}, {r.best} does not beat {who}{where} on average ({means}){brief}."
    clear = _clearly([d for d in rows if d.k >= passed.k and r.is_sure(d)], rows[-1].k)
    return f"{r.best} beats {who}{where} from {examples(at)} on, on average ({means}){clear}."


def _clearly(sure: Sequence[Difference], end: int) -> str:
    """Say from where on a difference is clear, of those that may be called so; nothing where there is none."""
    if not sure:
        return ""
    first = from_on(sure, lambda d: d.p01 > 0)
    if first is None:
        return f", but not clearly with {sure[-1].k} (1–99 % interval of the difference not above 0)"
    span = reach(str(first.k), first.k, sure[-1].k, end)
    return f", and clearly {span} (1–99 % interval of the difference above 0)"
