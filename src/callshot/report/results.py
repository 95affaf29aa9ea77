"""An evaluation → plain files in a directory, all of them or none; and back.

with open_results(directory) as staging:                refuses what cannot be written, before anything is computed
    write_results(staging, evaluation, provenance)      stages every file, then puts each in its place
evaluation = read_results(directory)                    refuses files that are not as they were written
evaluation = merge([evaluation, another])               encoders that were evaluated apart, as if together
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import polars as pl

from callshot.errors import InputError
from callshot.files import describe_file
from callshot.records import (
    Baseline,
    BudgetRow,
    ClassCount,
    ClassCurve,
    Confusion,
    Crossover,
    Curve,
    Difference,
    Embeddings,
    Evaluation,
    Folds,
    IntArray,
    RefinementStep,
    Ties,
    Values,
)
from callshot.report.csv_records import (
    Columns,
    columns_of,
    read_records,
    read_rows,
    write_columns,
    write_records,
)
from callshot.report.output_folder import OutputFolder, open_output_folder

Draw = Callable[[Evaluation, Path], Sequence[Path]]

PROVENANCE = "provenance.json"
FOLD_COLUMNS = ("segment", "recording", "label", "fold")
VALUE_KEYS = ("corpus", "encoder", "classifier", "scoring", "metric", "spread")
CLASS_COLUMNS = ("label", "exemplars", "complete_to_k", "eligible", "reason")
ROW_GROUP = 2**18
LISTS = ("curve", "values", "per_class", "confusion", "ties")
DTYPES = {str: pl.String, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}


def open_results(directory: Path) -> AbstractContextManager[OutputFolder]:
    """Make a directory ready for results; `open_output_folder` lists what it checks."""
    return open_output_folder(directory, (*WRITERS, *FIGURES), PROVENANCE)


def write_results(
    staging: OutputFolder,
    evaluation: Evaluation,
    provenance: Mapping[str, Any],
    draw: Draw | None = None,
) -> list[Path]:
    """Write the files of an evaluation, all or none; `draw` makes the figures, from a path without suffix."""

    def make(folder: Path) -> list[str]:
        figures = [] if draw is None else [path.name for path in draw(evaluation, folder / "sweep")]
        for name, write in WRITERS.items():
            write(evaluation, folder / name)
        return [*WRITERS, *figures]

    return staging.write(make, provenance)


def write_differences(differences: Sequence[Difference], path: Path) -> None:
    """Write `differences.csv`."""
    write_records(Difference, differences, path)


def write_budget(budget: Sequence[BudgetRow], path: Path) -> None:
    """Write `budget.csv`."""
    write_records(BudgetRow, budget, path)


def write_baselines(baselines: Sequence[Baseline], path: Path) -> None:
    """Write `rivals.csv`."""
    write_records(Baseline, baselines, path)


def read_baselines(path: Path) -> list[Baseline]:
    """Return what `write_rivals` wrote."""
    return read_records(path, Baseline)


def write_crossovers(crossovers: Sequence[Crossover], path: Path) -> None:
    """Write `crossings.csv`."""
    write_records(Crossover, crossovers, path)


def write_refinement(refinement: Sequence[RefinementStep], path: Path) -> None:
    """Write `refinement.csv`."""
    write_records(RefinementStep, refinement, path)


def read_refinement(path: Path) -> list[RefinementStep]:
    """Return what `write_refinement` wrote."""
    return read_records(path, RefinementStep)


def read_results(directory: Path) -> Evaluation:
    """Return the evaluation that was written to a directory, equal to the last bit but for its `segments`.

    These have no vectors (one zero each) and no labels beside their own: neither is in the files. Refused: a directory
    without results, and files that are not those `provenance.json` tells of.
    """
    told = _read_provenance(directory)
    curve = read_records(directory / "curve.csv", Curve)
    segments, fold = _read_folds(directory / "folds.csv", curve[0].encoder)
    folds = Folds(fold, **told.pop("folds"))
    return Evaluation(
        **told,
        curve=curve,
        values=_read_values(directory / "values.parquet"),
        per_class=read_records(directory / "per_class.csv", ClassCurve),
        confusion=read_records(directory / "confusion.csv", Confusion),
        ties=read_records(directory / "ties.csv", Ties),
        classes=_read_classes(directory / "classes.csv", segments.label, folds),
        folds=folds,
        segments=segments,
    )


def merge(evaluations: Sequence[Evaluation]) -> Evaluation:
    """Return the evaluation of all encoders of several evaluations of the same corpus, as if they had run together.

    Refused: an encoder that is in two of them, and evaluations that differ in anything but encoders.
    """
    if not evaluations:
        raise InputError("no evaluation was given")
    first = evaluations[0]
    for other in evaluations[1:]:
        _refuse_another(first, other)
    encoders = Counter(name for e in evaluations for name in {c.encoder for c in e.curve})
    if twice := [name for name, times in encoders.items() if times > 1]:
        raise InputError(
            f"{first.corpus}: encoder '{twice[0]}' is in two evaluations; merge each encoder once"
        )
    lists: dict[str, Any] = {
        name: [row for e in evaluations for row in getattr(e, name)] for name in LISTS
    }
    return replace(
        first, **lists, notes=list(dict.fromkeys(note for e in evaluations for note in e.notes))
    )


def _refuse_another(first: Evaluation, other: Evaluation) -> None:
    """Refuse to merge what was not evaluated on the same folds, classes, queries and shots."""
    for what, told in FACTS.items():
        if told(first) != told(other):
            names = " and ".join(f"'{e.curve[0].encoder}'" for e in (first, other))
            raise InputError(
                f"{first.corpus}: the evaluations of {names} differ in their {what}; evaluate both with the same "
                "segments, folds and options"
            )


def _shape(evaluation: Evaluation) -> set[tuple[Any, ...]]:
    """Return what was evaluated, whatever the encoder: scorings, metrics, spreads, shots and how many samples."""
    return {
        (v.scoring, v.metric, v.spread, *v.k.tolist(), v.value.shape[1]) for v in evaluation.values
    }


FACTS: dict[str, Callable[[Evaluation], object]] = {
    "corpus": lambda e: e.corpus,
    "segments": lambda e: (e.segments.segment, e.segments.recording, e.segments.label),
    "folds": lambda e: (e.folds.count, e.folds.fold.tolist()),
    "classes": lambda e: e.classes,
    "queries": lambda e: (e.queries, e.complete_shots),
    "shots, spreads or samples": _shape,
}


def _read_provenance(directory: Path) -> dict[str, Any]:
    """Return what is told of a directory's files, after checking that they are still the same."""
    where = directory / PROVENANCE
    try:
        told: dict[str, Any] = json.loads(where.read_text(encoding="utf-8"))
        facts = {name: told[name] for name in ("corpus", "complete_shots", "queries", "notes")}
        facts["folds"] = {name: told["folds"][name] for name in ("count", "origin", "proof")}
        files = {name: told["files"][name] for name in WRITERS}
        files |= {name: told["files"][name] for name in FIGURES if name in told["files"]}
    except OSError as error:
        raise InputError(
            f"{where}: {error.strerror}; name a directory that callshot evaluate wrote"
        ) from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InputError(f"{where}: not the provenance of an evaluation; evaluate again") from None
    for name, checksum in files.items():
        _refuse_change(directory / name, checksum)
    return facts


def _refuse_change(path: Path, checksum: str) -> None:
    try:
        found = describe_file(path)["sha256"]
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}, and {PROVENANCE} tells of it; evaluate again"
        ) from None
    if found != checksum:
        raise InputError(
            f"{path}: not the file that {PROVENANCE} tells of (its sha256 differs); evaluate again"
        )


def _read_folds(path: Path, encoder: str) -> tuple[Embeddings, IntArray]:
    """Return the segments, without vectors, and the fold of each."""
    rows = read_rows(path, dict.fromkeys(FOLD_COLUMNS, str) | {"fold": int})
    segment, recording, label, fold = ([row[name] for row in rows] for name in FOLD_COLUMNS)
    table = Embeddings(
        encoder,
        np.zeros((len(rows), 1)),
        segment,
        recording,
        label,
        [()] * len(rows),
        source=str(path),
    )
    return table, np.array(fold, np.int64)


def _read_classes(path: Path, label: Sequence[str], folds: Folds) -> list[ClassCount]:
    hints = get_type_hints(ClassCount)
    rows = read_rows(path, {name: hints[name] for name in CLASS_COLUMNS})
    exemplars = Counter(zip(label, folds.fold.tolist(), strict=True))
    return [
        ClassCount(**row, per_fold=tuple(exemplars[row["label"], f] for f in range(folds.count)))
        for row in rows
    ]


def _read_values(path: Path) -> list[Values]:
    """Return every value, curve by curve: all at once, the columns that say whose they are would fill the memory."""
    rows = pl.scan_parquet(path, glob=False)
    keys = rows.select(VALUE_KEYS).unique(maintain_order=True).collect()
    return [
        _read_curve(key, rows.filter(**key).select("k", "value").collect())
        for key in keys.iter_rows(named=True)
    ]


def _read_curve(key: Mapping[str, str], rows: pl.DataFrame) -> Values:
    k = rows["k"].unique(maintain_order=True).to_numpy()
    return Values(**key, k=k, value=rows["value"].to_numpy().reshape(len(k), -1).copy())


def write_folds(table: Embeddings, folds: Folds, path: Path) -> str:
    """Write `folds.csv`; return its name."""
    columns = (table.segment, table.recording, table.label, folds.fold.tolist())
    write_columns(dict(zip(FOLD_COLUMNS, columns, strict=True)), path)
    return path.name


def _csv(read: Callable[[Evaluation], Columns]) -> Callable[[Evaluation, Path], None]:
    """Return a writer of the columns that `read` takes from an evaluation."""
    return lambda evaluation, path: write_columns(read(evaluation), path)


def _write_curve(evaluation: Evaluation, path: Path) -> None:
    schema = {name: DTYPES[kind] for name, kind in get_type_hints(Curve).items()}
    frame = pl.DataFrame(columns_of(get_type_hints(Curve), evaluation.curve), schema=schema)
    frame.write_parquet(path, compression="zstd", row_group_size=ROW_GROUP)


def _write_values(evaluation: Evaluation, path: Path) -> None:
    """Write every value, streaming: the columns that say whose they are would be larger than the values."""
    rows = [_value_rows(values) for values in evaluation.values]
    pl.concat(rows).sink_parquet(path, compression="zstd", row_group_size=ROW_GROUP)


def _value_rows(values: Values) -> pl.LazyFrame:
    shots, samples = values.value.shape
    keys = [pl.lit(getattr(values, name), pl.String).alias(name) for name in VALUE_KEYS]
    k, index = np.repeat(values.k.astype(np.int64), samples), np.tile(np.arange(samples), shots)
    return pl.LazyFrame({"k": k, "index": index, "value": values.value.ravel()}).select(
        *keys, "k", "index", "value"
    )


WRITERS: dict[str, Callable[[Evaluation, Path], object]] = {
    "curve.csv": _csv(lambda e: columns_of(get_type_hints(Curve), e.curve)),
    "curve.parquet": _write_curve,
    "values.parquet": _write_values,
    "classes.csv": _csv(lambda e: columns_of(CLASS_COLUMNS, e.classes)),
    "folds.csv": lambda e, path: write_folds(e.segments, e.folds, path),
    "per_class.csv": _csv(lambda e: columns_of(get_type_hints(ClassCurve), e.per_class)),
    "confusion.csv": _csv(lambda e: columns_of(get_type_hints(Confusion), e.confusion)),
    "ties.csv": _csv(lambda e: columns_of(get_type_hints(Ties), e.ties)),
}
FIGURES = ("sweep.pdf", "sweep.png")
