"""A scan, a table of segments or a study → the items of a review, and where their sound is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from callshot.corpus.segment_table import SEGMENTS, read_segments
from callshot.detection.events import events_frame
from callshot.detection.index.clock import find_clock_time, shift_clock
from callshot.detection.index.index_files import Index, is_index, open_index
from callshot.errors import InputError
from callshot.files import WORK_FOLDER, explain_unreadable, sha256_file
from callshot.records import Embeddings
from callshot.review.held_out_scores import HeldOutScores
from callshot.review.items import Items, make_items
from callshot.review.sound import RecordingFiles
from callshot.spans import Spans
from callshot.storage import check_no_url
from callshot.tables.embedding_tables import read_table

if TYPE_CHECKING:
    from callshot.review.model_scores import ModelScores
import math

from callshot.detection.events import complete_events
from callshot.records.frames import EVENTS
from callshot.records.parquet import read_parquet
from callshot.results import check_result, read_intact_provenance

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


INDEX_FOLDER = "index"
ADAPTED_MODEL = "model.npz"
SCAN = "scan"
SEGMENTS_KIND = "segments"
STUDY_KIND = "study"
STUDY_FILE = "study.toml"
EMBEDDINGS = "embeddings.parquet"


@dataclass(frozen=True)
class SourceOptions:
    """Where things are, if they are not where the source says."""

    recordings: Path | None = None
    model: Path | None = None
    index: Path | None = None


@dataclass(frozen=True)
class Source:
    """What is reviewed.

    thresholds   score that a detection of a label must reach, where it is known
    durations_s  of recordings, where they are known
    load_scores  opens what new scores are computed from, given the folder of the review; None if
                 there is nothing, for the reason `why_no_scores`
    facts        about the source, for the journal
    """

    kind: str
    title: str
    items: Items
    files: RecordingFiles
    thresholds: Mapping[str, float] = field(default_factory=dict)
    durations_s: Mapping[str, float] = field(default_factory=dict)
    load_scores: "Callable[[Path], ModelScores | HeldOutScores] | None" = None
    why_no_scores: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def open_source(path: Path, options: SourceOptions) -> Source:
    """Open what a user wants to review."""
    check_no_url(path)
    if (path / SCAN_FACTS).is_file():
        return _open_scan(path, options)
    if path.suffix == ".toml" and path.is_file():
        return _open_study(path, options)
    if (path / STUDY_FILE).is_file():
        return _open_study(path / STUDY_FILE, options)
    if path.suffix == ".parquet" and path.is_file():
        return _open_segments(path, options)
    if (path / SEGMENTS).is_file():
        return _open_segments(path / SEGMENTS, options)
    raise InputError(
        f"{path}: expected the folder of callshot scan (with {SCAN_FACTS}), a table of segments "
        f"({SEGMENTS}), or a study ({STUDY_FILE})"
    )


def _open_scan(folder: Path, options: SourceOptions) -> Source:
    facts = read_scan_facts(folder)
    if LABELS in facts["files"]:
        return _open_labels(folder, facts, options)
    events = read_scan_events(folder, facts, EVENTS_FILE)
    index = _find_index(folder, facts, options)
    names = events["recording"].unique().to_list()
    roots = _find_roots(names, facts, index, options)
    channel = str(facts.get("index", {}).get("channel", "first"))
    durations = {}
    if index is not None:
        durations = {
            recording.path: recording.duration_s for recording in index.recordings
        }
    items = make_items(events)
    model = _find_model(folder, facts, options)
    load, why_no_scores = _plan_scores(items, index, model, facts)
    return Source(
        kind=SCAN,
        title=folder.absolute().name,
        items=items,
        files=RecordingFiles(roots, channel),
        thresholds=find_thresholds(facts),
        durations_s=durations,
        load_scores=load,
        why_no_scores=why_no_scores,
        facts=_describe_source(folder, roots, model),
    )


def _open_labels(
    folder: Path, facts: Mapping[str, Any], options: SourceOptions
) -> Source:
    """Open segments that a model labelled."""
    events = read_scan_events(folder, facts, LABELS)
    names = events["recording"].unique().to_list()
    roots = _find_roots(names, facts, None, options)
    channel = str(facts.get("channel", "first"))
    rate_hz = facts.get("source_rate_hz")
    model = _find_model(folder, facts, options)
    about = {"channel": channel, "source_rate_hz": rate_hz}
    return Source(
        kind=SEGMENTS_KIND,
        title=folder.absolute().name,
        items=make_items(events),
        files=RecordingFiles(roots, channel, rate_hz),
        why_no_scores="scores of segments are those of the scan; scan again after learn",
        facts={**_describe_source(folder, roots, model), **about},
    )


def _describe_source(
    path: Path, roots: Mapping[str, Path], model: Path | None = None
) -> dict[str, Any]:
    """Return what a journal keeps of a source."""
    return {
        "source": str(path.absolute()),
        "model": None if model is None else str(model.absolute()),
        "recordings": {name: str(roots[name].absolute()) for name in sorted(roots)},
    }


def _plan_scores(
    items: Items, index: Index | None, model: Path | None, facts: Mapping[str, Any]
) -> "tuple[Callable[[Path], ModelScores] | None, str]":
    """Return what opens new scores, or None and why there are none."""
    if model is None:
        name = facts.get("model", {}).get("file")
        return None, f"the model {name} is not where it was; give --model"
    if index is None:
        return None, "the index of the scan is not where it was; give --index"

    def load(folder: Path) -> "ModelScores":
        from callshot.detection.model import load_model
        from callshot.review.model_scores import ModelScores, make_metric, open_vectors

        _check_model(model, facts)
        learned = load_model(model)
        metric = make_metric(learned)
        vectors = open_vectors(folder, items, index, learned, metric)
        return ModelScores(learned, vectors, metric)

    return load, ""


def _find_model(
    folder: Path, facts: Mapping[str, Any], options: SourceOptions
) -> Path | None:
    """Return the model as the scan used it, None if it is not there any more."""
    if options.model is not None:
        return options.model
    if ADAPTED_MODEL in facts["files"]:
        return folder / ADAPTED_MODEL
    recorded_model = facts.get("model", {})
    paths = [Path(str(recorded_model.get("path", "")))]
    paths += [
        path / str(recorded_model.get("file")) for path in (folder.parent, Path())
    ]
    return next((path for path in paths if path.is_file()), None)


def _check_model(path: Path, facts: Mapping[str, Any]) -> None:
    """Raise InputError unless a model is the one of the scan."""
    with explain_unreadable(path):
        checksum = sha256_file(path)
    checksums = (
        facts.get("model", {}).get("sha256"),
        facts["files"].get(ADAPTED_MODEL),
    )
    if checksum not in checksums:
        raise InputError(
            f"{path}: not the model of this scan, or it has changed; give the model by --model, "
            "or scan again"
        )


def _find_index(
    folder: Path, facts: Mapping[str, Any], options: SourceOptions
) -> Index | None:
    """Return the index that was scanned, None if it is not there any more."""
    if options.index is not None:
        return open_index(options.index)
    recorded_index = Path(str(facts.get("index", {}).get("folder", INDEX_FOLDER)))
    for path in (folder / INDEX_FOLDER, recorded_index, folder.parent / recorded_index):
        if is_index(path):
            return open_index(path)
    return None


def _find_roots(
    names: list[str],
    facts: Mapping[str, Any],
    index: Index | None,
    options: SourceOptions,
) -> dict[str, Path]:
    """Return the folder of each recording."""
    if options.recordings is not None:
        return dict.fromkeys(names, options.recordings)
    roots = {}
    folders = [Path(str(folder)) for folder in facts["folders"]]
    if folders:
        roots = dict.fromkeys(names, folders[0])
    if index is not None:
        roots |= {
            recording.path: Path(recording.root) for recording in index.recordings
        }
    return {name: roots[name] for name in names if name in roots}


def _open_study(path: Path, options: SourceOptions) -> Source:
    """Open the segments of a study, with the vectors of its first encoder if there are any."""
    work = path.parent / WORK_FOLDER / path.stem
    tables = sorted(work.glob(f"segment/*/{SEGMENTS}"))
    if not tables:
        raise InputError(f"{path}: no segments yet; run callshot run {path} first")
    if len(tables) > 1:
        raise InputError(
            f"{path}: a study of {len(tables)} corpora; review one of them, as {tables[0]}"
        )
    corpus = tables[0].parent.name
    embeddings = sorted(work.glob(f"embed/{corpus}/*/{EMBEDDINGS}"))
    source = _open_segments(tables[0], options, next(iter(embeddings), None))
    return replace(source, kind=STUDY_KIND, title=path.stem)


def _open_segments(
    path: Path, options: SourceOptions, embeddings: Path | None = None
) -> Source:
    """Open a table of segments: their labels are those of the annotations."""
    table = read_segments(path)
    if not table:
        raise InputError(f"{path}: the table has no segments")
    by_place = table.frame.sort("path", "start_s", "end_s", "label")
    table = replace(table, frame=by_place)
    roots = _find_segment_roots(table, options)
    first = next(table.rows())
    files = RecordingFiles(roots, first["channel_rule"], first["source_rate_hz"])
    items = make_items(_segment_events(table, files))
    scores = None
    encoder = None
    why_no_scores = (
        "segments have no scores; review a study, or what callshot scan found, "
        "to see some"
    )
    if embeddings is not None:
        embedded = read_table(embeddings)
        encoder = embedded.encoder
        scores = _score_segments(table, items, embedded)
        why_no_scores = (
            "" if scores is not None else f"{embeddings}: not of these segments"
        )
    return Source(
        SEGMENTS_KIND,
        path.absolute().parent.name,
        items,
        files,
        load_scores=None if scores is None else lambda folder: scores,
        why_no_scores=why_no_scores,
        facts={
            **_describe_source(path, roots),
            "encoder": encoder,
            "channel": first["channel_rule"],
            "source_rate_hz": first["source_rate_hz"],
        },
    )


def _find_segment_roots(table: Spans, options: SourceOptions) -> dict[str, Path]:
    """Return the folder of each recording of a table, nothing if it is not known."""
    root = options.recordings
    if root is None and "audio" in table.metadata:
        root = table.root
    names = sorted(set(table.paths))
    return {} if root is None else dict.fromkeys(names, root)


def _score_segments(
    table: Spans, items: Items, embedded: Embeddings
) -> HeldOutScores | None:
    """Give segments their first scores; None unless all of them have a vector."""
    rows = {name: row for row, name in enumerate(embedded.segment)}
    names = table["segment"]
    if any(name not in rows for name in names):
        return None
    vectors = embedded.vectors[[rows[name] for name in names]]
    groups = np.unique(table["recording"], return_inverse=True)[1]
    scores = HeldOutScores(
        np.asarray(vectors, np.float32), items.labels, items.label, groups
    )
    items.take(scores.rank(items.labels, items.label))
    return scores


def _segment_events(table: Spans, files: RecordingFiles) -> pl.DataFrame:
    """Return segments as rows of the EVENTS schema."""
    clocks = {name: _find_clock(files, name) for name in set(table.paths)}
    rows = [
        {
            "recording": row["path"],
            "start_s": row["start_s"],
            "end_s": row["end_s"],
            "label": row["label"],
            "clock": shift_clock(clocks[row["path"]], row["start_s"]),
        }
        for row in table.rows()
    ]
    return events_frame(rows)


def _find_clock(files: RecordingFiles, name: str) -> str | None:
    try:
        path = files.find(name)
    except InputError:
        path = Path(name)
    return find_clock_time(path, name)
