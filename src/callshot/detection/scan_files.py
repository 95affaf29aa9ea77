"""What a scan found → files in a folder, all of them or none.

events.csv, events.parquet    one row for each event: the columns of EVENTS
raven/, audacity/, kaleidoscope/
                              the same events for other programs
raven-all/                    one Raven table for all recordings
rejects.csv                   recordings that could not be read, and why
scan.json                     what was scanned and how, and the sha256 of every other file
index/                        windows of recordings, made once; only if no index was given
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from callshot.corpus.recordings import Library
from callshot.corpus.segment_table import REJECTS, write_rejects
from callshot.detection.events import RecordingFolder
from callshot.detection.exports import write_files
from callshot.detection.model_file import read_model
from callshot.detection.scan import ScanResult, scan_recordings
from callshot.detection.scan_source import EmbeddingOptions, ScanOptions
from callshot.errors import OptionError, suggest_name
from callshot.files import describe_file, sha256_text
from callshot.records import Progress, Recording, no_progress
from callshot.report.output_folder import open_output_folder
from callshot.version import __version__

PROVENANCE = "scan.json"
INDEX_FOLDER = "index"
TABLES = {"csv": "events.csv", "parquet": "events.parquet"}
# What a user may ask for, and the formats of `exports` that it means; each has a folder.
FORMATS = {
    "raven": ("raven", "raven-all"),
    "audacity": ("audacity",),
    "kaleidoscope": ("kaleidoscope",),
}


@dataclass(frozen=True)
class ScanOutput:
    """Which files a scan writes beside the events: names of FORMATS."""

    formats: Sequence[str] = ("raven",)

    def __post_init__(self) -> None:
        for name in self.formats:
            if name not in FORMATS:
                raise OptionError(f"to: {name!r}: {suggest_name(name, FORMATS)}")


def scan_files(
    model_path: Path,
    recordings: Path,
    out: Path,
    options: ScanOptions,
    embedding: EmbeddingOptions,
    wanted: ScanOutput,
    progress: Progress = no_progress,
) -> ScanResult:
    """Scan recordings or an index with a model, and write what was found."""
    model = read_model(model_path)
    names = (*TABLES.values(), REJECTS)
    with open_output_folder(out, names, PROVENANCE) as output:
        result = scan_recordings(
            model, recordings, out / INDEX_FOLDER, options, embedding, progress
        )

        def make_files(folder: Path) -> list[str]:
            return _write_events(result, folder, wanted)

        output.write(make_files, describe_scan(result, model_path))
    return result


def _write_events(result: ScanResult, folder: Path, wanted: ScanOutput) -> list[str]:
    """Write all files to a folder; return their names."""
    recordings = list_recordings(result)
    names = []
    for format in TABLES:
        names += write_files(result.events, format, folder, recordings)
    for name in wanted.formats:
        for format in FORMATS[name]:
            files = write_files(result.events, format, folder / format, recordings)
            names += [f"{format}/{file}" for file in files]
    write_rejects(result.rejects, folder / REJECTS)
    return [*names, REJECTS]


def list_recordings(result: ScanResult) -> RecordingFolder:
    """Return the recordings of a scan, also those without events."""
    recordings = {}
    roots = {}
    for one in result.recordings:
        frames = round(one.duration_s * one.rate_hz)
        recordings[one.path] = Recording(one.path, frames, one.rate_hz, 1, "")
        roots[one.path] = Path(one.root)
    root = Path(result.recordings[0].root)
    return RecordingFolder(Library(root, tuple(recordings)), recordings, {}, roots)


def describe_scan(result: ScanResult, model_path: Path) -> dict[str, Any]:
    """Return where the events come from, for scan.json."""
    return {
        "callshot": __version__,
        "model": describe_file(model_path, encoder=result.model.encoder),
        "licence": result.model.provenance.licence,
        "index": _describe_index(result),
        "recordings": len(result.recordings),
        "folders": sorted({one.root for one in result.recordings}),
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
    files = [name for one in result.recordings for name in one.spans]
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
