"""Index and scan from and to a bucket: the same files as on a disk, and what it costs.

An S3 server (moto) on this machine, with a proxy before it that waits, answers 503, drops
connections and cuts answers short. It counts the bytes of audio that are sent.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from callshot.detection.index.index_files import open_index
from callshot.detection.learn import learn
from callshot.detection.model import write_model
from callshot.detection.scan_files import scan_files
from callshot.storage import home, requests, to_path
from callshot.storage.remote_path import COPIES
from stores import (
    BUCKET,
    Proxy,
    open_bucket,
    s3_environment,
    serve_s3,
    upload,
)
from table import parser, show

URL = f"s3://{BUCKET}"
FAULTS = ("503", "drop", "cut", "503")
SKIPPED = ("raven-all", "scan.json")  # they have the paths of recordings in them


def main() -> None:
    """Scan the same recordings on a disk and in a bucket."""
    options = parser(__doc__)
    options.add_argument("--recordings", type=int, default=200)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--rate-hz", type=int, default=16000)
    options.add_argument("--latency-ms", type=float, default=20.0)
    options.add_argument(
        "--every", type=int, default=20, metavar="N", help="request that fails"
    )
    options.add_argument(
        "--only", choices=["plain", "latency", "errors"], help="one kind of bucket"
    )
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="callshot-storage-"))
    try:
        with serve_s3() as proxy:
            os.environ.update(s3_environment(proxy))
            os.environ["CALLSHOT_HOME"] = str(folder / "home")
            rows = _compare(given, folder, proxy)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    title = (
        f"{given.recordings} recordings of {given.seconds:g} s at {given.rate_hz} Hz, "
        "embedded (mfcc) and scanned"
    )
    show(title, rows, given.json)


def _compare(given, folder, proxy):
    local = folder / "in"
    for number in range(given.recordings):
        name = f"site{number % 4}/2026031{number % 10}_{number:06d}.wav"
        _record(local / name, given, number)
    model = folder / "model.npz"
    _learn(local, model, folder)
    size = sum(path.stat().st_size for path in local.rglob("*.wav"))
    start_s = time.monotonic()
    _scan(model, local, folder / "out")
    rows = [_row("disk", time.monotonic() - start_s, size, size)]
    latency_s = given.latency_ms / 1000
    wait = f"{given.latency_ms:g} ms"
    kinds = {
        "plain": ("bucket", 0.0, 0),
        "latency": (f"bucket, {wait}", latency_s, 0),
        "errors": (f"bucket, {wait}, errors", latency_s, given.every),
    }
    for kind, (name, latency_s, every) in kinds.items():
        if given.only not in (None, kind):
            continue
        store = open_bucket(proxy)
        upload(store, local, f"{BUCKET}/in")
        store.put_file(str(model), f"{BUCKET}/model.npz")
        row = _scan_bucket(name, latency_s, every, proxy, size, given.recordings)
        row["same files"] = _is_same(store, folder / "out")
        rows.append(row)
    return rows


def _record(path: Path, given, seed: int) -> None:
    """Write noise with a tone of half a second every 10 s."""
    rate_hz = given.rate_hz
    signal = np.random.default_rng(seed).normal(0, 0.02, round(given.seconds * rate_hz))
    tone = 0.3 * np.sin(2 * np.pi * 1000 * np.arange(rate_hz // 2) / rate_hz)
    for start_s in range(2, round(given.seconds) - 1, 10):
        signal[start_s * rate_hz :][: len(tone)] += tone
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, signal, rate_hz)


def _learn(local: Path, model: Path, folder: Path) -> None:
    """Learn a model from two spans of the first recordings."""
    some = sorted(local.rglob("*.wav"))[:2]
    examples = folder / "examples"
    examples.mkdir()
    for number, path in enumerate(some):
        shutil.copy(path, examples / f"{number}.wav")
        text = f"5\t6\tcall{number}\n9\t10\tcall{number}\n"
        (examples / f"{number}.txt").write_text(text, encoding="utf-8")
    learned = learn(examples, "mfcc", window_s=1, store=folder / "store")
    write_model(learned.model, model)


def _scan(model: Path, recordings: Path, out: Path):
    return scan_files(
        model,
        recordings,
        out,
        false_alarms=60,
        adapt="none",
    )


def _scan_bucket(
    name: str, latency_s: float, every: int, proxy: Proxy, size: int, recordings: int
):
    """Scan from and to the bucket, with faults."""
    proxy.reset()
    requests.forget_ranges()  # nothing is known of the recordings
    shutil.rmtree(home() / COPIES, ignore_errors=True)  # nor of the windows
    proxy.latency_s = latency_s

    def fault(method: str, path: str, number: int) -> str:
        if every and number % every == 0:
            return FAULTS[number // every % len(FAULTS)]
        return ""

    proxy.fault = fault
    start_s = time.monotonic()
    result = _scan(*(to_path(f"{URL}/{one}") for one in ("model.npz", "in", "out")))
    elapsed_s = time.monotonic() - start_s
    row = _row(name, elapsed_s, proxy.sent, size)
    row |= {"requests": proxy.requests, "failed": proxy.failed}
    row["for each"] = proxy.requests / recordings
    row["rejects"] = len(result.rejects)
    proxy.reset()
    return row


def _row(name: str, elapsed_s: float, sent: int, size: int) -> dict[str, object]:
    return {
        "recordings in": name,
        "s": elapsed_s,
        "MB": sent / 1e6,
        "of size": sent / size,
    }


def _is_same(store, out: Path) -> str:
    """Compare the rows of the index, and all files of results, with those on the disk."""
    remote = open_index(f"{URL}/out/index").read_blocks()
    local = open_index(out / "index").read_blocks()
    same_rows = all(
        one.matrix.tobytes() == other.matrix.tobytes()
        and one.spans.frame.equals(other.spans.frame)
        for one, other in zip(remote, local, strict=True)
    )
    count = 0
    for path in sorted(out.rglob("*.*")):
        name = path.relative_to(out).as_posix()
        if path.is_dir() or name.startswith(("index", ".", *SKIPPED)):
            continue
        count += 1
        if store.cat_file(f"{BUCKET}/out/{name}") != path.read_bytes():
            return f"no: {name}"
    return f"{count} and rows" if same_rows else "no: rows"


if __name__ == "__main__":
    main()
