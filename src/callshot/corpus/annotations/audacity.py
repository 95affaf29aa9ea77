"""Audacity's label tracks: lines of start, end and label come in, annotations go out, and back.

A line that begins with a backslash holds the lowest and highest frequency of the label before it.
"""

from collections.abc import Sequence
from pathlib import Path

from callshot.corpus.annotations.rows import Hints, Rows, Unfit, frequency, number
from callshot.corpus.annotations.text import pictured, read_text, shown, split_lines, unpictured
from callshot.corpus.annotations.writing import float_text, refuse_strangers
from callshot.records import Annotation, Cell

BAND = ("low_freq_hz", "high_freq_hz")


def recognise(path: Path, head: str, hints: Hints) -> str | None:
    """See whether the first line, and most lines, begin with two numbers and a tab."""
    lines = [line for line in split_lines(head) if line.strip()]
    fitting = [line.startswith("\\\t") or _fits(line) for line in lines]
    if lines and _fits(lines[0]) and 2 * sum(fitting) >= len(lines):
        return "its lines are start, end and label, separated by tabs"
    return None


def _fits(line: str) -> bool:
    cells = line.split("\t", 2)
    try:
        return len(cells) == 3 and number(cells[0], "start") <= number(cells[1], "end")
    except Unfit:
        return False


def read(rows: Rows, hints: Hints) -> None:
    """Read a label track; a row is a label, and the frequency line after it belongs to it."""
    text, notes = read_text(rows.path)
    rows.notes += notes
    lines = [line for line in split_lines(text) if line.strip()]
    row = at = 0
    while at < len(lines):
        row += 1
        followed = (
            not _of_frequency(lines[at]) and at + 1 < len(lines) and _of_frequency(lines[at + 1])
        )
        with rows.judging(row):
            _add(rows, row, lines[at], lines[at + 1] if followed else "")
        at += 1 + followed


def _of_frequency(line: str) -> bool:
    return line.startswith("\\")


def _add(rows: Rows, row: int, line: str, below: str) -> None:
    if _of_frequency(line):
        raise Unfit(f"frequencies without a label before them, found {shown(line)}")
    cells = line.split("\t", 2)
    if len(cells) < 3:
        raise Unfit(f"wanted start, end and label separated by tabs, found {shown(line)}")
    start_s, end_s = number(cells[0], "start"), number(cells[1], "end")
    rows.add(row, unpictured(cells[2]), start_s, end_s, more=_frequencies(below) if below else {})


def _frequencies(line: str) -> dict[str, Cell]:
    """Read a line of frequencies, where Audacity writes −1 if there is none."""
    cells = [*line.split("\t"), "", ""][1:3]
    band = [frequency(cell, name) for cell, name in zip(cells, BAND, strict=True)]
    return {
        name: None if value is None or value < 0 else value
        for name, value in zip(BAND, band, strict=True)
    }


def write(annotations: Sequence[Annotation], path: Path) -> str:
    """Write a label track of one recording; of `more` it can hold the frequencies."""
    refuse_strangers(annotations, path, "an Audacity label track", recordings=1)
    return "".join(map(_lines, annotations))


def _lines(annotation: Annotation) -> str:
    times = f"{float_text(annotation.start_s)}\t{float_text(annotation.end_s)}"
    band = [annotation.extra.get(name) for name in BAND]
    below = (
        ""
        if band == [None, None]
        else "\\\t" + "\t".join(float_text(value, "-1") for value in band) + "\n"
    )
    return f"{times}\t{pictured(annotation.label)}\n{below}"
