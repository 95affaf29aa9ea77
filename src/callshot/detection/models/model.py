"""A model: labelled example vectors, and everything that decides how vectors are made.

Class means, counts and distances follow from the examples, which are kept in a fixed order. So two
models merge into the one that all their examples give at once, whatever the order.
"""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.detection.models.background import Background, merge_backgrounds
from callshot.detection.models.example_clips import Clips, bound_clips, join_clips
from callshot.encoders.spec import find_differences
from callshot.errors import InputError, count_text
from callshot.fewshot.centroid import LinearLayer
from callshot.fewshot.estimator import CentroidClassifier
from callshot.records import FloatArray, IntArray
from callshot.spans import Spans, concat_spans

Vectors = NDArray[np.float32]

RECORDING = "recording"
SEGMENT = "segment"
SOURCES = (RECORDING, SEGMENT)
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
        locations = describe_locations(ordered)
        clips = bound_clips(clips.select(rows), ordered["label"], locations)
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


def merge_models(first: Model, second: Model) -> Model:
    """Return the model of all examples of two models, which must agree in everything else."""
    check_fingerprint(first, second.encoder, second.fingerprint)
    check_settings(first, second.settings, second.source)
    inputs = {*first.provenance.inputs, *second.provenance.inputs}
    return make_model(
        concat_spans([first.examples, second.examples]),
        np.concatenate([first.vectors, second.vectors]),
        encoder=first.encoder,
        fingerprint=first.fingerprint,
        settings=first.settings,
        provenance=Provenance(first.provenance.licence, tuple(sorted(inputs))),
        background=merge_backgrounds(first.background, second.background),
        clips=join_clips(
            first.clips, len(first.examples), second.clips, len(second.examples)
        ),
    )


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
                f"{source}: expected {_describe_source(expected)}, as the examples of "
                f"{model.source}, got {_describe_source(value)}"
            )
        option = OPTION_NAMES[field.name]
        raise InputError(
            f"{source}: {field.name} is {value}, but {model.source} was learned with {expected}; "
            f"use {option} {expected}"
        )


def _describe_source(source: str) -> str:
    if source == SEGMENT:
        return "a table of segments"
    return "recordings with annotations"


def settings_facts(settings: AudioSettings) -> dict[str, Any]:
    """Return settings as they are written to files."""
    return asdict(settings)
