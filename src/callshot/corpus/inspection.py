"""A folder, before anything is decided → what is in it, how it pairs, and what the protocol could do with it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from callshot.corpus.annotations import Hints
from callshot.corpus.corpora import Corpus
from callshot.corpus.rule import Rule
from callshot.corpus.segments import segment_corpus
from callshot.corpus.sources import Report
from callshot.fewshot.folds import complete_shots, count_classes, make_folds
from callshot.records import Inspection, Segmentation

MOST_FOLDS = 10
ROUND = tuple(step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5))


def inspect_corpus(
    audio: Path,
    annotations: Path | None = None,
    rule: Rule | None = None,
    *,
    format: str = "auto",
    hints: Hints | None = None,
    corpus: Corpus | None = None,
    folds: int | None = None,
    report: Report = lambda share, what: None,
) -> Inspection:
    """Look at a folder: its audio (headers only), its annotations, and which labels `folds` folds would evaluate.

    Where the rule would drop more than half of the calls as too short, a shorter minimum is tried, and told.
    """
    rule = rule or (Rule() if corpus is None else corpus.rule)
    found = segment_corpus(
        audio, annotations, rule, format=format, hints=hints, corpus=corpus, check=False, report=report
    )
    shorter = suggest_minimum([call.end_s - call.start_s for call in found.calls], rule.minimum_s)
    if shorter is not None:
        rule = replace(rule, minimum_s=shorter)
        found = segment_corpus(audio, annotations, rule, format=format, hints=hints, corpus=corpus, check=False)
    count = folds if folds is not None else 5 if corpus is None else corpus.folds
    return _inspection(found, count, shorter)


def suggest_minimum(lengths_s: Sequence[float], minimum_s: float) -> float | None:
    """Return a round minimum that keeps at least 95 % of the calls, where the given one would drop more than half.

    >>> suggest_minimum([0.05, 0.06, 0.07, 1.5], 1.0), suggest_minimum([0.5, 2.0, 3.0], 1.0)
    (0.05, None)
    """
    ordered = sorted(lengths_s)
    if sum(length < minimum_s for length in ordered) * 2 <= len(ordered):
        return None
    twentieth = ordered[len(ordered) // 20]
    return max((step for step in ROUND if step <= twentieth), default=0.0)


def _inspection(found: Segmentation, count: int, shorter: float | None) -> Inspection:
    label, recording = [s.label for s in found.segments], [s.recording for s in found.segments]
    carriers = {name: {r for n, r in zip(label, recording, strict=True) if n == name} for name in set(label)}
    possible = {
        folds: sum(len(recordings) >= folds for recordings in carriers.values())
        for folds in range(2, min(MOST_FOLDS, len(set(recording))) + 1)
    }
    if len(set(recording)) < count:
        return Inspection(found, shorter, possible, None, [], 0)
    folds = make_folds(label, recording, count)
    classes = count_classes(label, folds, recording)
    return Inspection(found, shorter, possible, folds, classes, complete_shots(classes))
