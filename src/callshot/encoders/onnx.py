"""ONNX models: a file comes in, a model that turns windows into vectors goes out; a graph can be cut to what is needed.

    file → session → model(windows, float32 (n, samples)) → vectors, float32 (n, dimension)

ONNX Runtime computes every output that a file declares, whoever asks for it: a file is cut to the wanted output first.
Its wheels from 1.29 on send what they see to their maker unless told not to; every session here is opened so.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import CallshotError, InputError, OptionError, printable
from callshot.files import atomic_path, error_reason

PROVIDERS: dict[str, list[Any]] = {
    "cpu": ["CPUExecutionProvider"],
    # TF32 would cost three digits; a heuristic finds the same algorithm each time, and at once for each new length
    "cuda": [("CUDAExecutionProvider", {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"})],
}
FLOATS = ("tensor(float)", "tensor(double)", "tensor(float16)")


def open_session(path: Path, *, device: str = "cpu", threads: int = 1) -> Any:
    """Open an ONNX file for inference; `device` is cpu or cuda.

    >>> open_session(Path("gone.onnx"))
    Traceback (most recent call last):
    callshot.errors.InputError: gone.onnx: cannot be read (No such file or directory)
    """
    if device not in PROVIDERS:
        raise OptionError(f"device: wanted one of {', '.join(PROVIDERS)}, got {device!r}")
    if threads < 1:
        raise OptionError(f"threads: a whole number from 1, got {threads!r}")
    runtime = _runtime()
    _refuse_absent(runtime, device)
    options = _options(runtime, threads)
    with reading(path), path.open("rb"):  # for the system's own words where it cannot be
        session = runtime.InferenceSession(
            str(path), options, providers=PROVIDERS[device], enable_fallback=0
        )
        _refuse_names(path, session)
    session.disable_fallback()  # a failing GPU must not be replaced by the CPU in silence
    if device == "cuda" and "CUDAExecutionProvider" not in session.get_providers():
        raise OptionError(
            "device: cuda did not start (its libraries are missing, or do not fit); use cpu"
        )
    return session


def open_windows(
    path: Path,
    *,
    output: str | None = None,
    samples: int | None = None,
    dimension: int | None = None,
    device: str = "cpu",
    threads: int = 1,
) -> "WindowModel":
    """Open a model whose one input is a batch of waveforms; it returns a copied row for each window.

    `output` may be None where there is one output, or one that is a matrix, of that `dimension` if given. `samples` and
    `dimension`, where given, are what the file must have. A file whose batch is fixed to 1 is run row by row.

    >>> import onnx, tempfile
    >>> text = "(float[n, 4] wave) => (float[n, 1] mean) { mean = ReduceMean <axes = [1]> (wave) }"
    >>> path = Path(tempfile.mkdtemp()) / "mean.onnx"
    >>> onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g ' + text), path)
    >>> open_windows(path)(np.array([[1, 2, 3, 4], [0, 0, 0, 0]], np.float32)).tolist()
    [[2.5], [0.0]]
    """
    session = open_session(path, device=device, threads=threads)
    wave, found = only_input(path, session), _output(path, session, output, dimension)
    batch, length = wave.shape
    width = found.shape[-1] if found.shape else None
    if isinstance(batch, int) and batch != 1:
        raise InputError(
            f"{path}: input {wave.name}: wanted a free batch, or 1, found {batch}; export it again"
        )
    samples = _agreed(path, f"input {wave.name}, samples", samples, length)
    dimension = _agreed(path, f"output {found.name}, dimension", dimension, width)
    return WindowModel(
        path, session, wave.name, found.name, samples, dimension, row_by_row=batch == 1
    )


@dataclass(frozen=True)
class WindowModel:
    """A model of windows: float32 (n, samples) to float32 (n, dimension); None is a size that the file leaves free."""

    path: Path
    session: Any
    input: str
    output: str
    samples: int | None
    dimension: int | None
    row_by_row: bool

    def __call__(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a vector for each window."""
        if windows.ndim != 2 or len(windows) == 0 or self.samples not in (None, windows.shape[1]):
            wanted = f"(n, {self.samples or 'samples'})"
            raise InputError(
                f"{self.path}: wanted windows of shape {wanted}, one or more, found {windows.shape}"
            )
        step = 1 if self.row_by_row else len(windows)
        parts = [self.run_batch(windows[at : at + step]) for at in range(0, len(windows), step)]
        return np.concatenate(parts)

    def run_batch(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a vector for each of the windows that the file takes at once."""
        vectors = run(self.path, self.session, self.input, windows, [self.output])[0]
        if (
            vectors.ndim != 2
            or len(vectors) != len(windows)
            or self.dimension not in (None, vectors.shape[1])
        ):
            wanted = f"({len(windows)}, {self.dimension or 'dimension'})"
            raise InputError(
                f"{self.path}: output {self.output}: wanted shape {wanted}, found {vectors.shape}"
            )
        return vectors


def run(
    path: Path, session: Any, name: str, signal: NDArray[np.float32], outputs: Sequence[str]
) -> list[NDArray[np.float32]]:
    """Run a session on one input; what it returns is copied, so that the next run cannot change it."""
    try:
        made = session.run(outputs, {name: np.ascontiguousarray(signal, np.float32)})
    except Exception as error:  # the runtime has a dozen classes of errors and no common one
        raise InputError(
            f"{path}: cannot be run on an input of shape {signal.shape} ({error_reason(error)})"
        ) from error
    return [np.array(values, np.float32) for values in made]


def cut_graph(source: Path, target: Path, outputs: Sequence[str]) -> None:
    """Write the part of an ONNX file that the named tensors need, all of it or nothing; the bits of each stay the same.

    Weights that lie in files beside the source are read where the cut needs them; the cut is one file, below 2 GB.

    >>> import onnx, tempfile
    >>> text = "(float[n, 4] x) => (float[n, 4] z) { y = Abs(x) z = Neg(y) }"
    >>> folder = Path(tempfile.mkdtemp())
    >>> onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g ' + text), folder / "all.onnx")
    >>> cut_graph(folder / "all.onnx", folder / "cut.onnx", ["y"])
    >>> [node.op_type for node in onnx.load(folder / "cut.onnx").graph.node]
    ['Abs']
    """
    onnx = need_package("onnx", "onnx")
    with reading(source):
        model = onnx.load(source, load_external_data=False)
        _refuse_unknown(source, model.graph, outputs)
        _prune(onnx, model.graph, outputs)
        onnx.external_data_helper.load_external_data_for_model(model, str(source.parent))
        if model.ByteSize() >= onnx.checker.MAXIMUM_PROTOBUF:
            raise InputError(
                f"{source}: cut to {', '.join(outputs)} it is still over 2 GB, more than one file may hold"
            )
        model = _with_types(onnx, model)
        onnx.checker.check_model(model)
        content = model.SerializeToString(deterministic=True)
    with atomic_path(target) as unfinished:
        unfinished.write_bytes(content)
        open_session(unfinished)


def refuse_external(path: Path) -> None:
    """Refuse a model that keeps weights in other files: these would not be in its fingerprint."""
    onnx = need_package("onnx", "onnx")
    with reading(path):
        model = onnx.load(str(path), load_external_data=False)
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise InputError(
            f"{path}: its weights are in other files; save it as one file (onnx.save, without external data)"
        )


def need_package(name: str, extra: str) -> Any:
    """Import a package that only some encoders need, or say how to install it.

    >>> need_package("no_such_package", "onnx")
    Traceback (most recent call last):
    callshot.errors.InputError: the package no_such_package is missing; install it with: pip install 'callshot[onnx]'
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        mend = f"install it with: pip install 'callshot[{extra}]'"
        raise InputError(f"the package {error.name} is missing; {mend}") from error
    except ImportError as error:
        raise InputError(f"the package {name} cannot be loaded ({error_reason(error)})") from error


def only_input(path: Path, session: Any) -> Any:
    """Return the one input of a model, which must hold float32 waveforms: (batch, samples)."""
    inputs = session.get_inputs()
    found = ", ".join(f"{entry.name} {entry.type} {entry.shape}" for entry in inputs)
    if len(inputs) != 1 or inputs[0].type != "tensor(float)" or len(inputs[0].shape) != 2:
        raise InputError(
            f"{path}: wanted one input of waveforms, tensor(float) [batch, samples], found {found}"
        )
    return inputs[0]


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged model makes a library throw into one InputError."""
    try:
        yield
    except CallshotError:
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error_reason(error)})") from error
    except Exception as error:
        raise InputError(
            f"{path}: cannot be opened as an ONNX model ({error_reason(error)})"
        ) from error


def _runtime() -> Any:
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # is read when the package is first imported
    runtime = need_package("onnxruntime", "onnx")
    runtime.disable_telemetry_events()  # somebody else may have imported it before
    return runtime


def has_cuda() -> bool:
    """Tell whether this ONNX Runtime is one for GPUs."""
    return "CUDAExecutionProvider" in _runtime().get_available_providers()


def _refuse_absent(runtime: Any, device: str) -> None:
    if device == "cuda" and not has_cuda():
        there = runtime.get_available_providers()
        mend = "pip install onnxruntime-gpu in place of onnxruntime, or use cpu"
        raise OptionError(
            f"device: cuda is not in this ONNX Runtime, which has {', '.join(there)}; {mend}"
        )
    if device == "cuda" and hasattr(runtime, "preload_dlls"):
        runtime.preload_dlls()  # finds the CUDA libraries that pip installed


def _refuse_names(path: Path, session: Any) -> None:
    """Refuse ends whose names cannot be shown, as damage makes them; reading them fails if they are no text at all."""
    names = [f"{end.name}{end.shape}" for end in (*session.get_inputs(), *session.get_outputs())]
    if not all(name.isprintable() for name in names):
        raise InputError(
            f"{path}: wanted names of inputs and outputs that can be printed, found {names}"
        )


def _options(runtime: Any, threads: int) -> Any:
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.enable_mem_pattern = (
        False  # it keeps a plan for each length it has met: memory would grow with segments
    )
    options.log_severity_level = 4  # errors come as exceptions, and need no second voice
    options.add_session_config_entry(
        "session.intra_op.allow_spinning", "0"
    )  # threads that wait leave the cores alone
    return options


def _output(path: Path, session: Any, name: str | None, dimension: int | None) -> Any:
    """Return the output of that name; without a name the only one, or the only matrix of that dimension."""
    outputs = session.get_outputs()
    fitting = [entry for entry in outputs if entry.name == name]
    if name is None:
        fitting = [
            entry for entry in outputs if len(outputs) == 1 or _is_matrix(entry.shape, dimension)
        ]
    if len(fitting) != 1 or fitting[0].type not in FLOATS:
        wanted = (
            f"one output of {dimension or 'some'} dimensions"
            if name is None
            else f"the output {name!r}"
        )
        found = ", ".join(f"{entry.name} {entry.type} {entry.shape}" for entry in outputs)
        raise InputError(f"{path}: wanted {wanted}, in floats, found {found}")
    return fitting[0]


def _is_matrix(shape: Sequence[object], dimension: int | None) -> bool:
    return len(shape) == 2 and (dimension is None or shape[1] == dimension)


def _agreed(path: Path, what: str, wanted: int | None, found: object) -> int | None:
    """Return a size: the wanted one, which the file must not contradict, or what the file has, unless it is free."""
    declared = found if isinstance(found, int) else None
    if wanted is not None and declared is not None and declared != wanted:
        raise InputError(
            f"{path}: {what}: wanted {wanted}, found {declared}; is this the right file?"
        )
    return declared if wanted is None else wanted


def _refuse_unknown(path: Path, graph: Any, outputs: Sequence[str]) -> None:
    names = [name for node in graph.node for name in node.output if name]
    for output in outputs:
        if output not in names:
            near = ", ".join(get_close_matches(output, names, n=3, cutoff=0.3)) or "none"
            raise InputError(
                printable(f"{path}: no tensor {output!r} is made in it; near names: {near}")
            )


def _prune(onnx: Any, graph: Any, outputs: Sequence[str]) -> None:
    """Leave in a graph what the outputs need; its nodes stand in the order in which they are computed."""
    needed = set(outputs)
    for i in reversed(range(len(graph.node))):
        if needed.isdisjoint(filter(None, graph.node[i].output)):
            del graph.node[i]
        else:
            needed.update(_reads(graph.node[i]))
    known = {entry.name: entry for entry in (*graph.value_info, *graph.output)}
    made = [known.get(name, onnx.ValueInfoProto(name=name)) for name in outputs]
    made = [onnx.ValueInfoProto.FromString(entry.SerializeToString()) for entry in made]
    del graph.output[:]
    graph.output.extend(made)
    _keep(graph.input, needed)
    _keep(graph.initializer, needed)
    del graph.value_info[:]
    _keep(graph.quantization_annotation, needed, lambda entry: entry.tensor_name)
    _keep(graph.sparse_initializer, needed, lambda entry: entry.values.name)


def _reads(node: Any) -> Iterator[str]:
    """Name what a node reads: its inputs, and what the branches and loops inside it read."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from (entry.name for entry in graph.output)
            for inner in graph.node:
                yield from _reads(inner)


def _keep(
    entries: Any, names: set[str], name: Callable[[Any], str] = lambda entry: entry.name
) -> None:
    for i in reversed(range(len(entries))):
        if name(entries[i]) not in names:
            del entries[i]


def _with_types(onnx: Any, model: Any) -> Any:
    """Give outputs that were inner tensors their type and shape."""
    if any(output.type.WhichOneof("value") is None for output in model.graph.output):
        model = onnx.shape_inference.infer_shapes(model)
        del model.graph.value_info[:]
    return model
