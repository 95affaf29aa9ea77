"""callshot: few-shot classification of animal calls.

The path of the data, room by room:

    recordings ─ corpus ─▶ segments ─ encoders ─▶ embeddings ─ fewshot ─▶ scores ─ report ─▶ what people read

In Python: `segment_corpus` → `read_segments` → your encoder → `Embeddings` → `evaluate`. From the command line:
`callshot inspect`, `segment`, `embed`, `evaluate`; `callshot synth` makes a corpus to try it on. Start reading at
`callshot.study.file_steps`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callshot.version import __version__

if TYPE_CHECKING:
    from callshot.corpus.annotations import read_annotations
    from callshot.corpus.audio import load_audio
    from callshot.corpus.segment_table import read_segments
    from callshot.corpus.segments import segment_corpus
    from callshot.errors import CallshotError
    from callshot.fewshot.centroid import log_odds
    from callshot.fewshot.estimator import CentroidClassifier
    from callshot.fewshot.evaluate import evaluate
    from callshot.fewshot.folds import check_folds, make_folds
    from callshot.fewshot.protocol import Protocol
    from callshot.fewshot.single_episode import rerun_episode
    from callshot.records import Embeddings
    from callshot.tables.embedding_tables import read_tables, write_table

# Loaded when first used: `import callshot` and `callshot --help` must not wait for numba.
_HOMES = {
    "CallshotError": "errors",
    "Embeddings": "records",
    "Protocol": "fewshot.protocol",
    "evaluate": "fewshot.evaluate",
    "check_folds": "fewshot.folds",
    "CentroidClassifier": "fewshot.estimator",
    "make_folds": "fewshot.folds",
    "read_annotations": "corpus.annotations",
    "read_segments": "corpus.segment_table",
    "load_audio": "corpus.audio",
    "read_tables": "tables.embedding_tables",
    "rerun_episode": "fewshot.single_episode",
    "log_odds": "fewshot.centroid",
    "segment_corpus": "corpus.segments",
    "write_table": "tables.embedding_tables",
}

__all__ = [
    "CallshotError",
    "CentroidClassifier",
    "Embeddings",
    "Protocol",
    "__version__",
    "evaluate",
    "check_folds",
    "log_odds",
    "make_folds",
    "read_annotations",
    "load_audio",
    "read_segments",
    "read_tables",
    "rerun_episode",
    "segment_corpus",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'callshot' has no attribute {name!r}")
    return getattr(import_module(f"callshot.{_HOMES[name]}"), name)
