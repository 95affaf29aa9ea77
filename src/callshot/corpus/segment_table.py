"""What a segmentation writes, and what a corpus holds in numbers.

Segments ↔ `segments.parquet`, rejects ↔ `rejects.csv`; categories and duplicates → CSV files. A
table of segments has the columns of SCHEMA, and every other column of the annotations under its
own name, with `_annotated` added if SCHEMA has that name. The metadata of the file may give the
`corpus`, its number of `folds` and the folder of `audio`.

Inputs: the checksums of the files that segments were made from go into the provenance. A recording
has its path in the folder of recordings; so has an annotation file that is in there. An annotation
file elsewhere has its absolute path. So `root / file` is the file again.

Numbers: `inspect_corpus` looks at a folder before anything is decided, `measure_corpus` counts what
a report gives for the corpus, and `read_stats` reads that back from the files of a run.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path, PurePath, PurePosixPath
from statistics import fmean, pstdev
from typing import Any

import polars as pl

from callshot.corpus.annotations import AnnotationOptions
from callshot.corpus.options import Corpus, SegmentationOptions, default_options
from callshot.corpus.segments import SEGMENT_COLUMNS, segment_corpus
from callshot.errors import InputError
from callshot.fewshot.folds import (
    DEFAULT_FOLDS,
    check_folds,
    complete_shots,
    count_classes,
    make_folds,
)
from callshot.files import error_reason, explain_unreadable, sha256_file
from callshot.records import (
    CorpusStats,
    DurationStats,
    Finding,
    Folds,
    Inspection,
    Progress,
    Reject,
    Segmentation,
    given_folds,
    no_progress,
)
from callshot.records.table_files import (
    describe_parquet,
    read_parquet,
    restore_frame,
    write_csv,
    write_parquet,
)
from callshot.spans import COLUMN_TYPES, Spans
from callshot.storage import is_remote, local_copy, to_path

SEGMENTS = "segments.parquet"
REJECTS = "rejects.csv"
CATEGORIES = "categories.csv"
DUPLICATES = "duplicates.csv"
SEGMENTATION = (SEGMENTS, REJECTS, CATEGORIES, DUPLICATES)
SCHEMA: dict[str, Any] = {name: COLUMN_TYPES[name] for name in SEGMENT_COLUMNS}
REJECT_SCHEMA = {"file": pl.String, "row": pl.Int64, "reason": pl.String}
DUPLICATE_COLUMNS = ("group", "segment", "recording", "label")
OPTIONAL = ("peak_dbfs", "source_rate_hz")
ANNOTATIONS = "annotations"
RECORDING = "recording"
MAX_FOLDS = 10


def write_segmentation(
    segmentation: Segmentation,
    folder: Path,
    metadata: Mapping[str, str],
    categories: Mapping[str, str] | None,
) -> list[str]:
    """Write segments and rejects; return the names of the files.

    Categories, and segments whose audio is in several recordings, are written if there are any.
    """
    names = [SEGMENTS, REJECTS]
    write_segment_table(segmentation.segments, folder / SEGMENTS, metadata)
    write_rejects(
        [*segmentation.rejects, *segmentation.skipped_files], folder / REJECTS
    )
    if categories is not None:
        write_categories(categories, folder / CATEGORIES)
        names.append(CATEGORIES)
    if segmentation.duplicates:
        write_duplicates(segmentation.duplicates, folder / DUPLICATES)
        names.append(DUPLICATES)
    return names


def write_segment_table(
    segments: Spans, path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write segments as Parquet, with all their columns."""
    write_parquet(segments.frame, path, metadata)


def read_segments(path: Path | str) -> Spans:
    """Read a table of segments.

    Parameters
    ----------
    path : path
        The `segments.parquet` that `callshot segment` wrote.

    Returns
    -------
    Spans
        A row for each segment, which `embed` takes. Its `metadata` is what the file says about
        itself: `audio` (the folder of the recordings), `corpus`, `folds`.

    Raises
    ------
    InputError
        If the file is not such a table, or if a path in it leads outside the folder of recordings.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "segments.parquet"
    >>> call = {"segment": "x", "recording": "x.wav", "path": "x.wav", "start_s": 0.0, "end_s": 2.5,
    ...         "label": "roar", "labels": ["roar"], "collar_s": 0.25, "rate_hz": 16000,
    ...         "channel_rule": "first", "peak_dbfs": -3.0, "source_rate_hz": None}
    >>> write_segment_table(Spans.from_rows([call]), path, {"corpus": "mine"})
    >>> segments = read_segments(path)
    >>> segments["label"], segments.metadata["corpus"]
    (['roar'], 'mine')
    """
    path = to_path(path)
    frame = read_parquet(path)
    metadata = describe_parquet(path).metadata
    _check_columns(path, frame)
    metadata.pop("ARROW:schema", None)
    for row, name in enumerate(frame["path"], start=1):
        if not _is_inside(name):
            raise InputError(
                f"{path}: column path, row {row}: {name!r} leads outside the audio folder"
            )
    known = {name: pl.col(name).cast(dtype) for name, dtype in SCHEMA.items()}
    root = to_path(metadata.get("audio", ""))
    return Spans(frame.with_columns(**known), root, metadata, str(path))


def _check_columns(path: Path, frame: pl.DataFrame) -> None:
    """Raise InputError if a column is missing, has another type, or an empty cell."""
    for name, dtype in SCHEMA.items():
        if name not in frame.columns:
            raise InputError(
                f"{path}: no column {name}; expected the segments.parquet of a run"
            )
        column = frame[name]
        if column.dtype not in (dtype, pl.Null):
            raise InputError(
                f"{path}: column {name}: expected {dtype}, got {column.dtype}"
            )
        empty = column.is_null().arg_true()
        if len(empty) > 0 and name not in OPTIONAL:
            raise InputError(f"{path}: column {name}, row {empty[0] + 1}: empty")


def _is_inside(path: str) -> bool:
    """Return whether a path stays inside its folder on any system."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if not parts or "\0" in path or ".." in parts:
        return False
    return not parts[0].startswith("/") and ":" not in parts[0]


def write_rejects(rejects: Sequence[Reject], path: Path) -> None:
    """Write rejects as CSV; the row is empty if a whole file was left out."""
    write_csv([tuple(REJECT_SCHEMA), *map(astuple, rejects)], path)


def read_rejects(path: Path) -> list[Reject]:
    """Read rejects back."""
    try:
        frame = pl.read_csv(local_copy(path), schema_overrides=REJECT_SCHEMA)
        frame = restore_frame(frame.select(*REJECT_SCHEMA))
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = error_reason(error)
        raise InputError(
            f"{path}: expected the rejects.csv of a run ({reason})"
        ) from None
    return [Reject(*row) for row in frame.iter_rows()]


def write_duplicates(rows: Sequence[tuple[int, str, str, str]], path: Path) -> None:
    """Write segments with the same content in several recordings as CSV, group by group."""
    write_csv([DUPLICATE_COLUMNS, *sorted(rows)], path)


def write_categories(categories: Mapping[str, str], path: Path) -> None:
    """Write the categories of labels for `evaluate --categories`."""
    write_csv([("label", "category"), *categories.items()], path)


def describe_inputs(
    segmentation: Segmentation,
    progress: Progress = no_progress,
    *,
    root: Path | None = None,
) -> list[dict[str, str]]:
    """Return role, file and sha256 of every annotation file and of all recordings with segments.

    `root` is the folder of the recordings, if it is open already.
    """
    root = root or to_path(segmentation.audio)
    roles = dict.fromkeys(_annotation_files(segmentation, root), ANNOTATIONS)
    recordings = sorted(set(segmentation.segments.paths))
    roles |= dict.fromkeys(recordings, RECORDING)
    inputs = []
    for file, role in roles.items():
        progress(0.0, f"checksum of {file}")
        path = _find_input(root, file)
        with explain_unreadable(path):
            inputs.append({"role": role, "file": file, "sha256": sha256_file(path)})
    return inputs


def _find_input(root: Path, file: str) -> Path:
    """Return the path of an input: a URL, absolute, or below the folder of the recordings."""
    path = to_path(file)
    if is_remote(path) or path.is_absolute():
        return path
    return root / file


def _annotation_files(segmentation: Segmentation, root: Path) -> list[str]:
    calls = segmentation.calls
    rows = [
        *zip(calls["annotation_file"], calls["annotation_row"], strict=True),
        *((reject.file, reject.row) for reject in segmentation.rejects),
    ]
    names = {file for file, row in rows if row is not None}
    files = []
    for name in names:
        path: PurePath = to_path(name).absolute()
        if path.is_relative_to(root):
            path = path.relative_to(root)
        files.append(path.as_posix())
    return sorted(files)


def verify_inputs(provenance: Mapping[str, Any], root: Path) -> Iterator[Finding]:
    """Yield what became of the files that segments were made from."""
    for entry in provenance.get("inputs", ()):
        path = _find_input(root, entry["file"])
        expected = entry["sha256"]
        try:
            is_same = sha256_file(path) == expected
        except OSError:
            yield Finding(path, "missing", f"the {entry['role']} of segments")
            continue
        if is_same:
            yield Finding(path, "ok")
        else:
            reason = "has changed since the segments were cut; run again"
            yield Finding(path, "damaged", reason)


def inspect_corpus(
    audio: Path,
    annotations: Path | None = None,
    *,
    options: SegmentationOptions | None = None,
    format: str = "auto",
    annotation_options: AnnotationOptions | None = None,
    corpus: Corpus | None = None,
    folds: int | None = None,
    progress: Progress = no_progress,
) -> Inspection:
    """Read the headers and annotations of a folder, and find the labels that folds would evaluate.

    Folds in the annotations are used as they are.
    """
    options = options or default_options(corpus)
    segmentation = segment_corpus(
        audio,
        annotations,
        options=options,
        format=format,
        annotation_options=annotation_options,
        corpus=corpus,
        check=False,
        progress=progress,
    )
    if folds is None:
        folds = DEFAULT_FOLDS if corpus is None else corpus.folds
    assignment = _choose_folds(segmentation.segments, folds)
    label = segmentation.segments["label"]
    recording = segmentation.segments["recording"]
    classes = []
    if assignment is not None:
        classes = count_classes(label, assignment, recording)
    return Inspection(
        segmentation=segmentation,
        possible=_count_labels_by_folds(label, recording),
        folds=assignment,
        classes=classes,
        complete_shots=complete_shots(classes),
    )


def _choose_folds(segments: Spans, folds: int) -> Folds | None:
    """Return the folds in the annotations, or new ones; None if there are too few recordings."""
    label = segments["label"]
    recording = segments["recording"]
    annotated = given_folds(segments)
    if annotated is not None:
        return check_folds(recording, annotated)
    if len(set(recording)) < folds:
        return None
    return make_folds(label, recording, folds)


def _count_labels_by_folds(
    label: Sequence[str], recording: Sequence[str]
) -> dict[int, int]:
    """Return how many labels are in enough recordings, for each possible number of folds."""
    pairs = set(zip(label, recording, strict=True))
    recordings = Counter(name for name, _ in pairs)
    limit = min(MAX_FOLDS, len(set(recording)))
    counts = {}
    for folds in range(2, limit + 1):
        counts[folds] = sum(count >= folds for count in recordings.values())
    return counts


def measure_durations(durations_s: Iterable[float]) -> DurationStats:
    """Return the number of durations and their statistics, all zero if there are none.

    >>> measure_durations([1.0, 3.0]).mean_s
    2.0
    """
    values = list(durations_s)
    if not values:
        return DurationStats(
            count=0,
            total_s=0.0,
            mean_s=0.0,
            shortest_s=0.0,
            longest_s=0.0,
            deviation_s=0.0,
        )
    return DurationStats(
        count=len(values),
        total_s=sum(values),
        mean_s=fmean(values),
        shortest_s=min(values),
        longest_s=max(values),
        deviation_s=pstdev(values),
    )


def measure_corpus(
    segmentation: Segmentation, options: SegmentationOptions
) -> CorpusStats:
    """Return the statistics of a corpus: its recordings, calls and segments."""
    recordings = segmentation.recordings
    annotated = [r for r in recordings if r.path in segmentation.annotated]
    rates_hz = {recording.rate_hz for recording in recordings}
    channels = {recording.channels for recording in recordings}
    kinds = {recording.kind for recording in recordings}
    return CorpusStats(
        rates_hz=tuple(sorted(rates_hz)),
        channels=tuple(sorted(channels)),
        kinds=tuple(sorted(kinds)),
        labels=len(set(segmentation.calls["label"])),
        min_length_s=options.min_length_s,
        collar_s=options.collar_s,
        recordings=measure_durations(r.duration_s for r in recordings),
        annotated=measure_durations(r.duration_s for r in annotated),
        calls=measure_durations(segmentation.calls.durations_s.tolist()),
        segments=measure_durations(segmentation.segments.durations_s.tolist()),
    )


def read_stats(path: Path) -> tuple[CorpusStats, list[str]]:
    """Read the statistics and the notes in the `segments.json` of a run."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        values = dict(content["facts"])
        for name in ("rates_hz", "channels", "kinds"):
            values[name] = tuple(values[name])
        for name in ("recordings", "annotated", "calls", "segments"):
            values[name] = DurationStats(**values[name])
        return CorpusStats(**values), [str(note) for note in content["notes"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{path}: expected the segments.json of callshot segment, cannot read it ({error!r})"
        ) from None
