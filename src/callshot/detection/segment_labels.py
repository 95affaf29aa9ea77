"""A model and segments → the label of each segment, with its score and the runner-up."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from callshot.detection.examples import embed_calls
from callshot.detection.learn import read_call_table, segment_settings
from callshot.detection.model import (
    SEGMENT,
    Model,
    check_classes,
    check_fingerprint,
    check_settings,
)
from callshot.detection.sentences import say
from callshot.encoders.embed import EmbedOptions
from callshot.encoders.joined_encoder import (
    find_joined_encoder,
    joined_fingerprint,
)
from callshot.fewshot.centroid import log_odds
from callshot.records import FloatArray, Progress, Reject, no_progress
from callshot.spans import Spans

UNLIKE = 1.5  # times the median distance of examples
SEGMENT_LABELS: dict[str, Any] = {
    "segment": pl.String,
    "recording": pl.String,
    "path": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "label": pl.String,  # of the nearest class mean
    "score": pl.Float64,  # its log-odds
    "runner_up": pl.String,
    "runner_up_score": pl.Float64,
    "distance": pl.Float64,  # from the mean of the label
    "annotated": pl.String,  # the label in the table of segments
}


@dataclass(frozen=True)
class LabelledSegments:
    """A row per segment with the columns of SEGMENT_LABELS, and what was left out.

    `scores` are the log-odds of all classes, segments × classes, in the order of `model.classes`.
    `spans` are the segments as they were given.
    """

    frame: pl.DataFrame
    scores: FloatArray
    rejects: Sequence[Reject]
    notes: Sequence[str]
    spans: Spans


def label_segments(
    model: Model,
    segments: Path,
    options: EmbedOptions,
    *,
    encoder: str | None = None,
    audio: Path | None = None,
    progress: Progress = no_progress,
) -> LabelledSegments:
    """Name each segment of a table by the nearest class mean.

    The segments are embedded as the examples were. `encoder` is only needed where the model cannot
    find its own by name, as with `onnx:PATH`.
    """
    check_classes(model)
    joined_encoder = find_joined_encoder(
        encoder or model.encoder, options.encoder_options
    )
    fingerprint = joined_fingerprint(joined_encoder, options.device)
    check_fingerprint(model, joined_encoder.name, fingerprint)
    spans = read_call_table(segments, audio)
    if model.settings.source == SEGMENT:
        check_settings(model, segment_settings(spans), str(segments))
    vectors, rejects, notes = embed_calls(
        spans, joined_encoder, model.settings, options, progress=progress
    )
    scores = log_odds(model.layer(vectors.matrix))
    order = np.argsort(-scores, axis=1, kind="stable")
    best = order[:, 0]
    second = order[:, 1]
    rows = np.arange(len(scores))
    names = pl.Series(model.classes)
    differences = vectors.matrix - model.means[best]
    distance = np.linalg.norm(differences, axis=1)
    frame = vectors.spans.frame.with_columns(
        annotated=pl.col("label"),
        label=names.gather(best),
        score=scores[rows, best],
        runner_up=names.gather(second),
        runner_up_score=scores[rows, second],
        distance=distance,
    )
    frame = frame.select(*SEGMENT_LABELS).cast(pl.Schema(SEGMENT_LABELS))
    # Clips of clear calls are no guide to calls in noise, although they name each other well.
    own_distance = model.distances[~np.isnan(model.distances)]
    if len(own_distance) > 0:
        typical = float(np.median(own_distance))
        typical = max(typical, np.finfo(np.float64).tiny)
        ratio = float(np.median(distance)) / typical
        if ratio > UNLIKE:
            notes += say("unlike", ratio, model)
    return LabelledSegments(frame, scores, rejects, notes, spans)
