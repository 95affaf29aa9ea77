"""Damage the store and tables in 20,000 ways each, and every file of results in 200.

Store: a changed byte or a cut in a shard. No wrong vector may come back, the work must go on, and
what it gives must be the same as from a fresh store. Tables: Parquet, .npz and CSV files with
changed, missing and added bytes, read as `callshot evaluate` reads them. Each gives a dataset, or
one line that names the file. All runs in child processes, so that an abort is counted. Results:
one changed byte in each kind of file that a command writes; `callshot verify`, or loading the
model, must notice it, unless the file still says the same (white space in JSON).
"""

import io
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from zipfile import BadZipFile, ZipFile

import numpy as np
import polars as pl
import soundfile as sf

from table import parser, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from callshot.detection.model import load_model
from callshot.encoders.embed import EmbedOptions, embed
from callshot.encoders.store import Store
from callshot.errors import CallshotError
from callshot.spans import Spans
from callshot.study.verify import verify_path
from callshot.tables.embedding_tables import read_table, write_table
from callshot.tables.read_dataset import read_dataset
from callshot.vectors import Vectors
from mutations import mutate

CHUNK = 1000  # trials of a child process
EMBED_EACH = 50  # trials of the store between two that embed audio
FINGERPRINT = {"encoder": "bench"}
SOURCES = [f"call {number}" for number in range(60)]
KEYS = [sha256(source.encode()).hexdigest() for source in SOURCES]
VECTORS = np.random.default_rng(1).normal(size=(60, 24)).astype(np.float32)
RATE_HZ = 16_000
TABLE = "mfcc.parquet"
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
        with Store(folder, FINGERPRINT) as store:
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
    with Store(place, FINGERPRINT) as store:
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


# Files of results


def make_results(folder: Path) -> list[Path]:
    """Write one of each kind of result that `callshot verify` knows, and a model."""

    def run(*words: str) -> None:
        command = [sys.executable, "-m", "callshot", *words, "--quiet"]
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)

    run("synth", "corpus", "--scale", "0.01")
    site = "synth site --soundscape --types 2 --recordings 2 --minutes 1 --examples 3"
    run(*site.split())
    segment = "segment corpus/recordings --annotations corpus/raven --out segments"
    run(*segment.split())
    segments = "segments/segments.parquet"
    run("embed", segments, "-e", "mfcc", "-o", TABLE, "--store", "store")
    run("evaluate", TABLE, "--shots", "1", "--draws", "5", "-o", "evaluation")
    run(*["index", "site/recordings", "-e", "mfcc", "--window", "1", "-o", "index"])
    run(*["learn", "site/clips", "--encoder", "mfcc", "--out", "model.npz"])
    run(
        *[
            "scan",
            "model.npz",
            "site/recordings",
            "--out",
            "scan",
            "--false-alarms",
            "60/h",
        ]
    )
    names = ("segments", "store", TABLE, "evaluation", "index", "scan")
    return [folder / name for name in (*names, "model.npz")]


def is_noticed(path: Path, vectors: Vectors) -> bool:
    """Return whether callshot notices that a result differs from what it wrote.

    Bytes of a Parquet file that no reader uses (statistics) may change: the table is the same.
    """
    try:
        if path.name == "model.npz":
            load_model(path)
            return False
        if any(finding.state != "ok" for finding in verify_path(path)):
            return True
        return path.name == TABLE and is_same(read_table(path), vectors)
    except CallshotError:
        return True


def has_same_content(path: Path, whole: bytes) -> bool:
    """Return whether a changed file still says the same, as JSON with another space does."""
    try:
        if path.suffix == ".json":
            return bool(json.loads(path.read_bytes()) == json.loads(whole))
        if path.suffix == ".npz":
            with ZipFile(path) as changed, ZipFile(io.BytesIO(whole)) as archive:
                names = archive.namelist()
                is_equal = [changed.read(name) == archive.read(name) for name in names]
                return changed.namelist() == names and all(is_equal)
    except (
        ValueError,
        BadZipFile,
        KeyError,
        NotImplementedError,
        RuntimeError,
        OSError,
    ):
        return False
    return False


def is_same(one: Vectors, other: Vectors) -> bool:
    """Return whether two tables have the same rows, vectors and encoder."""
    is_equal = one.to_frame().equals(other.to_frame())
    fields = ("encoder", "fingerprint", "note", "joined_dimensions")
    return is_equal and all(getattr(one, x) == getattr(other, x) for x in fields)


def damage_results(count: int) -> list[dict[str, object]]:
    """Change one byte of each file `count` times; return how often nothing noticed it."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(dir=memory_folder()) as name:
        for result in make_results(Path(name)):
            vectors = read_table(Path(name) / TABLE)
            paths = sorted(result.rglob("*")) if result.is_dir() else [result]
            files = [path for path in paths if path.is_file() and path.stat().st_size]
            # Locks have no content; the list of rejects in an index is for people.
            files = [path for path in files if not path.name.startswith(".")]
            files = [
                path for path in files if path.parts[-2:] != ("index", "rejects.csv")
            ]
            kinds: dict[str, list[Path]] = {}
            for path in files:
                kinds.setdefault(path.name[-9:], []).append(path)
            silent = Counter[str]()
            for kind, alike in kinds.items():
                for number in range(count):
                    rng = random.Random(f"{kind} {number}")
                    path = rng.choice(alike)
                    whole = path.read_bytes()
                    changed = bytearray(whole)
                    changed[rng.randrange(len(whole))] ^= rng.randrange(1, 256)
                    path.write_bytes(changed)
                    is_silent = not has_same_content(path, whole)
                    is_silent = is_silent and not is_noticed(result, vectors)
                    silent[path.name] += is_silent
                    path.write_bytes(whole)
            row = {
                "result": result.name,
                "files": len(files),
                "kinds of files": len(kinds),
                "changes": count * len(kinds),
                "not noticed": sum(silent.values()),
                "in": ", ".join(name for name, times in silent.items() if times),
            }
            rows.append(row)
    return rows


def main() -> None:
    """Run the trials, print the table, and fail if a trial failed."""
    options = parser(__doc__)
    options.add_argument("--count", type=int, default=20_000)
    options.add_argument("--changes", type=int, default=200)
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
    results = damage_results(arguments.changes)
    title = f"bench/damage: {arguments.count:,} damaged stores, and as many tables"
    show(title, rows, arguments.json)
    title = f"bench/damage: one changed byte, {arguments.changes} times in each kind of file"
    show(title, results)
    good = ("noticed", "same table", "error of one line", "read")
    bad = [row for row in rows if row["outcome"] not in good]
    bad += [row for row in results if row["not noticed"]]
    if bad:
        raise SystemExit("\n".join(str(row) for row in bad[:20]))


if __name__ == "__main__":
    main()
