"""Files or frames of detections and annotations → events on recordings, each of them once.

Of several events with the same span and label, the one with the highest score counts. What begins
before its recording or ends after it is cut to the recording; what lies wholly outside is a reject.
So scores do not depend on the order of rows, nor on whether a detector pads its windows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from callshot.corpus.renaming import make_annotation_options
from callshot.detection.events.events import (
    PLACE,
    EventTable,
    RecordingFolder,
    complete_events,
    events_frame,
    open_recordings,
    read_events,
    read_unchecked_events,
    rename_recordings,
)
from callshot.records import Reject
from callshot.records.frames import Frame
from callshot.storage import to_path

Events = Frame | Path | str
Recordings = Mapping[str, float] | Path | str

IN_MEMORY = "memory"  # instead of a file, for rows of frames
DIGITS = 6  # of times in seconds: spans that differ by less are the same


@dataclass
class ScoreInput:
    """What was read: the lengths of recordings, rejects and notes."""

    folder: RecordingFolder | None = None
    durations_s: dict[str, float] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(
        self, events: Events, kind: str, columns: Mapping[str, str] | None = None
    ) -> Frame:
        """Return the events of a file or frame, cut to their recordings, each of them once.

        `kind` is what they are called in notes.
        """
        if isinstance(events, pl.DataFrame):
            rows = complete_events(events)
            places = {name: pl.lit(None, dtype) for name, dtype in PLACE.items()}
            table = EventTable(rows.with_columns(**places))
        else:
            options = make_annotation_options(columns=columns or {})
            table = read_unchecked_events(to_path(events), self.folder, options)
        rows = self._take(table)
        rows = self._keep_best(rows)
        rows = self._cut(rows, kind)
        return events_frame(rows.iter_rows(named=True))

    def read_reviewed(self, events: Events) -> Frame:
        """Return reviewed events as they are: several people may have reviewed one."""
        if isinstance(events, pl.DataFrame):
            return self._take(EventTable(complete_events(events)))
        return self._take(read_events(to_path(events), self.folder))

    def _take(self, table: EventTable) -> Frame:
        """Keep rejects and notes; return the events, by the names of the recordings."""
        self.rejects += table.rejects
        self.notes += table.notes
        if self.durations_s:
            return rename_recordings(table.events, self.durations_s)
        return table.events

    def _keep_best(self, events: Frame) -> Frame:
        """Return the event with the highest score of those with the same span and label."""
        times = [pl.col(name).round(DIGITS) for name in ("start_s", "end_s")]
        key = pl.struct("recording", "label", *times)
        ordered = events.sort(
            "score", descending=True, nulls_last=True, maintain_order=True
        )
        is_first = ordered.select(key.is_first_distinct()).to_series()
        for row in ordered.filter(~is_first).iter_rows(named=True):
            reason = "the same span and label as another row, which counts instead"
            self.rejects.append(_reject(row, reason))
        return ordered.filter(is_first)

    def _cut(self, events: Frame, kind: str) -> Frame:
        """Return events cut to their recordings, without those wholly outside."""
        durations_s = pl.Series(
            [self.durations_s.get(name) for name in events["recording"]],
            dtype=pl.Float64,
        )
        events = events.with_columns(duration_s=durations_s)
        is_outside = (pl.col("end_s") <= 0) | (
            pl.col("start_s") >= pl.col("duration_s")
        )
        has_no_span = pl.col("end_s") <= pl.col("start_s")
        is_left_out = (is_outside | has_no_span).fill_null(False)
        for row in events.filter(is_left_out).iter_rows(named=True):
            self.rejects.append(_reject(row, _describe_outside(row)))
        kept = events.filter(~is_left_out)
        overhangs = (pl.col("start_s") < 0) | (
            pl.col("end_s").round(DIGITS) > pl.col("duration_s").round(DIGITS)
        )
        count = kept.filter(overhangs).height
        if count:
            self.notes.append(
                f"{count} of {len(kept)} {kind} begin before their recording or end after it; "
                "they are cut to it"
            )
        # min_horizontal leaves out the lengths that are not known.
        return kept.with_columns(
            start_s=pl.max_horizontal("start_s", pl.lit(0.0)),
            end_s=pl.min_horizontal("end_s", "duration_s"),
        )


def _reject(row: Mapping[str, Any], reason: str) -> Reject:
    file = row["file"]
    if file is None:
        place = f"{row['recording']}, {row['start_s']:.6g} to {row['end_s']:.6g} s"
        return Reject(IN_MEMORY, None, f"{place}: {reason}")
    return Reject(file, row["row"], reason)


def _describe_outside(row: Mapping[str, Any]) -> str:
    span = f"{row['start_s']:.6g} to {row['end_s']:.6g} s"
    if row["end_s"] <= row["start_s"]:
        return f"{span} is no span"
    if row["end_s"] <= 0:
        return f"{span} is before the start of {row['recording']}"
    duration = f"{row['duration_s']:.6g} s"
    return f"{span} is beyond the end of {row['recording']}, which is {duration} long"


def open_input(recordings: Recordings | None) -> ScoreInput:
    """Read which recordings there are, and how long they are."""
    if recordings is None:
        return ScoreInput()
    if isinstance(recordings, Mapping):
        return ScoreInput(durations_s=dict(recordings))
    folder = open_recordings(to_path(recordings))
    rejects = [Reject(path, None, str(error)) for path, error in folder.errors.items()]
    return ScoreInput(folder, folder.durations_s, rejects)
