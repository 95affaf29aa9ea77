"""What a terminal shows of a corpus: the paper's tables, from the records alone."""

import io
from dataclasses import replace

from rich.console import Console

from callshot.cli.terminal import show_segmentation
from callshot.records import (
    Recording,
    Reject,
    Segmentation,
)
from rows_of_spans import make_row, make_spans


def make_segmentation(labels, **changes):
    """Return a call and a segment for each label, in two of three recordings."""
    calls = []
    for number, label in enumerate(labels):
        start_s = 10.0 * number
        calls.append(
            make_row(f"r{number % 2}.wav", start_s, start_s + 1 + number, label=label)
        )
    recordings = [
        Recording(f"r{number}.wav", 16000 * 60 * (number + 1), 16000, 2, "FLAC PCM_16")
        for number in range(3)
    ]
    segmentation = Segmentation(
        recordings=recordings,
        annotated=frozenset({"r0.wav", "r1.wav"}),
        sources=[("raven", "its header has Selection", 2)],
        annotation_count=len(calls),
        calls=make_spans(calls),
        segments=make_spans(calls),
        rejects=[],
        skipped_files=[],
        notes=[],
    )
    return replace(segmentation, **changes)


def show(record):
    """Return what a console prints to a file."""
    file = io.StringIO()
    show_segmentation(record, Console(file=file), "next: this")
    return file.getvalue()


def find_row(text, first):
    return next(line for line in text.splitlines() if line.startswith(first)).split()


def test_durations_are_those_of_the_tables_in_the_paper():
    text = show(make_segmentation(["roar", "rumble", "roar"]))
    assert (
        "2 of 3 recordings annotated; 3 annotations read: 3 segments, 0 rejects" in text
    )
    recordings = "recordings 3 6.0 min 120.00 s 60.00 s 180.00 s 48.99 s"
    segments = "segments 3 6.0 s 2.00 s 1.00 s 3.00 s 0.82 s"
    assert " ".join(find_row(text, "recordings")) == recordings
    assert " ".join(find_row(text, "segments ")) == segments
    assert find_row(text, "roar")[1:6] == ["2", "2", "1", "4.0", "s"]
    assert text.endswith("next: this\n")


def test_each_reason_is_shown_once_with_its_count_and_long_lists_are_cut():
    rejects = [
        Reject("a.csv", row, f"shorter than 1 s: 0.{row} s") for row in range(1, 6)
    ]
    rejects += [Reject("b.csv", row, f"reason {'a' * row}") for row in range(1, 12)]
    segmentation = make_segmentation(
        [f"label {number}" for number in range(50)],
        rejects=rejects,
        skipped_files=[Reject(f"f{number}.txt", None, "empty") for number in range(5)],
        notes=["n"] * 10,
    )
    text = show(segmentation)
    assert "rejects: 16 annotations" in text
    assert "    5  shorter than 1 s: 0.1 s  (a.csv, row 1)" in text
    for rest in ("4 more reasons", "2 more files", "10 more labels", "2 more notes"):
        assert f"and {rest}" in text


def test_control_characters_from_files_are_not_obeyed():
    hostile = "\x1b[2Jroar\x07"
    record = make_segmentation(
        [hostile],
        rejects=[Reject(hostile, 1, hostile)],
        skipped_files=[Reject(hostile, None, hostile)],
        notes=[hostile],
    )
    assert "\x1b" not in show(record)
    assert "[bold]" in show(make_segmentation(["[bold]"]))  # markup is not obeyed
