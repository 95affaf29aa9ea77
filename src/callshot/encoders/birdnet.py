"""BirdNET 2.4: windows of 3 s at 48 kHz come in, vectors of 1024 go out.

    weights → rewrite_birdnet → the same graph, ending in the embedding → open_birdnet → model

The embedding is an inner tensor of the graph. LiteRT reuses its memory, and only outputs can be
read. So `rewrite_birdnet` copies the file once, with two numbers changed: its output is that
tensor, and its last operator the one that computes it. No weight and no vector changes.
"""

import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from callshot.encoders.flatbuffer import expose_tensor, read_tflite
from callshot.encoders.validation import (
    Float32Array,
    check_whole_number,
    import_package,
)
from callshot.encoders.windows import make_test_windows
from callshot.errors import InputError, printable
from callshot.files import error_reason

EMBEDDING = "model/GLOBAL_AVG_POOL/Mean"
SAMPLES = 144000
DIMENSION = 1024
TOLERANCE = 1e-5  # largest difference of a rewritten file

_GREETING = b"INFO: Created TensorFlow Lite XNNPACK delegate"
_STDERR_LOCK = threading.Lock()


def open_birdnet(
    path: Path, *, threads: int = 1
) -> Callable[[Float32Array], Float32Array]:
    """Open a rewritten file: a model from float32 (n, 144000) to (n, 1024).

    `threads` callers can run it at once, each on an interpreter of its own (80 MB).

    >>> open_birdnet(Path("missing.tflite"))
    Traceback (most recent call last):
    callshot.errors.InputError: missing.tflite: cannot be read (No such file or directory)
    """
    check_whole_number("threads", threads)
    content = read_tflite(path)
    interpreters = SimpleQueue[Any]()
    for _ in range(threads):
        interpreter = _open_interpreter(path, content)
        output = _find_embedding(path, interpreter)
        interpreters.put(interpreter)

    def model(windows: Float32Array) -> Float32Array:
        if windows.ndim != 2 or windows.shape[1] != SAMPLES:
            raise InputError(
                f"{path}: expected windows of shape (n, {SAMPLES}), got {windows.shape}"
            )
        vectors = np.empty((len(windows), DIMENSION), np.float32)
        interpreter = interpreters.get()
        try:
            for row, window in enumerate(windows):
                vectors[row] = _run(path, interpreter, window, output)
        finally:
            interpreters.put(interpreter)
        return vectors

    return model


def rewrite_birdnet(source: Path, target: Path) -> None:
    """Write BirdNET's file with the embedding as its output, and check that no vector changes."""
    expose_tensor(source, target, EMBEDDING)
    difference = measure_rewrite(source, target)
    if not difference <= TOLERANCE:
        raise InputError(
            f"{source}: rewritten, it differs from the original by {difference:g}; not used"
        )


def measure_rewrite(source: Path, target: Path) -> float:
    """Return the largest difference between a rewritten file and its source, on test sounds.

    The source runs the slow way: all its tensors are kept.
    """
    interpreter = _open_interpreter(
        source,
        read_tflite(source),
        experimental_preserve_all_tensors=True,
    )
    indices = {
        tensor["name"]: tensor["index"] for tensor in interpreter.get_tensor_details()
    }
    if EMBEDDING not in indices:
        raise InputError(f"{source}: no tensor {EMBEDDING}; use BirdNET's own file")
    sounds = make_test_windows(SAMPLES)
    sounds = np.concatenate([sounds, 100 * sounds])  # also beyond full scale
    expected = [
        _run(source, interpreter, sound, indices[EMBEDDING]) for sound in sounds
    ]
    vectors = open_birdnet(target)(sounds)
    return float(np.abs(vectors - np.stack(expected)).max())


def _open_interpreter(path: Path, content: bytes, **options: Any) -> Any:
    """Open a model for one window at a time, on one thread."""
    litert = import_package("ai_edge_litert.interpreter", "birdnet")
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


def _find_embedding(path: Path, interpreter: Any) -> int:
    """Return the index of the output, which must be BirdNET's embedding."""
    tensors = [*interpreter.get_input_details(), *interpreter.get_output_details()]
    names = [tensor["name"] for tensor in tensors]
    shapes = [tensor["shape"].tolist() for tensor in tensors]
    if shapes != [[1, SAMPLES], [1, DIMENSION]] or names[1] != EMBEDDING:
        raise InputError(
            f"{path}: expected windows [1, {SAMPLES}] to {EMBEDDING} [1, {DIMENSION}], "
            f"got {names} with shapes {shapes}; rewrite BirdNET's own file with rewrite_birdnet"
        )
    return int(tensors[1]["index"])


def _run(
    path: Path, interpreter: Any, window: Float32Array, output: int
) -> Float32Array:
    """Return a copy of a tensor after one window."""
    index = interpreter.get_input_details()[0]["index"]
    with _explain_errors(path, "run"):
        interpreter.set_tensor(index, np.asarray(window, np.float32)[np.newaxis])
        interpreter.invoke()
        return np.array(interpreter.get_tensor(output)[0], np.float32)


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
