"""ONNX models: a file comes in, a model that turns windows into vectors goes out.

    file → session → model(windows, float32 (n, samples)) → vectors, float32 (n, dimension)

ONNX Runtime computes every output that a file declares, even if nobody asks for it: `cut_graph`
cuts a file to the outputs that are needed. Its wheels from 1.29 on send telemetry by default; every
session here switches that off.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from callshot.encoders.validation import Float32Array, import_package
from callshot.errors import (
    CallshotError,
    InputError,
    OptionError,
    check_choice,
    check_whole_number,
    printable,
    suggest,
)
from callshot.files import (
    atomic_path,
    check_regular_file,
    error_reason,
    explain_unreadable,
)

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


def open_session(path: Path, *, device: str = "cpu", threads: int = 1) -> Any:
    """Open an ONNX file for inference; `device` is cpu or cuda.

    >>> open_session(Path("missing.onnx"))
    Traceback (most recent call last):
    callshot.errors.InputError: missing.onnx: cannot be read (No such file or directory)
    """
    check_choice("device", device, list(PROVIDERS))
    check_whole_number("threads", threads)
    runtime = _import_runtime()
    if device == "cuda":
        _check_cuda(runtime)
    with explain_errors(path):
        check_regular_file(path)
        with path.open("rb"):  # if this fails, the message is the one of the system
            pass
        session = runtime.InferenceSession(
            str(path),
            _session_options(runtime, threads),
            providers=PROVIDERS[device],
            enable_fallback=0,
        )
        _check_names(path, session)
    session.disable_fallback()  # a failing GPU must not be replaced by the CPU in silence
    if device == "cuda" and "CUDAExecutionProvider" not in session.get_providers():
        raise OptionError(
            "device: cuda did not start (its libraries are missing or do not match); use cpu"
        )
    return session


def open_windows(
    path: Path,
    *,
    samples: int,
    dimension: int,
    output: str | None = None,
    device: str = "cpu",
    threads: int = 1,
) -> "WindowModel":
    """Open a model whose only input is a batch of waveforms of so many samples.

    `output` may be None if there is one output, or one matrix of `dimension` columns. A file with a
    fixed batch of 1 is run row by row.

    >>> import onnx, tempfile
    >>> head = '<ir_version: 8, opset_import: ["": 17]> g '
    >>> text = "(float[n, 4] wave) => (float[n, 1] mean) { mean = ReduceMean <axes = [1]> (wave) }"
    >>> path = Path(tempfile.mkdtemp()) / "mean.onnx"
    >>> onnx.save(onnx.parser.parse_model(head + text), path)
    >>> model = open_windows(path, samples=4, dimension=1)
    >>> model(np.array([[1, 2, 3, 4], [0, 0, 0, 0]], np.float32)).tolist()
    [[2.5], [0.0]]
    """
    session = open_session(path, device=device, threads=threads)
    wave = find_input(path, session)
    vector = _find_output(path, session, output, dimension)
    batch, length = wave.shape
    _check_size(f"{path}: input {wave.name}, samples", length, samples)
    width = vector.shape[-1]
    _check_size(f"{path}: output {vector.name}, dimension", width, dimension)
    if isinstance(batch, int) and batch != 1:
        raise InputError(
            f"{path}: input {wave.name}: expected a free batch or 1, got {batch}; export it again"
        )
    return WindowModel(
        path=path,
        session=session,
        input=wave.name,
        output=vector.name,
        samples=samples,
        dimension=dimension,
        row_by_row=batch == 1,
    )


@dataclass(frozen=True)
class WindowModel:
    """A model from float32 (n, samples) to (n, dimension)."""

    path: Path
    session: Any
    input: str
    output: str
    samples: int
    dimension: int
    row_by_row: bool

    def __call__(self, windows: Float32Array) -> Float32Array:
        """Return a vector for each window."""
        if len(windows) == 0 or windows.shape[1:] != (self.samples,):
            raise InputError(
                f"{self.path}: expected windows of shape (n, {self.samples}), one or more, "
                f"got {windows.shape}"
            )
        if not self.row_by_row:
            return self.run_batch(windows)
        rows = [self.run_batch(window[np.newaxis]) for window in windows]
        return np.concatenate(rows)

    def run_batch(self, windows: Float32Array) -> Float32Array:
        """Return a vector for each window of one batch."""
        outputs = [self.output]
        (vectors,) = run(self.path, self.session, self.input, windows, outputs)
        expected = (len(windows), self.dimension)
        self.check_shape(self.output, vectors, expected)
        return vectors

    def check_shape(
        self, output: str, array: Float32Array, expected: tuple[int, ...]
    ) -> None:
        """Check the shape of an output."""
        if array.shape != expected:
            raise InputError(
                f"{self.path}: output {output}: expected shape {expected}, got {array.shape}"
            )


def run(
    path: Path,
    session: Any,
    name: str,
    signal: Float32Array,
    outputs: Sequence[str],
) -> list[Float32Array]:
    """Run a session on one input; outputs are copied, so that the next run cannot change them."""
    batch = np.ascontiguousarray(signal, np.float32)
    try:
        arrays = session.run(outputs, {name: batch})
    # The runtime has a dozen error classes without a common base.
    except Exception as error:
        raise InputError(
            f"{path}: cannot be run on an input of shape {signal.shape} ({error_reason(error)})"
        ) from error
    return [np.array(array, np.float32) for array in arrays]


def cut_graph(source: Path, target: Path, outputs: Sequence[str]) -> None:
    """Write the part of an ONNX file that the named tensors need; their bits stay the same.

    External weights beside the source are read if the cut needs them; the cut is one file, below
    2 GB.

    >>> import onnx, tempfile
    >>> head = '<ir_version: 8, opset_import: ["": 17]> g '
    >>> text = "(float[n, 4] x) => (float[n, 4] z) { y = Abs(x) z = Neg(y) }"
    >>> folder = Path(tempfile.mkdtemp())
    >>> onnx.save(onnx.parser.parse_model(head + text), folder / "all.onnx")
    >>> cut_graph(folder / "all.onnx", folder / "cut.onnx", ["y"])
    >>> [node.op_type for node in onnx.load(folder / "cut.onnx").graph.node]
    ['Abs']
    """
    onnx = import_package("onnx", "onnx")
    with explain_errors(source):
        model = onnx.load(source, load_external_data=False)
        _check_tensors(source, model.graph, outputs)
        _prune(onnx, model.graph, outputs)
        onnx.external_data_helper.load_external_data_for_model(
            model, str(source.parent)
        )
        if model.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF:
            raise InputError(
                f"{source}: cut to {', '.join(outputs)} it is still over 2 GB, "
                "more than one file can hold"
            )
        model = _infer_types(onnx, model)
        onnx.checker.check_model(model)
        content = model.SerializeToString(deterministic=True)
    with atomic_path(target) as temporary:
        temporary.write_bytes(content)
        open_session(temporary)


def read_nodes(path: Path) -> Any:
    """Return the nodes of an ONNX file, in the order of computation."""
    onnx = import_package("onnx", "onnx")
    with explain_errors(path):
        return onnx.load(path, load_external_data=False).graph.node


def check_single_file(path: Path) -> None:
    """Check that a model has no external weights: they would be missing in its fingerprint."""
    onnx = import_package("onnx", "onnx")
    with explain_errors(path):
        check_regular_file(path)
        model = onnx.load(str(path), load_external_data=False)
    external = onnx.TensorProto.EXTERNAL
    if any(tensor.data_location == external for tensor in model.graph.initializer):
        raise InputError(
            f"{path}: its weights are in other files; "
            "save it as one file (onnx.save, without external data)"
        )


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


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn any error of a library into one InputError about this file."""
    try:
        with explain_unreadable(path):
            yield
    except CallshotError:
        raise
    except Exception as error:
        raise InputError(
            f"{path}: cannot be opened as an ONNX model ({error_reason(error)})"
        ) from error


def has_cuda() -> bool:
    """Return whether the installed ONNX Runtime can use a GPU."""
    return "CUDAExecutionProvider" in _import_runtime().get_available_providers()


def _import_runtime() -> Any:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # read when the package is first imported
    runtime = import_package("onnxruntime", "onnx")
    runtime.disable_telemetry_events()  # other code may have imported it before
    return runtime


def _check_cuda(runtime: Any) -> None:
    if not has_cuda():
        providers = ", ".join(runtime.get_available_providers())
        raise OptionError(
            f"device: cuda is not in this ONNX Runtime, which has {providers}; "
            "pip install onnxruntime-gpu instead of onnxruntime, or use cpu"
        )
    if hasattr(runtime, "preload_dlls"):
        runtime.preload_dlls()  # finds the CUDA libraries that pip installed


def _check_names(path: Path, session: Any) -> None:
    """Check that names are printable; in a damaged file they are not, or raise when read."""
    tensors = (*session.get_inputs(), *session.get_outputs())
    names = [f"{tensor.name}{tensor.shape}" for tensor in tensors]
    if not all(name.isprintable() for name in names):
        raise InputError(
            f"{path}: expected printable names of inputs and outputs, got {names}"
        )


def _session_options(runtime: Any, threads: int) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    # It stores a plan for every length of a signal: memory would grow with the segments.
    options.enable_mem_pattern = False
    options.log_severity_level = 4  # errors are raised, and need not be printed too
    # Waiting threads leave the cores to others.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _find_output(path: Path, session: Any, name: str | None, dimension: int) -> Any:
    """Return the named output; without a name the only one, or the only fitting matrix."""
    outputs = session.get_outputs()
    expected = f"one output of {dimension} dimensions"
    matches = outputs
    if name is not None:
        expected = f"the output {name!r}"
        matches = [output for output in outputs if output.name == name]
    elif len(outputs) > 1:
        matches = [output for output in outputs if output.shape[1:] == [dimension]]
    if len(matches) == 1:
        (match,) = matches
        if match.type in FLOAT_TYPES and match.shape:
            return match
    raise InputError(
        f"{path}: expected {expected}, in floats, got {_describe_tensors(outputs)}"
    )


def _describe_tensors(tensors: Sequence[Any]) -> str:
    texts = [f"{tensor.name} {tensor.type} {tensor.shape}" for tensor in tensors]
    return ", ".join(texts)


def _check_size(name: str, size: object, expected: int) -> None:
    """Check a size that a file declares; it may also leave it free."""
    if isinstance(size, int) and size != expected:
        raise InputError(
            f"{name}: expected {expected}, got {size}; is this the right file?"
        )


def _check_tensors(path: Path, graph: Any, outputs: Sequence[str]) -> None:
    names: list[str] = []
    for node in graph.node:
        names += filter(None, node.output)
    for output in outputs:
        if output not in names:
            hint = suggest(output, names)
            raise InputError(printable(f"{path}: no tensor {output!r}{hint}"))


def _prune(onnx: Any, graph: Any, outputs: Sequence[str]) -> None:
    """Remove everything that the outputs do not need; nodes are in the order of computation."""
    needed = set(outputs)
    for position in reversed(range(len(graph.node))):
        node = graph.node[position]
        if needed.isdisjoint(filter(None, node.output)):
            del graph.node[position]
        else:
            needed.update(_list_inputs(node))
    tensors = {tensor.name: tensor for tensor in (*graph.value_info, *graph.output)}
    copies = []
    for name in outputs:
        tensor = onnx.ValueInfoProto()
        tensor.CopyFrom(tensors.get(name, onnx.ValueInfoProto(name=name)))
        copies.append(tensor)
    del graph.output[:]
    graph.output.extend(copies)
    del graph.value_info[:]
    del graph.quantization_annotation[:]
    _keep(graph.input, needed)
    _keep(graph.initializer, needed)


def _list_inputs(node: Any) -> Iterator[str]:
    """Yield the tensors that a node reads, also in the branches and loops inside it."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for output in graph.output:
                yield output.name
            for inner in graph.node:
                yield from _list_inputs(inner)


def _keep(entries: Any, names: set[str]) -> None:
    """Delete the entries whose name is not among the given ones."""
    for position in reversed(range(len(entries))):
        if entries[position].name not in names:
            del entries[position]


def _infer_types(onnx: Any, model: Any) -> Any:
    """Add type and shape to outputs that were inner tensors."""
    if any(output.type.WhichOneof("value") is None for output in model.graph.output):
        model = onnx.shape_inference.infer_shapes(model)
        del model.graph.value_info[:]
    return model
