"""Boxes of examples → the band of frequencies that an encoder gets, or all of them (band=auto).

The band of a label reaches from the 10 % quantile of the low edges of its boxes to the 90 %
quantile of the high edges, and a sixth of an octave farther on both sides. The band of a model
holds those of all its labels.

Examples decide whether it is used. The examples of each recording are scored as a scan would score
them, by a detector that was made without them. The share of other windows, those without calls and
examples of other labels, that score as high as they do is measured in the band and with all
frequencies. The band is used if that share is smaller by a third, and by one point: a band costs
another pass of the encoder over all recordings that are scanned.
"""

import math
from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.corpus.annotations.rows import FREQUENCIES
from callshot.detection.background import Background, score_held_out
from callshot.encoders.spec import LOWEST_HZ, EncoderSpec, format_band
from callshot.records import FloatArray, IntArray
from callshot.spans import Spans
from callshot.vectors import Vectors

QUANTILE = 0.1
WIDENED = 2 ** (1 / 6)
DIGITS = 2  # of the edges of a band, which are rounded away from it
MIN_WINDOWS = 10  # of background
BLOCK_MEANS = 256  # that are scored at once
MAX_RATIO = 2 / 3
MIN_GAIN = 0.01


def find_band(
    calls: Spans, spec: EncoderSpec, source_rate_hz: float | None = None
) -> str | None:
    """Return the band of the boxes of calls; None unless each call has both frequencies.

    None too if the band has all that the encoder gets, and in time-expanded recordings, where
    frequencies may be those of the file or real ones.

    >>> from callshot.encoders.catalogue import find_encoder
    >>> row = {"recording": "a.wav", "start_s": 0, "end_s": 1, "label": "owl"}
    >>> calls = Spans.from_rows([row | {"low_freq_hz": 350.0, "high_freq_hz": 900.0}])
    >>> find_band(calls, find_encoder("birdnet-v2.4"))
    '310-1100'
    """
    frame = calls.frame
    low, high = FREQUENCIES  # names of columns
    has_boxes = {*FREQUENCIES} <= {*frame.columns}
    if not has_boxes or source_rate_hz is not None or len(frame) == 0:
        return None
    if frame[low].has_nulls() or frame[high].has_nulls():
        return None
    edges = frame.group_by("label").agg(
        pl.col(low).quantile(QUANTILE, "linear"),
        pl.col(high).quantile(1 - QUANTILE, "linear"),
    )
    lowest_hz = edges[low].to_numpy().min()
    highest_hz = edges[high].to_numpy().max()
    low_hz = _round_edge(lowest_hz / WIDENED, math.floor)
    high_hz = _round_edge(highest_hz * WIDENED, math.ceil)
    nyquist_hz = spec.rate_hz / 2 / spec.speed
    high_hz = min(high_hz, nyquist_hz)
    if low_hz < LOWEST_HZ:
        low_hz = 0.0
    is_empty = low_hz >= high_hz
    has_all = low_hz == 0 and high_hz == nyquist_hz
    if is_empty or has_all:
        return None
    return format_band(low_hz, high_hz)


def _round_edge(edge_hz: float, direction: Callable[[float], int]) -> float:
    """Return a frequency rounded to two digits, up (`math.ceil`) or down (`math.floor`).

    >>> _round_edge(1062.0, math.ceil), _round_edge(31.2, math.floor)
    (1100.0, 31.0)
    """
    if edge_hz <= 0:
        return 0.0
    step = 10.0 ** (math.floor(math.log10(edge_hz)) + 1 - DIGITS)  # of the last digit
    rounded = direction(edge_hz / step) * step
    return round(rounded, 6)  # without the error of the product


def measure_overlap(examples: Vectors, background: Background | None) -> float | None:
    """Return the share of other windows that score as high as an example, on average.

    An example is scored by the mean of the examples of its label in other recordings. Other windows
    are those of the background, each scored without its own part of it as for thresholds, and the
    examples of other labels. None if there are fewer than ten windows of background, or no label
    has examples in two recordings.
    """
    if background is None or len(background.vectors) < MIN_WINDOWS:
        return None
    vectors = examples.matrix.astype(np.float64)
    _, label = np.unique(examples.label, return_inverse=True)
    _, recording = np.unique(examples.recording, return_inverse=True)
    means, held_out = _hold_out_recordings(vectors, label, recording)
    covariances = background.covariances
    shares: list[float] = []
    for start in range(0, len(means), BLOCK_MEANS):  # to save memory
        end = start + BLOCK_MEANS
        block = np.array(means[start:end])
        layer = covariances.whole.find_discriminants(block)
        scores = layer(vectors)  # (examples, means)
        background_scores = score_held_out(block, background, covariances)
        for column, is_held_out in enumerate(held_out[start:end]):
            own_label = label[is_held_out][0]
            is_other_label = label != own_label
            others = [background_scores[:, column], scores[is_other_label, column]]
            other_scores = np.sort(np.concatenate(others))
            own_scores = scores[is_held_out, column]
            lower = np.searchsorted(other_scores, own_scores)
            share_of_lower = lower / len(other_scores)
            shares += (1 - share_of_lower).tolist()
    return float(np.mean(shares)) if shares else None


def _hold_out_recordings(
    vectors: FloatArray, label: IntArray, recording: IntArray
) -> tuple[list[FloatArray], list[NDArray[np.bool_]]]:
    """Hold out the examples of each label in each recording, if other recordings have the label.

    `label` and `recording` are the numbers that each example has. Return, for each time, the mean
    of the other examples of the label, and a mask of the examples that are held out.
    """
    means = []
    held_out = []
    pairs = np.unique(np.column_stack([label, recording]), axis=0)
    for label_number, recording_number in pairs:
        has_label = label == label_number
        is_held_out = has_label & (recording == recording_number)
        remaining = has_label & ~is_held_out
        if remaining.any():
            means.append(vectors[remaining].mean(axis=0))
            held_out.append(is_held_out)
    return means, held_out


def is_better(in_all: float | None, in_band: float | None) -> bool:
    """Return whether a band is worth its cost.

    `in_all` and `in_band` are results of `measure_overlap`, for all frequencies and for the band.

    >>> is_better(0.10, 0.02), is_better(0.002, 0.001), is_better(0.10, 0.08)
    (True, False, False)
    """
    if in_all is None or in_band is None:
        return False
    return in_band <= MAX_RATIO * in_all and in_all - in_band >= MIN_GAIN


def describe_choice(band: str, in_all: float | None, in_band: float | None) -> str:
    """Return why a band is used or not, and what it costs.

    `in_all` and `in_band` are overlaps, as for `is_better`.
    """
    if in_all is None or in_band is None:
        return (
            f"the boxes lie at {band} Hz; whether this band is better cannot be measured without "
            f"{MIN_WINDOWS} windows of background and a label with examples in two recordings: "
            f"--set band={band} uses it"
        )
    shares = (
        f"{in_band:.1%} of other windows score as high as an example of another recording, "
        f"{in_all:.1%} with all frequencies"
    )
    if is_better(in_all, in_band):
        return (
            f"the encoder gets {band} Hz, where the boxes are: there {shares}; recordings to scan "
            "are embedded in this band, once, and an index of all frequencies cannot be used "
            "(--set band=none does not filter)"
        )
    return f"all frequencies are used: in the band of the boxes, {band} Hz, {shares}"
