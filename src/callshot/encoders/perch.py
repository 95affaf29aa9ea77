"""Perch v1 and v2: windows of 5 s at 32 kHz come in, (n, 160000); vectors go out, 1280-d of v1 and 1536-d of v2.

v2 is published as ONNX; it has frames inside its windows, `spatial_embedding`, 16 in time by 4 in frequency. v1 is a
SavedModel of TensorFlow, which is needed once, to convert it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.encoders.onnx import WindowModel, need_package, open_windows, run
from callshot.errors import InputError
from callshot.files import atomic_path, error_reason

SAMPLES = 160_000
V1_DIMENSION = 1280
V2_DIMENSION = 1536
V2_CELLS = (16, 4)  # of a window: in time, every 0.32 s, and in frequency
TENSORFLOW_EXTRA = "perch-v1"
TOLERANCE = 1e-3  # of the largest number in the vectors: what a conversion may change


def open_perch_v2(path: Path, *, device: str = "cpu", threads: int = 1) -> WindowModel:
    """Open Perch v2, best cut to its output `embedding`: a whole file spends its time on 14,795 species as well.

    >>> open_perch_v2(Path("gone.onnx"))
    Traceback (most recent call last):
    callshot.errors.InputError: gone.onnx: cannot be read (No such file or directory)
    """
    return open_windows(
        path, samples=SAMPLES, dimension=V2_DIMENSION, device=device, threads=threads
    )


def open_perch_v2_spatial(path: Path, *, device: str = "cpu", threads: int = 1) -> WindowModel:
    """Open Perch v2 with its frames, best cut to `embedding` and `spatial_embedding`; it returns (n, 1 + 16, 1536).

    These are the vector of a window, and then its frames, each the mean over the 4 bands of frequency.

    >>> open_perch_v2_spatial(Path("gone.onnx"))
    Traceback (most recent call last):
    callshot.errors.InputError: gone.onnx: cannot be read (No such file or directory)
    """
    sizes = {"samples": SAMPLES, "dimension": V2_DIMENSION}
    return SpatialModel(
        **vars(open_windows(path, output="embedding", **sizes, device=device, threads=threads))
    )


class SpatialModel(WindowModel):
    """A model of windows that returns the frames inside each behind its vector."""

    def run_batch(self, windows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a vector and the frames for each window."""
        outputs = [self.output, "spatial_embedding"]
        vectors, cells = run(self.path, self.session, self.input, windows, outputs)
        wanted = (len(windows), *V2_CELLS, V2_DIMENSION)
        if cells.shape != wanted or vectors.shape != (len(windows), V2_DIMENSION):
            raise InputError(
                f"{self.path}: {outputs[1]}: wanted shape {wanted}, found {cells.shape}"
            )
        return np.concatenate([vectors[:, np.newaxis], cells.mean(axis=2)], axis=1)


def open_perch_v1(path: Path, *, device: str = "cpu", threads: int = 1) -> WindowModel:
    """Open what `convert_perch_v1` wrote; it is run window by window.

    >>> open_perch_v1(Path("gone.onnx"))
    Traceback (most recent call last):
    callshot.errors.InputError: gone.onnx: cannot be read (No such file or directory)
    """
    return open_windows(
        path, samples=SAMPLES, dimension=V1_DIMENSION, device=device, threads=threads
    )


def convert_perch_v1(saved_model: Path, target: Path) -> float:
    """Convert the SavedModel of Perch v1, 8 or 4, to ONNX; return how far its vectors are from TensorFlow's at most.

    The batch is fixed to 1: the conversion of the spectrogram fails with a free one. A file that is further off than a
    thousandth of the largest number is not kept.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # is read when TensorFlow is first imported
    tensorflow = need_package("tensorflow", TENSORFLOW_EXTRA)
    converter = need_package("tf2onnx", TENSORFLOW_EXTRA)
    with atomic_path(target) as unfinished:
        try:
            model = tensorflow.saved_model.load(str(saved_model))
            signature = [tensorflow.TensorSpec((1, SAMPLES), tensorflow.float32, "inputs")]
            embed = tensorflow.function(_embed(saved_model, model), input_signature=signature)
            converter.convert.from_function(embed, signature, opset=17, output_path=str(unfinished))
        except InputError:
            raise
        except Exception as error:  # both libraries throw what they like
            raise InputError(
                f"{saved_model}: cannot be converted as Perch v1 ({error_reason(error)})"
            ) from error
        return _refuse_apart(
            saved_model,
            open_perch_v1(unfinished),
            lambda window: embed(window)["embedding"].numpy(),
        )


def _embed(saved_model: Path, model: Any) -> Callable[[Any], dict[str, Any]]:
    """Return the function that makes vectors: `infer_tf` in version 8, the second output of the signature in 4."""
    if hasattr(model, "infer_tf"):
        return lambda inputs: {"embedding": model.infer_tf(inputs)["embedding"]}
    signature = getattr(model, "signatures", {}).get("serving_default")
    if signature is None or "output_1" not in signature.structured_outputs:
        raise InputError(
            f"{saved_model}: wanted infer_tf, or output_1 of serving_default, as Perch v1 has; found neither"
        )
    return lambda inputs: {"embedding": signature(inputs=inputs)["output_1"]}


def _refuse_apart(
    saved_model: Path,
    found: WindowModel,
    wanted: Callable[[NDArray[np.float32]], NDArray[np.float32]],
) -> float:
    vectors = np.concatenate([wanted(window[None]) for window in _sounds()])
    apart, largest = float(np.abs(found(_sounds()) - vectors).max()), float(np.abs(vectors).max())
    if not apart <= TOLERANCE * largest:
        raise InputError(
            f"{saved_model}: converted, its vectors are {apart:.2g} from TensorFlow's, of {largest:.2g}"
        )
    return apart


def _sounds() -> NDArray[np.float32]:
    """Make windows to compare on: silence, noise, a faint one, and a chirp from 0 to 16 kHz."""
    noise = np.random.default_rng(0).uniform(-0.25, 0.25, SAMPLES)
    chirp = 0.25 * np.sin(np.pi * np.arange(SAMPLES) ** 2 / (2 * SAMPLES))
    return np.stack([np.zeros(SAMPLES), noise, noise * 1e-3, chirp]).astype(np.float32)
