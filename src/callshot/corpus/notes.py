"""Notes for the user: what was merged, guessed or may be a mistake in a segmentation."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from callshot.corpus.annotations import NO_LABEL
from callshot.corpus.known_corpora import Corpus
from callshot.corpus.options import PAPER_MINIMUM_S, SegmentationOptions
from callshot.corpus.recordings import Recordings
from callshot.errors import InputError, count_text
from callshot.records import Reject, Segmentation
from callshot.spans import Spans

COUNTED_NOTE = re.compile(r"([0-9,]+) (row|line|label)s?\b(.*)", re.DOTALL)
ROUND_MINIMA_S = [step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5)]


def suggest_minimum(lengths_s: Iterable[float], min_length_s: float) -> float | None:
    """Return a round minimum that keeps 95 % of the calls, if the given one drops more than half.

    >>> suggest_minimum([0.05, 0.06, 0.07, 1.5], 1.0)
    0.05
    >>> suggest_minimum([0.07, 1.5], 1.0) is None
    True
    """
    durations_s = sorted(lengths_s)
    short = sum(duration_s < min_length_s for duration_s in durations_s)
    if short * 2 <= len(durations_s):
        return None
    limit_s = durations_s[len(durations_s) // 20]
    return max((step for step in ROUND_MINIMA_S if step <= limit_s), default=0.0)


def describe_minimum(segmentation: Segmentation) -> str:
    """Describe the minimum length of a segmentation, and what the paper's would leave out."""
    if segmentation.min_length_s > 0:
        return f"minimum length: {segmentation.min_length_s:g} s (--min-length-s)"
    calls = segmentation.calls
    short = int((calls.durations_s < PAPER_MINIMUM_S).sum())
    return (
        f"minimum length: none; --min-length-s {PAPER_MINIMUM_S:g}, the paper's, drops "
        f"{short:,} of {count_text(len(calls), 'call')}"
    )


def check_any_segments(segmentation: Segmentation) -> None:
    """Raise InputError with the most frequent reason if no annotation became a segment."""
    if len(segmentation.segments) > 0:
        return
    reasons = ["no annotation became a segment"]
    groups = group_rejects(segmentation.rejects or segmentation.skipped_files)
    if groups:
        total = sum(map(len, groups))
        first = groups[0][0]
        position = first.file
        if first.row is not None:
            position += f", row {first.row}"
        verb = "is" if len(groups[0]) == 1 else "are"
        reasons.append(
            f"{len(groups[0]):,} of {count_text(total, 'reject')} {verb} like {position}: "
            f"{first.reason}"
        )
        if first.reason == NO_LABEL:
            reasons.append("--label NAME labels rows that have none")
    else:
        reasons.append("the annotation files have no calls")
    reasons += [note for note in segmentation.notes if "--min-length-s" in note]
    raise InputError(f"{segmentation.audio}: {'; '.join(reasons)}")


def group_rejects(rejects: Sequence[Reject]) -> list[list[Reject]]:
    """Return the rejects of each reason, the most frequent reason first."""
    by_reason = defaultdict[str, list[Reject]](list)
    for reject in rejects:
        by_reason[_general_reason(reject.reason)].append(reject)
    return sorted(by_reason.values(), key=len, reverse=True)


def _general_reason(reason: str) -> str:
    """Return a reason without the values of a row: its first words without digits and quotes."""
    first_words = reason.split()[:12]
    return " ".join(filter(str.isalpha, first_words))


def merge_notes(notes: Mapping[str, int]) -> list[str]:
    """Merge notes of several files that differ only in the count they begin with.

    >>> merge_notes({"3 rows left out": 2, "1 row left out": 1, "read as Latin-1": 1})
    ['7 rows left out (3 files)', 'read as Latin-1']
    """
    totals = Counter[tuple[str, str]]()
    files = Counter[tuple[str, str]]()
    for note, count in notes.items():
        match = COUNTED_NOTE.fullmatch(note)
        number, noun, text = match.groups() if match else ("0", "", note)
        totals[noun, text] += int(number.replace(",", "")) * count
        files[noun, text] += count
    merged = []
    for (noun, text), count in files.items():
        note = text
        if noun:
            note = count_text(totals[noun, text], noun) + text
        if count > 1:
            note += f" ({count} files)"
        merged.append(note)
    return merged


def describe_doubts(
    calls: Spans,
    options: SegmentationOptions,
    recordings: Recordings,
    corpus: Corpus | None,
) -> Iterator[str]:
    """Describe what may be a mistake: short calls, labels that look alike, wrong headers."""
    min_length_s = suggest_minimum(calls.durations_s, options.min_length_s)
    if min_length_s is not None:
        yield (
            f"most calls are shorter than {options.min_length_s:g} s; "
            f"--min-length-s {min_length_s:g} would keep nearly all"
        )
    counts = Counter(calls["label"])
    yield from _describe_spellings(counts)
    yield from _describe_lengths(recordings)
    if corpus is not None:
        yield from _describe_unknown(counts, corpus)


def _describe_spellings(labels: Mapping[str, int]) -> Iterator[str]:
    spellings = defaultdict[str, list[str]](list)
    for label in sorted(labels):
        letters = re.sub(r"[\W_]+", "", label).casefold()
        spellings[letters or label].append(label)
    for group in spellings.values():
        if len(group) > 1:
            *first, last = [
                f"{label!r} ({count_text(labels[label], 'call')})" for label in group
            ]
            yield (
                f"labels {', '.join(first)} and {last} differ only in "
                f"{_find_difference(group)} and are kept apart; --rename joins them"
            )


def _find_difference(labels: Sequence[str]) -> str:
    """Return in what labels with the same letters differ."""
    if len({label.casefold() for label in labels}) == 1:
        return "case"
    if len({"".join(label.split()) for label in labels}) == 1:
        return "spacing"
    return "case, spacing or punctuation"


def _describe_lengths(recordings: Recordings) -> Iterator[str]:
    for recording in recordings.values():
        if note := recording.describe_length():
            yield f"{recording.path}: {note}"


def _describe_unknown(labels: Counter[str], corpus: Corpus) -> Iterator[str]:
    unknown = []
    for label, count in labels.most_common():
        if not corpus.has_label(label):
            unknown.append(f"{label!r} ({count})")
    if unknown:
        names = ", ".join(unknown)
        yield f"labels that are not in the list of {corpus.name} are kept: {names}"


def describe_folds(segments: Spans) -> Iterator[str]:
    """Describe the segments without a fold, if others have one."""
    if "fold" not in segments.frame.columns:
        return
    empty = segments.frame["fold"].null_count()
    if 0 < empty < len(segments):
        yield f"{empty} of {len(segments)} segments without a fold: in the common fold"


def describe_peaks(peaks: Sequence[float], segments: int) -> Iterator[str]:
    """Describe segments that are silent or may be clipped."""
    silent = sum(peak == 0 for peak in peaks)
    clipped = sum(peak >= 1 for peak in peaks)
    if silent:
        verb = "is" if silent == 1 else "are"
        yield f"{silent:,} of {count_text(segments, 'segment')} {verb} silent"
    if clipped:
        verb = "reaches" if clipped == 1 else "reach"
        yield (
            f"{clipped:,} of {count_text(segments, 'segment')} {verb} full scale and may be "
            "clipped"
        )
