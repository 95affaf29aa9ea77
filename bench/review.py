"""Review 100,000 detections in 1,000 hours: how long things take, and how much memory.

An index of random vectors of 1024 numbers is scanned with a model of 8 classes. Its recordings are
one hour of noise under 1,000 names. A client makes decisions over HTTP, and asks for the next card
(the item and its spectrogram) after each, while scores are computed beside it.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from dataclasses import asdict
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import soundfile

import scan as scan_bench
from callshot.chunks import write_record
from callshot.detection.index.index_files import (
    INDEX,
    IndexedRecording,
    IndexSettings,
    recording_folder,
    write_indexed,
    write_span,
)
from callshot.detection.scan_files import scan_files
from callshot.review.server import ServerOptions, open_review
from callshot.review.sources import SourceOptions
from child_processes import run_child
from table import parser, show

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from review_pages import ReviewServer

HOURS = 1000
CALLS_PER_H = 100
RATE_HZ = 8000
WINDOW_S = scan_bench.WINDOW_S
DIMENSION = scan_bench.DIMENSION
PICTURE = "before=2&after=2&width=900&height=300&window_s=0.064"


def main() -> None:
    """Measure, and print a table."""
    found = parser(__doc__)
    found.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    found.add_argument("--hours", type=int, default=HOURS)
    found.add_argument("--decisions", type=int, default=400)
    arguments = found.parse_args()
    if arguments.child is not None:
        open_once(arguments.child[1])
    folder = Path(tempfile.mkdtemp())
    try:
        rows = measure(folder, arguments.hours, arguments.decisions)
    finally:
        shutil.rmtree(folder)
    show("A review of many detections", rows, arguments.json)


def measure(folder: Path, hours: int, decisions: int) -> list[dict[str, object]]:
    """Return the rows of the table."""
    make_recordings(folder / "recordings", hours)
    make_index(folder / "index", folder / "recordings", hours)
    scan_bench.make_synthetic_model(folder / "model.npz")
    scan_files(
        folder / "model.npz",
        folder / "index",
        folder / "scan",
        formats=(),
    )
    first = run_child("open_once", folder)
    server = ReviewServer(folder / "scan", "--out", str(folder / "review"))
    begin_s = time.perf_counter()
    server.start()
    start_s = time.perf_counter() - begin_s
    client = Client(server)
    session = client.get("/api/session")
    client.items = int(session["total"])
    vectors_s = client.wait_for_scores(begin_s)
    warm_up(client, 100)
    memory_mb = anonymous_mb(server.process.pid)
    times = [client.decide(number) for number in range(100, 100 + decisions)]
    refreshes = [client.confirm_next() for _ in range(20)]
    later_mb = anonymous_mb(server.process.pid)
    server.kill()
    again = run_child("open_once", folder)
    milliseconds = np.array(times) * 1e3
    return [
        row("detections", session["total"], ""),
        row("open the review, s", first["open_s"], "1"),
        row("open it again with all decisions, s", again["open_s"], "1"),
        row("command to address, s", start_s, ""),
        row("copy vectors once, beside the page, s", vectors_s, ""),
        row("decision to next card, median, ms", float(np.median(milliseconds)), ""),
        row(
            "decision to next card, p99, ms",
            float(np.quantile(milliseconds, 0.99)),
            "100",
        ),
        row("new scores of all, median, s", float(np.median(refreshes)), "1"),
        row("new scores of all, slowest, s", max(refreshes), "1"),
        row("memory after 100 decisions, MB", memory_mb, ""),
        row(f"memory after {decisions + 120} decisions, MB", later_mb, "the same"),
    ]


def row(what: str, value: float, aim: str) -> dict[str, object]:
    """Return a row of the table."""
    return {"what": what, "value": value, "aim": aim}


def make_recordings(folder: Path, hours: int) -> None:
    """Write an hour of noise under many names."""
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0).normal(0, 0.05, 3600 * RATE_HZ)
    first = folder / "000000.wav"
    soundfile.write(first, noise, RATE_HZ)
    for number in range(1, hours):
        os.link(first, folder / f"{number:06d}.wav")


def make_index(folder: Path, recordings: Path, hours: int) -> None:
    """Write an index of random vectors, with calls that do not touch each other."""
    settings = IndexSettings(
        "synthetic",
        {},
        scan_bench.FINGERPRINT,
        DIMENSION,
        WINDOW_S,
        WINDOW_S,
        "first",
        "float16",
    )
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    centres = scan_bench.make_centres()
    count = round(3600 / WINDOW_S)
    noise = generator.normal(0, 1, (count, DIMENSION)).astype(np.float16)
    rows = np.zeros(count, settings.row_dtype())
    rows["start_s"] = np.arange(count) * WINDOW_S
    rows["end_s"] = rows["start_s"] + WINDOW_S
    rows["rms_dbfs"] = -40
    for number in range(hours):
        rows["vector"] = np.roll(noise, number, axis=0)
        calls = 2 * generator.choice(count // 2, CALLS_PER_H, replace=False)
        classes = generator.integers(0, len(centres), CALLS_PER_H)
        rows["vector"][calls] = centres[classes] + noise[calls] / 4
        path = f"{number:06d}.wav"
        target = recording_folder(folder, path)
        target.mkdir(parents=True)
        spans = [
            write_span(target, "0" * 8, part, rows[start : start + 1024])
            for part, start in enumerate(range(0, count, 1024))
        ]
        clock = f"2026-01-{1 + number // 24 % 28:02d}T{number % 24:02d}:00:00"
        recording = IndexedRecording(
            path, str(recordings), "0" * 8, 3600.0, RATE_HZ, clock, count, spans
        )
        write_indexed(folder, recording)
    write_record(folder / INDEX, asdict(settings))


def open_once(folder: str) -> None:
    """Open the review in a process of its own; print how long that took."""
    begin_s = time.perf_counter()
    place = Path(folder)
    options = ServerOptions(reviewer="ada")
    with open_review(place / "scan", SourceOptions(), options, place / "review") as one:
        one.describe_items([0], "ada")
        print(json.dumps({"open_s": time.perf_counter() - begin_s}), flush=True)
        os._exit(0)  # without waiting for the thread that copies vectors


class Client:
    """Somebody who decides over HTTP, on one connection."""

    def __init__(self, server: ReviewServer) -> None:
        self.items = 1
        self.host = f"127.0.0.1:{server.port}"
        self.headers = {
            "Cookie": f"callshot_review_{server.port}={server.token}",
            "Origin": f"http://{self.host}",
            "Content-Type": "application/json",
        }
        self.connection = HTTPConnection("127.0.0.1", server.port, timeout=120)

    def ask(self, method: str, path: str, body: str | None = None) -> bytes:
        """Return the content of an answer."""
        self.connection.request(method, path, body, self.headers)
        answer = self.connection.getresponse()
        content = answer.read()
        assert answer.status == 200, content
        return content

    def get(self, path: str) -> dict[str, object]:
        """Return an answer in JSON."""
        return json.loads(self.ask("GET", path))

    def post(self, path: str, body: dict[str, object]) -> dict[str, object]:
        """Send JSON."""
        return json.loads(self.ask("POST", path, json.dumps(body)))

    def wait_for_scores(self, begin_s: float) -> float:
        """Wait until scores follow the decisions; return how long that took."""
        while self.get("/api/session")["why_no_refresh"]:
            time.sleep(0.5)
        return time.perf_counter() - begin_s

    def confirm_next(self) -> float:
        """Confirm an item; return how long it took until all scores were new."""
        (item,) = self.get("/api/queue?order=time&limit=1")["ids"]
        version = self.get("/api/changes?after=0")["score_version"]
        begin_s = time.perf_counter()
        decision = {"uuid": str(uuid.uuid4()), "item": item, "action": "confirm"}
        seq = self.post("/api/decisions", {"decisions": [decision]})["seq"]
        self.get(f"/api/changes?after={seq}&score_version={version}")
        return time.perf_counter() - begin_s

    def post_decision(self, item: int) -> None:
        """Confirm or reject an item."""
        action = ("confirm", "reject")[item % 3 == 0]
        decision = {"uuid": str(uuid.uuid4()), "item": item, "action": action}
        self.post("/api/decisions", {"decisions": [decision]})

    def decide(self, number: int) -> float:
        """Decide on an item and ask for the next card; return how long that took."""
        begin_s = time.perf_counter()
        self.post_decision(97 * number % self.items)
        following = 97 * (number + 1) % self.items
        self.get(f"/api/items?ids={following}")
        self.ask("GET", f"/api/spectrogram?item={following}&{PICTURE}")
        return time.perf_counter() - begin_s


def warm_up(client: Client, count: int) -> None:
    """Decide on some items, and ask for each order once."""
    for order in ("best", "uncertain", "novel", "sample", "time"):
        client.get(f"/api/queue?order={order}")
    client.get("/api/progress")
    for number in range(count):
        client.decide(number)


def anonymous_mb(pid: int) -> float:
    """Return the memory of a process, without files that are mapped into it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return float("nan")


if __name__ == "__main__":
    main()
