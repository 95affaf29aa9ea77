"""HuBERT base, cut to a layer: samples at 16 kHz come in, the sequence of their frames, 768-d every 20 ms, goes out.

    published 12-layer ONNX → cut_hubert ─┐
    Hugging Face weights → export_hubert ─┴→ file of N layers → open_hubert → model(signal) → (frames, 768)
    Hugging Face weights → open_hubert_torch ─────────────────────────────────↗   the route for a GPU

Layer N is hidden state N of the whole model; nothing behind it is computed. A signal goes in alone and at its own
length: the first convolution is normalised over time, so that padding would change every frame.
"""

import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.encoders.onnx import cut_graph, need_package, only_input, open_session, reading, run
from callshot.errors import InputError, OptionError
from callshot.files import atomic_path, error_reason

Whole = Callable[[NDArray[np.float32]], NDArray[np.float32]]
LAYERS = 12
WIDTH = 768
RATE_HZ = 16_000
FIELD = 400  # samples that one frame sees
STRIDE = 320  # samples from frame to frame
LONGEST_S = 60.0  # the paper's longest segment has 44 s
FLOOR = (
    1e-7  # added to the variance, as Hugging Face's feature extractor does: silence stays silence
)
TORCH_EXTRA = "rivals"


def cut_hubert(source: Path, target: Path, layer: int) -> None:
    """Cut the published 12-layer ONNX file to a layer; tried on noise before it is kept.

    >>> cut_hubert(Path("model.onnx"), Path("l2.onnx"), 0)
    Traceback (most recent call last):
    callshot.errors.OptionError: layer: a whole number from 1 to 12, got 0
    """
    _refuse_layer(layer)
    output = _layer_output(source, layer)
    with atomic_path(target) as unfinished:
        cut_graph(source, unfinished, [output])
        try:
            open_hubert(unfinished)(_noise(1.0))
        except InputError as error:
            raise InputError(
                f"{source}: cut at layer {layer}, {output!r}, it is not HuBERT base ({error})"
            ) from error


def export_hubert(weights: Path, target: Path, layer: int) -> None:
    """Export a layer from Hugging Face weights, with torch and transformers; tried on noise before it is kept.

    `weights` is a model.safetensors or pytorch_model.bin, of which tensors alone are read. Without a config.json beside
    it, its configuration is that of HuBERT base.
    """
    torch, model = _build(weights, layer)
    need_package("onnxscript", TORCH_EXTRA)
    options = {
        "input_names": ["input_values"],
        "output_names": ["last_hidden_state"],
        "dynamic_shapes": ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},),
    }
    with atomic_path(target) as unfinished:
        with _quiet():
            example = (torch.from_numpy(_noise(1.0))[None],)
            torch.onnx.export(
                model,
                example,
                unfinished,
                dynamo=True,
                external_data=False,
                verbose=False,
                **options,
            )
        open_hubert(unfinished)(_noise(0.5))


def open_hubert(
    path: Path,
    *,
    normalise: bool = True,
    longest_s: float = LONGEST_S,
    device: str = "cpu",
    threads: int = 1,
) -> Whole:
    """Open a file that was cut or exported; the model turns (samples,) at 16 kHz into (frames, 768).

    `normalise` gives each signal zero mean and unit variance, as Hugging Face does and torchaudio does not. A signal
    of fewer than 400 samples has no frame, and is refused; so is one of more than `longest_s`, before it fills the
    memory: every frame attends to every other, which takes 0.6 GB for 30 s, 1.6 GB for 60 s and 5.5 GB for 120 s.

    >>> open_hubert(Path("gone.onnx"))
    Traceback (most recent call last):
    callshot.errors.InputError: gone.onnx: cannot be read (No such file or directory)
    """
    session = open_session(path, device=device, threads=threads)
    wave, outputs = only_input(path, session).name, [entry.name for entry in session.get_outputs()]
    if len(outputs) != 1:
        raise InputError(
            f"{path}: wanted one output, of frames, found {', '.join(outputs)}; cut the file to a layer"
        )
    return _whole(
        path,
        normalise,
        longest_s,
        lambda signal: run(path, session, wave, signal[None], outputs)[0][0],
    )


def open_hubert_torch(
    weights: Path,
    layer: int,
    *,
    normalise: bool = True,
    longest_s: float = LONGEST_S,
    device: str = "cuda",
    threads: int = 1,
) -> Whole:
    """Build a layer from Hugging Face weights (see `export_hubert`) and run it with torch, on a device of torch's."""
    torch, model = _build(weights, layer)
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise OptionError("device: cuda is not there for torch; use cpu")
    torch.set_num_threads(threads)
    model.to(device)

    def encode(signal: NDArray[np.float32]) -> NDArray[np.float32]:
        # cuDNN plans anew for each length, and segments have all lengths: that takes five times the work itself
        with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):
            frames = model(torch.from_numpy(signal)[None].to(device)).last_hidden_state[0]
        return np.array(frames.cpu().numpy(), np.float32)

    return _whole(weights, normalise, longest_s, encode)


def torch_has_cuda() -> bool:
    """Tell whether torch is there, and finds a GPU."""
    return find_spec("torch") is not None and bool(
        need_package("torch", TORCH_EXTRA).cuda.is_available()
    )


def _whole(path: Path, normalise: bool, longest_s: float, encode: Whole) -> Whole:
    def model(signal: NDArray[np.float32]) -> NDArray[np.float32]:
        frames = encode(_prepared(signal, normalise, longest_s))
        wanted = ((len(signal) - FIELD) // STRIDE + 1, WIDTH)
        if frames.shape != wanted:
            raise InputError(
                f"{path}: wanted frames of shape {wanted} for {len(signal)} samples, found {frames.shape}"
            )
        return frames

    return model


def _prepared(
    signal: NDArray[np.float32], normalise: bool, longest_s: float
) -> NDArray[np.float32]:
    """Refuse what has no frame or no meaning; give the rest zero mean and unit variance, if asked to."""
    if signal.ndim != 1 or len(signal) < FIELD:
        raise InputError(
            f"HuBERT: wanted (samples,), at least {FIELD} at 16 kHz, found {signal.shape}"
        )
    if len(signal) > longest_s * RATE_HZ:
        raise InputError(
            f"HuBERT: wanted at most {longest_s:g} s, found {len(signal) / RATE_HZ:.1f} s; cut it shorter"
        )
    if not np.isfinite(signal).all():
        raise InputError("HuBERT: wanted finite samples, found NaN or infinity")
    mean, variance = (
        float(np.mean(signal, dtype=np.float64)),
        float(np.var(signal, dtype=np.float64)),
    )
    scaled = (signal - mean) / math.sqrt(variance + FLOOR) if normalise else signal
    return np.ascontiguousarray(scaled, np.float32)


def _noise(seconds: float) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(round(RATE_HZ * seconds)).astype(np.float32)


def _refuse_layer(layer: int) -> None:
    if not 1 <= layer <= LAYERS:
        raise OptionError(f"layer: a whole number from 1 to {LAYERS}, got {layer!r}")


def _layer_output(source: Path, layer: int) -> str:
    """Find the tensor that a layer ends in: the last one that its last normalisation makes."""
    onnx = need_package("onnx", "onnx")
    with reading(source):
        nodes = onnx.load(source, load_external_data=False).graph.node
    found: dict[int, str] = {}
    for node in (
        nodes
    ):  # the last layer's tensor is named as the model's output: its node tells where it stands
        place = re.search(r"layers\.(\d+)/final_layer_norm/", f"{node.name} {node.output[0]}")
        if place is not None:
            found[int(place[1]) + 1] = node.output[0]
    if layer not in found:
        layers = (
            f"layers {min(found)} to {max(found)}"
            if found
            else "no layer that ends in final_layer_norm"
        )
        raise InputError(
            f"{source}: wanted layer {layer} of an ONNX export of HuBERT base, found {layers}"
        )
    return found[layer]


def _build(weights: Path, layer: int) -> tuple[Any, Any]:
    """Return torch, and a model of the first layers alone; a tensor that the file lacks is refused, not drawn."""
    _refuse_layer(layer)
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ.setdefault(name, "1")  # is read when transformers is first imported
    torch, transformers = (
        need_package("torch", TORCH_EXTRA),
        need_package("transformers", TORCH_EXTRA),
    )
    try:
        model = transformers.HubertModel(
            _config(transformers, weights.with_name("config.json"), layer)
        )
        tensors = {
            name.removeprefix("hubert."): tensor
            for name, tensor in _tensors(torch, weights).items()
        }
        missing = model.load_state_dict(tensors, strict=False).missing_keys
    except Exception as error:  # safetensors, torch, json and transformers have their own
        raise InputError(
            f"{weights}: cannot be read as weights of HuBERT ({error_reason(error)})"
        ) from error
    if missing:
        raise InputError(
            f"{weights}: {len(missing)} tensors of HuBERT are missing, {missing[0]} first; is it whole?"
        )
    return torch, model.float().eval()


def _config(transformers: Any, path: Path, layer: int) -> Any:
    config = (
        transformers.HubertConfig.from_json_file(path)
        if path.exists()
        else transformers.HubertConfig()
    )
    config.num_hidden_layers = layer
    config.mask_time_prob = config.mask_feature_prob = (
        0.0  # for training alone; its tensor need not be there
    )
    return config


def _tensors(torch: Any, weights: Path) -> Any:
    """Read safetensors, or what torch saved: its pickle is read by a machine that makes tensors and nothing else."""
    if weights.suffix == ".safetensors":
        return need_package("safetensors.torch", TORCH_EXTRA).load_file(weights)
    return torch.load(weights, map_location="cpu", weights_only=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep warnings and logs about the exporter's own parts from the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)
