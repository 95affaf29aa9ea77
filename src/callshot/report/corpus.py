"""A segmentation or an inspection → what a terminal shows: the paper's tables 1 and 2.

The tables have the sources, durations and labels of a corpus, and its rejects with their reasons.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from callshot.corpus.segment_table import measure_durations
from callshot.corpus.segments import describe_minimum, group_rejects
from callshot.errors import count_text, printable
from callshot.records import (
    ClassCount,
    DurationStats,
    Folds,
    Inspection,
    Recording,
    Reject,
    Segmentation,
)
from callshot.report.progress import format_time
from callshot.report.terminal import make_table, print_lines
from callshot.spans import Spans

Classes = Sequence[ClassCount]
Rejects = Sequence[Reject]

MAX_LABELS = 40
MAX_REASONS = 8
MAX_FILES = 3
MAX_NOTES = 8
BAR_LENGTH = 24
WIDE_TERMINAL = 130  # columns from which on everything is shown
DURATIONS = ("total", "mean", "min", "max", "std. dev.")


def show_segmentation(
    segmentation: Segmentation,
    console: Console,
    next_step: str = "",
) -> None:
    """Print the sources, durations and labels of a corpus, and its rejects with reasons."""
    _show_corpus(segmentation, console)
    _show_end(segmentation, console, next_step)


def show_inspection(
    inspection: Inspection, console: Console, next_step: str = ""
) -> None:
    """Print what a folder has, how its files pair, and what the protocol could do with it."""
    segmentation = inspection.segmentation
    _show_audio(segmentation, console)
    _show_corpus(segmentation, console, inspection.classes)
    print_lines(console, _describe_folds(inspection), style="bold")
    _show_end(segmentation, console, next_step)


def _show_corpus(
    segmentation: Segmentation,
    console: Console,
    classes: Classes = (),
) -> None:
    _show_sources(segmentation, console)
    _show_durations(segmentation, console)
    _show_labels(segmentation, console, classes)
    _show_rejects(segmentation.rejects, console)
    _show_skipped_files(segmentation.skipped_files, console)


def _show_end(segmentation: Segmentation, console: Console, next_step: str) -> None:
    """Print the notes, and what to do next."""
    notes = segmentation.notes
    lines = [f"note: {note}" for note in notes[:MAX_NOTES]]
    print_lines(console, lines, style="yellow")
    _show_rest(console, len(notes) - MAX_NOTES, "note")
    print_lines(console, [next_step])


def _show_rest(console: Console, count: int, noun: str, rest: str = "") -> None:
    if count > 0:
        text = f"and {count_text(count, f'more {noun}')}{rest}"
        print_lines(console, [text], style="dim")


def _show_audio(segmentation: Segmentation, console: Console) -> None:
    formats = Counter(map(_describe_format, segmentation.recordings))
    counts = [f"{count} {name}" for name, count in formats.most_common()]
    audio = "; ".join(counts) or "no readable files"
    print_lines(console, [f"audio: {audio}"])


def _describe_format(recording: Recording) -> str:
    channels = count_text(recording.channels, "channel")
    return f"{recording.kind} at {recording.rate_hz:g} Hz, {channels}"


def _show_sources(segmentation: Segmentation, console: Console) -> None:
    for name, reason, count in segmentation.sources:
        noun = "folder" if name == "folders" else "file"
        line = f"annotations: {name} in {count_text(count, noun)}, as {reason}"
        print_lines(console, [line])
    print_lines(console, [_describe_counts(segmentation)], style="bold")
    print_lines(console, [describe_minimum(segmentation)])


def _describe_counts(segmentation: Segmentation) -> str:
    annotated = len(_annotated_recordings(segmentation))
    recordings = count_text(len(segmentation.recordings), "recording")
    annotations = count_text(segmentation.annotation_count, "annotation")
    segments = count_text(len(segmentation.segments), "segment")
    rejects = count_text(len(segmentation.rejects), "reject")
    return f"{annotated} of {recordings} annotated; {annotations} read: {segments}, {rejects}"


def _annotated_recordings(segmentation: Segmentation) -> list[Recording]:
    annotated = segmentation.annotated
    return [
        recording
        for recording in segmentation.recordings
        if recording.path in annotated
    ]


def _show_durations(segmentation: Segmentation, console: Console) -> None:
    """Print the durations of recordings, of those with annotations, of calls and of segments."""
    annotated = _annotated_recordings(segmentation)
    table = make_table("", "number", *DURATIONS)
    _add_durations(table, "recordings", _measure(segmentation.recordings))
    _add_durations(table, "annotated recordings", _measure(annotated))
    calls_s = segmentation.calls.durations_s.tolist()
    segments_s = segmentation.segments.durations_s.tolist()
    _add_durations(table, "annotated calls", measure_durations(calls_s))
    _add_durations(table, "segments", measure_durations(segments_s))
    _print_table(table, console)


def _add_durations(table: Table, name: str, durations: DurationStats) -> None:
    table.add_row(name, str(durations.count), *_format_durations(durations))


def _measure(recordings: Sequence[Recording]) -> DurationStats:
    return measure_durations(recording.duration_s for recording in recordings)


def _format_durations(durations: DurationStats) -> list[str]:
    """Return total, mean, minimum, maximum and standard deviation, as in the paper."""
    if not durations.count:
        return [""] * len(DURATIONS)
    values = (
        durations.mean_s,
        durations.shortest_s,
        durations.longest_s,
        durations.deviation_s,
    )
    total = format_time(durations.total_s, 1)
    return [total, *(f"{value:.2f} s" for value in values)]


def _show_labels(
    segmentation: Segmentation, console: Console, classes: Classes
) -> None:
    """Print a row for each label, most segments first; with `classes`, whether it is eligible."""
    columns = _choose_columns(console, classes)
    label_length = 40 if "" in columns else 24
    eligibility = {count.label: _describe_class(count) for count in classes}
    labels = _count_labels(segmentation)
    most = max((len(segments) for _, _, segments in labels), default=0)
    table = make_table(*columns)
    for label, calls, segments in labels[:MAX_LABELS]:
        cells = _segment_cells(segments, most)
        cells["label"] = _crop(label, label_length)
        cells["calls"] = str(calls)
        cells["eligible"] = eligibility.get(label, "no: no segments")
        row = [Text(cells[column]) for column in columns]
        table.add_row(*row)
    _print_table(table, console)
    _show_rest(console, len(labels) - MAX_LABELS, "label")


def _count_labels(segmentation: Segmentation) -> list[tuple[str, int, Spans]]:
    """Return each label with its number of calls and its segments, most segments first."""
    calls = Counter(sorted(segmentation.calls["label"]))
    rows = defaultdict(list)
    for row, label in enumerate(segmentation.segments["label"]):
        rows[label].append(row)
    labels = [
        (label, count, segmentation.segments.take(rows[label]))
        for label, count in calls.most_common()
    ]
    return sorted(labels, key=lambda row: -len(row[2]))


def _describe_class(count: ClassCount) -> str:
    if count.eligible:
        return f"yes, to k = {count.complete_to_k}"
    return f"no: {count.reason}"


def _choose_columns(console: Console, classes: Classes) -> list[str]:
    """Return the columns of the table of labels for which there is room; "" is a bar."""
    columns = ["label", "calls", "segments", "recordings"]
    if not console.is_terminal or console.width >= WIDE_TERMINAL:
        columns += [*DURATIONS, ""]
    elif classes:
        columns += ["mean"]
    else:
        columns += ["mean", "min", "max"]
    if classes:
        columns += ["eligible"]
    return columns


def _segment_cells(segments: Spans, most: int) -> dict[str, str]:
    """Return the cells, by column, that describe the segments of a label."""
    bar_length = round(BAR_LENGTH * len(segments) / max(most, 1))
    recordings = set(segments["recording"])
    durations = _format_durations(measure_durations(segments.durations_s.tolist()))
    cells = dict(zip(DURATIONS, durations, strict=True))
    cells[""] = "━" * bar_length
    cells["segments"] = str(len(segments))
    cells["recordings"] = str(len(recordings))
    return cells


def _crop(text: str, length: int) -> str:
    if len(text) > length:
        text = text[: length - 1] + "…"
    return printable(text)


def _show_rejects(rejects: Rejects, console: Console) -> None:
    """Print each reason with its count, and the place of the first reject for it."""
    if not rejects:
        return
    count = count_text(len(rejects), "annotation")
    print_lines(console, [f"rejects: {count}; the first of each reason:"])
    groups = group_rejects(rejects)
    lines = map(describe_rejects, groups[:MAX_REASONS])
    print_lines(console, lines, style="dim")
    rest = "; segment lists all in rejects.csv"
    _show_rest(console, len(groups) - MAX_REASONS, "reason", rest)


def describe_rejects(rejects: Rejects) -> str:
    """Return how many rejects have one reason, and the first of them."""
    first = rejects[0]
    place = first.file
    if first.row is not None:
        place += f", row {first.row}"
    reason = _crop(first.reason, 100)
    return f"  {len(rejects):5d}  {reason}  ({place})"


def _show_skipped_files(files: Rejects, console: Console) -> None:
    if not files:
        return
    count = count_text(len(files), "file")
    print_lines(console, [f"left out: {count}"])
    lines = [f"  {skipped.file}: {skipped.reason}" for skipped in files[:MAX_FILES]]
    print_lines(console, lines, style="dim")
    rest = "; segment lists them in rejects.csv"
    _show_rest(console, len(files) - MAX_FILES, "file", rest)


def _describe_folds(inspection: Inspection) -> Iterator[str]:
    counts = [f"{folds}: {labels}" for folds, labels in inspection.possible.items()]
    if counts:
        yield f"labels in enough recordings, by number of folds: {', '.join(counts)}"
    else:
        yield "too few recordings for folds"
    if inspection.folds is not None:
        yield _describe_eligible(inspection, inspection.folds)


def _describe_eligible(inspection: Inspection, folds: Folds) -> str:
    eligible = [count for count in inspection.classes if count.eligible]
    queries = sum(sum(count.per_fold) for count in eligible)
    labels = count_text(len(inspection.classes), "label")
    examples = "example" if inspection.complete_shots == 1 else "examples"
    return (
        f"with {folds.count} folds ({folds.proof}): "
        f"{len(eligible)} of {labels} can be evaluated, "
        f"with {count_text(queries, 'query')} and up to k* = {inspection.complete_shots} "
        f"{examples} of each"
    )


def _print_table(table: Table, console: Console) -> None:
    """Print a table; a file or a pipe has as much room as it needs."""
    output = console
    if not console.is_terminal:
        output = Console(file=console.file, width=240, no_color=True)
    with output.capture() as captured:
        output.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    text = "\n".join(lines)
    console.file.write(f"\n{text}\n\n")
