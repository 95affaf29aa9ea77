"""What a segmentation writes and reads back, its input files, and what a corpus holds in numbers.

A table of segments has the columns of SCHEMA, and every other column of the annotations under its
own name, with `_annotated` added if SCHEMA has that name. Paths of inputs are relative to the
folder of recordings where they are in it.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import polars as pl

from callshot.corpus.options import Corpus, SegmentationOptions
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
from callshot.vectors import check_columns, check_rows

SEGMENTS = "segments.parquet"
REJECTS = "rejects.csv"
CATEGORIES = "categories.csv"
DUPLICATES = "duplicates.csv"
SEGMENTATION = (SEGMENTS, REJECTS, CATEGORIES, DUPLICATES)
SCHEMA = pl.Schema({name: COLUMN_TYPES[name] for name in SEGMENT_COLUMNS})
REJECT_SCHEMA = {"file": pl.String, "row": pl.Int64, "reason": pl.String}
DUPLICATE_COLUMNS = ("group", "segment", "recording", "label")
OPTIONAL = ("peak_dbfs", "source_rate_hz")
MAX_FOLDS = 10
# Paths that may lead outside their folder on some system.
OUTSIDE = r"^[./\\]*$|^[/\\]|\x00|(?:^|[/\\])\.\.(?:[/\\]|$)|^[^/\\]*:"


def write_segmentation(
    segmentation: Segmentation,
    folder: Path,
    metadata: Mapping[str, str],
    categories: Mapping[str, str] | None,
) -> list[str]:
    """Write segments, rejects, and any categories and duplicates; return the names of files."""
    write_parquet(segmentation.segments.frame, folder / SEGMENTS, metadata)
    left_out = [*segmentation.rejects, *segmentation.skipped_files]
    write_rejects(left_out, folder / REJECTS)
    names = [SEGMENTS, REJECTS]
    if categories is not None:  # for `evaluate --categories`
        rows = [("label", "category"), *categories.items()]
        write_csv(rows, folder / CATEGORIES)
        names.append(CATEGORIES)
    if segmentation.duplicates:
        write_duplicates(segmentation.duplicates, folder / DUPLICATES)
        names.append(DUPLICATES)
    return names


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
    >>> write_parquet(Spans.from_rows([call]).frame, path, {"corpus": "mine"})
    >>> segments = read_segments(path)
    >>> segments["label"], segments.metadata["corpus"]
    (['roar'], 'mine')
    """
    path = to_path(path)
    frame = read_parquet(path)
    metadata = describe_parquet(path).metadata
    metadata.pop("ARROW:schema", None)
    check_columns(path, frame.columns, SCHEMA.names())
    for name, dtype in SCHEMA.items():
        column = frame[name]
        if column.dtype not in (dtype, pl.Null):
            raise InputError(
                f"{path}: column {name}: expected {dtype}, got {column.dtype}"
            )
        if name not in OPTIONAL:
            check_rows(path, name, column.is_null(), "a value", column)
    frame = frame.cast(SCHEMA)
    leads_out = frame["path"].str.contains(OUTSIDE)
    expected = "a path inside the audio folder"
    check_rows(path, "path", leads_out, expected, frame["path"])
    root = to_path(metadata.get("audio", ""))
    return Spans(frame, root, metadata, str(path))


def write_rejects(rejects: Sequence[Reject], path: Path) -> None:
    """Write rejects as CSV; the row is empty if a whole file was left out."""
    write_csv([tuple(REJECT_SCHEMA), *map(astuple, rejects)], path)


def read_rejects(path: Path) -> list[Reject]:
    """Read the rejects in a file that `write_rejects` wrote."""
    try:
        frame = pl.read_csv(
            local_copy(path), schema_overrides=REJECT_SCHEMA, glob=False
        )
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


def describe_inputs(
    segmentation: Segmentation,
    progress: Progress = no_progress,
    *,
    root: Path | None = None,
) -> list[dict[str, str]]:
    """Return the role, name and sha256 of all input files; names below `root` are relative to it.

    The role is "annotations" or "recording".
    """
    root = root or to_path(segmentation.audio)
    calls = segmentation.calls
    rows = [
        *zip(calls["annotation_file"], calls["annotation_row"], strict=True),
        *((reject.file, reject.row) for reject in segmentation.rejects),
    ]
    # A reject without a row is not of an annotation file.
    annotation_files = {file for file, row in rows if row is not None}
    files = set()
    for name in annotation_files:
        path = to_path(name).absolute()
        if path.is_relative_to(root):
            path = path.relative_to(root)
        files.add(path.as_posix())
    roles = dict.fromkeys(sorted(files), "annotations")
    recordings = sorted(set(segmentation.segments.paths))
    roles |= dict.fromkeys(recordings, "recording")
    inputs = []
    for file, role in roles.items():
        progress(0.0, f"checksum of {file}")
        path = _find_input(root, file)
        with explain_unreadable(path):
            inputs.append({"role": role, "file": file, "sha256": sha256_file(path)})
    return inputs


def _find_input(root: Path, file: str) -> Path:
    """Return the path of an input file, which may be relative to the folder of the recordings."""
    path = to_path(file)
    if is_remote(path) or path.is_absolute():
        return path
    return root / file


def verify_inputs(provenance: Mapping[str, Any], root: Path) -> Iterator[Finding]:
    """Yield the state of each of the `inputs` in a provenance: ok, missing or damaged."""
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
    corpus: Corpus | None = None,
    folds: int | None = None,
    **options: Any,
) -> Inspection:
    """Read headers and annotations, and count the labels that folds would evaluate."""
    segmentation = segment_corpus(
        audio, annotations, corpus=corpus, check=False, **options
    )
    if folds is None:
        folds = DEFAULT_FOLDS if corpus is None else corpus.folds
    labels = segmentation.segments["label"]
    recordings = segmentation.segments["recording"]
    recording_count = len(set(recordings))
    assignment = None  # the fold of each segment
    annotated_folds = given_folds(segmentation.segments)
    if annotated_folds is not None:
        assignment = check_folds(recordings, annotated_folds)
    elif recording_count >= folds:
        assignment = make_folds(labels, recordings, folds)
    classes = []
    if assignment is not None:
        classes = count_classes(labels, assignment, recordings)
    # A label can be in n folds if it is in n recordings.
    pairs = set(zip(labels, recordings, strict=True))
    recordings_by_label = Counter(label for label, _ in pairs)
    labels_by_folds = {}
    for n in range(2, min(MAX_FOLDS, recording_count) + 1):
        enough = [count >= n for count in recordings_by_label.values()]
        labels_by_folds[n] = sum(enough)
    return Inspection(
        segmentation=segmentation,
        labels_by_folds=labels_by_folds,
        folds=assignment,
        classes=classes,
        complete_shots=complete_shots(classes),
    )


def measure_durations(durations_s: Iterable[float]) -> DurationStats:
    """Return the number of durations and their statistics; all are zero if there are none."""
    values = list(durations_s)
    known = values or [0.0]
    return DurationStats(
        count=len(values),
        total_s=sum(known),
        mean_s=fmean(known),
        shortest_s=min(known),
        longest_s=max(known),
        deviation_s=pstdev(known),
    )


def measure_corpus(
    segmentation: Segmentation, options: SegmentationOptions
) -> CorpusStats:
    """Return the statistics of a corpus: its recordings, calls and segments."""
    recordings = segmentation.recordings
    annotated = [r for r in recordings if r.path in segmentation.annotated]
    return CorpusStats(
        rates_hz=tuple(sorted({r.rate_hz for r in recordings})),
        channels=tuple(sorted({r.channels for r in recordings})),
        kinds=tuple(sorted({r.kind for r in recordings})),
        labels=len(set(segmentation.calls["label"])),
        min_length_s=options.min_length_s,
        collar_s=options.collar_s,
        recordings=measure_durations(r.duration_s for r in recordings),
        annotated=measure_durations(r.duration_s for r in annotated),
        calls=measure_durations(segmentation.calls.durations_s.tolist()),
        segments=measure_durations(segmentation.segments.durations_s.tolist()),
    )


def read_stats(path: Path) -> tuple[CorpusStats, list[str]]:
    """Return the statistics and the notes of a segmentation from its `segments.json`."""
    content = json.loads(path.read_text(encoding="utf-8"))
    values = content["facts"]
    for name in ("rates_hz", "channels", "kinds"):
        values[name] = tuple(values[name])
    for name in ("recordings", "annotated", "calls", "segments"):
        values[name] = DurationStats(**values[name])
    return CorpusStats(**values), content["notes"]
