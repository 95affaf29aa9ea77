"""BirdNET 2.4: its tflite file comes in, a model that turns 3-s windows at 48 kHz into vectors of 1024 goes out.

    weights → expose_tensor → the same graph, which ends where the embedding is → open_birdnet → model(windows)

The embedding is a tensor inside the graph, whose memory LiteRT reuses; what is no output of a graph cannot be read. So
the file is copied once, and two numbers of the copy change: its output is that tensor, and its last operator the one
that makes it. No byte of a weight changes, nor does a bit of the embedding (`check_rewrite`).
"""

import importlib
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.encoders.flatbuffer import expose_tensor as expose_tensor
from callshot.encoders.flatbuffer import read_tflite
from callshot.errors import InputError, OptionError, printable

EMBEDDING = "model/GLOBAL_AVG_POOL/Mean"
RATE_HZ, SAMPLES, DIMENSION = 48000, 144000, 1024
TOLERANCE = 1e-5  # the most that `check_rewrite` may find

Windows = NDArray[np.float32]

_GREETING = b"INFO: Created TensorFlow Lite XNNPACK delegate"
_ONE_AT_A_TIME = threading.Lock()


def open_birdnet(path: Path, *, threads: int = 1) -> Callable[[Windows], Windows]:
    """Open a rewritten file: a model from float32 (n, 144000) to float32 (n, 1024), each row by itself.

    `threads` windows are worked on at once, each by an interpreter of its own (80 MB): the bits do not depend on it.

    >>> open_birdnet(Path("gone.tflite"))
    Traceback (most recent call last):
    callshot.errors.InputError: gone.tflite: cannot be read (No such file or directory)
    """
    if threads < 1:
        raise OptionError(f"threads: a whole number from 1, got {threads!r}")
    content, idle = read_tflite(path), SimpleQueue[Any]()
    for _ in range(threads):
        interpreter = _interpreter(path, content)
        output = _embedding(path, interpreter)
        idle.put(interpreter)
    each = map if threads == 1 else ThreadPoolExecutor(threads).map

    def vector(window: Windows) -> Windows:
        interpreter = idle.get()
        try:
            return _run(path, interpreter, window, output)
        finally:
            idle.put(interpreter)

    def model(windows: Windows) -> Windows:
        if windows.ndim != 2 or windows.shape[1] != SAMPLES:
            raise InputError(
                f"{path}: wanted windows of shape (n, {SAMPLES}), found {windows.shape}"
            )
        vectors = np.empty((len(windows), DIMENSION), np.float32)
        for row, made in enumerate(each(vector, windows)):
            vectors[row] = made
        return vectors

    return model


def check_rewrite(source: Path, target: Path) -> float:
    """Return how far a rewritten file is from its source at most, on fixed waveforms; NaN is too far as well.

    The source is run the slow way, with all its tensors kept.

    >>> check_rewrite(Path("gone.tflite"), Path("embedding.tflite"))
    Traceback (most recent call last):
    callshot.errors.InputError: gone.tflite: cannot be read (No such file or directory)
    """
    slow = _interpreter(source, read_tflite(source), experimental_preserve_all_tensors=True)
    places = {tensor["name"]: tensor["index"] for tensor in slow.get_tensor_details()}
    if EMBEDDING not in places:
        raise InputError(
            f"{source}: wanted a tensor {EMBEDDING}, found none; get BirdNET's own file"
        )
    windows = _waveforms()
    wanted = np.stack([_run(source, slow, window, places[EMBEDDING]) for window in windows])
    return float(np.abs(open_birdnet(target)(windows) - wanted).max())


def _interpreter(path: Path, content: bytes, **options: Any) -> Any:
    """Open a model for one window at a time, on one thread."""
    interpreter = _litert().Interpreter
    try:
        with (
            _hushed(),
            warnings.catch_warnings(action="ignore"),
        ):  # keeping all tensors warns of its memory
            opened = interpreter(model_content=content, num_threads=1, **options)
            opened.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise InputError(
            f"{path}: cannot be opened as a tflite model ({_line(error)}); get it again"
        ) from error
    return opened


def _litert() -> Any:
    try:
        return importlib.import_module("ai_edge_litert.interpreter")
    except ImportError as error:
        mend = "install it with: pip install 'callshot[birdnet]'"
        raise InputError(
            f"BirdNET needs the package ai-edge-litert ({_line(error)}); {mend}"
        ) from error


def _embedding(path: Path, interpreter: Any) -> int:
    """Return the number of the output of a model, which must be BirdNET up to its embedding."""
    ends = [*interpreter.get_input_details(), *interpreter.get_output_details()]
    found = [(end["name"], *end["shape"].tolist()) for end in ends]
    if [shape for _, *shape in found] != [[1, SAMPLES], [1, DIMENSION]] or found[1][0] != EMBEDDING:
        wanted = f"wanted windows (1, {SAMPLES}) to {EMBEDDING} (1, {DIMENSION})"
        raise InputError(
            f"{path}: {wanted}, found {found}; rewrite BirdNET's own file with expose_tensor"
        )
    return int(ends[1]["index"])


def _run(path: Path, interpreter: Any, window: Windows, output: int) -> Windows:
    """Return a copy of what a tensor holds after one window."""
    try:
        interpreter.set_tensor(
            interpreter.get_input_details()[0]["index"], np.asarray(window, np.float32)[None]
        )
        interpreter.invoke()
        return np.array(interpreter.get_tensor(output)[0], np.float32)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{path}: cannot be run ({_line(error)}); get it again") from error


def _waveforms() -> Windows:
    """Return noise, a chirp, silence and noise beyond full scale."""
    time_s, noise = np.arange(SAMPLES) / RATE_HZ, np.random.default_rng(0).normal(size=SAMPLES)
    chirp = 0.7 * np.sin(2 * np.pi * (200 + 2000 * time_s) * time_s)
    return np.stack([0.1 * noise, chirp, 0 * noise, 30 * noise]).astype(np.float32)


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep the line with which LiteRT greets off the terminal; it has no switch for it. Other lines come later."""
    with _ONE_AT_A_TIME, tempfile.TemporaryFile() as caught:
        try:
            terminal = os.dup(2)
        except OSError:  # a process without a terminal has nothing to keep clean
            yield
            return
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            caught.seek(0)
            for line in caught:
                if not line.startswith(_GREETING):
                    os.write(2, line)


def _line(error: Exception) -> str:
    """Say in one line what a library says in many."""
    return printable(" ".join(str(error).split())[:300]) or type(error).__name__
