"""Recurrent networks: minutes for the sequences of an encoder, on this machine's cores or a GPU.

Sequences with the counts, lengths and dimensions of the paper's corpora and encoders, drawn around
a mean and a course for each class: MFCC frames (40 dimensions, 100 per second), HuBERT's (768, 50
per second) and Perch's windows (1536, one per 5 s). Elephant Voices has 257 calls of 12 types in 5
splits; LDC 4,000 of 10 in 10. The whole baseline has three cells and three seeds; each split
searches all cells and trains one. Some trainings are timed, and the whole is estimated from them.
`row alone` is the largest difference between log-probabilities of a row alone and in a batch.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from callshot.baselines.recurrent import CELLS, plan_jobs
from callshot.baselines.training import (
    TrainingContext,
    TrainingJob,
    run_jobs,
    score_queries,
    search,
    start_training,
)
from callshot.fewshot.episodes import Episodes
from table import parser, show

ENCODERS = {  # dimensions, frames per second
    "mfcc": (40, 100.0),
    "hubert": (768, 50.0),
    "perch-v2": (1536, 0.2),
}
CORPORA = {  # calls of each type, splits
    "elephant-voices": ((51, 40, 37, 32, 23, 21, 17, 13, 7, 6, 6, 5), 5),
    "ldc": ((2949, 253, 178, 149, 140, 87, 77, 73, 45, 36), 10),
}
SEEDS = 3
ROWS_ALONE = 24


def make_dataset(
    encoder: str, corpus: str
) -> tuple[Episodes, np.ndarray, list[np.ndarray]]:
    """Return episodes, recordings and sequences."""
    dimensions, rate = ENCODERS[encoder]
    counts, folds = CORPORA[corpus]
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(len(counts)), counts)
    duration_s = np.clip(rng.lognormal(1.2, 0.65, len(label)), 1, 44)
    lengths = np.maximum(np.ceil(duration_s * rate), 1).astype(int)
    scale = np.sqrt(40 / dimensions)
    means = 0.35 * scale * rng.normal(size=(len(counts), dimensions))
    courses = 0.5 * scale * rng.normal(size=(len(counts), dimensions))
    sequences = []
    for number, length in zip(label, lengths, strict=True):
        phase = (1 + number / 4) * np.arange(length) / rate
        course = np.sin(phase)[:, None] * courses[number]
        centre = 0.8 * rng.normal(size=dimensions) + means[number]
        noise = rng.normal(size=(length, dimensions))
        sequences.append((centre + course + noise).astype(np.float32))
    groups = np.arange(len(label))
    keys = np.zeros(len(label), np.uint64)
    names = tuple(f"s{i:04}" for i in range(len(label)))
    episodes = Episodes(
        classes=tuple(f"type {number:02}" for number in range(len(counts))),
        rows=groups,
        segment=names,
        recording=names,
        vectors=np.zeros((len(label), 1)),
        class_start=np.searchsorted(label, np.arange(len(counts) + 1)),
        fold=groups % folds,
        folds=folds,
        relevant=label[:, None] == np.arange(len(counts)),
        segment_key=keys,
        recording_key=keys,
        class_key=keys[: len(counts)],
    )
    return episodes, groups, sequences


def measure(encoder: str, corpus: str, device: str, threads: int) -> dict[str, object]:
    """Time one training of each cell per thread, and estimate the whole from these."""
    dataset = make_dataset(encoder, corpus)
    folds = dataset[0].folds
    search_s = []
    training_s = []
    parameters = []
    differences = []
    for cell in CELLS:
        with tempfile.TemporaryDirectory() as folder:
            context = TrainingContext(0, device, threads, Path(folder))
            jobs = plan_jobs(*dataset, [(cell,)] * folds, SEEDS, context)[:threads]
            start = time.perf_counter()
            run_jobs(jobs, search, context)
            middle = time.perf_counter()
            jobs = plan_jobs(*dataset, [(cell,)] * folds, SEEDS, context)[
                :threads
            ]  # reads searches
            run_jobs(jobs, score_queries, context)
            end = time.perf_counter()
        search_s.append((middle - start) / threads)
        training_s.append((end - middle) / threads)
        parameters.append(jobs[0].parameters)
        differences += run_jobs(jobs[:1], compare_alone, context)
    split_s = sum(search_s) + float(np.mean(training_s))
    return {
        "what": f"{encoder}, {corpus}, {device}",
        "parameters": f"{min(parameters):,} to {max(parameters):,}",
        "search s": float(np.mean(search_s)),
        "train s": float(np.mean(training_s)),
        "whole baseline, min": folds * SEEDS * split_s / 60,
        "row alone": max(differences),
    }


def compare_alone(job: TrainingJob, pool: object) -> float:
    """Compare rows in a batch with the same rows alone."""
    network = job.make(job.data, job.config)
    start_training(network, job.rows)
    rows = job.rows[:ROWS_ALONE]
    together = network.predict(rows)
    alone = [network.predict(row[None])[0] for row in rows]
    return float(np.abs(together - alone).max())


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--device", default="cpu", help="cpu or cuda")
    options.add_argument("--threads", type=int, default=2, help="networks at a time")
    options.add_argument(
        "--encoder", choices=ENCODERS, nargs="*", default=list(ENCODERS)
    )
    options.add_argument(
        "--corpus", choices=CORPORA, nargs="*", default=["elephant-voices"]
    )
    arguments = options.parse_args()
    rows = []
    for corpus in arguments.corpus:
        rows += [
            measure(encoder, corpus, arguments.device, arguments.threads)
            for encoder in arguments.encoder
        ]
    name = f"{arguments.threads} threads"
    if arguments.device.startswith("cuda"):
        name = torch.cuda.get_device_name()
    show(f"bench/recurrent: {name}, torch {torch.__version__}", rows, arguments.json)


if __name__ == "__main__":
    main()
