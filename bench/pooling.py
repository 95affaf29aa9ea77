"""Pooling × speed: mAP of the nearest centroid on corpora of segments.

    python bench/pooling.py SEGMENTS... --encoder birdnet-v2.4 --speeds 1,2,4,2+4

SEGMENTS are files that `callshot segment` wrote. mAP is the mean over labelled sets, `shared` its
98 % interval over those, and `total` that on other recordings. Gains are paired, over the first row
(pooling mean, the first speed), with their 98 % interval in `total`. A model runs once for each
speed; windows are kept in --store, and pooled in five ways. A pooling that gives the vectors of
`mean`, as all do where every call is one window, has no row.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from callshot.corpus.audio import load_audio
from callshot.corpus.segment_table import read_segments
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.embed import (
    default_store,
    embed_spans,
)
from callshot.encoders.encode import Encoder, open_encoder
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.encoders.spec import POOLINGS, EncoderSpec
from callshot.encoders.store import Store
from callshot.encoders.workers import default_threads
from callshot.spans import Spans
from callshot.vectors import Vectors
from encoder_scores import compare_tables
from table import parser, show

Outputs = list[np.ndarray]


def run_model(audio: Spans, encoder: Encoder, folder: Path) -> Outputs:
    """Return the windows or frames of all segments, from the store if it has them."""
    with Store(folder, encoder.fingerprint, sequences=True) as store:
        keys, rejects = embed_spans(audio, encoder, store)
        if rejects:
            raise SystemExit(f"{audio.source}: {rejects[0].reason}")
        return list(store.sequences([key for key in keys if key is not None]))


def pool_vectors(
    audio: Spans, spec: EncoderSpec, folder: Path
) -> dict[str, np.ndarray]:
    """Return the vectors of an encoder, pooled in every way."""
    encoder = open_encoder(spec, threads=default_threads(), sequences=True)
    outputs = run_model(audio, encoder, folder)
    encoders = {
        pooling: replace(encoder, spec=replace(spec, pooling=pooling))
        for pooling in POOLINGS
    }
    vectors: dict[str, Outputs] = {pooling: [] for pooling in POOLINGS}
    for rate_hz, (_, signal), output in zip(
        audio["rate_hz"], load_audio(audio), outputs, strict=True
    ):
        # Only `energy` needs the energies of windows; the windows are the same.
        prepared = encoders["energy"].prepare(signal, rate_hz)
        for pooling in POOLINGS:
            vectors[pooling].append(encoders[pooling].pool(prepared, output))
    return {pooling: np.stack(pooled) for pooling, pooled in vectors.items()}


def pool_tables(
    path: Path, encoder: str, speeds: list[str], folder: Path
) -> Iterator[Vectors]:
    """Yield the tables of a corpus: for each speed, alone or joined, one for each pooling."""
    audio = read_segments(path)

    @cache
    def find_vectors(speed: str) -> dict[str, np.ndarray]:
        return pool_vectors(audio, find_encoder(encoder, {"speed": speed}), folder)

    for speed in speeds:
        means: np.ndarray | None = None
        for pooling in POOLINGS:
            parts = [find_vectors(one)[pooling] for one in speed.split("+")]
            vectors = np.concatenate(parts, axis=1)
            if means is None:
                means = vectors
            elif np.allclose(vectors, means, rtol=1e-5, atol=1e-6):
                print(f"{path.parent.name}, speed {speed}: {pooling} is mean")
                continue
            name = find_joined_encoder(
                encoder, {"speed": speed, "pooling": pooling}
            ).name
            yield Vectors(audio, vectors, name)


def main() -> None:
    """Measure all corpora and print one table."""
    arguments = parser(__doc__)
    arguments.add_argument("segments", nargs="+", type=Path, metavar="SEGMENTS")
    arguments.add_argument("--encoder", default="birdnet-v2.4")
    arguments.add_argument("--speeds", default="1,2,4")
    arguments.add_argument("--store", type=Path, default=default_store())
    arguments.add_argument("--samples", type=int, default=1000)
    options = arguments.parse_args()
    rows = []
    for path in options.segments:
        speeds = options.speeds.split(",")
        tables = [*pool_tables(path, options.encoder, speeds, options.store)]
        rows += compare_tables(path.parent.name, tables, options.samples)
    show("bench/pooling: mAP by k, and gains over the first row", rows, options.json)


if __name__ == "__main__":
    main()
