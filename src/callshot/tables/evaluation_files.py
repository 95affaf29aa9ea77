"""An evaluation → plain files in a folder, all of them or none; and back; and its provenance.

A transfer has the columns `source_corpus` and `target_corpus` in every file: where the examples and
the queries are from.
"""

import json
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import polars as pl

from callshot.errors import InputError
from callshot.fewshot.protocol import Protocol
from callshot.records import (
    ClassCount,
    CorpusStats,
    Evaluation,
    Folds,
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
from callshot.results import OutputFolder, compare_files, open_output_folder
from callshot.spans import Spans
from callshot.version import __version__

DrawFigures = Callable[[Path], Sequence[Path]]
Facts = dict[str, Any]
Options = Mapping[str, Any]

PROVENANCE = "provenance.json"
BOOLEANS = {"true": True, "false": False}
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
FACTS = ("corpus", "complete_shots", "queries", "notes")
FOLD_FACTS = ("count", "origin", "proof")
FIGURE_FILES = ("sweep.pdf", "sweep.png")
TRANSFER_OWNER = "evaluate --queries"
TRANSFER_FIGURES = ("transfer.pdf", "transfer.png")


TABLES: dict[str, Callable[[Evaluation], Frame]] = {
    **{name: attrgetter(name) for name in RESULT_FRAMES},
    "classes": lambda result: pl.DataFrame(result.classes).select(list(CLASSES)),
    "folds": lambda result: _make_folds_frame(result.segments, result.folds),
}
RESULT_FILES = ("curve.parquet", VALUES_FILE, *(f"{name}.csv" for name in TABLES))
# A transfer is not repeated with other folds, and recommends no labels.
NOT_IN_TRANSFER = ("partitions", "sensitivity", "sensitivity_means", "budget")
TRANSFER_TABLES = [name for name in TABLES if name not in NOT_IN_TRANSFER]
TRANSFER_FILES = (VALUES_FILE, *(f"{name}.csv" for name in TRANSFER_TABLES))


def read_frame(path: Path, schema: Schema) -> Frame:
    """Read what `write_csv_frame` wrote, with the types of the schema.

    The caller has compared the checksum: an error can only be a file of another version.
    """
    cells = restore_frame(pl.read_csv(path, infer_schema=False, glob=False))
    if cells.columns != list(schema):  # of another version
        raise InputError(
            f"{path}: expected the columns {', '.join(schema)}, "
            f"got {', '.join(cells.columns)}; create it again"
        )
    columns = []
    for name, dtype in schema.items():
        column = pl.col(name).cast(dtype)
        if dtype == pl.String:
            column = pl.col(name).fill_null("")
        elif dtype == pl.Boolean:
            column = pl.col(name).replace_strict(BOOLEANS, return_dtype=pl.Boolean)
        columns.append(column)
    return cells.select(columns)


def open_results(
    folder: Path, *, transfer: bool = False
) -> AbstractContextManager[OutputFolder]:
    """Open a folder for results; results of other commands are not replaced."""
    names = (*RESULT_FILES, DIFFERENCES_FILE, *FIGURE_FILES)
    owner = ""
    if transfer:
        names = (*TRANSFER_FILES, DIFFERENCES_FILE, *TRANSFER_FIGURES)
        owner = TRANSFER_OWNER
    return open_output_folder(folder, names, PROVENANCE, owner=owner)


def write_results(
    output: OutputFolder,
    evaluation: Evaluation,
    provenance: Mapping[str, Any],
    draw: DrawFigures | None = None,
) -> list[Path]:
    """Write the files of an evaluation, all or none; `draw` adds figures, given a path."""
    is_transfer = isinstance(evaluation, TransferEvaluation)

    def make(folder: Path) -> list[str]:
        """Write all files to a temporary folder; return their names."""
        names = list(TRANSFER_FILES if is_transfer else RESULT_FILES)
        if draw is not None:
            figures = draw(folder / ("transfer" if is_transfer else "sweep"))
            names += [path.name for path in figures]
        write_evaluation(evaluation, folder)
        if not evaluation.differences.is_empty():
            write_csv_frame(evaluation.differences, folder / DIFFERENCES_FILE)
            names.append(DIFFERENCES_FILE)
        return names

    return output.write(make, provenance)


def write_evaluation(
    evaluation: Evaluation, folder: Path, *, values: bool = True
) -> None:
    """Write the files of an evaluation or a transfer; without `values`, not that large one."""
    if isinstance(evaluation, TransferEvaluation):
        for name in TRANSFER_TABLES:
            frame = evaluation.join_frames(TABLES[name])
            write_csv_frame(frame, folder / f"{name}.csv")
        all_values = evaluation.join_frames("values")
        key = ["source_corpus", "target_corpus", *CURVE_KEY]
        key.remove("corpus")
        write_values(all_values, key, folder / VALUES_FILE)
        return
    for name, get_frame in TABLES.items():
        write_csv_frame(get_frame(evaluation), folder / f"{name}.csv")
    write_parquet(evaluation.curve, folder / "curve.parquet")
    if values:
        write_values(evaluation.values, list(CURVE_KEY), folder / VALUES_FILE)


def write_folds(segments: Spans, folds: Folds, path: Path) -> str:
    """Write `folds.csv`; return its name."""
    write_csv_frame(_make_folds_frame(segments, folds), path)
    return path.name


def _make_folds_frame(segments: Spans, folds: Folds) -> Frame:
    """Return the rows of `folds.csv`: each segment with its fold, −1 for the common fold."""
    numbered = segments.with_columns(fold=folds.fold)
    return numbered.frame.select(*FOLDS)


def write_values(values: Frame, key: Sequence[str], path: Path) -> None:
    """Write a row per sample, in parts: all key columns at once would fill the memory."""
    sample_counts = values["value"].list.len()
    indices = pl.int_ranges(sample_counts, dtype=pl.Int64)  # 0, 1, … of the samples
    numbered = values.with_columns(index=indices)
    ordered = numbered.select(*key, "k", "index", "value")
    largest = cast(int, sample_counts.max() or 0)
    curves_per_group = ROW_GROUP // max(1, largest)
    part_rows = max(1, curves_per_group)
    parts = list(ordered.iter_slices(part_rows)) or [ordered]
    by_sample = (part.explode("index", "value") for part in parts)
    write_parquet(by_sample, path)


def _read_values(path: Path) -> Frame:
    """Read what `write_values` wrote as one row per curve and k, with a list of samples."""
    rows = pl.scan_parquet(path, glob=False)
    keys = rows.filter(index=0).select(*CURVE_KEY, "k").collect()
    samples = rows.select("index", "value").collect()
    # The number of the list that each sample belongs to: one begins at every index 0.
    is_first = samples["index"] == 0
    list_number = is_first.cum_sum().alias("list")
    groups = samples.group_by(list_number, maintain_order=True)
    lists = groups.agg("value")
    columns = list(schemas.VALUES)
    return keys.with_columns(lists["value"]).select(columns)


def read_results(folder: Path) -> Evaluation:
    """Read an evaluation to the last bit; its segments are without times and overlapping labels.

    InputError if a file is missing, or differs from its checksum.
    """
    with open_provenance(folder) as provenance:
        facts = {name: provenance[name] for name in FACTS}
        facts["settings"] = protocol_settings(provenance)
        fold_facts = {name: provenance["folds"][name] for name in FOLD_FACTS}
        all_checksums = provenance["files"]
        optional = [DIFFERENCES_FILE, *FIGURE_FILES]
        present = [name for name in optional if name in all_checksums]
        checksums = {name: all_checksums[name] for name in [*RESULT_FILES, *present]}
    for path, state in compare_files(folder, {"files": checksums}):
        if state != "ok":
            raise InputError(
                f"{path}: {state}, by its SHA-256 in {PROVENANCE}; evaluate again"
            )
    tables: dict[str, Any] = {
        name: read_frame(folder / f"{name}.csv", schema)
        for name, schema in RESULT_FRAMES.items()
    }
    rows = read_frame(folder / "folds.csv", FOLDS)
    no_times = dict.fromkeys(("start_s", "end_s"))
    segments = Spans(rows.with_columns(**no_times), source=str(folder / "folds.csv"))
    segments = segments.with_columns(labels=[[]] * len(rows))
    folds = Folds(rows["fold"].to_numpy(), **fold_facts)
    return Evaluation(
        **facts,
        **tables,
        values=_read_values(folder / VALUES_FILE),
        classes=_read_classes(folder, rows, folds.count),
        folds=folds,
        segments=segments,
    )


def _read_classes(folder: Path, rows: Frame, fold_count: int) -> list[ClassCount]:
    """Read `classes.csv`; the exemplars per fold are counted in `rows`, those of `folds.csv`."""
    exemplars = Counter(rows.select("label", "fold").iter_rows())
    classes = []
    for row in read_frame(folder / "classes.csv", CLASSES).iter_rows(named=True):
        per_fold = [exemplars[row["label"], fold] for fold in range(fold_count)]
        classes.append(ClassCount(**row, per_fold=tuple(per_fold)))
    return classes


def merge_results(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Join evaluations of the same segments, folds and options with different encoders."""
    tables = {
        name: pl.concat([getattr(evaluation, name) for evaluation in evaluations])
        for name in (*RESULT_FRAMES, "values")
    }
    notes: dict[str, None] = {}  # each once and in order
    for evaluation in evaluations:
        notes |= dict.fromkeys(evaluation.notes)
    return replace(evaluations[0], **tables, notes=list(notes))


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
    """Return the fields of the protocol from a provenance; lists of JSON become tuples again."""
    settings = provenance.get("protocol", {}).items()
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in settings
    }


def describe_evaluation(
    evaluation: Evaluation,
    protocol: Protocol,
    files: Sequence[Mapping[str, Any]],
    options: Options,
) -> Facts:
    """Return all that is needed to reproduce and check an evaluation."""
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
    """Return sources, options, statistics and counts of rejects; `inputs` are checksums."""
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
    folds: Folds, classes: Sequence[ClassCount], missing: Sequence[str]
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
    """Return the versions of packages, callshot and Python, and the kind of machine."""
    versions = {name: version(name) for name in packages}
    versions |= {"callshot": __version__, "python": platform.python_version()}
    return {
        "versions": versions,
        "machine": {"system": platform.system(), "processor": platform.machine()},
    }


def _describe_ties(ties: Frame) -> list[Facts]:
    """Return the number of ties for each encoder and spread; if there are any, also the worst."""
    entries = []
    for _, rows in ties.group_by(["encoder", "spread"], maintain_order=True):
        worst = rows.row(rows["share"].arg_max() or 0, named=True)
        entry = {
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
