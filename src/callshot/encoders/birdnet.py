"""BirdNET 2.4: windows of 3 s at 48 kHz come in, vectors of 1024 go out; see `litert`."""

from collections.abc import Callable
from pathlib import Path

from callshot.encoders.litert import TfliteEmbedding, open_tflite, rewrite_tflite
from callshot.encoders.validation import Float32Array

BIRDNET = TfliteEmbedding(
    title="BirdNET",
    tensor="model/GLOBAL_AVG_POOL/Mean",
    input_shape=(1, 144000),
    output_shape=(1, 1024),
)


def open_birdnet(
    path: Path, *, threads: int = 1
) -> Callable[[Float32Array], Float32Array]:
    """Open a rewritten file; each of the `threads` interpreters takes 80 MB.

    >>> open_birdnet(Path("missing.tflite"))
    Traceback (most recent call last):
    callshot.errors.InputError: missing.tflite: cannot be read (No such file or directory)
    """
    return open_tflite(path, BIRDNET, threads=threads)


def rewrite_birdnet(source: Path, target: Path) -> None:
    """Write BirdNET's file with the embedding as its output, and check that no vector changes."""
    rewrite_tflite(source, target, BIRDNET)
