"""Audacity label tracks: lines of start, end and label.

A line that begins with a backslash holds the lowest and highest frequency of the label before it.
"""

from pathlib import Path

from callshot.corpus.annotations.cells import (
    FREQUENCIES,
    format_float,
    parse_cell,
    parse_number,
)
from callshot.corpus.annotations.rows import (
    AnnotationFile,
    AnnotationOptions,
    Annotations,
    Extra,
    check_one_recording,
    check_spans,
)
from callshot.corpus.annotations.text import (
    RowError,
    escape_controls,
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
    fewest_cells = 3 if options.label is None else 2
    if not lines or not _is_label(lines[0], fewest_cells):
        return None
    count = sum(
        line.startswith("\\\t") or _is_label(line, fewest_cells) for line in lines
    )
    if 2 * count < len(lines):
        return None
    return "its lines are start, end and label, separated by tabs"


def _is_label(line: str, fewest_cells: int) -> bool:
    try:
        start_s, end_s, _ = _split_label(line, fewest_cells)
    except RowError:
        return False
    return start_s <= end_s


def _split_label(line: str, fewest_cells: int) -> tuple[float, float, str]:
    """Return start, end and label; editors that trim lines remove the tab before an empty one."""
    cells = line.split("\t", 2)
    if len(cells) < fewest_cells:
        raise RowError(
            f"expected start, end and label separated by tabs, got {quote(line)}"
        )
    start_s = parse_number(cells[0], "start")
    end_s = parse_number(cells[1], "end")
    label = cells[2] if len(cells) == 3 else ""
    return start_s, end_s, label


def read(annotation_file: AnnotationFile, options: AnnotationOptions) -> None:
    """Read a label track; a row is a label and the frequencies on the line below it."""
    entries: list[tuple[str, str]] = []
    previous = FREQUENCY_MARK
    for line in split_filled_lines(
        read_text(annotation_file.path, annotation_file.notes)
    ):
        if line.startswith(FREQUENCY_MARK) and not previous.startswith(FREQUENCY_MARK):
            entries[-1] = (previous, line)
        else:
            entries.append((line, ""))
        previous = line
    for row, (line, frequencies) in enumerate(entries, start=1):
        with annotation_file.rejecting(row):
            _add(annotation_file, row, line, frequencies)


def _add(
    annotation_file: AnnotationFile, row: int, line: str, frequencies: str
) -> None:
    if line.startswith(FREQUENCY_MARK):
        raise RowError(f"frequencies without a label before them, got {quote(line)}")
    fewest_cells = 3 if annotation_file.label is None else 2
    start_s, end_s, label = _split_label(line, fewest_cells)
    extra = _parse_frequencies(frequencies)
    annotation_file.add(row, unescape_controls(label), start_s, end_s, extra=extra)


def _parse_frequencies(line: str) -> Extra:
    """Parse a line of frequencies, if there is one; Audacity writes -1 for a missing one."""
    extra: Extra = {}
    if not line:
        return extra
    _, *cells = [*line.split("\t"), "", ""]
    for name, cell in zip(FREQUENCIES, cells, strict=False):
        value = parse_cell(cell, name)
        if isinstance(value, float) and value < 0:
            value = None
        extra[name] = value
    return extra


def write(annotations: Annotations, path: Path) -> str:
    """Return the label track of one recording; frequencies are the only extra cells it can hold."""
    check_spans(annotations, path, KIND)
    check_one_recording(annotations, path, KIND)
    lines = []
    for annotation in annotations:
        start = format_float(annotation.start_s)
        end = format_float(annotation.end_s)
        lines.append(f"{start}\t{end}\t{escape_controls(annotation.label)}\n")
        frequencies = [annotation.extra.get(name) for name in FREQUENCIES]
        if frequencies != [None, None]:
            low, high = (format_float(value, "-1") for value in frequencies)
            lines.append(f"{FREQUENCY_MARK}\t{low}\t{high}\n")
    return "".join(lines)
