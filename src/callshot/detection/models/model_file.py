"""A model ↔ one `.npz` file without pickles.

    facts          JSON in UTF-8: format, version, encoder, fingerprint, settings, classes, the
                   places of the examples, provenance
    vectors        float32, examples × dimensions, as the encoder gave them
    label          the class number of each example
    start_s, end_s, windows, distance
                   of each example; the distance from the mean of the others of its class
    mean, count    of each class; they follow from the examples, for readers of other tools
    background_vectors, background_recording, background_start_s
                   windows without calls: float32, number of the recording in the facts, start
    clip_samples, clip_length
                   plain audio of examples, 16 bit, one after the other; 0: not kept

Readers ignore entries that they do not know; a change that they must know increases the version.
The same examples give the same bytes.
"""

import json
import math
import struct
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.detection.models.model import (
    SOURCES,
    AudioSettings,
    Model,
    Provenance,
    make_model,
    settings_facts,
)
from callshot.detection.models.model_parts import (
    BACKGROUND_ARRAYS,
    CLIP_ARRAYS,
    Arrays,
    background_arrays,
    build_background,
    build_clips,
    check_number,
    check_spans,
    check_texts,
    clip_arrays,
    describe_background,
    describe_clips,
)
from callshot.errors import InputError, OptionError
from callshot.files import (
    atomic_path,
    check_new_file,
    check_regular_file,
    error_reason,
    make_folder,
)
from callshot.records.npz import open_npz
from callshot.spans import Spans
from callshot.storage import to_path
from callshot.version import __version__

FORMAT = "callshot model"
VERSION = 1
SUFFIX = ".npz"
# What each number among the settings is greater than
LOWEST = {
    "window_s": 0.0,
    "source_rate_hz": 0.0,
    "rate_hz": 0.0,
    "collar_s": -1.0,
    "peak_dbfs": -math.inf,
}
# What numpy, zipfile and json raise for files that are damaged, or of another kind
READ_ERRORS = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def check_model_path(path: Path) -> None:
    """Check, before any work, that a model can be written and replaces no file of others."""
    if path.suffix != SUFFIX:
        raise OptionError(f"out: expected a name that ends in {SUFFIX}, got {path}")
    check_new_file(path, "model", _is_model)


def _is_model(path: Path) -> bool:
    try:
        facts, _ = _read_entries(path)
        return bool(facts["format"] == FORMAT)
    except READ_ERRORS:
        return False


def write_model(model: Model, path: Path) -> None:
    """Write a model; an earlier file of that name is replaced when the new one is whole."""
    check_model_path(path)
    text = json.dumps(_facts(model), sort_keys=True, ensure_ascii=True)
    arrays = _arrays(model)
    arrays["facts"] = np.frombuffer(text.encode(), np.uint8)
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


def _facts(model: Model) -> dict[str, Any]:
    facts = {
        "format": FORMAT,
        "version": VERSION,
        "callshot": __version__,
        "encoder": model.encoder,
        "fingerprint": dict(model.fingerprint),
        "classifier": "centroid",
        "settings": settings_facts(model.settings),
        "classes": model.classes,
        "path": model.examples.paths,
        "recording": model.examples["recording"],
        "licence": model.provenance.licence,
        "inputs": model.provenance.inputs,
    }
    facts |= describe_background(model.background)
    facts |= describe_clips(model.clips)
    return facts


def _arrays(model: Model) -> Arrays:
    examples = model.examples
    arrays: Arrays = {
        "vectors": model.vectors,
        "label": model.label.astype(np.int64),
        "start_s": np.array(examples["start_s"]),
        "end_s": np.array(examples["end_s"]),
        "windows": np.array(examples["windows"], np.int64),
        "distance": model.distances,
        "mean": model.means,
        "count": model.counts.astype(np.int64),
    }
    arrays |= background_arrays(model.background)
    arrays |= clip_arrays(model.clips)
    return arrays


def load_model(path: Path | str) -> Model:
    """Load a model from a file; its class means are computed from its examples again.

    Parameters
    ----------
    path : path
        The model that `callshot learn` or `learn(...).write` wrote.

    Returns
    -------
    Model
        `scan` takes it. `.classifier` is a `CentroidClassifier` with scikit-learn's conventions,
        for vectors of the model's encoder; its `partial_fit` adds examples, in memory only.

    Raises
    ------
    InputError
        If the file is no model, is damaged, or needs a newer callshot.

    Examples
    --------
    >>> load_model("missing.npz")
    Traceback (most recent call last):
    callshot.errors.InputError: missing.npz: expected a model of callshot learn \
(No such file or directory)
    """
    path = to_path(path)
    try:
        facts, arrays = _read_entries(path)
        version = facts["version"]
        if facts["format"] != FORMAT or type(version) is not int:
            raise ValueError("another kind of file")
        if version > VERSION:
            raise InputError(
                f"{path}: a model of version {version}, but this callshot reads up to "
                f"{VERSION}; update callshot"
            )
        return _build_model(path, facts, arrays)
    except InputError:
        raise
    except READ_ERRORS as error:
        raise InputError(
            f"{path}: expected a model of callshot learn ({error_reason(error)})"
        ) from None


def _read_entries(path: Path) -> tuple[dict[str, Any], Arrays]:
    check_regular_file(path)
    names = ["vectors", "label", "start_s", "end_s", "windows"]
    with path.open("rb") as stream:
        entries = open_npz(stream, path)
        facts = json.loads(entries["facts"].astype(np.uint8).tobytes())
        if "background" in facts:
            names += BACKGROUND_ARRAYS
        if "clip_rate_hz" in facts:
            names += CLIP_ARRAYS
        arrays = {name: entries[name] for name in names}
    return facts, arrays


def _build_model(path: Path, facts: dict[str, Any], arrays: Arrays) -> Model:
    vectors = arrays["vectors"]
    _check_vectors(vectors, len(facts["path"]))
    settings = AudioSettings(**facts["settings"])
    _check_settings(settings)
    inputs = tuple(sorted((role, file, sha) for role, file, sha in facts["inputs"]))
    model = make_model(
        _build_examples(facts, arrays),
        vectors,
        encoder=str(facts["encoder"]),
        fingerprint=dict(facts["fingerprint"]),
        settings=settings,
        provenance=Provenance(str(facts["licence"]), inputs),
        background=build_background(facts, arrays),
        clips=build_clips(facts, arrays),
    )
    return replace(model, source=str(path))


def _check_settings(settings: AudioSettings) -> None:
    """Raise ValueError unless settings have the types and ranges that `learn` writes."""
    if settings.source not in SOURCES:
        raise ValueError(f"source: {settings.source!r}")
    check_texts("channel_rule", [settings.channel_rule])
    for name, lowest in LOWEST.items():
        value = getattr(settings, name)
        if value is not None:
            check_number(name, value, lowest)


def _check_vectors(vectors: NDArray[Any], count: int) -> None:
    """Raise ValueError unless there is a finite vector for each example."""
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != count:
        raise ValueError(f"vectors have shape {vectors.shape} for {count} examples")
    if not np.isfinite(vectors).all() or vectors.size == 0:
        raise ValueError("vectors: expected finite numbers")


def _build_examples(facts: dict[str, Any], arrays: Arrays) -> Spans:
    classes = facts["classes"]
    for name in ("classes", "recording", "path"):
        check_texts(name, facts[name])
    check_spans(arrays["start_s"], arrays["end_s"])
    if (arrays["label"] < 0).any():
        raise ValueError("label: expected numbers of classes")
    columns = {
        "label": [classes[number] for number in arrays["label"].tolist()],
        "recording": facts["recording"],
        "path": facts["path"],
        "start_s": arrays["start_s"].astype(np.float64),
        "end_s": arrays["end_s"].astype(np.float64),
        "windows": arrays["windows"].astype(np.int64),
    }
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("examples: columns of different lengths")
    return Spans(pl.DataFrame(columns))
