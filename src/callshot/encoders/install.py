"""Which encoders run here, and how to get the others: weights, packages, and a check of vectors.

New weights wait in `weights/<encoder>.new/` until the encoder has run once with them: whatever is
wrong with them is found here, not in the middle of a study. `references/NAME.npz` has the vectors
of an encoder with its default options; those of other machines differ in late digits.
"""

import hashlib
import io
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl

from callshot.encoders.catalogue import find_encoder, list_specs
from callshot.encoders.encode import open_encoder
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.weights import (
    TORCH_EXTRA,
    TORCH_PACKAGES,
    Weight,
    find_weight,
    get_weight,
    import_weight,
    lock_weights,
    read_record,
    record_path,
    weight_folder,
    weight_sha256,
)
from callshot.encoders.windows import Float32Array, make_test_sounds
from callshot.errors import InputError
from callshot.files import replace_file
from callshot.records import Progress, no_progress, scale_progress

Vectors = dict[str, Float32Array]

UNFINISHED = ".part"
RATE_HZ = 16000
SECONDS = 4
TOLERANCE = 1e-4  # relative to the largest value of a vector
# References of models come from an x86-64 processor; on ARM, BirdNET differs by up to 0.006.
OTHER_PROCESSOR_TOLERANCE = 0.02
REFERENCE_PROCESSORS = ("x86_64", "AMD64")
DECIMALS = 3  # of the vectors in their checksum


# What is here, and what is missing


def list_encoders() -> pl.DataFrame:
    """List the encoders, and what each still needs; nothing is imported or downloaded.

    Returns
    -------
    polars.DataFrame
        One row per encoder: name, title, dimension, input, licence, loudness_effect, `needs` (the
        commands that make it ready), `tested_with_real_weights` and `ready`.

    Examples
    --------
    >>> list_encoders().filter(name="mfcc").select("name", "dimension", "ready").rows()
    [('mfcc', 40, True)]
    """
    names = ("name", "title", "dimension", "input", "licence", "loudness_effect")
    rows = []
    for spec in list_specs():
        row = {name: getattr(spec, name) for name in names}
        needs = list_needs(spec)
        tested = spec.tested_with_real_weights
        row |= {"needs": needs, "tested_with_real_weights": tested, "ready": not needs}
        rows.append(row)
    return pl.DataFrame(rows, schema_overrides={"needs": pl.List(pl.String)})


def list_needs(spec: EncoderSpec) -> list[str]:
    """Return the commands that make an encoder ready, in order; none if it is ready."""
    present = {  # weights on this machine
        weight
        for weight in (*spec.weights, *spec.alternatives)
        if find_weight(spec.weights_name, weight) is not None
    }
    # Only torch can run weights if all that are here are for torch.
    needs_torch = bool(present) and all(weight.is_for_torch for weight in present)
    needs = install_commands(spec, torch=needs_torch)
    if not present.issuperset(spec.weights) and present.isdisjoint(spec.alternatives):
        needs.append(f"callshot encoders get {spec.name}")
    path = spec.options.get("path")
    if isinstance(path, str) and not Path(path).is_file():
        needs.append(f"the file {path}, which does not exist")
    return needs


def install_commands(spec: EncoderSpec, *, torch: bool) -> list[str]:
    """Return the command that installs each missing extra of an encoder, also torch if asked."""
    extras = {spec.extra: spec.packages}  # without an extra, there are no packages
    if torch:
        extras[TORCH_EXTRA] = TORCH_PACKAGES
    return [
        f"pip install 'callshot[{extra}]'"
        for extra, packages in extras.items()
        if any(find_spec(package) is None for package in packages)
    ]


def describe_weight(spec: EncoderSpec, weight: Weight) -> str:
    """Return the checksum of a weight and why it is trusted; "missing" if it is not here."""
    if find_weight(spec.weights_name, weight) is None:
        return "missing"
    sha256 = f"sha256 {weight_sha256(spec.weights_name, weight)}"
    if weight.sha256 is not None:
        return f"{sha256}, as published"
    return (
        f"{sha256}, no checksum is published: this file is trusted because it came first; "
        "compare the sha256 with a colleague's"
    )


# Getting weights


def download_weights(
    spec: EncoderSpec,
    *,
    torch: bool = False,
    replace_first: bool = False,
    progress: Progress = no_progress,
) -> list[str]:
    """Download the weights of an encoder that are not here yet; return lines to print.

    `torch` requests those for torch. With `replace_first`, they are downloaded again, and are kept
    even if they differ from the files that were trusted first.
    """
    weights = spec.weights
    if torch:  # the first of the files that torch can read
        weights = spec.torch_weights[:1]
    name = spec.weights_name
    paths = [find_weight(name, weight) for weight in weights]
    if None not in paths and not replace_first:
        return _describe_weights(spec, weights)

    def fetch(staged: str, weight: Weight) -> None:
        """Download a weight into the staging folder; an error says how to import it instead."""
        try:
            get_weight(staged, weight, scale_progress(progress, 1 / len(weights)))
        except InputError as error:
            raise InputError(
                f"{name}: {error}; try again, or get it elsewhere and import it: "
                f"callshot encoders get {name} --from FILE"
            ) from None

    return _install(spec, weights, fetch, replace_first=replace_first)


def import_weights(
    spec: EncoderSpec, files: Sequence[Path], *, replace_first: bool = False
) -> list[str]:
    """Import the weights of an encoder from a user's files; return lines to print."""
    sources = dict(match_files(spec, files))

    def fetch(staged: str, weight: Weight) -> None:
        """Copy a weight into the staging folder."""
        import_weight(staged, weight, sources[weight])

    return _install(spec, tuple(sources), fetch, replace_first=replace_first)


def match_files(spec: EncoderSpec, files: Sequence[Path]) -> list[tuple[Weight, Path]]:
    """Pair the weights of an encoder with a user's files.

    Without alternatives, files are in the order of the weights, and the last one serves all that
    follow: it is an archive or a folder. With alternatives, a file belongs to the weight of the
    same name, a folder to the weights in it, or else the suffix decides.
    """
    if not spec.alternatives:
        # More files than weights are ignored: zip ends with the weights.
        repeated = [*files, *[files[-1]] * len(spec.weights)]
        return list(zip(spec.weights, repeated, strict=False))
    weights = {weight.file: weight for weight in (*spec.weights, *spec.alternatives)}
    pairs = []
    for file in files:
        names = [
            name for name in weights if name == file.name or (file / name).is_file()
        ]
        if not names:  # the first weight with this suffix
            names = [name for name in weights if Path(name).suffix == file.suffix][:1]
        if not names:
            raise InputError(
                f"{file}: expected one of {', '.join(weights)}, or a folder with one of them"
            )
        pairs += [(weights[name], file) for name in names]
    return pairs


def _install(
    spec: EncoderSpec,
    weights: Sequence[Weight],
    fetch: Callable[[str, Weight], object],
    *,
    replace_first: bool,
) -> list[str]:
    """Fetch weights into a staging folder, run the encoder with them, and only then keep them.

    `fetch` gets the name of the staging folder and a weight. Return lines to print.
    """
    name = spec.weights_name
    is_torch = any(weight.is_for_torch for weight in weights)
    packages = install_commands(spec, torch=is_torch)
    if packages:
        raise InputError(
            f"{spec.name}: weights are run once before they are kept, and that needs: "
            + ", then ".join(packages)
        )
    with stage_weights(name) as staged:
        source = weight_folder(staged)
        target = weight_folder(name)
        for weight in weights:
            fetch(staged, weight)
            if weight.sha256 is None and not replace_first:
                _check_first_use(name, weight, source, target)
        try:
            # The same encoder, with the weights in the staging folder.
            vectors = compute_vectors(replace(spec, weights_of=staged))
            if len({vector.tobytes() for vector in vectors.values()}) == 1:
                raise InputError(f"{spec.name}: every test sound has the same vector")
            lines = list(check_vectors(spec, vectors))
        except InputError as error:
            text = str(error).replace(f"{source}/", "")
            raise InputError(
                f"{spec.name}: the encoder does not run with these weights, not kept: {text}"
            ) from error

        # Derived files are named after the content that they come from; hidden ones are locks.
        kept = [*source.glob("derived/*/[!.]*")]
        for weight in weights:
            # The record first: one without its file is ignored.
            kept += [record_path(source / weight.file), source / weight.file]
        for file in kept:
            destination = target / file.relative_to(source)
            destination.parent.mkdir(parents=True, exist_ok=True)
            replace_file(file, destination)
    return _describe_weights(spec, weights) + lines


def _check_first_use(name: str, weight: Weight, source: Path, target: Path) -> None:
    """Raise InputError if a new weight, in `source`, differs from the first one, in `target`.

    A weight that comes from another place may differ.
    """
    old = read_record(target / weight.file)
    new = read_record(source / weight.file)
    is_from_elsewhere = old is not None and old["source"] != weight.source
    if old is None or new is None or is_from_elsewhere:
        return
    if old["sha256"] != new["sha256"]:
        raise InputError(
            f"{name}: {weight.file}: expected sha256 {old['sha256']}, as at first use, "
            f"got {new['sha256']}; not kept. If you trust the new file, "
            "run the command again with --replace"
        )


def _describe_weights(spec: EncoderSpec, weights: Sequence[Weight]) -> list[str]:
    """Return where each weight is, and why it is trusted."""
    lines = []
    for weight in weights:
        path = weight_folder(spec.weights_name) / weight.file
        lines += [str(path), describe_weight(spec, weight)]
    return lines


@contextmanager
def stage_weights(encoder: str) -> Iterator[str]:
    """Yield the name of a locked, empty staging folder for new weights; empty it at the end.

    Unfinished downloads stay in it, so that they can resume.
    """
    name = f"{encoder}.new"
    folder = weight_folder(name)
    with lock_weights(folder.parent, name):
        _empty(folder)
        try:
            yield name
        finally:
            _empty(folder)


def _empty(folder: Path) -> None:
    """Remove a folder of new weights with everything in it but unfinished downloads."""
    # In reverse order, what is in a folder comes before the folder.
    for path in [*sorted(folder.rglob("*"), reverse=True), folder]:
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif not path.name.endswith(UNFINISHED):
            path.unlink(missing_ok=True)


# Reference vectors


def check_encoder(spec: EncoderSpec, *, device: str = "cpu") -> Iterator[str]:
    """Compare an encoder with its reference vectors; yield lines, or raise InputError."""
    yield from check_vectors(spec, compute_vectors(spec, device=device))


def check_vectors(spec: EncoderSpec, vectors: Vectors) -> Iterator[str]:
    """Compare the vectors of the test sounds with the references; yield lines."""
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
        if not difference <= tolerance:  # also NaN
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
    """Return the vector of each test sound, by the name of the sound."""
    encoder = open_encoder(spec, device=device)
    vectors = {}
    for name, sound in make_test_sounds(RATE_HZ * SECONDS).items():
        prepared = encoder.prepare(sound, RATE_HZ)
        output = encoder.encode([prepared])[0]
        vectors[name] = encoder.pool(prepared, output)
    return vectors


def read_references(spec: EncoderSpec) -> Vectors:
    """Return the reference vectors of an encoder; none if its options are not the defaults."""
    path = files("callshot.encoders") / "references" / f"{spec.name}.npz"
    if not path.is_file():
        return {}
    if spec.all_options() != find_encoder(spec.name).all_options():
        return {}
    with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
        return dict(arrays)
