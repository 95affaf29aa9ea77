"""Perch 1: its SavedModel of TensorFlow, which is needed once, comes in; an ONNX file goes out.

Perch 2 is published as ONNX (`callshot.encoders.onnx`).
"""

import os
from functools import partial
from pathlib import Path

import numpy as np

from callshot.encoders.onnx import open_windows
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.validation import Model, explain_errors, import_package
from callshot.encoders.weights import derive_file, weight_folder
from callshot.encoders.windows import make_test_windows
from callshot.errors import InputError
from callshot.files import atomic_path

SAMPLES = 160_000
DIMENSION = 1280
EXTRA = "perch-v1"
TOLERANCE = 1e-3  # of the conversion, relative to the largest value in the vectors

open_perch_v1 = partial(open_windows, samples=SAMPLES, dimension=DIMENSION)
"""Open the output of `convert_perch_v1`; it runs window by window."""


def load_perch_v1(spec: EncoderSpec, *, device: str, **_: object) -> Model:
    """Open Perch 1, converted once from its TensorFlow model and compared with it."""
    folder = weight_folder(spec.weights_name) / "saved_model"
    convert = partial(convert_perch_v1, folder)
    path = derive_file(spec.weights_name, "perch-1.onnx", folder, convert)
    return open_perch_v1(path, device=device)


def convert_perch_v1(saved_model: Path, target: Path) -> float:
    """Convert the SavedModel of Perch 1 to ONNX.

    Return the largest difference between its vectors and those of TensorFlow; a file that differs
    too much is not kept. The batch is fixed to 1: with a free one the conversion of the
    spectrogram fails.
    """
    # Read when TensorFlow is first imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow = import_package("tensorflow", EXTRA)
    converter = import_package("tf2onnx", EXTRA)
    sounds = make_test_windows(SAMPLES)
    with atomic_path(target) as temporary:
        with explain_errors(saved_model, "converted as Perch v1"):
            model = tensorflow.saved_model.load(str(saved_model))
            wave = tensorflow.TensorSpec((1, SAMPLES), tensorflow.float32, "inputs")
            embed = tensorflow.function(
                lambda inputs: {"embedding": model.infer_tf(inputs)["embedding"]},
                input_signature=[wave],
            )
            converter.convert.from_function(
                embed, [wave], opset=17, output_path=str(temporary)
            )
            rows = [embed(sound[np.newaxis])["embedding"].numpy() for sound in sounds]
        vectors = np.concatenate(rows)
        difference = float(np.abs(open_perch_v1(temporary)(sounds) - vectors).max())
        largest = float(np.abs(vectors).max())
        if not difference <= TOLERANCE * largest:
            raise InputError(
                f"{saved_model}: after conversion its vectors differ from TensorFlow's "
                f"by {difference:.2g}, with values up to {largest:.2g}"
            )
    return difference
