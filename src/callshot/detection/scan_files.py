"""What a scan found → files in a folder, all of them or none.

events.csv, events.parquet    one row for each event: the columns of EVENTS
raven/, audacity/, kaleidoscope/
                              the same events for other programs
raven-all/                    one Raven table for all recordings
rejects.csv                   recordings that could not be read, and why
scan.json                     what was scanned and how, and the sha256 of every other file
model.npz                     the model as it was used, if examples were adapted to these recordings
site.npz                      mean and scale of quiet windows, if the nearest mean decided
index/                        windows of recordings, made once; only if no index was given
labels.csv, labels.parquet    with --segments, instead of events: the label of each segment
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console

from callshot.console import print_lines
from callshot.corpus.recordings import Library
from callshot.corpus.segment_table import REJECTS, write_rejects
from callshot.detection.activity import count_activity, make_activity_files
from callshot.detection.clips import ClipOptions, check_clips_folder, write_clips
from callshot.detection.events import EVENTS_CSV, EVENTS_FILE, RecordingFolder
from callshot.detection.examples import embed_calls
from callshot.detection.exports import EXPORTS, formats_for_programs, write_files
from callshot.detection.index.index_files import INDEX_FOLDER, check_has_audio, is_index
from callshot.detection.index.index_recordings import find_stamp
from callshot.detection.learn import read_call_table, segment_settings
from callshot.detection.model import (
    SEGMENT,
    Model,
    check_classes,
    check_fingerprint,
    check_has_encoder,
    check_settings,
    load_model,
    write_model,
)
from callshot.detection.nearest import NearestMeanDetector, write_site
from callshot.detection.scan import ScanResult, scan
from callshot.detection.sentences import say, show_rejects
from callshot.encoders.embed import EmbedOptions
from callshot.encoders.joined_encoder import find_joined_encoder, joined_fingerprint
from callshot.errors import OptionError, check_choice, count_text
from callshot.fewshot.centroid import log_odds
from callshot.files import SCAN_FACTS, describe_file, make_folder, sha256_text
from callshot.records import FloatArray, Progress, Recording, Reject, no_progress
from callshot.records.table_files import write_csv_frame, write_parquet
from callshot.results import open_output_folder
from callshot.spans import Spans
from callshot.storage import is_remote, to_path
from callshot.version import __version__

ADAPTED_MODEL = "model.npz"
SITE = "site.npz"
LABELS_CSV = "labels.csv"
LABELS = "labels.parquet"
MAX_NOTES = 8  # on the terminal
MAX_EVENTS = 5
CLIPS_FOLDER = "clips"
ACTIVITY_FOLDER = "activity"
KEPT_SETTINGS = ("window_s", "hop_s", "channel", "dtype")


def scan_files(
    model_path: Path,
    recordings: Path,
    out: Path,
    *,
    formats: Sequence[str] = ("raven",),
    clips: ClipOptions | None = None,
    **options: Any,
) -> ScanResult:
    """Scan recordings or an index with a model, and write what was found.

    `formats` are output formats for other programs; `clips` says how clips are cut, None without
    clips; `options` are those of `scan`.
    """
    for name in formats:
        check_choice("to", name, formats_for_programs())
    model_path, recordings, out = map(to_path, (model_path, recordings, out))
    is_same_storage = is_remote(out) == is_remote(recordings)
    is_inside = is_same_storage and out.resolve().is_relative_to(recordings.resolve())
    if clips is not None and is_inside:
        raise OptionError(
            f"out: {out} is in the folder of the recordings, and the next scan would take "
            "clips for recordings; choose another folder"
        )
    names = (EVENTS_CSV, EVENTS_FILE, REJECTS)
    with open_output_folder(out, names, SCAN_FACTS) as output:
        if clips is not None:
            check_clips_folder(out / CLIPS_FOLDER)
            if is_index(recordings):
                check_has_audio(recordings)
        result = scan(load_model(model_path), recordings, out / INDEX_FOLDER, **options)
        if clips is not None:
            rejects = [*result.rejects, *_write_clips(result, out, clips)]
            result = replace(result, rejects=rejects)

        output.write(
            lambda folder: _write_events(result, folder, formats),
            describe_scan(result, model_path),
        )
    return result


def _write_clips(result: ScanResult, out: Path, options: ClipOptions) -> list[Reject]:
    """Cut clips of some events; return the rejects, also recordings that changed since indexed."""
    options = replace(options, channel=result.index.settings.channel)
    with_events = set(result.events["recording"])
    changed = []
    for recording in result.recordings:
        path = to_path(recording.root) / recording.path
        is_there = recording.path in with_events and path.exists()
        if is_there and find_stamp(path) != recording.stamp:
            reason = f"no clip: {path} has changed since it was indexed; index it again"
            changed.append(Reject(recording.path, row=None, reason=reason))
    names = [reject.file for reject in changed]
    events = result.events.filter(~pl.col("recording").is_in(names))
    _, unread = write_clips(
        events, to_recording_folder(result), out / CLIPS_FOLDER, options
    )
    return [*changed, *unread]


def _write_events(
    result: ScanResult, folder: Path, formats: Sequence[str]
) -> list[str]:
    """Write events in all formats, activity, an adapted model and rejects; return the names."""
    is_imported = result.index.settings.is_imported
    recordings = None if is_imported else to_recording_folder(result)
    names = []
    for format in ("csv", "parquet"):
        names += write_files(result.events, format, folder, recordings)
    for format, export in EXPORTS.items():
        if export.needs_folder and recordings is None:
            continue
        if format in formats or export.beside in formats:
            files = write_files(result.events, format, folder / format, recordings)
            names += [f"{format}/{file}" for file in files]
    times = {
        recording.path: (recording.clock, recording.duration_s)
        for recording in result.recordings
    }
    activity = count_activity(result.events, times, result.detector.classes)
    if not activity.is_empty():
        make_folder(folder / ACTIVITY_FOLDER)
        files = make_activity_files(activity, folder / ACTIVITY_FOLDER)
        names += [f"{ACTIVITY_FOLDER}/{name}" for name in files]
    if result.adapted_model is not None:
        write_model(result.adapted_model, folder / ADAPTED_MODEL)
        names.append(ADAPTED_MODEL)
    if isinstance(result.detector, NearestMeanDetector):
        write_site(result.detector.site, folder / SITE)
        names.append(SITE)
    write_rejects(result.rejects, folder / REJECTS)
    return [*names, REJECTS]


def to_recording_folder(result: ScanResult) -> RecordingFolder:
    """Return the recordings of a scan, also those without events, and the folder of each.

    The index has neither the number of channels nor the kind of file: these are placeholders.
    """
    recordings = {}
    roots = {}
    for indexed in result.recordings:
        path = indexed.path
        frames = round(indexed.duration_s * indexed.rate_hz)
        recordings[path] = Recording(path, frames, indexed.rate_hz, channels=1, kind="")
        roots[path] = to_path(indexed.root)
    first_root = next(iter(roots.values()))
    library = Library(first_root, tuple(recordings))
    return RecordingFolder(library, recordings, roots=roots)


def describe_scan(result: ScanResult, model_path: Path) -> dict[str, Any]:
    """Return where the events come from, for scan.json."""
    settings = result.index.settings
    files = [name for recording in result.recordings for name in recording.spans]
    threshold = pl.col("threshold")
    is_finite = threshold.is_finite()  # JSON has no infinite numbers
    classes = result.per_class.with_columns(pl.when(is_finite).then(threshold))
    return {
        **_describe_model(result.model, model_path),
        "index": {
            "folder": str(result.index.folder),
            "encoder": settings.name,
            **{name: getattr(settings, name) for name in KEPT_SETTINGS},
            "sha256": sha256_text("\n".join(files)),  # the names contain checksums
        },
        "recordings": len(result.recordings),
        "folders": sorted({recording.root for recording in result.recordings}),
        "hours": result.hours,
        "windows": result.windows,
        "active_windows": result.active,
        "aim_per_hour": result.false_alarms,
        "gap_s": result.gap_s,
        "edges": result.edges,
        "best": result.best,
        "thresholds_from": result.detector.origin,
        "classes": classes.to_dicts(),
        "events": len(result.events),
        "rejects": len(result.rejects),
    }


def _describe_model(model: Model, path: Path) -> dict[str, Any]:
    """Return the entries of scan.json on a model and its file."""
    facts = describe_file(path, encoder=model.encoder)
    return {
        "callshot": __version__,
        "model": {**facts, "path": str(path.absolute())},
        "licence": model.licence,
    }


UNLIKE = 1.5  # times the median distance of examples from their means
SEGMENT_LABELS: dict[str, Any] = {
    "segment": pl.String,
    "recording": pl.String,
    "path": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "label": pl.String,  # of the nearest class mean
    "score": pl.Float64,  # its log-odds
    "runner_up": pl.String,
    "runner_up_score": pl.Float64,
    "distance": pl.Float64,  # from the mean of the label
    "annotated": pl.String,  # the label in the table of segments
}


@dataclass(frozen=True)
class LabelledSegments:
    """A row per segment with the columns of SEGMENT_LABELS, and what was left out.

    `scores` are the log-odds of all classes, segments × classes, in the order of `model.classes`.
    `spans` are the segments as they were given.
    """

    frame: pl.DataFrame
    scores: FloatArray
    rejects: Sequence[Reject]
    notes: Sequence[str]
    spans: Spans


def label_segments(
    model: Model,
    segments: Path,
    options: EmbedOptions,
    *,
    encoder: str | None = None,
    audio: Path | None = None,
    progress: Progress = no_progress,
) -> LabelledSegments:
    """Name each segment of a table by the nearest class mean, which has the highest score.

    The segments are embedded as the examples were. `encoder` is only needed where the model cannot
    find its own by name, as with `onnx:PATH`, `audio` only where the recordings have moved.
    """
    check_classes(model)
    check_has_encoder(model)
    joined_encoder = find_joined_encoder(
        encoder or model.encoder, options.encoder_options
    )
    fingerprint = joined_fingerprint(joined_encoder, options.device)
    check_fingerprint(model, joined_encoder.name, fingerprint)
    spans = read_call_table(segments, audio)
    if model.settings.source == SEGMENT:
        check_settings(model, segment_settings(spans), str(segments))
    vectors, rejects, notes = embed_calls(
        spans, joined_encoder, model.settings, options, progress=progress
    )
    scores = log_odds(model.layer(vectors.matrix))  # (segments, classes)
    order = np.argsort(-scores, axis=1, kind="stable")
    best = order[:, 0]
    second = order[:, 1]  # there is one: check_classes
    rows = np.arange(len(scores))
    names = pl.Series(model.classes)
    differences = vectors.matrix - model.means[best]
    distance = np.linalg.norm(differences, axis=1)
    frame = vectors.spans.frame.with_columns(
        annotated=pl.col("label"),
        label=names.gather(best),
        score=scores[rows, best],
        runner_up=names.gather(second),
        runner_up_score=scores[rows, second],
        distance=distance,
    )
    frame = frame.select(*SEGMENT_LABELS).cast(pl.Schema(SEGMENT_LABELS))
    # Clips of clear calls are no guide to calls in noise, although they name each other well.
    if np.isfinite(model.distances).any():
        typical = max(np.nanmedian(model.distances), np.finfo(np.float64).tiny)
        ratio = float(np.median(distance)) / typical
        notes += say("unlike", ratio, model) if ratio > UNLIKE else []
    return LabelledSegments(frame, scores, rejects, notes, spans)


def scan_segment_files(
    model_path: Path,
    segments: Path,
    out: Path,
    options: EmbedOptions,
    *,
    encoder: str | None = None,
    audio: Path | None = None,
    progress: Progress = no_progress,
) -> LabelledSegments:
    """Name the segments of a table; write labels as CSV and Parquet, and rejects."""
    names = (LABELS_CSV, LABELS, REJECTS)
    with open_output_folder(out, names, SCAN_FACTS) as output:
        model = load_model(model_path)
        result = label_segments(
            model, segments, options, encoder=encoder, audio=audio, progress=progress
        )

        def make_files(folder: Path) -> Sequence[str]:
            write_csv_frame(result.frame, folder / LABELS_CSV)
            write_parquet(result.frame, folder / LABELS)
            write_rejects(result.rejects, folder / REJECTS)
            return names

        first = next(result.spans.rows())
        facts = {
            **_describe_model(model, model_path),
            "segments": describe_file(segments),
            "folders": [str(result.spans.root.absolute())],
            "channel": first["channel_rule"],
            "source_rate_hz": first["source_rate_hz"],
            "labels": len(result.frame),
            "rejects": len(result.rejects),
        }
        output.write(make_files, facts)
    return result


def show_scan(result: ScanResult, out: Path, console: Console) -> None:
    """Print the events of each class, the strongest ones, what was left out, and what is next."""
    has_verdicts = result.events["probability"].count() > 0
    by = "probability" if has_verdicts else "score"
    ranked = result.events.drop_nulls(by)
    strongest = ranked.top_k(MAX_EVENTS, by=by).to_dicts()
    per_class = result.per_class.to_dicts()
    print_lines(console, say("scan", result, per_class, strongest))
    show_rejects(result.rejects, console)
    notes = [f"note: {note}" for note in result.notes]
    if len(notes) > MAX_NOTES:
        rest = count_text(len(notes) - MAX_NOTES, "more note")
        notes[MAX_NOTES:] = [f"and {rest}"]
    print_lines(console, notes, "yellow")
    formats = [name for name in formats_for_programs() if (out / name).is_dir()]
    has_own_index = result.index.folder == out / INDEX_FOLDER
    durations_s = result.events["end_s"] - result.events["start_s"]
    event_s = durations_s.median()
    example_s = np.median(result.model.examples.spans.durations_s)
    expected = None
    if has_verdicts:
        probability = result.events["probability"].drop_nulls().to_numpy()
        expected = (probability.sum(), len(probability))
    facts = (result, out, out / EVENTS_CSV, formats, has_own_index)
    lengths_s = (event_s, example_s)
    print_lines(console, say("after_scan", *facts, lengths_s, expected))
