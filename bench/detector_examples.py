"""Recordings and clips → windows, calls, and vectors of examples, for bench/detectors.py."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.mixing import mix_example
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segments import segment_corpus
from callshot.detection.background import find_free
from callshot.detection.examples import (
    place_windows,
    read_quiet_windows,
    split_call,
)
from callshot.detection.index.index_files import open_index
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.index.windows import (
    RecordingAtSpeed,
    find_spec,
    make_grid,
)
from callshot.encoders.workers import open_workers

Array = np.ndarray


@dataclass
class Windows:
    """Vectors of windows in order, with the recording and start of each."""

    vectors: Array
    start_s: Array
    path: Array
    window_s: float
    hop_s: float

    @property
    def hours(self) -> float:
        """The length that the windows stand for."""
        return len(self.vectors) * self.hop_s / 3600


@dataclass
class Examples:
    """Vectors of examples of one kind."""

    vectors: Array
    label: Array


def read_windows(recordings: Path, folder: Path, options: Namespace) -> Windows:
    """Embed the windows of recordings, once, and return them."""
    index_recordings(
        recordings,
        folder,
        options.encoder,
        window_s=options.window,
        hop_s=options.hop,
        dtype="float32",
    )
    index = open_index(folder)
    blocks = list(index.read_blocks())
    return Windows(
        np.concatenate([np.asarray(one.matrix, np.float64) for one in blocks]),
        np.concatenate([one.spans["start_s"] for one in blocks]),
        np.concatenate([one.recording for one in blocks]),
        index.settings.window_s,
        index.settings.hop_s,
    )


def read_calls(recordings: Path, annotations: Path | None) -> pl.DataFrame:
    """Return the annotated calls."""
    found = segment_corpus(
        recordings,
        annotations,
        options=SegmentationOptions(min_length_s=0.0),
        check=False,
    )
    return found.segments.frame.select("path", "start_s", "end_s", "label")


class Embedder:
    """Turns signals at the encoder's rate into vectors; long ones are means of their windows."""

    def __init__(self, options: Namespace) -> None:
        self.spec = find_spec(options.encoder)
        self.grid = make_grid(self.spec, options.window)
        self.model = open_workers(self.spec, threads=options.threads)

    def read(self, path: Path) -> Array:
        """Return a whole recording."""
        with RecordingAtSpeed(path, path.name, self.spec, "first") as audio:
            return audio.read(0, audio.samples)

    def read_call(self, path: Path, start_s: float, end_s: float) -> list[Array]:
        """Return the windows of a call in a recording, as `learn` has them."""
        with RecordingAtSpeed(path, path.name, self.spec, "first") as audio:
            length_s = audio.recording.duration_s
            window_s = self.grid.window_s
            places = place_windows(start_s, end_s, window_s, length_s)
            firsts = [self.grid.to_samples(place) for place in places]
            return [
                audio.read(one, min(one + self.grid.window, audio.samples))
                for one in firsts
            ]

    def embed(self, windows: list[list[Array]]) -> Array:
        """Return the mean vector of each list of windows."""
        flat = [window for one in windows for window in one]
        parts = [
            self.model.submit_windows(flat[n : n + 32])()
            for n in range(0, len(flat), 32)
        ]
        vectors = np.concatenate(parts).astype(np.float64)
        ends = np.cumsum([len(one) for one in windows])[:-1]
        return np.stack([part.mean(axis=0) for part in np.split(vectors, ends)])


def embed_clips(
    clips: Path, recordings: Path, embedder: Embedder
) -> dict[str, Examples]:
    """Return clips as they are, and mixed into background of the recordings."""
    files = [(recordings, path.name) for path in sorted(recordings.glob("*.wav"))]
    spec = embedder.spec
    site = read_quiet_windows(files, spec, embedder.grid, "first")
    window = embedder.grid.window
    plain = []
    mixed = []
    labels = []
    for path in sorted(clips.glob("*/*.wav")):
        signal = embedder.read(path)
        name = f"{path.parent.name}/{path.name}"
        labels.append(path.parent.name)
        is_short = len(signal) <= window
        plain.append([signal] if is_short else split_call(signal, window))
        laid = mix_example(signal, site, name, spec.rate_hz)
        mixed.append([part for one in laid for part in split_call(one, window)])
    label = np.array(labels)
    return {
        "plain": Examples(embedder.embed(plain), label),
        "mixed": Examples(embedder.embed(mixed), label),
    }


def embed_own(
    recordings: Path, annotations: Path | None, embedder: Embedder
) -> Examples:
    """Return the examples that are annotated in recordings of the site."""
    calls = read_calls(recordings, annotations)
    windows = [
        embedder.read_call(recordings / path, start_s, end_s)
        for path, start_s, end_s, _ in calls.iter_rows()
    ]
    return Examples(embedder.embed(windows), calls["label"].to_numpy())


def find_annotations(folder: Path) -> Path:
    """Return the annotations of a site, or of its examples."""
    tables = folder / "raven"
    return tables if tables.exists() else folder / "annotations.csv"


def select_free(windows: Windows, calls: pl.DataFrame) -> Windows:
    """Return the windows that no call touches."""
    keep = np.ones(len(windows.start_s), bool)
    for path in np.unique(windows.path):
        rows = windows.path == path
        spans = calls.filter(path=str(path)).select("start_s", "end_s").rows()
        keep[rows] = find_free(windows.start_s[rows], windows.window_s, spans)
    return Windows(
        windows.vectors[keep],
        windows.start_s[keep],
        windows.path[keep],
        windows.window_s,
        windows.hop_s,
    )
