"""tflite models: a file with an embedding inside comes in, a model that returns it goes out.

    weights → rewrite_tflite → the same graph, ending in the embedding → open_tflite → model

The embedding is an inner tensor of the graph. LiteRT reuses its memory, and only outputs can be
read. So `rewrite_tflite` copies the file once, with two numbers changed: its output is that tensor,
and its last operator the one that computes it. No weight and no vector changes.
"""

import os
import struct
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from callshot.encoders.validation import Float32Array, Model, import_package
from callshot.encoders.windows import make_test_windows
from callshot.errors import (
    CallshotError,
    InputError,
    check_whole_number,
    printable,
    suggest,
)
from callshot.files import error_reason, explain_unreadable, write_atomic

FLOAT32 = 0  # types of tensors in the schema of tflite
INT8 = 9
# Where the vtables of the schema have the vectors that are shortened.
MODEL_SIGNATURES = 18
GRAPH_OUTPUTS = 8
GRAPH_OPERATORS = 10
_GREETING = b"INFO: Created TensorFlow Lite XNNPACK delegate"
_STDERR_LOCK = threading.Lock()


@dataclass(frozen=True)
class TfliteEmbedding:
    """Where the embedding of a model is, and what shape it has.

    title         of the model, in error messages
    tensor        name of the embedding
    input_shape   of one window
    output_shape  of its embedding
    quantization  scale and zero point of the embedding: value = scale × (number − zero point);
                  (0, 0) if it is float32
    tolerance     largest difference of the values of a rewritten file
    extra         extra of callshot that must be installed
    """

    title: str
    tensor: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    quantization: tuple[float, int] = (0.0, 0)
    tolerance: float = 1e-5
    extra: str = "birdnet"

    @property
    def samples(self) -> int:
        """The number of samples in a window."""
        return self.input_shape[-1]

    def decode(self, output: Any) -> Float32Array:
        """Return the values of an output."""
        numbers = np.array(output, np.float32).ravel()
        scale, zero_point = self.quantization
        if scale == 0:
            return numbers
        return (numbers - np.float32(zero_point)) * np.float32(scale)


BIRDNET = TfliteEmbedding(
    title="BirdNET",
    tensor="model/GLOBAL_AVG_POOL/Mean",
    input_shape=(1, 144000),
    output_shape=(1, 1024),
)
# Quantised: a value is a whole number from −128 to 127, times a scale.
YAMNET = TfliteEmbedding(
    title="YAMNet",
    tensor="tower0/network/layer28/reduce_mean",
    input_shape=(15600,),
    output_shape=(1, 1, 1, 1024),
    quantization=(0.022328350692987442, -128),
    extra="yamnet",
)


# Running


def open_tflite(path: Path, embedding: TfliteEmbedding, *, threads: int = 1) -> Model:
    """Open a rewritten file: a model from float32 (n, samples) to (n, dimension).

    `threads` callers can run it at once, each on an interpreter of its own, which takes 80 MB for
    BirdNET.

    >>> open_tflite(Path("missing.tflite"), BIRDNET)
    Traceback (most recent call last):
    callshot.errors.InputError: missing.tflite: cannot be read (No such file or directory)
    """
    check_whole_number("threads", threads)
    content = _read_tflite(path)
    interpreters = SimpleQueue[Any]()
    for _ in range(threads):
        interpreter = _open_interpreter(path, content, embedding)
        output = _find_embedding(path, interpreter, embedding)
        interpreters.put(interpreter)

    def embed_windows(windows: Float32Array) -> Float32Array:
        if windows.ndim != 2 or windows.shape[1] != embedding.samples:
            raise InputError(
                f"{path}: expected windows of shape (n, {embedding.samples}), "
                f"got {windows.shape}"
            )
        vectors = np.empty((len(windows), embedding.output_shape[-1]), np.float32)
        interpreter = interpreters.get()
        try:
            for row, window in enumerate(windows):
                vectors[row] = _run(path, interpreter, window, embedding, output)
        finally:
            interpreters.put(interpreter)
        return vectors

    return embed_windows


def _open_interpreter(
    path: Path, content: bytes, embedding: TfliteEmbedding, **options: Any
) -> Any:
    """Open a model for one window at a time, on one thread."""
    litert = import_package("ai_edge_litert.interpreter", embedding.extra)
    # Keeping all tensors warns about memory.
    with (
        _explain_errors(path, "opened as a tflite model"),
        hide_greeting(),
        warnings.catch_warnings(action="ignore"),
    ):
        interpreter = litert.Interpreter(
            model_content=content, num_threads=1, **options
        )
        interpreter.allocate_tensors()
    return interpreter


def _find_embedding(path: Path, interpreter: Any, embedding: TfliteEmbedding) -> int:
    """Return the index of the output, which must be the embedding as it is known."""
    tensors = [*interpreter.get_input_details(), *interpreter.get_output_details()]
    names = [tensor["name"] for tensor in tensors]
    shapes = [tensor["shape"].tolist() for tensor in tensors]
    expected = [list(embedding.input_shape), list(embedding.output_shape)]
    if shapes != expected or names[1] != embedding.tensor:
        raise InputError(
            f"{path}: expected windows {expected[0]} to {embedding.tensor} {expected[1]}, "
            f"got {names} with shapes {shapes}; use {embedding.title}'s own file, rewritten"
        )
    found = tensors[1]["quantization"]
    if not np.allclose(found, embedding.quantization, rtol=1e-6, atol=0):
        raise InputError(
            f"{path}: expected the scale and zero point {embedding.quantization}, "
            f"got {found}; use {embedding.title}'s own file, rewritten"
        )
    return int(tensors[1]["index"])


def _run(
    path: Path,
    interpreter: Any,
    window: Float32Array,
    embedding: TfliteEmbedding,
    output: int,
) -> Float32Array:
    """Return the values of a tensor after one window."""
    index = interpreter.get_input_details()[0]["index"]
    samples = np.asarray(window, np.float32).reshape(embedding.input_shape)
    with _explain_errors(path, "run"):
        interpreter.set_tensor(index, samples)
        interpreter.invoke()
        return embedding.decode(interpreter.get_tensor(output))


@contextmanager
def _explain_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an error of LiteRT, or of its reader of flatbuffers, into one about this file."""
    try:
        yield
    except (CallshotError, OSError):
        raise
    except Exception as error:  # readers of damaged files raise almost anything
        reason = printable(error_reason(error))
        raise InputError(
            f"{path}: cannot be {action} ({reason}); get it again"
        ) from error


@contextmanager
def hide_greeting() -> Iterator[None]:
    """Drop the line that LiteRT prints when it starts, which has no switch; delay other lines."""
    with _STDERR_LOCK, tempfile.TemporaryFile() as captured:
        try:
            terminal = os.dup(2)
        except OSError:  # without a terminal there is nothing to keep clean
            yield
            return
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            captured.seek(0)
            for line in captured:
                if not line.startswith(_GREETING):
                    os.write(2, line)


# Rewriting


def rewrite_tflite(source: Path, target: Path, embedding: TfliteEmbedding) -> None:
    """Write a file with the embedding as its output, and check that no vector changes."""
    expose_tensor(source, target, embedding)
    difference = measure_rewrite(source, target, embedding)
    if not difference <= embedding.tolerance:
        raise InputError(
            f"{source}: rewritten, it differs from the original by {difference:g}; not used"
        )


def measure_rewrite(source: Path, target: Path, embedding: TfliteEmbedding) -> float:
    """Return the largest difference between a rewritten file and its source, on test sounds.

    The source runs the slow way: all its tensors are kept.
    """
    interpreter = _open_interpreter(
        source,
        _read_tflite(source),
        embedding,
        experimental_preserve_all_tensors=True,
    )
    tensors = interpreter.get_tensor_details()
    indices = {tensor["name"]: tensor["index"] for tensor in tensors}
    if embedding.tensor not in indices:
        raise InputError(
            f"{source}: no tensor {embedding.tensor}; use {embedding.title}'s own file"
        )
    index = indices[embedding.tensor]
    sounds = make_test_windows(embedding.samples)
    sounds = np.concatenate([sounds, 100 * sounds])  # also beyond full scale
    expected = [_run(source, interpreter, sound, embedding, index) for sound in sounds]
    vectors = open_tflite(target, embedding)(sounds)
    return float(np.abs(vectors - np.stack(expected)).max())


def expose_tensor(source: Path, target: Path, embedding: TfliteEmbedding) -> None:
    """Write a tflite model whose only output is the embedding inside another model.

    The tensor must hold one vector for each window. Later operators are left out, and so are
    signatures, which would name the old outputs. Numbers are changed in place, so that weights stay
    aligned as they are.
    """
    data = bytearray(_read_tflite(source))
    schema = import_package("ai_edge_litert.schema_py_generated", embedding.extra)
    with _explain_errors(source, "read as a tflite model"):
        model = schema.Model.GetRootAs(data, 0)
        if model.SubgraphsLength() == 0:
            raise InputError(f"{source}: the model has no graph; get it again")
        _end_in_tensor(source, model, embedding)
    write_atomic(target, memoryview(data))


def _read_tflite(path: Path) -> bytes:
    """Read a tflite file, recognised by its four magic letters."""
    with explain_unreadable(path):
        content = path.read_bytes()
    magic = content[4:8]
    if magic != b"TFL3":
        raise InputError(
            f"{path}: not a tflite model: expected TFL3 at byte 4, got {magic!r}; get it again"
        )
    return content


def _end_in_tensor(source: Path, model: Any, embedding: TfliteEmbedding) -> None:
    """Make the embedding the only output of a graph, and its operator the last one."""
    graph = model.Subgraphs(0)
    index = _find_tensor(source, graph, embedding)
    inputs, outputs, operators = _read_graph(graph)
    counts = [count for count, (_, made) in enumerate(operators, 1) if index in made]
    if len(counts) != 1 or not outputs:
        raise InputError(
            f"{source}: expected one operator that computes {embedding.tensor} and at least one "
            f"output, got {len(counts)} operators and {len(outputs)} outputs"
        )
    (count,) = counts
    graph.OutputsAsNumpy()[0] = index
    _shorten(graph, GRAPH_OUTPUTS, 1)
    _shorten(graph, GRAPH_OPERATORS, count)
    _shorten(model, MODEL_SIGNATURES, 0)
    # Two tables may have shared the changed numbers.
    if _read_graph(graph) != (inputs, [index], operators[:count]):
        raise InputError(
            f"{source}: its tables overlap, so it cannot be rewritten; get it again"
        )


def _find_tensor(source: Path, graph: Any, embedding: TfliteEmbedding) -> int:
    """Return the index of the embedding, which must be one vector per window."""
    name = embedding.tensor
    tensors = [graph.Tensors(number) for number in range(graph.TensorsLength())]
    names = [(tensor.Name() or b"").decode("utf-8", "replace") for tensor in tensors]
    count = names.count(name)
    if count != 1:
        hint = suggest(name, set(names) - {name})
        message = f"{source}: expected one tensor {name}, got {count}{hint}"
        raise InputError(printable(message))
    index = names.index(name)
    shape = tuple(_list_numbers(tensors[index].ShapeAsNumpy()))
    kind = tensors[index].Type()
    expected = FLOAT32 if embedding.quantization[0] == 0 else INT8
    is_vector = len(shape) > 1 and set(shape[:-1]) == {1}
    if not is_vector or kind != expected:
        type_name = {FLOAT32: "float32", INT8: "int8"}[expected]
        raise InputError(
            f"{source}: tensor {name}: expected shape (1, dimension) and type {expected} "
            f"({type_name}), got shape {shape} and type {kind}"
        )
    return index


def _read_graph(graph: Any) -> tuple[list[int], list[int], list[Any]]:
    """Return inputs and outputs of a graph, and of each operator in the order of execution."""
    operators = []
    for number in range(graph.OperatorsLength()):
        operator = graph.Operators(number)
        read = _list_numbers(operator.InputsAsNumpy())
        made = _list_numbers(operator.OutputsAsNumpy())
        operators.append((read, made))
    inputs = _list_numbers(graph.InputsAsNumpy())
    return inputs, _list_numbers(graph.OutputsAsNumpy()), operators


def _list_numbers(vector: Any) -> list[int]:
    """Return the numbers in a vector; the generated reader returns 0 for a missing one."""
    return [int(number) for number in vector] if np.ndim(vector) else []


def _shorten(table: Any, field: int, length: int) -> None:
    """Keep the first items of a vector."""
    reader = table._tab
    offset = reader.Offset(field)
    if offset and reader.VectorLen(offset) > length:
        length_position = reader.Vector(offset) - 4
        struct.pack_into("<I", reader.Bytes, length_position, length)
