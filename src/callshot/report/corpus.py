"""A segmentation or an inspection → what a terminal shows: the paper's tables 1 and 2, from the user's own folder."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev

from rich.console import Console
from rich.table import Table
from rich.text import Text

from callshot.errors import printable
from callshot.records import ClassCount, Inspection, Reject, Segment, Segmentation

MOST_LABELS, MOST_REASONS, MOST_FILES, MOST_NOTES, BAR = 40, 8, 3, 8, 24
WIDE = 130  # columns of a terminal from which on all is shown
LENGTHS = ("total", "mean", "min", "max", "std. dev.")


def show_segmentation(found: Segmentation, console: Console, next_step: str = "") -> None:
    """Print what became of a corpus: its sources, its lengths, its labels, and what was left out and why."""
    _show_sources(found, console)
    _show_lengths(found, console)
    _show_labels(found, console)
    _show_rejects(found, console)
    _show_notes(found.notes, console)
    _say(console, next_step)


def show_inspection(found: Inspection, console: Console, next_step: str = "") -> None:
    """Print what a folder holds, how it pairs, and what the protocol could do with it."""
    segmentation = found.segmentation
    if found.minimum_s is not None:
        told = f"most calls are shorter than the paper's 1 s: what follows is with --min-length {found.minimum_s:g}"
        _say(console, told, style="yellow")
    _show_audio(segmentation, console)
    _show_sources(segmentation, console)
    _show_lengths(segmentation, console)
    _show_labels(segmentation, console, found.classes)
    _show_rejects(segmentation, console)
    _say(console, *_tell_folds(found), style="bold")
    _show_notes(segmentation.notes, console)
    _say(console, next_step)


def _say(console: Console, *lines: str, style: str = "") -> None:
    for line in lines:
        if line:
            console.print(Text(printable(line), style), soft_wrap=True)


def _show_notes(notes: Sequence[str], console: Console) -> None:
    _say(console, *(f"note: {note}" for note in notes[:MOST_NOTES]), style="yellow")
    if len(notes) > MOST_NOTES:
        _say(console, f"and {len(notes) - MOST_NOTES} more notes", style="dim")


def _show_audio(found: Segmentation, console: Console) -> None:
    kinds = Counter((r.kind, r.rate_hz, r.channels) for r in found.recordings)
    told = (
        f"{count} {kind} at {rate:g} Hz, {_plural(channels, 'channel')}"
        for (kind, rate, channels), count in kinds.most_common()
    )
    _say(console, f"audio: {'; '.join(told) or 'none that can be read'}")


def _show_sources(found: Segmentation, console: Console) -> None:
    for name, why, files in found.sources:
        _say(
            console,
            f"annotations: {name} in {_plural(files, 'folder' if name == 'folders' else 'file')}, as {why}",
        )
    annotated = sum(recording.path in found.annotated for recording in found.recordings)
    paired = f"{annotated} of {_plural(len(found.recordings), 'recording')} annotated"
    counts = (
        f"{_plural(found.annotation_count, 'annotation')} read: {_plural(len(found.segments), 'segment')}, "
    )
    counts += _plural(len(found.rejects), "reject")
    _say(console, f"{paired}; {counts}", style="bold")


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _show_lengths(found: Segmentation, console: Console) -> None:
    """Print the lengths of recordings, of those with annotations, of calls, and of the segments made of them."""
    table = _table("", "number", *LENGTHS)
    spans = {
        "recordings": [r.duration_s for r in found.recordings],
        "annotated recordings": [
            r.duration_s for r in found.recordings if r.path in found.annotated
        ],
        "annotated calls": [call.end_s - call.start_s for call in found.calls],
        "segments": [segment.end_s - segment.start_s for segment in found.segments],
    }
    for name, lengths in spans.items():
        table.add_row(name, str(len(lengths)), *_lengths(lengths))
    _print(console, table)


def _lengths(lengths_s: Sequence[float]) -> Iterator[str]:
    """Tell total, mean, least, most and the spread about the mean, as the paper does."""
    if lengths_s:
        yield _duration(sum(lengths_s))
        yield from (
            f"{value:.2f} s"
            for value in (fmean(lengths_s), min(lengths_s), max(lengths_s), pstdev(lengths_s))
        )


def _duration(seconds: float) -> str:
    """Return a duration in the unit that people would use.

    >>> _duration(42), _duration(3336), _duration(206640)
    ('42.0 s', '55.6 min', '57.4 h')
    """
    return next(
        (
            f"{seconds / unit:.1f} {name}"
            for unit, name in ((3600, "h"), (60, "min"))
            if seconds >= 2 * unit
        ),
        f"{seconds:.1f} s",
    )


def _show_labels(found: Segmentation, console: Console, classes: Sequence[ClassCount] = ()) -> None:
    """Print a row for each label, most segments first; after an inspection, with what the folds make of it."""
    calls, by_label = (
        Counter(call.label for call in found.calls),
        defaultdict[str, list[Segment]](list),
    )
    for segment in found.segments:
        by_label[segment.label].append(segment)
    wide = not console.is_terminal or console.width >= WIDE
    lengths = (
        slice(0, 5) if wide else slice(1, 2) if classes else slice(1, 4)
    )  # of LENGTHS, what there is room for
    fates = {
        c.label: f"yes, to k = {c.complete_to_k}" if c.eligible else f"no: {c.reason}"
        for c in classes
    }
    columns = (
        "calls",
        "segments",
        "recordings",
        *LENGTHS[lengths],
        *_where(wide, ""),
        *_where(classes, "eligible"),
    )
    table = _table("label", *columns)
    labels = sorted(calls, key=lambda label: (-len(by_label[label]), -calls[label], label))
    most = max([1, *(len(segments) for segments in by_label.values())])
    for label in labels[:MOST_LABELS]:
        segments = by_label[label]
        told = (list(_lengths([s.end_s - s.start_s for s in segments])) or [""] * len(LENGTHS))[
            lengths
        ]
        counts = (calls[label], len(segments), len({s.recording for s in segments}))
        bar, fate = "━" * round(BAR * len(segments) / most), fates.get(label, "no: no segments")
        name = Text(_cell(label, 40 if wide else 24))
        table.add_row(name, *map(str, counts), *told, *_where(wide, bar), *_where(classes, fate))
    _print(console, table)
    if len(labels) > MOST_LABELS:
        _say(console, f"and {len(labels) - MOST_LABELS} more labels", style="dim")


def _where(shown: object, text: str) -> tuple[str, ...]:
    return (text,) if shown else ()


def _cell(text: str, most: int = 40) -> str:
    return printable(text if len(text) <= most else text[: most - 1] + "…")


def _show_rejects(found: Segmentation, console: Console) -> None:
    """Print reasons with their counts, numbers in them left out, and where the first of each is."""
    kinds: dict[str, list[Reject]] = defaultdict(list)
    for reject in found.rejects:
        kinds[_kind(reject.reason)].append(reject)
    if found.rejects:
        _say(
            console,
            f"rejects: {_plural(len(found.rejects), 'annotation')}; the first of each reason:",
        )
    for rejects in sorted(kinds.values(), key=len, reverse=True)[:MOST_REASONS]:
        first = rejects[0]
        where = first.file if first.row is None else f"{first.file}, row {first.row}"
        _say(console, f"  {len(rejects):5d}  {_cell(first.reason, 100)}  ({where})", style="dim")
    if len(kinds) > MOST_REASONS:
        _say(
            console,
            f"  and {len(kinds) - MOST_REASONS} more reasons; segment lists all in rejects.csv",
            style="dim",
        )
    if found.skipped_files:
        _say(console, f"left out: {_plural(len(found.skipped_files), 'file')}")
    for refused in found.skipped_files[:MOST_FILES]:
        _say(console, f"  {refused.file}: {refused.reason}", style="dim")
    if len(found.skipped_files) > MOST_FILES:
        _say(
            console,
            f"  and {len(found.skipped_files) - MOST_FILES} more; segment lists them in rejects.csv",
            style="dim",
        )


def _kind(reason: str) -> str:
    """Return a reason without what differs from row to row: its first words that hold no digit or quote."""
    return " ".join(word for word in reason.split()[:12] if word.isalpha())


def _tell_folds(found: Inspection) -> Iterator[str]:
    told = ", ".join(f"{folds}: {labels}" for folds, labels in found.possible.items())
    yield (
        f"labels in enough recordings, by number of folds: {told}"
        if told
        else "too few recordings for folds"
    )
    if found.folds is not None:
        eligible = [c for c in found.classes if c.eligible]
        queries = sum(sum(c.per_fold) for c in eligible)
        yield (
            f"with {found.folds.count} folds ({found.folds.proof}): {len(eligible)} of "
            f"{_plural(len(found.classes), 'label')} can be evaluated, with {queries} queries and up to k* = "
            f"{found.complete_shots} examples of each"
        )


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(
            name,
            justify="left" if name in ("", "eligible") else "right",
            no_wrap=name != "eligible",
        )
    return table


def _print(console: Console, table: Table) -> None:
    """Print a table; a file or a pipe has as much room as it needs."""
    wide = console if console.is_terminal else Console(file=console.file, width=240, no_color=True)
    with wide.capture() as captured:
        wide.print(table)
    lines = (line.rstrip() for line in captured.get().splitlines())
    console.file.write("\n" + "\n".join(lines) + "\n\n")
