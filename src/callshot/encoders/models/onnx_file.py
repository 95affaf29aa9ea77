"""Any ONNX model of waveforms: `onnx:PATH`."""

import math
from pathlib import Path

from callshot.encoders.onnx import ONNX_PACKAGES
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.windows import WindowOptions

PATTERN = "onnx:PATH"
PREFIX = "onnx:"


def match_name(name: str) -> EncoderSpec | None:
    """Return the encoder of a file, if the name is that of one; options must be given."""
    if not name.startswith(PREFIX):
        return None
    path = Path(name.removeprefix(PREFIX))
    return EncoderSpec(
        name=f"{PREFIX}{path.name}",
        title=f"the ONNX model {path}",
        dimension=1,
        rate_hz=1,
        load="callshot.encoders.onnx:load_onnx",
        licence="its own",
        loudness_effect="depends on the model",
        windowing=WindowOptions(rate_hz=1, window_s=1.0, normalisation="none"),
        options={"path": str(path.absolute()), "output": "", "dimension": 1},
        limits={"dimension": (1, math.inf)},
        required=("rate_hz", "window_s", "dimension"),
        extra="onnx",
        packages=ONNX_PACKAGES,
        gpu=True,
        parallel=True,
    )
