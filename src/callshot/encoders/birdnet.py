"""BirdNET 2.4: windows of 3 s at 48 kHz come in, vectors of 1024 go out.

The published file is for LiteRT; see `litert`. Others convert it to ONNX and keep the names of its
tensors, with endings of their own.
"""

from collections.abc import Callable
from pathlib import Path

from callshot.encoders.litert import TfliteEmbedding, open_tflite, rewrite_tflite
from callshot.encoders.onnx import cut_graph, explain_errors
from callshot.encoders.validation import Float32Array, import_package
from callshot.errors import InputError

TENSOR = "model/GLOBAL_AVG_POOL/Mean"
BIRDNET = TfliteEmbedding(
    title="BirdNET",
    tensor=TENSOR,
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


def cut_birdnet(source: Path, target: Path) -> None:
    """Write BirdNET's ONNX file up to the embedding: the last tensor of its pooling layer."""
    onnx = import_package("onnx", "onnx")
    with explain_errors(source):
        graph = onnx.load(source, load_external_data=False).graph
        outputs = [name for node in graph.node for name in node.output]
    names = [name for name in outputs if name.startswith(TENSOR)]
    if not names:
        raise InputError(
            f"{source}: expected BirdNET 2.4, with a tensor {TENSOR}; is this the right file?"
        )
    cut_graph(source, target, names[-1:])
