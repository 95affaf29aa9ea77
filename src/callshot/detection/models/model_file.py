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
A model without background or clips has no entries for them.
"""

import json
import math
import struct
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.detection.models.background import (
    ORIGINS,
    Background,
    BackgroundRecording,
)
from callshot.detection.models.example_clips import Clips
from callshot.detection.models.model import (
    SOURCES,
    AudioSettings,
    Model,
    Provenance,
    make_model,
    settings_facts,
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

Arrays = dict[str, NDArray[Any]]

BACKGROUND_ARRAYS = (
    "background_vectors",
    "background_recording",
    "background_start_s",
)
CLIP_ARRAYS = ("clip_samples", "clip_length")


def check_number(name: str, value: Any, lowest: float = 0.0) -> None:
    """Raise ValueError unless a value of a file is a finite number greater than `lowest`."""
    if type(value) not in (int, float) or not lowest < value < math.inf:
        raise ValueError(f"{name}: {value!r}")


def check_texts(name: str, values: Iterable[Any]) -> None:
    """Raise ValueError unless all values of a file are text that can be written again."""
    for value in values:
        if not isinstance(value, str):
            raise ValueError(f"{name}: expected text, got {value!r}")
        value.encode()


def check_spans(start_s: NDArray[Any], end_s: NDArray[Any]) -> None:
    """Raise ValueError unless times are finite and no end is before its start."""
    times_s = np.concatenate([start_s, end_s])
    if not np.isfinite(times_s).all():
        raise ValueError("start_s, end_s: expected finite numbers")
    if (end_s < start_s).any():
        raise ValueError("end_s: before start_s")


def describe_background(background: Background | None) -> dict[str, Any]:
    """Return the facts of background."""
    if background is None:
        return {}
    facts = {
        "window_s": background.window_s,
        "hop_s": background.hop_s,
        "recordings": [asdict(recording) for recording in background.recordings],
    }
    return {"background": facts}


def background_arrays(background: Background | None) -> Arrays:
    """Return the arrays of background."""
    if background is None:
        return {}
    arrays = (background.vectors, background.number, background.start_s)
    return dict(zip(BACKGROUND_ARRAYS, arrays, strict=True))


def build_background(facts: dict[str, Any], arrays: Arrays) -> Background | None:
    """Return the background of a file; raise ValueError if it is damaged."""
    if "background" not in facts:
        return None
    entries = facts["background"]
    recordings = tuple(_build_recording(entry) for entry in entries["recordings"])
    vectors, number, start_s = (arrays[name] for name in BACKGROUND_ARRAYS)
    _check_background_vectors(vectors, (len(start_s), arrays["vectors"].shape[1]))
    for name in ("window_s", "hop_s"):
        check_number(name, entries[name])
    is_known = np.isin(number, np.arange(len(recordings)))
    if len(number) != len(start_s) or not is_known.all():
        raise ValueError("background: a window is of no recording")
    return Background(
        recordings=recordings,
        vectors=vectors,
        number=number.astype(np.int64),
        start_s=start_s.astype(np.float64),
        window_s=float(entries["window_s"]),
        hop_s=float(entries["hop_s"]),
    )


def _check_background_vectors(vectors: NDArray[Any], shape: tuple[int, int]) -> None:
    """Raise ValueError unless vectors of background are finite float32 of this shape."""
    if vectors.dtype != np.float32 or vectors.shape != shape:
        raise ValueError(f"background vectors have shape {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise ValueError("background vectors: expected finite numbers")


def _build_recording(entry: dict[str, Any]) -> BackgroundRecording:
    calls_s = tuple((float(start), float(end)) for start, end in entry["calls_s"])
    origin = ORIGINS[ORIGINS.index(entry["origin"])]
    check_number("windows", entry["windows"], -1)
    check_texts("place", [entry["place"]])
    return BackgroundRecording(
        str(entry["sha256"]), int(entry["windows"]), calls_s, origin, entry["place"]
    )


def describe_clips(clips: Clips | None) -> dict[str, Any]:
    """Return the facts of clips."""
    return {} if clips is None else {"clip_rate_hz": clips.rate_hz}


def clip_arrays(clips: Clips | None) -> Arrays:
    """Return the arrays of clips: all samples, and how many each example has."""
    if clips is None:
        return {}
    nothing = np.zeros(0, np.int16)
    samples = [nothing if clip is None else clip for clip in clips.samples]
    lengths = np.array([len(clip) for clip in samples], np.int64)
    return {"clip_samples": np.concatenate(samples), "clip_length": lengths}


def build_clips(facts: dict[str, Any], arrays: Arrays) -> Clips | None:
    """Return the clips of a file; raise ValueError if they are damaged."""
    if "clip_rate_hz" not in facts:
        return None
    check_number("clip_rate_hz", facts["clip_rate_hz"])
    samples, length = (arrays[name] for name in CLIP_ARRAYS)
    examples = len(arrays["label"])
    is_whole = (length >= 0).all() and length.sum() == len(samples)
    if samples.dtype != np.int16 or len(length) != examples or not is_whole:
        raise ValueError(f"clips: {len(samples)} samples for {len(length)} examples")
    parts = np.split(samples, np.cumsum(length)[:-1])
    clips = tuple(clip if len(clip) > 0 else None for clip in parts)
    return Clips(int(facts["clip_rate_hz"]), clips)


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
