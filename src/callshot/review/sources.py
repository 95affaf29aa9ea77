"""A scan, a table of segments or a study → items of a review, their sound and their scores.

Detections are scored by their model with the confirmed calls as further examples, as `learn` would
make it from all of them at once. Background and thresholds stay as in the scan. The vector of a
detection is the one of its strongest window, copied once into REVIEW/vectors.npy.

Segments are scored by segments of other recordings: the score of a label is −|z − c|², where c is
the mean of its segments in other recordings. Decisions that relabel segments move the means.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.corpus.annotations.rows import FREQUENCIES, AnnotationOptions
from callshot.corpus.recordings import FOLDERS, find_recordings, read_corpus_annotations
from callshot.corpus.segment_table import SEGMENTS, read_segments
from callshot.corpus.segments import check_any_segments, segment_corpus
from callshot.detection.events import EVENTS_FILE, complete_events
from callshot.detection.index.clock import find_clock_time, shift_clock
from callshot.detection.index.index_files import (
    Index,
    check_has_audio,
    is_index,
    open_index,
)
from callshot.errors import InputError
from callshot.files import (
    SCAN_FACTS,
    WORK_FOLDER,
    atomic_path,
    explain_unreadable,
    sha256_file,
    write_atomic,
)
from callshot.records import FloatArray, IntArray
from callshot.records.frames import EVENTS
from callshot.records.table_files import read_parquet
from callshot.results import (
    check_result,
    format_provenance,
    is_intact,
    read_intact_provenance,
)
from callshot.review.items import (
    find_checksum,
    find_doubts,
    make_items,
    replace_scores,
)
from callshot.review.sound import RecordingFiles
from callshot.spans import Spans
from callshot.storage import check_no_url
from callshot.tables.embedding_tables import read_table
from callshot.vectors import Vectors

if TYPE_CHECKING:
    from callshot.detection.background import Covariance
    from callshot.detection.model import Model
    from callshot.detection.nearest import Site
    from callshot.fewshot.centroid import CentroidClassifier

LABELS = "labels.parquet"  # of callshot scan --segments
INDEX_FOLDER = "index"
ADAPTED_MODEL = "model.npz"
SITE = "site.npz"
STUDY_FILE = "study.toml"
EMBEDDINGS = "embeddings.parquet"
VECTORS = "vectors.npy"
VECTOR_FACTS = "vectors.json"
BLOCK = 2048  # items that are scored at once

Float32Matrix = NDArray[np.float32]
Confirmed = Mapping[str, Sequence[int]]  # items by label
ScoreWindows = Callable[[FloatArray], FloatArray]
"""From vectors of an index to scores, windows × classes of the model, as the scan scored them."""
LoadScores = Callable[[Path], "Scores"]
"""From the folder of a review, in which vectors are kept, to the scores of its items."""


class Scores:
    """Scores of all items of the source for all labels; in subclasses they follow decisions.

    vectors            of the items, items × dimensions
    scores, distances  items × labels; NaN: a label without calls
    """

    model: "Model | None" = None
    scores: NDArray[np.floating]
    distances: NDArray[np.floating]

    def __init__(self, vectors: Float32Matrix, labels: Sequence[str]) -> None:
        self.vectors = vectors
        self.labels = list(labels)

    def update(self, confirmed: Confirmed) -> bool:
        """Take confirmed calls into account; return whether any score may have changed."""
        raise NotImplementedError

    def rank(self, label: pl.Series, known: Sequence[str]) -> pl.DataFrame:
        """Return the columns SCORES of all items of the source, given the `label` of each.

        A runner-up that is not one of the `known` labels has a score and no name.
        """
        columns = {name: column for column, name in enumerate(self.labels)}
        own = [columns.get(name, -1) for name in label]
        own_cells = (np.arange(len(own)), own)  # row and column of each
        # (items, labels + 1); the last column, −1, is for labels without scores.
        others = np.pad(self.scores, ((0, 0), (0, 1)), constant_values=np.nan)
        score = others[own_cells].astype(np.float64)
        others[own_cells] = np.nan  # only other labels are left
        others[np.isnan(others)] = -np.inf
        names = [name if name in known else None for name in (*self.labels, None)]
        best = pl.Series(names, dtype=pl.String).gather(others.argmax(axis=1))
        ranking = pl.DataFrame(
            {
                "score": score,
                "distance": np.fmin.reduce(self.distances, axis=1).astype(np.float64),
                "runner_up": best,
                "runner_up_score": others.max(axis=1).astype(np.float64),
            }
        )
        numbers = pl.col(pl.Float64)
        return ranking.with_columns(
            pl.when(numbers.is_finite()).then(numbers),
            pl.when(pl.col("runner_up_score").is_finite()).then(pl.col("runner_up")),
        )

    def find_best(self, row: int, count: int) -> list[str]:
        """Return at most `count` labels with the highest scores for an item, the best first."""
        scores = self.scores[row]
        order = np.argsort(-scores, kind="stable")[:count]  # NaN is sorted last
        return [self.labels[n] for n in order if np.isfinite(scores[n])]


class ModelScores(Scores):
    """Scores of detections by a model and the confirmed calls.

    `background` is what class means are compared with: the Covariance of background windows; a
    Site, if vectors and the examples of `model` are scaled roots there; None: nothing.
    """

    model: "Model"

    def __init__(
        self,
        model: "Model",
        vectors: Float32Matrix,
        background: "Covariance | Site | None",
    ) -> None:
        super().__init__(vectors, model.classes)
        self.model = model
        self.means = np.empty((0, vectors.shape[1]))
        self._background = background
        self._confirmed: dict[str, list[int]] = {}
        self.scores = np.empty((len(vectors), 0), np.float32)
        self.distances = self.scores
        self._score(model.classifier)

    def update(self, confirmed: Confirmed) -> bool:
        """Score by the examples and these calls; return whether any score may have changed."""
        new = {label: sorted(rows) for label, rows in confirmed.items() if rows}
        if new == self._confirmed:
            return False
        self._confirmed = new
        self.labels += sorted(new.keys() - set(self.labels))
        classifier = copy(self.model.classifier)
        calls = [(row, label) for label, rows in new.items() for row in rows]
        if calls:
            items, labels = zip(*calls, strict=True)
            classifier.partial_fit(self.vectors[list(items)], labels)
        self._score(classifier)
        return True

    def _score(self, classifier: "CentroidClassifier") -> None:
        """Score all items for the classes whose mean moved; new labels get a column."""
        from callshot.detection.detector import make_scorer

        known = [self.labels.index(name) for name in classifier.classes_]
        means = np.full((len(self.labels), self.vectors.shape[1]), np.nan)
        means[known] = classifier.centroids_
        # Columns of `scores` and `distances`, and rows of `means`, are padded for new labels.
        new = (0, len(means) - len(self.means))
        none = (0, 0)
        before = np.pad(self.means, (new, none), constant_values=np.nan)
        self.scores = np.pad(self.scores, (none, new), constant_values=np.nan)
        self.distances = np.pad(self.distances, (none, new), constant_values=np.nan)
        self.means = means
        is_same = (means == before) | (np.isnan(means) & np.isnan(before))
        moved = np.flatnonzero(~is_same.all(axis=1))
        if len(moved) == 0:  # confirmed calls that equal the mean
            return
        scorer = make_scorer(means[moved], self._background)
        for start in range(0, len(self.vectors), BLOCK):
            part = slice(start, start + BLOCK)
            self.scores[part, moved] = scorer.score(self.vectors[part])
            self.distances[part, moved] = scorer.distances(self.vectors[part])


class HeldOutScores(Scores):
    """Scores of segments, each by the segments of other recordings."""

    def __init__(
        self,
        vectors: Float32Matrix,
        label: Sequence[str | None],
        recording: Sequence[str],
    ) -> None:
        labels = sorted({name for name in label if name is not None})
        super().__init__(vectors, labels)
        numbers = {name: number for number, name in enumerate(labels)}
        self._original_label = np.array([numbers.get(str(one), -1) for one in label])
        self._label = self._original_label  # that the scores are by
        self._recording = np.unique(recording, return_inverse=True)[1]
        self._score(self._original_label)

    def update(self, confirmed: Confirmed) -> bool:
        """Score by labels as they were confirmed, and by annotations where they were not."""
        label = self._original_label.copy()
        for name, rows in confirmed.items():
            if name not in self.labels:
                self.labels.append(name)
            label[list(rows)] = self.labels.index(name)
        if (label == self._label).all():
            return False
        self._score(label)
        return True

    def _score(self, label: IntArray) -> None:
        """Score segments, given the number of the label of each, −1 for none."""
        from callshot.detection.model_summary import LabelledVectors

        self._label = label
        centred = self.vectors - self.vectors.mean(axis=0, dtype=np.float64)
        data = LabelledVectors(centred, label, self._recording, len(self.labels))
        # |x − c|² = |x|² − (2 x·c − |c|²), and what is in brackets is the evidence for a class
        squares = np.einsum("nd,nd->n", centred, centred)[:, None]
        squared_distances = np.maximum(squares - data.evidence, 0.0)
        # Infinite for labels that no other recording has
        squared_distances[np.isinf(squared_distances)] = np.nan
        self.scores = -squared_distances
        self.distances = np.sqrt(squared_distances)


def open_vectors(
    folder: Path,
    items: Spans,
    index: Index,
    model: "Model",
    score_windows: ScoreWindows,
) -> Float32Matrix:
    """Map the vectors of the items of a scan, (items, dimensions), copied once to `folder`.

    They are those of `_find_strongest`, as they are in the index.
    """
    shape = (len(items), index.settings.dimension)
    facts = {"items": find_checksum(items), "shape": list(shape)}
    path = folder / VECTORS
    if read_vector_facts(folder) != facts:
        with atomic_path(path) as temporary:
            vectors = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
            for item, vector in _find_strongest(items, index, model, score_windows):
                vectors[item] = vector
            vectors.flush()
        content = {"vectors": facts, "sha256": sha256_file(path)}
        write_atomic(folder / VECTOR_FACTS, format_provenance(content))
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def read_vector_facts(folder: Path) -> Any:
    """Return items and shape of the copied vectors in a folder; None if missing or damaged."""
    try:
        content = (folder / VECTOR_FACTS).read_bytes()
        facts = json.loads(content)
        is_same = sha256_file(folder / VECTORS) == facts["sha256"]
        return facts["vectors"] if is_same and is_intact(content) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _find_strongest(
    items: Spans, index: Index, model: "Model", score_windows: ScoreWindows
) -> Iterator[tuple[int, FloatArray]]:
    """Yield the number of each item, and the vector of the window that gave it its score.

    Of the windows that overlap the item, it is the one with the nearest score.
    """
    indexed = {recording.path: recording for recording in index.recordings}
    by_recording = items.frame.sort("recording", maintain_order=True)
    for part in by_recording.partition_by("recording", maintain_order=True):
        name = part["recording"][0]
        if name not in indexed:
            raise InputError(f"{index.folder}: {name} is not in the index")
        blocks = list(index.read_recording(indexed[name]))
        for row in part.iter_rows(named=True):
            if row["label"] not in model.classes:
                raise InputError(f"{model.source}: has no label {row['label']}")
            column = model.classes.index(row["label"])
            # Windows that overlap the item start between these two.
            limits_s = (row["start_s"] - index.settings.window_s, row["end_s"])
            windows = _join_windows(blocks, limits_s)
            if len(windows) == 0:
                raise InputError(f"{index.folder}: has no window of item {row['row']}")
            scores = score_windows(windows)[:, column]
            strongest = np.abs(scores - row["score"]).argmin()
            yield row["row"], windows[strongest]


def _join_windows(
    blocks: Sequence[Vectors], limits_s: tuple[float, float]
) -> FloatArray:
    """Return the vectors of the windows in all blocks that start between two times."""
    parts = []
    for block in blocks:
        starts_s = block.spans.frame["start_s"].to_numpy()
        first, end = np.searchsorted(starts_s, limits_s)
        parts.append(np.asarray(block.matrix[first:end], np.float64))
    return np.concatenate(parts)


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
    load_scores  opens what new scores are computed from; None if there is nothing, for the reason
                 `why_no_scores`
    annotations  the format of annotations to correct, "" where it is not known; None: none
    """

    kind: str
    title: str
    items: Spans
    files: RecordingFiles
    thresholds: Mapping[str, float] = field(default_factory=dict)
    durations_s: Mapping[str, float] = field(default_factory=dict)
    load_scores: LoadScores | None = None
    why_no_scores: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    annotations: str | None = None


def open_source(path: Path, options: SourceOptions) -> Source:
    """Open what a user wants to review: a scan, a study, segments, or annotated recordings."""
    check_no_url(path)
    if (path / SCAN_FACTS).is_file():
        return _open_scan(path, options)
    is_folder = path.is_dir()
    study = path / STUDY_FILE if is_folder else path
    if study.is_file() and study.suffix == ".toml":
        return _open_study(study, options)
    table = path / SEGMENTS if is_folder else path
    if table.is_file() and table.suffix == ".parquet":
        return _open_segments(table, options)
    if is_folder and has_annotations(path):
        return _open_corpus(path)
    raise InputError(
        f"{path}: expected the folder of callshot scan (with {SCAN_FACTS}), a table of segments "
        f"({SEGMENTS}), a study ({STUDY_FILE}), or recordings with annotations"
    )


def has_annotations(path: Path) -> bool:
    """Return whether recordings have files of annotations beside them."""
    try:
        read = read_corpus_annotations(
            find_recordings(path),
            annotations=None,
            format="auto",
            annotation_options=AnnotationOptions(),
        )
    except InputError:
        return False
    formats = {format for format, _ in read.recognised}
    # FOLDERS: the folders of recordings name their calls, and no file has annotations.
    return bool(read.rows) and FOLDERS not in formats


def _open_corpus(path: Path) -> Source:
    """Open the annotations of recordings; raise InputError if none of them can be used."""
    segmentation = segment_corpus(path, check=False)
    check_any_segments(segmentation)
    durations_s = {one.path: one.duration_s for one in segmentation.recordings}
    table = replace(segmentation.segments, metadata={"audio": segmentation.audio})
    source = _make_source(table, path, SourceOptions())
    format, *_ = segmentation.sources[0]
    return replace(
        source, title=path.absolute().name, durations_s=durations_s, annotations=format
    )


def _open_scan(folder: Path, options: SourceOptions) -> Source:
    """Open the events that a scan found, or segments that a model labelled."""
    facts = read_intact_provenance(folder / SCAN_FACTS)
    has_labels = LABELS in facts["files"]
    if not has_labels and not {"classes", "folders", "aim_per_hour"} <= facts.keys():
        raise InputError(
            f"{folder / SCAN_FACTS}: expected the facts of a scan of recordings"
        )
    items = make_items(_read_found(folder, has_labels=has_labels))
    scanned = facts.get("index", facts)  # how recordings were read
    index = None
    if not has_labels:
        index = _open_scanned_index(folder, scanned, options)
    indexed = () if index is None else index.recordings
    root = options.recordings or Path(facts["folders"][0])
    roots = dict.fromkeys(items["recording"], root)
    if options.recordings is None:
        roots |= {one.path: Path(one.root) for one in indexed if one.path in roots}

    model = options.model or _find_scan_model(folder, facts)
    # Of the model that was given, and of the one that the scan adapted to the site, if it did
    used = facts.get("model", {})
    checksums = (used.get("sha256"), facts["files"].get(ADAPTED_MODEL))
    load, why_no_scores = _prepare_scores(folder, facts, items, index, model, checksums)
    reading = {}
    if has_labels:
        reading = {name: facts[name] for name in ("channel", "source_rate_hz")}
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
        facts={
            **_describe_source(folder, roots, model),
            "model_checksums": [
                *checksums,
                options.model and sha256_file(options.model),
            ],
            **reading,
        },
    )


def _prepare_scores(
    folder: Path,
    facts: Mapping[str, Any],
    items: Spans,
    index: Index | None,
    model: Path | None,
    checksums: tuple[str | None, ...],
) -> tuple[LoadScores | None, str]:
    """Return what loads the scores of the scan in `folder`, and "", or else None, and why not."""
    if LABELS in facts["files"]:
        return None, "scores of segments are those of the scan; scan again after learn"
    if model is None:
        file = facts.get("model", {}).get("file")
        return None, f"the model {file} is not where it was; give --model"
    if index is None:
        return None, "the index of the scan is not where it was; give --index"
    site_file = folder / SITE if SITE in facts["files"] else None
    return partial(_load_scores, items, index, model, checksums, site_file), ""


def _read_found(folder: Path, *, has_labels: bool) -> pl.DataFrame:
    """Return the events of a scan, or its labels of segments as events; check them."""
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
    return events


def _open_scanned_index(
    folder: Path, scanned: Mapping[str, Any], options: SourceOptions
) -> Index | None:
    """Open the index of a scan by the facts on it; None if it is not where it was."""
    index_folder = Path(str(scanned.get("folder", INDEX_FOLDER)))
    places = [
        folder / INDEX_FOLDER,  # made by the scan, and moved with it
        index_folder,  # as the scan was given it; it may not be a whole path
        folder.parent / index_folder,  # moved together with the scan
    ]
    place = options.index or next(filter(is_index, places), None)
    if place is None:
        return None
    if options.recordings is None:
        # An index of another tool's vectors has no recordings to listen to.
        check_has_audio(place)
    return open_index(place)


def _find_scan_model(folder: Path, facts: Mapping[str, Any]) -> Path | None:
    """Return the model of the scan in `folder`; None if it is not where it was."""
    used = facts.get("model", {})
    name = str(used.get("file"))
    # Where it was; moved together with the scan; in the current folder
    places = [Path(used.get("path", "")), folder.parent / name, Path(name)]
    if ADAPTED_MODEL in facts["files"]:  # which the scan made, and scored by
        places = [folder / ADAPTED_MODEL]
    return next(filter(Path.is_file, places), None)


def _describe_source(
    path: Path, roots: Mapping[str, Path], model: Path | None = None
) -> dict[str, Any]:
    """Return what a journal keeps of a source: its path, its model, the folder of recordings."""
    return {
        "source": str(path.absolute()),
        "model": None if model is None else str(model.absolute()),
        "recordings": {name: str(roots[name].absolute()) for name in sorted(roots)},
    }


def _load_scores(
    items: Spans,
    index: Index,
    model_path: Path,
    checksums: tuple[str | None, ...],
    site_file: Path | None,
    review_folder: Path,
) -> Scores:
    """Open the scores of a scan's items by its model; raise InputError if it is another one.

    The file of the model must have one of the `checksums`. If the scan scored by the nearest mean,
    `site_file` has the statistics of the scanned site that it used (`nearest.Site`).
    """
    from callshot.detection.model import load_model

    with explain_unreadable(model_path):
        checksum = sha256_file(model_path)
    if checksum not in checksums:
        raise InputError(
            f"{model_path}: not the model of this scan, or it has changed; give the model by "
            "--model, or scan again"
        )
    model = load_model(model_path)
    if site_file is None:
        return _score_by_covariance(items, index, model, review_folder)
    check_result(site_file, (SCAN_FACTS,))  # its checksum is there
    return _score_by_site(items, index, model, site_file, review_folder)


def _score_by_covariance(
    items: Spans, index: Index, model: "Model", review_folder: Path
) -> Scores:
    """Return scores by the discriminant of each class from the model's background.

    As in the scan, few windows of background say nothing: then it is the distance from class means.
    """
    from callshot.detection.detector import (
        MIN_WINDOWS,
        choose_covariances,
        make_scorer,
    )

    covariance = None
    background = model.background
    if background is not None and len(background.vectors) >= MIN_WINDOWS:
        covariances, _ = choose_covariances(model, background)
        covariance = covariances.whole
    scorer = make_scorer(model.means, covariance)
    vectors = open_vectors(review_folder, items, index, model, scorer.score)
    return ModelScores(model, vectors, covariance)


def _score_by_site(
    items: Spans, index: Index, model: "Model", site_file: Path, review_folder: Path
) -> Scores:
    """Return scores by the nearest mean, of vectors and examples as scaled roots (`Site`)."""
    from callshot.detection.detector import make_scorer
    from callshot.detection.nearest import read_site

    site = read_site(site_file)
    scaled_model = site.transform_model(model)
    scorer = make_scorer(scaled_model.means, site)

    def score_windows(windows: FloatArray) -> FloatArray:
        return scorer.score(site.transform(windows))

    vectors = open_vectors(review_folder, items, index, scaled_model, score_windows)
    scaled = site.transform(vectors).astype(np.float32)
    return ModelScores(scaled_model, scaled, site)


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
    embeddings = sorted(work.glob(f"embed/{tables[0].parent.name}/*/{EMBEDDINGS}"))
    source = _open_segments(tables[0], options, next(iter(embeddings), None))
    return replace(source, kind="study", title=path.stem)


def _open_segments(
    path: Path, options: SourceOptions, embeddings: Path | None = None
) -> Source:
    """Open a table of segments, labelled by their annotations."""
    table = read_segments(path)
    if not table:
        raise InputError(f"{path}: the table has no segments")
    return _make_source(table, path, options, embeddings)


def _make_source(
    table: Spans, path: Path, options: SourceOptions, embeddings: Path | None = None
) -> Source:
    """Return the source of a table of segments; `embeddings` of them are what scores them."""
    by_place = table.frame.sort("path", "start_s", "end_s", "label")
    table = replace(table, frame=by_place)
    root = options.recordings
    if root is None and "audio" in table.metadata:
        root = table.root
    roots = {} if root is None else dict.fromkeys(table.paths, root)
    first = next(table.rows())  # all recordings are read in one way
    reading = {
        "channel": first["channel_rule"],
        "source_rate_hz": first["source_rate_hz"],
    }
    files = RecordingFiles(roots, reading["channel"], reading["source_rate_hz"])
    items = _make_segment_items(table, files)

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
        row_of_segment = {name: row for row, name in enumerate(embedded.segment)}
        if row_of_segment.keys() >= set(table["segment"]):
            rows = [row_of_segment[name] for name in table["segment"]]
            vectors = np.asarray(embedded.matrix[rows], np.float32)
            scores = HeldOutScores(vectors, items["label"], table["recording"])
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
        annotations="",
    )


def _make_segment_items(table: Spans, files: RecordingFiles) -> Spans:
    """Return segments as the items of a review, with clock times and doubts."""
    clocks = {}  # when each recording begins
    for name in set(table.paths):
        audio = Path(name)
        with suppress(InputError):  # without its file, the name may have the time
            audio = files.find(name)
        clocks[name] = find_clock_time(audio, name)
    starts = zip(table.paths, table["start_s"], strict=True)
    shifted = [shift_clock(clocks[name], start_s) for name, start_s in starts]
    events = table.frame.select(
        pl.Series("recording", table.paths),
        *("start_s", "end_s", "label"),
        *(name for name in FREQUENCIES if name in table.frame.columns),
        pl.Series("clock", shifted, pl.String),
    )
    items = make_items(complete_events(events))
    doubts = pl.Series("doubt", find_doubts(items.frame), pl.String)
    return replace(items, frame=items.frame.with_columns(doubts))
