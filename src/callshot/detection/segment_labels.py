"""A model and segments → the label of each segment, with its score and the runner-up."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from callshot.corpus.segment_table import REJECTS, write_rejects
from callshot.detection.examples import (
    EmbeddedCalls,
    embed_calls,
    read_call_table,
    segment_settings,
)
from callshot.detection.learn import plain_fingerprint
from callshot.detection.model import (
    SEGMENT,
    Model,
    check_classes,
    check_fingerprint,
    check_settings,
    load_model,
    score_vectors,
)
from callshot.encoders.embed import EmbedOptions
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.files import describe_file
from callshot.records import FloatArray, Progress, Reject, no_progress
from callshot.records.csv_cells import write_csv_frame
from callshot.records.parquet import write_parquet
from callshot.results import open_output_folder
from callshot.spans import Spans
from callshot.version import __version__

LABELS_CSV = "labels.csv"
LABELS = "labels.parquet"
PROVENANCE = "scan.json"
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
    fingerprint = plain_fingerprint(joined_encoder, options.device)
    check_fingerprint(model, joined_encoder.name, fingerprint)
    calls = read_call_table(segments, audio)
    if model.settings.source == SEGMENT:
        check_settings(model, segment_settings(calls), str(segments))
    embedded = embed_calls(
        calls, joined_encoder, model.settings, options, progress=progress
    )
    scores = score_vectors(model, embedded.vectors)
    frame = _make_frame(model, embedded, scores)
    notes = [*embedded.notes, *_describe_distance(model, frame["distance"].to_numpy())]
    return LabelledSegments(frame, scores, embedded.rejects, notes, calls)


def _describe_distance(model: Model, distance: FloatArray) -> list[str]:
    """Return a note if segments are so unlike the examples that these do not tell what to expect.

    Clips of clear calls are such examples for calls in noise: they name each other well.
    """
    own_distance = model.distances[~np.isnan(model.distances)]
    if len(own_distance) == 0:
        return []
    typical = float(np.median(own_distance))
    ratio = float(np.median(distance)) / max(typical, np.finfo(np.float64).tiny)
    if ratio <= UNLIKE:
        return []
    return [
        f"the segments are {ratio:.1f} times as far from the class means as the examples of "
        f"{model.source} are: they were recorded in another way, so the expected accuracy of "
        "callshot model does not hold here, and is not known; examples from the recordings of the "
        "segments help (callshot learn --add)"
    ]


def _make_frame(
    model: Model, embedded_calls: EmbeddedCalls, scores: FloatArray
) -> pl.DataFrame:
    order = np.argsort(-scores, axis=1, kind="stable")
    best = order[:, 0]
    second = order[:, 1]
    rows = np.arange(len(scores))
    calls = embedded_calls.calls
    columns: dict[str, Any] = {
        name: calls[name]
        for name in ("segment", "recording", "path", "start_s", "end_s")
    }
    distance = np.linalg.norm(embedded_calls.vectors - model.means[best], axis=1)
    columns |= {
        "label": [model.classes[n] for n in best],
        "score": scores[rows, best],
        "runner_up": [model.classes[n] for n in second],
        "runner_up_score": scores[rows, second],
        "distance": distance,
        "annotated": calls["label"],
    }
    return pl.DataFrame(columns, SEGMENT_LABELS)


def scan_segment_files(
    model_path: Path,
    segments: Path,
    out: Path,
    options: EmbedOptions,
    *,
    encoder: str | None = None,
    audio: Path | None = None,
    progress: Progress = no_progress,
) -> LabelledSegments:
    """Name the segments of a table; write labels as CSV and Parquet, and rejects."""
    names = (LABELS_CSV, LABELS, REJECTS)
    with open_output_folder(out, names, PROVENANCE) as output:
        model = load_model(model_path)
        result = label_segments(
            model, segments, options, encoder=encoder, audio=audio, progress=progress
        )

        def make_files(folder: Path) -> Sequence[str]:
            write_csv_frame(result.frame, folder / LABELS_CSV)
            write_parquet(result.frame, folder / LABELS)
            write_rejects(result.rejects, folder / REJECTS)
            return names

        first = next(result.spans.rows())
        facts = {
            "callshot": __version__,
            "model": {
                **describe_file(model_path, encoder=model.encoder),
                "path": str(model_path.absolute()),
            },
            "segments": describe_file(segments),
            "folders": [str(result.spans.root.absolute())],
            "channel": first["channel_rule"],
            "source_rate_hz": first["source_rate_hz"],
            "licence": model.provenance.licence,
            "labels": len(result.frame),
            "rejects": len(result.rejects),
        }
        output.write(make_files, facts)
    return result
