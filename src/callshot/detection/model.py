"""A model: labelled example vectors, and everything that decides how vectors are made.

Class means, counts and distances follow from the examples, which are kept in a fixed order. So two
models merge into the one that all their examples give at once, whatever the order. A model keeps
the plain audio of examples, so that it can be adapted to other recordings: of each label at most
20, of a long call the middle 10 s; 16 bit, at the rate of the encoder, with the peak at full scale.

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
    reviewed       whether each example is a detection that a reviewer confirmed
    rejected_vectors, rejected_start_s, rejected_end_s
                   detections that a reviewer rejected; their labels and recordings are facts
    clip_samples, clip_length
                   plain audio of examples, 16 bit, one after the other; 0: not kept

Readers ignore entries that they do not know; a change that they must know increases the version.
The same examples give the same bytes. What a model does not have, has no entries.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.detection.background import (
    Background,
    BackgroundRecording,
    make_windows,
    merge_backgrounds,
)
from callshot.detection.index.index_files import IMPORTED
from callshot.encoders.spec import find_differences
from callshot.encoders.weights import import_package
from callshot.errors import InputError, OptionError, count_text
from callshot.fewshot.centroid import CentroidClassifier, LinearLayer
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
from callshot.spans import Spans
from callshot.storage import to_path
from callshot.vectors import Vectors, concat_vectors
from callshot.version import __version__

Arrays = dict[str, NDArray[Any]]

MAX_CLIPS = 20  # of a label
MAX_CLIP_S = 10.0
FULL_SCALE = 32767


RECORDING = "recording"
SEGMENT = "segment"
SOURCES = {RECORDING: "recordings with annotations", SEGMENT: "a table of segments"}
EXAMPLE_COLUMNS = (
    "label",
    "recording",
    "path",
    "start_s",
    "end_s",
    "windows",
    "reviewed",
)
REJECTED_COLUMNS = ("label", "recording", "root", "path", "start_s", "end_s")
NAMES = dict.fromkeys(("label", "recording", "root", "path"), pl.String())
FORMAT = "callshot model"
VERSION = 1
SUFFIX = ".npz"


def to_pcm(signal: NDArray[np.float32]) -> NDArray[np.int16]:
    """Return a signal as 16 bit samples, with its peak at full scale.

    >>> to_pcm(np.array([0.5, -0.25], np.float32))
    array([ 32767, -16384], dtype=int16)
    """
    peak = float(np.abs(signal).max())
    scaled = signal * (FULL_SCALE / peak) if peak > 0 else signal
    return np.round(scaled).astype(np.int16)


def from_pcm(clip: bytes) -> NDArray[np.float32]:
    """Return the signal of the bytes of 16 bit samples."""
    return np.frombuffer(clip, np.int16).astype(np.float32) / np.float32(FULL_SCALE)


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


@dataclass(frozen=True, eq=False)
class Model:
    """Examples with their vectors, the encoder that made these, and how.

    Made by `learn` and `load_model`, and taken by `scan`. `classifier` is the model as a
    scikit-learn classifier; `classes`, `counts`, `means` and `distances` describe its examples.

    encoder      its name, with options, by which it is found again
    examples     vectors with a label, as the encoder gave them; `windows` is how many windows a
                 vector is the mean of, `reviewed` whether it is a detection that a reviewer
                 confirmed, `clip` the bytes of the audio, null where it is not kept
    fingerprint  everything that decides its vectors, with the checksums of its weights
    background   windows without calls; None if there are none
    rejected     detections that a reviewer rejected, with the label that they had
    licence      of the weights of the encoder
    inputs       role, file and sha256 of recordings and annotations, without repetitions
    clip_rate_hz rate of the audio of examples; None if none is kept
    source       the file that it was read from, for messages
    """

    encoder: str
    fingerprint: Mapping[str, Any]
    settings: AudioSettings
    examples: Vectors
    licence: str
    inputs: tuple[tuple[str, str, str], ...] = ()
    background: Background | None = None
    rejected: Vectors | None = None
    clip_rate_hz: int | None = None
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
        return tuple(sorted(set(self.examples.label)))

    @cached_property
    def label(self) -> IntArray:
        """The number of the class of each example."""
        return np.searchsorted(self.classes, self.examples.label)

    @cached_property
    def counts(self) -> IntArray:
        """The number of examples of each class."""
        return np.bincount(self.label, minlength=len(self.classes))

    @cached_property
    def classifier(self) -> CentroidClassifier:
        """The nearest class mean; its sums are exact, so the order of examples has no effect."""
        with warnings.catch_warnings():
            # scikit-learn takes many labels with one example each for numbers.
            warnings.filterwarnings("ignore", "The number of unique classes")
            return CentroidClassifier().fit(
                self.examples.matrix, list(self.examples.label)
            )

    @property
    def means(self) -> FloatArray:
        """The mean of each class, classes × dimensions."""
        return self.classifier.centroids_

    @property
    def layer(self) -> LinearLayer:
        """The rule as a linear layer: weights 2 c, biases −|c|²."""
        bias = -np.einsum("nd,nd->n", self.means, self.means)
        return LinearLayer(2.0 * self.means, bias)

    @cached_property
    def distances(self) -> FloatArray:
        """The distance of each example from the mean of the others of its class; NaN if alone."""
        label = self.label
        count = self.counts[label].astype(np.float64)
        differences = self.examples.matrix.astype(np.float64) - self.means[label]
        from_mean = np.linalg.norm(differences, axis=1)
        # x − mean of the others = (x − mean of all) · n / (n − 1)
        distances = np.full(len(label), np.nan)
        np.divide(from_mean * count, count - 1, out=distances, where=count > 1)
        return distances


def describe_locations(examples: Spans) -> list[str]:
    """Return the file and the time of each example, for messages."""
    pairs = zip(examples.paths, examples["start_s"], strict=True)
    return [f"{path} at {start_s:.2f} s" for path, start_s in pairs]


def make_model(examples: Vectors, **fields: Any) -> Model:
    """Return a model with its examples in a fixed order; the same example twice counts once.

    `examples` may have no columns `clip` and `reviewed`. `fields` are the other fields of Model.
    """
    optional = pl.DataFrame(schema={"clip": pl.Binary, "reviewed": pl.Boolean})
    frame = pl.concat([examples.spans.frame, optional], how="diagonal")
    is_reviewed = pl.col("reviewed").fill_null(False)
    frame = frame.select(*EXAMPLE_COLUMNS, "clip").with_columns(is_reviewed)
    row_of_example: dict[tuple[Any, ...], int] = {}
    # Their clips make no difference.
    for row, (*cells, _) in enumerate(frame.iter_rows()):
        vector = examples.matrix[row]
        key = (*cells, vector.tobytes())
        row_of_example.setdefault(key, row)
    rows = [row_of_example[key] for key in sorted(row_of_example)]
    spans = Spans(_limit_clips(frame[rows]))
    matrix = np.ascontiguousarray(examples.matrix[rows], np.float32)
    ordered = replace(examples, spans=spans, matrix=matrix)
    return Model(examples=ordered, **fields)


def _limit_clips(examples: pl.DataFrame) -> pl.DataFrame:
    """Keep the audio of at most MAX_CLIPS examples of a label: those with the lowest hash.

    The hash is that of the location, so the choice does not depend on the order of examples.
    """
    locations = describe_locations(Spans(examples))
    hashes = [streams.key(f"clip {location}") for location in locations]
    hashed = examples.with_columns(hash=pl.Series(hashes, dtype=pl.UInt64))
    rank_in_label = pl.col("hash").rank("ordinal").over("label")
    kept_clip = pl.when(rank_in_label <= MAX_CLIPS).then("clip")
    return hashed.with_columns(kept_clip).drop("hash")


def merge_models(first: Model, second: Model) -> Model:
    """Return the model of all examples of two models, which must agree in everything else."""
    check_fingerprint(first, second.encoder, second.fingerprint)
    check_settings(first, second.settings, second.source)
    return make_model(
        concat_vectors([first.examples, second.examples]),
        encoder=first.encoder,
        fingerprint=first.fingerprint,
        settings=first.settings,
        licence=first.licence,
        inputs=tuple(sorted({*first.inputs, *second.inputs})),
        background=merge_backgrounds(first.background, second.background),
        rejected=merge_rejected(first.rejected, second.rejected),
        clip_rate_hz=first.clip_rate_hz or second.clip_rate_hz,
    )


def merge_rejected(first: Vectors | None, second: Vectors | None) -> Vectors | None:
    """Return the rejected detections of two models, each once, in a fixed order."""
    if first is None or second is None:
        return first or second
    both = concat_vectors([first, second])
    spans = both.spans.frame.select(REJECTED_COLUMNS).with_row_index()
    rows = spans.unique(REJECTED_COLUMNS, keep="first").sort(REJECTED_COLUMNS)["index"]
    return both.take(rows.to_numpy())


def check_fingerprint(
    model: Model, encoder: str, fingerprint: Mapping[str, Any]
) -> None:
    """Raise InputError unless an encoder gives the same vectors as when a model was learned.

    `encoder` is its name with options, which only makes the message clearer: the same encoder may
    have two names.
    """
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


def check_has_encoder(model: Model) -> None:
    """Raise InputError if a model was learned from vectors of another tool."""
    if IMPORTED in model.fingerprint:
        raise InputError(
            f"{model.source}: learned from vectors of another tool ({model.encoder}), so it takes "
            "no audio; give an index that callshot import --index made"
        )


def check_settings(model: Model, settings: AudioSettings, source: str) -> None:
    """Raise InputError unless audio is cut as it was for a model; `source` names the audio."""
    for name, expected in asdict(model.settings).items():
        value = getattr(settings, name)
        if value == expected:
            continue
        if name == "source":
            raise InputError(
                f"{source}: expected {SOURCES[expected]}, as the examples of "
                f"{model.source}, got {SOURCES[value]}"
            )
        raise InputError(
            f"{source}: {name} is {value}, but {model.source} was learned with {expected}; "
            f"use {OPTION_NAMES[name]} {expected}"
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
    name_of_mean: dict[bytes, str] = {}
    for name, mean in zip(model.classes, model.means, strict=True):
        first_name = name_of_mean.setdefault(mean.tobytes(), name)
        if first_name != name:
            raise InputError(
                f"{model.source}: the examples of {first_name} and {name} are identical, so no "
                "call can be named one of them; correct the examples"
            )


def check_model_path(path: Path) -> None:
    """Check, before any work, that a model can be written and no other file is overwritten."""
    if path.suffix != SUFFIX:
        raise OptionError(f"out: expected a name that ends in {SUFFIX}, got {path}")
    check_new_file(path, "model", _is_model)


def _is_model(path: Path) -> bool:
    """Return whether a file is a model that can be read."""
    try:
        facts, _ = _read_entries(path)
        return bool(facts["format"] == FORMAT)
    except Exception:  # whatever numpy, zipfile and json raise for damaged files
        return False


def write_model(model: Model, path: Path) -> None:
    """Write a model."""
    check_model_path(path)
    facts, arrays = _make_entries(model)
    optional_facts, optional_arrays = _make_optional_entries(model)
    text = json.dumps(facts | optional_facts, sort_keys=True, ensure_ascii=True)
    arrays |= optional_arrays
    arrays["facts"] = np.frombuffer(text.encode(), np.uint8)
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **arrays)


def _make_entries(model: Model) -> tuple[dict[str, Any], Arrays]:
    """Return the facts and arrays that every file of a model has."""
    examples = model.examples.spans
    facts = {
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
        "licence": model.licence,
        "inputs": model.inputs,
    }
    arrays: Arrays = {
        "vectors": model.examples.matrix,
        "label": model.label.astype(np.int64),
        "start_s": np.array(examples["start_s"]),
        "end_s": np.array(examples["end_s"]),
        "windows": np.array(examples["windows"], np.int64),
        "reviewed": np.array(examples["reviewed"], np.bool_),
        "distance": model.distances,
        "mean": model.means,
        "count": model.counts.astype(np.int64),
    }
    return facts, arrays


def _make_optional_entries(model: Model) -> tuple[dict[str, Any], Arrays]:
    """Return the facts and arrays of background, rejected detections and audio; none if absent."""
    facts: dict[str, Any] = {}
    arrays: Arrays = {}
    background = model.background
    if background is not None:
        facts["background"] = {
            "window_s": background.window_s,
            "hop_s": background.hop_s,
            "recordings": [asdict(recording) for recording in background.recordings],
        }
        arrays["background_vectors"] = background.vectors
        arrays["background_recording"] = background.number
        start_s = background.windows.spans.frame["start_s"]
        arrays["background_start_s"] = start_s.to_numpy()
    if model.rejected is not None:
        rejected = model.rejected.spans.frame
        names = rejected.select(*NAMES)
        facts["rejected"] = names.to_dict(as_series=False)
        arrays["rejected_vectors"] = np.asarray(model.rejected.matrix, np.float32)
        for name in ("start_s", "end_s"):
            arrays[f"rejected_{name}"] = rejected[name].to_numpy()
    if model.clip_rate_hz is not None:
        facts["clip_rate_hz"] = model.clip_rate_hz
        kept_clips = model.examples.spans["clip"]
        clips = [b"" if clip is None else clip for clip in kept_clips]
        samples = np.frombuffer(b"".join(clips), np.int16)
        arrays["clip_samples"] = samples
        lengths = [len(clip) // samples.itemsize for clip in clips]
        arrays["clip_length"] = np.array(lengths, np.int64)
    return facts, arrays


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
        if facts["format"] != FORMAT or facts["version"] > VERSION:
            raise ValueError("another kind of file, or of a newer callshot")
        return _build_model(path, facts, arrays)
    # Whatever numpy, zipfile and json raise for damaged files.
    except Exception as error:
        raise InputError(
            f"{path}: expected a model of callshot learn ({error_reason(error)})"
        ) from None


def _read_entries(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Read the facts and the arrays of the file of a model."""
    check_regular_file(path)
    with path.open("rb") as stream:
        arrays = dict(open_npz(stream, path))
    return json.loads(arrays["facts"].astype(np.uint8).tobytes()), arrays


def _build_model(path: Path, facts: dict[str, Any], arrays: Arrays) -> Model:
    """Return the model of a file; raise ValueError if its parts do not fit each other."""
    columns = {
        "label": pl.Series(facts["classes"], dtype=pl.String).gather(arrays["label"]),
        "recording": pl.Series(facts["recording"], dtype=pl.String),
        "path": pl.Series(facts["path"], dtype=pl.String),
        **{name: arrays[name] for name in ("start_s", "end_s", "windows", "reviewed")},
    }
    vectors = arrays["vectors"]
    _check_vectors("vectors", vectors, len(arrays["start_s"]))
    if vectors.size == 0:
        raise ValueError("vectors: there are none")
    if "clip_rate_hz" in facts:
        columns["clip"] = _build_clips(arrays, len(vectors))
    dimension = vectors.shape[1]
    background = None
    if "background" in facts:
        background = _build_background(facts["background"], arrays, dimension)
    rejected = None
    if "rejected" in facts:
        rejected = _build_rejected(facts, arrays, dimension)
    return make_model(
        Vectors(Spans(pl.DataFrame(columns)), vectors, facts["encoder"]),
        encoder=facts["encoder"],
        fingerprint=facts["fingerprint"],
        settings=AudioSettings(**facts["settings"]),
        licence=facts["licence"],
        inputs=tuple(sorted(map(tuple, facts["inputs"]))),
        background=background,
        rejected=rejected,
        clip_rate_hz=facts.get("clip_rate_hz"),
        source=str(path),
    )


def _build_clips(arrays: Arrays, examples: int) -> pl.Series:
    """Return the bytes of the audio of each example, null where it is not kept."""
    lengths = arrays["clip_length"]
    samples = arrays["clip_samples"].astype(np.int16)
    if lengths.sum() != len(samples) or len(lengths) != examples:
        raise ValueError("clips: samples of other examples")
    parts = np.split(samples, np.cumsum(lengths)[:-1])
    clips = [part.tobytes() or None for part in parts]
    return pl.Series(clips, dtype=pl.Binary)


def _build_rejected(
    facts: Mapping[str, Any], arrays: Arrays, dimension: int
) -> Vectors:
    """Return the rejected detections of a model file, whose examples have `dimension` numbers."""
    matrix = arrays["rejected_vectors"]
    _check_vectors("rejected", matrix, len(arrays["rejected_start_s"]), dimension)
    times = {name: arrays[f"rejected_{name}"] for name in ("start_s", "end_s")}
    frame = pl.DataFrame(facts["rejected"], schema_overrides=NAMES)
    spans = Spans(frame.with_columns(**times).select(REJECTED_COLUMNS))
    return Vectors(spans, matrix, facts["encoder"])


def _build_background(
    facts: Mapping[str, Any], arrays: Arrays, dimension: int
) -> Background:
    """Return the background of a model file, whose examples have `dimension` numbers.

    `facts` are those of the background alone.
    """
    recordings = []
    for entry in facts["recordings"]:
        calls_s = tuple(map(tuple, entry["calls_s"]))  # JSON has lists
        recordings.append(BackgroundRecording(**entry | {"calls_s": calls_s}))
    matrix = arrays["background_vectors"]
    start_s = arrays["background_start_s"]
    recording_numbers = arrays["background_recording"]
    _check_vectors("background", matrix, len(start_s), dimension)
    if not np.isin(recording_numbers, np.arange(len(recordings))).all():
        raise ValueError("background: a window is of no recording")
    checksums = [recordings[number].sha256 for number in recording_numbers]
    windows = make_windows(checksums, start_s, facts["window_s"], matrix)
    # window_s and hop_s
    lengths = {name: value for name, value in facts.items() if name != "recordings"}
    return Background(tuple(recordings), windows, **lengths)


def _check_vectors(
    name: str, vectors: NDArray[Any], count: int, dimension: int | None = None
) -> None:
    """Raise ValueError unless there are `count` vectors of finite float32 numbers."""
    shape = vectors.shape
    if vectors.dtype != np.float32 or len(shape) != 2 or shape[0] != count:
        raise ValueError(f"{name}: {count} rows, vectors of shape {shape}")
    if dimension not in (None, shape[1]):
        raise ValueError(f"{name}: of another dimension")
    if not np.isfinite(vectors).all():
        raise ValueError(f"{name}: expected finite numbers")


ONNX_SUFFIX = ".onnx"
PRODUCER_FIELD = b"\x12\x08callshot"  # field 2, of 8 bytes
START_BYTES = 32
# Version 8 of the format is what ONNX Runtime 1.14 and later read. The scores are log-odds:
# a_n − log Σ exp a_m over the others, with the largest set apart.
GRAPH = f"""<
  ir_version: 8,
  opset_import: ["": 17, "ai.onnx.ml": 3],
  producer_name: "callshot",
  producer_version: "{__version__}"
>
callshot (float[batch, {{dimensions}}] embedding) => (
  double[batch, {{count}}] scores, double[batch, {{count}}] evidence, string[batch] label
) {{{{
  z = Cast <to = 11> (embedding)
  products = MatMul (z, weight)
  evidence = Add (products, bias)
  other_evidence = Gather <axis = 1> (evidence, others)
  largest = ReduceMax <axes = [2], keepdims = 1> (other_evidence)
  gaps = Sub (other_evidence, largest)
  terms = Exp (gaps)
  sum = ReduceSum <keepdims = 0> (terms, last_axis)
  log_sum = Log (sum)
  reference = Squeeze (largest, last_axis)
  lead = Sub (evidence, reference)
  scores = Sub (lead, log_sum)
  number = ArgMax <axis = 1, keepdims = 0> (evidence)
  label = ai.onnx.ml.LabelEncoder (number)
}}}}"""


def check_onnx_path(path: Path) -> None:
    """Check that an ONNX file can be written and no other file is overwritten."""
    if path.suffix != ONNX_SUFFIX:
        raise OptionError(
            f"onnx: expected a name that ends in {ONNX_SUFFIX}, got {path}"
        )

    def is_own_file(file: Path) -> bool:
        """Return whether callshot wrote an ONNX file: it names its producer at the start."""
        with file.open("rb") as stream:
            return PRODUCER_FIELD in stream.read(START_BYTES)

    check_new_file(path, "classifier", is_own_file)


def export_onnx(model: Model, path: Path) -> None:
    """Write the classifier of a model as ONNX: from a vector of the encoder to labels and scores.

    The graph computes in float64, because |z|² may be large against the distances. GRAPH has its
    nodes; weights and the names of classes are added here.
    """
    check_onnx_path(path)
    check_classes(model)
    onnx = import_package("onnx", "onnx")
    count = len(model.classes)
    text = GRAPH.format(dimensions=model.examples.matrix.shape[1], count=count)
    made = onnx.parser.parse_model(text)
    layer = model.layer
    # The other classes of each class, (classes, classes − 1)
    others = [[m for m in range(count) if m != n] for n in range(count)]
    weights = {
        "weight": np.ascontiguousarray(layer.weight.T),
        "bias": layer.bias,
        "others": np.array(others, np.int64),
        "last_axis": np.array([2]),
    }
    for name, values in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    # The last node, a LabelEncoder, maps the numbers of classes to their names.
    names = {"keys_int64s": list(range(count)), "values_strings": list(model.classes)}
    for name, items in names.items():
        attribute = onnx.helper.make_attribute(name, items)
        made.graph.node[-1].attribute.append(attribute)
    facts = {
        "classes": json.dumps(model.classes, ensure_ascii=False),
        "encoder": model.encoder,
        "fingerprint": json.dumps(dict(model.fingerprint), sort_keys=True),
        "licence": model.licence,
    }
    onnx.helper.set_model_props(made, facts)
    onnx.checker.check_model(made)
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary:
        temporary.write_bytes(made.SerializeToString())
