"""callshot: few-shot classification of animal calls.

The path of the data:

    recordings ─ segment ─▶ segments ─ embed ─▶ embeddings ─ evaluate ─▶ curves ─ compare, plot

    >>> import callshot
    >>> result = callshot.evaluate(X, y, groups=recordings)                       # doctest: +SKIP
    >>> result.plot()                                                             # doctest: +SKIP

From the command line: `callshot init`, `callshot run`. Start reading at `callshot.pipeline`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from callshot.version import __version__

if TYPE_CHECKING:
    from callshot.api import embed, evaluate, segment, train_baselines
    from callshot.baselines.options import BaselineOptions
    from callshot.baselines.run import BaselineResults
    from callshot.corpus.annotations import AnnotationOptions, read_annotations
    from callshot.corpus.audio import load_audio
    from callshot.corpus.options import SegmentationOptions
    from callshot.corpus.recordings import window_spans
    from callshot.corpus.segment_table import read_segments
    from callshot.corpus.segments import read_spans
    from callshot.corpus.synthetic.site import synthesise_soundscape
    from callshot.detection.index.find_windows import find_windows
    from callshot.detection.index.index_files import Index, open_index
    from callshot.detection.index.index_recordings import index_recordings
    from callshot.detection.learn import learn
    from callshot.detection.model import Model, load_model
    from callshot.detection.scan import ScanResult, scan
    from callshot.detection.score import DetectionScores, score_detections
    from callshot.distributed.connect import open_cluster
    from callshot.encoders.install import list_encoders
    from callshot.errors import CallshotError
    from callshot.fewshot.centroid import CentroidClassifier
    from callshot.fewshot.evaluate import rerun_episode
    from callshot.fewshot.folds import check_folds, make_folds
    from callshot.fewshot.label_budget import labels_for_target
    from callshot.fewshot.protocol import Protocol
    from callshot.pipeline import compare
    from callshot.records import Evaluation, Folds, Segmentation, TransferEvaluation
    from callshot.review.results import read_review
    from callshot.spans import Spans
    from callshot.tables.embedding_tables import read_tables, write_table
    from callshot.vectors import Vectors

# Loaded when first used: `import callshot` and `callshot --help` must not wait for numba.
_MODULES = {
    "BaselineOptions": "baselines.options",
    "BaselineResults": "baselines.run",
    "CallshotError": "errors",
    "CentroidClassifier": "fewshot.centroid",
    "DetectionScores": "detection.score",
    "Vectors": "vectors",
    "Evaluation": "records",
    "Folds": "records",
    "AnnotationOptions": "corpus.annotations",
    "Index": "detection.index.index_files",
    "Model": "detection.model",
    "Spans": "spans",
    "TransferEvaluation": "records",
    "Protocol": "fewshot.protocol",
    "ScanResult": "detection.scan",
    "SegmentationOptions": "corpus.options",
    "Segmentation": "records",
    "check_folds": "fewshot.folds",
    "compare": "pipeline",
    "embed": "api",
    "evaluate": "api",
    "find_windows": "detection.index.find_windows",
    "index_recordings": "detection.index.index_recordings",
    "labels_for_target": "fewshot.label_budget",
    "learn": "detection.learn",
    "list_encoders": "encoders.install",
    "load_audio": "corpus.audio",
    "load_model": "detection.model",
    "make_folds": "fewshot.folds",
    "open_cluster": "distributed.connect",
    "open_index": "detection.index.index_files",
    "read_annotations": "corpus.annotations",
    "read_review": "review.results",
    "read_segments": "corpus.segment_table",
    "read_spans": "corpus.segments",
    "read_tables": "tables.embedding_tables",
    "rerun_episode": "fewshot.evaluate",
    "scan": "detection.scan",
    "score_detections": "detection.score",
    "segment": "api",
    "synthesise_soundscape": "corpus.synthetic.site",
    "train_baselines": "api",
    "window_spans": "corpus.recordings",
    "write_table": "tables.embedding_tables",
}

__all__ = [
    "AnnotationOptions",
    "BaselineOptions",
    "BaselineResults",
    "CallshotError",
    "CentroidClassifier",
    "DetectionScores",
    "Evaluation",
    "Folds",
    "Index",
    "Model",
    "Protocol",
    "ScanResult",
    "Segmentation",
    "SegmentationOptions",
    "Spans",
    "TransferEvaluation",
    "Vectors",
    "__version__",
    "check_folds",
    "compare",
    "embed",
    "evaluate",
    "find_windows",
    "index_recordings",
    "labels_for_target",
    "learn",
    "list_encoders",
    "load_audio",
    "load_model",
    "make_folds",
    "open_cluster",
    "open_index",
    "read_annotations",
    "read_review",
    "read_segments",
    "read_spans",
    "read_tables",
    "rerun_episode",
    "scan",
    "score_detections",
    "segment",
    "synthesise_soundscape",
    "train_baselines",
    "window_spans",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'callshot' has no attribute {name!r}")
    return getattr(import_module(f"callshot.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
