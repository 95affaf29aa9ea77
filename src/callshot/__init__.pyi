"""The names of `callshot` for type checkers; `__init__.py` loads each when it is first used."""

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
from callshot.detection.index.import_index import import_index
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
from callshot.version import __version__

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
    "import_index",
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
