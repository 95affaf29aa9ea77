"""Pooling × speed: mAP of the nearest centroid on corpora of segments.

    python bench/pooling.py SEGMENTS... --encoder birdnet-v2.4 --speeds 1,2,4

SEGMENTS are files that `callshot segment` wrote. mAP is the mean over labelled sets, `total` its
98 % interval on other recordings. Gains are paired, over the first row (pooling mean, the first
speed), with their 98 % interval in `total`. A model runs once for each speed; windows are kept in
--store, and pooled in five ways.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from callshot.encoders.catalogue import display_name, find_encoder
from callshot.encoders.embed import (
    SegmentAudio,
    default_store,
    default_threads,
    embed_segments,
    make_table,
)
from callshot.encoders.encode import open_encoder
from callshot.encoders.pooling import POOLINGS
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.store.store import open_store
from callshot.records import Embeddings
from table import parser, show
from view_scores import compare_tables, read_audio


def pool_tables(
    audio: SegmentAudio, spec: EncoderSpec, folder: Path
) -> Iterator[Embeddings]:
    """Yield the vectors of an encoder, pooled in every way."""
    encoder = open_encoder(spec, threads=default_threads(), sequences=True)
    with open_store(folder, encoder.fingerprint, sequences=True) as store:
        keys, rejects = embed_segments(audio, encoder, store)
        if rejects:
            raise SystemExit(f"{audio.source}: {rejects[0].reason}")
        outputs = list(store.sequences([key for key in keys if key is not None]))
    vectors: dict[str, list[np.ndarray]] = {pooling: [] for pooling in POOLINGS}
    for segment, (_, signal), output in zip(
        audio.segments, audio.load(audio.segments), outputs, strict=True
    ):
        prepared = encoder.prepare(signal, segment.rate_hz)
        for pooling in POOLINGS:
            pooled = replace(encoder, spec=replace(spec, pooling=pooling))
            vectors[pooling].append(pooled.pool(prepared, output))
    for pooling in POOLINGS:
        name = display_name(replace(spec, pooling=pooling))
        yield make_table(name, audio.segments, np.stack(vectors[pooling]), audio.source)


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
        audio = read_audio(path)
        tables: list[Embeddings] = []
        for speed in options.speeds.split(","):
            spec = find_encoder(options.encoder, {"speed": speed})
            tables += pool_tables(audio, spec, options.store)
        rows += compare_tables(path.parent.name, tables, options.samples)
    show("bench/pooling: mAP by k, and gains over the first row", rows, options.json)


if __name__ == "__main__":
    main()
