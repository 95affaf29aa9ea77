"""Annotations on recordings → calls in seconds, and a reject for each that cannot be one."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from callshot.corpus.corpus_annotations import RecordingAnnotation
from callshot.corpus.recordings import Errors, Recordings
from callshot.errors import InputError
from callshot.records import Annotation, Call, Recording, Reject

Spelling = Callable[[str], str]
FirstRows = dict[tuple[object, ...], Annotation]

OVERSHOOT_S = 0.1  # a call may end this much after its recording


def make_calls(
    annotations: Sequence[RecordingAnnotation],
    recordings: Recordings,
    errors: Errors,
    spell: Spelling,
) -> tuple[list[Call], list[Reject]]:
    """Turn annotations into calls in seconds.

    Annotations beyond the end of a recording or on an unreadable one, and duplicates, are rejects.
    """
    calls = []
    rejects = []
    first_rows: FirstRows = {}
    groups = _find_groups(annotations)
    for path, annotation in annotations:
        try:
            if path in errors:
                raise errors[path]
            group = groups.get(path, path)
            call = _make_call(annotation, recordings[path], group, spell)
            _check_unique(call, first_rows)
            calls.append(call)
        except InputError as error:
            rejects.append(annotation.reject(error))
    calls.sort(key=lambda call: (call.path, call.start_s, call.end_s, call.label))
    return calls, rejects


def _find_groups(annotations: Iterable[RecordingAnnotation]) -> dict[str, str]:
    """Return the recording that each file belongs to, if one is given: the one most rows name."""
    counts = Counter[tuple[str, str]]()
    for path, annotation in annotations:
        if annotation.recording is not None:
            counts[path, annotation.recording] += 1
    groups: dict[str, str] = {}
    for path, name in sorted(sorted(counts), key=counts.__getitem__, reverse=True):
        groups.setdefault(path, name)
    return groups


def _make_call(
    annotation: Annotation, recording: Recording, group: str, spell: Spelling
) -> Call:
    start_s, end_s = _find_span(annotation, recording)
    if annotation.recording not in (None, group):
        raise InputError(
            f"{recording.path} is in recording {annotation.recording!r} here "
            f"but in {group!r} elsewhere"
        )
    label = spell(annotation.label)
    return Call(recording.path, group, start_s, end_s, label, annotation)


def _find_span(annotation: Annotation, recording: Recording) -> tuple[float, float]:
    """Return start and end in seconds; raise InputError if the recording ends before.

    A span that reaches beyond the decodable end of a recording is shortened to it, if its header
    announces more or has no exact length.
    """
    unit = recording.rate_hz if annotation.in_frames else 1.0
    length_s = recording.duration_s
    start_s = annotation.start_s / unit
    end_s = length_s
    if annotation.end_s is not None:
        end_s = annotation.end_s / unit
    announced_s = recording.announced_s or 0.0
    if start_s < length_s < end_s <= announced_s + OVERSHOOT_S:
        end_s = length_s
    if start_s >= length_s or end_s > length_s + OVERSHOOT_S:
        hint = recording.describe_length()
        if not hint:
            hint = "if it is time-expanded, see --source-rate-hz"
        raise InputError(
            f"{start_s:.6g} to {end_s:.6g} s is beyond the end of {recording.path}, "
            f"which is {length_s:.6g} s long ({hint})"
        )
    return start_s, end_s


def _check_unique(call: Call, first_rows: FirstRows) -> None:
    start_s = round(call.start_s, 6)
    end_s = round(call.end_s, 6)
    first = first_rows.setdefault(
        (call.path, start_s, end_s, call.label), call.annotation
    )
    if first is not call.annotation:
        position = first.file
        if first.row is not None:
            position += f", row {first.row}"
        raise InputError(f"the same span and label as {position}")
