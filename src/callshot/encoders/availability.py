"""Which encoders run here: their weights, what each still needs, whether its vectors are right.

`references/NAME.npz` has the vectors of an encoder with its default options, made on one machine;
vectors of other machines differ in late digits.
"""

import hashlib
import io
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl

from callshot.encoders.catalogue import find_encoder, list_specs
from callshot.encoders.encode import open_encoder
from callshot.encoders.hubert import TORCH_EXTRA
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.validation import Float32Array
from callshot.encoders.weights.weight_files import (
    Weight,
    find_weight,
    weight_sha256,
)
from callshot.errors import InputError
from callshot.records import EncoderStatus

Vectors = dict[str, Float32Array]

PACKAGES = {
    "onnx": ("onnxruntime", "onnx"),
    "birdnet": ("ai_edge_litert",),
    "yamnet": ("ai_edge_litert",),
    "perch-v1": ("onnxruntime", "tensorflow"),
    TORCH_EXTRA: ("torch", "transformers", "safetensors", "onnxscript"),
}
MISSING = "missing"
RATE_HZ = 16000
SECONDS = 4
TOLERANCE = 1e-4  # relative to the largest value of a vector
# References of models come from an x86-64 processor; on ARM, BirdNET differs by up to 0.006.
OTHER_PROCESSOR_TOLERANCE = 0.02
REFERENCE_PROCESSORS = ("x86_64", "AMD64")
DECIMALS = 3  # of the vectors in their checksum


def list_encoders() -> pl.DataFrame:
    """List the encoders, and what each still needs; nothing is imported or downloaded.

    Returns
    -------
    polars.DataFrame
        One row per encoder: name, title, dimension, input, licence, loudness_effect, `needs` (the
        commands that make it ready) and `ready`.

    Examples
    --------
    >>> list_encoders().filter(name="mfcc").select("name", "dimension", "ready").rows()
    [('mfcc', 40, True)]
    """
    rows = []
    for status in list_status():
        row = asdict(status)
        del row["weights"]
        row["needs"] = list(status.needs)
        row["ready"] = not status.needs
        rows.append(row)
    return pl.DataFrame(rows, schema_overrides={"needs": pl.List(pl.String)})


def list_status() -> list[EncoderStatus]:
    """Return the status of every encoder; nothing is imported or downloaded."""
    return [encoder_status(spec) for spec in list_specs()]


def encoder_status(spec: EncoderSpec) -> EncoderStatus:
    """Return what an encoder takes, what it still needs, and where its weights come from."""
    segments = "whole segments"
    if spec.windowing is not None:
        segments = f"windows of {spec.windowing.window_s:g} s"
    return EncoderStatus(
        name=spec.name,
        title=spec.title,
        dimension=spec.dimension,
        input=f"{segments} at {spec.rate_hz / 1000:g} kHz",
        licence=spec.licence,
        loudness_effect=spec.loudness_effect,
        needs=tuple(_missing_parts(spec)),
        weights=tuple(_weight_status(spec)),
        tested_with_real_weights=spec.tested_with_real_weights,
    )


def _weight_status(spec: EncoderSpec) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the source and the state of each file."""
    for weight in (*spec.weights, *spec.alternatives):
        source = weight.source
        if weight in spec.alternatives:
            source += " (for torch, instead)" if weight.is_for_torch else " (instead)"
        state = MISSING
        if find_weight(spec.weights_name, weight) is not None:
            state = _describe_trust(spec, weight)
        yield weight.file, source, state


def _describe_trust(spec: EncoderSpec, weight: Weight) -> str:
    """Return why a weight on this machine is trusted."""
    if weight.sha256 is not None:
        return "installed, sha256 as published"
    sha256 = weight_sha256(spec.weights_name, weight)
    return f"installed, trusted because it came first (sha256 {sha256})"


def _missing_parts(spec: EncoderSpec) -> Iterator[str]:
    """Yield what must be done before an encoder runs."""
    present = {
        weight
        for weight in (*spec.weights, *spec.alternatives)
        if find_weight(spec.weights_name, weight) is not None
    }
    needs_torch = bool(present) and all(weight.is_for_torch for weight in present)
    yield from missing_packages(spec, torch=needs_torch)
    if not present.issuperset(spec.weights) and present.isdisjoint(spec.alternatives):
        yield f"callshot encoders get {spec.name}"
    path = spec.options.get("path")
    if isinstance(path, str) and not Path(path).is_file():
        yield f"the file {path}, which does not exist"


def missing_packages(spec: EncoderSpec, *, torch: bool) -> Iterator[str]:
    """Yield the commands that install what an encoder needs, with or without torch."""
    extras = [spec.extra]
    if torch:
        extras.append(TORCH_EXTRA)
    for extra in extras:
        packages = PACKAGES.get(extra or "", ())
        if any(find_spec(package) is None for package in packages):
            yield f"pip install 'callshot[{extra}]'"


def match_files(spec: EncoderSpec, files: Sequence[Path]) -> list[tuple[Weight, Path]]:
    """Pair the weights of an encoder with a user's files.

    Files are in the order of the weights; the last one serves all weights that follow (an archive
    or a folder). If there are alternatives, the name or the content of a folder decides, or else
    the suffix.

    >>> pairs = match_files(find_encoder("hubert-base-l2"), [Path("my.onnx")])
    >>> [(weight.file, path.name) for weight, path in pairs]
    [('model.onnx', 'my.onnx')]
    """
    if not spec.alternatives:
        repeated = [*files, *[files[-1]] * len(spec.weights)]
        return list(zip(spec.weights, repeated, strict=False))
    weights = (*spec.weights, *spec.alternatives)
    pairs = []
    for file in files:
        matches = [weight for weight in weights if _holds_weight(file, weight)]
        if not matches:
            suffix = file.suffix
            matches = [
                weight for weight in weights if Path(weight.file).suffix == suffix
            ][:1]
        if not matches:
            names = ", ".join(weight.file for weight in weights)
            raise InputError(
                f"{file}: expected one of {names}, or a folder with one of them"
            )
        pairs += [(weight, file) for weight in matches]
    return pairs


def _holds_weight(file: Path, weight: Weight) -> bool:
    """Return whether a file is a weight by its name, or a folder that contains it."""
    return file.name == weight.file or (file / weight.file).is_file()


def check_encoder(spec: EncoderSpec, *, device: str = "cpu") -> Iterator[str]:
    """Compare an encoder with its reference vectors; yield lines for people.

    Raises
    ------
    InputError
        If a vector differs from its reference.
    """
    yield from check_vectors(spec, compute_vectors(spec, device=device))


def check_vectors(spec: EncoderSpec, vectors: Vectors) -> Iterator[str]:
    """Compare the vectors of the test sounds with the references; yield lines for people."""
    digest = hashlib.sha256()
    for vector in vectors.values():
        digest.update(np.round(vector, DECIMALS).tobytes())
    checksum = digest.hexdigest()[:16]
    yield f"{spec.name}: checksum of its vectors, to {DECIMALS} decimals: {checksum}"
    tolerance = TOLERANCE
    if spec.weights and platform.machine() not in REFERENCE_PROCESSORS:
        tolerance = OTHER_PROCESSOR_TOLERANCE
    references = read_references(spec)
    for name, reference in references.items():
        largest = np.abs(reference).max()
        difference = np.abs(vectors[name] - reference).max() / largest
        if not difference <= tolerance:
            raise InputError(
                f"{spec.name}: its vector for {name} differs from the reference by "
                f"{difference:.1g} of the largest value (allowed: {tolerance:g}); "
                "get the weights again, or compare versions of its runtime"
            )
        yield f"{name}: correct to {difference:.1g} of the largest value"
    if not references:
        yield (
            "no reference vectors for these options: "
            "compare the checksum with the one of another machine"
        )


def compute_vectors(spec: EncoderSpec, *, device: str = "cpu") -> Vectors:
    """Return the vectors of the test sounds."""
    encoder = open_encoder(spec, device=device)
    vectors = {}
    for name, sound in make_test_sounds().items():
        prepared = encoder.prepare(sound, RATE_HZ)
        output = encoder.encode([prepared])[0]
        vectors[name] = encoder.pool(prepared, output)
    return vectors


def make_test_sounds() -> Vectors:
    """Return sounds that are the same on every machine: a tone, a sweep, clicks and noise."""
    n = np.arange(RATE_HZ * SECONDS)
    time_s = n / RATE_HZ
    sounds = {
        "tone": np.sin(2 * np.pi * 440 * time_s),
        "sweep": np.sin(2 * np.pi * (50 + 250 * time_s) * time_s),
        "clicks": (n % 4000 == 0).astype(np.float64),
        "noise": np.sin(1e4 * np.sin(1e4 * n)),
    }
    return {name: (0.5 * sound).astype(np.float32) for name, sound in sounds.items()}


def read_references(spec: EncoderSpec) -> Vectors:
    """Return the reference vectors of an encoder; none if its options are not the defaults."""
    path = files("callshot.encoders") / "references" / f"{spec.name}.npz"
    if (
        not path.is_file()
        or spec.all_options() != find_encoder(spec.name).all_options()
    ):
        return {}
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
        return dict(arrays)
