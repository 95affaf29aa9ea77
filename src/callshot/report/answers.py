"""A chapter → what it says, in plain sentences computed from the results, the one that matters first.

A difference is called clear where its interval from the 1st to the 99th percentile leaves 0 (or chance) out, but only
where the interval is one: over 100 samples or more, up to k*, and not all alike. Beyond k* pools run out, and draws
that must be alike have no spread. Elsewhere means are told, and no more. All is about mAP, on the spread `shared` where
it was evaluated: that is one labelled set for all queries, as a person has it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from callshot.errors import printable
from callshot.fewshot.budget import WITHIN, most_to_gain, saturation
from callshot.fewshot.paired import told_rival
from callshot.records import Chapter, Curve, Difference, Rival

FLOOR = "random"  # the encoder that knows nothing
FEW_SHOTS = 5  # examples that are called a few
ENOUGH = 100  # samples that a 1–99 % interval needs
ALIKE = 1e-9  # of mAP: what rounding may do to samples that are equal
SMALL_COMPLETE, FEW_QUERIES, MOST_REASONS = 10, 10, 3
RIVALS = {"logistic": "logistic regression"}
SAMPLES = {"shared": "labelled sets", "per-query": "bootstrap samples"}
MEANINGS = {
    "shared": "The intervals are over which examples happen to be labelled; which calls happen to be recorded and "
    "queried is not in them.",
    "per-query": "The intervals are over bootstrap samples, with draws of its own for every query; what one labelled "
    "set for all queries would do is not in them (the spread shared tells).",
}
Point = TypeVar("Point", Curve, Difference)


@dataclass(frozen=True)
class Reading:
    """A chapter as its answer reads it: on one spread, at a small k, with the encoder that is best there."""

    chapter: Chapter
    spread: str
    k: int
    best: str = ""

    def curve(self, encoder: str, scoring: str = "all", metric: str = "map") -> list[Curve]:
        """Return the points of one curve, by k."""
        wanted = (encoder, scoring, metric, self.spread)
        points = [c for c in self.chapter.evaluation.curve if (c.encoder, c.scoring, c.metric, c.spread) == wanted]
        return sorted(points, key=lambda c: c.k)

    def sure(self, encoder: str, scoring: str = "all") -> list[Curve]:
        """Return the points of a curve that may be called clearly more or less than something."""
        return [c for c in self.curve(encoder, scoring) if c.complete and self.spans(c)]

    def spans(self, point: Curve) -> bool:
        """Tell whether an interval is one: over enough samples, which differ, or are all as good as can be."""
        samples = self.samples() >= ENOUGH
        return samples and (point.p99 - point.p01 > ALIKE or point.mean >= 1 - ALIKE)

    def samples(self) -> int:
        """Return the number of samples that every interval is over."""
        values = self.chapter.evaluation.values
        return min((v.value.shape[1] for v in values if v.spread == self.spread), default=0)

    def is_sure(self, d: Difference) -> bool:
        """Tell whether a difference of the best encoder may be called clear or not."""
        return any(c.k == d.k for c in self.sure(self.best, d.scoring))

    def differences(self, one: str, other: str, scoring: str = "all") -> list[Difference]:
        """Return one less the other, by k; none where they were not compared."""
        rows = [d for d in self.chapter.differences if (d.scoring, d.metric, d.spread) == (scoring, "map", self.spread)]
        found = [d for d in rows if (d.one, d.other) == (one, other)]
        return sorted(found or [_turn(d) for d in rows if (d.one, d.other) == (other, one)], key=lambda d: d.k)

    def ranking(self, k: int) -> list[str]:
        """Return the encoders, the best at k first; the floor only where there is nothing else."""
        means = {c.encoder: c.mean for name in self.encoders() for c in self.curve(name) if c.k == k}
        return sorted(means, key=lambda name: -means[name])

    def encoders(self) -> list[str]:
        """Return the encoders but the floor, or the floor where there is nothing else."""
        names = dict.fromkeys(c.encoder for c in self.chapter.evaluation.curve)
        return [name for name in names if not is_floor(name)] or list(names)

    def floors(self) -> list[str]:
        """Return the encoders that know nothing."""
        return [name for name in dict.fromkeys(c.encoder for c in self.chapter.evaluation.curve) if is_floor(name)]


def is_floor(encoder: str) -> bool:
    """Tell whether an encoder knows nothing, whatever was chosen for it.

    >>> is_floor("random"), is_floor("random[dimension=80]"), is_floor("randomised")
    (True, True, False)
    """
    return encoder.partition("[")[0] == FLOOR


def answer(chapter: Chapter) -> list[str]:
    """Return what the results say, as sentences, the one that matters first.

    First comes whether training on everything would have been better, where rivals were trained; else what to expect
    of a few examples; before both, that nothing is better than chance, where nothing is.
    """
    reading = _read(chapter)
    return [printable(sentence) for say in PARTS for sentence in say(reading)]


def _read(chapter: Chapter) -> Reading:
    """Choose the spread, the k (the largest of a few that all call types can give), and the best encoder there."""
    result = chapter.evaluation
    spread = "shared" if any(c.spread == "shared" for c in result.curve) else result.curve[0].spread
    shots = sorted({c.k for c in result.curve})
    k = max((k for k in shots if k <= min(FEW_SHOTS, result.complete_shots)), default=shots[0])
    reading = Reading(chapter, spread, k)
    return replace(reading, best=reading.ranking(k)[0])


def _expectation(r: Reading) -> Iterator[str]:
    """Say how good the best encoder is with a few examples, and how far that depends on which."""
    point = _at(r.curve(r.best), r.k)
    right = [f"{c.mean:.0%}".replace("%", " %") for c in r.curve(r.best, metric="accuracy") if c.k == r.k]
    named = f", and the right call type for about {right[0]} of queries" if right else ""
    mean, chance = f"{_level(point.mean)} on average", f"chance is {_level(point.chance)}"
    if r.spread == "shared" and r.spans(point):
        between = f"mAP between {_level(point.p01)} and {_level(point.p99)}"
        one = f"With one labelled set of {_examples(point)}"
        yield f"{one}, expect {between} from {r.best} ({mean}; {chance}){named}."
    else:
        yield f"With {_examples(point)}, {r.best} reaches mAP {mean} ({chance}){named}."


def _against_rivals(r: Reading) -> Iterator[str]:
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
    passed = _from_on(rows, lambda d: d.mean > 0)
    at = points[(passed or rows[-1]).k]
    means = f"mAP {at.mean:.3f} against {rival.value:.3f}"
    if passed is None:
        brief = next((f", though with {_examples(points[d.k])} it did" for d in rows if d.mean > 0), "")
        return f"With {_examples(at)}, {r.best} does not beat {who}{where} on average ({means}){brief}."
    clear = _clearly([d for d in rows if d.k >= passed.k and r.is_sure(d)], rows[-1].k)
    return f"{r.best} beats {who}{where} from {_examples(at)} on, on average ({means}){clear}."


def _clearly(sure: Sequence[Difference], end: int) -> str:
    """Say from where on a difference is clear, of those that may be called so; nothing where there is none."""
    if not sure:
        return ""
    first = _from_on(sure, lambda d: d.p01 > 0)
    if first is None:
        return f", but not clearly with {sure[-1].k} (1–99 % interval of the difference not above 0)"
    reach = _reach(str(first.k), first.k, sure[-1].k, end)
    return f", and clearly {reach} (1–99 % interval of the difference above 0)"


def _against_next(r: Reading) -> Iterator[str]:
    """Say by how much the best encoder is ahead of the next, and whether that is clear."""
    others = [name for name in r.ranking(r.k) if name != r.best]
    rows = r.differences(r.best, others[0]) if others else []
    for d in (d for d in rows if d.k == r.k):
        end = ": a clear difference" if d.p01 > 0 else ": not a clear difference, for the interval includes 0"
        with_k = f"With {_examples(_at(r.curve(r.best), r.k))}"
        ahead = f"{r.best} is on average ahead of {d.other}, the next best, by {_margin(r, d)}"
        yield f"{with_k}, {ahead}{end if r.is_sure(d) else ''}."


def _later_leader(r: Reading) -> Iterator[str]:
    """Say that another encoder is clearly better with more examples, where one is."""
    last = max((c.k for c in r.sure(r.best)), default=r.k)
    leader = r.ranking(last)[0]
    for d in r.differences(leader, r.best):
        if d.k == last and d.p01 > 0:
            with_k = f"With {_examples(_at(r.curve(leader), last))}"
            yield f"{with_k}, {leader} is better than {r.best}, by {_margin(r, d)}: a clear difference."


def _levelling(r: Reading) -> Iterator[str]:
    """Say from where on twice as many examples add little, with every class complete; or that they still add."""
    points = r.curve(r.best)
    complete, level = [c for c in points if c.complete], saturation(points, WITHIN)
    if level is not None and complete and 2 * level <= complete[-1].k:
        few = _examples(_at(points, level))
        yield f"With {r.best}, more than {few} add no more than {WITHIN} of mAP (up to {points[-1].k})."
    elif len(complete) > 1 and (gain := complete[-1].mean - complete[-2].mean) > WITHIN:
        yield (
            f"With {r.best}, mAP still rises by {_signed(gain)} from {complete[-2].k} to {_examples(complete[-1])}, "
            "the most that was evaluated with every call type complete."
        )


def _hopeless(r: Reading) -> Iterator[str]:
    """Say that nothing is better than chance, where nothing is."""
    if r.sure(r.best):
        if not any(_above_chance(c) for name in r.encoders() for c in r.sure(name)):
            yield f"Nothing here is clearly better than chance: even {_last_interval(r)}."
    elif not any(c.mean > c.chance for name in r.encoders() for c in r.curve(name)):
        last = r.curve(r.best)[-1]
        reached = f"{r.best} reaches mAP {_level(last.mean)}, and chance is {_level(last.chance)}"
        yield f"Nothing here is better than chance on average: even with {_examples(last)}, {reached}."


def _against_chance(r: Reading) -> Iterator[str]:
    """Say from which k on the best encoder is above chance; nothing where none is."""
    sure, points = r.sure(r.best), r.curve(r.best)
    point = _from_on(sure, _above_chance) if sure else _from_on(points, lambda c: c.mean > c.chance)
    if point is not None:
        how, last = ("clearly", sure[-1].k) if sure else ("on average", points[-1].k)
        yield f"{r.best} is {how} better than chance {_reach(_examples(point), point.k, last, points[-1].k)}."
    elif sure and not list(_hopeless(r)):
        yield f"{r.best} is not at every k clearly better than chance: {_last_interval(r)}."


def _above_chance(point: Curve) -> bool:
    return point.p01 > point.chance


def _last_interval(r: Reading) -> str:
    last = r.sure(r.best)[-1]
    interval = f"a 1–99 % interval from {_level(last.p01)} to {_level(last.p99)} of mAP"
    return f"with {_examples(last)}, {r.best} has {interval}, and chance is {_level(last.chance)}"


def _against_floor(r: Reading) -> Iterator[str]:
    """Compare the best encoder with those that know nothing."""
    if is_floor(r.best):
        yield f"Only the encoder {FLOOR} was evaluated: its vectors know nothing of the sound."
        return
    for d in (d for floor in r.floors() for d in r.differences(r.best, floor) if d.k == r.k):
        is_better, word = (d.p01 > 0, "clearly") if r.is_sure(d) else (d.mean > 0, "on average")
        how = f"{'' if is_better else 'not '}{word} better than vectors of pure chance (the encoder {d.other})"
        yield f"{r.best} is {how}: {'ahead' if d.mean >= 0 else 'behind'} by {_margin(r, d)}."


def _budget(r: Reading) -> Iterator[str]:
    """Say which class gains most from one more example, by its curve; nothing where that is little, or fits badly."""
    rows = [w for w in r.chapter.budget if w.encoder == r.best and w.metric == "map"]
    top = most_to_gain(rows)
    if top is None:
        return
    least = sum(w.next_gain != w.next_gain for w in rows)
    rest = f"; {least} of {len(rows)} call types have too few complete shots for such a curve" if least else ""
    yield (
        f"By its curve with {r.best}, '{top.label}' has most to gain from more examples: about "
        f"{_signed(top.next_gain)} of AP from {top.k} to {top.k + 1}, {_signed(top.double_gain)} from {top.k} to "
        f"{2 * top.k}{rest}."
    )


def _left_out(r: Reading) -> Iterator[str]:
    """Say how many classes were not evaluated, and why."""
    classes = r.chapter.evaluation.classes
    out = [c for c in classes if not c.eligible]
    if out:
        why = "; ".join(f"'{c.label}' ({c.reason})" for c in out[:MOST_REASONS])
        more = f"; and {len(out) - MOST_REASONS} more" if len(out) > MOST_REASONS else ""
        verb = "was" if len(out) == 1 else "were"
        yield f"{len(out)} of {len(classes)} call types {verb} not evaluated: {why}{more}."


def _cautions(r: Reading) -> Iterator[str]:
    """Say where the numbers are weak."""
    result = r.chapter.evaluation
    if result.complete_shots < min(SMALL_COMPLETE, max(c.k for c in result.curve)):
        yield (
            f"Caution: beyond k* = {result.complete_shots} not every call type has that many different examples to "
            "give; it makes do with those it has."
        )
    queries = {c.label: sum(c.per_fold) for c in result.classes if c.eligible}
    rarest = min(queries, key=lambda name: queries[name], default=None)
    if rarest is not None and queries[rarest] < FEW_QUERIES:
        few = f"{result.queries} in all and {queries[rarest]} of '{rarest}'"
        yield f"Caution: few queries, {few}; other recordings may well give other numbers."
    for c in (c for floor in r.floors() for c in r.sure(floor) if c.k == r.k and _above_chance(c)):
        yield (
            f"Caution: even the encoder {c.encoder} is above chance here (mAP {_level(c.mean)}, chance is "
            f"{_level(c.chance)}): so much is the luck of these {result.queries} queries."
        )


def _not_compared(r: Reading) -> Iterator[str]:
    """Say which rivals were scored in a way that was not evaluated: the reduced one, without categories."""
    known = {c.scoring for c in r.chapter.evaluation.curve}
    for name, scoring in dict.fromkeys((v.name, v.scoring) for v in r.chapter.rivals if v.scoring not in known):
        yield f"Caution: what {name} scored in the {scoring} scoring is held against nothing: no categories were given."


def _intervals(r: Reading) -> Iterator[str]:
    """Say what the intervals leave out, or that there are none."""
    if r.samples() >= ENOUGH:
        yield MEANINGS[r.spread]
    else:
        needs = f"a 1–99 % interval needs {ENOUGH} {SAMPLES[r.spread]} at least, and there are {r.samples()}"
        yield f"Caution: only averages are told: {needs}."


def _from_on(points: Sequence[Point], passes: Callable[[Point], bool]) -> Point | None:
    """Return the first point from which on all pass."""
    first = None
    for point in reversed(points):
        if not passes(point):
            break
        first = point
    return first


def _reach(start: str, first: int, last: int, end: int) -> str:
    """Say from where to where something holds: on to the end, or where a verdict ends before."""
    if last == end:
        return f"from {start} on"
    return f"with {start}" if first == last else f"from {start} on, up to {last}"


def _at(points: Sequence[Curve], k: int) -> Curve:
    return next(c for c in points if c.k == k)


def _turn(d: Difference) -> Difference:
    """Return the same difference the other way round."""
    return replace(
        d, one=d.other, other=d.one, mean=-d.mean, p01=-d.p99, p25=-d.p75, p50=-d.p50, p75=-d.p25, p99=-d.p01,
        wins=1.0 - d.wins,
    )  # fmt: skip


def _examples(point: Curve) -> str:
    return f"{'' if point.complete else 'up to '}{point.k} example{'s' * (point.k != 1)} per call type"


def _margin(r: Reading, d: Difference) -> str:
    """Tell a difference, and with its interval, where that is one, in how many samples it is one."""
    if not r.is_sure(d):
        return f"{_signed(abs(d.mean))} of mAP"
    wins = f"{100 * d.wins:.0f}" if 0.01 <= d.wins <= 0.99 or d.wins in (0, 1) else "<1" if d.wins < 0.5 else ">99"
    interval = f"1–99 %: {_signed(d.p01)} to {_signed(d.p99)}; ahead in {wins} % of {SAMPLES[r.spread]}"
    return f"{_signed(abs(d.mean))} of mAP ({interval})"


def _level(value: float) -> str:
    return f"{value:.2f}"


def _signed(value: float) -> str:
    """Tell a difference to three places, or to five where that would be nothing."""
    text = f"{value:.5f}" if 0 < abs(value) < 0.0005 else f"{value:.3f}"
    return text.replace("-", "−")


PARTS: Sequence[Callable[[Reading], Iterator[str]]] = (
    _hopeless, _against_rivals, _expectation, _against_next, _later_leader, _levelling, _against_chance,
    _against_floor, _budget, _left_out, _cautions, _not_compared, _intervals,
)  # fmt: skip
