"""Label recordings: from the command to the first tile, tiles of a day, and memory.

1,000 short recordings are opened. Then tiles of 24 hours of noise, as WAV and as FLAC, are asked
for over HTTP at several zooms, in random places, one after another, as somebody scrolls.
"""

import shutil
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import soundfile

from table import parser, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from review_pages import ReviewServer

RECORDINGS = 1000
RATE_HZ = 24000
DAY_S = 86400
LEVELS = (0, 3, 5, 7, 9, 12, 16)
TILE_COLUMNS = 256
TILE = {"height": 256, "window_s": 0.032, "max_hz": 12000}


def main() -> None:
    """Measure, and print a table."""
    found = parser(__doc__)
    found.add_argument("--hours", type=float, default=24)
    found.add_argument("--tiles", type=int, default=60, help="for each zoom and format")
    arguments = found.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        rows = [measure_opening(folder / "short")]
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
    before_mb = read_memory_mb(server.process.pid)
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
    after_mb = read_memory_mb(server.process.pid)
    server.kill()
    rows.append(
        {
            "what": f"{path.suffix[1:]}, memory, MB",
            "median": after_mb,
            "p95": "",
            "note": f"{before_mb:.0f} MB after the first tile",
        }
    )
    return rows


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
