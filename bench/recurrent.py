"""Recurrent networks: minutes that a rival takes on an encoder's sequences, on this machine's cores or a GPU.

Sequences with the counts, lengths and dimensions of the paper's corpora and encoders, drawn by chance around a mean and
a course for each class: MFCC frames (40, 100 a second), HuBERT's (768, 50 a second) and Perch's windows (1536, one for
5 s). Elephant Voices has 257 calls of 12 types in 5 splits; LDC 4,000 of 10 in 10. The whole rival is three cells and
three seeds, of which each split searches all and trains one: some trainings are timed, and the whole is told from
them. `row alone` is how far a row's log-odds are from those it has in a batch.
"""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from callshot.baselines.executor import Options, do_jobs
from callshot.baselines.recurrent import _score
from callshot.baselines.recurrent_network import CELLS, log_probabilities
from callshot.baselines.train_loop import search
from callshot.baselines.training_jobs import plan_jobs
from callshot.fewshot.episodes import Episodes
from table import parser, show

ENCODERS = {
    "mfcc": (40, 100.0),
    "hubert": (768, 50.0),
    "perch-v2": (1536, 0.2),
}  # dimensions, frames a second
CORPORA = {
    "elephant-voices": ((51, 40, 37, 32, 23, 21, 17, 13, 7, 6, 6, 5), 5),
    "ldc": ((2949, 253, 178, 149, 140, 87, 77, 73, 45, 36), 10),
}
SEEDS = 3


def imitate(encoder: str, corpus: str) -> tuple[Episodes, np.ndarray, list[np.ndarray]]:
    """Return episodes, recordings and sequences."""
    (dimensions, rate), (counts, folds), rng = (
        ENCODERS[encoder],
        CORPORA[corpus],
        np.random.default_rng(0),
    )
    label = np.repeat(np.arange(len(counts)), counts)
    lengths = np.maximum(
        np.ceil(np.clip(rng.lognormal(1.2, 0.65, len(label)), 1, 44) * rate), 1
    ).astype(int)
    scale = np.sqrt(40 / dimensions)
    means, courses = (s * scale * rng.normal(size=(len(counts), dimensions)) for s in (0.35, 0.5))
    sequences = []
    for n, length in zip(label, lengths, strict=True):
        course = np.sin((1 + n / 4) * np.arange(length) / rate)[:, None] * courses[n]
        own = 0.8 * rng.normal(size=dimensions) + means[n]
        sequences.append((own + course + rng.normal(size=(length, dimensions))).astype(np.float32))
    groups = np.arange(len(label))
    keys = np.zeros(len(label), np.uint64)
    episodes = Episodes(
        tuple(f"type {n:02}" for n in range(len(counts))),
        np.zeros((len(label), 1)),
        np.searchsorted(label, np.arange(len(counts) + 1)),
        groups % folds,
        folds,
        label[:, None] == np.arange(len(counts)),
        keys,
        keys[: len(counts)],
    )
    return episodes, groups, sequences


def clock(encoder: str, corpus: str, device: str, threads: int) -> dict[str, object]:
    """Time one training of each cell per thread, and tell the whole from these."""
    given = imitate(encoder, corpus)
    searching, training, apart, parameters = [], [], 0.0, []
    for cell in CELLS:
        with tempfile.TemporaryDirectory() as folder:
            options = Options(SEEDS, device, threads, Path(folder), 0)
            jobs = plan_jobs(*given, [(cell,)] * given[0].folds, None, options)[:threads]
            start = time.perf_counter()
            do_jobs(jobs, search, threads, lambda share, what: None)
            middle = time.perf_counter()
            jobs = plan_jobs(*given, [(cell,)] * given[0].folds, None, options)[
                :threads
            ]  # what is kept is read
            do_jobs(jobs, _score, threads, lambda share, what: None)
            searching.append((middle - start) / threads)
            training.append((time.perf_counter() - middle) / threads)
            apart = max(apart, *do_jobs(jobs[:1], _apart, threads, lambda share, what: None))
            parameters.append(jobs[0].lesson.recipe.parameters)
    splits = given[0].folds * SEEDS
    return {
        "what": f"{encoder}, {corpus}, {device}",
        "parameters": f"{min(parameters):,} to {max(parameters):,}",
        "search s": float(np.mean(searching)),
        "train s": float(np.mean(training)),
        "whole rival, min": splits * (sum(searching) + float(np.mean(training))) / 60,
        "row alone": apart,
    }


def _apart(job, watch) -> float:
    """Compare rows in a batch with the same rows alone."""
    network = job.lesson.start(job.rows).network
    rows = job.rows[:24]
    together = log_probabilities(job.lesson.feed, rows, network)
    alone = np.concatenate(
        [log_probabilities(job.lesson.feed, rows[n : n + 1], network) for n in range(len(rows))]
    )
    return float(np.abs(together - alone).max())


def main() -> None:
    """Print the table."""
    options = parser(__doc__)
    options.add_argument("--device", default="cpu", help="cpu or cuda")
    options.add_argument("--threads", type=int, default=2, help="networks at a time")
    options.add_argument("--encoder", choices=ENCODERS, nargs="*", default=list(ENCODERS))
    options.add_argument("--corpus", choices=CORPORA, nargs="*", default=["elephant-voices"])
    chosen = options.parse_args()
    rows = [
        clock(e, c, chosen.device, chosen.threads) for c in chosen.corpus for e in chosen.encoder
    ]
    name = (
        torch.cuda.get_device_name()
        if chosen.device.startswith("cuda")
        else f"{chosen.threads} threads"
    )
    show(f"bench/recurrent: {name}, torch {torch.__version__}", rows, chosen.json)


if __name__ == "__main__":
    main()
