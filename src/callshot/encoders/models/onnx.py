"""ONNX models: a file comes in, a model that turns windows into vectors goes out.

ONNX Runtime computes every output that a file declares, requested or not: `cut_graph` cuts a file
to those that are needed. Its wheels from 1.29 on send telemetry by default, which is switched off.
"""

import math
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from callshot.encoders.spec import EncoderSpec
from callshot.encoders.weights import explain_errors, import_package
from callshot.encoders.windows import Float32Array, Model, WindowOptions
from callshot.errors import InputError, OptionError, printable, suggest
from callshot.files import check_regular_file

ONNX_PACKAGES = ("onnxruntime", "onnx")
PROVIDERS: dict[str, list[Any]] = {
    "cpu": ["CPUExecutionProvider"],
    # TF32 would cost three digits. HEURISTIC finds the same algorithm each time, and is quick for
    # every new length.
    "cuda": [
        (
            "CUDAExecutionProvider",
            {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"},
        )
    ],
}
FLOAT_TYPES = ("tensor(float)", "tensor(double)", "tensor(float16)")
OPENED = "opened as an ONNX model"


def load_onnx(spec: EncoderSpec, *, device: str, **_: object) -> Model:
    """Open a model of windows: of the catalogue, cut once to its vector, or of the user."""
    assert spec.windowing is not None
    output = None
    if spec.output:
        # Four fifths of the file turn the vector into scores of species, which nobody reads.
        cut = partial(cut_graph, outputs=[spec.output])
        path = spec.derive("embedding-1.onnx", cut)
    else:
        path = Path(str(spec.options["path"]))
        output = str(spec.options["output"]) or None
        read_model(path)  # raises if its weights are in other files
    return open_window_model(
        path,
        samples=spec.windowing.window,
        dimension=spec.dimension,
        output=output,
        device=device,
    )


def read_model(path: Path) -> Any:
    """Read an ONNX file; raise InputError if its weights are in other files."""
    onnx = import_package("onnx", "onnx")
    with explain_errors(path, OPENED):
        check_regular_file(path)
        model = onnx.load(path, load_external_data=False)
    # Weights in other files would be missing in the fingerprint.
    if any(tensor.external_data for tensor in model.graph.initializer):
        raise InputError(
            f"{path}: its weights are in other files; "
            "save it as one file (onnx.save, without external data)"
        )
    return model


def open_session(path: Path, *, device: str = "cpu") -> Any:
    """Open an ONNX file for inference; `device` is cpu or cuda."""
    runtime = _import_runtime()
    if device == "cuda":
        if not has_cuda():
            providers = ", ".join(runtime.get_available_providers())
            raise OptionError(
                f"device: cuda is not in this ONNX Runtime, which has {providers}; "
                "pip install onnxruntime-gpu instead of onnxruntime, or use cpu"
            )
        if hasattr(runtime, "preload_dlls"):
            runtime.preload_dlls()  # finds the CUDA libraries that pip installed
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1  # several threads call a session at once
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    # It stores a plan for every length of a signal: memory would grow with the segments.
    options.enable_mem_pattern = False
    options.log_severity_level = 4  # errors are raised, and need not be printed too
    # Waiting threads leave the cores to others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with explain_errors(path, OPENED):
        check_regular_file(path)
        with path.open("rb"):  # if this fails, the message is the one of the system
            pass
        session = runtime.InferenceSession(
            str(path), options, providers=PROVIDERS[device], enable_fallback=0
        )
    session.disable_fallback()  # a failing GPU must not be replaced by the CPU in silence
    if device == "cuda" and "CUDAExecutionProvider" not in session.get_providers():
        raise OptionError(
            "device: cuda did not start (its libraries are missing or do not match); use cpu"
        )
    return session


def open_window_model(
    path: Path,
    *,
    samples: int,
    dimension: int,
    output: str | None = None,
    device: str = "cpu",
) -> Model:
    """Open a model that maps windows, (n, samples), to vectors, (n, dimension).

    `output` names the tensor of the vectors; see `_find_output`. A file with a fixed batch of 1 is
    run window by window. Raise InputError if the file has other inputs, outputs or sizes.
    """
    session = open_session(path, device=device)
    with explain_errors(path, OPENED):
        wave = find_input(path, session)
        vector = _find_output(path, session, output, dimension)
        # A free size is a name or None in the file. An output without a shape has no last size,
        # and is checked when the model has run.
        batch, length = wave.shape
        sizes = (batch, length, *vector.shape[-1:])
        for size, expected_size in zip(sizes, (1, samples, dimension), strict=False):
            if isinstance(size, int) and size != expected_size:
                raise InputError(
                    f"{path}: expected windows (batch, {samples}) to vectors (batch, "
                    f"{dimension}) with a free batch or 1, got "
                    f"{_describe_tensors([wave, vector])}; "
                    "is this the right file?"
                )
    input_name = wave.name
    names = [vector.name]

    def embed_windows(windows: Float32Array) -> Float32Array:
        """Return the vectors of windows, one by one if the batch of the file is 1."""
        if batch == 1 and len(windows) > 1:
            rows = [embed_windows(window[np.newaxis]) for window in windows]
            return np.concatenate(rows)
        (vectors,) = run(path, session, input_name, windows, names)
        if vectors.shape != (len(windows), dimension):
            raise InputError(
                f"{path}: expected vectors of shape {(len(windows), dimension)}, "
                f"got {vectors.shape}"
            )
        return vectors

    return embed_windows


def run(
    path: Path, session: Any, name: str, signal: Float32Array, outputs: Sequence[str]
) -> list[Float32Array]:
    """Run a session on one input; return copies of the named outputs as float32."""
    batch = np.ascontiguousarray(signal, np.float32)
    with explain_errors(path, f"run on an input of shape {signal.shape}"):
        arrays = session.run(outputs, {name: batch})
    return [np.array(array, np.float32) for array in arrays]


def cut_graph(source: Path, target: Path, outputs: Sequence[str]) -> None:
    """Write the part of an ONNX file that computes the named tensors, which become its outputs.

    The bits of their values stay the same. If no tensor has a name, the last one that begins with
    it is taken: converters add endings to names.
    """
    onnx = import_package("onnx", "onnx")
    model = read_model(source)
    with explain_errors(source, OPENED):
        graph = model.graph
        computed = [name for node in graph.node for name in node.output if name]
        names = []  # of the new outputs
        for output in outputs:
            matches = [name for name in computed if name.startswith(output)]
            if not matches:
                message = f"{source}: no tensor {output!r}{suggest(output, computed)}"
                raise InputError(printable(message))
            names.append(output if output in matches else matches[-1])

        _remove_unneeded(graph, names)
        tensors = {tensor.name: tensor for tensor in (*graph.value_info, *graph.output)}
        kept = [onnx.ValueInfoProto(name=name) for name in names]
        for tensor in kept:
            tensor.CopyFrom(tensors.get(tensor.name, tensor))
        del graph.output[:]
        graph.output.extend(kept)
        del graph.value_info[:]
        del graph.quantization_annotation[:]
        has_unknown_type = [tensor.type.WhichOneof("value") is None for tensor in kept]
        if any(has_unknown_type):  # of inner tensors, which a file need not describe
            model = onnx.shape_inference.infer_shapes(model)
            del model.graph.value_info[:]
        content = model.SerializeToString(deterministic=True)
    target.write_bytes(content)
    open_session(target)


def _remove_unneeded(graph: Any, outputs: Sequence[str]) -> None:
    """Remove from an ONNX graph, in place, all nodes, inputs and weights that no output needs."""
    needed = set(outputs)
    # Nodes are in the order of computation: from the last to the first, remove each whose outputs
    # no later node needs.
    for position in reversed(range(len(graph.node))):
        node = graph.node[position]
        # An output that a node does not compute has an empty name.
        if needed.isdisjoint(filter(None, node.output)):
            del graph.node[position]
        else:
            needed.update(_list_inputs(node))
    for entries in (graph.input, graph.initializer):
        for position in reversed(range(len(entries))):
            if entries[position].name not in needed:
                del entries[position]


def _list_inputs(node: Any) -> Iterator[str]:
    """Yield the tensors that a node reads, also in the branches and loops inside it."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for output in graph.output:  # a branch may return a tensor from outside it
                yield output.name
            for inner in graph.node:
                yield from _list_inputs(inner)


def find_input(path: Path, session: Any) -> Any:
    """Return the only input of a model, which must take waveforms: float32 (batch, samples)."""
    inputs = session.get_inputs()
    if len(inputs) == 1:
        (tensor,) = inputs
        if tensor.type == "tensor(float)" and len(tensor.shape) == 2:
            return tensor
    raise InputError(
        f"{path}: expected one input of waveforms, tensor(float) [batch, samples], "
        f"got {_describe_tensors(inputs)}"
    )


def _find_output(path: Path, session: Any, name: str | None, dimension: int) -> Any:
    """Return the output of a model that is its vector, which must be in floats.

    Without a name it is the only output, or of several the only matrix of `dimension` columns.
    """
    matches = outputs = session.get_outputs()
    expected = f"one output of {dimension} dimensions"
    if name is not None:
        expected = f"the output {name!r}"
        matches = [tensor for tensor in outputs if tensor.name == name]
    elif len(outputs) > 1:
        matches = [tensor for tensor in outputs if tensor.shape[1:] == [dimension]]
    if len(matches) != 1 or matches[0].type not in FLOAT_TYPES:
        raise InputError(
            f"{path}: expected {expected}, in floats, got {_describe_tensors(outputs)}"
        )
    return matches[0]


def _describe_tensors(tensors: Sequence[Any]) -> str:
    """Return name, type and shape of tensors for a message."""
    texts = [f"{tensor.name} {tensor.type} {tensor.shape}" for tensor in tensors]
    return printable(", ".join(texts))


def has_cuda() -> bool:
    """Return whether the installed ONNX Runtime can use a GPU."""
    return "CUDAExecutionProvider" in _import_runtime().get_available_providers()


def _import_runtime() -> Any:
    """Import ONNX Runtime with its telemetry switched off."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when the package is first imported
    runtime = import_package("onnxruntime", "onnx")
    runtime.disable_telemetry_events()  # other code may have imported it before
    return runtime


PATTERN = "onnx:PATH"
PREFIX = "onnx:"


def match_name(name: str) -> EncoderSpec | None:
    """Return the encoder of `onnx:PATH`, None for other names; options must be given."""
    if not name.startswith(PREFIX):
        return None
    path = Path(name.removeprefix(PREFIX))
    return EncoderSpec(
        name=f"{PREFIX}{path.name}",
        title=f"the ONNX model {path}",
        dimension=1,  # this and the rate are replaced by the required options
        rate_hz=1,
        load=f"{__name__}:load_onnx",
        licence="its own",
        loudness_effect="depends on the model",
        windowing=WindowOptions(rate_hz=1, window_s=1.0, normalisation="none"),
        options={"path": str(path.absolute()), "output": "", "dimension": 1},
        limits={"dimension": (1, math.inf)},
        required=("rate_hz", "window_s", "dimension"),
        extra="onnx",
        packages=ONNX_PACKAGES,
        gpu=True,
        parallel=True,
    )
