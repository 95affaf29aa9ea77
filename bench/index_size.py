"""What an index costs at the size of a network of recorders, and what fewer bytes cost.

    python bench/index_size.py loss      mAP with float16 and int8, not float32, on real calls
    python bench/index_size.py size      bytes per hour
    python bench/index_size.py open      time and memory to open and scan, by number of recordings

`loss` needs BirdNET and ../shared/data. int8 has one scale for each vector, whose largest value is
127. The recordings of `open` are copies of one of a minute (MFCC, windows of 1 s): they cost what
each recording costs, whatever its length.
"""

import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
import psutil
import soundfile

from callshot import embed, evaluate, index_recordings, learn, scan, segment
from callshot.chunks import write_record
from callshot.detection.index.index_files import (
    INDEX,
    IndexedRecording,
    IndexSettings,
    open_index,
    recording_folder,
    write_indexed,
    write_span,
)
from callshot.detection.model import write_model
from callshot.vectors import Vectors
from table import parser, show

DATA = Path(__file__).parents[2] / "shared" / "data"
ENCODER = "birdnet-v2.4"
DIMENSION = 1024
WINDOW_S = 3.0
RATE_HZ = 16000
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
        "elephants": segment(data / "elephants", min_length_s=1.0),
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


def _convert(table: Vectors, precision: str) -> Vectors:
    vectors = PRECISIONS[precision](table.matrix)
    return replace(table, matrix=vectors, encoder=precision)


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


def measure_size(folder: Path, hours: int) -> list[Row]:
    """Return what an hour takes on the disk."""
    rows: list[Row] = []
    for dtype in ("float32", "float16"):
        place = folder / dtype
        make_index(place, hours, dtype)
        size = sum(path.stat().st_size for path in place.rglob("*.*"))
        rows.append({"what": f"{dtype}, MB per hour", "value": size / hours / 1e6})
    int8 = (size - hours * 1200 * (DIMENSION - 4)) / hours / 1e6
    rows.append({"what": "int8 with scales, MB per hour (computed)", "value": int8})
    return rows


def measure_open(folder: Path, counts: Sequence[int]) -> list[Row]:
    """Return what opening and scanning an index takes, by its number of recordings."""
    model = folder / "model.npz"
    index = folder / "index"
    _make_site(folder / "site")
    write_model(learn(folder / "site", "mfcc").model, model)
    _make_minute(folder / "minute")
    index_recordings(folder / "minute", index, "mfcc", window_s=1)
    made = 1
    rows = []
    for count in counts:
        _add_entries(index, made, count)
        made = count
        row: Row = {"recordings": f"{count:,}"}
        for name, work in (("open", _open), ("scan", _scan)):
            taken_s, cpu_s, used_mb = _measure_alone(work, model, index)
            row[f"{name}, s"] = taken_s
            row[f"{name}, CPU s"] = cpu_s
            row[f"{name}, MB"] = used_mb
        rows.append(row)
        show("An index of many recordings, so far", rows[-1:])
    return rows


def _make_site(folder: Path) -> None:
    """Write a recording with two calls, to learn a model."""
    noise = np.random.default_rng(0).normal(0, 0.01, 10 * RATE_HZ)
    for start_s, period in ((2, 5), (6, 9)):
        first = start_s * RATE_HZ
        noise[first : first + RATE_HZ] += np.sin(np.arange(RATE_HZ) / period)
    folder.mkdir()
    soundfile.write(folder / "site.wav", noise, RATE_HZ)
    (folder / "site.txt").write_text("2.0\t3.0\trumble\n6.0\t7.0\troar\n")


def _make_minute(folder: Path) -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, 60 * RATE_HZ)
    folder.mkdir()
    soundfile.write(folder / "minute.wav", noise, RATE_HZ)


def _add_entries(folder: Path, first: int, end: int) -> None:
    """Add copies of the first recording, under other names, without waiting for the disk."""
    recording = open_index(folder).recordings[0]
    source = recording_folder(folder, recording.path)
    with patch("callshot.files.sync_file"), patch("callshot.files.sync_folder"):
        for number in range(first, end):
            copy = replace(recording, path=f"more/{number:07d}.wav")
            place = recording_folder(folder, copy.path)
            place.mkdir()
            for name in recording.spans:
                shutil.copyfile(source / name, place / name)
            write_indexed(folder, copy)


def _open(model: Path, index: Path) -> None:
    open_index(index)


def _scan(model: Path, index: Path) -> None:
    scan(model, index, threads=1)


def _measure_alone(work, model: Path, index: Path) -> tuple[float, float, float]:
    """Return the seconds, CPU seconds and MB that something takes in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measure, work, model, index).result()


def _measure(work, model: Path, index: Path) -> tuple[float, float, float]:
    before = psutil.Process().memory_info().rss
    start_s = time.monotonic()
    start_cpu_s = time.process_time()
    work(model, index)
    elapsed_s = time.monotonic() - start_s
    cpu_s = time.process_time() - start_cpu_s
    most = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return elapsed_s, cpu_s, (most - before) / 1e6


def main() -> None:
    """Measure one of the three."""
    options = parser(__doc__)
    options.add_argument("part", choices=["loss", "size", "open"])
    options.add_argument("--data", type=Path, default=DATA)
    options.add_argument("--store", type=Path, help="of embeddings")
    options.add_argument("--hours", type=int, default=24)
    options.add_argument("--recordings", default="1000,10000,100000", help="to open")
    given = options.parse_args()
    if given.part == "loss":
        rows = measure_loss(given.data, given.store)
        show(
            "mAP with vectors of fewer bytes (BirdNET, shared draws)", rows, given.json
        )
        return
    with tempfile.TemporaryDirectory(prefix="callshot-index-") as name:
        if given.part == "size":
            title = "An index of BirdNET's windows (1024 values every 3 s)"
            rows = measure_size(Path(name), given.hours)
        else:
            title = "An index of many recordings"
            counts = [int(count) for count in given.recordings.split(",")]
            rows = measure_open(Path(name), counts)
    show(title, rows, given.json)


if __name__ == "__main__":
    main()
