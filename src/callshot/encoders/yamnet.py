"""YAMNet: windows of 0.975 s at 16 kHz come in, vectors of 1024 go out; see `litert`.

The file is quantised: a value of the embedding is a whole number from −128 to 127, times a scale.
"""

from collections.abc import Callable
from pathlib import Path

from callshot.encoders.litert import TfliteEmbedding, open_tflite, rewrite_tflite
from callshot.encoders.validation import Float32Array

YAMNET = TfliteEmbedding(
    title="YAMNet",
    tensor="tower0/network/layer28/reduce_mean",
    input_shape=(15600,),
    output_shape=(1, 1, 1, 1024),
    quantization=(0.022328350692987442, -128),
    extra="yamnet",
)


def open_yamnet(
    path: Path, *, threads: int = 1
) -> Callable[[Float32Array], Float32Array]:
    """Open a rewritten file."""
    return open_tflite(path, YAMNET, threads=threads)


def rewrite_yamnet(source: Path, target: Path) -> None:
    """Write YAMNet's file with the embedding as its output, and check that no vector changes."""
    rewrite_tflite(source, target, YAMNET)
