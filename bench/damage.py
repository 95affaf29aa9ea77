"""Damage the store and tables in 20,000 ways each, and measure what the checks cost.

Store: a changed byte or a cut in a shard. No wrong vector may come back, the work must go on, and
what it gives must be the same as from a fresh store. Tables: Parquet, .npz and CSV files with
changed, missing and added bytes, read as `callshot evaluate` reads them. Each gives a dataset, or
one line that names the file. All runs in child processes, so that an abort is counted.
"""

import io
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np
import polars as pl
import soundfile as sf

from table import parser, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from callshot.encoders import store as stores
from callshot.encoders.embed import EmbedOptions, embed
from callshot.encoders.store import Store, open_store
from callshot.errors import CallshotError
from callshot.spans import Spans
from callshot.tables.dataset import read_dataset
from callshot.tables.embedding_tables import write_table
from callshot.vectors import Vectors
from mutations import mutate

CHUNK = 1000  # trials of a child process
EMBED_EACH = 50  # trials of the store between two that embed audio
FINGERPRINT = {"encoder": "bench"}
SOURCES = [f"call {number}" for number in range(60)]
KEYS = [sha256(source.encode()).hexdigest() for source in SOURCES]
VECTORS = np.random.default_rng(1).normal(size=(60, 24)).astype(np.float32)
RATE_HZ = 16_000
Trial = Callable[[Path, int], str]


# The store


def damage_bytes(raw: bytes, rng: random.Random) -> bytes:
    """Change one byte, or cut the file off."""
    position = rng.randrange(len(raw))
    if rng.random() < 0.2:
        return raw[:position]
    change = rng.randrange(1, 256)
    return raw[:position] + bytes([raw[position] ^ change]) + raw[position + 1 :]


def fill_store(folder: Path) -> None:
    """Write three shards of twenty vectors."""
    for start in range(0, 60, 20):
        with open_store(folder, FINGERPRINT) as store:
            add_missing(store, range(start, start + 20))


def add_missing(store: Store, numbers: range) -> None:
    """Add the vectors that a store does not have, as an encoder would make them again."""
    for number in numbers:
        if not store.has(KEYS[number]):
            store.add(SOURCES[number], KEYS[number], VECTORS[number])


def read_damaged_store(folder: Path, number: int) -> str:
    """Damage a shard, read everything, make again what is missing; return the outcome."""
    place = folder / "store"
    if not place.exists():
        fill_store(place)
    files = sorted(place.glob("*/shard-*.npy"))
    rng = random.Random(number)
    shard = rng.choice(files)
    whole = shard.read_bytes()
    shard.write_bytes(damage_bytes(whole, rng))
    with open_store(place, FINGERPRINT) as store:
        present = [n for n, key in enumerate(KEYS) if store.has(key)]
        kept = store.vectors([KEYS[n] for n in present])
        is_right = np.array_equal(kept, VECTORS[present])
        add_missing(store, range(60))
        is_same = np.array_equal(store.vectors(KEYS), VECTORS)
        notes = len(store.notes)
    for path in place.glob("*/shard-*"):
        if path not in files:
            path.unlink()
    shard.write_bytes(whole)
    if not (is_right and is_same):
        return "wrong vectors"
    return "noticed" if notes == 1 and len(present) == 40 else "not noticed"


def make_segments(folder: Path) -> Spans:
    """Write a recording of twelve tones, and return its segments."""
    time_s = np.arange(12 * RATE_HZ) / RATE_HZ
    pitch_hz = 100.0 * (1 + np.floor(time_s))
    sf.write(folder / "a.wav", 0.3 * np.sin(2 * np.pi * pitch_hz * time_s), RATE_HZ)
    segments = []
    for start in range(12):
        label = f"tone {start % 3}"
        segment = {
            "segment": f"s{start}",
            "recording": "a.wav",
            "start_s": start + 0.0,
            "end_s": start + 1.0,
            "label": label,
            "labels": [label],
            "rate_hz": RATE_HZ,
        }
        segments.append(segment)
    return Spans.from_rows(segments, root=folder)


def embed_with_damage(folder: Path, number: int) -> str:
    """Embed with a store of which one shard is damaged; compare with a fresh store."""
    audio = make_segments(folder)
    tables = []
    for name in ("damaged", "fresh"):
        place = folder / f"{name} {number}"
        if name == "damaged":
            embed(audio, "mfcc", EmbedOptions(store=place, threads=1))
            [shard] = place.glob("*/shard-*.npy")
            shard.write_bytes(damage_bytes(shard.read_bytes(), random.Random(number)))
        table, rejects = embed(audio, "mfcc", EmbedOptions(store=place, threads=1))
        path = folder / f"{name}.parquet"
        write_table(table, path)
        tables.append(path.read_bytes())
        if rejects:
            return "rejects"
    return "same table" if tables[0] == tables[1] else "another table"


def try_store(folder: Path, number: int) -> str:
    """Damage the store; now and then with audio and an encoder."""
    outcome = read_damaged_store(folder, number)
    if outcome == "noticed" and number % EMBED_EACH == 0:
        outcome = embed_with_damage(folder, number)
    return outcome


# Tables


@cache
def make_tables() -> dict[str, list[bytes]]:
    """Return good tables by suffix, as several programs write them."""
    label = ["rumble", "roar", "trumpet"] * 10
    rows = Vectors.from_columns(
        "bench",
        VECTORS[:30, :6],
        [f"s{n}" for n in range(30)],
        [f"r{n // 3}.wav" for n in range(30)],
        label,
        [(name,) for name in label],
    )
    frame = rows.to_frame()
    parquet = [write_parquet(frame, kind) for kind in ("zstd", "snappy", "lz4", "gzip")]
    parquet.append(write_parquet(frame, "uncompressed"))
    parquet += write_arrow(frame)
    stream = io.BytesIO()
    plain = {name: np.array(getattr(rows, name)) for name in ("recording", "label")}
    np.savez(stream, embedding=rows.matrix, **plain)
    compressed = io.BytesIO()
    np.savez_compressed(compressed, embedding=rows.matrix, **plain)
    numbers = {f"e{n}": rows.matrix[:, n] for n in range(6)}
    text = frame.select("segment", "recording", "label").with_columns(**numbers)
    csv = text.write_csv().encode()
    return {
        ".parquet": parquet,
        ".npz": [stream.getvalue(), compressed.getvalue()],
        ".csv": [csv, csv.replace(b"\n", b"\r\n")],
    }


def write_parquet(frame: pl.DataFrame, compression: str) -> bytes:
    """Return a table as polars writes it."""
    stream = io.BytesIO()
    frame.write_parquet(stream, compression=compression, metadata={"encoder": "x"})
    return stream.getvalue()


def write_arrow(frame: pl.DataFrame) -> list[bytes]:
    """Return a table as pyarrow writes it, with other encodings and page formats."""
    import pyarrow.parquet as pq

    options: list[dict[str, object]] = [
        {},
        {"data_page_version": "2.0"},
        {"data_page_size": 200, "write_page_index": True},
        {"row_group_size": 7},
    ]
    contents = []
    for chosen in options:
        stream = io.BytesIO()
        pq.write_table(frame.to_arrow(), stream, **chosen)
        contents.append(stream.getvalue())
    return contents


def try_table(folder: Path, number: int) -> str:
    """Read a damaged table; return the outcome."""
    rng = random.Random(number)
    tables = make_tables()
    suffix = rng.choice((".parquet", ".parquet", ".npz", ".csv"))
    whole = rng.choice(tables[suffix])
    raw = mutate(whole, rng.choice(tables[suffix]), rng)
    if suffix != ".csv" and rng.random() < 0.7:
        raw = damage_bytes(whole, rng)
    path = folder / f"table{suffix}"
    path.write_bytes(raw)
    try:
        read_dataset([path], folds=2)
    except CallshotError as error:
        message = str(error)
        is_line = "\n" not in message and str(path) in message
        return "error of one line" if is_line else f"odd message: {message[:200]}"
    return "read"


# Both


def run_trials(trial: Trial, start: int, count: int) -> None:
    """Run some trials in this process; print the outcome of each at once."""
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        for number in range(start, start + count):
            try:
                outcome = trial(Path(folder), number)
            except Exception as error:
                outcome = f"traceback: {type(error).__name__}: {str(error)[:200]}"
            print(json.dumps(outcome), flush=True)


def memory_folder() -> str | None:
    """Return a folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


TRIALS = {"store": try_store, "tables": try_table}


def count_outcomes(kind: str, count: int) -> Counter[str]:
    """Run all trials in child processes; an abort costs one trial."""
    outcomes: Counter[str] = Counter()
    number = 0
    while number < count:
        size = min(CHUNK, count - number)
        command = [sys.executable, __file__, "--trials", kind, str(number), str(size)]
        child = subprocess.run(command, capture_output=True, text=True)
        lines = child.stdout.splitlines()
        outcomes.update(json.loads(line) for line in lines)
        number += len(lines)
        noise = child.stderr.replace("note: ", "").strip()
        if noise and kind == "tables":
            outcomes["chunks with other output"] += 1
        if len(lines) < size:
            outcomes[f"abort (exit code {child.returncode})"] += 1
            number += 1
    return outcomes


Times = list[tuple[float, float]]
"""CPU and wall seconds of repeated runs."""


def measure_store() -> dict[str, object]:
    """Return the cost of verifying 82 MB of vectors, beside opening the store and reading."""
    names = [sha256(str(n).encode()).hexdigest() for n in range(20_000)]
    block = np.random.default_rng(0).normal(size=(1000, 1024)).astype(np.float32)
    verify = stores._verify_shards
    times: dict[bool, Times] = {True: [], False: []}
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        with open_store(Path(folder), FINGERPRINT) as store:
            for number, name in enumerate(names):
                store.add(name, name, block[number % 1000])
        for is_verified in (True, False) * 7:
            stores._verify_shards = verify if is_verified else lambda shards, _: shards
            stores._whole_shards.clear()
            start = (time.process_time(), time.perf_counter())
            with open_store(Path(folder), FINGERPRINT) as store:
                store.vectors(names)
            end = (time.process_time(), time.perf_counter())
            times[is_verified].append((end[0] - start[0], end[1] - start[1]))
    stores._verify_shards = verify
    return describe_cost("open the store, read 82 MB", times)


UNVERIFIED = """
import sys
from callshot.encoders import store
store._verify_shards = lambda shards, notes: shards
from callshot.__main__ import main
main()
"""


def measure_command(calls: int = 20_000) -> dict[str, object]:
    """Return what it costs to verify 82 MB in `callshot embed` if the store has all segments."""
    program = {True: ["-m", "callshot"], False: ["-c", UNVERIFIED]}
    times: dict[bool, Times] = {True: [], False: []}
    with tempfile.TemporaryDirectory(dir=memory_folder()) as name:
        folder = Path(name)
        table = make_long_corpus(folder, calls)
        words = ["embed", str(table), "-e", "random", "--set", "dimension=1024"]
        words += ["--store", str(folder / "store"), "--quiet"]
        words += ["--out", str(folder / "table.parquet")]
        subprocess.run([sys.executable, "-m", "callshot", *words], check=True)
        for is_verified in (True, False) * 5:
            command = [sys.executable, *program[is_verified], *words]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            start_s = time.perf_counter()
            subprocess.run(command, check=True)
            wall_s = time.perf_counter() - start_s
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            times[is_verified].append((cpu_s, wall_s))
    return describe_cost(f"callshot embed, {calls:,} segments in the store", times)


def make_long_corpus(folder: Path, calls: int) -> Path:
    """Write noise with an annotation every 0.1 s; return the table of its segments."""
    audio = folder / "audio"
    audio.mkdir()
    per_file = 1000
    for number in range(calls // per_file):
        noise = np.random.default_rng(number).normal(0, 0.1, per_file * RATE_HZ // 10)
        sf.write(audio / f"{number}.wav", noise, RATE_HZ)
        lines = [f"{n / 10}\t{(n + 1) / 10}\tcall {n % 5}\n" for n in range(per_file)]
        (audio / f"{number}.txt").write_text("".join(lines))
    command = [sys.executable, "-m", "callshot", "segment", str(audio), "--quiet"]
    command += ["--min-length-s", "0", "--out", str(folder / "segments")]
    subprocess.run(command, check=True)
    return folder / "segments" / "segments.parquet"


def describe_cost(trial: str, times: dict[bool, Times]) -> dict[str, object]:
    """Return a row of the table: the fastest of the runs that took turns."""
    row: dict[str, object] = {"trial": trial}
    for column, unit in enumerate(("CPU s", "wall s")):
        with_s = min(one[column] for one in times[True])
        without_s = min(one[column] for one in times[False])
        row[f"without checksums, {unit}"] = without_s
        row[f"with, {unit}"] = with_s
        row[f"cost, {unit} %"] = 100 * (with_s / without_s - 1)
    return row


def main() -> None:
    """Run the trials, print the table, and fail if a trial failed."""
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=20_000)
    options.add_argument("--trials", nargs=3, metavar=("KIND", "START", "COUNT"))
    arguments = options.parse_args()
    if arguments.trials:
        kind, start, count = arguments.trials
        run_trials(TRIALS[kind], int(start), int(count))
        return
    rows: list[dict[str, object]] = []
    for kind in TRIALS:
        outcomes = count_outcomes(kind, arguments.count)
        for outcome, number in outcomes.most_common():
            rows.append({"trial": kind, "outcome": outcome, "count": number})
    costs = [measure_store(), measure_command()]
    title = f"bench/damage: {arguments.count:,} damaged stores, and as many tables"
    show(title, rows, arguments.json)
    show("bench/damage: the cost of checksums", costs, None)
    good = ("noticed", "same table", "error of one line", "read")
    bad = [row for row in rows if "outcome" in row and row["outcome"] not in good]
    if bad:
        raise SystemExit("\n".join(str(row) for row in bad[:20]))


if __name__ == "__main__":
    main()
