"""Loaders of the catalogue: an `EncoderSpec` comes in, an open model goes out.

Each loader finds the weights of an encoder, derives the files it needs from them, and opens them.
A model of windows maps float32 (n, samples) to (n, dimension), or to (n, 1 + frames, dimension)
if it has frames inside windows: a vector, then the frames. A model of whole segments maps
(samples,) to (frames, dimension); on a GPU its method `encode_batch`, if it has one, gets several
segments of one length: (n, samples) to (n, frames, dimension). Several threads may call a model at
once, if its spec is `parallel`; each call uses one thread. Frameworks are imported when a model is
opened.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.encoders.spec import EncoderSpec
from callshot.encoders.store import audio_key
from callshot.encoders.validation import Float32Array, Model
from callshot.encoders.weights import (
    Weight,
    derive_file,
    find_weight,
    require_weight,
    weight_folder,
)
from callshot.errors import InputError, OptionError

if TYPE_CHECKING:
    from callshot.encoders.litert import TfliteEmbedding


def used_weights(spec: EncoderSpec, device: str) -> tuple[Weight, ...]:
    """Return the weights that an encoder is opened with; they must be on this machine.

    Alternatives are used if its own are missing; those for torch also on a GPU that torch finds.
    """
    from callshot.encoders.hubert import torch_has_cuda

    name = spec.weights_name
    missing = [weight for weight in spec.weights if find_weight(name, weight) is None]
    for weight in spec.alternatives:
        if find_weight(name, weight) is None:
            continue
        is_for_gpu = weight.is_for_torch and device == "cuda"
        if missing or (is_for_gpu and torch_has_cuda()):
            return (weight,)
    for weight in missing:
        require_weight(name, weight)
    return spec.weights


def load_mfcc(spec: EncoderSpec, *, sequences: bool, **_: object) -> Model:
    """Open MFCC; where only the mean over frames is used, it returns that, which is faster."""
    from callshot.encoders.mfcc import MfccOptions, compute_mean_mfcc, compute_mfcc

    values: dict[str, Any] = dict(spec.options)
    options = MfccOptions(rate_hz=spec.rate_hz, **values)
    if sequences or spec.pooling != "mean":
        return lambda signal: compute_mfcc(signal, options)
    return lambda signal: compute_mean_mfcc(signal, options)[np.newaxis]


def load_random(spec: EncoderSpec, **_: object) -> Model:
    """Open one realisation of noise: the same audio always gets the same Gaussian vector.

    Other vectors would score a little differently: on few queries, AUROC has a standard deviation
    of about 0.03. The chance level is computed, not measured by this encoder.
    """

    def model(signal: Float32Array) -> Float32Array:
        entropy = int(audio_key(signal), 16)
        philox = np.random.Philox(np.random.SeedSequence(entropy))
        generator = np.random.Generator(philox)
        return generator.standard_normal((1, spec.dimension), np.float32)

    return model


def load_birdnet(spec: EncoderSpec, *, threads: int, **_: object) -> Model:
    """Open BirdNET, rewritten once to end in the embedding."""
    from callshot.encoders.litert import BIRDNET

    return _open_litert(spec, BIRDNET, threads)


def load_yamnet(spec: EncoderSpec, *, threads: int, **_: object) -> Model:
    """Open YAMNet, rewritten once to end in the embedding."""
    from callshot.encoders.litert import YAMNET

    return _open_litert(spec, YAMNET, threads)


def _open_litert(
    spec: EncoderSpec, embedding: "TfliteEmbedding", threads: int
) -> Model:
    from callshot.encoders.litert import open_tflite, rewrite_tflite

    rewrite = partial(rewrite_tflite, embedding=embedding)
    path = _derive(spec, "embedding-1.tflite", rewrite)
    return open_tflite(path, embedding, threads=threads)


def load_birdnet_onnx(spec: EncoderSpec, *, device: str, **_: object) -> Model:
    """Open BirdNET 2.4 from an ONNX file, cut once to its embedding."""
    path = _derive(spec, "embedding-1.onnx", _cut_birdnet)
    return _open_onnx(path, spec, device)


def _cut_birdnet(source: Path, target: Path) -> None:
    """Write BirdNET's ONNX file up to the embedding: the last tensor of its pooling layer.

    Whoever converts the published file keeps the names of its tensors, with endings of their own.
    """
    from callshot.encoders.litert import BIRDNET
    from callshot.encoders.onnx import cut_graph, read_nodes

    outputs = [name for node in read_nodes(source) for name in node.output]
    names = [name for name in outputs if name.startswith(BIRDNET.tensor)]
    if not names:
        raise InputError(
            f"{source}: expected BirdNET 2.4, with a tensor {BIRDNET.tensor}; "
            "is this the right file?"
        )
    cut_graph(source, target, names[-1:])


def load_birdnet_v3(spec: EncoderSpec, *, device: str, **_: object) -> Model:
    """Open BirdNET 3.0, cut once to its embedding: four fifths of the file are species."""
    from callshot.encoders.onnx import cut_graph

    cut = partial(cut_graph, outputs=["embeddings"])
    path = _derive(spec, "embeddings-1.onnx", cut)
    return _open_onnx(path, spec, device)


def load_hubert(
    spec: EncoderSpec, *, device: str, threads: int, sequences: bool
) -> Model:
    """Open HuBERT, cut at the requested layer.

    Weights for torch are run by torch on a GPU, and else exported to ONNX once.
    """
    from callshot.encoders import hubert
    from callshot.encoders.onnx import has_cuda

    weight = require_weight(spec.weights_name, spec.weights[0])
    is_onnx = weight.suffix == ".onnx"
    layer: Any = spec.options["layer"]
    normalise = bool(spec.options["normalise"])
    precision = str(spec.options["precision"])
    if device == "cuda" and not is_onnx and hubert.torch_has_cuda():
        mean = not sequences and spec.pooling == "mean"
        return hubert.open_hubert_torch(
            weight,
            layer,
            normalise=normalise,
            mean=mean,
            threads=threads,
            precision=precision,
        )
    if precision != "float32":
        raise OptionError(
            f"{spec.name}: precision={precision} needs --device cuda, a torch that finds a GPU, "
            f"and weights for it (callshot encoders get {spec.weights_name} --torch); "
            "or use float32"
        )
    if device == "cuda" and not has_cuda():
        raise OptionError(
            "device: cuda needs a torch that finds a GPU and weights for it "
            f"(callshot encoders get {spec.weights_name} --torch), "
            "or onnxruntime-gpu instead of onnxruntime; or use cpu"
        )
    make = hubert.cut_hubert if is_onnx else hubert.export_hubert
    path = _derive(spec, f"layer-{layer}-1.onnx", partial(make, layer=layer))
    return hubert.open_hubert(path, normalise=normalise, device=device)


def load_perch_v2(spec: EncoderSpec, *, device: str, **_: object) -> Model:
    """Open Perch 2, cut to its embedding: the head of 14,795 classes is most of the file."""
    from callshot.encoders.onnx import cut_graph
    from callshot.encoders.perch import open_perch_v2, open_perch_v2_spatial

    outputs = ["embedding"]
    open_model: Callable[..., Model] = open_perch_v2
    if spec.options["sequence"] == "spatial":
        outputs.append("spatial_embedding")
        open_model = open_perch_v2_spatial
    cut = partial(cut_graph, outputs=outputs)
    path = _derive(spec, f"{outputs[-1]}-1.onnx", cut)
    return open_model(path, device=device)


def _derive(spec: EncoderSpec, name: str, make: Callable[[Path, Path], None]) -> Path:
    """Return a file that is made once from the first weight of an encoder."""
    weight = require_weight(spec.weights_name, spec.weights[0])
    return derive_file(spec.weights_name, name, weight, partial(make, weight))


def load_perch_v1(spec: EncoderSpec, *, device: str, **_: object) -> Model:
    """Open Perch 1, converted once from its TensorFlow model and compared with it."""
    from callshot.encoders.perch import convert_perch_v1, open_perch_v1

    folder = weight_folder(spec.weights_name) / "saved_model"
    convert = partial(convert_perch_v1, folder)
    path = derive_file(spec.weights_name, "perch-1.onnx", folder, convert)
    return open_perch_v1(path, device=device)


def load_onnx(spec: EncoderSpec, *, device: str, **_: object) -> Model:
    """Open a user's own model of waveforms."""
    from callshot.encoders.onnx import check_single_file

    path = Path(str(spec.options["path"]))
    check_single_file(path)
    return _open_onnx(path, spec, device, str(spec.options["output"]) or None)


def _open_onnx(
    path: Path, spec: EncoderSpec, device: str, output: str | None = None
) -> Model:
    """Open a file that maps windows to vectors; `output` may be None if that is clear."""
    from callshot.encoders.onnx import open_windows

    assert spec.windowing is not None
    return open_windows(
        path,
        samples=spec.windowing.window,
        dimension=spec.dimension,
        output=output,
        device=device,
    )
