"""One encoder with its options: those of a user come in, a changed `EncoderSpec` goes out.

Everything that decides the vectors is in the spec, and so in the fingerprint by which the store
keeps them.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from callshot.corpus.audio import parse_band
from callshot.encoders.weights import Weight, derive_file, require_weight
from callshot.encoders.windows import WindowOptions
from callshot.errors import OptionError, check_choice, check_range, suggest

Option = str | int | float | bool | None

# Of every encoder, with the defaults
SHARED_OPTIONS: Mapping[str, Option] = {"pooling": "mean", "speed": 1.0, "band": None}
POOLINGS = ("mean", "audio", "max", "energy", "norm")  # described in `encode`
SPEEDS = (0.01, 100.0)
LOWEST_HZ = 1.0  # of a band; below, its filter would be longer than a minute
AUTO = "auto"  # the value is chosen from calls
CAN_BE_AUTO = {
    "speed": "from segments; give a number here",
    "band": "when a new model is learned; give frequencies here, such as band=300-1000",
}
HAS_NONE = ("top_db", "band")  # options that can be switched off
SHARED_LIMITS: Mapping[str, tuple[Any, ...]] = {"pooling": POOLINGS, "speed": SPEEDS}
RECOMMENDED = (
    "birdnet-v2.4 for birds; birdnet-v2.4 with --set speed=2 or 4 for elephants and other low "
    "calls; mfcc needs no download and finds fewer calls"
)


@dataclass(frozen=True)
class EncoderSpec:
    """One encoder, and everything that decides its vectors.

    title          a name that a biologist knows, and in brackets what it was trained on
    rate_hz        sample rate that the model takes
    load           function that opens the model, as "module:function"
    loudness_effect
                   what a louder segment does to its vector
    windowing      how a segment is cut into windows; None: the model takes a segment whole
    options        all other options of this encoder that change the vectors, with the defaults
    limits         the range of an option, or the words that it can be
    required       options that must be given
    dimension_option
                   the option that is the number of dimensions
    pooling        how the vectors of windows or frames become one
    speed          how many times faster the model gets a segment; below 1: slower
    band           the band of frequencies of a recording that the model gets, in Hz before the
                   change of speed, such as "300-1000"; None: all
    auto           options whose values are still to be chosen, from calls
    band_hz        the band of frequencies that it was trained on, or that its filters cover
    extra          extra of callshot that must be installed, and the `packages` that it brings
    alternatives   files that can take the place of `weights`: for torch, or of other toolkits; one
                   of them is enough
    weights_of     encoder whose weights it shares
    output         tensor of its ONNX or tflite file that is the vector
    gpu            whether it can run on a GPU
    parallel       whether several threads may call the model at once, on the CPU
    tested_with_real_weights
                   whether callshot was tested with them, not only with small models that have
                   the same inputs and outputs
    version        of our code; a change of the vectors increases it
    pace           seconds that a second of audio takes, about, on one core
    citation       of the paper, for the methods of a report
    in_study       whether `callshot init` writes it into a study file, with a `comment` beside the
                   name, and `study_lines` below it
    order          in lists; names decide between equal ones
    """

    name: str
    title: str
    dimension: int
    rate_hz: int
    load: str
    licence: str
    loudness_effect: str
    windowing: WindowOptions | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    limits: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    dimension_option: str = "dimension"
    pooling: str = "mean"
    speed: float = 1.0
    band: str | None = None
    auto: tuple[str, ...] = ()
    extra: str | None = None
    packages: tuple[str, ...] = ()
    weights: tuple[Weight, ...] = ()
    alternatives: tuple[Weight, ...] = ()
    weights_of: str | None = None
    output: str = ""
    gpu: bool = False
    band_hz: tuple[float, float] | None = None
    parallel: bool = False
    tested_with_real_weights: bool = True
    version: int = 1
    pace: float = 0.1
    citation: str = ""
    in_study: bool = True
    comment: str = ""
    study_lines: tuple[str, ...] = ()
    order: int = 5

    @property
    def weights_name(self) -> str:
        """The name under which its weights are stored."""
        return self.weights_of or self.name

    @property
    def torch_weights(self) -> tuple[Weight, ...]:
        """The alternatives that torch reads."""
        return tuple(weight for weight in self.alternatives if weight.is_for_torch)

    @property
    def input(self) -> str:
        """What a segment becomes, such as "windows of 3 s at 48 kHz"."""
        segments = "whole segments"
        if self.windowing is not None:
            segments = f"windows of {self.windowing.window_s:g} s"
        return f"{segments} at {self.rate_hz / 1000:g} kHz"

    def derive(self, name: str, make: Callable[[Path, Path], object]) -> Path:
        """Return the file `name` made of the first weight.

        `make(source, target)` writes it, once, from the path of the weight.
        """
        source = require_weight(self.weights_name, self.weights[0])
        return derive_file(self.weights_name, name, source, partial(make, source))

    def at_speed(self, speed: float) -> "EncoderSpec":
        """Return the encoder at another speed, which is then chosen."""
        auto = tuple(name for name in self.auto if name != "speed")
        return replace(self, speed=speed, auto=auto)

    def all_options(self) -> dict[str, Option]:
        """Return every option that `apply_options` can change, with its value."""
        options: dict[str, Option] = {}
        if self.windowing is not None:
            options |= asdict(self.windowing)
        options |= dict(self.options)
        options |= {name: getattr(self, name) for name in SHARED_OPTIONS}
        return options | dict.fromkeys(self.auto, AUTO)


def _parse_option(spec: EncoderSpec, name: str, text: str, default: Any) -> Any:
    """Return the value of an option from the text of a user, of the type of the default."""
    option = f"{spec.name}: {name}"
    value: Any
    try:
        if isinstance(default, str):
            value = text
        elif text.lower() == "none" and name in HAS_NONE:
            value = None
        elif name == "band":
            value = format_band(*parse_band(text))
        elif isinstance(default, bool):  # before int, which bool is a subclass of
            value = {"true": True, "false": False}[text.lower()]
        elif isinstance(default, int):
            value = int(text)
        else:
            value = float(text)
    except (ValueError, KeyError):
        example = "300-1000 (Hz)" if name == "band" else repr(default)
        raise OptionError(
            f"{option}: expected a value like {example}, got {text!r}"
        ) from None
    limits = {**SHARED_LIMITS, **spec.limits}.get(name, ())
    if isinstance(value, str) and limits:
        check_choice(option, value, limits)
    elif limits and value is not None:
        check_range(option, value, *limits)
    return value


def apply_options(spec: EncoderSpec, texts: Mapping[str, str]) -> EncoderSpec:
    """Return an encoder with options changed to values as a user writes them.

    An option that is set to `auto` keeps its value, and is named in `EncoderSpec.auto`.
    """
    texts = {**dict.fromkeys(spec.auto, AUTO), **texts}  # auto before stays auto
    auto = tuple(name for name in CAN_BE_AUTO if texts.get(name) == AUTO)
    old_values = replace(spec, auto=()).all_options()  # also of options set to auto
    values: dict[str, Any] = dict(old_values)
    for name, text in texts.items():
        if name not in old_values:
            hint = suggest(name, old_values)
            listed = ", ".join(old_values)
            raise OptionError(
                f"{spec.name}: no option {name!r}{hint}; options: {listed}"
            )
        if name not in auto:
            values[name] = _parse_option(spec, name, text, old_values[name])
    options = {name: values[name] for name in spec.options}
    shared = {name: values[name] for name in SHARED_OPTIONS}
    dimension = options.get(spec.dimension_option, spec.dimension)
    spec = replace(spec, options=options, dimension=dimension, auto=auto, **shared)
    if spec.windowing is None:
        return check_band(spec)
    of_windows = {name: values[name] for name in asdict(spec.windowing)}
    was_adjacent = spec.windowing.hop_s == spec.windowing.window_s
    if was_adjacent and "hop_s" not in texts:
        of_windows["hop_s"] = None  # the default: windows stay adjacent
    windowing = WindowOptions(**of_windows)
    return check_band(replace(spec, windowing=windowing, rate_hz=windowing.rate_hz))


def check_band(spec: EncoderSpec) -> EncoderSpec:
    """Return the encoder as it is; raise OptionError if it cannot get its band of frequencies."""
    if spec.band is None:
        return spec
    option = f"{spec.name}: band"
    low_hz, high_hz = parse_band(spec.band)
    if low_hz != 0:
        check_range(option, low_hz, LOWEST_HZ, spec.rate_hz, "Hz")
    if not low_hz < high_hz:
        raise OptionError(
            f"{option}: expected a lower and a higher frequency, got {spec.band} Hz"
        )
    nyquist_hz = spec.rate_hz / 2 / spec.speed
    if high_hz > nyquist_hz:
        at_speed = "" if spec.speed == 1 else f" at speed {format_option(spec.speed)}"
        raise OptionError(
            f"{option}: expected at most {nyquist_hz:g} Hz, the highest frequency that the "
            f"encoder gets{at_speed}, got {high_hz:g} Hz"
        )
    return spec


def check_no_auto(spec: EncoderSpec) -> None:
    """Raise OptionError if an option of an encoder is still `auto`, its value not chosen yet."""
    for option in spec.auto:
        raise OptionError(f"{spec.name}: {option}=auto is chosen {CAN_BE_AUTO[option]}")


def read_at_speed(spec: EncoderSpec) -> EncoderSpec:
    """Return an encoder for audio that `spec.speed` has been applied to already.

    >>> spec = EncoderSpec("a", "", 1, 48000, "", "", "", speed=2.0, band="300-1000")
    >>> read_at_speed(spec).speed, read_at_speed(spec).band
    (1.0, '600-2000')
    """
    band = spec.band
    if band is not None:
        low_hz, high_hz = parse_band(band)
        band = format_band(low_hz * spec.speed, high_hz * spec.speed)
    return replace(spec, speed=1.0, band=band)


def format_band(low_hz: float, high_hz: float) -> str:
    """Return a band of frequencies as the user may write it."""
    return f"{format_option(low_hz)}-{format_option(high_hz)}"


def fingerprint(spec: EncoderSpec, weights: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that decides the vectors of an encoder; `weights` are SHA-256 by file.

    The store is keyed by the result: any change to its text means that all vectors are made again.
    """
    options = spec.all_options()
    options.pop("path", None)  # the checksum of the file counts, not its name
    pooling = options.pop("pooling")
    return {
        "encoder": spec.name,
        "version": spec.version,
        "rate_hz": spec.rate_hz,
        "dimension": spec.dimension,
        "options": options,
        "pooling": pooling,
        "resampler": "soxr HQ",
        "weights": dict(sorted(weights.items())),
    }


def find_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the names of entries that are not the same in two fingerprints."""
    names = sorted({*first, *second})
    return [name for name in names if first.get(name) != second.get(name)]


def format_options(options: Mapping[str, object] | None) -> dict[str, str]:
    """Return options of an encoder as texts, as `apply_options` takes them.

    >>> format_options({"speed": 2.0, "padding": "right", "band": None})
    {'speed': '2', 'padding': 'right', 'band': 'none'}
    """
    return {name: format_option(value) for name, value in (options or {}).items()}


def format_option(value: object) -> str:
    """Return the value of an option as the user may write it.

    >>> format_option(2.0), format_option(0.025), format_option(None), format_option(True)
    ('2', '0.025', 'none', 'true')
    """
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
