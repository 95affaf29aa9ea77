"""A reading → sentences on what was left out, where numbers are weak, and what the intervals mean."""

from collections.abc import Iterator

from callshot.fewshot.crossover import MIN_SAMPLES
from callshot.report.summary.context import SAMPLES, Reading, level
from callshot.report.summary.encoders import above_chance

SMALL_COMPLETE, FEW_QUERIES, MOST_REASONS = 10, 10, 3
MEANINGS = {
    "shared": "The intervals are over which examples happen to be labelled; which calls happen to be recorded and "
    "queried is not in them.",
    "per-query": "The intervals are over bootstrap samples, with draws of its own for every query; what one labelled "
    "set for all queries would do is not in them (the spread shared tells).",
}


def say_left_out(r: Reading) -> Iterator[str]:
    """Say how many classes were not evaluated, and why."""
    classes = r.corpus_results.evaluation.classes
    out = [c for c in classes if not c.eligible]
    if out:
        why = "; ".join(f"'{c.label}' ({c.reason})" for c in out[:MOST_REASONS])
        more = f"; and {len(out) - MOST_REASONS} more" if len(out) > MOST_REASONS else ""
        verb = "was" if len(out) == 1 else "were"
        yield f"{len(out)} of {len(classes)} call types {verb} not evaluated: {why}{more}."


def say_cautions(r: Reading) -> Iterator[str]:
    """Say where the numbers are weak."""
    result = r.corpus_results.evaluation
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
    for c in (c for floor in r.floors() for c in r.sure(floor) if c.k == r.k and above_chance(c)):
        yield (
            f"Caution: even the encoder {c.encoder} is above chance here (mAP {level(c.mean)}, chance is "
            f"{level(c.chance)}): so much is the luck of these {result.queries} queries."
        )


def say_not_compared(r: Reading) -> Iterator[str]:
    """Say which rivals were scored in a way that was not evaluated: the reduced one, without categories."""
    known = {c.scoring for c in r.corpus_results.evaluation.curve}
    for name, scoring in dict.fromkeys(
        (v.name, v.scoring) for v in r.corpus_results.baselines if v.scoring not in known
    ):
        yield f"Caution: what {name} scored in the {scoring} scoring is held against nothing: no categories were given."


def say_intervals(r: Reading) -> Iterator[str]:
    """Say what the intervals leave out, or that there are none."""
    if r.samples() >= MIN_SAMPLES:
        yield MEANINGS[r.spread]
    else:
        needs = f"a 1–99 % interval needs {MIN_SAMPLES} {SAMPLES[r.spread]} at least, and there are {r.samples()}"
        yield f"Caution: only averages are told: {needs}."
