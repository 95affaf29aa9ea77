# ruff: noqa: E402 (threads are set before NumPy is imported)
"""The end-to-end baseline: audio-hours per second in training and scoring, minutes per split.

Noise in segments of 5 s. "From scratch" is the small transformer; BEATs has the size of the public
one, with random weights. A split is that of a corpus like Elephant Voices, trained for 40 epochs in
all, search and training together. On a CPU each network has one thread, and as many networks as
cores are trained at a time: two cores halve the minutes of all splits, not of one.

With --segments FILE and --audio FOLDER, a corpus that `callshot segment` cut: mAP and AUROC from
scratch, or from --init FILE, with chance beside them. Folds are built as in a study.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from callshot.baselines.end_to_end import (
    DEFAULT_ENCODER,
    PRETRAINED,
    FrameClassifier,
    FrameConfig,
    score_end_to_end,
)
from callshot.baselines.sequence_batches import BatchData, FrameTable, log_mel
from callshot.baselines.training import TrainingContext, run_epoch, start_training
from callshot.baselines.transformer import BeatsConfig
from callshot.corpus.audio import load_audio
from callshot.corpus.segment_table import read_segments
from callshot.fewshot.folds import make_folds
from callshot.fewshot.metrics import chance_average_precision
from table import parser, show

SEGMENT_S = 5.0
SEGMENT_FRAMES = 498
OUTPUTS = 7
EPOCHS = 40
SPLIT_SEGMENTS = 250
Row = dict[str, object]


def time_call(work: Callable[[], object], device: str) -> float:
    """Return the seconds of one call, on a GPU until it has finished too."""
    start = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def random_weights(config: BeatsConfig) -> dict[str, torch.Tensor]:
    """Return weights of the right shapes; the speed does not depend on their values."""
    generator = torch.Generator().manual_seed(0)
    weights = config.build().state_dict()
    for tensor in weights.values():
        if tensor.ndim > 1:
            tensor.normal_(0.0, 0.02, generator=generator)
    return weights


def measure_speed(
    name: str,
    config: FrameConfig,
    weights: dict[str, torch.Tensor] | None,
    rows: int,
    device: str,
) -> Row:
    """Train and score noise."""
    rng = np.random.default_rng(1)
    frames = rng.normal(size=(rows * SEGMENT_FRAMES, 128)).astype(np.float32)
    table = FrameTable(frames, np.arange(rows + 1) * SEGMENT_FRAMES)
    data = BatchData.load(
        table, rng.random((rows, OUTPUTS)) < 0.3, np.arange(rows), device
    )
    network = FrameClassifier(data, config, weights)
    every = np.arange(rows)
    optimizer = start_training(network, every)
    run_epoch(network, optimizer, every[: config.batch_size], 0)  # warm up
    training_s = time_call(lambda: run_epoch(network, optimizer, every, 1), device)
    scoring_s = time_call(lambda: network.predict(every), device)
    hours = rows * SEGMENT_S / 3600
    return {
        "what": f"{name}, {device}",
        "parameters": sum(tensor.numel() for tensor in network.parameters()),
        "segments": rows,
        "training h/s": hours / training_s,
        "scoring h/s": hours / scoring_s,
        "minutes a split": training_s * SPLIT_SEGMENTS / rows * EPOCHS / 60,
    }


def measure_front_end() -> Row:
    """Time the log-mel frames, which are computed once for every signal."""
    signal = np.random.default_rng(1).normal(0.0, 0.1, 16_000 * 60).astype(np.float32)
    log_mel(signal[:16_000])
    seconds = min(time_call(lambda: log_mel(signal), "cpu") for _ in range(3))
    return {"what": "log-mel frames, cpu", "scoring h/s": 60 / 3600 / seconds}


def measure_corpus(arguments: argparse.Namespace) -> Row:
    """Train on a corpus and score it."""
    segments = replace(read_segments(arguments.segments), root=arguments.audio)
    signals = [signal for _, signal in load_audio(segments, threads=2)]
    labels = segments["label"]
    recordings = segments["recording"]
    names = sorted(set(labels))
    fold = make_folds(labels, recordings, arguments.folds).fold
    targets = np.zeros((len(segments), len(names)), np.bool_)
    for row, all_labels in enumerate(segments["labels"]):
        targets[row] = [name in all_labels for name in names]
    start = time.perf_counter()

    def print_progress(share: float, what: str) -> None:
        print(f"{time.perf_counter() - start:7.0f} s  {what}", flush=True)

    scores, metadata = score_end_to_end(
        signals,
        targets,
        fold,
        np.unique(recordings, return_inverse=True)[1],
        names,
        init=arguments.init,
        context=TrainingContext(
            device=arguments.device,
            threads=arguments.threads,
            folder=arguments.folder,
            progress=print_progress,
        ),
    )
    ap, auroc, chance = [], [], []
    for number in range(arguments.folds):
        truth = targets[fold == number]
        ap.append(average_precision_score(truth, scores[fold == number]))
        auroc.append(roc_auc_score(truth, scores[fold == number]))
        chance.append(chance_average_precision(truth.sum(axis=0), len(truth)).mean())
    return {
        "what": metadata["text"],
        "map": float(np.mean(ap)),
        "auroc": float(np.mean(auroc)),
        "map by chance": float(np.mean(chance)),
        "epochs": str(metadata["epochs"]),
        "minutes": (time.perf_counter() - start) / 60,
        "audio h": metadata["audio_s"] / 3600,
        "parameters": metadata["parameters"],
        "trained": metadata["trained"],
    }


def main() -> None:
    """Print the tables."""
    options = parser(__doc__)
    options.add_argument("--device", default="cpu", help="cpu or cuda")
    options.add_argument(
        "--rows",
        type=int,
        help="segments of an epoch (64 on a CPU, 8 for BEATs; 1024 on a GPU)",
    )
    options.add_argument(
        "--segments", type=Path, metavar="FILE", help="segments of a corpus"
    )
    options.add_argument(
        "--audio", type=Path, metavar="FOLDER", help="folder of its recordings"
    )
    options.add_argument(
        "--init", type=Path, metavar="FILE", help="public weights of AST or BEATs"
    )
    options.add_argument("--folds", type=int, default=5)
    options.add_argument(
        "--threads", type=int, default=2, help="networks trained at a time"
    )
    options.add_argument(
        "--folder", type=Path, help="folder that keeps trained networks"
    )
    arguments = options.parse_args()
    if arguments.segments:
        show("bench/end_to_end: a corpus", [measure_corpus(arguments)], arguments.json)
        return
    torch.set_num_threads(1)
    device = arguments.device
    on_cpu = device == "cpu"
    scratch = FrameConfig(encoder=DEFAULT_ENCODER, outputs=OUTPUTS)
    beats = FrameConfig(encoder=BeatsConfig(), outputs=OUTPUTS, **PRETRAINED)
    scratch_rows = arguments.rows or (64 if on_cpu else 1024)
    beats_rows = arguments.rows or (8 if on_cpu else 1024)
    weights = random_weights(BeatsConfig())
    rows = [
        measure_front_end(),
        measure_speed("from scratch", scratch, None, scratch_rows, device),
        measure_speed("BEATs' size", beats, weights, beats_rows, device),
    ]
    title = f"segments of 5 s, a split of {SPLIT_SEGMENTS}, {EPOCHS} epochs, one thread"
    show(f"bench/end_to_end: {title}", rows, arguments.json)


if __name__ == "__main__":
    main()
