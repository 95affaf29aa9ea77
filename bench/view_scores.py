"""Tables of embeddings of one corpus → rows of a benchmark: mAP, and paired differences."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.corpus.audio import load_audio
from callshot.corpus.segment_table import read_segments
from callshot.encoders.embed import SegmentAudio
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from callshot.records import Embeddings

SHOTS = (1, 5, 20)
TableRow = dict[str, object]


def read_audio(path: Path) -> SegmentAudio:
    """Return the segments of a file, and how to read their audio."""
    segments = read_segments(path)
    root = Path(segments.audio or "")
    return SegmentAudio(segments, root, partial(load_audio, root), path)


def compare_tables(
    corpus: str, tables: Sequence[Embeddings], samples: int = 1000
) -> list[TableRow]:
    """Evaluate tables; return a row for each, with its differences from the first."""
    protocol = Protocol(
        shots=SHOTS,
        spreads=("total", "shared"),
        shared_draws=samples,
        total_samples=samples,
        permutations=0,
    )
    names = frozenset(tables[0].segment).intersection(*(one.segment for one in tables))
    shared = [table.only(names) for table in tables]
    result = evaluate_tables(shared, protocol, corpus=corpus)
    values = result.values.filter(metric="map", scoring="all")
    first = tables[0].encoder
    rows: list[TableRow] = []
    for table in tables:
        row: TableRow = {"corpus": corpus, "view": table.encoder}
        for spread in ("shared", "total"):
            for k in available_shots(values):
                row[f"{spread} {k}"] = samples_of(
                    values, table.encoder, spread, k
                ).mean()
        for k in available_shots(values):
            own = samples_of(values, table.encoder, "total", k)
            gain = own - samples_of(values, first, "total", k)
            low, high = np.percentile(gain, (1, 99))
            row[f"gain {k}"] = f"{gain.mean():+.3f} ({low:+.3f} to {high:+.3f})"
        rows.append(row)
    return rows


def available_shots(values: pl.DataFrame) -> list[int]:
    """Return the k that were evaluated."""
    return sorted(values["k"].unique().to_list())


def samples_of(
    values: pl.DataFrame, encoder: str, spread: str, k: int
) -> NDArray[np.float64]:
    """Return the mAP of one encoder in every sample of a spread."""
    rows = values.filter(encoder=encoder, spread=spread, k=k)
    return rows["value"].explode().to_numpy()
