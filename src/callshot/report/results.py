"""An evaluation → plain files in a folder, all of them or none; and back.

with open_results(folder) as output:                  checks that the folder can be written to
    write_results(output, evaluation, provenance)     writes every file, then moves each into place
evaluation = read_results(folder)                     checks that no file has changed since
evaluation = merge_results([evaluation, another])     encoders that were evaluated apart

A transfer has the columns `source_corpus` and `target_corpus` in every file: where the examples and
the queries are from. `describe_…` return where a result came from: versions, options, checksums of
the inputs, and what was left out.
"""

import json
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

from callshot.errors import InputError
from callshot.fewshot.protocol import Protocol
from callshot.files import sha256_file
from callshot.records import (
    ClassCount,
    CorpusStats,
    Embeddings,
    Evaluation,
    Folds,
    IntArray,
    Segmentation,
    TransferEvaluation,
)
from callshot.records import frames as schemas
from callshot.records.frames import CURVE_KEY, Frame, Schema
from callshot.records.table_files import (
    ROW_GROUP,
    restore_frame,
    write_csv_frame,
    write_parquet,
)
from callshot.results import OutputFolder, open_output_folder
from callshot.version import __version__

DrawFigures = Callable[[Path], Sequence[Path]]
Facts = dict[str, Any]
Options = Mapping[str, Any]

PROVENANCE = "provenance.json"
FOLDS: Schema = {
    "segment": pl.String,
    "recording": pl.String,
    "label": pl.String,
    "fold": pl.Int64,
}
CLASSES: Schema = {
    "label": pl.String,
    "exemplars": pl.Int64,
    "complete_to_k": pl.Int64,
    "eligible": pl.Boolean,
    "reason": pl.String,
}
RESULT_FRAMES: dict[str, Schema] = {
    "curve": schemas.CURVE,
    "per_class": schemas.PER_CLASS,
    "confusion": schemas.CONFUSION,
    "ties": schemas.TIES,
    "chance_test": schemas.CHANCE_TEST,
    "partitions": schemas.PARTITIONS,
    "sensitivity": schemas.SENSITIVITY,
    "sensitivity_means": schemas.SENSITIVITY_MEANS,
    "duplicates": schemas.DUPLICATES,
    "budget": schemas.BUDGET,
}
VALUES_FILE = "values.parquet"
DIFFERENCES_FILE = "differences.csv"  # of several encoders; it follows from the values
RESULT_FILES = (
    "curve.csv",
    "curve.parquet",
    VALUES_FILE,
    "classes.csv",
    "folds.csv",
    "per_class.csv",
    "confusion.csv",
    "ties.csv",
    "chance_test.csv",
    "partitions.csv",
    "sensitivity.csv",
    "sensitivity_means.csv",
    "duplicates.csv",
    "budget.csv",
)
FACTS = ("corpus", "complete_shots", "queries", "notes")
FOLD_FACTS = ("count", "origin", "proof")
FIGURE_FILES = ("sweep.pdf", "sweep.png")
TRANSFER_OWNER = "evaluate --queries"
JOINED_FRAMES = ("curve", "per_class", "confusion", "ties", "chance_test", "duplicates")
TRANSFER_FILES = (
    *(f"{name}.csv" for name in JOINED_FRAMES),
    "differences.csv",
    "classes.csv",
    "folds.csv",
    "values.parquet",
)
TRANSFER_FIGURES = ("transfer.pdf", "transfer.png")


def write_frame(frame: Frame, path: Path) -> None:
    """Write a frame as CSV; numbers are written in full, and read back as the same numbers."""
    write_csv_frame(frame, path)


def read_frame(path: Path, schema: Schema) -> Frame:
    """Read a CSV file that `write_frame` wrote; check its columns and types."""
    try:
        cells = pl.read_csv(path, infer_schema=False, glob=False)
        frame = restore_frame(cells)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _frame_error(path, f"cannot be read ({_first_line(error)})") from None
    if frame.columns != list(schema):
        names = ", ".join(schema)
        columns = ", ".join(frame.columns)
        raise _frame_error(path, f"expected the columns {names}, got {columns}")
    try:
        parsed = frame.select(map(_parse_column, schema, schema.values()))
    except pl.exceptions.PolarsError as error:
        raise _frame_error(path, f"has been changed ({_first_line(error)})") from None
    for column in parsed.select(pl.selectors.float()):
        if column.has_nulls():
            reason = f"column {column.name} has an empty cell"
            raise _frame_error(path, f"has been changed ({reason})")
    return parsed


def _frame_error(path: Path, reason: str) -> InputError:
    return InputError(f"{path}: {reason}; create it again")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _parse_column(name: str, dtype: Any) -> pl.Expr:
    column = pl.col(name)
    if dtype == pl.String:
        return column.fill_null("")
    if dtype == pl.Boolean:
        return column.replace_strict(
            {"true": True, "false": False}, return_dtype=pl.Boolean
        )
    return column.cast(dtype)


def open_results(folder: Path) -> AbstractContextManager[OutputFolder]:
    """Open a folder for results; see `open_output_folder` for what is checked."""
    names = (*RESULT_FILES, DIFFERENCES_FILE, *FIGURE_FILES)
    return open_output_folder(folder, names, PROVENANCE)


def write_results(
    output: OutputFolder,
    evaluation: Evaluation,
    provenance: Mapping[str, Any],
    draw: DrawFigures | None = None,
) -> list[Path]:
    """Write the files of an evaluation, all or none; the differences only of several encoders.

    `draw` makes figures, by a path without suffix.
    """

    def make(folder: Path) -> list[str]:
        names = list(RESULT_FILES)
        if draw is not None:
            figures = draw(folder / "sweep")
            names += [path.name for path in figures]
        write_evaluation(evaluation, folder)
        if not evaluation.differences.is_empty():
            write_frame(evaluation.differences, folder / DIFFERENCES_FILE)
            names.append(DIFFERENCES_FILE)
        return names

    return output.write(make, provenance)


def write_evaluation(
    evaluation: Evaluation, folder: Path, *, values: bool = True
) -> None:
    """Write all RESULT_FILES to a folder; `values` takes most of the time."""
    for name in RESULT_FRAMES:
        write_frame(getattr(evaluation, name), folder / f"{name}.csv")
    write_parquet(evaluation.curve, folder / "curve.parquet")
    if values:
        write_values(evaluation.values, list(CURVE_KEY), folder / VALUES_FILE)
    write_frame(_list_classes(evaluation), folder / "classes.csv")
    write_folds(evaluation.segments, evaluation.folds, folder / "folds.csv")


def _list_classes(evaluation: Evaluation) -> Frame:
    """Return the exemplars of each class, and whether it is evaluated."""
    return pl.DataFrame(evaluation.classes).select(list(CLASSES))


def write_folds(table: Embeddings, folds: Folds, path: Path) -> str:
    """Write `folds.csv`; return its name."""
    write_frame(_make_folds_frame(table, folds), path)
    return path.name


def _make_folds_frame(table: Embeddings, folds: Folds) -> Frame:
    """Return the fold of each segment; examples of a source corpus are in the common fold, −1."""
    columns = (table.segment, table.recording, table.label, folds.fold)
    return pl.DataFrame(columns, schema=dict(FOLDS))


def write_values(values: Frame, key: Sequence[str], path: Path) -> None:
    """Write one row per sample, in parts: all the key columns at once would fill the memory."""
    counts = values["value"].list.len()
    samples = values.with_columns(index=pl.int_ranges(counts, dtype=pl.Int64))
    ordered = samples.select(*key, "k", "index", "value")
    part_rows = max(1, ROW_GROUP // max(1, cast(int, counts.max() or 0)))
    parts = list(ordered.iter_slices(part_rows)) or [ordered]
    write_parquet((part.explode("index", "value") for part in parts), path)


def _read_values(path: Path) -> Frame:
    """Read one row per curve and k; the samples of each begin with index 0."""
    rows = pl.scan_parquet(path, glob=False)
    starts = rows.filter(index=0).select(*CURVE_KEY, "k").collect()
    samples = rows.select("index", "value").collect()
    group = (samples["index"] == 0).cum_sum()
    lists = samples.group_by(group.alias("group"), maintain_order=True).agg("value")
    return starts.with_columns(lists["value"]).select(list(schemas.VALUES))


def read_results(folder: Path) -> Evaluation:
    """Return the evaluation that was written to a folder, equal to the last bit but for `segments`.

    The segments have no vectors (one zero each) and no overlapping labels: neither is in the files.
    Differences are not read; `compare_encoders` makes them from the values.

    Raises
    ------
    InputError
        If the folder has no results, or files have changed since they were written.
    """
    facts = _read_provenance(folder)
    tables: dict[str, Any] = {
        name: read_frame(folder / f"{name}.csv", schema)
        for name, schema in RESULT_FRAMES.items()
    }
    encoder = tables["curve"]["encoder"][0]
    segments, fold = _read_folds(folder / "folds.csv", encoder)
    folds = Folds(fold, **facts.pop("folds"))
    return Evaluation(
        **facts,
        **tables,
        values=_read_values(folder / VALUES_FILE),
        classes=_read_classes(folder / "classes.csv", segments.label, folds),
        folds=folds,
        segments=segments,
    )


def merge_results(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Join evaluations of the same corpus with different encoders, as if they had run together.

    Raises
    ------
    InputError
        If an encoder is in two of them, or if they differ in anything but encoders.
    """
    if not evaluations:
        raise InputError("no evaluation was given")
    first = evaluations[0]
    encoders: list[str] = []
    notes: list[str] = []
    for evaluation in evaluations:
        _check_same_task(first, evaluation)
        encoders += evaluation.encoders
        notes += evaluation.notes
    _check_unique(first.corpus, encoders)
    tables = {}
    for name in (*RESULT_FRAMES, "values"):
        frames = [getattr(evaluation, name) for evaluation in evaluations]
        tables[name] = pl.concat(frames)
    return replace(first, **tables, notes=list(dict.fromkeys(notes)))


def _check_unique(corpus: str, encoders: Sequence[str]) -> None:
    name, count = Counter(encoders).most_common(1)[0]
    if count > 1:
        raise InputError(
            f"{corpus}: encoder '{name}' is in two evaluations; merge each encoder once"
        )


def _check_same_task(first: Evaluation, other: Evaluation) -> None:
    """Check that two evaluations have the same folds, classes, queries and shots."""
    facts = _task_facts(first)
    for name, value in _task_facts(other).items():
        if facts[name] != value:
            names = f"'{first.encoders[0]}' and '{other.encoders[0]}'"
            raise InputError(
                f"{first.corpus}: the evaluations of {names} differ in their {name}; "
                "evaluate both with the same segments, folds and options"
            )


def _task_facts(evaluation: Evaluation) -> dict[str, object]:
    """Return what must be equal in evaluations that are merged."""
    segments = evaluation.segments
    folds = evaluation.folds
    samples = evaluation.values.select(
        "scoring", "metric", "spread", "k", pl.col("value").list.len()
    )
    return {
        "corpus": evaluation.corpus,
        "segments": (segments.segment, segments.recording, segments.label),
        "folds": (folds.count, folds.fold.tolist()),
        "classes": evaluation.classes,
        "queries": (evaluation.queries, evaluation.complete_shots),
        "shots, spreads or samples": set(samples.rows()),
    }


def _read_provenance(folder: Path) -> dict[str, Any]:
    """Return the facts in provenance.json; check that the files are the same as then."""
    with open_provenance(folder) as provenance:
        facts = {name: provenance[name] for name in FACTS}
        facts["settings"] = protocol_settings(provenance)
        folds = provenance["folds"]
        facts["folds"] = {name: folds[name] for name in FOLD_FACTS}
        listed = provenance["files"]
        optional = [DIFFERENCES_FILE, *FIGURE_FILES]
        present = [name for name in optional if name in listed]
        checksums = {name: listed[name] for name in [*RESULT_FILES, *present]}
    for name, checksum in checksums.items():
        _check_unchanged(folder / name, checksum)
    return facts


@contextmanager
def open_provenance(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the content of provenance.json; raise InputError if it lacks what the block reads."""
    path = folder / PROVENANCE
    try:
        yield json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; pass a folder that callshot evaluate wrote"
        ) from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise InputError(
            f"{path}: not the provenance of an evaluation; evaluate again"
        ) from None


def protocol_settings(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the protocol; lists of JSON are tuples again."""
    settings = dict(provenance.get("protocol", {}))
    for name, value in settings.items():
        if isinstance(value, list):
            settings[name] = tuple(value)
    return settings


def _check_unchanged(path: Path, checksum: str) -> None:
    try:
        is_same = sha256_file(path) == checksum
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}, but {PROVENANCE} lists it; evaluate again"
        ) from None
    if not is_same:
        raise InputError(
            f"{path}: has changed since it was written (its SHA-256 differs); evaluate again"
        )


def _read_folds(path: Path, encoder: str) -> tuple[Embeddings, IntArray]:
    """Return the segments, without vectors, and the fold of each."""
    rows = read_frame(path, FOLDS)
    table = Embeddings(
        encoder,
        np.zeros((len(rows), 1)),
        segment=rows["segment"].to_list(),
        recording=rows["recording"].to_list(),
        label=rows["label"].to_list(),
        labels=[()] * len(rows),
        source=str(path),
    )
    return table, rows["fold"].to_numpy()


def _read_classes(path: Path, labels: Sequence[str], folds: Folds) -> list[ClassCount]:
    exemplars = Counter(zip(labels, folds.fold.tolist(), strict=True))
    classes = []
    for row in read_frame(path, CLASSES).iter_rows(named=True):
        label = row["label"]
        per_fold = [exemplars[label, fold] for fold in range(folds.count)]
        classes.append(ClassCount(**row, per_fold=tuple(per_fold)))
    return classes


def open_transfer_results(folder: Path) -> AbstractContextManager[OutputFolder]:
    """Open a folder for results; those of other commands are not replaced."""
    return open_output_folder(
        folder, (*TRANSFER_FILES, *TRANSFER_FIGURES), PROVENANCE, owner=TRANSFER_OWNER
    )


def write_transfer_results(
    output: OutputFolder,
    result: TransferEvaluation,
    provenance: Mapping[str, Any],
    draw: DrawFigures | None = None,
) -> list[Path]:
    """Write the files, all or none; `draw` makes figures, by a path without suffix."""

    def make(folder: Path) -> list[str]:
        names = list(TRANSFER_FILES)
        if draw is not None:
            names += [path.name for path in draw(folder / "transfer")]
        _write_files(result, folder)
        return names

    return output.write(make, provenance)


def _write_files(result: TransferEvaluation, folder: Path) -> None:
    for name in JOINED_FRAMES:
        write_frame(result.join_frames(name), folder / f"{name}.csv")
    write_frame(result.differences, folder / "differences.csv")
    write_frame(result.join_frames(_list_classes), folder / "classes.csv")
    folds = result.join_frames(lambda one: _make_folds_frame(one.segments, one.folds))
    write_frame(folds, folder / "folds.csv")
    key = [name for name in CURVE_KEY if name != "corpus"]
    values = result.join_frames("values")
    write_values(
        values, ["source_corpus", "target_corpus", *key], folder / "values.parquet"
    )


def describe_evaluation(
    evaluation: Evaluation,
    protocol: Protocol,
    files: Sequence[Mapping[str, Any]],
    options: Options,
) -> Facts:
    """Return everything that is needed to reproduce and check a run."""
    folds = evaluation.folds
    rejects = [
        {"label": count.label, "segments": count.exemplars, "reason": count.reason}
        for count in evaluation.excluded_classes
    ]
    return {
        "corpus": evaluation.corpus,
        "classes": len(evaluation.eligible_classes),
        "queries": evaluation.queries,
        "complete_shots": evaluation.complete_shots,
        "folds": {"count": folds.count, "origin": folds.origin, "proof": folds.proof},
        "protocol": asdict(protocol),
        "options": dict(options),
        "inputs": list(files),
        "ties": _describe_ties(evaluation.ties),
        "rejects": rejects,
        "notes": evaluation.notes,
        **_describe_machine("numpy", "scipy", "numba", "polars"),
    }


def describe_segmentation(
    segmentation: Segmentation,
    stats: CorpusStats,
    options: Options,
    inputs: Sequence[Mapping[str, Any]] = (),
) -> Facts:
    """Return the sources, options and statistics of segments, and the counts of rejects.

    `inputs` are the checksums of recordings and annotation files.
    """
    sources = [
        {"format": name, "why": reason, "files": count}
        for name, reason, count in segmentation.sources
    ]
    return {
        "facts": asdict(stats),
        "recordings": len(segmentation.recordings),
        "annotated": len(segmentation.annotated),
        "sources": sources,
        "read": segmentation.annotation_count,
        "segments": len(segmentation.segments),
        "rejects": len(segmentation.rejects),
        "skipped_files": len(segmentation.skipped_files),
        "notes": list(segmentation.notes),
        "options": dict(options),
        "inputs": list(inputs),
        **_describe_machine("numpy", "polars", "soundfile", "soxr"),
    }


def describe_folds(
    folds: Folds,
    classes: Sequence[ClassCount],
    missing: Sequence[str],
) -> Facts:
    """Return how folds were made, what they allow, and the segments without a vector."""
    columns = ("label", "exemplars", "complete_to_k", "reason")
    return {
        "count": folds.count,
        "origin": folds.origin,
        "proof": folds.proof,
        "classes": [
            {name: getattr(count, name) for name in columns} for count in classes
        ],
        "missing": list(missing),
        **_describe_machine("numpy", "scipy"),
    }


def _describe_machine(*packages: str) -> Facts:
    versions = {name: version(name) for name in packages}
    versions |= {"callshot": __version__, "python": platform.python_version()}
    return {
        "versions": versions,
        "machine": {"system": platform.system(), "processor": platform.machine()},
    }


def _describe_ties(ties: Frame) -> list[Facts]:
    """Sum the ties of each encoder and spread; the largest share names its class and k."""
    entries = []
    for _, rows in ties.group_by(["encoder", "spread"], maintain_order=True):
        worst = rows.row(rows["share"].arg_max() or 0, named=True)
        entry: Facts = {
            "encoder": worst["encoder"],
            "spread": worst["spread"],
            "ties": rows["ties"].sum(),
        }
        if worst["ties"]:
            entry["worst_share"] = worst["share"]
            entry["worst_label"] = worst["label"]
            entry["worst_k"] = worst["k"]
            entry["largest_cost_map"] = rows["cost_map"].max()
        entries.append(entry)
    return entries
