"""Rows of spans for tests: dictionaries to make them from, and objects to look at them."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from callshot.corpus.segments import SEGMENT_COLUMNS
from callshot.spans import Spans

Row = dict[str, Any]


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
