"""Results of a corpus → its calls as the page shows them: a map, confusions, sounds to play."""

import base64
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from callshot.corpus.audio import load_audio
from callshot.corpus.spectrogram import measure_spectrogram
from callshot.errors import CallshotError
from callshot.files import make_folder, sha256_text, write_atomic
from callshot.records import CorpusResults, FloatArray, Folds
from callshot.report.figures.projection import principal_plane
from callshot.report.summary.context import is_random
from callshot.report.templates import clean
from callshot.results import content_key
from callshot.spans import Spans
from callshot.vectors import Vectors

MAX_CALLS = 12  # that a cell of the heat map lists


def score_calls(table: Vectors, folds: Folds, labels: Sequence[str]) -> FloatArray:
    """Return the score of every call for every label, (calls, labels), as the centroid gives it.

    A score is 2 c·z − |c|², c the mean of all examples of the label in other folds: up to a
    constant of the call, minus its squared distance. NaN if other folds have no example.
    """
    vectors = np.asarray(table.matrix, np.float64)
    label = np.array(table.label)
    scores = np.full((len(vectors), len(labels)), np.nan)
    for fold in np.unique(folds.fold):
        is_query = folds.fold == fold
        is_support = ~is_query | (folds.fold < 0)
        for number, name in enumerate(labels):
            support = vectors[is_support & (label == name)]
            if len(support):
                centre = support.mean(axis=0)
                products = 2 * vectors[is_query] @ centre
                scores[is_query, number] = products - centre @ centre
    return scores


def rank_confused(
    scores: FloatArray, label: Sequence[str], labels: Sequence[str]
) -> list[list[list[int]]]:
    """Return for each pair of labels the calls of the first that are most like the second."""
    names = np.array(label)
    ranked = []
    for true, name in enumerate(labels):
        members = np.flatnonzero(names == name)
        own = scores[members]
        margins = own - own[:, [true]]
        others = np.nan_to_num(np.delete(own, true, axis=1), nan=-np.inf)
        best_other = others.max(axis=1) if len(labels) > 1 else 0.0
        margins[:, true] = own[:, true] - best_other
        falling = -np.nan_to_num(margins, nan=-np.inf)
        order = np.argsort(falling, axis=0, kind="stable")
        ranked.append(members[order[:MAX_CALLS].T].tolist())
    return ranked


class Picks(NamedTuple):
    """The calls of one type that are worth hearing, by their row.

    `nearest` is the call most like another type, `other` that type; it equals the type itself if
    there is no other.
    """

    typical: int
    nearest: int
    other: int
    farthest: int


def pick_calls(
    table: Vectors, scores: FloatArray, labels: Sequence[str]
) -> list[Picks]:
    """Return for each label its most typical call, the one nearest to another, and the farthest."""
    vectors = np.asarray(table.matrix, np.float64)
    squares = np.einsum("ij,ij->i", vectors, vectors)
    names = np.array(table.label)
    finite_scores = np.nan_to_num(scores, nan=-np.inf)
    picks = []
    for true, name in enumerate(labels):
        members = np.flatnonzero(names == name)
        own = finite_scores[members, true]
        nearness = own - squares[members]  # minus the squared distance
        margins = finite_scores[members] - own[:, None]
        margins[:, true] = -np.inf
        margins = np.nan_to_num(margins, nan=-np.inf, neginf=-np.inf)
        row, other = np.unravel_index(margins.argmax(), margins.shape)
        pick = Picks(
            typical=int(members[nearness.argmax()]),
            nearest=int(members[row]),
            other=int(other) if np.isfinite(margins[row, other]) else true,
            farthest=int(members[nearness.argmin()]),
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
    """A call to play and see; `fast` is the sound sped up by `speed`, if it is low."""

    sound: str
    picture: str
    seconds: float
    top_hz: float
    fast: str = ""
    speed: int = 1


def make_clips(
    segments: Spans,
    names: Sequence[str],
    most_bytes: float = MAX_BYTES,
    store: Path | None = None,
) -> dict[str, CallClip]:
    """Return the clips of segments by name, the first ones first, as far as the size allows.

    Segments whose recording cannot be read have none. The file `store` has the clips of the last
    time, which are taken if neither segments nor recordings changed.
    """
    named = segments.only(dict.fromkeys(names))
    by_place = named.frame.sort("path", "start_s", maintain_order=True)
    ordered = replace(named, frame=by_place)
    files = [_file_facts(segments.root / path) for path in ordered.paths]
    key = content_key(list(ordered.rows()), files)
    clips = _read_clips(store, key)
    if clips is None:
        clips = dict(_load_clips(ordered))
        if store is not None:
            facts = {name: clip._asdict() for name, clip in clips.items()}
            keys = [key, sha256_text(json.dumps(facts))]
            make_folder(store.parent)
            write_atomic(store, json.dumps({"key": keys, "clips": facts}))
    kept = {}
    size = 0
    for name in dict.fromkeys(names):
        if name in clips:
            clip = clips[name]
            size += len(clip.sound) + len(clip.picture) + len(clip.fast)
            if size > most_bytes * BASE64:
                break
            kept[name] = clip
    return kept


def _file_facts(path: Path) -> tuple[int, int]:
    """Return the size of a recording and its time; zeros where there is none."""
    with suppress(OSError):
        status = path.stat()
        return status.st_size, status.st_mtime_ns
    return 0, 0


def _read_clips(store: Path | None, key: str) -> dict[str, CallClip] | None:
    """Return the clips of a file, or None if it has other ones or is damaged."""
    if store is None:
        return None
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        content = json.loads(store.read_text(encoding="utf-8"))
        clips = content["clips"]
        if content["key"] == [key, sha256_text(json.dumps(clips))]:
            return {name: CallClip(**facts) for name, facts in clips.items()}
    return None


def _load_clips(segments: Spans) -> Iterator[tuple[str, CallClip]]:
    """Yield the clip of each segment: not too long, and with something around a short call."""
    end_s = np.minimum(segments["end_s"], np.array(segments["start_s"]) + MAX_LENGTH_S)
    collar_s = np.array(segments["collar_s"])
    is_short = end_s - np.array(segments["start_s"]) < SHORT_CALL_S
    collar_s[is_short] = np.maximum(collar_s[is_short], AROUND_S)
    spans = segments.with_columns(end_s=end_s, collar_s=collar_s)
    names = segments["segment"]
    rates_hz = segments["rate_hz"]
    for row, signal in load_audio(spans):
        if not isinstance(signal, CallshotError) and len(signal):
            yield names[row], make_call_clip(np.asarray(signal, float), rates_hz[row])


def make_call_clip(signal: FloatArray, rate_hz: int) -> CallClip:
    """Return the sound and the picture of a signal."""
    loudest = float(np.abs(signal).max()) or 1.0
    level = signal * (LEVEL / loudest)
    middle_hz = median_frequency_hz(level, rate_hz)
    out_hz = RATES_HZ[0] if rate_hz <= RATES_HZ[0] else RATES_HZ[1]
    top_hz = min(rate_hz / 2, max(8 * middle_hz, 500.0))
    clip = CallClip(
        _encode(level, rate_hz, out_hz),
        _draw_spectrogram(level, rate_hz, top_hz),
        len(signal) / rate_hz,
        top_hz,
    )
    if middle_hz >= LOW_HZ:
        return clip
    audible = [speed for speed in SPEEDS if speed * middle_hz >= AUDIBLE_HZ]
    speed = min(audible, default=SPEEDS[-1])
    fast = _encode(level, rate_hz * speed, out_hz)
    return clip._replace(fast=fast, speed=speed)


def median_frequency_hz(signal: FloatArray, rate_hz: float) -> float:
    """Return the frequency below which half of the energy is.

    >>> tone = np.sin(2 * np.pi * 100 * np.arange(8000) / 8000)
    >>> round(median_frequency_hz(tone, 8000))
    100
    """
    power = np.abs(np.fft.rfft(signal)) ** 2
    share = np.cumsum(power) / (power.sum() or 1.0)
    index = int(np.searchsorted(share, 0.5))
    return index * rate_hz / max(len(signal), 1)


def _encode(signal: FloatArray, rate_hz: float, out_hz: int) -> str:
    """Return a sound as MP3 in base64."""
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
    """Return a spectrogram up to a frequency as PNG in base64; dark is loud."""
    from PIL import Image

    window_s = max(ROWS / top_hz, MIN_WINDOW_S)
    edges_hz = np.linspace(0, top_hz, ROWS + 1)
    levels = measure_spectrogram(signal, rate_hz, edges_hz, COLUMNS, window_s)
    below = np.clip((levels.max() - levels) / RANGE_DB, 0.0, 1.0)
    shades = (255 * below).astype(np.uint8) // 16
    image = Image.fromarray(shades).convert("P")
    image.putpalette(np.repeat(np.arange(16, dtype=np.uint8) * 17, 3).tobytes())
    content = io.BytesIO()
    image.save(content, "PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode("ascii")


EXTRA = 36  # calls with a sound besides the picked ones, over all types
MIN_EXTRA = 3  # of each type
MIN_FOR_UMAP = 20
SEED = 0
SIDE = 1000  # of the map, in whole numbers


def find_calls(results: CorpusResults) -> dict[str, Any]:
    """Return all calls, and their places and picks by encoder, as the page reads them."""
    evaluation = results.evaluation
    segments = evaluation.segments
    labels = [count.label for count in evaluation.eligible_classes]
    numbers = {label: number for number, label in enumerate(labels)}
    encoders = []
    for table in results.tables:
        scores = score_calls(table, evaluation.folds, labels)
        encoder = {
            "map": _scale(place_calls(table)),
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


def _scale(points: FloatArray) -> list[list[int]]:
    """Return points as whole numbers; both axes have the same unit."""
    low = points.min(axis=0)
    extent = points.max(axis=0) - low
    width = float(extent.max()) or 1.0
    middle = (SIDE - SIDE * extent / width) / 2
    whole = np.rint(SIDE * (points - low) / width + middle).astype(int)
    return [[int(x), int(y)] for x, y in whole]


def place_calls(table: Vectors) -> FloatArray:
    """Return calls in the plane, (calls, 2), by UMAP if it is installed, else by variance."""
    if find_spec("umap") and len(table) >= MIN_FOR_UMAP:
        import umap

        reducer = umap.UMAP(random_state=SEED, n_jobs=1)
        return np.asarray(reducer.fit_transform(table.matrix), np.float64)
    points, _ = principal_plane(table.matrix)
    return points


def choose_sounds(calls: Mapping[str, Any], results: CorpusResults) -> list[str]:
    """Return the segments to play, the most important first: picks, then others of each label."""
    rows = []
    for table, encoder in zip(results.tables, calls["encoder_calls"], strict=True):
        if not is_random(table.encoder):
            for pick in encoder["picks"]:
                rows += [pick.typical, pick.nearest, pick.farthest]
    numbers = np.array(calls["call_labels"])
    labels = len(calls["labels"])
    most = max(MIN_EXTRA, EXTRA // max(labels, 1))
    members = []
    for label in range(labels):  # a few calls of each, from the first to the last
        own = np.flatnonzero(numbers == label).tolist()
        members.append(own[:: max(1, len(own) // most)][:most])
    for together in zip_longest(*members):
        rows += [row for row in together if row is not None]
    segments = results.evaluation.segments["segment"]
    return [segments[row] for row in dict.fromkeys(rows)]
