"""Weights come in, from the network or from files; those that the encoder runs with are kept.

    get or import → new weights → run on fixed sounds → kept, and the encoder is ready

Whatever is wrong with a file is found here, and not in the middle of a study.
"""

from collections.abc import Callable, Iterable, Sequence
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
from callshot.encoders.weights.staging import (
    check_first_use,
    keep_weights,
    stage_weights,
)
from callshot.encoders.weights.weight_files import (
    Weight,
    find_weight,
    get_weight,
    import_weight,
    weight_folder,
    weight_sha256,
)
from callshot.errors import InputError
from callshot.records import Progress, no_progress

Fetch = Callable[[str, Weight], object]
"""Brings a weight into the folder of this name."""


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
