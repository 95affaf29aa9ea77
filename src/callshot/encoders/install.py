"""Weights come in, from the network or from files; those that the encoder runs with are kept.

    get or import → new weights → run on fixed sounds → kept, and the encoder is ready

Whatever is wrong with a file is found here, and not in the middle of a study. New weights wait
beside the encoder's own until they have been run once:

    home()/weights/<encoder>.new/     as weights/<encoder>/; emptied before and after each use,
                                      but for unfinished downloads, which resume

An encoder whose weights have the name `<encoder>.new` opens them there.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from callshot.encoders.availability import (
    check_vectors,
    compute_vectors,
    match_files,
    missing_packages,
)
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.weights.weight_files import (
    Weight,
    find_weight,
    get_weight,
    import_weight,
    read_record,
    record_path,
    weight_folder,
    weight_sha256,
)
from callshot.errors import InputError, OutputError
from callshot.files import error_reason, hold_lock, replace_file
from callshot.records import Progress, no_progress

Fetch = Callable[[str, Weight], object]
"""Brings a weight into the folder of this name."""

DERIVED = "derived"
UNFINISHED = (".part", ".part.json")


def download_weights(
    spec: EncoderSpec,
    *,
    torch: bool = False,
    replace_first: bool = False,
    progress: Progress = no_progress,
) -> list[str]:
    """Download the weights of an encoder that are not here yet; return lines for people.

    `torch` requests those for torch. With `replace_first`, they are downloaded again, and are kept
    even if they differ from those that were trusted first.
    """
    weights = spec.torch_weights[:1] if torch else spec.weights
    name = spec.weights_name
    paths = [find_weight(name, weight) for weight in weights]
    if None not in paths and not replace_first:
        return _describe_weights(spec, weights)
    share = partial(_report_share, progress, len(weights))

    def fetch(staged: str, weight: Weight) -> None:
        try:
            get_weight(staged, weight, share)
        except InputError as error:
            raise InputError(
                f"{name}: {error}; try again, or get it elsewhere and import it: "
                f"callshot encoders get {name} --from FILE"
            ) from None

    return _install(spec, weights, fetch, replace_first=replace_first)


def import_weights(
    spec: EncoderSpec, files: Sequence[Path], *, replace_first: bool = False
) -> list[str]:
    """Import the weights of an encoder from a user's files; return lines for people."""
    sources = dict(match_files(spec, files))

    def fetch(staged: str, weight: Weight) -> None:
        import_weight(staged, weight, sources[weight])

    return _install(spec, tuple(sources), fetch, replace_first=replace_first)


def _install(
    spec: EncoderSpec, weights: Sequence[Weight], fetch: Fetch, *, replace_first: bool
) -> list[str]:
    """Fetch weights, run the encoder with them, and keep them."""
    name = spec.weights_name
    is_torch = any(weight.is_for_torch for weight in weights)
    packages = list(missing_packages(spec, torch=is_torch))
    if packages:
        raise InputError(
            f"{spec.name}: weights are run once before they are kept, and that needs: "
            + ", then ".join(packages)
        )
    with stage_weights(name) as staged:
        for weight in weights:
            fetch(staged, weight)
            if not replace_first:
                check_first_use(name, staged, weight)
        lines = _try_encoder(spec, staged)
        keep_weights(name, staged, weights)
    return _describe_weights(spec, weights) + lines


def _try_encoder(spec: EncoderSpec, staged: str) -> list[str]:
    """Run an encoder with new weights on the test sounds; return lines for people."""
    trial = replace(spec, weights_of=staged)
    try:
        vectors = compute_vectors(trial)
        _check_variety(spec.name, vectors.values())
        return list(check_vectors(spec, vectors))
    except InputError as error:
        text = str(error).replace(f"{weight_folder(staged)}/", "")
        raise InputError(
            f"{spec.name}: the encoder does not run with these weights, not kept: {text}"
        ) from error


def _check_variety(name: str, vectors: Iterable[np.ndarray]) -> None:
    """Check that different sounds have different vectors."""
    distinct = {vector.tobytes() for vector in vectors}
    if len(distinct) == 1:
        raise InputError(f"{name}: every test sound has the same vector")


def _describe_weights(spec: EncoderSpec, weights: Sequence[Weight]) -> list[str]:
    """Return where each weight is, and why it is trusted."""
    lines = []
    for weight in weights:
        path = weight_folder(spec.weights_name) / weight.file
        sha256 = weight_sha256(spec.weights_name, weight)
        trust = "as published"
        if weight.sha256 is None:
            trust = (
                "no checksum is published: this file is trusted because it came first; "
                "compare the sha256 with a colleague's"
            )
        lines += [str(path), f"sha256 {sha256}, {trust}"]
    return lines


def _report_share(progress: Progress, parts: int, share: float, what: str) -> None:
    progress(share / parts, what)


@contextmanager
def stage_weights(encoder: str) -> Iterator[str]:
    """Yield the name under which new weights wait, to one process or thread at a time."""
    name = f"{encoder}.new"
    folder = weight_folder(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder.with_name(f".{name}.lock")):
            _empty(folder)
            try:
                yield name
            finally:
                _empty(folder)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"{folder}: weights cannot be written there ({error_reason(error)}); "
            "free some space, or set CALLSHOT_HOME to another folder"
        ) from error


def check_first_use(encoder: str, staged: str, weight: Weight) -> None:
    """Check that a new weight without a published sha256 is the one that came first."""
    first = read_record(weight_folder(encoder) / weight.file, weight)
    new = read_record(weight_folder(staged) / weight.file, weight)
    if weight.sha256 is not None or first is None or new is None:
        return
    if first["sha256"] != new["sha256"]:
        raise InputError(
            f"{encoder}: {weight.file}: expected sha256 {first['sha256']}, as at first use, "
            f"got {new['sha256']}; not kept. If you trust the new file more, "
            "give the command again with --replace"
        )


def keep_weights(encoder: str, staged: str, weights: Sequence[Weight]) -> list[Path]:
    """Move weights that have run, and what was derived from them, to their place."""
    paths = []
    for weight in weights:
        source = weight_folder(staged) / weight.file
        target = weight_folder(encoder) / weight.file
        target.parent.mkdir(parents=True, exist_ok=True)
        # A record is harmless without its file.
        replace_file(record_path(source), record_path(target))
        replace_file(source, target)
        paths.append(target)
    _keep_derived(weight_folder(staged) / DERIVED, weight_folder(encoder) / DERIVED)
    return paths


def _keep_derived(source: Path, target: Path) -> None:
    """Move derived files, which are named after the content that they come from."""
    for file in source.glob("*/[!.]*"):
        destination = target / file.parent.name / file.name
        destination.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, destination)


def _empty(folder: Path) -> None:
    """Remove everything in a folder of new weights but unfinished downloads."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif not path.name.endswith(UNFINISHED):
            path.unlink()
    if not any(folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)
