"""A chapter → how its answer reads it, and the words in which points, differences and spans of k are told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from callshot.fewshot.crossover import ALIKE, MIN_SAMPLES
from callshot.records import CorpusResults, Curve, Difference

FLOOR = "random"  # the encoder that knows nothing
FEW_SHOTS = 5  # examples that are called a few
SAMPLES = {"shared": "labelled sets", "per-query": "bootstrap samples"}
Point = TypeVar("Point", Curve, Difference)


@dataclass(frozen=True)
class Reading:
    """A chapter as its answer reads it: on one spread, at a small k, with the encoder that is best there."""

    corpus_results: CorpusResults
    spread: str
    k: int
    best: str = ""

    def curve(self, encoder: str, scoring: str = "all", metric: str = "map") -> list[Curve]:
        """Return the points of one curve, by k."""
        wanted = (encoder, scoring, metric, self.spread)
        points = [
            c
            for c in self.corpus_results.evaluation.curve
            if (c.encoder, c.scoring, c.metric, c.spread) == wanted
        ]
        return sorted(points, key=lambda c: c.k)

    def sure(self, encoder: str, scoring: str = "all") -> list[Curve]:
        """Return the points of a curve that may be called clearly more or less than something."""
        return [c for c in self.curve(encoder, scoring) if c.complete and self.spans(c)]

    def spans(self, point: Curve) -> bool:
        """Tell whether an interval is one: over enough samples, which differ, or are all as good as can be."""
        samples = self.samples() >= MIN_SAMPLES
        return samples and (point.p99 - point.p01 > ALIKE or point.mean >= 1 - ALIKE)

    def samples(self) -> int:
        """Return the number of samples that every interval is over."""
        values = self.corpus_results.evaluation.values
        return min((v.value.shape[1] for v in values if v.spread == self.spread), default=0)

    def is_sure(self, d: Difference) -> bool:
        """Tell whether a difference of the best encoder may be called clear or not."""
        return any(c.k == d.k for c in self.sure(self.best, d.scoring))

    def differences(self, one: str, other: str, scoring: str = "all") -> list[Difference]:
        """Return one less the other, by k; none where they were not compared."""
        rows = [
            d
            for d in self.corpus_results.differences
            if (d.scoring, d.metric, d.spread) == (scoring, "map", self.spread)
        ]
        found = [d for d in rows if (d.one, d.other) == (one, other)]
        return sorted(
            found or [turned(d) for d in rows if (d.one, d.other) == (other, one)],
            key=lambda d: d.k,
        )

    def ranking(self, k: int) -> list[str]:
        """Return the encoders, the best at k first; the floor only where there is nothing else."""
        means = {
            c.encoder: c.mean for name in self.encoders() for c in self.curve(name) if c.k == k
        }
        return sorted(means, key=lambda name: -means[name])

    def encoders(self) -> list[str]:
        """Return the encoders but the floor, or the floor where there is nothing else."""
        names = dict.fromkeys(c.encoder for c in self.corpus_results.evaluation.curve)
        return [name for name in names if not is_floor(name)] or list(names)

    def floors(self) -> list[str]:
        """Return the encoders that know nothing."""
        return [
            name
            for name in dict.fromkeys(c.encoder for c in self.corpus_results.evaluation.curve)
            if is_floor(name)
        ]


def is_floor(encoder: str) -> bool:
    """Tell whether an encoder knows nothing, whatever was chosen for it.

    >>> is_floor("random"), is_floor("random[dimension=80]"), is_floor("randomised")
    (True, True, False)
    """
    return encoder.partition("[")[0] == FLOOR


def open_reading(corpus_results: CorpusResults) -> Reading:
    """Choose the spread, the k (the largest of a few that all call types can give), and the best encoder there."""
    result = corpus_results.evaluation
    spread = "shared" if any(c.spread == "shared" for c in result.curve) else result.curve[0].spread
    shots = sorted({c.k for c in result.curve})
    k = max((k for k in shots if k <= min(FEW_SHOTS, result.complete_shots)), default=shots[0])
    reading = Reading(corpus_results, spread, k)
    return replace(reading, best=reading.ranking(k)[0])


def from_on(points: Sequence[Point], passes: Callable[[Point], bool]) -> Point | None:
    """Return the first point from which on all pass."""
    first = None
    for point in reversed(points):
        if not passes(point):
            break
        first = point
    return first


def reach(start: str, first: int, last: int, end: int) -> str:
    """Say from where to where something holds: on to the end, or where a verdict ends before."""
    if last == end:
        return f"from {start} on"
    return f"with {start}" if first == last else f"from {start} on, up to {last}"


def against(one: float, other: float) -> str:
    """Tell two values of mAP, to as many places as tell them apart, five at most.

    >>> against(0.75, 0.7), against(0.75081, 0.75077)
    ('mAP 0.750 against 0.700', 'mAP 0.75081 against 0.75077')
    """
    places = next((p for p in (3, 4) if f"{one:.{p}f}" != f"{other:.{p}f}"), 5)
    return f"mAP {one:.{places}f} against {other:.{places}f}"


def clearly(sure: Sequence[Difference], end: int) -> str:
    """Say from where on a difference is clear, of those that may be called so; nothing where there is none."""
    if not sure:
        return ""
    first = from_on(sure, lambda d: d.p01 > 0)
    if first is None:
        return (
            f", but not clearly with {sure[-1].k} (1–99 % interval of the difference not above 0)"
        )
    span = reach(str(first.k), first.k, sure[-1].k, end)
    return f", and clearly {span} (1–99 % interval of the difference above 0)"


def point_at(points: Sequence[Curve], k: int) -> Curve:
    """Return the point at k."""
    return next(c for c in points if c.k == k)


def turned(d: Difference) -> Difference:
    """Return the same difference the other way round."""
    return replace(
        d,
        one=d.other,
        other=d.one,
        mean=-d.mean,
        p01=-d.p99,
        p25=-d.p75,
        p50=-d.p50,
        p75=-d.p25,
        p99=-d.p01,
        wins=1.0 - d.wins,
    )


def examples(point: Curve) -> str:
    """Tell a k, and whether some classes have fewer."""
    return (
        f"{'' if point.complete else 'up to '}{point.k} example{'s' * (point.k != 1)} per call type"
    )


def margin(r: Reading, d: Difference) -> str:
    """Tell a difference, and with its interval, where that is one, in how many samples it is one."""
    if not r.is_sure(d):
        return f"{signed(abs(d.mean))} of mAP"
    wins = (
        f"{100 * d.wins:.0f}"
        if 0.01 <= d.wins <= 0.99 or d.wins in (0, 1)
        else "<1"
        if d.wins < 0.5
        else ">99"
    )
    interval = (
        f"1–99 %: {signed(d.p01)} to {signed(d.p99)}; ahead in {wins} % of {SAMPLES[r.spread]}"
    )
    return f"{signed(abs(d.mean))} of mAP ({interval})"


def level(value: float) -> str:
    """Tell a metric to two places."""
    return f"{value:.2f}"


def signed(value: float) -> str:
    """Tell a difference to three places, or to five where that would be nothing."""
    text = f"{value:.5f}" if 0 < abs(value) < 0.0005 else f"{value:.3f}"
    return text.replace("-", "−")
