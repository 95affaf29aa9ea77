"""What a scan found → files in a folder, all of them or none.

events.csv, events.parquet    one row for each event: the columns of EVENTS
raven/, audacity/, kaleidoscope/
                              the same events for other programs
raven-all/                    one Raven table for all recordings
rejects.csv                   recordings that could not be read, and why
scan.json                     what was scanned and how, and the sha256 of every other file
model.npz                     the model as it was used, if examples were adapted to these recordings
index/                        windows of recordings, made once; only if no index was given
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from callshot.corpus.recordings import Library
from callshot.corpus.segment_table import REJECTS, write_rejects
from callshot.detection.activity import count_activity, make_activity_files
from callshot.detection.clips import (
    ClipOptions,
    check_clips_folder,
    write_clips,
)
from callshot.detection.events import RecordingFolder
from callshot.detection.exports import write_files
from callshot.detection.index.add_recording import find_stamp
from callshot.detection.index.clock import RecordedTime, parse_clock
from callshot.detection.model import load_model, write_model
from callshot.detection.scan import (
    IndexingOptions,
    ScanOptions,
    ScanResult,
    scan_recordings,
)
from callshot.errors import OptionError, suggest_name
from callshot.files import describe_file, make_folder, sha256_text
from callshot.records import Progress, Recording, Reject, no_progress
from callshot.results import open_output_folder
from callshot.storage import is_remote, to_path
from callshot.version import __version__

PROVENANCE = "scan.json"
INDEX_FOLDER = "index"
ADAPTED_MODEL = "model.npz"
CLIPS_FOLDER = "clips"
ACTIVITY_FOLDER = "activity"
TABLES = {"csv": "events.csv", "parquet": "events.parquet"}
# What a user may ask for, and the formats of `exports` that it means; each has a folder.
FORMATS = {
    "raven": ("raven", "raven-all"),
    "audacity": ("audacity",),
    "kaleidoscope": ("kaleidoscope",),
}


@dataclass(frozen=True)
class ScanOutput:
    """Which files a scan writes beside the events: names of FORMATS, and clips."""

    formats: Sequence[str] = ("raven",)
    clips: ClipOptions | None = None

    def __post_init__(self) -> None:
        for name in self.formats:
            if name not in FORMATS:
                raise OptionError(f"to: {name!r}: {suggest_name(name, FORMATS)}")

    def check_folder(self, recordings: Path, out: Path) -> None:
        """Raise OptionError if clips would be among the recordings of the next scan."""
        is_inside = is_remote(out) == is_remote(recordings)
        is_inside = is_inside and out.resolve().is_relative_to(recordings.resolve())
        if self.clips is not None and is_inside:
            raise OptionError(
                f"out: {out} is in the folder of the recordings, and the next scan would take "
                "clips for recordings; choose another folder"
            )


def scan_files(
    model_path: Path,
    recordings: Path,
    out: Path,
    options: ScanOptions,
    indexing: IndexingOptions,
    scan_output: ScanOutput,
    progress: Progress = no_progress,
) -> ScanResult:
    """Scan recordings or an index with a model, and write what was found."""
    model_path, recordings, out = map(to_path, (model_path, recordings, out))
    scan_output.check_folder(recordings, out)
    names = (*TABLES.values(), REJECTS)
    with open_output_folder(out, names, PROVENANCE) as output:
        if scan_output.clips is not None:
            check_clips_folder(out / CLIPS_FOLDER)
        model = load_model(model_path)
        scanned = scan_recordings(
            model, recordings, out / INDEX_FOLDER, options, indexing, progress
        )
        rejects = [*scanned.rejects, *_write_clips(scanned, out, scan_output.clips)]
        result = replace(scanned, rejects=rejects)

        def make_files(folder: Path) -> list[str]:
            return _write_events(result, folder, scan_output)

        output.write(make_files, describe_scan(result, model_path))
    return result


def _write_clips(
    result: ScanResult, out: Path, options: ClipOptions | None
) -> list[Reject]:
    """Cut clips of some events, from the channel that was scanned; return what has none."""
    if options is None:
        return []
    options = replace(options, channel=result.index.settings.channel)
    changed = _find_changed(result)
    names = [reject.file for reject in changed]
    events = result.events.filter(~pl.col("recording").is_in(names))
    clips = write_clips(events, list_recordings(result), out / CLIPS_FOLDER, options)
    return [*changed, *clips.rejects]


def _find_changed(result: ScanResult) -> list[Reject]:
    """Return a reject for each recording with events that is not as it was indexed."""
    names = set(result.events["recording"])
    rejects = []
    for recording in result.recordings:
        path = to_path(recording.root) / recording.path
        if recording.path not in names or not path.exists():
            continue
        if find_stamp(path) != recording.stamp:
            reason = f"no clip: {path} has changed since it was indexed; index it again"
            rejects.append(Reject(recording.path, None, reason))
    return rejects


def _write_events(result: ScanResult, folder: Path, output: ScanOutput) -> list[str]:
    """Write all files to a folder; return their names."""
    recordings = list_recordings(result)
    names = []
    for format in TABLES:
        names += write_files(result.events, format, folder, recordings)
    for name in output.formats:
        for format in FORMATS[name]:
            files = write_files(result.events, format, folder / format, recordings)
            names += [f"{format}/{file}" for file in files]
    names += _write_activity(result, folder)
    if result.adapted_model is not None:
        write_model(result.adapted_model, folder / ADAPTED_MODEL)
        names.append(ADAPTED_MODEL)
    write_rejects(result.rejects, folder / REJECTS)
    return [*names, REJECTS]


def _write_activity(result: ScanResult, folder: Path) -> list[str]:
    """Write events by day and hour; nothing if no recording has a clock time."""
    times = {}
    for recording in result.recordings:
        start = parse_clock(recording.clock)
        if start is not None:
            times[recording.path] = RecordedTime(start, recording.duration_s)
    if not times:
        return []
    activity = count_activity(result.events, times, result.detector.classes)
    make_folder(folder / ACTIVITY_FOLDER)
    names = make_activity_files(activity, folder / ACTIVITY_FOLDER)
    return [f"{ACTIVITY_FOLDER}/{name}" for name in names]


def list_recordings(result: ScanResult) -> RecordingFolder:
    """Return the recordings of a scan, also those without events."""
    recordings = {}
    roots = {}
    for recording in result.recordings:
        frames = round(recording.duration_s * recording.rate_hz)
        recordings[recording.path] = Recording(
            recording.path, frames, recording.rate_hz, 1, ""
        )
        roots[recording.path] = to_path(recording.root)
    root = to_path(result.recordings[0].root)
    return RecordingFolder(Library(root, tuple(recordings)), recordings, {}, roots)


def describe_scan(result: ScanResult, model_path: Path) -> dict[str, Any]:
    """Return where the events come from, for scan.json."""
    return {
        "callshot": __version__,
        "model": {
            **describe_file(model_path, encoder=result.model.encoder),
            "path": str(model_path.absolute()),
        },
        "licence": result.model.provenance.licence,
        "index": _describe_index(result),
        "recordings": len(result.recordings),
        "folders": sorted({recording.root for recording in result.recordings}),
        "hours": result.hours,
        "windows": result.windows,
        "active_windows": result.active,
        "aim_per_hour": result.options.false_alarms,
        "gap_s": result.options.gap_s,
        "thresholds_from": result.detector.origin,
        "classes": _describe_classes(result),
        "events": len(result.events),
        "rejects": len(result.rejects),
    }


def _describe_index(result: ScanResult) -> dict[str, Any]:
    settings = result.index.settings
    files = [name for recording in result.recordings for name in recording.spans]
    return {
        "folder": str(result.index.folder),
        "encoder": settings.name,
        "window_s": settings.window_s,
        "hop_s": settings.hop_s,
        "channel": settings.channel,
        "dtype": settings.dtype,
        "sha256": sha256_text("\n".join(files)),  # the names contain checksums
    }


def _describe_classes(result: ScanResult) -> list[dict[str, Any]]:
    """Return the rows of `per_class`; JSON has no infinite thresholds."""
    classes = []
    for row in result.per_class.iter_rows(named=True):
        if not np.isfinite(row["threshold"]):
            row["threshold"] = None
        classes.append(row)
    return classes
