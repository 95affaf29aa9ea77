"""tflite models: a file with an embedding inside comes in, a model that returns it goes out.

    weights → rewrite_tflite → the same graph, ending in the embedding → open_tflite → model

The embedding is an inner tensor of the graph. LiteRT reuses its memory, and only outputs can be
read. So `rewrite_tflite` copies the file once, with two numbers changed: its output is that tensor,
and its last operator the one that computes it. No weight and no vector changes.
"""

import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from callshot.encoders.flatbuffer import expose_tensor, read_tflite
from callshot.encoders.validation import Float32Array, import_package
from callshot.encoders.windows import make_test_windows
from callshot.errors import InputError, check_whole_number, printable
from callshot.files import error_reason

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

    @property
    def dimension(self) -> int:
        """The number of values in a vector."""
        return self.output_shape[-1]

    def decode(self, output: Any) -> Float32Array:
        """Return the values of an output."""
        numbers = np.array(output, np.float32).ravel()
        scale, zero_point = self.quantization
        if scale == 0:
            return numbers
        return (numbers - np.float32(zero_point)) * np.float32(scale)


def open_tflite(
    path: Path, embedding: TfliteEmbedding, *, threads: int = 1
) -> Callable[[Float32Array], Float32Array]:
    """Open a rewritten file: a model from float32 (n, samples) to (n, dimension).

    `threads` callers can run it at once, each on an interpreter of its own.
    """
    check_whole_number("threads", threads)
    content = read_tflite(path)
    interpreters = SimpleQueue[Any]()
    for _ in range(threads):
        interpreter = _open_interpreter(path, content, embedding)
        output = _find_embedding(path, interpreter, embedding)
        interpreters.put(interpreter)
    return _TfliteModel(path, embedding, interpreters, output)


@dataclass(frozen=True)
class _TfliteModel:
    """Open interpreters of one file, and the index of their output."""

    path: Path
    embedding: TfliteEmbedding
    interpreters: "SimpleQueue[Any]"
    output: int

    def __call__(self, windows: Float32Array) -> Float32Array:
        embedding = self.embedding
        if windows.ndim != 2 or windows.shape[1] != embedding.samples:
            raise InputError(
                f"{self.path}: expected windows of shape (n, {embedding.samples}), "
                f"got {windows.shape}"
            )
        vectors = np.empty((len(windows), embedding.dimension), np.float32)
        interpreter = self.interpreters.get()
        try:
            for row, window in enumerate(windows):
                numbers = _run(self.path, interpreter, window, embedding, self.output)
                vectors[row] = embedding.decode(numbers)
        finally:
            self.interpreters.put(interpreter)
        return vectors


def rewrite_tflite(source: Path, target: Path, embedding: TfliteEmbedding) -> None:
    """Write a file with the embedding as its output, and check that no vector changes."""
    is_quantized = embedding.quantization[0] != 0
    expose_tensor(source, target, embedding.tensor, quantized=is_quantized)
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
        read_tflite(source),
        embedding,
        experimental_preserve_all_tensors=True,
    )
    indices = {
        tensor["name"]: tensor["index"] for tensor in interpreter.get_tensor_details()
    }
    if embedding.tensor not in indices:
        raise InputError(
            f"{source}: no tensor {embedding.tensor}; use {embedding.title}'s own file"
        )
    sounds = make_test_windows(embedding.samples)
    sounds = np.concatenate([sounds, 100 * sounds])  # also beyond full scale
    expected = []
    for sound in sounds:
        index = indices[embedding.tensor]
        numbers = _run(source, interpreter, sound, embedding, index)
        expected.append(embedding.decode(numbers))
    vectors = open_tflite(target, embedding)(sounds)
    return float(np.abs(vectors - np.stack(expected)).max())


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
    scale, zero_point = tensors[1]["quantization"]
    if not np.isclose(scale, embedding.quantization[0], rtol=1e-6, atol=0):
        zero_point = None
    if zero_point != embedding.quantization[1]:
        raise InputError(
            f"{path}: expected the scale and zero point {embedding.quantization}, "
            f"got {tensors[1]['quantization']}; use {embedding.title}'s own file, rewritten"
        )
    return int(tensors[1]["index"])


def _run(
    path: Path,
    interpreter: Any,
    window: Float32Array,
    embedding: TfliteEmbedding,
    output: int,
) -> Any:
    """Return a copy of a tensor after one window."""
    index = interpreter.get_input_details()[0]["index"]
    samples = np.asarray(window, np.float32).reshape(embedding.input_shape)
    with _explain_errors(path, "run"):
        interpreter.set_tensor(index, samples)
        interpreter.invoke()
        return np.array(interpreter.get_tensor(output))


@contextmanager
def _explain_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an error of LiteRT into one InputError about this file."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
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
