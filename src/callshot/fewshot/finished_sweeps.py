"""Finished parts of sweeps ↔ named arrays, which a store keeps for a run after this one.

A part is stored under the hash of everything that decides it: the table, folds, classes, protocol
and versions.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.metrics import MetricSums
from callshot.records import ClassCount, Embeddings, Folds, IntArray
from callshot.version import __version__

Swept = tuple[IntArray, MetricSums]
"""k of each row, and the values."""
Arrays = Mapping[str, NDArray[Any]]

SWEEP_VERSION = 1  # raise it when the numbers of a sweep change
ROWS_OF_SHOTS = ("tied", "decisions")  # arrays with a row for each k
TABLES_OF_SHOTS = ("values", "per_class", "chance")  # tables of such arrays
SHOTS = "shots"
UNDEFINED = "undefined"


class SweepStore(Protocol):
    """Keeps arrays by name."""

    def find(self, name: str) -> Arrays | None:
        """Return what was added under a name; None if there is nothing, or it is damaged."""

    def add(self, name: str, arrays: Arrays) -> None:
        """Keep arrays under a name."""


def hash_dataset(
    table: Embeddings, folds: Folds, counts: Sequence[ClassCount], categories: Any
) -> str:
    """Return the hash of what sweeps of a table read."""
    facts = {
        "callshot": __version__,
        "sweep": SWEEP_VERSION,
        "numba": numba.__version__,
        "numpy": np.__version__,
        "encoder": table.encoder,
        "columns": [table.segment, table.recording, table.label, table.labels],
        "views": table.joined_dimensions,
        "folds": [folds.count, folds.only_common],
        "classes": [asdict(count) for count in counts],
        "categories": None if categories is None else sorted(categories.items()),
        "vectors": [table.vectors.dtype.str, table.vectors.shape],
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    digest.update(np.ascontiguousarray(folds.fold, np.int64).data)
    digest.update(np.ascontiguousarray(table.vectors).data)
    return digest.hexdigest()


def hash_part(dataset: str, classifier: str, spread: str, protocol: Any) -> str:
    """Return the name of a part: some shots of a classifier and spread on a dataset."""
    facts = [dataset, classifier, spread, asdict(protocol)]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def to_arrays(swept: Swept) -> dict[str, NDArray[Any]]:
    """Return what summaries read of a finished sweep, under names."""
    shots, sums = swept
    arrays = {SHOTS: shots, UNDEFINED: sums.undefined}
    arrays |= {name: getattr(sums, name) for name in ROWS_OF_SHOTS}
    for name in TABLES_OF_SHOTS:
        for key, table in getattr(sums, name).items():
            arrays[_name_table(name, key)] = table
    return arrays


def from_arrays(
    arrays: Arrays, samples: int, classes: Sequence[str], categories: Any
) -> Swept | None:
    """Return the sweep that `to_arrays` was given; None if arrays are missing or differ in size."""
    shots = arrays.get(SHOTS)
    if shots is None or shots.ndim != 1:
        return None
    sums = MetricSums(len(shots), samples, classes, categories)
    expected = to_arrays((shots, sums))
    if _describe(expected) != _describe(arrays):
        return None
    for name, array in expected.items():
        array[...] = arrays[name]
    return shots, sums


def _name_table(name: str, key: str | tuple[str, str]) -> str:
    """Return a name that no other table has."""
    words = (key,) if isinstance(key, str) else key
    return " ".join([name, *words])


def _describe(arrays: Arrays) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (array.dtype.str, array.shape) for name, array in arrays.items()}
