"""Rows of the catalogue → what a person wants to know of them: what each needs, and whether it is there."""

from importlib.util import find_spec

from callshot.encoders.catalogue import Row, list_encoders
from callshot.encoders.weights import find_weight
from callshot.records import EncoderState

PACKAGES = {"onnx": ("onnxruntime", "onnx"), "birdnet": ("ai_edge_litert",), "perch-v1": ("onnxruntime", "tensorflow")}


def tell_encoders() -> list[EncoderState]:
    """Tell of every encoder; nothing is imported or downloaded."""
    return [tell_encoder(row) for row in list_encoders()]


def tell_encoder(row: Row) -> EncoderState:
    """Tell of one encoder."""
    weights = tuple((w.file, w.source, find_weight(row.place, w) is not None) for w in row.weights)
    absent = [name for name in PACKAGES.get(row.extra or "", ()) if find_spec(name) is None]
    needs = [f"pip install 'callshot[{row.extra}]'"] if absent else []
    needs += [f"callshot encoders get {row.name}"] if not all(there for _, _, there in weights) else []
    cut = f"windows of {row.policy.window_s:g} s" if row.policy is not None else "segments whole"
    taken = f"{cut} at {row.rate_hz / 1000:g} kHz"
    return EncoderState(row.name, row.title, row.dimension, taken, row.licence, row.level, tuple(needs), weights)
