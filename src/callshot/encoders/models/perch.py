"""Perch 1, converted once from TensorFlow to ONNX."""

import os
from functools import partial
from pathlib import Path

import numpy as np

from callshot.encoders.models.onnx import open_window_model
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.weights import (
    Weight,
    derive_file,
    explain_errors,
    import_package,
    weight_folder,
)
from callshot.encoders.windows import Model, WindowOptions, make_test_sounds
from callshot.errors import InputError

SAMPLES = 160_000
DIMENSION = 1280
EXTRA = "perch-v1"
TOLERANCE = 1e-3  # of the conversion, relative to the largest value in the vectors

open_perch_v1 = partial(open_window_model, samples=SAMPLES, dimension=DIMENSION)
"""Open the output of `convert_perch_v1`; it runs window by window."""


def load_perch_v1(spec: EncoderSpec, *, device: str, **_: object) -> Model:
    """Open Perch 1, converted once from its TensorFlow model and compared with it."""
    folder = weight_folder(spec.weights_name) / "saved_model"
    convert = partial(convert_perch_v1, folder)
    path = derive_file(spec.weights_name, "perch-1.onnx", folder, convert)
    return open_perch_v1(path, device=device)


def convert_perch_v1(saved_model: Path, target: Path) -> None:
    """Convert the SavedModel of Perch 1 to ONNX, and compare its vectors with TensorFlow's.

    The batch is fixed to 1: with a free one the conversion of the spectrogram fails.
    """
    # Read when TensorFlow is first imported.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tensorflow = import_package("tensorflow", EXTRA)
    converter = import_package("tf2onnx", EXTRA)
    sounds = np.stack([*make_test_sounds(SAMPLES).values()])
    with explain_errors(saved_model, "converted as Perch v1"):
        model = tensorflow.saved_model.load(str(saved_model))
        wave = tensorflow.TensorSpec((1, SAMPLES), tensorflow.float32, "inputs")
        embed = tensorflow.function(
            lambda inputs: {"embedding": model.infer_tf(inputs)["embedding"]},
            input_signature=[wave],
        )
        converter.convert.from_function(
            embed, [wave], opset=17, output_path=str(target)
        )
        rows = [embed(sound[np.newaxis])["embedding"].numpy() for sound in sounds]
    vectors = np.concatenate(rows)
    difference = float(np.abs(open_perch_v1(target)(sounds) - vectors).max())
    largest = float(np.abs(vectors).max())
    if not difference <= TOLERANCE * largest:  # also NaN
        raise InputError(
            f"{saved_model}: after conversion its vectors differ from TensorFlow's "
            f"by {difference:.2g}, with values up to {largest:.2g}"
        )


PERCH_V1 = "kaggle:google/bird-vocalization-classifier/tensorFlow2/bird-vocalization-classifier/8"
PERCH_V1_FILES = (
    "saved_model.pb",
    "variables/variables.index",
    "variables/variables.data-00000-of-00001",
)

ENCODERS = (
    EncoderSpec(
        name="perch-v1",
        title="Perch 1 (trained on birds)",
        dimension=1280,
        rate_hz=32000,
        band_hz=(60, 16000),
        load=f"{__name__}:load_perch_v1",
        licence="Apache-2.0",
        loudness_effect=(
            "does not change it: each window is scaled to one peak, unless normalisation=none"
        ),
        windowing=WindowOptions(rate_hz=32000, window_s=5.0),
        extra=EXTRA,
        packages=("onnxruntime", "tensorflow"),
        citation=(
            "B. Ghani, T. Denton, S. Kahl, H. Klinck (2023): Global birdsong embeddings enable "
            "superior transfer learning for bioacoustic classification. Scientific Reports 13, "
            "22876."
        ),
        weights=tuple(
            Weight(f"saved_model/{file}", f"{PERCH_V1}!{file}")
            for file in PERCH_V1_FILES
        ),
        gpu=True,
        parallel=True,
        tested_with_real_weights=False,
    ),
)
