# ruff: noqa: E402 (threads are set before NumPy is imported)
"""The end-to-end rival: audio-hours a second in training and scoring, and minutes for a split.

Noise in segments of 5 s. From scratch is the small transformer; BEATs has the size of the public one, with weights by
chance. A split is what a corpus like Elephant Voices asks for: so many segments, trained for 40 epochs in all, the
search and the training after it together. On a CPU each network has one thread: as many are trained at a time as there
are cores, so two cores halve the minutes of all splits, not of one.

With --segments FILE and --audio FOLDER, a corpus that `callshot segment` cut: mAP and AUROC from scratch, or from
--init FILE, with chance beside them. Folds are built as the study builds them.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from callshot.baselines.beats import Beats
from callshot.baselines.end_to_end import PRETRAINED, score_aerd
from callshot.baselines.frame_classifier import FrameLesson, Recipe, log_odds
from callshot.baselines.scoring import measure_outputs
from callshot.baselines.sequence_batches import Table
from callshot.baselines.spectrogram import AERD, log_mel
from callshot.baselines.torch_arrays import open_feed
from callshot.baselines.transformer import Ast
from callshot.corpus.audio import load_audio
from callshot.corpus.segment_table import read_segments
from callshot.fewshot.folds import make_folds
from callshot.fewshot.metrics import chance_average_precision
from table import parser, show

SECONDS, OUTPUTS, EPOCHS, SPLIT = 5.0, 7, 40, 250
FRAMES = 498


def timed(work, device: str) -> float:
    """Time one call, on a GPU until it is done there too."""
    start = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return time.perf_counter() - start


def speed(name: str, recipe: Recipe, rows: int, device: str) -> dict[str, object]:
    """Train and score noise; return what it takes."""
    rng = np.random.default_rng(1)
    table = Table(
        rng.normal(size=(rows * FRAMES, 128)).astype(np.float32), np.arange(rows + 1) * FRAMES
    )
    lesson = FrameLesson(open_feed(table, rng.random((rows, OUTPUTS)) < 0.3, device), recipe)
    every, state = np.arange(rows), lesson.start(np.arange(rows))
    lesson.run_epoch(every[: recipe.batch], state)  # what is done once
    train = timed(lambda: lesson.run_epoch(every, state), device)
    score = timed(lambda: log_odds(lesson.feed, every, recipe.encoder, state.network), device)
    hours = rows * SECONDS / 3600
    return {
        "what": f"{name}, {device}",
        "parameters": recipe.parameters,
        "segments": rows,
        "training h/s": hours / train,
        "scoring h/s": hours / score,
        "minutes a split": train * SPLIT / rows * EPOCHS / 60,
    }


def front() -> dict[str, object]:
    """Time the front end, which every signal passes once."""
    signal = np.random.default_rng(1).normal(0.0, 0.1, 16_000 * 60).astype(np.float32)
    log_mel(signal[:16_000], AERD)
    took = min(timed(lambda: log_mel(signal, AERD), "cpu") for _ in range(3))
    return {"what": "log-mel frames, cpu", "scoring h/s": 60 / 3600 / took}


def real(options: argparse.Namespace) -> list[dict[str, object]]:
    """Train on a corpus and score it."""
    segments, _ = read_segments(options.segments)
    found = [signal for _, signal in load_audio(options.audio, segments, threads=2)]
    labels, recordings = [s.label for s in segments], [s.recording for s in segments]
    names, fold = sorted(set(labels)), make_folds(labels, recordings, options.folds).fold
    targets = np.array([[name in (s.labels or (s.label,)) for name in names] for s in segments])
    start = time.perf_counter()

    def tell(share: float, what: str) -> None:
        print(f"{time.perf_counter() - start:7.0f} s  {what}", flush=True)

    given = (found, targets, fold, np.unique(recordings, return_inverse=True)[1], names)
    scores, told = score_aerd(
        *given,
        init=options.init,
        epochs=options.epochs,
        device=options.device,
        threads=options.threads,
        folder=options.folder,
        progress=tell,
    )
    parts = [targets[fold == f] for f in range(options.folds)]
    floor = np.mean([chance_average_precision(t.sum(axis=0), len(t)).mean() for t in parts])
    row = {
        "what": told["text"],
        **measure_outputs(targets, fold, scores),
        "map by chance": float(floor),
    }
    row |= {
        "epochs": str(told["epochs"]),
        "minutes": told["seconds"] / 60,
        "audio h": told["audio_s"] / 3600,
    }
    return [{**row, "parameters": told["parameters"], "trained": told["trained"]}]


def main() -> None:
    """Print the tables."""
    options = parser(__doc__)
    options.add_argument("--device", default="cpu", help="cpu or cuda")
    options.add_argument(
        "--rows", type=int, help="segments of an epoch (64 on a CPU, 8 for BEATs; 1024 on a GPU)"
    )
    options.add_argument("--segments", type=Path, metavar="FILE", help="segments of a corpus")
    options.add_argument("--audio", type=Path, metavar="FOLDER", help="where its recordings are")
    options.add_argument("--init", type=Path, metavar="FILE", help="public weights of AST or BEATs")
    options.add_argument("--epochs", type=int, help="train for so many, without a search")
    options.add_argument("--folds", type=int, default=5)
    options.add_argument(
        "--threads", type=int, default=2, help="networks that are trained at a time"
    )
    options.add_argument("--folder", type=Path, help="where trained networks are kept")
    chosen = options.parse_args()
    if chosen.segments:
        show("bench/aerd: a corpus", real(chosen), chosen.json)
        return
    torch.set_num_threads(1)
    small, large = (
        (chosen.rows,) * 2 if chosen.rows else (1024, 1024) if chosen.device != "cpu" else (64, 8)
    )
    rows = [
        front(),
        speed("from scratch", Recipe(Ast(), OUTPUTS), small, chosen.device),
        speed("BEATs' size", Recipe(Beats(), OUTPUTS, **PRETRAINED), large, chosen.device),
    ]
    show(
        f"bench/aerd: segments of 5 s, a split of {SPLIT}, {EPOCHS} epochs, one thread",
        rows,
        chosen.json,
    )


if __name__ == "__main__":
    main()
