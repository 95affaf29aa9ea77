"""Annotations on recordings → segments, and a reason for each annotation that became none.

    calls = place_calls(…)           annotations in seconds, on recordings that can be read
    cuts = cut_segments(…)           segments that are long enough, with all overlapping labels
    check_audio(…)                   segments whose audio cannot be read become rejects too

`segment_corpus` does all of it. Section 1 of the method.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from callshot.corpus.annotation_sources import Placed, place_calls, read_sources
from callshot.corpus.annotations import Hints
from callshot.corpus.audio import load_audio
from callshot.corpus.known_corpora import Corpus, default_options
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.recordings import (
    Errors,
    Library,
    Recordings,
    find_recordings,
    probe_recordings,
)
from callshot.errors import InputError
from callshot.records import (
    Call,
    Progress,
    Recording,
    Reject,
    Segment,
    Segmentation,
    Span,
    name_segments,
    no_progress,
)

Cut = tuple[Segment, Call]

ROUNDING_S = 1e-9
ROUND_MINIMA_S = tuple(
    step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5)
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
    """Cut recordings into segments by their annotations.

    Each annotation becomes a segment or a reject with a reason; nothing is dropped in silence.

    Parameters
    ----------
    audio
        Folder of the recordings, or one recording.
    annotations
        File or folder of annotations; by default they are looked for beside the recordings.
    options
        How segments are cut; by default those of `corpus`, or the paper's.
    format
        Format of the annotations: "auto" recognises it, "folders" labels recordings by folder.
    hints
        What is known about the annotation files, such as the names of their columns.
    corpus
        A corpus of the paper, with its own options and spelling of labels.
    check
        Read the audio of every segment, so that unreadable ones are rejected now.
    shorten
        Use a shorter minimum length if the given one rejects more than half of the calls.
    threads
        Number of threads that read audio; all processors by default.
    progress
        Called with shares of the work, which add up to 1.

    Returns
    -------
    Segmentation
        Segments, rejects, and what was found on the way.

    Raises
    ------
    InputError
        If there are no recordings or no annotations, or if annotations contradict each other.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> soundfile.write(folder / "a.wav", np.full(64000, 0.5), 16000)
    >>> _ = (folder / "a.txt").write_text("0.5\\t2.0\\trumble\\n3.0\\t3.2\\troar\\n")
    >>> result = segment_corpus(folder)
    >>> [(segment.segment, segment.label) for segment in result.segments]
    [('a.wav@0.5-2', 'rumble')]
    >>> result.rejects[0].reason
    'shorter than 1 s: 0.2 s'
    """
    options = options or default_options(corpus)
    hints = hints or Hints()
    spell: Callable[[str], str] = str.strip
    if corpus is not None:
        hints = replace(hints, known=corpus.has_label)
        spell = corpus.spell
    library = find_recordings(Path(audio))
    if not library.paths:
        raise InputError(
            f"{audio}: no recordings found; expected a folder with audio files"
        )
    if annotations is not None:
        annotations = Path(annotations)
    share = (
        0.1 if check else 0.5
    )  # of each of the two steps; reading audio takes most of the time
    step_progress = _scale_progress(progress, share)
    sources = read_sources(
        library,
        annotations,
        format,
        hints,
        step_progress,
    )
    recordings, errors = probe_recordings(
        library,
        options.source_rate_hz,
        step_progress,
    )
    calls, misplaced = place_calls(
        sources.placed,
        recordings,
        errors,
        spell,
    )
    if shorten:
        min_length_s = suggest_minimum(
            [call.duration_s for call in calls], options.min_length_s
        )
        options = (
            options
            if min_length_s is None
            else replace(options, min_length_s=min_length_s)
        )
    cuts, short = cut_segments(calls, options, recordings)
    notes = [
        *merge_notes(sources.notes),
        *_describe_doubts(calls, options, recordings, corpus),
    ]
    unreadable: list[Reject] = []
    if check:
        audio_progress = _scale_progress(progress, 1 - 2 * share)
        cuts, unreadable, audio_notes = check_audio(
            library.root,
            cuts,
            threads,
            audio_progress,
        )
        notes += audio_notes
    rejects = [*sources.rejects, *misplaced, *short, *unreadable]
    return Segmentation(
        recordings=list(recordings.values()),
        annotated=frozenset(sources.annotated),
        sources=[
            (name, reason, files)
            for (name, reason), files in sources.recognised.items()
        ],
        annotation_count=len(sources.placed) + len(sources.rejects),
        calls=calls,
        segments=[segment for segment, _ in cuts],
        rejects=sorted(rejects, key=lambda reject: (reject.file, reject.row or 0)),
        skipped_files=[
            *library.rejects,
            *sources.skipped_files,
            *_unused_errors(library, errors, sources.placed),
        ],
        notes=notes,
        audio=str(audio_root(Path(audio)).absolute()),
    )


def audio_root(audio: Path) -> Path:
    """Return the folder that the paths of segments are relative to."""
    return audio.parent if audio.is_file() else audio


def _scale_progress(progress: Progress, factor: float) -> Progress:
    """Return a progress function for a step that is only a part of the work."""
    return lambda share, task: progress(share * factor, task)


def _unused_errors(
    library: Library, errors: Errors, placed: Iterable[Placed]
) -> Iterator[Reject]:
    """Yield the unreadable recordings that no annotation is on: no reject mentions them."""
    annotated = {path for path, _ in placed}
    for path, error in errors.items():
        if path not in annotated:
            yield Reject(
                str(library.root / path),
                None,
                str(error).removeprefix(f"{path}: "),
            )


def suggest_minimum(durations_s: Sequence[float], min_length_s: float) -> float | None:
    """Return a round minimum that keeps 95 % of the calls, if the given one drops more than half.

    >>> suggest_minimum([0.05, 0.06, 0.07, 1.5], 1.0)
    0.05
    >>> suggest_minimum([0.5, 2.0, 3.0], 1.0) is None
    True
    """
    ordered = sorted(durations_s)
    short = sum(duration_s < min_length_s for duration_s in ordered)
    if short * 2 <= len(ordered):
        return None
    limit_s = ordered[len(ordered) // 20]
    return max((step for step in ROUND_MINIMA_S if step <= limit_s), default=0.0)


def merge_notes(notes: Mapping[str, int]) -> list[str]:
    """Merge notes of several files that differ only in the count they begin with.

    >>> merge_notes({"3 rows are empty": 2, "1 rows are empty": 1, "read as Latin-1": 1})
    ['7 rows are empty (3 files)', 'read as Latin-1']
    """
    totals = Counter[str]()
    files = Counter[str]()
    for note, count in notes.items():
        text = note.lstrip("0123456789")
        number = note.removesuffix(text)
        totals[text] += int(number or 0) * count
        files[text] += count
    merged = []
    for text, count in files.items():
        suffix = f" ({count} files)" if count > 1 else ""
        merged.append(f"{totals[text] or ''}{text}{suffix}")
    return merged


def _describe_doubts(
    calls: Sequence[Call],
    options: SegmentationOptions,
    recordings: Recordings,
    corpus: Corpus | None,
) -> Iterator[str]:
    """Describe what may be a mistake: short calls, labels that look alike, truncated recordings."""
    min_length_s = suggest_minimum(
        [call.duration_s for call in calls], options.min_length_s
    )
    if min_length_s is not None:
        yield (
            f"most calls are shorter than {options.min_length_s:g} s; "
            f"--min-length-s {min_length_s:g} would keep nearly all"
        )
    counts = Counter(call.label for call in calls)
    spellings = defaultdict[str, list[str]](list)
    for label in sorted(counts):
        spellings[re.sub(r"[\W_]+", "", label).casefold() or label].append(label)
    for labels in spellings.values():
        if len(labels) > 1:
            names = ", ".join(map(repr, labels))
            yield f"{len(labels)} labels differ only in spelling and are kept apart: {names}"
    cut = [recording for recording in recordings.values() if recording.missing_s > 0]
    if cut:
        yield (
            f"{len(cut)} recordings are shorter than their headers announce, "
            f"the first is {cut[0].path}, by {cut[0].missing_s:.1f} s"
        )
    if corpus is not None:
        unknown = [
            f"{name!r} ({n})"
            for name, n in counts.most_common()
            if not corpus.has_label(name)
        ]
        if unknown:
            names = ", ".join(unknown)
            yield f"labels that are not in the list of {corpus.name} are kept: {names}"


def cut_segments(
    calls: Sequence[Call], options: SegmentationOptions, recordings: Recordings
) -> tuple[list[Cut], list[Reject]]:
    """Make a segment of every call that is long enough. `calls` are sorted by path and start.

    The label of a segment is that of its own call, which covers its centre. Its labels are those of
    all calls that overlap it, also of short ones.
    """
    long = []
    rejects = []
    for call, labels in zip(calls, overlapping_labels(calls), strict=True):
        length_s = _measure_call(call, options, recordings[call.path])
        if length_s >= options.min_length_s - ROUNDING_S:
            long.append((call, labels))
        else:
            reason = f"shorter than {options.min_length_s:g} s: {length_s:.6g} s"
            rejects.append(call.annotation.reject(reason))
    names = name_segments([_span(call) for call, _ in long])
    cuts = []
    for name, (call, labels) in zip(names, long, strict=True):
        cuts.append((_make_segment(name, call, labels, options), call))
    return cuts, rejects


def _span(call: Call) -> Span:
    end_s = None if call.annotation.end_s is None else call.end_s
    return call.path, call.start_s, end_s, call.label


def overlapping_labels(calls: Sequence[Call]) -> list[tuple[str, ...]]:
    """Return the labels of all calls that overlap each call by more than 0 s, with its own.

    >>> from callshot.records import Annotation
    >>> row = Annotation(None, 0, 1, "", "a.txt", 1)
    >>> spans = [(0, 2, "roar"), (1, 3, "rumble"), (3, 4, "blow")]
    >>> overlapping_labels([Call("a", "a", start, end, label, row) for start, end, label in spans])
    [('roar', 'rumble'), ('roar', 'rumble'), ('blow',)]
    """
    labels: list[tuple[str, ...]] = []
    for _, group in groupby(calls, key=lambda call: call.path):
        labels += _overlapping_labels_of_recording(list(group))
    return labels


def _overlapping_labels_of_recording(calls: Sequence[Call]) -> list[tuple[str, ...]]:
    """A label overlaps a call if more of its calls start before the end than end by the start."""
    start_s = np.array([call.start_s for call in calls])
    end_s = np.array([call.end_s for call in calls])
    rows = defaultdict[str, list[int]](list)
    for row, call in enumerate(calls):
        rows[call.label].append(row)
    labels = [{call.label} for call in calls]
    for label, own in rows.items():
        started = np.searchsorted(
            np.sort(start_s[own]),
            end_s - ROUNDING_S,
            "left",
        )
        ended = np.searchsorted(
            np.sort(end_s[own]),
            start_s + ROUNDING_S,
            "right",
        )
        for row in np.flatnonzero(started > ended).tolist():
            labels[row].add(label)
    return [tuple(sorted(names)) for names in labels]


def _measure_call(
    call: Call, options: SegmentationOptions, recording: Recording
) -> float:
    """Return the length that counts: that of the annotation, or of the audio with its collar."""
    if not options.with_collar:
        return call.duration_s
    end_s = min(call.end_s + options.collar_s, recording.duration_s)
    return end_s - max(call.start_s - options.collar_s, 0.0)


def _make_segment(
    name: str, call: Call, labels: tuple[str, ...], options: SegmentationOptions
) -> Segment:
    extra = dict(call.annotation.extra)
    if call.annotation.label != call.label:
        extra["label_written"] = call.annotation.label
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
        channel_rule=options.channel,
        level_dbfs=options.level_dbfs,
        source_rate_hz=options.source_rate_hz,
        extra=extra,
    )


def check_audio(
    root: Path, cuts: Sequence[Cut], threads: int | None, progress: Progress
) -> tuple[list[Cut], list[Reject], list[str]]:
    """Read all segments; return the readable ones, rejects, and notes on silence and clipping."""
    readable = []
    rejects = []
    silent = 0
    clipped = 0
    segments = [replace(segment, level_dbfs=None) for segment, _ in cuts]
    with closing(load_audio(root, segments, threads=threads)) as signals:
        for index, signal in signals:
            _, call = cuts[index]
            progress(1 / len(cuts), "reading segments")
            if isinstance(signal, InputError):
                rejects.append(call.annotation.reject(signal))
                continue
            readable.append(cuts[index])
            peak = np.abs(signal).max()
            silent += peak == 0
            clipped += peak >= 1
    notes = []
    if silent:
        notes.append(f"{silent} of {len(cuts)} segments are silent")
    if clipped:
        notes.append(
            f"{clipped} of {len(cuts)} segments reach full scale and may be clipped"
        )
    return readable, rejects, notes
