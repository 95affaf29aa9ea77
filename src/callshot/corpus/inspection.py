"""A folder, before anything is decided → what is in it, how it pairs, and what the protocol could do with it."""

from collections import defaultdict
from pathlib import Path

import numpy as np

from callshot.corpus.annotations import Hints
from callshot.corpus.known_corpora import Corpus
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segments import segment_corpus, suggest_minimum
from callshot.fewshot.folds import (
    DEFAULT_FOLDS,
    check_folds,
    complete_shots,
    count_classes,
    make_folds,
)
from callshot.records import Folds, Inspection, Progress, Segmentation, no_progress

MOST_FOLDS = 10


def inspect_corpus(
    audio: Path,
    annotations: Path | None = None,
    rule: SegmentationOptions | None = None,
    *,
    format: str = "auto",
    hints: Hints | None = None,
    corpus: Corpus | None = None,
    folds: int | None = None,
    shorten: bool = True,
    progress: Progress = no_progress,
) -> Inspection:
    """Look at a folder: its audio (headers only), its annotations, and which labels `folds` folds would evaluate.

    Where the rule would drop more than half of the calls as too short, a shorter minimum is tried, and told, unless
    `shorten` is False. Folds that the annotations give are taken.
    """
    rule = rule or (SegmentationOptions() if corpus is None else corpus.rule)
    found = segment_corpus(
        audio,
        annotations,
        rule,
        format=format,
        hints=hints,
        corpus=corpus,
        check=False,
        shorten=shorten,
        progress=progress,
    )
    lengths_s = [call.end_s - call.start_s for call in found.calls]
    shorter = suggest_minimum(lengths_s, rule.minimum_s) if shorten else None
    count = folds if folds is not None else DEFAULT_FOLDS if corpus is None else corpus.folds
    return _inspection(found, count, shorter)


def _inspection(found: Segmentation, count: int, shorter: float | None) -> Inspection:
    label, recording = [s.label for s in found.segments], [s.recording for s in found.segments]
    carriers = defaultdict[str, set[str]](set)
    for name, place in zip(label, recording, strict=True):
        carriers[name].add(place)
    possible = {
        folds: sum(len(recordings) >= folds for recordings in carriers.values())
        for folds in range(2, min(MOST_FOLDS, len(set(recording))) + 1)
    }
    folds = _folds(found, label, recording, count)
    if folds is None:
        return Inspection(found, shorter, possible, None, [], 0)
    classes = count_classes(label, folds, recording)
    return Inspection(found, shorter, possible, folds, classes, complete_shots(classes))


def _folds(found: Segmentation, label: list[str], recording: list[str], count: int) -> Folds | None:
    """Take the folds that came with the annotations, or build some, where there are recordings enough."""
    given = [segment.more.get("fold") for segment in found.segments]
    if given and None not in given:
        return check_folds(recording, np.array(given, np.int64))
    return make_folds(label, recording, count) if len(set(recording)) >= count else None
