"""A reading → sentences on encoders: what to expect of the best, and how it compares with others and with chance."""

from collections.abc import Iterator

from callshot.fewshot.label_budget import WITHIN, most_to_gain, saturation
from callshot.records import Curve
from callshot.report.summary.context import (
    FLOOR,
    Reading,
    examples,
    from_on,
    is_floor,
    level,
    margin,
    point_at,
    reach,
    signed,
)


def say_expectation(r: Reading) -> Iterator[str]:
    """Say how good the best encoder is with a few examples, and how far that depends on which."""
    point = point_at(r.curve(r.best), r.k)
    right = [
        f"{c.mean:.0%}".replace("%", " %") for c in r.curve(r.best, metric="accuracy") if c.k == r.k
    ]
    named = f", and the right call type for about {right[0]} of queries" if right else ""
    mean, chance = f"{level(point.mean)} on average", f"chance is {level(point.chance)}"
    if r.spread == "shared" and r.spans(point):
        between = f"mAP between {level(point.p01)} and {level(point.p99)}"
        one = f"With one labelled set of {examples(point)}"
        yield f"{one}, expect {between} from {r.best} ({mean}; {chance}){named}."
    else:
        yield f"With {examples(point)}, {r.best} reaches mAP {mean} ({chance}){named}."


def say_next(r: Reading) -> Iterator[str]:
    """Say by how much the best encoder is ahead of the next, and whether that is clear."""
    others = [name for name in r.ranking(r.k) if name != r.best]
    rows = r.differences(r.best, others[0]) if others else []
    for d in (d for d in rows if d.k == r.k):
        end = (
            ": a clear difference"
            if d.p01 > 0
            else ": not a clear difference, for the interval includes 0"
        )
        with_k = f"With {examples(point_at(r.curve(r.best), r.k))}"
        ahead = f"{r.best} is on average ahead of {d.other}, the next best, by {margin(r, d)}"
        yield f"{with_k}, {ahead}{end if r.is_sure(d) else ''}."


def say_later_leader(r: Reading) -> Iterator[str]:
    """Say that another encoder is clearly better with more examples, where one is."""
    last = max((c.k for c in r.sure(r.best)), default=r.k)
    leader = r.ranking(last)[0]
    for d in r.differences(leader, r.best):
        if d.k == last and d.p01 > 0:
            with_k = f"With {examples(point_at(r.curve(leader), last))}"
            yield f"{with_k}, {leader} is better than {r.best}, by {margin(r, d)}: a clear difference."


def say_levelling(r: Reading) -> Iterator[str]:
    """Say from where on twice as many examples add little, with every class complete; or that they still add."""
    points = r.curve(r.best)
    complete, level = [c for c in points if c.complete], saturation(points, WITHIN)
    if level is not None and complete and 2 * level <= complete[-1].k:
        few = examples(point_at(points, level))
        yield f"With {r.best}, more than {few} add no more than {WITHIN} of mAP (up to {points[-1].k})."
    elif len(complete) > 1 and (gain := complete[-1].mean - complete[-2].mean) > WITHIN:
        yield (
            f"With {r.best}, mAP still rises by {signed(gain)} from {complete[-2].k} to {examples(complete[-1])}, "
            "the most that was evaluated with every call type complete."
        )


def say_hopeless(r: Reading) -> Iterator[str]:
    """Say that nothing is better than chance, where nothing is."""
    if r.sure(r.best):
        if not any(above_chance(c) for name in r.encoders() for c in r.sure(name)):
            yield f"Nothing here is clearly better than chance: even {_last_interval(r)}."
    elif not any(c.mean > c.chance for name in r.encoders() for c in r.curve(name)):
        last = r.curve(r.best)[-1]
        reached = f"{r.best} reaches mAP {level(last.mean)}, and chance is {level(last.chance)}"
        yield f"Nothing here is better than chance on average: even with {examples(last)}, {reached}."


def say_chance(r: Reading) -> Iterator[str]:
    """Say from which k on the best encoder is above chance; nothing where none is."""
    sure, points = r.sure(r.best), r.curve(r.best)
    point = from_on(sure, above_chance) if sure else from_on(points, lambda c: c.mean > c.chance)
    if point is not None:
        how, last = ("clearly", sure[-1].k) if sure else ("on average", points[-1].k)
        yield f"{r.best} is {how} better than chance {reach(examples(point), point.k, last, points[-1].k)}."
    elif sure and not list(say_hopeless(r)):
        yield f"{r.best} is not at every k clearly better than chance: {_last_interval(r)}."


def above_chance(point: Curve) -> bool:
    """Tell whether a whole interval is above chance."""
    return point.p01 > point.chance


def _last_interval(r: Reading) -> str:
    last = r.sure(r.best)[-1]
    interval = f"a 1–99 % interval from {level(last.p01)} to {level(last.p99)} of mAP"
    return f"with {examples(last)}, {r.best} has {interval}, and chance is {level(last.chance)}"


def say_floor(r: Reading) -> Iterator[str]:
    """Compare the best encoder with those that know nothing."""
    if is_floor(r.best):
        yield f"Only the encoder {FLOOR} was evaluated: its vectors know nothing of the sound."
        return
    for d in (d for floor in r.floors() for d in r.differences(r.best, floor) if d.k == r.k):
        is_better, word = (d.p01 > 0, "clearly") if r.is_sure(d) else (d.mean > 0, "on average")
        how = f"{'' if is_better else 'not '}{word} better than vectors of pure chance (the encoder {d.other})"
        yield f"{r.best} is {how}: {'ahead' if d.mean >= 0 else 'behind'} by {margin(r, d)}."


def say_budget(r: Reading) -> Iterator[str]:
    """Say which class gains most from one more example, by its curve; nothing where that is little, or fits badly."""
    rows = [w for w in r.corpus_results.budget if w.encoder == r.best and w.metric == "map"]
    top = most_to_gain(rows)
    if top is None:
        return
    least = sum(w.next_gain != w.next_gain for w in rows)
    rest = (
        f"; {least} of {len(rows)} call types have too few complete shots for such a curve"
        if least
        else ""
    )
    yield (
        f"By its curve with {r.best}, '{top.label}' has most to gain from more examples: about "
        f"{signed(top.next_gain)} of AP from {top.k} to {top.k + 1}, {signed(top.double_gain)} from {top.k} to "
        f"{2 * top.k}{rest}."
    )
