"""What a corpus holds, in numbers.

`inspect_corpus` looks at a folder before anything is decided: its calls, and the folds they allow.
`measure_corpus` takes a segmentation and returns the numbers that a report gives for the corpus.
`read_stats` reads those numbers back from the files of a run.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from callshot.corpus.annotations import AnnotationOptions
from callshot.corpus.known_corpora import Corpus, default_options
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segments import segment_corpus
from callshot.errors import InputError
from callshot.fewshot.folds import (
    DEFAULT_FOLDS,
    check_folds,
    complete_shots,
    count_classes,
    make_folds,
)
from callshot.records import (
    CorpusStats,
    DurationStats,
    Folds,
    Inspection,
    Progress,
    Segmentation,
    given_folds,
    no_progress,
)
from callshot.spans import Spans

MAX_FOLDS = 10


def inspect_corpus(
    audio: Path,
    annotations: Path | None = None,
    *,
    options: SegmentationOptions | None = None,
    format: str = "auto",
    annotation_options: AnnotationOptions | None = None,
    corpus: Corpus | None = None,
    folds: int | None = None,
    progress: Progress = no_progress,
) -> Inspection:
    """Read the headers and annotations of a folder, and find the labels that folds would evaluate.

    Folds in the annotations are used as they are.
    """
    options = options or default_options(corpus)
    segmentation = segment_corpus(
        audio,
        annotations,
        options=options,
        format=format,
        annotation_options=annotation_options,
        corpus=corpus,
        check=False,
        progress=progress,
    )
    if folds is None:
        folds = DEFAULT_FOLDS if corpus is None else corpus.folds
    assignment = _choose_folds(segmentation.segments, folds)
    label = segmentation.segments["label"]
    recording = segmentation.segments["recording"]
    classes = []
    if assignment is not None:
        classes = count_classes(label, assignment, recording)
    return Inspection(
        segmentation=segmentation,
        possible=_count_labels_by_folds(label, recording),
        folds=assignment,
        classes=classes,
        complete_shots=complete_shots(classes),
    )


def _choose_folds(segments: Spans, folds: int) -> Folds | None:
    """Return the folds in the annotations, or new ones; None if there are too few recordings."""
    label = segments["label"]
    recording = segments["recording"]
    annotated = given_folds(segments)
    if annotated is not None:
        return check_folds(recording, annotated)
    if len(set(recording)) < folds:
        return None
    return make_folds(label, recording, folds)


def _count_labels_by_folds(
    label: Sequence[str], recording: Sequence[str]
) -> dict[int, int]:
    """Return how many labels are in enough recordings, for each possible number of folds."""
    pairs = set(zip(label, recording, strict=True))
    recordings = Counter(name for name, _ in pairs)
    limit = min(MAX_FOLDS, len(set(recording)))
    counts = {}
    for folds in range(2, limit + 1):
        counts[folds] = sum(count >= folds for count in recordings.values())
    return counts


def measure_durations(durations_s: Iterable[float]) -> DurationStats:
    """Return the number of durations and their statistics, all zero if there are none.

    >>> measure_durations([1.0, 3.0]).mean_s
    2.0
    """
    values = list(durations_s)
    if not values:
        return DurationStats(
            count=0,
            total_s=0.0,
            mean_s=0.0,
            shortest_s=0.0,
            longest_s=0.0,
            deviation_s=0.0,
        )
    return DurationStats(
        count=len(values),
        total_s=sum(values),
        mean_s=fmean(values),
        shortest_s=min(values),
        longest_s=max(values),
        deviation_s=pstdev(values),
    )


def measure_corpus(
    segmentation: Segmentation, options: SegmentationOptions
) -> CorpusStats:
    """Return the statistics of a corpus: its recordings, calls and segments."""
    recordings = segmentation.recordings
    annotated = [r for r in recordings if r.path in segmentation.annotated]
    rates_hz = {recording.rate_hz for recording in recordings}
    channels = {recording.channels for recording in recordings}
    kinds = {recording.kind for recording in recordings}
    return CorpusStats(
        rates_hz=tuple(sorted(rates_hz)),
        channels=tuple(sorted(channels)),
        kinds=tuple(sorted(kinds)),
        labels=len(set(segmentation.calls["label"])),
        min_length_s=options.min_length_s,
        collar_s=options.collar_s,
        recordings=measure_durations(r.duration_s for r in recordings),
        annotated=measure_durations(r.duration_s for r in annotated),
        calls=measure_durations(segmentation.calls.durations_s.tolist()),
        segments=measure_durations(segmentation.segments.durations_s.tolist()),
    )


def read_stats(path: Path) -> tuple[CorpusStats, list[str]]:
    """Read the statistics and the notes in the `segments.json` of a run."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        values = dict(content["facts"])
        for name in ("rates_hz", "channels", "kinds"):
            values[name] = tuple(values[name])
        for name in ("recordings", "annotated", "calls", "segments"):
            values[name] = DurationStats(**values[name])
        return CorpusStats(**values), [str(note) for note in content["notes"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: expected the segments.json of callshot segment, cannot read it ({error!r})"
        ) from None
