"""Annotations on recordings → segments, and a reason for each that became none. Section 1 of the method.

    calls = place_calls(…)           annotations in seconds, on recordings that can be read
    cuts = cut_segments(…)           segments that are long enough, each with the labels that overlap it
    check_audio(…)                   those whose audio cannot be read are rejects too

`segment_corpus` does it all.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import compress, groupby
from pathlib import Path

import numpy as np

from callshot.corpus.annotation_sources import read_sources
from callshot.corpus.annotations import Hints
from callshot.corpus.audio import load_audio, probe
from callshot.corpus.known_corpora import Corpus, default_options
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.recordings import Library, find_recordings
from callshot.errors import InputError
from callshot.records import (
    Annotation,
    Call,
    Progress,
    Recording,
    Reject,
    Segment,
    Segmentation,
    name_segments,
    no_progress,
)

Cut = tuple[Segment, Call]
NANOSECOND = 1e-9  # less is rounding, not time
ROUND = tuple(step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5))
OVERSHOOT_S = (
    0.1  # annotations are good to about that; a call that ends later ends with its recording
)


def segment_corpus(
    audio: Path | str,
    annotations: Path | str | None = None,
    *,
    options: SegmentationOptions | None = None,
    format: str = "auto",
    hints: Hints | None = None,
    corpus: Corpus | None = None,
    check: bool = True,
    shorten: bool = False,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Segmentation:
    """Turn a folder of recordings and what annotates it into segments, with a reason for every call that became none.

    `annotations` is a file or a folder; None: found beside the recordings. `check` reads the audio of every segment, so
    that what cannot be decoded is a reject now and not a surprise later. `shorten` takes a shorter minimum where the
    rule's would drop most calls. `report` hears shares of the work.
    """
    hints = hints or Hints()
    if corpus is not None:
        hints = replace(hints, known=corpus.has_label)
    options = options or default_options(corpus)
    library = find_recordings(Path(audio))
    if not library.paths:
        raise InputError(f"{audio}: no recordings are there; wanted a folder with audio files")
    begin = 0.1 if check else 0.5  # reading audio takes most of the time
    where = None if annotations is None else Path(annotations)
    sources = read_sources(
        library, where, format, hints, lambda share, what: progress(share * begin, what)
    )
    recordings = probe_recordings(
        library, options.source_rate_hz, lambda share, what: progress(share * begin, what)
    )
    calls, misplaced = place_calls(
        sources.placed, recordings, corpus.spell if corpus is not None else str.strip
    )
    shorter = (
        suggest_minimum([call.end_s - call.start_s for call in calls], options.minimum_s)
        if shorten
        else None
    )
    options = options if shorter is None else replace(options, minimum_s=shorter)
    cuts, short = cut_segments(calls, options, recordings)
    notes = [
        *merge_notes(sources.notes),
        *_doubts(calls, options, recordings.values()),
        *_unknown(calls, corpus),
    ]
    unread: list[Reject] = []
    if check:
        cuts, unread, heard = check_audio(
            library.root, cuts, threads, lambda share, what: progress(share * 0.8, what)
        )
        notes += heard
    rejects = [*sources.rejects, *misplaced, *short, *unread]
    return Segmentation(
        recordings=[found for found in recordings.values() if isinstance(found, Recording)],
        annotated=frozenset(sources.annotated),
        sources=[(format, why, files) for (format, why), files in sources.recognised.items()],
        annotation_count=len(sources.placed) + len(sources.rejects),
        calls=calls,
        segments=[segment for segment, _ in cuts],
        rejects=sorted(rejects, key=lambda r: (r.file, r.row or 0)),
        skipped_files=[
            *library.rejects,
            *sources.refused,
            *_silent_failures(library, recordings, sources.placed),
        ],
        notes=notes,
    )


def audio_root(audio: Path) -> Path:
    """Return the folder that paths of segments are relative to."""
    return audio.parent if audio.is_file() else audio


def merge_notes(notes: Mapping[str, int]) -> list[str]:
    """Make one note of those that are alike but for the count they begin with, from as many files as said so.

    >>> merge_notes({"3 rows are empty": 2, "1 rows are empty": 1, "read as Latin-1": 1})
    ['7 rows are empty (3 files)', 'read as Latin-1']
    """
    sums, files = defaultdict[str, int](int), Counter[str]()
    for note, times in notes.items():
        count, text = re.match(r"(\d*)(.*)", note, re.DOTALL).groups()  # type: ignore[union-attr]
        sums[text] += int(count or 0) * times
        files[text] += times
    return [
        f"{sums[text] or ''}{text}{f' ({times} files)' if times > 1 else ''}"
        for text, times in files.items()
    ]


def suggest_minimum(lengths_s: Sequence[float], minimum_s: float) -> float | None:
    """Return a round minimum that keeps at least 95 % of the calls, where the given one would drop more than half.

    >>> suggest_minimum([0.05, 0.06, 0.07, 1.5], 1.0), suggest_minimum([0.5, 2.0, 3.0], 1.0)
    (0.05, None)
    """
    ordered = sorted(lengths_s)
    if sum(length < minimum_s for length in ordered) * 2 <= len(ordered):
        return None
    return max((step for step in ROUND if step <= ordered[len(ordered) // 20]), default=0.0)


def _doubts(
    calls: Sequence[Call],
    options: SegmentationOptions,
    recordings: Iterable[Recording | InputError],
) -> Iterator[str]:
    """Tell what a person would want to look at: calls that are mostly short, labels that are nearly one, cut files."""
    shorter = suggest_minimum([call.end_s - call.start_s for call in calls], options.minimum_s)
    if shorter is not None:
        yield f"most calls are shorter than {options.minimum_s:g} s; --min-length {shorter:g} would keep nearly all"
    alike = defaultdict[str, set[str]](set)
    for label in {call.label for call in calls}:
        alike[re.sub(r"[\W_]+", "", label).casefold()].add(label)
    for names in sorted(
        sorted(names) for plain, names in alike.items() if plain and len(names) > 1
    ):
        yield f"nearly the same label, and taken for {len(names)}: {', '.join(map(repr, names))}"
    cut = [r for r in recordings if isinstance(r, Recording) and r.missing_s > 0]
    if cut:
        yield f"cut short, by their headers: {len(cut)} recordings, the first {cut[0].path} by {cut[0].missing_s:.1f} s"


def _unknown(calls: Sequence[Call], corpus: Corpus | None) -> Iterator[str]:
    """Tell the labels that are not in the corpus's list, which are kept."""
    if corpus is not None:
        found = Counter(call.label for call in calls if not corpus.has_label(call.label))
        told = ", ".join(f"{label!r} ({count})" for label, count in found.most_common())
        if told:
            yield f"not in the list of {corpus.name}, and kept: {told}"


def _silent_failures(
    library: Library,
    recordings: Mapping[str, Recording | InputError],
    placed: Iterable[tuple[str, Annotation]],
) -> Iterator[Reject]:
    """Tell the recordings that cannot be read and that no annotation asks for: no row would tell."""
    asked = {path for path, _ in placed}
    for path, found in recordings.items():
        if isinstance(found, InputError) and path not in asked:
            yield Reject(str(library.root / path), None, str(found).removeprefix(f"{path}: "))


def probe_recordings(
    library: Library, source_rate_hz: float | None, progress: Progress = no_progress
) -> dict[str, Recording | InputError]:
    """Look at the header of every recording: what it is, or why it cannot be read."""
    found: dict[str, Recording | InputError] = {}
    for path in library.paths:
        try:
            found[path] = probe(library.root / path, path, source_rate_hz)
        except InputError as error:
            found[path] = error
        progress(1 / len(library.paths), "looking at recordings")
    return found


def place_calls(
    placed: Iterable[tuple[str, Annotation]],
    recordings: Mapping[str, Recording | InputError],
    spell: Callable[[str], str] = lambda label: label,
) -> tuple[list[Call], list[Reject]]:
    """Put annotations in their place; reject those beyond the end of a recording, without one, or doubled."""
    calls, rejects = [], []
    seen: dict[tuple[object, ...], Annotation] = {}
    placed = list(placed)
    groups = _groups(placed)
    for path, annotation in placed:
        try:
            call = _place(path, annotation, recordings[path], spell)
            _refuse_other_group(call, groups.get(path))
            _refuse_double(call, seen)
            calls.append(replace(call, recording=groups.get(path, path)))
        except InputError as error:
            rejects.append(Reject(annotation.file, annotation.row, str(error)))
    return sorted(calls, key=lambda c: (c.path, c.start_s, c.end_s, c.label)), rejects


def _groups(placed: Iterable[tuple[str, Annotation]]) -> dict[str, str]:
    """Return the recording that each file is in, where one is given: the one that most rows name."""
    named = defaultdict[str, Counter[str]](Counter)
    for path, annotation in placed:
        if annotation.recording is not None:
            named[path][annotation.recording] += 1
    return {
        path: min(counts, key=lambda name: (-counts[name], name)) for path, counts in named.items()
    }


def _place(
    path: str,
    annotation: Annotation,
    recording: Recording | InputError,
    spell: Callable[[str], str],
) -> Call:
    if isinstance(recording, InputError):
        raise recording
    unit = recording.rate_hz if annotation.in_frames else 1.0
    start, length = annotation.start_s / unit, recording.duration_s
    end = length if annotation.end_s is None else annotation.end_s / unit
    beyond = start >= length or end > length + OVERSHOOT_S
    if recording.missing_s > 0 and (beyond or annotation.end_s is None):
        whole = length + recording.missing_s
        raise InputError(
            f"{path} is cut short: its header promises {whole:.6g} s, and {length:.6g} s are there"
        )
    if beyond:
        raise InputError(
            f"{start:.6g} to {end:.6g} s is beyond the end of {path}, which is {length:.6g} s long"
            " (if it is time-expanded, see --source-rate)"
        )
    return Call(path, path, start, end, spell(annotation.label), annotation)


def _refuse_other_group(call: Call, group: str | None) -> None:
    own = call.annotation.recording
    if own is not None and own != group:
        raise InputError(
            f"{call.path} is in recording {own!r} here and in {group!r} elsewhere; it can be in one only"
        )


def _refuse_double(call: Call, seen: dict[tuple[object, ...], Annotation]) -> None:
    first = seen.setdefault(
        (call.path, round(call.start_s, 6), round(call.end_s, 6), call.label), call.annotation
    )
    if first is not call.annotation:
        raise InputError(f"the same span and label as {_row(first)}")


def _row(annotation: Annotation) -> str:
    return annotation.file if annotation.row is None else f"{annotation.file}, row {annotation.row}"


def cut_segments(
    calls: Sequence[Call],
    options: SegmentationOptions,
    recordings: Mapping[str, Recording | InputError],
) -> tuple[list[Cut], list[Reject]]:
    """Make a segment of every call that is long enough; return both. `calls` are sorted by path and start.

    Its label is the annotation's own: that covers the centre, and the own one counts where several do. Its labels are
    those of all calls that overlap it, the short ones too.
    """
    labels = overlapping_labels(calls)
    lengths_s = [_length(call, options, recordings[call.path]) for call in calls]
    long = [length_s >= options.minimum_s - NANOSECOND for length_s in lengths_s]
    names = name_segments([_named_by(call) for call in compress(calls, long)])
    kept = compress(zip(calls, labels, strict=True), long)
    cuts = [
        (_segment(name, call, found, options), call)
        for name, (call, found) in zip(names, kept, strict=True)
    ]
    short = compress(zip(calls, lengths_s, strict=True), (not enough for enough in long))
    return cuts, [_too_short(call, length_s, options) for call, length_s in short]


def overlapping_labels(calls: Sequence[Call]) -> list[tuple[str, ...]]:
    """Return the labels of all calls that overlap each one by more than 0 s, its own among them.

    A label does if more of its calls have begun before a call's end than have ended by its start.

    >>> row = Annotation(None, 0, 1, "", "a.txt", 1)
    >>> spans = [(0, 2, "roar"), (1, 3, "rumble"), (3, 4, "blow")]
    >>> overlapping_labels([Call("a", "a", start, end, label, row) for start, end, label in spans])
    [('roar', 'rumble'), ('roar', 'rumble'), ('blow',)]
    """
    found: list[tuple[str, ...]] = []
    for _, run in groupby(calls, key=lambda call: call.path):
        here = list(run)
        starts, ends = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        for call in here:
            starts[call.label].append(call.start_s)
            ends[call.label].append(call.end_s)
        for times in (*starts.values(), *ends.values()):
            times.sort()
        for call in here:
            late, early = call.end_s - NANOSECOND, call.start_s + NANOSECOND
            there = (
                label
                for label in starts
                if bisect_left(starts[label], late) > bisect_right(ends[label], early)
            )
            found.append(tuple(sorted({call.label, *there})))
    return found


def _named_by(call: Call) -> tuple[str, float, float | None, str]:
    return (
        call.path,
        call.start_s,
        None if call.annotation.end_s is None else call.end_s,
        call.label,
    )


def _length(call: Call, options: SegmentationOptions, recording: Recording | InputError) -> float:
    """Return the length that counts: the annotated one, or that of the audio with its collar."""
    if not options.with_collar or isinstance(recording, InputError):
        return call.end_s - call.start_s
    return min(call.end_s + options.collar_s, recording.duration_s) - max(
        call.start_s - options.collar_s, 0.0
    )


def _too_short(call: Call, length_s: float, options: SegmentationOptions) -> Reject:
    reason = f"shorter than {options.minimum_s:g} s: {length_s:.6g} s"
    return Reject(call.annotation.file, call.annotation.row, reason)


def _segment(
    name: str, call: Call, labels: tuple[str, ...], options: SegmentationOptions
) -> Segment:
    annotation = call.annotation
    written = {} if annotation.label == call.label else {"label_written": annotation.label}
    return Segment(
        segment=name,
        recording=call.recording,
        path=call.path,
        start_s=call.start_s,
        end_s=call.end_s,
        collar_s=options.collar_s,
        label=call.label,
        labels=labels,
        rate_hz=options.rate_hz,
        channel_rule=options.channel_rule,
        level_dbfs=options.level_dbfs,
        source_rate_hz=options.source_rate_hz,
        extra={**annotation.extra, **written},
    )


def check_audio(
    root: Path,
    cuts: Sequence[Cut],
    threads: int | None = None,
    progress: Progress = no_progress,
) -> tuple[list[Cut], list[Reject], list[str]]:
    """Read every segment; return those that can be read, a reject for each other, and notes on silence and clipping."""
    kept, rejects, heard = [], [], Counter[str]()
    plain = [replace(segment, level_dbfs=None) for segment, _ in cuts]
    with closing(load_audio(root, plain, threads=threads)) as signals:
        for n, signal in signals:
            call = cuts[n][1]
            if isinstance(signal, InputError):
                rejects.append(Reject(call.annotation.file, call.annotation.row, str(signal)))
            else:
                kept.append(cuts[n])
                heard.update(_hear(float(np.abs(signal).max())))
            progress(1 / len(cuts), "reading segments")
    return (
        kept,
        rejects,
        [f"{told}: {count} of {len(cuts)} segments" for told, count in heard.items()],
    )


def _hear(peak: float) -> Iterator[str]:
    if peak == 0:
        yield "silent, and kept so"
    if peak >= 1:
        yield "touching full scale, so perhaps clipped"
