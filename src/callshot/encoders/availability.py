"""Rows of the catalogue → what a person wants to know of them: what each needs, and whether it is there."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from callshot.encoders.catalogue import EncoderSpec, list_encoders
from callshot.encoders.weights.weight_files import Weight, find_weight
from callshot.records import EncoderStatus

PACKAGES = {
    "onnx": ("onnxruntime", "onnx"),
    "birdnet": ("ai_edge_litert",),
    "perch-v1": ("onnxruntime", "tensorflow"),
    "rivals": ("torch", "transformers", "safetensors", "onnxscript"),
}


def list_status() -> list[EncoderStatus]:
    """Tell of every encoder; nothing is imported or downloaded."""
    return [encoder_status(spec) for spec in list_encoders()]


def encoder_status(spec: EncoderSpec) -> EncoderStatus:
    """Tell of one encoder."""
    own = tuple((w.file, w.source, _is_there(spec, w)) for w in spec.weights)
    other = tuple(
        (w.file, f"{w.source} (for torch, in its place)", _is_there(spec, w))
        for w in spec.torch_weights
    )
    needs = tuple(
        _needs(spec, own=all(there for *_, there in own), other=any(there for *_, there in other))
    )
    cut = (
        f"windows of {spec.windowing.window_s:g} s"
        if spec.windowing is not None
        else "segments whole"
    )
    taken = f"{cut} at {spec.rate_hz / 1000:g} kHz"
    return EncoderStatus(
        spec.name, spec.title, spec.dimension, taken, spec.licence, spec.level, needs, own + other
    )


def _needs(spec: EncoderSpec, *, own: bool, other: bool) -> Iterator[str]:
    """Say what is missing; `own` and `other` tell whether its weights are there, and whether one for torch is."""
    for extra in (spec.extra, "rivals" if other and not own else None):
        if extra is not None and any(find_spec(name) is None for name in PACKAGES.get(extra, ())):
            yield f"pip install 'callshot[{extra}]'"
    if not own and not other:
        yield f"callshot encoders get {spec.name}"
    path = spec.options.get("path")
    if isinstance(path, str) and not Path(path).is_file():
        yield f"the file {path}, which is not there"


def _is_there(spec: EncoderSpec, weight: Weight) -> bool:
    return find_weight(spec.weights_name, weight) is not None
