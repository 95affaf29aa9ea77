"""A model: labelled example vectors, and everything that decides how vectors are made.

Class means, counts and distances follow from the examples, which are kept in a fixed order. So two
models merge into the one that all their examples give at once, whatever the order.

A model keeps the plain audio of examples, so that it can be adapted to other recordings: of each
label at most 20, chosen by a hash of their places, so that the choice does not depend on the order
in which examples are added; of a long call the middle 10 s; 16 bit, at the rate of the encoder,
with the peak at full scale.

The file of a model is an `.npz` without pickles:

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
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.detection.background import (
    ORIGINS,
    Background,
    BackgroundRecording,
    merge_backgrounds,
)
from callshot.detection.index.windows import plain_json
from callshot.encoders.joined_encoder import JoinedEncoder, joined_fingerprint
from callshot.encoders.spec import find_differences
from callshot.errors import InputError, OptionError, count_text
from callshot.fewshot.centroid import CentroidClassifier, LinearLayer, log_odds
from callshot.fewshot.kernels import streams
from callshot.files import (
    atomic_path,
    check_new_file,
    check_regular_file,
    error_reason,
    make_folder,
)
from callshot.records import FloatArray, IntArray
from callshot.records.table_files import open_npz
from callshot.spans import Spans, concat_spans
from callshot.storage import to_path
from callshot.version import __version__

Pcm = NDArray[np.int16]

MAX_CLIPS = 20  # of a label
MAX_CLIP_S = 10.0
FULL_SCALE = 32767


@dataclass(frozen=True, eq=False)
class Clips:
    """The audio of examples, one entry for each; None if it is not kept."""

    rate_hz: int
    samples: tuple[Pcm | None, ...]

    def select(self, rows: Sequence[int]) -> "Clips":
        """Return the clips of some examples, in that order."""
        return Clips(self.rate_hz, tuple(self.samples[row] for row in rows))


def to_pcm(signal: NDArray[np.float32]) -> Pcm:
    """Return a signal as 16 bit samples, with its peak at full scale.

    >>> to_pcm(np.array([0.5, -0.25], np.float32))
    array([ 32767, -16384], dtype=int16)
    """
    peak = float(np.abs(signal).max())
    scaled = signal * (FULL_SCALE / peak) if peak > 0 else signal
    return np.round(scaled).astype(np.int16)


Vectors = NDArray[np.float32]

RECORDING = "recording"
SEGMENT = "segment"
SOURCES = {RECORDING: "recordings with annotations", SEGMENT: "a table of segments"}
EXAMPLE_COLUMNS = ("label", "recording", "path", "start_s", "end_s", "windows")
OPTION_NAMES = {
    "window_s": "--window",
    "channel_rule": "--channel",
    "rate_hz": "--rate-hz",
    "collar_s": "--collar-s",
    "peak_dbfs": "--peak-dbfs",
    "source_rate_hz": "--source-rate-hz",
}


@dataclass(frozen=True)
class AudioSettings:
    """How the audio of a call becomes windows.

    source          "recording": windows of the recording around the call, as a scan has them;
                    "segment": the segment as `callshot segment` cut it
    window_s        length of a window, for encoders without one of their own
    channel_rule    "first", "mean", or the number of a channel
    source_rate_hz  true rate of time-expanded recordings
    rate_hz, collar_s, peak_dbfs
                    how segments were cut; None if windows come from recordings
    """

    source: str = RECORDING
    window_s: float | None = None
    channel_rule: str = "first"
    source_rate_hz: float | None = None
    rate_hz: int | None = None
    collar_s: float | None = None
    peak_dbfs: float | None = None


@dataclass(frozen=True)
class Provenance:
    """Where a model comes from: the licence of the encoder's weights, and the files with examples.

    `inputs` are role, file and sha256 of recordings and annotations, without repetitions.
    """

    licence: str
    inputs: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Model:
    """Examples with their vectors, the encoder that made these, and how.

    Made by `learn` and `load_model`, and taken by `scan`. `classifier` is the model as a
    scikit-learn classifier; `classes`, `counts`, `means` and `distances` describe its examples.

    encoder      its name, with options, by which it is found again
    examples     spans with a label; `windows` is how many windows a vector is the mean of
    fingerprint  everything that decides its vectors, with the checksums of its weights
    vectors      one row per example, as the encoder gave them
    background   windows without calls, by which thresholds are found; None if there are none
    clips        audio of examples, to mix them into background of another site
    source       the file that it was read from, for messages
    """

    encoder: str
    fingerprint: Mapping[str, Any]
    settings: AudioSettings
    examples: Spans
    vectors: Vectors
    provenance: Provenance
    background: Background | None = None
    clips: Clips | None = None
    source: str = "memory"

    def __repr__(self) -> str:
        return (
            f"Model({count_text(len(self.examples), 'example')} of "
            f"{count_text(len(self.classes), 'class')}, "
            f"{self.encoder})"
        )

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The labels, sorted."""
        return tuple(sorted(set(self.examples["label"])))

    @cached_property
    def label(self) -> IntArray:
        """The number of the class of each example."""
        numbers = {name: n for n, name in enumerate(self.classes)}
        return np.array([numbers[label] for label in self.examples["label"]])

    @cached_property
    def counts(self) -> IntArray:
        """The number of examples of each class."""
        return np.bincount(self.label, minlength=len(self.classes))

    @cached_property
    def classifier(self) -> CentroidClassifier:
        """The nearest class mean; its sums are exact, so the order of examples has no effect."""
        labels = self.examples["label"]
        with warnings.catch_warnings():
            # scikit-learn takes many labels with one example each for numbers.
            warnings.filterwarnings("ignore", "The number of unique classes")
            return CentroidClassifier().fit(self.vectors, labels)

    @property
    def means(self) -> FloatArray:
        """The mean of each class, classes × dimensions."""
        return self.classifier.centroids_

    @property
    def layer(self) -> LinearLayer:
        """The rule as a linear layer: weights 2 c, biases −|c|²."""
        bias = -np.einsum("nd,nd->n", self.means, self.means)
        return LinearLayer(self.classes, 2.0 * self.means, bias)

    @cached_property
    def distances(self) -> FloatArray:
        """The distance of each example from the mean of the others of its class; NaN if alone."""
        vectors = self.vectors.astype(np.float64)
        count = self.counts[self.label].astype(np.float64)
        from_mean = np.linalg.norm(vectors - self.means[self.label], axis=1)
        # x − mean of the others = (x − mean of all) · n / (n − 1)
        distances = np.full(len(vectors), np.nan)
        np.divide(from_mean * count, count - 1, out=distances, where=count > 1)
        return distances


def describe_locations(examples: Spans) -> list[str]:
    """Return the file and the time of each example, for messages."""
    pairs = zip(examples.paths, examples["start_s"], strict=True)
    return [f"{path} at {start_s:.2f} s" for path, start_s in pairs]


def make_model(
    examples: Spans,
    vectors: Vectors,
    *,
    encoder: str,
    fingerprint: Mapping[str, Any],
    settings: AudioSettings,
    provenance: Provenance,
    background: Background | None = None,
    clips: Clips | None = None,
) -> Model:
    """Return a model with its examples in a fixed order; the same example twice counts once."""
    frame = examples.frame.select(EXAMPLE_COLUMNS)
    unique: dict[tuple[Any, ...], int] = {}
    for row, cells in enumerate(frame.iter_rows()):
        unique.setdefault((*cells, vectors[row].tobytes()), row)
    rows = [unique[key] for key in sorted(unique)]
    ordered = Spans(frame[rows])
    if clips is not None:
        keep = _choose_clips(ordered)
        samples = clips.select(rows).samples
        kept = [clip if row in keep else None for row, clip in enumerate(samples)]
        clips = Clips(clips.rate_hz, tuple(kept))
    return Model(
        encoder=encoder,
        fingerprint=fingerprint,
        settings=settings,
        examples=ordered,
        vectors=np.ascontiguousarray(vectors[rows], np.float32),
        provenance=provenance,
        background=background,
        clips=clips,
    )


def _choose_clips(examples: Spans) -> set[int]:
    """Return the examples that keep their audio: of each label the 20 with the lowest hash."""
    ranked: dict[str, list[tuple[int, int]]] = {}
    pairs = zip(examples["label"], describe_locations(examples), strict=True)
    for row, (label, location) in enumerate(pairs):
        key = int(streams.key(f"clip {location}"))
        ranked.setdefault(label, []).append((key, row))
    return {row for rows in ranked.values() for _, row in sorted(rows)[:MAX_CLIPS]}


def merge_models(first: Model, second: Model) -> Model:
    """Return the model of all examples of two models, which must agree in everything else."""
    check_fingerprint(first, second.encoder, second.fingerprint)
    check_settings(first, second.settings, second.source)
    inputs = {*first.provenance.inputs, *second.provenance.inputs}
    clips = None
    samples: list[Pcm | None] = []
    for model in (first, second):
        own = [None] * len(model.examples)
        samples += own if model.clips is None else model.clips.samples
        if clips is None:
            clips = model.clips
    return make_model(
        concat_spans([first.examples, second.examples]),
        np.concatenate([first.vectors, second.vectors]),
        encoder=first.encoder,
        fingerprint=first.fingerprint,
        settings=first.settings,
        provenance=Provenance(first.provenance.licence, tuple(sorted(inputs))),
        background=merge_backgrounds(first.background, second.background),
        clips=None if clips is None else Clips(clips.rate_hz, tuple(samples)),
    )


def plain_fingerprint(joined_encoder: JoinedEncoder, device: str) -> dict[str, Any]:
    """Return the fingerprint of an encoder as a file gives it back."""
    return plain_json(joined_fingerprint(joined_encoder, device))


def check_encoder(model: Model, joined_encoder: JoinedEncoder, device: str) -> None:
    """Raise InputError unless an encoder gives the vectors that a model was learned from."""
    fingerprint = plain_fingerprint(joined_encoder, device)
    check_fingerprint(model, joined_encoder.name, fingerprint)


def check_fingerprint(
    model: Model, encoder: str, fingerprint: Mapping[str, Any]
) -> None:
    """Raise InputError unless an encoder gives the vectors that a model was learned from."""
    if encoder != model.encoder and fingerprint != model.fingerprint:
        raise InputError(
            f"{model.source}: learned with {model.encoder}, got {encoder}; "
            f"use --encoder '{model.encoder}', or learn a model with {encoder}"
        )
    if fingerprint != model.fingerprint:
        changed = ", ".join(find_differences(model.fingerprint, fingerprint))
        raise InputError(
            f"{model.source}: {encoder} has changed since the model was learned ({changed}); "
            "use the same weights and version, or learn the model again"
        )


def check_settings(model: Model, settings: AudioSettings, source: str) -> None:
    """Raise InputError unless audio is cut as it was for a model."""
    for field in fields(AudioSettings):
        expected = getattr(model.settings, field.name)
        value = getattr(settings, field.name)
        if value == expected:
            continue
        if field.name == "source":
            raise InputError(
                f"{source}: expected {SOURCES[expected]}, as the examples of "
                f"{model.source}, got {SOURCES[value]}"
            )
        option = OPTION_NAMES[field.name]
        raise InputError(
            f"{source}: {field.name} is {value}, but {model.source} was learned with {expected}; "
            f"use {option} {expected}"
        )


def check_classes(model: Model) -> None:
    """Raise InputError unless a model can name calls by different labels."""
    if len(model.classes) < 2:
        raise InputError(
            f"{model.source}: expected examples of two labels or more, got only "
            f"{model.classes[0]}; add examples with callshot learn --add"
        )
    check_different(model)


def check_different(model: Model) -> None:
    """Raise InputError if two labels have the same mean."""
    first: dict[bytes, str] = {}
    for name, mean in zip(model.classes, model.means, strict=True):
        other = first.setdefault(mean.tobytes(), name)
        if other != name:
            raise InputError(
                f"{model.source}: the examples of {other} and {name} are identical, so no call can "
                "be named one of them; correct the examples"
            )


def score_vectors(model: Model, vectors: Any) -> FloatArray:
    """Return the log-odds of all classes for each vector."""
    return log_odds(model.layer(vectors))


Arrays = dict[str, NDArray[Any]]

BACKGROUND_ARRAYS = (
    "background_vectors",
    "background_recording",
    "background_start_s",
)
CLIP_ARRAYS = ("clip_samples", "clip_length")
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
    examples = model.examples
    facts: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "callshot": __version__,
        "encoder": model.encoder,
        "fingerprint": dict(model.fingerprint),
        "classifier": "centroid",
        "settings": asdict(model.settings),
        "classes": model.classes,
        "path": examples.paths,
        "recording": examples["recording"],
        "licence": model.provenance.licence,
        "inputs": model.provenance.inputs,
    }
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
    background = model.background
    if background is not None:
        facts["background"] = {
            "window_s": background.window_s,
            "hop_s": background.hop_s,
            "recordings": [asdict(recording) for recording in background.recordings],
        }
        columns = (background.vectors, background.number, background.start_s)
        arrays |= zip(BACKGROUND_ARRAYS, columns, strict=True)
    if model.clips is not None:
        facts["clip_rate_hz"] = model.clips.rate_hz
        nothing = np.zeros(0, np.int16)
        samples = [nothing if clip is None else clip for clip in model.clips.samples]
        lengths = np.array([len(clip) for clip in samples], np.int64)
        arrays |= zip(CLIP_ARRAYS, (np.concatenate(samples), lengths), strict=True)
    text = json.dumps(facts, sort_keys=True, ensure_ascii=True)
    arrays["facts"] = np.frombuffer(text.encode(), np.uint8)
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


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
    """Return the model of a file; raise ValueError if the file is damaged."""
    examples = _build_examples(facts, arrays)
    _check_vectors("vectors", arrays["vectors"], len(examples))
    if arrays["vectors"].size == 0:
        raise ValueError("vectors: there are none")
    settings = AudioSettings(**facts["settings"])
    if settings.source not in SOURCES:
        raise ValueError(f"source: {settings.source!r}")
    _check_texts("channel_rule", [settings.channel_rule])
    for name, lowest in LOWEST.items():
        value = getattr(settings, name)
        if value is not None:
            _check_number(name, value, lowest)
    inputs = tuple(sorted((role, file, sha) for role, file, sha in facts["inputs"]))
    background = None
    if "background" in facts:
        background = _build_background(facts["background"], arrays)
    clips = None
    if "clip_rate_hz" in facts:
        _check_number("clip_rate_hz", facts["clip_rate_hz"])
        samples, length = (arrays[name] for name in CLIP_ARRAYS)
        is_whole = (length >= 0).all() and length.sum() == len(samples)
        if samples.dtype != np.int16 or len(length) != len(examples) or not is_whole:
            raise ValueError(
                f"clips: {len(samples)} samples for {len(length)} examples"
            )
        parts = np.split(samples, np.cumsum(length)[:-1])
        kept = tuple(clip if len(clip) > 0 else None for clip in parts)
        clips = Clips(int(facts["clip_rate_hz"]), kept)
    model = make_model(
        examples,
        arrays["vectors"],
        encoder=str(facts["encoder"]),
        fingerprint=dict(facts["fingerprint"]),
        settings=settings,
        provenance=Provenance(str(facts["licence"]), inputs),
        background=background,
        clips=clips,
    )
    return replace(model, source=str(path))


def _build_examples(facts: dict[str, Any], arrays: Arrays) -> Spans:
    for name in ("classes", "recording", "path"):
        _check_texts(name, facts[name])
    start_s = arrays["start_s"].astype(np.float64)
    end_s = arrays["end_s"].astype(np.float64)
    if not np.isfinite([start_s, end_s]).all() or (end_s < start_s).any():
        raise ValueError("start_s, end_s: expected finite numbers, start before end")
    if (arrays["label"] < 0).any():
        raise ValueError("label: expected numbers of classes")
    classes = facts["classes"]
    columns = {
        "label": [classes[number] for number in arrays["label"].tolist()],
        "recording": facts["recording"],
        "path": facts["path"],
        "start_s": start_s,
        "end_s": end_s,
        "windows": arrays["windows"].astype(np.int64),
    }
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("examples: columns of different lengths")
    return Spans(pl.DataFrame(columns))


def _build_background(facts: dict[str, Any], arrays: Arrays) -> Background:
    recordings = []
    for entry in facts["recordings"]:
        _check_number("windows", entry["windows"], -1)
        _check_texts("place", [entry["place"]])
        if entry["origin"] not in ORIGINS:
            raise ValueError(f"origin: {entry['origin']!r}")
        recordings.append(
            BackgroundRecording(
                sha256=str(entry["sha256"]),
                windows=int(entry["windows"]),
                calls_s=tuple(
                    (float(start), float(end)) for start, end in entry["calls_s"]
                ),
                origin=entry["origin"],
                place=entry["place"],
            )
        )
    vectors, number, start_s = (arrays[name] for name in BACKGROUND_ARRAYS)
    _check_vectors("background", vectors, len(start_s))
    for name in ("window_s", "hop_s"):
        _check_number(name, facts[name])
    is_known = np.isin(number, np.arange(len(recordings)))
    has_dimension = vectors.shape[1] == arrays["vectors"].shape[1]
    if len(number) != len(start_s) or not is_known.all() or not has_dimension:
        raise ValueError("background: a window is of no recording or dimension")
    return Background(
        recordings=tuple(recordings),
        vectors=vectors,
        number=number.astype(np.int64),
        start_s=start_s.astype(np.float64),
        window_s=float(facts["window_s"]),
        hop_s=float(facts["hop_s"]),
    )


def _check_vectors(name: str, vectors: NDArray[Any], count: int) -> None:
    """Raise ValueError unless there are so many finite vectors of float32."""
    if vectors.dtype != np.float32 or vectors.ndim != 2 or len(vectors) != count:
        raise ValueError(f"{name}: {count} rows, vectors of shape {vectors.shape}")
    if not np.isfinite(vectors).all():
        raise ValueError(f"{name}: expected finite numbers")


def _check_number(name: str, value: Any, lowest: float = 0.0) -> None:
    """Raise ValueError unless a value of a file is a finite number greater than `lowest`."""
    if type(value) not in (int, float) or not lowest < value < math.inf:
        raise ValueError(f"{name}: {value!r}")


def _check_texts(name: str, values: Iterable[Any]) -> None:
    """Raise ValueError unless all values of a file are text that can be written again."""
    for value in values:
        if not isinstance(value, str):
            raise ValueError(f"{name}: expected text, got {value!r}")
        value.encode()
