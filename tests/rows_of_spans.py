"""Rows of spans for tests: dictionaries to make them from, and objects to look at them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from callshot.corpus import annotations
from callshot.corpus.annotations import AnnotationOptions
from callshot.corpus.annotations.rows import COLUMNS, other_cells
from callshot.corpus.segments import SEGMENT_COLUMNS
from callshot.detection.model import AudioSettings, make_model
from callshot.spans import Spans
from callshot.vectors import Vectors

Row = dict[str, Any]
NO_OPTIONS = AnnotationOptions()
DIMENSION = 6  # of the vectors of a small model


def make_row(path: str, start_s: float = 0.0, end_s: float = 1.0, **more: Any) -> Row:
    """Return a segment as `callshot segment` makes it."""
    row = {
        "segment": f"{path}@{start_s}-{end_s}",
        "recording": path,
        "path": path,
        "start_s": start_s,
        "end_s": end_s,
        "collar_s": 0.0,
        "label": "roar",
        "labels": None,
        "rate_hz": 16000,
        "channel_rule": "first",
        "peak_dbfs": None,
        "source_rate_hz": None,
    }
    row |= more
    row["labels"] = list(row["labels"] or [row["label"]])
    return row


def make_spans(rows: Iterable[Mapping[str, Any]], root: Path = Path()) -> Spans:
    """Return segments of recordings under a folder."""
    return Spans.from_rows(rows, SEGMENT_COLUMNS, root=root)


def list_rows(spans: Spans) -> list[SimpleNamespace]:
    """Return each span with its columns as attributes; labels are tuples."""
    rows = []
    for row in spans.rows():
        if "labels" in row:
            row["labels"] = tuple(row["labels"])
        rows.append(SimpleNamespace(**row))
    return rows


def make_examples(places: Iterable[tuple[str, str, str, float, float]]) -> Spans:
    """Return examples of a model: label, recording, path, start and end of each."""
    names = ("label", "recording", "path", "start_s", "end_s")
    rows = [dict(zip(names, place, strict=True)) | {"windows": 1} for place in places]
    return Spans.from_rows(rows)


@dataclass(frozen=True)
class Annotation:
    """A row of annotations, as tests compare and make them; `extra` are the other columns."""

    path: str | None
    start_s: float
    end_s: float | None
    label: str
    file: str = ""
    row: int | None = None
    recording: str | None = None
    in_frames: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


def read_annotations(
    path: Path, format: str = "auto", options: AnnotationOptions = NO_OPTIONS
) -> Any:
    """Read a file; `annotations` are its rows as objects."""
    file: Any = annotations.read_annotations(path, format, options)
    file.annotations = [
        Annotation(
            path=row["path"],
            start_s=row["start_s"],
            end_s=row["end_s"],
            label=row["label"],
            file=row["annotation_file"],
            row=row["annotation_row"],
            recording=row["recording"],
            in_frames=row.get("in_frames", False),
            extra=other_cells(row),
        )
        for row in file.rows
    ]
    assert len(file.spans) == len(file.annotations)
    return file


def write_annotations(rows: Iterable[Annotation], path: Path, format: str) -> None:
    """Write annotations as spans."""
    spans = []
    for one in rows:
        row = {name: getattr(one, name) for name in COLUMNS} | dict(one.extra)
        if one.in_frames:
            row["in_frames"] = True
        spans.append(row)
    annotations.write_annotations(Spans.from_rows(spans, COLUMNS), path, format)


def list_calls(file: Any) -> list[tuple[Any, ...]]:
    """Return recording, start, end and label of each annotation of a file."""
    return [(one.path, one.start_s, one.end_s, one.label) for one in file.annotations]


def model_of(examples, vectors):
    """Return a model of rows for `make_examples` and their vectors."""
    return make_model(
        Vectors(make_examples(examples), np.array(vectors, np.float32)),
        encoder="mfcc",
        fingerprint={},
        settings=AudioSettings(),
        licence="none",
    )


def make_small_model(rng, counts=(3, 4), shift=4.0):
    """Return a model of two classes, with so many examples of each, around different means."""
    examples = []
    vectors = []
    for number, count in enumerate(counts):
        for n in range(count):
            path = f"{number}-{n}.wav"
            examples.append(("ab"[number], path, path, 0.0, 1.0))
            vector = rng.normal(0, 1, DIMENSION)
            vector[number] += shift
            vectors.append(vector)
    return model_of(examples, vectors)
