"""The catalogue of encoders: a name comes in, an `EncoderSpec` with everything it needs goes out.

An encoder that needs no code is a table in a TOML file of `models`. Others are in the ENCODERS of a
module there, which may also have `match_name`, for names that stand for many encoders, with their
PATTERN. Other packages add encoders as entry points in the group `callshot.encoders`.
"""

import tomllib
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from importlib.resources import files
from pkgutil import iter_modules
from typing import Any

from callshot.encoders import models
from callshot.encoders.spec import (
    SHARED_OPTIONS,
    EncoderSpec,
    apply_options,
    format_option,
)
from callshot.encoders.weights import Weight
from callshot.encoders.windows import WindowOptions
from callshot.errors import InputError, OptionError, suggest
from callshot.files import error_reason

ENTRY_POINTS = "callshot.encoders"
MODULES = [
    import_module(f"{models.__name__}.{module.name}")
    for module in iter_modules(models.__path__)
]
PATTERNS = [module.PATTERN for module in MODULES if hasattr(module, "PATTERN")]


def _read_specs() -> list[EncoderSpec]:
    """Return the encoders of the modules and TOML files in `models`, in the order of lists."""
    specs: list[EncoderSpec] = []
    for module in MODULES:
        specs += getattr(module, "ENCODERS", ())
    for file in files(models).iterdir():
        if file.name.endswith(".toml"):
            tables = tomllib.loads(file.read_text("utf-8"))
            specs += [_make_spec(name, table) for name, table in tables.items()]
    return sorted(specs, key=lambda spec: (spec.order, spec.name))


def _make_spec(name: str, table: Mapping[str, Any]) -> EncoderSpec:
    """Return the encoder of a table of a TOML file, whose keys are fields of `EncoderSpec`."""
    fields: dict[str, Any] = {}
    for key, value in table.items():
        fields[key] = tuple(value) if isinstance(value, list) else value
    fields["windowing"] = WindowOptions(table["rate_hz"], **table["windowing"])
    for key in ("weights", "alternatives"):
        fields[key] = tuple(Weight(**weight) for weight in table.get(key, ()))
    return EncoderSpec(name, **fields)


ENCODERS = _read_specs()


def list_specs() -> list[EncoderSpec]:
    """Return all encoders: those of callshot, and those of other packages."""
    specs = list(ENCODERS)
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            spec = entry.load()
            if not isinstance(spec, EncoderSpec):
                raise TypeError(f"expected an EncoderSpec, got {type(spec).__name__}")
        except Exception as error:  # another package may raise anything
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
    """
    options = options or {}
    specs = {spec.name: spec for spec in ENCODERS}
    for module in MODULES:
        if name not in specs and hasattr(module, "match_name"):
            matched = module.match_name(name)
            if matched is not None:
                specs[name] = matched
    if name not in specs:  # plugins are loaded only if callshot has none of that name
        specs = {spec.name: spec for spec in list_specs()}
    if name not in specs:
        word = name.lower()
        versions = [other for other in specs if word and other.startswith(word)]
        hint = suggest(word, specs, cutoff=0.4) or ";"  # before the next sentence
        if versions:
            hint = f"; did you mean {' or '.join(versions)}?"
        raise OptionError(
            f"encoder: unknown name {name!r}{hint} `callshot encoders` lists all"
        )
    for required in specs[name].required:
        if required not in options:
            raise OptionError(f"{name}: {required} is required: --set {required}=…")
    return apply_options(specs[name], options)


def display_name(spec: EncoderSpec) -> str:
    """Return the name of an encoder in results: with the options that are not the defaults.

    >>> display_name(find_encoder("mfcc")), display_name(find_encoder("mfcc", {"speed": "2"}))
    ('mfcc', 'mfcc[speed=2]')
    """
    return format_encoder(spec.name, changed_options(spec))


def format_encoder(name: str, options: Mapping[str, str]) -> str:
    """Return the name of an encoder with options in brackets."""
    if not options:
        return name
    entries = [f"{option}={value}" for option, value in options.items()]
    return f"{name}[{','.join(entries)}]"


def changed_options(spec: EncoderSpec) -> dict[str, str]:
    """Return the options that are not the defaults, as the user may write them."""
    options = spec.all_options()
    # Required options have no defaults to compare with.
    if spec.name.startswith("onnx:"):
        defaults = {**options, "output": "", **SHARED_OPTIONS}
    else:
        defaults = find_encoder(spec.name).all_options()
    changes = {}
    for name, value in options.items():
        if value != defaults[name]:
            changes[name] = format_option(value)
    return changes


def list_citations(names: Sequence[str]) -> list[str]:
    """Return the papers of encoders, each once.

    `names` are as in results: several may be joined by +, and each begins with its family, such as
    "birdnet". Other names have no paper.
    """
    families = {spec.name.partition("-")[0]: spec.citation for spec in ENCODERS}
    citations: dict[str, None] = {}  # as an ordered set
    for name in names:
        for part in name.split("+"):  # also inside brackets, where no part is a name
            for family, citation in families.items():
                if citation and part.strip().startswith(family):
                    citations[citation] = None
    return [*citations]
