"""A scan, a table of segments or a study → the items of a review, and where their sound is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from callshot.corpus.segment_table import SEGMENTS, read_segments
from callshot.detection.events import complete_events
from callshot.detection.index.clock import find_clock_time, shift_clock
from callshot.detection.index.index_files import Index, is_index, open_index
from callshot.errors import InputError
from callshot.files import WORK_FOLDER, explain_unreadable, sha256_file
from callshot.records.frames import EVENTS
from callshot.records.table_files import read_parquet
from callshot.results import check_result, read_intact_provenance
from callshot.review.items import make_items, replace_scores
from callshot.review.scores import (
    HeldOutScores,
    ModelScores,
    Scores,
    measure_background,
    open_vectors,
)
from callshot.review.sound import RecordingFiles
from callshot.spans import Spans
from callshot.storage import check_no_url
from callshot.tables.embedding_tables import read_table

SCAN_FACTS = "scan.json"
EVENTS_FILE = "events.parquet"
LABELS = "labels.parquet"  # of callshot scan --segments
INDEX_FOLDER = "index"
ADAPTED_MODEL = "model.npz"
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

    items        as in `callshot.review.items`
    thresholds   score that a detection of a label must reach, where it is known
    durations_s  of recordings, where they are known
    load_scores  opens what new scores are computed from, given the folder of the review; None if
                 there is nothing, for the reason `why_no_scores`
    facts        about the source, for the journal
    """

    kind: str
    title: str
    items: Spans
    files: RecordingFiles
    thresholds: Mapping[str, float] = field(default_factory=dict)
    durations_s: Mapping[str, float] = field(default_factory=dict)
    load_scores: Callable[[Path], Scores] | None = None
    why_no_scores: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def open_source(path: Path, options: SourceOptions) -> Source:
    """Open what a user wants to review."""
    check_no_url(path)
    if (path / SCAN_FACTS).is_file():
        return _open_scan(path, options)
    for name, open_file in ((STUDY_FILE, _open_study), (SEGMENTS, _open_segments)):
        file = path / name if path.is_dir() else path
        if file.is_file() and file.suffix == Path(name).suffix:
            return open_file(file, options)
    raise InputError(
        f"{path}: expected the folder of callshot scan (with {SCAN_FACTS}), a table of segments "
        f"({SEGMENTS}), or a study ({STUDY_FILE})"
    )


def _open_scan(folder: Path, options: SourceOptions) -> Source:
    """Open the events that a scan found, or segments that a model labelled."""
    facts = read_intact_provenance(folder / SCAN_FACTS)
    has_labels = LABELS in facts["files"]
    if not has_labels and not {"classes", "folders", "aim_per_hour"} <= facts.keys():
        raise InputError(
            f"{folder / SCAN_FACTS}: expected the facts of a scan of recordings"
        )
    path = folder / (LABELS if has_labels else EVENTS_FILE)
    check_result(path, (SCAN_FACTS,))
    events = read_parquet(path)
    if has_labels:
        events = complete_events(events.drop("recording").rename({"path": "recording"}))
    if not EVENTS.keys() <= set(events.columns):
        raise InputError(f"{path}: expected the events of a scan")
    if len(events) == 0:
        raise InputError(
            f"{path}: the scan found nothing, so there is nothing to review"
        )
    items = make_items(events)
    names = set(events["recording"])
    scanned = facts.get("index", facts)  # how recordings were read

    index = None
    index_folder = Path(str(scanned.get("folder", INDEX_FOLDER)))
    places = [folder / INDEX_FOLDER, index_folder, folder.parent / index_folder]
    place = options.index or next(filter(is_index, places), None)
    if place is not None and not has_labels:
        index = open_index(place)
    indexed = () if index is None else index.recordings

    root = options.recordings or Path(facts["folders"][0])
    roots = dict.fromkeys(names, root)
    if options.recordings is None:
        kept = [one for one in indexed if one.path in names]
        roots |= {one.path: Path(one.root) for one in kept}

    used = facts.get("model", {})
    name = str(used.get("file"))
    known_path = Path(used.get("path", ""))
    models = [known_path, folder.parent / name, Path(name)]
    if ADAPTED_MODEL in facts["files"]:
        models = [folder / ADAPTED_MODEL]
    model = options.model or next(filter(Path.is_file, models), None)

    load = None
    why_no_scores = ""
    reading = {}
    if has_labels:
        why_no_scores = (
            "scores of segments are those of the scan; scan again after learn"
        )
        reading = {name: facts[name] for name in ("channel", "source_rate_hz")}
    elif model is None:
        why_no_scores = f"the model {name} is not where it was; give --model"
    elif index is None:
        why_no_scores = "the index of the scan is not where it was; give --index"
    else:
        checksums = (used.get("sha256"), facts["files"].get(ADAPTED_MODEL))
        load = partial(_load_scores, items, index, model, checksums)
    thresholds = {
        one["label"]: one["threshold"]
        for one in facts.get("classes", ())
        if one["threshold"] is not None
    }
    return Source(
        kind="segments" if has_labels else "scan",
        title=folder.absolute().name,
        items=items,
        files=RecordingFiles(roots, scanned["channel"], facts.get("source_rate_hz")),
        thresholds=thresholds,
        durations_s={one.path: one.duration_s for one in indexed},
        load_scores=load,
        why_no_scores=why_no_scores,
        facts={**_describe_source(folder, roots, model), **reading},
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


def _load_scores(
    items: Spans,
    index: Index,
    path: Path,
    checksums: tuple[str | None, ...],
    folder: Path,
) -> Scores:
    """Open scores by the model of a scan, which must be as it was."""
    from callshot.detection.model import load_model

    with explain_unreadable(path):
        checksum = sha256_file(path)
    if checksum not in checksums:
        raise InputError(
            f"{path}: not the model of this scan, or it has changed; give the model by "
            "--model, or scan again"
        )
    model = load_model(path)
    background = measure_background(model)
    vectors = open_vectors(folder, items, index, model, background)
    return ModelScores(model, vectors, background)


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
    return replace(source, kind="study", title=path.stem)


def _open_segments(
    path: Path, options: SourceOptions, embeddings: Path | None = None
) -> Source:
    """Open a table of segments: their labels are those of the annotations."""
    table = read_segments(path)
    if not table:
        raise InputError(f"{path}: the table has no segments")
    by_place = table.frame.sort("path", "start_s", "end_s", "label")
    table = replace(table, frame=by_place)
    root = options.recordings
    if root is None and "audio" in table.metadata:
        root = table.root
    roots = {} if root is None else dict.fromkeys(table.paths, root)
    first = next(table.rows())
    reading = {
        "channel": first["channel_rule"],
        "source_rate_hz": first["source_rate_hz"],
    }
    files = RecordingFiles(roots, *reading.values())

    clocks = {}
    for name in set(table.paths):
        try:
            audio = files.find(name)
        except InputError:
            audio = Path(name)
        clocks[name] = find_clock_time(audio, name)
    starts = zip(table.paths, table["start_s"], strict=True)
    shifted = [shift_clock(clocks[name], start_s) for name, start_s in starts]
    events = table.frame.select(
        pl.Series("recording", table.paths),
        *("start_s", "end_s", "label"),
        pl.Series("clock", shifted, pl.String),
    )
    items = make_items(complete_events(events))

    scores = None
    encoder = None
    why_no_scores = (
        "segments have no scores; review a study, or what callshot scan found, "
        "to see some"
    )
    if embeddings is not None:
        embedded = read_table(embeddings)
        encoder = embedded.encoder
        why_no_scores = f"{embeddings}: not of these segments"
        vector_rows = {name: row for row, name in enumerate(embedded.segment)}
        if vector_rows.keys() >= set(table["segment"]):
            vectors = embedded.matrix[[vector_rows[name] for name in table["segment"]]]
            scores = HeldOutScores(
                np.asarray(vectors, np.float32), items["label"], table["recording"]
            )
            ranking = scores.rank(items.frame["label"], scores.labels)
            items = replace_scores(items, ranking)
            why_no_scores = ""
    return Source(
        kind="segments",
        title=path.absolute().parent.name,
        items=items,
        files=files,
        load_scores=None if scores is None else lambda folder: scores,
        why_no_scores=why_no_scores,
        facts={**_describe_source(path, roots), "encoder": encoder, **reading},
    )
