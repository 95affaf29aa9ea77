"""Label recordings: from the command to the first tile, tiles of a day, similar sounds, and memory.

1,000 short recordings are opened. Then tiles of 24 hours of noise, as WAV and as FLAC, are asked
for over HTTP at several zooms, in random places, one after another, as somebody scrolls. Then
similar windows are searched in a made-up index of a month, as one of BirdNET has them: random
vectors, some of which are near one of 20 sounds.
"""

import os
import shutil
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from dataclasses import asdict
from pathlib import Path
from unittest.mock import patch

import numpy as np
import soundfile

from table import parser, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from callshot.chunks import write_record
from callshot.detection import ready_windows
from callshot.detection.index.index_files import (
    INDEX,
    IndexedRecording,
    IndexSettings,
    recording_folder,
    write_indexed,
    write_span,
)
from callshot.detection.index.index_recordings import find_stamp
from callshot.detection.ready_windows import ReadyWindows, choose_different
from callshot.files import make_folder
from review_pages import ReviewServer

RECORDINGS = 1000
RATE_HZ = 24000
DAY_S = 86400
LEVELS = (0, 3, 5, 7, 9, 12, 16)
TILE_COLUMNS = 256
DIMENSION = 1024
TILE = {"height": 256, "window_s": 0.032, "max_hz": 12000}


def main() -> None:
    """Measure, and print a table."""
    found = parser(__doc__)
    found.add_argument("--hours", type=float, default=24)
    found.add_argument("--tiles", type=int, default=60, help="for each zoom and format")
    found.add_argument("--days", type=int, default=30, help="of the made-up index")
    arguments = found.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        rows = []
        if arguments.days:
            rows += measure_search(folder / "month", arguments.days)
            shutil.rmtree(folder / "month")
        rows.append(measure_opening(folder / "short"))
        for kind in ("wav", "flac"):
            long = folder / kind
            write_long(long / f"SITE_20260314_000000.{kind}", arguments.hours)
            rows += measure_tiles(long, arguments.tiles, arguments.hours * 3600)
            shutil.rmtree(long)
    finally:
        shutil.rmtree(folder)
    show("Label recordings", rows, arguments.json)


def write_noise(seconds: float) -> np.ndarray:
    """Return noise as 16-bit samples."""
    noise = np.random.default_rng(0).normal(0, 300, round(seconds * RATE_HZ))
    return noise.astype(np.int16)


def write_long(path: Path, hours: float) -> None:
    """Write hours of noise, the same minute again and again."""
    path.parent.mkdir(parents=True)
    minute = write_noise(60.0)
    with soundfile.SoundFile(path, "w", RATE_HZ, 1, "PCM_16") as stream:
        for _ in range(round(60 * hours)):
            stream.write(minute)


def measure_opening(folder: Path) -> dict[str, object]:
    """Return the time from the command to the first tile of many recordings."""
    folder.mkdir()
    noise = write_noise(10.0)
    for number in range(RECORDINGS):
        name = (
            f"SITE_202603{1 + number // 100:02d}_{number % 100 // 5:02d}0000_{number}"
        )
        soundfile.write(folder / f"{name}.wav", noise, RATE_HZ)
    server = ReviewServer(folder, command="label")
    begin_s = time.perf_counter()
    server.start()
    address_s = time.perf_counter() - begin_s
    client = Client(server)
    client.get("/api/session")
    client.get("/api/recordings")
    first = sorted(path.name for path in folder.glob("*.wav"))[0]
    client.get("/api/recording", recording=first)
    client.get_tile(first, 4, 0)
    total_s = time.perf_counter() - begin_s
    server.kill()
    return {
        "what": f"{RECORDINGS} recordings: to the first tile, s",
        "median": total_s,
        "p95": "",
        "note": f"{address_s:.1f} s of it until the server answers",
    }


def measure_tiles(folder: Path, count: int, length_s: float) -> list[dict[str, object]]:
    """Return how long tiles of a long recording take, by zoom, and how memory grows."""
    (path,) = folder.iterdir()
    server = ReviewServer(folder, command="label")
    server.start()
    client = Client(server)
    client.get_tile(path.name, 4, 0)
    memory_mb = [read_memory_mb(server.process.pid)]
    generator = np.random.default_rng(1)
    rows = []
    for level in LEVELS:
        tile_s = TILE_COLUMNS * 2**level / 1000
        last = max(1, int(length_s / tile_s))
        numbers = generator.permutation(min(last, 2**20))[:count]
        times = [client.get_tile(path.name, level, int(number)) for number in numbers]
        milliseconds = 1000 * np.array(times)
        rows.append(
            {
                "what": f"{path.suffix[1:]}, a tile of {tile_s:g} s, ms",
                "median": float(np.median(milliseconds)),
                "p95": float(np.quantile(milliseconds, 0.95)),
                "note": f"{len(times)} tiles",
            }
        )
        memory_mb.append(read_memory_mb(server.process.pid))
    server.kill()
    text = ", ".join(f"{one:.0f}" for one in memory_mb[:-1])
    rows.append(
        {
            "what": f"{path.suffix[1:]}, memory, MB",
            "median": memory_mb[-1],
            "p95": "",
            "note": f"before: {text}; after the first tile, then after each zoom",
        }
    )
    return rows


def write_index(folder: Path, days: int) -> tuple[list[str], np.ndarray]:
    """Write an index of a recording for each day, without its audio.

    Return their names, and some vectors that are near one sound.
    """
    settings = IndexSettings(
        "birdnet-v2.4", {}, {}, DIMENSION, 3.0, 3.0, "first", "float16"
    )
    make_folder(folder / "index")
    write_record(folder / "index" / INDEX, asdict(settings))
    generator = np.random.default_rng(3)
    sounds = generator.exponential(1.0, (20, DIMENSION))
    noise = generator.exponential(0.5, (6, DIMENSION))
    names = []
    for day in range(days):
        name = f"SITE_202603{day + 1:02d}_000000.wav"
        names.append(name)
        (folder / name).write_bytes(name.encode())
        stamp = find_stamp(folder / name)
        spans = []
        for number, first in enumerate(range(0, DAY_S // 3, 1024)):
            count = min(1024, DAY_S // 3 - first)
            rows = np.zeros(count, settings.row_dtype())
            rows["start_s"] = 3.0 * (first + np.arange(count))
            rows["end_s"] = rows["start_s"] + 3.0
            rows["rms_dbfs"] = generator.normal(-50, 5, count)
            vectors = generator.exponential(0.5, (count, DIMENSION)).astype(np.float32)
            is_sound = generator.random(count) < 0.02
            which = generator.integers(0, len(sounds), count)[is_sound]
            vectors[is_sound] = 0.5 * vectors[is_sound] + 0.5 * sounds[which]
            rows["vector"] = vectors
            place = recording_folder(folder / "index", name)
            make_folder(place)
            spans.append(write_span(place, stamp, number, rows))
        facts = (str(folder), stamp, float(DAY_S), 48000.0, None, DAY_S // 3, spans)
        write_indexed(folder / "index", IndexedRecording(name, *facts))
    return names, (0.5 * noise + 0.5 * sounds[0]).astype(np.float32)


def measure_search(folder: Path, days: int) -> list[dict[str, object]]:
    """Return how long it takes to open an index, and to find similar windows."""
    names, vectors = write_index(folder, days)
    pid = os.getpid()
    before_mb = read_memory_mb(pid)
    windows = ReadyWindows(folder / "index", folder, names)
    begin_s = time.perf_counter()
    windows.refresh()
    opening_s = time.perf_counter() - begin_s
    after_mb = read_memory_mb(pid)
    times = []
    answered = {name: [(3.0 * n, 3.0 * n + 2) for n in range(10)] for name in names}
    for _ in range(20):
        begin_s = time.perf_counter()
        found = windows.rank(vectors, vectors[:0], answered)
        choose_different(found, 12)
        times.append(time.perf_counter() - begin_s)
    with patch.object(ready_windows, "CANDIDATES", len(windows)):
        exact = windows.rank(vectors, vectors[:0], answered)[:50]
    agree = len({*exact} & {*found[:50]}) / 50
    name = f"{len(windows):,} windows"
    return [
        {"what": f"{name}: open, s", "median": opening_s, "p95": "", "note": "once"},
        {
            "what": f"{name}: more like this, s",
            "median": float(np.median(times)),
            "p95": float(np.quantile(times, 0.95)),
            "note": f"{agree:.0%} of the first 50 are those of an exact search",
        },
        {
            "what": f"{name}: memory, MB",
            "median": after_mb - before_mb,
            "p95": "",
            "note": "",
        },
    ]


def read_memory_mb(pid: int) -> float:
    """Return the memory of a process that is no copy of a file."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) / 1024


class Client:
    """Somebody who scrolls."""

    def __init__(self, server: ReviewServer) -> None:
        self.origin = f"http://127.0.0.1:{server.port}"
        self.cookie = f"callshot_review_{server.port}={server.token}"

    def get(self, path: str, **query: object) -> bytes:
        """Return what the server answers."""
        address = f"{self.origin}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(address, headers={"Cookie": self.cookie})
        with urllib.request.urlopen(request) as answer:
            content: bytes = answer.read()
        return content

    def get_tile(self, name: str, level: int, number: int) -> float:
        """Return how many seconds a tile takes."""
        begin_s = time.perf_counter()
        content = self.get(
            "/api/tile", recording=name, level=level, number=number, **TILE
        )
        assert len(content) == TILE_COLUMNS * TILE["height"]
        return time.perf_counter() - begin_s


if __name__ == "__main__":
    main()
