"""HuBERT base, cut at a layer: samples at 16 kHz come in, frames of 768 every 20 ms go out.

    published 12-layer ONNX → cut_hubert ─┐
    Hugging Face weights → export_hubert ─┴→ file of N layers → open_hubert → model(signal)
    Hugging Face weights → open_hubert_torch ─────────────────────────────↗   for a GPU

A signal goes in alone and at its own length: the first convolution is normalised over time, so
padding would change every frame.
"""

import logging
import math
import os
import re
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from callshot.encoders.models.onnx import (
    ONNX_PACKAGES,
    cut_graph,
    find_input,
    has_cuda,
    open_session,
    read_model,
    run,
)
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.weights import (
    TORCH_EXTRA,
    Weight,
    explain_errors,
    import_package,
    require_weight,
    torch_has_cuda,
)
from callshot.encoders.windows import Float32Array, Model, check_signal
from callshot.errors import InputError, OptionError, count_text

WIDTH = 768
RATE_HZ = 16_000
FIELD = 400  # samples in the receptive field of a frame
STRIDE = 320  # samples from frame to frame
MAX_S = 60.0  # the paper's longest segment has 44 s
VARIANCE_FLOOR = 1e-7  # as in Hugging Face's feature extractor: silence stays silence
CUDNN_BATCH = 4  # signals in a batch from which on cuDNN is faster
LAYERS = 12
LAYER_END = re.compile(r"layers\.(\d+)/final_layer_norm/")


def load_hubert(
    spec: EncoderSpec, *, device: str, threads: int, sequences: bool
) -> Model:
    """Open HuBERT at a layer; torch runs its weights on a GPU, else they are exported once."""
    weight = require_weight(spec.weights_name, spec.weights[0])
    is_onnx = weight.suffix == ".onnx"
    layer: Any = spec.options["layer"]
    normalise = bool(spec.options["normalise"])
    precision = str(spec.options["precision"])
    if device == "cuda" and not is_onnx and torch_has_cuda():
        return open_hubert_torch(
            weight,
            layer,
            normalise=normalise,
            mean=not sequences and spec.pooling == "mean",
            threads=threads,
            precision=precision,
        )
    get_command = f"callshot encoders get {spec.weights_name} --torch"
    if precision != "float32":
        raise OptionError(
            f"{spec.name}: precision={precision} needs --device cuda, a torch that finds a GPU, "
            f"and weights for it ({get_command}); or use float32"
        )
    if device == "cuda" and not has_cuda():
        raise OptionError(
            f"device: cuda needs a torch that finds a GPU and weights for it ({get_command}), "
            "or onnxruntime-gpu instead of onnxruntime; or use cpu"
        )
    # On the CPU, or with onnxruntime-gpu: the layer as an ONNX file, which is made once.
    make = cut_hubert if is_onnx else export_hubert
    path = spec.derive(f"layer-{layer}-1.onnx", partial(make, layer=layer))
    return open_hubert(path, normalise=normalise, device=device)


def cut_hubert(source: Path, target: Path, layer: int) -> None:
    """Cut the published 12-layer ONNX file at a layer, and try it on noise."""
    nodes = read_model(source).graph.node
    # A layer ends in the last tensor of its last normalisation. The tensor of the last layer is
    # named like the model's output: the node has the number.
    outputs = {}
    for node in nodes:
        match = LAYER_END.search(f"{node.name} {node.output[0]}")
        if match is not None:
            outputs[int(match[1]) + 1] = node.output[0]
    if layer not in outputs:
        raise InputError(
            f"{source}: expected layer {layer} of an ONNX export of HuBERT base, "
            f"got layers {sorted(outputs)}"
        )
    cut_graph(source, target, [outputs[layer]])
    try:
        open_hubert(target)(_make_noise(1.0))
    except InputError as error:
        raise InputError(
            f"{source}: cut at layer {layer}, it is not HuBERT base ({error})"
        ) from error


def export_hubert(weights: Path, target: Path, layer: int) -> None:
    """Export a layer from Hugging Face weights, and try it on noise.

    `weights` is a model.safetensors or pytorch_model.bin; a config.json beside it is read.
    """
    torch, model = build_hubert(weights, layer)
    import_package("onnxscript", TORCH_EXTRA)
    free = torch.export.Dim.DYNAMIC  # any number of signals, and of samples
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)  # about the exporter's own code
    try:
        with warnings.catch_warnings(action="ignore"):
            torch.onnx.export(
                model,
                (torch.from_numpy(_make_noise(1.0))[None],),  # (1, samples)
                target,
                input_names=["input_values"],
                output_names=["last_hidden_state"],
                dynamic_shapes=({0: free, 1: free},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        logging.disable(level)
    open_hubert(target)(_make_noise(0.5))  # another length than it was exported with


def open_hubert(
    path: Path, *, normalise: bool = True, device: str = "cpu"
) -> "HubertModel":
    """Open an ONNX file of HuBERT, which maps a signal at 16 kHz to frames of 768 values.

    `normalise` scales each signal to zero mean and unit variance, as Hugging Face does and
    torchaudio does not. A signal of fewer than 400 samples has no frame, and is an error. So is one
    longer than 60 s: every frame attends to every other, which takes 1.6 GB for 60 s.
    """
    session = open_session(path, device=device)
    name = find_input(path, session).name
    outputs = [output.name for output in session.get_outputs()]

    def encode(signals: Float32Array) -> Float32Array:
        """Return the frames of signals of one length, (n, frames, 768)."""
        (frames,) = run(path, session, name, signals, outputs)
        return frames

    return HubertModel(path, encode, normalise)


def open_hubert_torch(
    weights: Path,
    layer: int,
    *,
    normalise: bool = True,
    mean: bool = False,
    device: str = "cuda",
    threads: int = 1,
    precision: str = "float32",
) -> "HubertModel":
    """Build a layer from Hugging Face weights (see `export_hubert`) and run it with torch.

    With `mean` it returns the mean of the frames as the only one: copying all frames from a GPU
    takes as long as computing them.
    """
    torch, model = build_hubert(weights, layer)
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise OptionError("device: torch finds no cuda; use cpu")
    torch.set_num_threads(threads)
    dtype = getattr(torch, precision)
    model.to(device, dtype)

    def encode(signals: Float32Array) -> Float32Array:
        """Return the frames of signals of one length, (n, frames, 768); with `mean` (n, 1, 768)."""
        # cuDNN plans again for each new shape, which takes longer than a small batch.
        use_cudnn = len(signals) >= CUDNN_BATCH
        cudnn = torch.backends.cudnn.flags(enabled=use_cudnn, allow_tf32=False)
        with torch.inference_mode(), cudnn:
            batch = torch.from_numpy(signals).to(device, dtype)
            frames = model(batch).last_hidden_state.float()
            if mean:
                frames = frames.mean(dim=1, keepdim=True)
        return np.array(frames.cpu().numpy(), np.float32)

    return HubertModel(weights, encode, normalise, mean)


@dataclass(frozen=True)
class HubertModel:
    """A model from (samples,) to (frames, 768) that checks its input and output.

    `encode` maps signals of one length, (n, samples), to (n, frames, 768).
    """

    path: Path
    encode: Model
    normalise: bool
    mean: bool = False

    def __call__(self, signal: Float32Array) -> Float32Array:
        """Return the frames of a signal."""
        frames: Float32Array = self.encode_batch(signal[np.newaxis])[0]
        return frames

    def encode_batch(self, signals: Float32Array) -> Float32Array:
        """Return the frames of signals of one length, (n, frames, 768)."""
        count, samples = signals.shape
        if samples > MAX_S * RATE_HZ:
            raise InputError(
                f"HuBERT: expected at most {MAX_S:g} s, got {samples / RATE_HZ:.1f} s; "
                "cut it shorter"
            )
        prepared = np.empty(signals.shape, np.float32)
        for row, signal in enumerate(signals):
            check_signal(signal, shortest=FIELD)
            if self.normalise:
                mean = float(np.mean(signal, dtype=np.float64))
                variance = float(np.var(signal, dtype=np.float64))
                signal = (signal - mean) / math.sqrt(variance + VARIANCE_FLOOR)
            prepared[row] = signal
        frames = self.encode(prepared)
        frame_count = 1 if self.mean else (samples - FIELD) // STRIDE + 1
        expected = (frame_count, WIDTH)
        if frames.shape != (count, *expected):
            raise InputError(
                f"{self.path}: expected frames of shape {expected} for {samples} samples, "
                f"got {frames.shape[1:]}"
            )
        return frames


def build_hubert(weights: Path, layer: int) -> tuple[Any, Any]:
    """Return torch, and HuBERT with the first `layer` layers, from Hugging Face weights."""
    # Read when transformers is first imported
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    torch = import_package("torch", TORCH_EXTRA)
    transformers = import_package("transformers", TORCH_EXTRA)
    with explain_errors(weights, "read as weights of HuBERT"):
        config = transformers.HubertConfig()
        path = weights.with_name("config.json")
        if path.exists():
            config = transformers.HubertConfig.from_json_file(path)
        config.num_hidden_layers = layer
        # Only training masks; without it, its tensor may be missing.
        config.mask_time_prob = 0.0
        config.mask_feature_prob = 0.0
        model = transformers.HubertModel(config)
        if weights.suffix == ".safetensors":
            content = import_package("safetensors.torch", TORCH_EXTRA).load_file(
                weights
            )
        else:  # a pickle, which may hold tensors only
            content = torch.load(weights, map_location="cpu", weights_only=True)
        tensors = {
            name.removeprefix("hubert."): tensor for name, tensor in content.items()
        }
        missing = model.load_state_dict(tensors, strict=False).missing_keys
    if missing:
        raise InputError(
            f"{weights}: {count_text(len(missing), 'tensor')} of HuBERT missing, the first is "
            f"{missing[0]}; is the file complete?"
        )
    return torch, model.float().eval()


def _make_noise(seconds: float) -> Float32Array:
    """Return noise at the model's rate, always the same, to try a model with."""
    samples = round(RATE_HZ * seconds)
    return np.random.default_rng(0).standard_normal(samples).astype(np.float32)


HUGGING_FACE = "https://huggingface.co"
# Files of a revision never change; the checksums are those that several projects publish.
HUBERT = f"{HUGGING_FACE}/facebook/hubert-base-ls960/resolve"
HUBERT_REVISION = "dba3bb02fda4248b6e082697eee756de8fe8aa8a"
HUBERT_ONNX_REVISION = "6d40b9586c1c5106a6f7da2d6e465175afeb0fbb"
ENCODERS = (
    EncoderSpec(
        name="hubert-base-l2",
        title="HuBERT base layer 2 (trained on human speech)",
        dimension=768,
        rate_hz=16000,
        band_hz=(100, 8000),
        load=f"{__name__}:load_hubert",
        licence="Apache-2.0",
        loudness_effect="does not change it: each segment is scaled to unit variance",
        options={"layer": 2, "normalise": True, "precision": "float32"},
        limits={
            "layer": (1, LAYERS),
            "precision": ("float32", "float16", "bfloat16"),  # on a GPU
        },
        extra="onnx",
        packages=ONNX_PACKAGES,
        weights=(
            Weight(
                "model.onnx",
                f"{HUGGING_FACE}/Xenova/hubert-base-ls960/resolve/{HUBERT_ONNX_REVISION}"
                "/onnx/model.onnx",
            ),
        ),
        alternatives=(
            Weight(
                "pytorch_model.bin",
                f"{HUBERT}/{HUBERT_REVISION}/pytorch_model.bin",
                size=377_569_754,
                sha256="062249fffb353eab67547a2fbc129f7c31a2f459faf641b19e8fb007cc5c48ad",
            ),
            Weight("model.safetensors", f"{HUBERT}/main/model.safetensors"),
        ),
        weights_of="hubert-base-l2",
        pace=0.05,
        citation=(
            "W.-N. Hsu et al. (2021): HuBERT: Self-Supervised Speech Representation Learning "
            "by Masked Prediction of Hidden Units. IEEE/ACM Transactions on Audio, Speech, "
            "and Language Processing 29."
        ),
        gpu=True,
        parallel=True,
        tested_with_real_weights=False,
    ),
)
PATTERN = "hubert-base-lN"


def match_name(name: str) -> EncoderSpec | None:
    """Return the encoder of `hubert-base-lN`, None for other names."""
    match = re.fullmatch(r"hubert-base-l([1-9]\d?)", name)
    if match is None or int(match[1]) > LAYERS:
        return None
    layer = int(match[1])
    return replace(
        ENCODERS[0],
        name=name,
        title=f"HuBERT base layer {layer} (trained on human speech)",
        options={**ENCODERS[0].options, "layer": layer},
    )
