"""Events and the clock times of recordings → detections by day and hour, as a table and a picture.

An event counts in the hour in which it starts. An hour without any recording is not an hour without
detections: it has no row in the table, and the picture shows it hatched.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

import polars as pl

from callshot.detection.events import RecordingFolder
from callshot.detection.index.clock import RecordedTime, find_clock_time, parse_clock
from callshot.detection.pictures import plan_activity
from callshot.errors import InputError
from callshot.records.csv_cells import write_csv_frame
from callshot.records.frames import ACTIVITY, Frame
from callshot.report.figures.figure_io import render
from callshot.results import open_output_folder
from callshot.version import __version__

TABLE = "activity.csv"
PROVENANCE = "provenance.json"
SET = "callshot activity"
MINUTE_DIGITS = 3
NO_CLOCK = (
    "no recording has a clock time in its name (such as SITE_20260302_053000.wav) or in its "
    "header, so there is no activity by hour"
)

Hour = tuple[date, int]
Times = Mapping[str, RecordedTime]


@dataclass(frozen=True)
class Activity:
    """How many events start in each hour that was recorded.

    counts   a frame with the columns of ACTIVITY: a row for each hour and label
    undated  events of recordings without a clock time, which are not counted
    """

    counts: Frame
    undated: int


def find_recorded_times(recordings: RecordingFolder) -> dict[str, RecordedTime]:
    """Return when recordings began, and how long they are; some do not say it and are left out."""
    times = {}
    for name, duration_s in recordings.durations_s.items():
        start = parse_clock(find_clock_time(recordings.find_file(name), name))
        if start is not None:
            times[name] = RecordedTime(start, duration_s)
    return times


def count_activity(
    events: Frame, times: Times, labels: Sequence[str] | None = None
) -> Activity:
    """Count events by the hour in which they start, and the minutes recorded in that hour.

    Minutes of several recorders in the same hour are added. Every recorded hour has a row for each
    label, also where nothing was detected.

    Parameters
    ----------
    events : polars.DataFrame
        Events, in the EVENTS schema.
    times : mapping
        When recordings began, by the names that the events use; also those without events.
    labels : sequence of str, optional
        The labels to count; those of the events by default.

    Returns
    -------
    Activity

    Examples
    --------
    >>> events = pl.DataFrame({"recording": ["a"], "start_s": [1800.0], "label": ["roar"]})
    >>> times = {"a": RecordedTime(datetime(2026, 3, 2, 5, 45), 3600.0)}
    >>> for row in count_activity(events, times).counts.rows():
    ...     print(*row)
    2026-03-02 5 roar 0 15.0
    2026-03-02 6 roar 1 45.0
    """
    if labels is None:
        labels = sorted(set(events["label"]))
    minutes = _count_minutes(times)
    dated = events.filter(pl.col("recording").is_in(list(times)))
    detections = _count_detections(dated, times)
    rows = []
    for hour in sorted(minutes.keys() | {hour for hour, _ in detections}):
        recorded = round(minutes.get(hour, 0.0), MINUTE_DIGITS)
        rows += [(*hour, name, detections[hour, name], recorded) for name in labels]
    counts = pl.DataFrame(rows, schema=dict(ACTIVITY), orient="row")
    return Activity(counts, undated=len(events) - len(dated))


def _count_detections(events: Frame, times: Times) -> Counter[tuple[Hour, str]]:
    """Count events by the hour in which they start, and by their label."""
    detections: Counter[tuple[Hour, str]] = Counter()
    for name, start_s, label in events.select("recording", "start_s", "label").rows():
        start = times[name].start + timedelta(seconds=start_s)
        detections[_hour_of(start), label] += 1
    return detections


def _hour_of(time: datetime) -> Hour:
    return time.date(), time.hour


def _count_minutes(times: Times) -> dict[Hour, float]:
    """Return how many minutes of each hour were recorded."""
    minutes: dict[Hour, float] = defaultdict(float)
    for time in times.values():
        for start, end in _split_hours(time):
            minutes[_hour_of(start)] += (end - start).total_seconds() / 60
    return minutes


def _split_hours(time: RecordedTime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the pieces of a recording, cut where an hour begins."""
    start = time.start
    while start < time.end:
        whole_hour = start.replace(minute=0, second=0, microsecond=0)
        end = min(whole_hour + timedelta(hours=1), time.end)
        yield start, end
        start = end


def make_activity_files(activity: Activity, folder: Path) -> list[str]:
    """Write activity.csv, and the picture as PDF and PNG, to a folder; return the names."""
    write_csv_frame(activity.counts, folder / TABLE)
    names = [TABLE]
    for page in plan_activity(activity.counts):
        names += [path.name for path in render(page, folder)]
    return names


def write_activity(events: Frame, recordings: RecordingFolder, out: Path) -> Activity:
    """Count the events on recordings, and write the table and the picture to a folder."""
    times = find_recorded_times(recordings)
    if not times:
        raise InputError(f"{recordings.library.root}: {NO_CLOCK}")
    activity = count_activity(events, times)

    def make(folder: Path) -> list[str]:
        return make_activity_files(activity, folder)

    facts = {"version": __version__, "undated": activity.undated}
    with open_output_folder(out, [TABLE], PROVENANCE, owner=SET) as output:
        output.write(make, facts)
    return activity
