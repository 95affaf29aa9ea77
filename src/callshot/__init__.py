"""callshot: few-shot classification of animal calls.

The path of the data:

    recordings ─ segment ─▶ segments ─ embed ─▶ embeddings ─ evaluate ─▶ curves ─ compare, plot

    >>> import callshot
    >>> result = callshot.evaluate(X, y, groups=recordings)                       # doctest: +SKIP
    >>> result.plot()                                                             # doctest: +SKIP

From the command line: `callshot init`, `callshot run`. Start reading at `callshot.pipeline`.
"""

from importlib import import_module
from typing import Any

from callshot.version import __version__

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
    "import_index": "detection.index.import_index",
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

__all__ = [*_MODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'callshot' has no attribute {name!r}")
    return getattr(import_module(f"callshot.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
