"""A transfer → plain files in a folder, all of them or none.

Every file has the columns `source_corpus` and `target_corpus`: where the examples and the queries
are from.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import polars as pl

from callshot.records import Evaluation, TransferEvaluation
from callshot.records.frames import CURVE_KEY, Frame
from callshot.report.results import (
    CLASSES,
    FOLDS,
    PROVENANCE,
    DrawFigures,
    write_frame,
    write_values,
)
from callshot.results import OutputFolder, open_output_folder

OWNER = "evaluate --queries"
JOINED_FRAMES = ("curve", "per_class", "confusion", "ties", "chance_test", "duplicates")
TRANSFER_FILES = (
    *(f"{name}.csv" for name in JOINED_FRAMES),
    "differences.csv",
    "classes.csv",
    "folds.csv",
    "values.parquet",
)
FIGURE_FILES = ("transfer.pdf", "transfer.png")


def open_transfer_results(folder: Path) -> AbstractContextManager[OutputFolder]:
    """Open a folder for results; those of other commands are not replaced."""
    return open_output_folder(
        folder, (*TRANSFER_FILES, *FIGURE_FILES), PROVENANCE, owner=OWNER
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
    write_frame(result.join_frames(list_classes), folder / "classes.csv")
    write_frame(result.join_frames(list_folds), folder / "folds.csv")
    key = [name for name in CURVE_KEY if name != "corpus"]
    values = result.join_frames("values")
    write_values(
        values, ["source_corpus", "target_corpus", *key], folder / "values.parquet"
    )


def list_classes(evaluation: Evaluation) -> Frame:
    """Return the exemplars of each class, and whether it is evaluated."""
    return pl.DataFrame(evaluation.classes).select(list(CLASSES))


def list_folds(evaluation: Evaluation) -> Frame:
    """Return the fold of each segment; examples of the source are in the common fold, −1."""
    table = evaluation.segments
    columns = (table.segment, table.recording, table.label, evaluation.folds.fold)
    return pl.DataFrame(columns, schema=dict(FOLDS))
