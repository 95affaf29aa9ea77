"""callshot: few-shot classification of animal calls.

The path of the data, room by room:

    recordings ─ corpus ─▶ segments ─ encoders ─▶ embeddings ─ fewshot ─▶ scores ─ report ─▶ what people read

The rooms that stand so far begin at embeddings: `read_tables` → `make_folds` → `evaluate`; the same from the command
line is `callshot evaluate TABLE... --out DIR`. Start reading at `callshot.pipeline`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callshot.version import __version__

if TYPE_CHECKING:
    from callshot.encoders.table import read_tables, write_table
    from callshot.errors import CallshotError
    from callshot.fewshot.centroid import linear_layer, score
    from callshot.fewshot.evaluate import evaluate
    from callshot.fewshot.folds import count_classes, give_folds, make_folds
    from callshot.fewshot.metrics import auroc, average_precision, expected_auroc
    from callshot.fewshot.protocol import Protocol
    from callshot.fewshot.support import rerun_episode
    from callshot.records import Embeddings

# Loaded when first used: `import callshot` and `callshot --help` must not wait for numba.
_HOMES = {
    "CallshotError": "errors",
    "Embeddings": "records",
    "Protocol": "fewshot.protocol",
    "auroc": "fewshot.metrics",
    "average_precision": "fewshot.metrics",
    "count_classes": "fewshot.folds",
    "evaluate": "fewshot.evaluate",
    "expected_auroc": "fewshot.metrics",
    "give_folds": "fewshot.folds",
    "linear_layer": "fewshot.centroid",
    "make_folds": "fewshot.folds",
    "read_tables": "encoders.table",
    "rerun_episode": "fewshot.support",
    "score": "fewshot.centroid",
    "write_table": "encoders.table",
}

__all__ = [
    "CallshotError",
    "Embeddings",
    "Protocol",
    "__version__",
    "auroc",
    "average_precision",
    "count_classes",
    "evaluate",
    "expected_auroc",
    "give_folds",
    "linear_layer",
    "make_folds",
    "read_tables",
    "rerun_episode",
    "score",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'callshot' has no attribute {name!r}")
    return getattr(import_module(f"callshot.{_HOMES[name]}"), name)
