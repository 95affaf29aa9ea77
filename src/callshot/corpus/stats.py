"""A segmentation → the facts that a report tells of a corpus: what it is made of, how much, and how long."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from callshot.corpus.options import Rule
from callshot.errors import InputError
from callshot.records import Facts, Lengths, Segmentation

SPANS = ("recordings", "annotated", "calls", "segments")


def measure_lengths(lengths_s: Iterable[float]) -> Lengths:
    """Measure how many spans there are, and how long; all zero where there is none.

    >>> measure_lengths([1.0, 3.0])
    Lengths(count=2, total_s=4.0, mean_s=2.0, shortest_s=1.0, longest_s=3.0, deviation_s=1.0)
    """
    spans = list(lengths_s)
    if not spans:
        return Lengths(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return Lengths(len(spans), sum(spans), fmean(spans), min(spans), max(spans), pstdev(spans))


def tell_facts(found: Segmentation, rule: Rule) -> Facts:
    """Tell what a corpus is made of, and what the rule made of it."""
    return Facts(
        rates_hz=tuple(sorted({r.rate_hz for r in found.recordings})),
        channels=tuple(sorted({r.channels for r in found.recordings})),
        kinds=tuple(sorted({r.kind for r in found.recordings})),
        labels=len({call.label for call in found.calls}),
        minimum_s=rule.minimum_s,
        collar_s=rule.collar_s,
        recordings=measure_lengths(r.duration_s for r in found.recordings),
        annotated=measure_lengths(
            r.duration_s for r in found.recordings if r.path in found.annotated
        ),
        calls=measure_lengths(call.end_s - call.start_s for call in found.calls),
        segments=measure_lengths(segment.end_s - segment.start_s for segment in found.segments),
    )


def read_facts(path: Path) -> tuple[Facts, list[str]]:
    """Read the facts, and the notes, from the `segments.json` of a run."""
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        given = told["facts"] | {name: Lengths(**told["facts"][name]) for name in SPANS}
        kept: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in given.items()
        }
        return Facts(**kept), [str(note) for note in told["notes"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: wanted the segments.json of callshot segment, and cannot read it ({error!r})"
        ) from None
