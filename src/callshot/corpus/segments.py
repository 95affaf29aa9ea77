"""Cut recordings into segments by their annotations: section 1 of the method.

Every annotation becomes a segment or a reject. `make_calls` matches annotations with recordings,
`cut_segments` keeps the calls that are long enough, with all labels that overlap them, and
`check_audio` rejects segments whose audio cannot be read.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.corpus.annotations import NO_LABEL, AnnotationOptions
from callshot.corpus.annotations.rows import other_cells, reject_row
from callshot.corpus.audio import load_audio
from callshot.corpus.options import (
    PAPER_MINIMUM_S,
    Corpus,
    SegmentationOptions,
    default_options,
    describe_renaming,
    normalize_label,
    rename_label,
)
from callshot.corpus.recordings import (
    CorpusAnnotations,
    Errors,
    Library,
    Recordings,
    find_recordings,
    probe_recordings,
    read_corpus_annotations,
    warn_left_out,
)
from callshot.errors import InputError, check_options, count_text
from callshot.records import (
    Progress,
    Recording,
    Reject,
    Segmentation,
    no_progress,
    scale_progress,
)
from callshot.records.duplicates import NO_GROUP, describe_duplicates, find_duplicates
from callshot.spans import Row, Spans, name_spans
from callshot.storage import to_path

Spelling = Callable[[str], str]

ROUNDING_S = 1e-9
OVERSHOOT_S = 0.1  # a call may end this much after its recording
ORIGIN_COLUMNS = ("is_whole", "annotation_file", "annotation_row")  # not in segments
CALL_COLUMNS = ("path", "recording", "start_s", "end_s", "label", *ORIGIN_COLUMNS)
SEGMENT_COLUMNS = (
    "segment",
    "recording",
    "path",
    "start_s",
    "end_s",
    "collar_s",
    "label",
    "labels",
    "rate_hz",
    "channel_rule",
    "peak_dbfs",
    "source_rate_hz",
)
DAMAGED = (
    "the file is damaged; calls that reach into the damage are read up to there; "
    "copy it again"
)
ROUND_MINIMA_S = [step * 10.0**power for power in range(-3, 3) for step in (1, 2, 5)]


def segment_corpus(
    audio: Path | str,
    annotations: Path | str | None = None,
    *,
    options: SegmentationOptions | None = None,
    format: str = "auto",
    annotation_options: AnnotationOptions | None = None,
    corpus: Corpus | None = None,
    known: Recordings | None = None,
    check: bool = True,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Segmentation:
    """Cut recordings by annotations.

    `known` recordings are taken as they are, without files. With `check`, the audio of all
    segments is read, and those that cannot be are rejects.
    """
    # Labels are renamed by the user, then spelt as the corpus does.
    options = options or default_options(corpus)
    annotation_options = annotation_options or AnnotationOptions()
    renames = {
        normalize_label(old): new for old, new in annotation_options.rename.items()
    }
    if corpus is not None:
        annotation_options = replace(
            annotation_options, is_known_label=corpus.has_label
        )

    def spell(label: str) -> str:
        """Return the label of a segment from the one in the annotations."""
        renamed = rename_label(label, renames)
        return renamed if corpus is None else corpus.spell(renamed)

    # Of annotations and of headers, each; reading audio takes most of the time.
    share = 0.1 if check else 0.5
    step_progress = scale_progress(progress, share)
    if known is None:
        follow_links = annotation_options.follow_links
        library = find_recordings(to_path(audio), follow_links=follow_links)
    else:
        library = Library(to_path(audio), tuple(known))
    _check_any_recordings(library)
    annotation_path = None if annotations is None else to_path(annotations)
    read = read_corpus_annotations(
        library, annotation_path, format, annotation_options, step_progress
    )
    if known is None:
        recordings, errors = probe_recordings(
            library, options.source_rate_hz, step_progress
        )
    elif any(row.get("in_frames") for row in read.rows):
        raise InputError(
            f"{annotations}: has times in frames, and there is no audio; write them in seconds"
        )
    else:
        recordings, errors = known, {}

    calls, impossible = make_calls(read.rows, recordings, errors, spell, library.root)
    segments, short = cut_segments(calls, options, recordings)
    unread = _reject_unread(library, read, errors)
    notes = [
        *_describe_reading(read, calls),
        *describe_renaming([row["label"] for row in read.rows], renames),
        *describe_doubts(calls, segments, options, recordings, corpus),
    ]
    segmentation = Segmentation(
        recordings=list(recordings.values()),
        annotated=frozenset(read.annotated),
        sources=[(*source, files) for source, files in read.recognised.items()],
        annotation_count=len(read.rows) + len(read.rejects),
        calls=calls,
        segments=segments.without(*ORIGIN_COLUMNS),
        rejects=_sort_rejects([*read.rejects, *impossible, *short]),
        skipped_files=[*library.rejects, *read.skipped_files, *unread],
        notes=notes,
        audio=str(library.root.absolute()),
        min_length_s=options.min_length_s,
    )
    if not check:
        return segmentation
    audio_progress = scale_progress(progress, 1 - 2 * share)
    return check_audio(segmentation, segments, threads, audio_progress)


def _reject_unread(
    library: Library, annotations: CorpusAnnotations, errors: Errors
) -> list[Reject]:
    """Return rejects of unreadable recordings that no row names; those with rows have rejects."""
    annotated = {row["path"] for row in annotations.rows}
    return [
        Reject(str(library.root / path), None, str(error).removeprefix(f"{path}: "))
        for path, error in errors.items()
        if path not in annotated
    ]


def _describe_reading(annotations: CorpusAnnotations, calls: Spans) -> list[str]:
    """Return the notes on annotation files, and one if files were put into one recording."""
    notes = []
    for note, file_count in annotations.notes.items():
        notes.append(note if file_count == 1 else f"{note} ({file_count} files)")
    audio_files = len(set(calls.paths))
    recordings = len(set(calls["recording"]))
    if recordings < audio_files:
        notes.append(
            f"the annotations put {count_text(audio_files, 'file')} into "
            f"{count_text(recordings, 'recording')}; files of one recording are never "
            "on both sides of a fold"
        )
    return notes


def read_spans(
    audio: Path | str,
    annotations: Path | str | None = None,
    *,
    format: str = "auto",
    annotation_options: AnnotationOptions | None = None,
    **options: Any,
) -> Spans:
    """Return the annotated calls of recordings as spans.

    Parameters
    ----------
    audio : path
        Folder of the recordings, or one recording.
    annotations : path, optional
        Annotation file or folder of annotation files; found beside the recordings by default.
    format : str
        Name of a format; by default it is recognised by the content.
    annotation_options : AnnotationOptions, optional
        What you know about the files: their columns, tiers or labels.
    **options
        Fields of `SegmentationOptions`: collar_s, min_length_s, channel, rate_hz, …

    Returns
    -------
    Spans
        A row for each call, with its recording, times in seconds, label, all labels that overlap
        it, how its audio is read, and every other column of the annotations. A warning counts
        the annotations and files that are left out; `callshot.segment` returns a reason for each.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> soundfile.write(folder / "a.wav", np.zeros(9000), 1000)
    >>> _ = (folder / "a.csv").write_text("start_s,end_s,label,rain\\n1,3,roar,no\\n")
    >>> spans = read_spans(folder)
    >>> spans["label"], spans["start_s"], spans["rain"]
    (['roar'], [1.0], ['no'])
    """
    check_options(options, SegmentationOptions)
    segmentation = segment_corpus(
        audio,
        annotations,
        options=SegmentationOptions(**options),
        format=format,
        annotation_options=annotation_options,
        check=False,
    )
    left_out = [*segmentation.rejects, *segmentation.skipped_files]
    reasons = [f"{reject.file}: {reject.reason}" for reject in left_out]
    warn_left_out(reasons, "annotation or file", "annotations or files")
    return segmentation.segments


def _check_any_recordings(library: Library) -> None:
    """Raise InputError if there are no recordings, with the first file that was left out."""
    if library.paths:
        return
    reason = "expected a folder with audio files"
    if library.rejects:
        first = library.rejects[0]
        files = count_text(len(library.rejects), "file")
        reason = f"the first of {files} left out: {first.file}: {first.reason}"
    raise InputError(f"{library.root}: no recordings found; {reason}")


def _sort_rejects(rejects: Iterable[Reject]) -> list[Reject]:
    """Sort rejects by file and row; whole files come before their rows."""
    return sorted(rejects, key=lambda reject: (reject.file, reject.row or 0))


def audio_root(audio: Path) -> Path:
    """Return the folder that the paths of segments are relative to."""
    if audio.is_file():
        return audio.parent
    return audio


def _choose_groups(annotations: Sequence[Row]) -> dict[str, str]:
    """Map each audio file to the group of files, kept in one fold, that most of its rows name."""
    pairs = [(row["path"], row["recording"]) for row in annotations if row["recording"]]
    groups: dict[str, str] = {}
    # Sorted, so that the order of rows does not decide between equal counts.
    counts = Counter(sorted(pairs))
    for (path, group), _ in counts.most_common():
        groups.setdefault(path, group)
    return groups


def make_calls(
    annotations: Sequence[Row],
    recordings: Recordings,
    errors: Errors,
    spell: Spelling,
    root: Path,
) -> tuple[Spans, list[Reject]]:
    """Turn annotations into sorted calls in seconds; impossible ones and duplicates are rejects."""
    groups = _choose_groups(annotations)
    rows = []
    rejects = []
    first_rows: dict[tuple[object, ...], Row] = {}  # by path, span and label
    for annotation in annotations:
        path = annotation["path"]
        group = groups.get(path, path)  # a file without one is its own group
        try:
            if path in errors:
                raise errors[path]
            start_s, end_s = _find_span(annotation, recordings[path])
            if annotation["recording"] not in (None, group):
                raise InputError(
                    f"{path} is in recording {annotation['recording']!r} here "
                    f"but in {group!r} elsewhere"
                )
            label = spell(annotation["label"])
            key = (path, round(start_s, 6), round(end_s, 6), label)
            first = first_rows.setdefault(key, annotation)
            if first is not annotation:
                place = f"{first['annotation_file']}, row {first['annotation_row']}"
                raise InputError(f"the same span and label as {place}")
        except InputError as error:
            rejects.append(reject_row(annotation, error))
            continue
        row = {
            "path": path,
            "recording": group,
            "start_s": start_s,
            "end_s": end_s,
            "label": label,
            "is_whole": annotation["end_s"] is None,
            "annotation_file": annotation["annotation_file"],
            "annotation_row": annotation["annotation_row"],
        }
        _add_other_cells(row, annotation)
        rows.append(row)
    rows.sort(key=itemgetter("path", "start_s", "end_s", "label"))
    calls = Spans.from_rows(rows, CALL_COLUMNS, root=root, source=str(root))
    return calls, rejects


def _add_other_cells(row: Row, annotation: Row) -> None:
    """Add to a call the other cells of its annotation, and the label there if it has another."""
    cells = other_cells(annotation)
    if annotation["label"] != row["label"]:
        cells["label_written"] = annotation["label"]
    for name, value in cells.items():
        # A column of the file must not replace one of ours.
        while name in row or name in SEGMENT_COLUMNS:
            name += "_annotated"
        row[name] = value


def _find_span(annotation: Row, recording: Recording) -> tuple[float, float]:
    """Return start and end in seconds; InputError if they are beyond the recording.

    A call is cut at the end of the sound if it ends where the header says that there is sound.
    """
    length_s = recording.duration_s
    start_s, end_s = to_seconds(annotation, recording)
    announced_s = recording.announced_s or 0.0
    if start_s < length_s < end_s <= announced_s + OVERSHOOT_S:
        end_s = length_s
    if start_s >= length_s or end_s > length_s + OVERSHOOT_S:
        expanded = "if it is time-expanded, see --source-rate-hz"
        raise InputError(
            f"{start_s:.6g} to {end_s:.6g} s is beyond the end of {recording.path}, which is "
            f"{length_s:.6g} s long ({recording.describe_length() or expanded})"
        )
    return start_s, end_s


def to_seconds(annotation: Row, recording: Recording) -> tuple[float, float]:
    """Return start and end in seconds; without an end it is the whole recording."""
    units_per_s = recording.rate_hz if annotation.get("in_frames") else 1.0
    end_s = recording.duration_s
    if annotation["end_s"] is not None:
        end_s = annotation["end_s"] / units_per_s
    return annotation["start_s"] / units_per_s, end_s


def cut_segments(
    calls: Spans, options: SegmentationOptions, recordings: Recordings
) -> tuple[Spans, list[Reject]]:
    """Make segments of calls that are long enough; `labels` are of all that overlap one."""
    lengths_s = calls.durations_s
    recording_ends_s = np.array([recordings[path].duration_s for path in calls.paths])
    starts_s, ends_s = calls.frame.select("start_s", "end_s").to_numpy().T
    if options.with_collar:
        collar_starts_s = np.maximum(starts_s - options.collar_s, 0.0)
        collar_ends_s = np.minimum(ends_s + options.collar_s, recording_ends_s)
        lengths_s = collar_ends_s - collar_starts_s
    shortest_s = options.min_length_s - ROUNDING_S
    is_long = lengths_s >= shortest_s
    rejects = []
    for row in np.flatnonzero(~is_long).tolist():
        call = calls.frame.row(row, named=True)
        reason = f"shorter than {options.min_length_s:g} s: {lengths_s[row]:.6g} s"
        recording = recordings[call["path"]]
        # A file that is cut short may be why a call at its end is.
        note = recording.describe_length()
        if note and call["end_s"] >= recording.duration_s:
            reason += f" ({call['path']}: {note})"
        rejects.append(reject_row(call, reason))
    # Before short calls are dropped, since their labels count too.
    labels = pl.Series("labels", overlapping_labels(calls), pl.List(pl.String))
    labelled = replace(calls, frame=calls.frame.with_columns(labels))
    long_calls = labelled.take(np.flatnonzero(is_long))
    segments = long_calls.with_columns(
        segment=name_spans(long_calls.frame, long_calls["is_whole"]),
        collar_s=options.collar_s,
        rate_hz=options.rate_hz,
        channel_rule=options.channel,
        peak_dbfs=options.peak_dbfs,
        source_rate_hz=options.source_rate_hz,
    )
    columns = dict.fromkeys([*SEGMENT_COLUMNS, *segments.frame.columns])
    ordered = segments.frame.select(list(columns))
    return replace(segments, frame=ordered), rejects


def overlapping_labels(calls: Spans) -> list[tuple[str, ...]]:
    """Return for each call the sorted labels of all calls that overlap it, with its own.

    Calls overlap if they share more than 0 s of a recording. A call is overlapped by one with a
    given label if more calls of that label start before its end than end before its start; both
    numbers come from a binary search in sorted times.
    """
    paths = pl.DataFrame({"path": calls.paths}).with_row_index("row")
    groups = paths.group_by("path")
    starts_s, ends_s = calls.frame.select("start_s", "end_s").to_numpy().T
    own_labels = np.array(calls["label"], object)
    overlapping = [{label} for label in own_labels]
    for group in groups.agg("row")["row"]:
        rows = group.to_numpy()  # of the calls in one recording
        # Calls that only touch do not overlap, whatever rounding does.
        inner_starts_s = starts_s[rows] + ROUNDING_S
        inner_ends_s = ends_s[rows] - ROUNDING_S
        labels_of_rows = own_labels[rows]
        for label in set(labels_of_rows):
            with_label = rows[labels_of_rows == label]
            label_starts_s = np.sort(starts_s[with_label])
            label_ends_s = np.sort(ends_s[with_label])
            # For each call of the recording: how many calls with this label …
            started = np.searchsorted(label_starts_s, inner_ends_s, "left")
            ended = np.searchsorted(label_ends_s, inner_starts_s, "right")
            is_overlapped = started > ended
            for row in rows[is_overlapped]:
                overlapping[row].add(label)
    return [tuple(sorted(labels)) for labels in overlapping]


def check_audio(
    segmentation: Segmentation, segments: Spans, threads: int | None, progress: Progress
) -> Segmentation:
    """Read all `segments`, which have ORIGIN_COLUMNS; unreadable ones become rejects."""
    readable = []  # rows of segments
    peaks = []  # of each readable segment
    checksums = []
    rejects = [*segmentation.rejects]
    lengths_s = {
        recording.path: recording.duration_s for recording in segmentation.recordings
    }
    damage_notes: dict[str, None] = {}  # each once and in order
    # Clipping shows before scaling only.
    unscaled = segments.with_columns(peak_dbfs=None)
    rows = list(unscaled.rows())
    with closing(load_audio(unscaled, threads=threads)) as signals:
        for row_number, signal in signals:
            progress(1 / len(segments), "reading segments")
            row = rows[row_number]
            if isinstance(signal, InputError):
                rejects.append(reject_row(row, signal))
                continue
            path = row["path"]
            collar_s = row["collar_s"]
            first_s = max(0.0, row["start_s"] - collar_s)
            last_s = min(row["end_s"] + collar_s, lengths_s[path])
            length_s = last_s - first_s
            expected = length_s * row["rate_hz"]
            if len(signal) < expected - 2:  # beyond rounding
                damage_notes[f"{path}: {DAMAGED}"] = None
            readable.append(row_number)
            peaks.append(float(np.abs(signal).max()))
            checksums.append(hashlib.sha256(signal.tobytes()).digest())
    kept = segmentation.segments.take(readable)
    groups = find_duplicates(checksums, kept["recording"])
    notes = [*segmentation.notes, *damage_notes]
    notes += _describe_peaks(peaks, len(segments))
    notes += describe_duplicates(groups, kept["segment"], "audio")
    grouped = kept.frame.select(
        pl.Series("group", groups), "segment", "recording", "label"
    )
    return replace(
        segmentation,
        segments=kept,
        rejects=_sort_rejects(rejects),
        notes=notes,
        duplicates=grouped.filter(pl.col("group") != NO_GROUP).rows(),
    )


def _describe_peaks(peaks: Sequence[float], segment_count: int) -> Iterator[str]:
    """Yield notes on readable segments that are silent or at full scale, of all segments."""
    total = count_text(segment_count, "segment")
    silent = sum(peak == 0 for peak in peaks)
    clipped = sum(peak >= 1 for peak in peaks)
    if silent:
        yield f"{silent:,} of {total} silent"
    if clipped:
        yield f"{clipped:,} of {total} at full scale: may be clipped"


def describe_minimum(segmentation: Segmentation) -> str:
    """Return a line on the minimum length of segments, and what the paper's would leave out."""
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
    reason = "the annotation files have no calls"
    groups = group_rejects(segmentation.rejects or segmentation.skipped_files)
    if groups:
        largest = groups[0]
        first = largest[0]
        row = "" if first.row is None else f", row {first.row}"
        total = sum(map(len, groups))
        count = f"{len(largest):,} of {count_text(total, 'reject')}"
        reason = f"{count} like {first.file}{row}: {first.reason}"
        if first.reason == NO_LABEL:
            reason += "; --label NAME labels rows that have none"
    notes = [note for note in segmentation.notes if "--min-length-s" in note]
    reasons = "; ".join(["no annotation became a segment", reason, *notes])
    raise InputError(f"{segmentation.audio}: {reasons}")


def group_rejects(rejects: Sequence[Reject]) -> list[list[Reject]]:
    """Group rejects by the words of their reasons, without names and numbers; the largest first."""
    by_reason = defaultdict[str, list[Reject]](list)
    for reject in rejects:
        # Names and numbers have quotes and digits: only words of letters are compared.
        words = filter(str.isalpha, reject.reason.split()[:12])
        by_reason[" ".join(words)].append(reject)
    return sorted(by_reason.values(), key=len, reverse=True)


def describe_doubts(
    calls: Spans,
    segments: Spans,
    options: SegmentationOptions,
    recordings: Recordings,
    corpus: Corpus | None,
) -> Iterator[str]:
    """Yield notes on a high minimum, labels that look alike, wrong headers and unknown labels."""
    yield from _describe_high_minimum(calls.durations_s, options.min_length_s)
    counts = Counter(calls["label"])
    yield from _describe_similar_labels(counts)
    for recording in recordings.values():
        if note := recording.describe_length():
            yield f"{recording.path}: {note}"
    unknown = [
        f"{label!r} ({count})"
        for label, count in counts.most_common()
        if corpus is not None and not corpus.has_label(label)
    ]
    if corpus is not None and unknown:
        listed = ", ".join(unknown)
        yield f"labels that are not in the list of {corpus.name} are kept: {listed}"
    if "fold" in segments.frame.columns:
        missing = segments.frame["fold"].null_count()
        if 0 < missing < len(segments):
            yield f"{missing} of {len(segments)} segments without a fold: in the common fold"


def _describe_high_minimum(
    durations_s: NDArray[np.float64], minimum_s: float
) -> Iterator[str]:
    """Yield a note if most calls are shorter than the minimum, with one that suits them."""
    lengths_s = np.sort(durations_s)
    if 2 * (lengths_s < minimum_s).sum() <= len(lengths_s):
        return
    # The largest round minimum that at most one call in 20 is below.
    limit_s = lengths_s[len(lengths_s) // 20]
    suggested_s = max(
        (round_s for round_s in ROUND_MINIMA_S if round_s <= limit_s), default=0.0
    )
    yield (
        f"most calls are shorter than {minimum_s:g} s; "
        f"--min-length-s {suggested_s:g} would keep nearly all"
    )


def _describe_similar_labels(counts: Mapping[str, int]) -> Iterator[str]:
    """Yield a note for labels with the same letters; `counts` are the calls of each label."""
    spellings = defaultdict[str, list[str]](list)  # of labels with the same letters
    for label in sorted(counts):
        letters = re.sub(r"[\W_]+", "", label).casefold()
        name = f"{label!r} ({count_text(counts[label], 'call')})"
        spellings[letters or label].append(name)
    for names in spellings.values():
        if len(names) > 1:
            listed = f"{', '.join(names[:-1])} and {names[-1]}"
            yield (
                f"labels {listed} differ only in case, spacing or "
                "punctuation and are kept apart; --rename joins them"
            )
