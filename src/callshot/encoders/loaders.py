"""Rows of the catalogue → open models: each function finds a spec's weights, makes what is made of them, and opens it.

A model of windows takes float32 (n, samples) and returns (n, dimension), or (n, 1 + frames, dimension) where there are
frames inside windows: a vector, then the frames. One of whole segments takes (samples,), returns (frames, dimension).
Frameworks are imported when a model is opened, by the file that needs them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from callshot.encoders.weights.weight_files import (
    Weight,
    derive_file,
    find_weight,
    require_weight,
    weight_folder,
)
from callshot.errors import InputError, OptionError

if TYPE_CHECKING:
    from callshot.encoders.catalogue import EncoderSpec

Model = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def used_weights(spec: "EncoderSpec", device: str) -> tuple[Weight, ...]:
    """Return the weights that a spec is opened with, which are there: its own, or in their place one for torch.

    That one is taken on a GPU that torch can use, and where the spec's own are not there.
    """
    from callshot.encoders.hubert import torch_has_cuda

    other = tuple(
        weight
        for weight in spec.torch_weights
        if find_weight(spec.weights_name, weight) is not None
    )[:1]
    own = all(find_weight(spec.weights_name, weight) is not None for weight in spec.weights)
    if other and (not own or (device == "cuda" and torch_has_cuda())):
        return other
    for weight in spec.weights:
        require_weight(spec.weights_name, weight)
    return spec.weights


def load_mfcc(spec: "EncoderSpec", *, sequences: bool, **_: object) -> Model:
    """Open MFCC; without sequences the mean over frames comes at once, which is faster."""
    from callshot.encoders.mfcc import MfccOptions, embed, frames

    given: dict[str, Any] = dict(spec.options)
    options = MfccOptions(rate_hz=spec.rate_hz, **given)
    if sequences:
        return lambda signal: frames(signal, options)
    return lambda signal: embed(signal, options)[np.newaxis]


def load_random(spec: "EncoderSpec", **_: object) -> Model:
    """Open the floor: a Gaussian vector for each audio, drawn by its hash."""
    from callshot.encoders.random_encoder import draw

    return lambda signal: draw(signal, spec.dimension)[np.newaxis]


def load_birdnet(spec: "EncoderSpec", *, threads: int, **_: object) -> Model:
    """Open BirdNET; at first use its file is rewritten to give the embedding, and checked against the slow way."""
    from callshot.encoders.birdnet import (
        EMBEDDING,
        TOLERANCE,
        check_rewrite,
        expose_tensor,
        open_birdnet,
    )

    weight = require_weight(spec.weights_name, spec.weights[0])

    def make(target: Path) -> None:
        expose_tensor(weight, target, EMBEDDING)
        difference = check_rewrite(weight, target)
        if not difference <= TOLERANCE:
            raise InputError(
                f"{weight}: rewritten, it differs by {difference:g} from the original; not used"
            )

    return open_birdnet(
        derive_file(spec.weights_name, "embedding-1.tflite", weight, make), threads=threads
    )


def load_hubert(spec: "EncoderSpec", *, device: str, threads: int, **_: object) -> Model:
    """Open HuBERT, cut to the layer that is asked for: what comes after it would be computed for nothing.

    Weights for torch are run by torch on a GPU; else they are exported, once.
    """
    from callshot.encoders.hubert import (
        cut_hubert,
        export_hubert,
        open_hubert,
        open_hubert_torch,
        torch_has_cuda,
    )
    from callshot.encoders.onnx import has_cuda

    weight, layer = require_weight(spec.weights_name, spec.weights[0]), int(spec.options["layer"] or 0)
    normalise, is_onnx = bool(spec.options["normalise"]), weight.suffix == ".onnx"
    if device == "cuda" and not is_onnx and torch_has_cuda():
        return open_hubert_torch(weight, layer, normalise=normalise, threads=threads)
    if device == "cuda" and not has_cuda():
        torch = f"a torch that finds a GPU, with weights for it (callshot encoders get {spec.weights_name} --torch)"
        raise OptionError(
            f"device: cuda wants {torch}, or onnxruntime-gpu in place of onnxruntime; or use cpu"
        )
    make = cut_hubert if is_onnx else export_hubert
    cut = derive_file(
        spec.weights_name,
        f"layer-{layer}-1.onnx",
        weight,
        lambda target: make(weight, target, layer),
    )
    return open_hubert(cut, normalise=normalise, device=device, threads=threads)


def load_perch_v2(spec: "EncoderSpec", *, device: str, threads: int, **_: object) -> Model:
    """Open Perch 2, cut to what is asked for: the head of 14,795 classes is most of the file."""
    from callshot.encoders.onnx import cut_graph
    from callshot.encoders.perch import open_perch_v2, open_perch_v2_spatial

    weight, spatial = (
        require_weight(spec.weights_name, spec.weights[0]),
        spec.options["sequence"] == "spatial",
    )
    outputs = ["embedding", "spatial_embedding"] if spatial else ["embedding"]
    cut = derive_file(
        spec.weights_name,
        f"{outputs[-1]}-1.onnx",
        weight,
        lambda target: cut_graph(weight, target, outputs),
    )
    return (open_perch_v2_spatial if spatial else open_perch_v2)(
        cut, device=device, threads=threads
    )


def load_perch_v1(spec: "EncoderSpec", *, device: str, threads: int, **_: object) -> Model:
    """Open Perch 1, converted once from its TensorFlow model, and checked against that."""
    from callshot.encoders.perch import convert_perch_v1, open_perch_v1

    for weight in spec.weights:
        require_weight(spec.weights_name, weight)
    folder = weight_folder(spec.weights_name) / spec.weights[0].file.partition("/")[0]

    def make(target: Path) -> None:
        convert_perch_v1(folder, target)

    return open_perch_v1(
        derive_file(spec.weights_name, "perch-1.onnx", folder, make), device=device, threads=threads
    )


def load_onnx(spec: "EncoderSpec", *, device: str, threads: int, **_: object) -> Model:
    """Open a user's own model of waveforms."""
    from callshot.encoders.onnx import open_windows, refuse_external

    if spec.windowing is None:
        raise InputError(f"{spec.name}: wanted a window")
    path, output = Path(str(spec.options["path"])), str(spec.options["output"]) or None
    refuse_external(path)
    return open_windows(
        path,
        output=output,
        samples=spec.windowing.window,
        dimension=spec.dimension,
        device=device,
        threads=threads,
    )
