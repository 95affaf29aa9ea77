"""Recordings and annotations → segments, and a reject for each annotation that became none.

    calls = make_calls(…)            annotations in seconds, on recordings that can be read
    cuts = cut_segments(…)           segments that are long enough, with all overlapping labels
    check_audio(…)                   segments whose audio cannot be read become rejects too

`segment_corpus` does all of it. Section 1 of the method.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from callshot.corpus.annotations import AnnotationOptions
from callshot.corpus.audio import load_audio
from callshot.corpus.calls import Spelling, make_calls
from callshot.corpus.corpus_annotations import (
    RecordingAnnotation,
    read_corpus_annotations,
)
from callshot.corpus.known_corpora import Corpus, default_options
from callshot.corpus.notes import (
    describe_doubts,
    describe_folds,
    describe_peaks,
    merge_notes,
)
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.recordings import (
    Errors,
    Library,
    Recordings,
    find_recordings,
    probe_recordings,
)
from callshot.corpus.renaming import Renaming
from callshot.errors import InputError, count_text
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
    scale_progress,
)
from callshot.records.duplicates import (
    NO_GROUP,
    describe_duplicates,
    find_duplicates,
)
from callshot.storage import to_path

Cut = tuple[Segment, Call]
Labels = tuple[str, ...]

ROUNDING_S = 1e-9


def segment_corpus(
    audio: Path | str,
    annotations: Path | str | None = None,
    *,
    options: SegmentationOptions | None = None,
    format: str = "auto",
    annotation_options: AnnotationOptions | None = None,
    corpus: Corpus | None = None,
    check: bool = True,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Segmentation:
    """Cut recordings into segments by their annotations.

    Each annotation becomes a segment or a reject with a reason; nothing is dropped in silence. The
    parameters are those of `callshot.segment`. Without `check`, audio is not read, and unreadable
    segments are found later.
    """
    options = options or default_options(corpus)
    annotation_options = annotation_options or AnnotationOptions()
    rename = Renaming(annotation_options.rename)
    spell: Spelling = rename
    if corpus is not None:
        annotation_options = replace(
            annotation_options, is_known_label=corpus.has_label
        )
        spell = partial(_spell, rename, corpus)
    library = find_recordings(
        to_path(audio), follow_links=annotation_options.follow_links
    )
    _check_recordings(library)
    share = 0.1 if check else 0.5  # reading audio takes most of the time
    step_progress = scale_progress(progress, share)
    annotation_path = None if annotations is None else to_path(annotations)
    corpus_annotations = read_corpus_annotations(
        library, annotation_path, format, annotation_options, step_progress
    )
    rate_hz = options.source_rate_hz
    recordings, errors = probe_recordings(library, rate_hz, step_progress)
    calls, impossible = make_calls(
        corpus_annotations.annotations, recordings, errors, spell
    )
    cuts, short = cut_segments(calls, options, recordings)
    segments = [segment for segment, _ in cuts]
    doubts = describe_doubts(calls, options, recordings, corpus)
    unused_errors = _unused_errors(library, errors, corpus_annotations.annotations)
    segmentation = Segmentation(
        recordings=list(recordings.values()),
        annotated=frozenset(corpus_annotations.annotated),
        sources=[
            (*source, files) for source, files in corpus_annotations.recognised.items()
        ],
        annotation_count=len(corpus_annotations.annotations)
        + len(corpus_annotations.rejects),
        calls=calls,
        segments=segments,
        rejects=_sort_rejects([*corpus_annotations.rejects, *impossible, *short]),
        skipped_files=[
            *library.rejects,
            *corpus_annotations.skipped_files,
            *unused_errors,
        ],
        notes=[
            *merge_notes(corpus_annotations.notes),
            *rename.describe(),
            *doubts,
            *describe_folds(segments),
        ],
        audio=str(library.root.absolute()),
        min_length_s=options.min_length_s,
    )
    if not check:
        return segmentation
    audio_progress = scale_progress(progress, 1 - 2 * share)
    return check_audio(segmentation, cuts, threads, audio_progress)


def _spell(rename: Renaming, corpus: Corpus, label: str) -> str:
    return corpus.spell(rename(label))


def _check_recordings(library: Library) -> None:
    """Raise InputError if a library is empty; links and other files left out are the reason."""
    if library.paths:
        return
    reason = "expected a folder with audio files"
    for reject in library.rejects[:1]:
        count = len(library.rejects)
        files = count_text(count, "file")
        reason = f"the first of {files} left out: {reject.file}: {reject.reason}"
    raise InputError(f"{library.root}: no recordings found; {reason}")


def _sort_rejects(rejects: Iterable[Reject]) -> list[Reject]:
    return sorted(rejects, key=lambda reject: (reject.file, reject.row or 0))


def audio_root(audio: Path) -> Path:
    """Return the folder that the paths of segments are relative to."""
    if audio.is_file():
        return audio.parent
    return audio


def _unused_errors(
    library: Library, errors: Errors, annotations: Iterable[RecordingAnnotation]
) -> Iterator[Reject]:
    """Yield the unreadable recordings that no annotation is on: no reject mentions them."""
    annotated = {path for path, _ in annotations}
    for path, error in errors.items():
        if path not in annotated:
            reason = str(error).removeprefix(f"{path}: ")
            yield Reject(str(library.root / path), None, reason)


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
            recording = recordings[call.path]
            note = recording.describe_length()
            if note and call.end_s >= recording.duration_s:
                reason += f" ({call.path}: {note})"
            rejects.append(call.annotation.reject(reason))
    names = name_segments([_span(call) for call, _ in long])
    cuts = []
    for name, (call, labels) in zip(names, long, strict=True):
        segment = _make_segment(name, call, labels, options)
        cuts.append((segment, call))
    return cuts, rejects


def _span(call: Call) -> Span:
    if call.annotation.end_s is None:
        return call.path, call.start_s, None, call.label
    return call.path, call.start_s, call.end_s, call.label


def overlapping_labels(calls: Sequence[Call]) -> list[Labels]:
    """Return the labels of all calls that overlap each call by more than 0 s, with its own.

    >>> from callshot.records import Annotation
    >>> row = Annotation(None, 0, 1, "", "a.txt", 1)
    >>> spans = [(0, 2, "roar"), (1, 3, "rumble"), (3, 4, "blow")]
    >>> overlapping_labels([Call("a", "a", start, end, label, row) for start, end, label in spans])
    [('roar', 'rumble'), ('roar', 'rumble'), ('blow',)]
    """
    labels: list[Labels] = []
    for _, group in groupby(calls, key=lambda call: call.path):
        labels += _overlapping_labels_of_recording(list(group))
    return labels


def _overlapping_labels_of_recording(calls: Sequence[Call]) -> Iterator[Labels]:
    """A label overlaps a call if more of its calls start before the end than end by the start."""
    start_s = np.array([call.start_s for call in calls])
    end_s = np.array([call.end_s for call in calls])
    label = np.array([call.label for call in calls], object)
    labels = [{name} for name in label]
    for name in set(label):
        has_name = label == name
        starts_s = np.sort(start_s[has_name])
        ends_s = np.sort(end_s[has_name])
        started = np.searchsorted(starts_s, end_s - ROUNDING_S, "left")
        ended = np.searchsorted(ends_s, start_s + ROUNDING_S, "right")
        for row in np.flatnonzero(started > ended):
            labels[row].add(name)
    return (tuple(sorted(names)) for names in labels)


def _measure_call(
    call: Call, options: SegmentationOptions, recording: Recording
) -> float:
    """Return the length that counts: that of the annotation, or of the audio with its collar."""
    if not options.with_collar:
        return call.duration_s
    end_s = min(call.end_s + options.collar_s, recording.duration_s)
    return end_s - max(call.start_s - options.collar_s, 0.0)


def _make_segment(
    name: str, call: Call, labels: Labels, options: SegmentationOptions
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
        peak_dbfs=options.peak_dbfs,
        source_rate_hz=options.source_rate_hz,
        extra=extra,
    )


def check_audio(
    segmentation: Segmentation,
    cuts: Sequence[Cut],
    threads: int | None,
    progress: Progress,
) -> Segmentation:
    """Read all segments; turn unreadable ones into rejects.

    Silence, clipping, and audio that is also in another recording are noted.
    """
    readable = []
    checksums = []
    rejects = [*segmentation.rejects]
    peaks = []
    lengths_s = {one.path: one.duration_s for one in segmentation.recordings}
    damaged: dict[str, None] = {}
    segments = [replace(segment, peak_dbfs=None) for segment, _ in cuts]
    loaded = load_audio(to_path(segmentation.audio), segments, threads=threads)
    with closing(loaded) as signals:
        for (segment, call), (_, signal) in zip(cuts, signals, strict=True):
            progress(1 / len(cuts), "reading segments")
            if isinstance(signal, InputError):
                rejects.append(call.annotation.reject(signal))
            else:
                readable.append(segment)
                if _is_shortened(segment, len(signal), lengths_s[segment.path]):
                    damaged[segment.path] = None
                peaks.append(float(np.abs(signal).max()))
                checksums.append(hashlib.sha256(signal.tobytes()).digest())
    damage = [
        f"{path}: the file is damaged; calls that reach into the damage are read up to "
        "there; copy it again"
        for path in damaged
    ]
    groups = find_duplicates(checksums, [segment.recording for segment in readable])
    names = [segment.segment for segment in readable]
    duplicates = describe_duplicates(groups, names, "audio")
    numbered = zip(groups.tolist(), readable, strict=True)
    return replace(
        segmentation,
        segments=readable,
        rejects=_sort_rejects(rejects),
        notes=[
            *segmentation.notes,
            *damage,
            *describe_peaks(peaks, len(cuts)),
            *duplicates,
        ],
        duplicates=[
            (group, segment) for group, segment in numbered if group != NO_GROUP
        ],
    )


def _is_shortened(segment: Segment, samples: int, length_s: float) -> bool:
    """Return whether a segment has fewer samples than a recording of this length gives it."""
    start_s = max(0.0, segment.start_s - segment.collar_s)
    end_s = min(segment.end_s + segment.collar_s, length_s)
    return samples < (end_s - start_s) * segment.rate_hz - 2
