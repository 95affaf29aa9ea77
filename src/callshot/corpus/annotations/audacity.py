"""Audacity label tracks: lines of start, end and label.

A line that begins with a backslash holds the lowest and highest frequency of the label before it.
"""

from pathlib import Path

from callshot.corpus.annotations.rows import (
    FREQUENCIES,
    AnnotationFile,
    AnnotationOptions,
    Format,
    RowError,
    Rows,
    check_writable,
    join_cells,
    parse_cell,
    parse_number,
    read_text,
    split_lines,
)
from callshot.errors import quote

FREQUENCY_MARK = "\\"


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise a label as the first line, and in at least half of the lines."""
    are_labels = []  # for each line
    for line in split_lines(head):
        try:
            start_s, end_s, _ = _split_label(line, options)
            are_labels.append(start_s <= end_s)
        except RowError:
            are_labels.append(line.startswith(FREQUENCY_MARK))
    if not are_labels or not are_labels[0] or head.startswith(FREQUENCY_MARK):
        return None
    if 2 * sum(are_labels) < len(are_labels):
        return None
    return "its lines are start, end and label, separated by tabs"


def _split_label(line: str, options: AnnotationOptions) -> tuple[float, float, str]:
    """Split a line; its label may be missing, with its tab, only if the options have one."""
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
    # The line of each label, and the line of its frequencies, empty if there is none.
    entries: list[tuple[str, str]] = []
    previous = FREQUENCY_MARK  # no label is before the first line
    for line in split_lines(read_text(file.path, file.notes)):
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
            extra = {}
            if frequencies:  # the mark, the lowest and the highest; both may be missing
                _, *cells = [*frequencies.split("\t"), "", ""]
                for name, cell in zip(FREQUENCIES, cells, strict=False):
                    value = parse_cell(cell, name)
                    # Audacity writes −1 for a frequency that is not set.
                    is_missing = isinstance(value, float) and value < 0
                    extra[name] = None if is_missing else value
            file.add(number, label, start_s, end_s, extra)


def write(rows: Rows, path: Path) -> str:
    """Return the label track of one recording; frequencies are the only extra cells it can hold."""
    check_writable(rows, path, is_one_recording=True)
    text = ""
    for row in rows:
        times_s = [float(row["start_s"]), float(row["end_s"])]
        text += join_cells([*times_s, row["label"]])
        band_hz = [row.get(name) for name in FREQUENCIES]
        if band_hz != [None, None]:
            known = ["-1" if value is None else float(value) for value in band_hz]
            text += join_cells([FREQUENCY_MARK, *known])
    return text


FORMATS = (Format("audacity", (".txt", ".lab"), recognise, read, write, order=2),)
