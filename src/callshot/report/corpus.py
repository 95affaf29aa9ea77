"""A segmentation or an inspection → what a terminal shows: the paper's tables 1 and 2.

The tables have the sources, durations and labels of a corpus, and its rejects with their reasons.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from callshot.corpus.inspection import measure_durations
from callshot.errors import printable
from callshot.records import (
    ClassCount,
    DurationStats,
    Inspection,
    Reject,
    Segment,
    Segmentation,
)
from callshot.report.terminal import make_table, print_lines

MOST_LABELS = 40
MOST_REASONS = 8
MOST_FILES = 3
MOST_NOTES = 8
BAR_LENGTH = 24
WIDE_TERMINAL = 130  # columns from which on everything is shown
DURATIONS = ("total", "mean", "min", "max", "std. dev.")


def show_segmentation(
    segmentation: Segmentation,
    console: Console,
    next_step: str = "",
) -> None:
    """Print the sources, durations and labels of a corpus, and its rejects with reasons."""
    _show_sources(segmentation, console)
    _show_durations(segmentation, console)
    _show_labels(segmentation, console)
    _show_rejects(segmentation, console)
    _show_notes(segmentation.notes, console)
    print_lines(console, [next_step])


def show_inspection(inspection: Inspection, console: Console, next_step: str = "") -> None:
    """Print what a folder has, how its files pair, and what the protocol could do with it."""
    segmentation = inspection.segmentation
    if inspection.minimum_s is not None:
        note = (
            "most calls are shorter than the paper's 1 s: "
            f"these tables are with --min-length {inspection.minimum_s:g}"
        )
        print_lines(console, [note], style="yellow")
    _show_audio(segmentation, console)
    _show_sources(segmentation, console)
    _show_durations(segmentation, console)
    _show_labels(segmentation, console, inspection.classes)
    _show_rejects(segmentation, console)
    print_lines(console, _describe_folds(inspection), style="bold")
    _show_notes(segmentation.notes, console)
    print_lines(console, [next_step])


def _show_notes(notes: Sequence[str], console: Console) -> None:
    lines = [f"note: {note}" for note in notes[:MOST_NOTES]]
    print_lines(console, lines, style="yellow")
    _show_rest(console, len(notes) - MOST_NOTES, "and {} more notes")


def _show_rest(console: Console, count: int, text: str) -> None:
    if count > 0:
        print_lines(console, [text.format(count)], style="dim")


def _show_audio(segmentation: Segmentation, console: Console) -> None:
    formats = Counter((r.kind, r.rate_hz, r.channels) for r in segmentation.recordings)
    texts = []
    for (kind, rate_hz, channels), count in formats.most_common():
        texts.append(f"{count} {kind} at {rate_hz:g} Hz, {_plural(channels, 'channel')}")
    print_lines(console, [f"audio: {'; '.join(texts) or 'no readable files'}"])


def _show_sources(segmentation: Segmentation, console: Console) -> None:
    for name, reason, count in segmentation.sources:
        files = _plural(count, "folder" if name == "folders" else "file")
        print_lines(console, [f"annotations: {name} in {files}, as {reason}"])
    recordings = segmentation.recordings
    annotated = sum(recording.path in segmentation.annotated for recording in recordings)
    line = (
        f"{annotated} of {_plural(len(recordings), 'recording')} annotated; "
        f"{_plural(segmentation.annotation_count, 'annotation')} read: "
        f"{_plural(len(segmentation.segments), 'segment')}, "
        f"{_plural(len(segmentation.rejects), 'reject')}"
    )
    print_lines(console, [line], style="bold")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _show_durations(segmentation: Segmentation, console: Console) -> None:
    """Print the durations of recordings, of those with annotations, of calls and of segments."""
    recordings = segmentation.recordings
    annotated = [r for r in recordings if r.path in segmentation.annotated]
    stats = {
        "recordings": measure_durations(r.duration_s for r in recordings),
        "annotated recordings": measure_durations(r.duration_s for r in annotated),
        "annotated calls": measure_durations(call.duration_s for call in segmentation.calls),
        "segments": _measure_segments(segmentation.segments),
    }
    table = make_table("", "number", *DURATIONS)
    for name, durations in stats.items():
        table.add_row(name, str(durations.count), *_format_durations(durations))
    _print_table(table, console)


def _measure_segments(segments: Sequence[Segment]) -> DurationStats:
    return measure_durations(segment.end_s - segment.start_s for segment in segments)


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
    return [_format_total(durations.total_s), *(f"{value:.2f} s" for value in values)]


def _format_total(seconds: float) -> str:
    """Return a duration in the unit that people use.

    >>> _format_total(42), _format_total(3336), _format_total(206640)
    ('42.0 s', '55.6 min', '57.4 h')
    """
    for unit_s, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.1f} {unit}"
    return f"{seconds:.1f} s"


def _show_labels(
    segmentation: Segmentation,
    console: Console,
    classes: Sequence[ClassCount] = (),
) -> None:
    """Print a row for each label, most segments first; with `classes`, whether it is eligible."""
    calls = Counter(call.label for call in segmentation.calls)
    segments: dict[str, list[Segment]] = defaultdict(list)
    for segment in segmentation.segments:
        segments[segment.label].append(segment)
    labels = sorted(calls, key=lambda label: (-len(segments[label]), -calls[label], label))
    most = max([1, *map(len, segments.values())])
    eligibility = {count.label: _describe_class(count) for count in classes}
    columns = _choose_columns(console, classes)
    table = make_table(*columns)
    for label in labels[:MOST_LABELS]:
        cells = _segment_cells(segments[label], most)
        cells["label"] = _crop(label, 40 if "" in columns else 24)
        cells["calls"] = str(calls[label])
        cells["eligible"] = eligibility.get(label, "no: no segments")
        table.add_row(*(Text(cells[column]) for column in columns))
    _print_table(table, console)
    _show_rest(console, len(labels) - MOST_LABELS, "and {} more labels")


def _describe_class(count: ClassCount) -> str:
    if count.eligible:
        return f"yes, to k = {count.complete_to_k}"
    return f"no: {count.reason}"


def _choose_columns(console: Console, classes: Sequence[ClassCount]) -> list[str]:
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


def _segment_cells(segments: Sequence[Segment], most: int) -> dict[str, str]:
    """Return the cells, by column, that describe the segments of a label."""
    durations = _format_durations(_measure_segments(segments))
    return {
        "segments": str(len(segments)),
        "recordings": str(len({segment.recording for segment in segments})),
        "": "━" * round(BAR_LENGTH * len(segments) / most),
        **dict(zip(DURATIONS, durations, strict=True)),
    }


def _crop(text: str, length: int) -> str:
    if len(text) > length:
        text = text[: length - 1] + "…"
    return printable(text)


def _show_rejects(segmentation: Segmentation, console: Console) -> None:
    """Print each reason with its count, and the place of the first reject for it."""
    by_reason: dict[str, list[Reject]] = defaultdict(list)
    for reject in segmentation.rejects:
        by_reason[_general_reason(reject.reason)].append(reject)
    if segmentation.rejects:
        count = _plural(len(segmentation.rejects), "annotation")
        print_lines(console, [f"rejects: {count}; the first of each reason:"])
    for rejects in sorted(by_reason.values(), key=len, reverse=True)[:MOST_REASONS]:
        first = rejects[0]
        place = first.file if first.row is None else f"{first.file}, row {first.row}"
        line = f"  {len(rejects):5d}  {_crop(first.reason, 100)}  ({place})"
        print_lines(console, [line], style="dim")
    rest = "  and {} more reasons; segment lists all in rejects.csv"
    _show_rest(console, len(by_reason) - MOST_REASONS, rest)
    skipped = segmentation.skipped_files
    if skipped:
        print_lines(console, [f"left out: {_plural(len(skipped), 'file')}"])
    lines = [f"  {file.file}: {file.reason}" for file in skipped[:MOST_FILES]]
    print_lines(console, lines, style="dim")
    rest = "  and {} more; segment lists them in rejects.csv"
    _show_rest(console, len(skipped) - MOST_FILES, rest)


def _general_reason(reason: str) -> str:
    """Return a reason without the values of a row: its first words without digits and quotes."""
    return " ".join(word for word in reason.split()[:12] if word.isalpha())


def _describe_folds(inspection: Inspection) -> Iterator[str]:
    counts = [f"{folds}: {labels}" for folds, labels in inspection.possible.items()]
    if counts:
        yield f"labels in enough recordings, by number of folds: {', '.join(counts)}"
    else:
        yield "too few recordings for folds"
    if inspection.folds is not None:
        eligible = [count for count in inspection.classes if count.eligible]
        queries = sum(sum(count.per_fold) for count in eligible)
        yield (
            f"with {inspection.folds.count} folds ({inspection.folds.proof}): {len(eligible)} "
            f"of {_plural(len(inspection.classes), 'label')} can be evaluated, "
            f"with {queries} queries and up to k* = {inspection.complete_shots} examples of each"
        )


def _print_table(table: Table, console: Console) -> None:
    """Print a table; a file or a pipe has as much room as it needs."""
    output = console
    if not console.is_terminal:
        output = Console(file=console.file, width=240, no_color=True)
    with output.capture() as captured:
        output.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    console.file.write("\n".join(["", *lines, "", ""]))
