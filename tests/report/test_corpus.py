"""What a terminal shows of a corpus: the paper's tables, from the records alone."""

import io

import numpy as np
import pytest
from rich.console import Console

from callshot.records import (
    Annotation,
    Call,
    ClassCount,
    Folds,
    Inspection,
    Recording,
    Reject,
    Segment,
    Segmentation,
)
from callshot.report.corpus import show_inspection, show_segmentation


def call(path: str, start_s: float, end_s: float, label: str) -> Call:
    return Call(
        path, path, start_s, end_s, label, Annotation(path, start_s, end_s, label, "calls.csv", 1)
    )


def cut(c: Call) -> Segment:
    return Segment(
        f"{c.path}@{c.start_s}",
        c.path,
        c.path,
        c.start_s,
        c.end_s,
        0.0,
        c.label,
        (c.label,),
        16000,
        "mean",
        -3,
    )


def found(labels: list[str], **changes: object) -> Segmentation:
    calls = [
        call(f"r{n % 2}.wav", 10.0 * n, 10.0 * n + 1 + n, label) for n, label in enumerate(labels)
    ]
    whole = {
        "recordings": [
            Recording(f"r{n}.wav", 16000 * 60 * (n + 1), 16000, 2, "FLAC PCM_16") for n in range(3)
        ],
        "annotated": frozenset({"r0.wav", "r1.wav"}),
        "sources": [("raven", "its header has Selection", 2)],
        "annotation_count": len(calls),
        "calls": calls,
        "segments": [cut(c) for c in calls],
        "rejects": [],
        "skipped_files": [],
        "notes": [],
    }
    return Segmentation(**{**whole, **changes})  # type: ignore[arg-type]


def shown(record: Segmentation | Inspection, width: int | None = None) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=width is not None)
    (show_segmentation if isinstance(record, Segmentation) else show_inspection)(
        record, console, "next: this"
    )
    return console.file.getvalue()  # type: ignore[attr-defined]


def cells(text: str, first: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(first)).split()


def test_lengths_are_those_of_the_papers_tables():
    text = shown(found(["roar", "rumble", "roar"]))
    assert "2 of 3 recordings annotated; 3 annotations read: 3 segments, 0 rejects" in text
    assert cells(text, "recordings")[1:] == [
        "3",
        "6.0",
        "min",
        "120.00",
        "s",
        "60.00",
        "s",
        "180.00",
        "s",
        "48.99",
        "s",
    ]
    assert cells(text, "segments ")[1:] == [
        "3",
        "6.0",
        "s",
        "2.00",
        "s",
        "1.00",
        "s",
        "3.00",
        "s",
        "0.82",
        "s",
    ]
    assert cells(text, "roar")[1:6] == ["2", "2", "1", "4.0", "s"]
    assert text.endswith("next: this\n")


def test_every_line_fits_a_terminal_of_80_columns_and_long_names_are_cropped():
    record = found(["x" * 200, "象" * 60, "roar"])
    lines = shown(record, width=80).splitlines()
    assert max(len(line) for line in lines if "\x1b" not in line) <= 80


def test_reasons_are_told_once_each_with_their_counts():
    rejects = [Reject("a.csv", n, f"shorter than 1 s: 0.{n} s") for n in range(1, 6)] + [
        Reject("b.csv", 7, "no label")
    ]
    text = shown(found(["roar"], rejects=rejects, annotation_count=7))
    assert "rejects: 6 annotations" in text
    assert "    5  shorter than 1 s: 0.1 s  (a.csv, row 1)" in text
    assert "    1  no label  (b.csv, row 7)" in text


def test_many_reasons_files_labels_and_notes_are_cut_and_counted():
    kinds = [Reject("a.csv", n, f"reason {'a' * n}") for n in range(1, 12)]
    refused = [Reject(f"f{n}.txt", None, "empty") for n in range(5)]
    text = shown(
        found([f"label {n}" for n in range(50)], rejects=kinds, skipped_files=refused, notes=["n"] * 10)
    )
    for words in (
        "and 3 more reasons",
        "left out: 5 files",
        "  and 2 more",
        "and 10 more labels",
        "and 2 more notes",
    ):
        assert words in text


def test_control_characters_from_files_are_not_obeyed():
    hostile = "\x1b[2Jroar\x07"
    record = found(
        [hostile],
        rejects=[Reject(hostile, 1, hostile)],
        skipped_files=[Reject(hostile, None, hostile)],
        notes=[hostile],
    )
    assert "\x1b" not in shown(record)
    assert "[bold]" in shown(found(["[bold]"]))  # markup neither


@pytest.mark.parametrize("labels", [[], ["roar"]])
def test_an_inspection_tells_what_folds_make_of_it(labels):
    counts = [
        ClassCount("roar", 9, 7, True, "", (2, 2, 2, 2, 1)),
        ClassCount("blow", 1, 0, False, "in 1 recording"),
    ]
    folds = Folds(np.array([0]), 5, "built", "optimum proved")
    text = shown(Inspection(found(labels), 0.05, {2: 2, 3: 1}, folds, counts, 7))
    for words in (
        "audio: 3 FLAC PCM_16 at 16000 Hz, 2 channels",
        "2: 2, 3: 1",
        "--min-length 0.05",
        "with 5 folds (optimum proved): 1 of 2 labels can be evaluated",
        "9 queries and up to k* = 7 examples",
    ):
        assert words in text
    assert ("yes, to k = 7" in text) == bool(labels)


def test_too_few_recordings_are_told():
    assert "too few recordings for folds" in shown(Inspection(found([]), None, {}, None, [], 0))
