"""The folder of a scan → its facts and its events, as they were written."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from callshot.detection.events.events import complete_events
from callshot.errors import InputError
from callshot.records.frames import EVENTS
from callshot.records.parquet import read_parquet
from callshot.report.provenance_file import check_result, read_intact_provenance

SCAN_FACTS = "scan.json"
SCAN_KEYS = {"classes", "folders", "aim_per_hour"}
EVENTS_FILE = "events.parquet"
LABELS = "labels.parquet"  # of callshot scan --segments


def read_scan_facts(folder: Path) -> dict[str, Any]:
    """Return scan.json; raise InputError if it is of no scan, or damaged."""
    path = folder / SCAN_FACTS
    facts = read_intact_provenance(path)
    expected = {"folders"} if LABELS in facts["files"] else SCAN_KEYS
    if not expected <= facts.keys():
        raise InputError(f"{path}: expected the facts of a scan of recordings")
    return facts


def read_scan_events(folder: Path, facts: Mapping[str, Any], name: str) -> pl.DataFrame:
    """Read the events of a scan, after they are compared with their checksum."""
    path = folder / name
    check_result(path, (SCAN_FACTS,))
    is_known = name in facts["files"] and path.is_file()
    events = pl.read_parquet(path) if is_known else read_parquet(path)
    if name == LABELS:
        events = complete_events(events.drop("recording").rename({"path": "recording"}))
    missing = [name for name in EVENTS if name not in events.columns]
    if missing:
        raise InputError(f"{path}: expected the events of a scan, with {missing[0]}")
    if len(events) == 0:
        raise InputError(
            f"{path}: the scan found nothing, so there is nothing to review"
        )
    _check_events(path, events)
    return events


def _check_events(path: Path, events: pl.DataFrame) -> None:
    """Raise InputError unless each event is a span of a recording."""
    start_s = pl.col("start_s").cast(pl.Float64, strict=False)
    end_s = pl.col("end_s").cast(pl.Float64, strict=False)
    is_span = (start_s >= 0) & (start_s < end_s) & end_s.is_finite()
    is_event = pl.col("recording").is_not_null() & is_span
    right = events.select(is_event.fill_null(value=False)).to_series().to_list()
    if not all(right):
        row = right.index(False)
        raise InputError(
            f"{path}: row {row + 1}: expected a recording, and a start_s from 0 that is before "
            f"end_s, got {events.row(row)[:3]}; scan again"
        )


def find_thresholds(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the threshold of each label that has one."""
    thresholds = {}
    for facts_of_class in facts["classes"]:
        threshold = facts_of_class.get("threshold")
        if threshold is not None and math.isfinite(threshold):
            thresholds[str(facts_of_class["label"])] = float(threshold)
    return thresholds
