"""Rows of the catalogue → what a person wants to know of them: what each needs, and whether it is there."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from callshot.encoders.catalogue import Row, list_encoders
from callshot.encoders.weights.weight_files import Weight, find_weight
from callshot.records import EncoderStatus

PACKAGES = {
    "onnx": ("onnxruntime", "onnx"),
    "birdnet": ("ai_edge_litert",),
    "perch-v1": ("onnxruntime", "tensorflow"),
    "rivals": ("torch", "transformers", "safetensors", "onnxscript"),
}


def tell_encoders() -> list[EncoderStatus]:
    """Tell of every encoder; nothing is imported or downloaded."""
    return [encoder_status(row) for row in list_encoders()]


def encoder_status(row: Row) -> EncoderStatus:
    """Tell of one encoder."""
    own = tuple((w.file, w.source, _is_there(row, w)) for w in row.weights)
    other = tuple(
        (w.file, f"{w.source} (for torch, in its place)", _is_there(row, w)) for w in row.for_torch
    )
    needs = tuple(
        _needs(row, own=all(there for *_, there in own), other=any(there for *_, there in other))
    )
    cut = f"windows of {row.policy.window_s:g} s" if row.policy is not None else "segments whole"
    taken = f"{cut} at {row.rate_hz / 1000:g} kHz"
    return EncoderStatus(
        row.name, row.title, row.dimension, taken, row.licence, row.level, needs, own + other
    )


def _needs(row: Row, *, own: bool, other: bool) -> Iterator[str]:
    """Say what is missing; `own` and `other` tell whether its weights are there, and whether one for torch is."""
    for extra in (row.extra, "rivals" if other and not own else None):
        if extra is not None and any(find_spec(name) is None for name in PACKAGES.get(extra, ())):
            yield f"pip install 'callshot[{extra}]'"
    if not own and not other:
        yield f"callshot encoders get {row.name}"
    path = row.options.get("path")
    if isinstance(path, str) and not Path(path).is_file():
        yield f"the file {path}, which is not there"


def _is_there(row: Row, weight: Weight) -> bool:
    return find_weight(row.place, weight) is not None
