"""The name of an encoder, or of several joined by + → their specs, and how vectors are joined.

    birdnet-v2.4                      one encoder
    birdnet-v2.4, speed=2+4           one encoder at two speeds, 2 and 4
    birdnet-v2.4[speed=2]+mfcc        two encoders, each with options of its own in brackets

The vectors of all specs stand side by side; each spec is embedded and stored by itself. Vectors of
one encoder at several speeds are joined as they are. Those of different encoders are divided by the
root mean square of their distances (`scale` equal), in the evaluation, by the support side of each
split, without labels. `scale=none` leaves them as they are.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from callshot.encoders.catalogue import (
    changed_options,
    display_name,
    find_encoder,
    format_encoder,
)
from callshot.encoders.encode import encoder_fingerprint
from callshot.encoders.spec import EncoderSpec, format_option
from callshot.errors import InputError, OptionError, check_choice
from callshot.files import sha256_text
from callshot.records.terms import NO_LICENCE
from callshot.vectors import Vectors

SCALES = ("equal", "none")
JOIN = "+"
JOIN_OUTSIDE_BRACKETS = re.compile(r"\+(?![^\[\]]*\])")
WITH_OPTIONS = re.compile(r"(?P<name>.+?)\[(?P<options>[^\[\]]*)\]")


@dataclass(frozen=True)
class JoinedEncoder:
    """One encoder, or several; `specs` are in the order of their vectors in the joined vector."""

    specs: tuple[EncoderSpec, ...]
    scale: str

    @property
    def name(self) -> str:
        """The name in results, by which `find_joined_encoder` finds the same specs again."""
        encoders = []
        # Neighbours that differ in speed alone have one name, with all their speeds: they are
        # equal when all are set to one speed.
        for _, group in groupby(self.specs, key=lambda spec: spec.at_speed(1.0)):
            specs = [*group]
            options = changed_options(specs[0])
            if len(specs) > 1:
                speeds = [format_option(spec.all_options()["speed"]) for spec in specs]
                options["speed"] = JOIN.join(speeds)
            encoders.append((specs[0].name, options))
        if self.scale != default_scale(self.specs):
            _, options = encoders[-1]  # in any brackets, it is read for all
            options["scale"] = self.scale
        return JOIN.join(format_encoder(*pair) for pair in encoders)

    @property
    def may_join(self) -> bool:
        """Whether there are several specs, or speed=auto may choose several."""
        return len(self.specs) > 1 or any("speed" in spec.auto for spec in self.specs)

    def at_band(self, band: str | None) -> "JoinedEncoder":
        """Return the encoder with a band of frequencies in place of band=auto."""
        specs = []
        for spec in self.specs:
            if "band" in spec.auto:
                auto = tuple(name for name in spec.auto if name != "band")
                spec = replace(spec, band=band, auto=auto)
            specs.append(spec)
        return replace(self, specs=tuple(specs))

    @property
    def gpu(self) -> bool:
        """Whether one of the encoders can run on a GPU."""
        return any(spec.gpu for spec in self.specs)

    @property
    def licence(self) -> str:
        """The licences of the weights of all encoders."""
        licences = dict.fromkeys(spec.licence for spec in self.specs)
        licences.pop(NO_LICENCE, None)
        return ", and ".join(licences) or NO_LICENCE

    def device(self, spec: EncoderSpec, device: str) -> str:
        """Return the device of a spec: joined encoders that cannot use a GPU run on the CPU."""
        is_alone = len(self.specs) == 1
        return device if is_alone or spec.gpu else "cpu"

    @property
    def scaled_dimensions(self) -> tuple[int, ...]:
        """The dimension of each spec, if their vectors are to be scaled; empty if not."""
        if self.scale == "none":
            return ()
        return tuple(spec.dimension for spec in self.specs)


def find_joined_encoder(
    name: str, options: Mapping[str, str] | None = None
) -> JoinedEncoder:
    """Return the encoder of a name, or several that are joined by + in it.

    `options` apply to all encoders; those in brackets after a name override them. Several speeds,
    joined by + too, become one spec each.

    >>> joined_encoder = find_joined_encoder("birdnet-v2.4[speed=2]+mfcc", {"pooling": "max"})
    >>> [(spec.name, spec.speed, spec.pooling) for spec in joined_encoder.specs]
    [('birdnet-v2.4', 2.0, 'max'), ('mfcc', 1.0, 'max')]
    """
    shared = dict(options or {})
    scale = shared.pop("scale", None)
    specs = []
    parts = [part.strip() for part in JOIN_OUTSIDE_BRACKETS.split(name)]
    if name.startswith("onnx:") and "[" not in name:  # a path may contain +
        parts = [name]
    for part in parts:
        encoder, own_options = parse_encoder(part)
        scale = own_options.pop("scale", scale)
        chosen = shared | own_options
        if "speed" not in chosen:
            specs.append(find_encoder(encoder, chosen))
            continue
        speeds = [speed.strip() for speed in chosen["speed"].split(JOIN)]
        specs += [find_encoder(encoder, {**chosen, "speed": speed}) for speed in speeds]
    for spec in specs:
        if specs.count(spec) > 1:
            raise OptionError(
                f"{name}: {display_name(spec)} is joined with itself; remove one of the two"
            )
    if scale is None:
        scale = default_scale(specs)
    check_choice(f"{name}: scale", scale, SCALES)
    return JoinedEncoder(tuple(specs), scale)


def check_title(title: str, option: str = "title") -> None:
    """Raise OptionError unless a title, the user's name for an encoder, is printable text."""
    if not title.strip() or not title.isprintable():
        raise OptionError(f"{option}: expected printable text, got {title!r}")


def joined_fingerprint(
    joined_encoder: JoinedEncoder, device: str = "cpu"
) -> dict[str, object]:
    """Return everything that decides the vectors of an encoder, or of several joined."""
    fingerprints = [
        encoder_fingerprint(spec, joined_encoder.device(spec, device))
        for spec in joined_encoder.specs
    ]
    if len(fingerprints) == 1:
        return fingerprints[0]
    return {"views": fingerprints, "scale": joined_encoder.scale}


def default_scale(specs: Sequence[EncoderSpec]) -> str:
    """Return how vectors are scaled: only those of different encoders."""
    names = {spec.name for spec in specs}
    return "none" if len(names) == 1 else "equal"


def parse_encoder(text: str) -> tuple[str, dict[str, str]]:
    """Return the name of an encoder, and the options in brackets after it.

    >>> parse_encoder("mfcc[n_fft=512,speed=2]")
    ('mfcc', {'n_fft': '512', 'speed': '2'})
    """
    match = WITH_OPTIONS.fullmatch(text)
    if match is None:
        return text, {}
    options = {}
    for entry in match["options"].split(","):
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not (name and equals and value):
            raise OptionError(
                f"{text}: expected options like [speed=2,pooling=max], got {entry!r}"
            )
        options[name] = value
    return match["name"], options


def join_tables(
    tables: Sequence[Vectors],
    encoder: str,
    joined_encoder: JoinedEncoder,
    device: str = "cpu",
) -> Vectors:
    """Join the vectors of several specs side by side, for the segments that all of them have.

    `encoder` is the name of the result; `device` decides which weights are in its fingerprint.
    """
    names = frozenset(tables[0].segment)
    for table in tables[1:]:
        names = names.intersection(table.segment)
    if not names:
        raise InputError(
            f"{tables[0].source}: no segment could be embedded by all parts of {encoder}"
        )
    shared = [table.only(names) for table in tables]
    vectors = np.concatenate([table.matrix for table in shared], axis=1)
    fingerprint = json.dumps(joined_fingerprint(joined_encoder, device), sort_keys=True)
    return replace(
        shared[0],
        encoder=encoder,
        matrix=vectors,
        joined_dimensions=joined_encoder.scaled_dimensions,
        fingerprint=sha256_text(fingerprint)[:32],
    )
