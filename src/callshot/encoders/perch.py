"""Perch 1 and 2: windows of 5 s at 32 kHz come in, vectors of 1280 (v1) or 1536 (v2) go out.

Version 2 is published as ONNX, and has frames inside its windows (`spatial_embedding`, 16 in time
× 4 in frequency). Version 1 is a SavedModel of TensorFlow, which is needed once, to convert it.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from callshot.encoders.onnx import WindowModel, open_windows, run
from callshot.encoders.validation import Float32Array, Model, import_package
from callshot.encoders.windows import make_test_windows
from callshot.errors import InputError
from callshot.files import atomic_path, error_reason

SAMPLES = 160_000
V1_DIMENSION = 1280
V2_DIMENSION = 1536
V2_CELLS = (16, 4)  # of a window: in time, every 0.32 s, and in frequency
TENSORFLOW_EXTRA = "perch-v1"
TOLERANCE = 1e-3  # of the conversion, relative to the largest value in the vectors


open_perch_v1 = partial(open_windows, samples=SAMPLES, dimension=V1_DIMENSION)
"""Open the output of `convert_perch_v1`; it runs window by window."""

open_perch_v2 = partial(open_windows, samples=SAMPLES, dimension=V2_DIMENSION)
"""Open Perch 2, best cut to `embedding`: the whole file also computes 14,795 species."""


def open_perch_v2_spatial(path: Path, **runtime: Any) -> "SpatialModel":
    """Open Perch 2 with its frames, best cut to `embedding` and `spatial_embedding`.

    It returns (n, 1 + 16, 1536): the vector of a window, then its frames, each the mean over the 4
    frequency bands. `runtime` is device and threads.
    """
    model = open_perch_v2(path, output="embedding", **runtime)
    return SpatialModel(**vars(model))


class SpatialModel(WindowModel):
    """A model of windows that returns the vector of each window and the frames inside it."""

    def run_batch(self, windows: Float32Array) -> Float32Array:
        """Return a vector and the frames of each window."""
        outputs = [self.output, "spatial_embedding"]
        vectors, cells = run(self.path, self.session, self.input, windows, outputs)
        count = len(windows)
        self.check_shape(outputs[0], vectors, (count, V2_DIMENSION))
        self.check_shape(outputs[1], cells, (count, *V2_CELLS, V2_DIMENSION))
        frames = cells.mean(axis=2)
        return np.concatenate([vectors[:, np.newaxis], frames], axis=1)


def convert_perch_v1(saved_model: Path, target: Path) -> float:
    """Convert the SavedModel of Perch 1, version 8 or 4, to ONNX.

    Return the largest difference between its vectors and those of TensorFlow; a file that differs
    too much is not kept. The batch is fixed to 1: with a free one the conversion of the
    spectrogram fails.
    """
    # Read when TensorFlow is first imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow = import_package("tensorflow", TENSORFLOW_EXTRA)
    converter = import_package("tf2onnx", TENSORFLOW_EXTRA)
    with atomic_path(target) as temporary:
        try:
            model = tensorflow.saved_model.load(str(saved_model))
            signature = [
                tensorflow.TensorSpec((1, SAMPLES), tensorflow.float32, "inputs")
            ]
            embed = tensorflow.function(
                _embedding_function(saved_model, model),
                input_signature=signature,
            )
            converter.convert.from_function(
                embed,
                signature,
                opset=17,
                output_path=str(temporary),
            )
        except InputError:
            raise
        except Exception as error:  # both libraries raise many kinds of errors
            raise InputError(
                f"{saved_model}: cannot be converted as Perch v1 ({error_reason(error)})"
            ) from error
        return _check_difference(
            saved_model,
            open_perch_v1(temporary),
            lambda window: embed(window)["embedding"].numpy(),
        )


def _embedding_function(
    saved_model: Path, model: Any
) -> Callable[[Any], dict[str, Any]]:
    """Return the function that computes vectors: `infer_tf` in version 8, a signature in 4."""
    if hasattr(model, "infer_tf"):
        return lambda inputs: {"embedding": model.infer_tf(inputs)["embedding"]}
    signature = getattr(model, "signatures", {}).get("serving_default")
    if signature is None or "output_1" not in signature.structured_outputs:
        raise InputError(
            f"{saved_model}: expected infer_tf, or output_1 of serving_default, as Perch v1 has; "
            "got neither"
        )
    return lambda inputs: {"embedding": signature(inputs=inputs)["output_1"]}


def _check_difference(saved_model: Path, model: WindowModel, expected: Model) -> float:
    """Return the largest difference between two models on test sounds, which must be small."""
    sounds = make_test_windows(SAMPLES)
    vectors = np.concatenate([expected(sound[np.newaxis]) for sound in sounds])
    difference = float(np.abs(model(sounds) - vectors).max())
    largest = float(np.abs(vectors).max())
    if not difference <= TOLERANCE * largest:
        raise InputError(
            f"{saved_model}: after conversion its vectors differ from TensorFlow's "
            f"by {difference:.2g}, with values up to {largest:.2g}"
        )
    return difference
