"""Results of a corpus → its calls as the page shows them: a map, confusions, sounds to play."""

import base64
import io
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from callshot.corpus.audio import load_audio
from callshot.corpus.audio_files import Signal
from callshot.corpus.spectrogram import measure_spectrogram
from callshot.errors import CallshotError
from callshot.jobs import Pool
from callshot.records import CorpusResults, FloatArray, Folds
from callshot.report.plane import principal_plane, scale_points
from callshot.report.summary.context import is_random
from callshot.report.templates import clean
from callshot.spans import Row, Spans
from callshot.vectors import Vectors

MAX_CALLS = 12  # that a cell of the heat map lists


def score_calls(table: Vectors, folds: Folds, labels: Sequence[str]) -> FloatArray:
    """Return the nearest-centroid score of every call for every label, (calls, labels).

    The score of a call z is 2 c·z − |c|², where c is the mean of all calls of the label in other
    folds: minus the squared distance of z and c, up to a constant of the call. The calls of the
    common fold (below 0) are examples for every fold. NaN if a label has no example.
    """
    vectors = np.asarray(table.matrix, np.float64)
    label = np.array(table.label)
    scores = np.full((len(vectors), len(labels)), np.nan)
    for fold in np.unique(folds.fold):
        is_query = folds.fold == fold
        is_support = ~is_query | (folds.fold < 0)
        for number, name in enumerate(labels):
            has_label = label == name
            support = vectors[is_support & has_label]
            if len(support):
                centre = support.mean(axis=0)
                products = vectors[is_query] @ centre
                scores[is_query, number] = 2 * products - centre @ centre
    return scores


def rank_confused(
    scores: FloatArray, label: Sequence[str], labels: Sequence[str]
) -> list[list[list[int]]]:
    """Return the calls of `true` most like `other`, for each pair of labels (true, other).

    For (true, true) they are the calls that are most clearly `true`. Calls are given by their row,
    at most MAX_CALLS for a pair. `scores` is (calls, labels); `label` is the label of each call.
    """
    names = np.array(label)
    ranked = []
    for true, name in enumerate(labels):
        members = np.flatnonzero(names == name)
        member_scores = scores[members]  # (members, labels)
        # By how much each other label is ahead of the true one; the true one, of the best other.
        margins = member_scores - member_scores[:, [true]]
        others = np.nan_to_num(np.delete(member_scores, true, axis=1), nan=-np.inf)
        best_other = others.max(axis=1) if len(labels) > 1 else 0.0
        margins[:, true] = member_scores[:, true] - best_other
        falling = -np.nan_to_num(margins, nan=-np.inf)
        order = np.argsort(falling, axis=0, kind="stable")
        ranked.append(members[order[:MAX_CALLS].T].tolist())
    return ranked


class Picks(NamedTuple):
    """Calls of one type to play, by row; `other` is the type that `nearest` is most like."""

    typical: int
    nearest: int
    other: int
    farthest: int


def pick_calls(
    table: Vectors, scores: FloatArray, labels: Sequence[str]
) -> list[Picks]:
    """Pick of each label the nearest to its centroid, the most like another, and the farthest."""
    vectors = np.asarray(table.matrix, np.float64)
    squares = np.einsum("ij,ij->i", vectors, vectors)
    names = np.array(table.label)
    finite_scores = np.nan_to_num(scores, nan=-np.inf)
    picks = []
    for true, name in enumerate(labels):
        members = np.flatnonzero(names == name)
        own_score = finite_scores[members, true]
        nearness = own_score - squares[members]  # minus the squared distance
        # By how much each label is ahead of the own one, (members, labels)
        margins = finite_scores[members] - own_score[:, None]
        margins[:, true] = -np.inf  # only other labels count
        margins = np.nan_to_num(margins, nan=-np.inf, neginf=-np.inf)
        row, other = np.unravel_index(margins.argmax(), margins.shape)
        has_other = np.isfinite(margins[row, other])
        typical = members[nearness.argmax()]
        farthest = members[nearness.argmin()]
        pick = Picks(
            typical=int(typical),
            nearest=int(members[row]),
            other=int(other) if has_other else true,
            farthest=int(farthest),
        )
        picks.append(pick)
    return picks


MAX_LENGTH_S = 3.0  # of a sound
SHORT_CALL_S = 0.5  # a shorter call is played with some sound around it
AROUND_S = 0.25
MAX_BYTES = 2_000_000  # of all clips of a page, before they are text
BASE64 = 4 / 3  # characters per byte
RATES_HZ = (16000, 32000)  # MP3 has few rates; calls above 8 kHz need the second
COMPRESSION = 0.8  # of MP3: 0 is best, 1 is smallest
LEVEL = 0.7  # of the loudest sample
LOW_HZ = 150.0  # half of the energy is below: barely audible
AUDIBLE_HZ = 250.0
SPEEDS = (4, 8, 16)
COLUMNS = 150  # of a spectrogram
ROWS = 64
RANGE_DB = 55.0
MIN_WINDOW_S = 0.01


class CallClip(NamedTuple):
    """MP3 and PNG files of a call in base64; `fast` is a low sound, sped up by `speed`."""

    sound: str
    picture: str
    seconds: float
    top_hz: float
    fast: str = ""
    speed: int = 1


def start_clips(
    segments: Spans, names: Sequence[str], pool: Pool, most_bytes: float = MAX_BYTES
) -> Callable[[], dict[str, CallClip]]:
    """Begin to make the clips of the segments `names` in the threads of a pool.

    Return a function that waits for them and returns them by name, the first names first, as long
    as all fit `most_bytes`. Segments whose recording cannot be read have no clip. A clip ends after
    MAX_LENGTH_S; a short call is played with some sound around it. All calls of a label are drawn
    up to the same frequency, which noise in one of them does not change.
    """
    named = segments.only(dict.fromkeys(names))
    by_place = named.frame.sort("path", "start_s", maintain_order=True)
    ordered = replace(named, frame=by_place)
    start_s = np.array(ordered["start_s"])
    end_s = np.minimum(ordered["end_s"], start_s + MAX_LENGTH_S)
    collar_s = np.array(ordered["collar_s"])
    is_short = end_s - start_s < SHORT_CALL_S
    collar_s[is_short] = np.maximum(collar_s[is_short], AROUND_S)
    spans = ordered.with_columns(end_s=end_s, collar_s=collar_s)
    segment, labels, rates_hz = spans["segment"], spans["label"], spans["rate_hz"]
    signals = {}
    medians_hz = defaultdict[str, list[float]](list)
    for row, loaded in load_audio(spans, prepare=_prepare_signal):
        if isinstance(loaded, CallshotError):
            continue
        signal, median_hz = loaded
        if len(signal):
            signals[row] = signal
            medians_hz[labels[row]].append(median_hz)
    tasks = {}
    for row, signal in signals.items():
        medians_of_label = medians_hz[labels[row]]
        median_hz = float(np.median(medians_of_label))
        task = pool.submit(make_call_clip, signal, rates_hz[row], median_hz)
        tasks[segment[row]] = task

    def finish() -> dict[str, CallClip]:
        """Wait for the clips, and return those that fit."""
        kept = {}
        size = 0
        for name in dict.fromkeys(names):
            if name not in tasks:
                continue
            clip = tasks[name].result()
            size += len(clip.sound) + len(clip.picture) + len(clip.fast)
            if size > most_bytes * BASE64:
                break
            kept[name] = clip
        return kept

    return finish


def _prepare_signal(span: Row, signal: Signal) -> tuple[FloatArray, float]:
    """Return the audio of a span as float64, and the median frequency of its energy, 0 if empty."""
    samples = np.asarray(signal, float)
    median_hz = 0.0
    if len(samples):
        median_hz = median_frequency_hz(samples, span["rate_hz"])
    return samples, median_hz


def make_call_clip(
    signal: FloatArray, rate_hz: int, median_hz: float | None = None
) -> CallClip:
    """Return a signal, (samples,), as sound and spectrogram, all signals equally loud.

    Half of the energy of such calls is below `median_hz`, by default of this one. A call that is
    too low for human ears is also sped up, by the least speed that makes it audible.
    """
    loudest = float(np.abs(signal).max()) or 1.0
    scaled = signal * (LEVEL / loudest)
    if median_hz is None:
        median_hz = median_frequency_hz(scaled, rate_hz)
    out_hz = RATES_HZ[0] if rate_hz <= RATES_HZ[0] else RATES_HZ[1]
    # The picture ends well above the call, or at half the sample rate.
    top_hz = min(rate_hz / 2, max(8 * median_hz, 500.0))
    clip = CallClip(
        _encode(scaled, rate_hz, out_hz),
        _draw_spectrogram(scaled, rate_hz, top_hz),
        len(signal) / rate_hz,
        top_hz,
    )
    if median_hz >= LOW_HZ:
        return clip
    audible = [speed for speed in SPEEDS if speed * median_hz >= AUDIBLE_HZ]
    speed = min(audible, default=SPEEDS[-1])
    fast = _encode(scaled, rate_hz * speed, out_hz)
    return clip._replace(fast=fast, speed=speed)


def median_frequency_hz(signal: FloatArray, rate_hz: float) -> float:
    """Return the frequency below which half of the energy of a signal is.

    >>> tone = np.sin(2 * np.pi * 100 * np.arange(8000) / 8000)
    >>> round(median_frequency_hz(tone, 8000))
    100
    """
    power = np.abs(np.fft.rfft(signal)) ** 2
    total = power.sum() or 1.0
    share = np.cumsum(power) / total
    index = int(np.searchsorted(share, 0.5))
    return index * rate_hz / max(len(signal), 1)


def _encode(signal: FloatArray, rate_hz: float, out_hz: int) -> str:
    """Return a signal as MP3 with the sample rate `out_hz`, in base64."""
    import soundfile
    import soxr

    if rate_hz != out_hz:
        signal = soxr.resample(signal, rate_hz, out_hz)
    content = io.BytesIO()
    with soundfile.SoundFile(
        content,
        "w",
        out_hz,
        1,
        format="MP3",
        subtype="MPEG_LAYER_III",
        compression_level=COMPRESSION,
        bitrate_mode="VARIABLE",
    ) as file:
        file.write(np.clip(signal, -1.0, 1.0))
    return base64.b64encode(content.getvalue()).decode("ascii")


def _draw_spectrogram(signal: FloatArray, rate_hz: int, top_hz: float) -> str:
    """Return a spectrogram from 0 to `top_hz` as PNG in base64: 16 greys, dark is loud."""
    from PIL import Image

    window_s = max(ROWS / top_hz, MIN_WINDOW_S)
    edges_hz = np.linspace(0, top_hz, ROWS + 1)
    levels = measure_spectrogram(signal, rate_hz, edges_hz, COLUMNS, window_s)
    below_db = levels.max() - levels
    below = np.clip(below_db / RANGE_DB, 0.0, 1.0)
    shades = (255 * below).astype(np.uint8) // 16
    greys = np.arange(16, dtype=np.uint8) * 17
    palette = np.repeat(greys, 3)
    image = Image.fromarray(shades).convert("P")
    image.putpalette(palette.tobytes())
    content = io.BytesIO()
    image.save(content, "PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode("ascii")


EXTRA = 36  # calls with a sound besides the picked ones, over all types
MIN_EXTRA = 3  # of each type
MIN_FOR_UMAP = 20
SEED = 0


def find_calls(results: CorpusResults) -> dict[str, Any]:
    """Return the calls of a corpus as the page reads them, in JSON.

    labels         the eligible labels
    calls          the names of all calls; elsewhere a call is its position here
    call_labels    the position of the label of each call; −1 if it is not eligible
    encoder_calls  for each encoder: `map`, points in the plane; `confused`, see `rank_confused`;
                   `picks`, see `pick_calls`
    map_method     how calls were placed on the map
    """
    evaluation = results.evaluation
    segments = evaluation.segments
    labels = evaluation.eligible_labels
    numbers = {label: number for number, label in enumerate(labels)}
    encoders = []
    for table in results.tables:
        scores = score_calls(table, evaluation.folds, labels)
        encoder = {
            "map": scale_points(place_calls(table)),
            "confused": rank_confused(scores, table.label, labels),
            "picks": pick_calls(table, scores, labels),
        }
        encoders.append(encoder)
    return {
        "labels": list(map(clean, labels)),
        "calls": list(map(clean, segments["segment"])),
        "call_labels": [numbers.get(label, -1) for label in segments["label"]],
        "encoder_calls": encoders,
        "map_method": "UMAP" if find_spec("umap") else "principal components",
    }


def place_calls(table: Vectors) -> FloatArray:
    """Place calls in the plane, (calls, 2): by UMAP if installed, or else by largest variance."""
    if find_spec("umap") and len(table) >= MIN_FOR_UMAP:
        import umap

        reducer = umap.UMAP(random_state=SEED, n_jobs=1)
        return np.asarray(reducer.fit_transform(table.matrix), np.float64)
    points, _ = principal_plane(table.matrix)
    return points


def choose_sounds(calls: Mapping[str, Any], results: CorpusResults) -> list[str]:
    """Return the segments to play: the picks of encoders first, then labels take turns."""
    rows = []
    for table, encoder in zip(results.tables, calls["encoder_calls"], strict=True):
        if not is_random(table.encoder):
            for pick in encoder["picks"]:
                rows += [pick.typical, pick.nearest, pick.farthest]
    numbers = np.array(calls["call_labels"])
    label_count = len(calls["labels"])
    per_label = max(MIN_EXTRA, EXTRA // max(label_count, 1))
    extra = []
    for label in range(label_count):  # a few calls of each, from the first to the last
        members = np.flatnonzero(numbers == label).tolist()
        step = max(1, len(members) // per_label)
        spaced = members[::step]
        extra.append(spaced[:per_label])
    for turn in zip_longest(*extra):
        rows += [row for row in turn if row is not None]
    segments = results.evaluation.segments["segment"]
    return [segments[row] for row in dict.fromkeys(rows)]
