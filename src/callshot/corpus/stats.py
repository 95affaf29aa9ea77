"""A segmentation → the facts that a report tells of a corpus: what it is made of, how much, and how long."""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from callshot.corpus.options import SegmentationOptions
from callshot.errors import InputError
from callshot.records import CorpusStats, DurationStats, Segmentation

SPANS = ("recordings", "annotated", "calls", "segments")


def measure_durations(lengths_s: Iterable[float]) -> DurationStats:
    """Measure how many spans there are, and how long; all zero where there is none.

    >>> measure_lengths([1.0, 3.0])
    Lengths(count=2, total_s=4.0, mean_s=2.0, shortest_s=1.0, longest_s=3.0, deviation_s=1.0)
    """
    spans = list(lengths_s)
    if not spans:
        return DurationStats(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return DurationStats(
        len(spans), sum(spans), fmean(spans), min(spans), max(spans), pstdev(spans)
    )


def measure_corpus(found: Segmentation, rule: SegmentationOptions) -> CorpusStats:
    """Tell what a corpus is made of, and what the rule made of it."""
    return CorpusStats(
        rates_hz=tuple(sorted({r.rate_hz for r in found.recordings})),
        channels=tuple(sorted({r.channels for r in found.recordings})),
        kinds=tuple(sorted({r.kind for r in found.recordings})),
        labels=len({call.label for call in found.calls}),
        minimum_s=rule.minimum_s,
        collar_s=rule.collar_s,
        recordings=measure_durations(r.duration_s for r in found.recordings),
        annotated=measure_durations(
            r.duration_s for r in found.recordings if r.path in found.annotated
        ),
        calls=measure_durations(call.end_s - call.start_s for call in found.calls),
        segments=measure_durations(segment.end_s - segment.start_s for segment in found.segments),
    )


def read_stats(path: Path) -> tuple[CorpusStats, list[str]]:
    """Read the facts, and the notes, from the `segments.json` of a run."""
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        given = told["facts"] | {name: DurationStats(**told["facts"][name]) for name in SPANS}
        kept: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in given.items()
        }
        return CorpusStats(**kept), [str(note) for note in told["notes"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: wanted the segments.json of callshot segment, and cannot read it ({error!r})"
        ) from None
