"""Audacity label tracks: lines of start, end and label.

A line that begins with a backslash holds the lowest and highest frequency of the label before it.
"""

from pathlib import Path

from callshot.corpus.annotations.rows import (
    AnnotationFile,
    AnnotationOptions,
    Rows,
    check_one_recording,
    check_spans,
)
from callshot.corpus.annotations.text import (
    FREQUENCIES,
    Cell,
    RowError,
    escape_controls,
    format_float,
    parse_cell,
    parse_number,
    quote,
    read_text,
    split_filled_lines,
    unescape_controls,
)

KIND = "an Audacity label track"
FREQUENCY_MARK = "\\"


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise a file whose first line and most others begin with two numbers and a tab."""
    lines = split_filled_lines(head)
    if not lines or not _is_label(lines[0], options):
        return None
    count = sum(line.startswith("\\\t") or _is_label(line, options) for line in lines)
    if 2 * count < len(lines):
        return None
    return "its lines are start, end and label, separated by tabs"


def _is_label(line: str, options: AnnotationOptions) -> bool:
    try:
        start_s, end_s, _ = _split_label(line, options)
    except RowError:
        return False
    return start_s <= end_s


def _split_label(line: str, options: AnnotationOptions) -> tuple[float, float, str]:
    """Return start, end and label; editors that trim lines remove the tab before an empty one."""
    cells = line.split("\t", 2)
    if len(cells) < (3 if options.label is None else 2):
        raise RowError(
            f"expected start, end and label separated by tabs, got {quote(line)}"
        )
    start_s = parse_number(cells[0], "start")
    end_s = parse_number(cells[1], "end")
    label = cells[2] if len(cells) == 3 else ""
    return start_s, end_s, label


def read(file: AnnotationFile) -> None:
    """Read a label track; a row is a label and the frequencies on the line below it."""
    entries: list[tuple[str, str]] = []
    previous = FREQUENCY_MARK
    for line in split_filled_lines(read_text(file.path, file.notes)):
        if line.startswith(FREQUENCY_MARK) and not previous.startswith(FREQUENCY_MARK):
            entries[-1] = (previous, line)
        else:
            entries.append((line, ""))
        previous = line
    for number, (line, frequencies) in enumerate(entries, start=1):
        with file.rejecting(number):
            if line.startswith(FREQUENCY_MARK):
                raise RowError(
                    f"frequencies without a label before them, got {quote(line)}"
                )
            start_s, end_s, label = _split_label(line, file.options)
            extra = _parse_frequencies(frequencies)
            file.add(number, unescape_controls(label), start_s, end_s, extra)


def _parse_frequencies(line: str) -> dict[str, Cell]:
    """Parse a line of frequencies, if there is one; Audacity writes -1 for a missing one."""
    extra: dict[str, Cell] = {}
    if not line:
        return extra
    _, *cells = [*line.split("\t"), "", ""]
    for name, cell in zip(FREQUENCIES, cells, strict=False):
        value = parse_cell(cell, name)
        if isinstance(value, float) and value < 0:
            value = None
        extra[name] = value
    return extra


def write(rows: Rows, path: Path) -> str:
    """Return the label track of one recording; frequencies are the only extra cells it can hold."""
    check_spans(rows, path, KIND)
    check_one_recording(rows, path, KIND)
    lines = []
    for row in rows:
        start = format_float(row["start_s"])
        end = format_float(row["end_s"])
        lines.append(f"{start}\t{end}\t{escape_controls(row['label'])}\n")
        frequencies = [row.get(name) for name in FREQUENCIES]
        if frequencies != [None, None]:
            low, high = (format_float(value, "-1") for value in frequencies)
            lines.append(f"{FREQUENCY_MARK}\t{low}\t{high}\n")
    return "".join(lines)
