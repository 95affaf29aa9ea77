"""What an index costs at the size of a network of recorders, and what fewer bytes cost.

    python bench/index_size.py loss      mAP with float16 and int8, not float32, on real calls
    python bench/index_size.py size      bytes per hour, and the time to open an index

`loss` needs BirdNET and ../shared/data. int8 has one scale for each vector, whose largest value is
127.
"""

import resource
import shutil
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import polars as pl

from callshot import embed, evaluate, segment
from callshot.detection.index.index_files import (
    INDEX,
    IndexedRecording,
    IndexSettings,
    open_index,
    recording_folder,
    write_indexed,
    write_record,
    write_span,
)
from callshot.records import Embeddings
from table import parser, show

DATA = Path(__file__).parents[2] / "shared" / "data"
ENCODER = "birdnet-v2.4"
DIMENSION = 1024
WINDOW_S = 3.0
SHOTS = [1, 5, 10]
Row = dict[str, object]


def to_float16(vectors: np.ndarray) -> np.ndarray:
    """Return vectors as an index of float16 has them."""
    return vectors.astype(np.float16).astype(np.float32)


def to_int8(vectors: np.ndarray) -> np.ndarray:
    """Return vectors as an index of int8 would have them."""
    scale = np.abs(vectors).max(axis=1, keepdims=True) / 127
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    return (np.rint(vectors / scale).astype(np.int8) * scale).astype(np.float32)


PRECISIONS = {"float32": np.asarray, "float16": to_float16, "int8": to_int8}


def measure_loss(data: Path, store: Path | None) -> list[Row]:
    """Return mAP of each precision, and the paired difference from float32."""
    corpora = {
        "elephants": segment(data / "elephants"),
        "finch": segment(
            data / "finch",
            annotations=data / "finch/annotations.csv",
            min_length_s=0.02,
        ),
    }
    rows = []
    for name, corpus in corpora.items():
        table = embed(corpus, ENCODER, store=store)
        tables = [_convert(table, precision) for precision in PRECISIONS]
        result = evaluate(
            tables, shots=SHOTS, spread="shared", corpus=name, permutations=0
        )
        rows += _list_losses(name, result)
    return rows


def _convert(table: Embeddings, precision: str) -> Embeddings:
    vectors = PRECISIONS[precision](table.vectors)
    return replace(table, vectors=vectors, encoder=precision)


def _list_losses(name: str, result) -> list[Row]:
    rows = []
    chosen = result.curve.filter(pl.col("metric") == "map")
    for one in chosen.iter_rows(named=True):
        row = {"corpus": name, "k": one["k"], "vectors": one["encoder"]}
        row["mAP"] = one["mean"]
        row["less than float32"] = _find_loss(result, one)
        rows.append(row)
    return sorted(rows, key=lambda row: (row["corpus"], row["k"]))


def _find_loss(result, one) -> str:
    """Return the difference from float32 with its 98 % interval."""
    pair = {"float32", one["encoder"]}
    for row in result.differences.iter_rows(named=True):
        is_same = row["metric"] == one["metric"] and row["k"] == one["k"]
        if is_same and {row["one"], row["other"]} == pair and len(pair) == 2:
            sign = 1 if row["one"] == "float32" else -1
            low, high = sorted((sign * row["low"], sign * row["high"]))
            return f"{sign * row['mean']:+.5f} [{low:+.5f}, {high:+.5f}]"
    return ""


def make_index(folder: Path, hours: int, dtype: str) -> None:
    """Write an index of random vectors, recordings of one hour."""
    settings = IndexSettings(
        "synthetic", {}, {}, DIMENSION, WINDOW_S, WINDOW_S, "first", dtype
    )
    folder.mkdir(parents=True)
    write_record(folder / INDEX, asdict(settings))
    windows = round(3600 / WINDOW_S)
    rows = np.zeros(windows, settings.row_dtype())
    rows["vector"] = np.random.default_rng(0).normal(size=(windows, DIMENSION))
    for hour in range(hours):
        path = f"site/{hour:06d}.wav"
        place = recording_folder(folder, path)
        place.mkdir(parents=True)
        parts = (rows[:1024], rows[1024:])
        spans = [write_span(place, "0" * 8, n, part) for n, part in enumerate(parts)]
        recording = IndexedRecording(
            path=path,
            root="/data",
            stamp="0" * 8,
            duration_s=3600.0,
            rate_hz=48000.0,
            clock=None,
            windows=windows,
            spans=spans,
        )
        write_indexed(folder, recording)


def measure_size(folder: Path, hours: int, opened: int) -> list[Row]:
    """Return what an hour takes on the disk, and how long many recordings take to be listed."""
    rows: list[Row] = []
    for dtype in ("float32", "float16"):
        place = folder / dtype
        make_index(place, hours, dtype)
        size = sum(path.stat().st_size for path in place.rglob("*.*"))
        rows.append({"what": f"{dtype}, MB per hour", "value": size / hours / 1e6})
    int8 = (size - hours * 1200 * (DIMENSION - 4)) / hours / 1e6
    rows.append({"what": "int8 with scales, MB per hour (computed)", "value": int8})
    _add_entries(folder / "float16", opened)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start_s = time.monotonic()
    index = open_index(folder / "float16")
    elapsed_s = time.monotonic() - start_s
    used_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    count = len(index.recordings)
    rows.append(
        {
            "what": "ms to open the entry of a recording",
            "value": elapsed_s / count * 1e3,
        }
    )
    rows.append({"what": "kB of memory for an entry", "value": used_kb / count})
    return rows


def _add_entries(folder: Path, count: int) -> None:
    """Add entries of recordings whose files nobody reads."""
    first = open_index(folder).recordings[0]
    for number in range(count):
        recording = replace(first, path=f"more/{number:06d}.wav")
        recording_folder(folder, recording.path).mkdir(parents=True)
        write_indexed(folder, recording)


def main() -> None:
    """Measure one of the two."""
    options = parser(__doc__)
    options.add_argument("part", choices=["loss", "size"])
    options.add_argument("--data", type=Path, default=DATA)
    options.add_argument("--store", type=Path, help="of embeddings")
    options.add_argument("--hours", type=int, default=24)
    options.add_argument("--recordings", type=int, default=10000, help="to open")
    given = options.parse_args()
    if given.part == "loss":
        rows = measure_loss(given.data, given.store)
        show(
            "mAP with vectors of fewer bytes (BirdNET, shared draws)", rows, given.json
        )
        return
    folder = Path(tempfile.mkdtemp(prefix="callshot-index-"))
    try:
        rows = measure_size(folder, given.hours, given.recordings)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show("An index of BirdNET's windows (1024 values every 3 s)", rows, given.json)


if __name__ == "__main__":
    main()
