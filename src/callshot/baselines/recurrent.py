"""Episodes and sequences → scores of recurrent networks, trained on the support side of each split.

    frames → standardise → linear (if wide) → Elman, GRU or LSTM → mean over time → linear

A linear layer narrows input of more than 64 dimensions. The hidden widths 128, 64 and 56 give the
three cells about the same number of parameters: for twelve classes 21,000 to 23,000 with MFCC,
67,000 to 77,000 with 768 to 1536 dimensions. Frames are standardised by the rows of the training,
and all classes count the same. Log-probabilities are averaged over the networks of a split; a score
is the log-odds of that mean. Neighbouring frames of long sequences are averaged so that the median
sequence of the support side has at most 64 steps.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn

from callshot.baselines.sequence_batches import (
    BatchData,
    Sequences,
    check_sequences,
    frame_scaling,
    padded_index,
    sorted_batches,
    stack_sequences,
)
from callshot.baselines.training import (
    DEFAULT_CONTEXT,
    Dropout,
    Metadata,
    TrainingConfig,
    TrainingContext,
    TrainingJob,
    check_examples,
    check_length,
    no_dropout,
    require_torch,
    run_jobs,
    run_trainings,
    search,
)
from callshot.errors import InputError
from callshot.fewshot.centroid import log_odds
from callshot.fewshot.episodes import Episodes
from callshot.records import COMMON_FOLD, FloatArray, IntArray

MAX_STEPS = 64  # of the median sequence
CELLS = {"elman": "Elman", "gru": "GRU", "lstm": "LSTM"}
MODULES = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
HIDDEN = {"elman": 128, "gru": 64, "lstm": 56}  # about the same number of parameters
MAX_WIDTH = 64  # wider input is projected to this width, or less,
MAX_PROJECTION_WEIGHTS = 50_000  # so that the projection has no more weights
CLIP_DEVIATIONS = 10.0  # standard deviations from the mean at which input is clipped
SCORING_BATCH = 64  # rows

# Table 3 of the paper: the network for each encoder and corpus. It has none for HuBERT.
PAPER_CELLS = {
    ("mfcc", "elephant-voices"): "gru",
    ("mfcc", "ldc2010s05"): "gru",
    ("perch-v1", "elephant-voices"): "gru",
    ("perch-v1", "ldc2010s05"): "lstm",
    ("perch-v2", "elephant-voices"): "elman",
    ("perch-v2", "ldc2010s05"): "gru",
}

Losses = dict[str, list[float]]  # of a cell, in each split


def score_recurrent(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequences,
    *,
    cell: str | Sequence[str] = "gru",
    networks: int = 1,
    context: TrainingContext = DEFAULT_CONTEXT,
) -> tuple[FloatArray, Metadata]:
    """Train recurrent networks outside each fold, and score its queries.

    Return log-odds (rows, classes), NaN in the common fold, and metadata. `groups` is the recording
    of each row, `sequences` its frames, (frames, dimensions). `cell` is one for all splits, or one
    per split; the scores of `networks` networks are averaged.
    """
    cells = [cell] * episodes.folds if isinstance(cell, str) else list(cell)
    cells_of_splits = [(name,) for name in cells]
    inputs = (episodes, groups, sequences)
    jobs = plan_jobs(*inputs, cells_of_splits, networks, context)
    scores, training = run_trainings(jobs, context)
    queries = episodes.fold != COMMON_FOLD
    scores[queries] = log_odds(scores[queries])
    by_name = {job.name: job for job in jobs}
    metadata = {
        "cells": tuple(cells),
        "text": describe_cells(cells),
        "parameters": {name: job.parameters for name, job in by_name.items()},
        "hidden": {name: job.config.hidden for name, job in by_name.items()},
        "width": jobs[0].config.width,
        "pooling": "mean over time",
        "frames_per_step": [
            _frames_per_step(episodes, sequences, fold)
            for fold in range(episodes.folds)
        ],
        "networks": networks,
    }
    return scores, metadata | training


def choose_cell(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequences,
    *,
    networks: int = 1,
    context: TrainingContext = DEFAULT_CONTEXT,
) -> tuple[tuple[str, ...], Losses]:
    """Choose Elman, GRU or LSTM for every split by the loss on inner folds outside its fold.

    Arguments are as of `score_recurrent`. Return the cell of each split, and, for each cell, the
    loss in every split: the class-balanced cross-entropy at the best epoch, averaged over networks
    that hold out different inner folds. With a folder in the context, `score_recurrent` continues
    from these trainings.
    """
    all_cells = [tuple(CELLS)] * episodes.folds
    inputs = (episodes, groups, sequences)
    jobs = plan_jobs(*inputs, all_cells, networks, context)
    can_search = {job.query_fold for job in jobs if job.held_out.any()}
    for fold in set(range(episodes.folds)) - can_search:
        raise InputError(
            f"fold {fold}: no class has two recordings on its support side, so nothing can "
            "be held out to choose a network; name one"
        )
    searches = run_jobs(jobs, search, context)
    # A network with nothing to hold out has no losses: NaN, which the mean leaves out.
    lowest = [np.nanmin(losses) if losses else np.nan for losses in searches]
    # Jobs are in the order of splits, cells and networks.
    by_network = np.reshape(lowest, (episodes.folds, len(CELLS), networks))
    table = np.nanmean(by_network, axis=2)  # (splits, cells)
    names = list(CELLS)
    cells = tuple(names[number] for number in table.argmin(axis=1))
    return cells, dict(zip(names, table.T.tolist(), strict=True))


def describe_cells(cells: Sequence[str]) -> str:
    """Return the cells of all splits as text.

    >>> describe_cells(["gru", "lstm", "gru"]), describe_cells(["elman", "elman"])
    ('GRU in 2 of 3 splits, LSTM in 1', 'Elman')
    """
    (first, count), *rest = Counter(cells).most_common()
    if not rest:
        return CELLS[first]
    parts = [f"{CELLS[first]} in {count} of {len(cells)} splits"]
    parts += [f"{CELLS[cell]} in {number}" for cell, number in rest]
    return ", ".join(parts)


def plan_jobs(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequences,
    cells: Sequence[Sequence[str]],
    networks: int,
    context: TrainingContext,
) -> list[TrainingJob]:
    """Check all input, and plan the trainings: by split, then its cells, then `networks` of each.

    `cells` has the names of the cells of each split.
    """
    label = episodes.label
    classes = episodes.classes
    check_length("sequences", len(sequences), len(label))
    check_sequences(sequences)
    is_class = label[:, None] == np.arange(len(classes))
    check_examples(is_class, episodes.fold, classes)
    require_torch(context.network_device)

    @cache  # splits that average as many frames share one table
    def load(step: int) -> BatchData:
        table = stack_sequences(sequences, step)
        return BatchData.load(table, label, groups, context.network_device)

    jobs = []
    for fold, names in enumerate(cells):
        step = _frames_per_step(episodes, sequences, fold)
        data = load(step)
        rows = np.flatnonzero(episodes.fold != fold)
        # What else decides the weights: a saved training with other facts is not continued.
        facts = {
            "classes": classes,
            "rows": data.fingerprint(rows),
            "frames_per_step": step,
        }
        for name, member in product(names, range(networks)):
            config = RecurrentConfig(
                cell=name,
                dimension=data.table.frames.shape[1],
                classes=len(classes),
                hidden=HIDDEN[name],
                seed=context.seed,
                member=member,
            )
            job = TrainingJob(
                RecurrentNetwork,
                data,
                config,
                name=name,
                kind=CELLS[name],
                fold=episodes.fold,
                query_fold=fold,
                facts=facts,
                context=context,
            )
            jobs.append(job)
    return jobs


def _frames_per_step(episodes: Episodes, sequences: Sequences, fold: int) -> int:
    """Return how many frames are averaged to one step of a network, in the split of a fold.

    The median sequence outside the fold then has at most `MAX_STEPS` steps.
    """
    rows = np.flatnonzero(episodes.fold != fold)
    lengths = [len(sequences[row]) for row in rows.tolist()]
    return max(1, math.ceil(np.median(lengths) / MAX_STEPS))


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(TrainingConfig):
    """Everything that decides a network and its training, except the rows."""

    cell: str
    dimension: int
    classes: int
    hidden: int
    batch_size: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 1e-2
    dropout: float = 0.5
    epochs: int = 100
    patience: int = 10

    @property
    def width(self) -> int:
        """The width of the input of the recurrent layer."""
        if self.dimension <= MAX_WIDTH:
            return self.dimension
        return max(1, min(MAX_WIDTH, MAX_PROJECTION_WEIGHTS // self.dimension))

    @property
    def is_projected(self) -> bool:
        """Whether a linear layer narrows the input."""
        return self.width != self.dimension

    @property
    def peak_learning_rate(self) -> float:
        """The learning rate; smaller for wide input, which overfits within one epoch otherwise."""
        return self.learning_rate / 4 if self.is_projected else self.learning_rate


class RecurrentNetwork(nn.Module):
    """One recurrent layer between an optional projection and a linear layer."""

    def __init__(self, data: BatchData, config: RecurrentConfig) -> None:
        super().__init__()
        self.data = data
        self.config = config
        self.cell = MODULES[config.cell](config.width, config.hidden)
        self.projection = None
        if config.is_projected:
            self.projection = nn.Linear(config.dimension, config.width)
        self.head = nn.Linear(config.hidden, config.classes)
        self.register_buffer("mean", torch.zeros(config.dimension))
        self.register_buffer("scale", torch.zeros(config.dimension))

    def forward(
        self, frames: Tensor, mask: Tensor, dropout: Dropout = no_dropout
    ) -> Tensor:
        """Return logits (rows, classes) of frames (times, rows, dimensions).

        `mask` (times, rows) is true where a frame is real, not padding.

        Packed sequences would give the same as the mask, but their backward pass takes 3 to 18
        times as long on a CPU.
        """
        scaled = (frames - self.mean) * self.scale
        steps = scaled.clamp(-CLIP_DEVIATIONS, CLIP_DEVIATIONS)
        if self.projection is not None:
            steps = self.projection(dropout(steps))
        outputs, _ = self.cell(steps)
        total = (outputs * mask[:, :, None]).sum(dim=0)
        count = mask.sum(dim=0)
        pooled = total / count[:, None]
        return self.head(dropout(pooled))

    def initialize(self, rows: IntArray) -> None:
        """Draw the first weights, as torch does; scale the input by the rows of the training.

        Weights are uniform within 1 / √(inputs of the layer).
        """
        generator = torch.Generator()
        generator.manual_seed(self.config.stream_seed("weights"))
        for name, tensor in self.named_parameters():
            # Of the head; torch takes it for all tensors of a cell too.
            inputs = self.config.hidden
            if name.startswith("projection"):
                inputs = self.config.dimension
            bound = 1.0 / math.sqrt(inputs)
            tensor.uniform_(-bound, bound, generator=generator)
        mean, scale = frame_scaling(self.data.table, rows)
        self.mean.copy_(torch.from_numpy(mean))
        self.scale.copy_(torch.from_numpy(scale))

    def logits(self, rows: IntArray, dropout: Dropout = no_dropout) -> Tensor:
        """Return the logits (rows, classes) of a batch of rows."""
        table = self.data.table
        start = table.start[rows]
        index, is_real = padded_index(start, table.lengths[rows])
        frames = self.data.frames[self.data.tensor(index)]
        mask = self.data.tensor(is_real)
        return self(frames, mask, dropout)

    def losses(
        self,
        rows: IntArray,
        batches: Sequence[IntArray],
        rng: np.random.Generator,
        dropout: Dropout,
    ) -> Iterator[Tensor]:
        """Yield the cross-entropy of each batch; all classes of the training count the same."""
        data = self.data
        classes = self.config.classes
        counts = np.bincount(data.label[rows], minlength=classes)
        # Of each class; their mean over rows is 1.
        weights = (len(rows) / (classes * counts)).astype(np.float32)
        for batch in batches:
            logits = self.logits(batch, dropout)
            label = data.label[batch]
            losses = nn.functional.cross_entropy(
                logits, data.tensor(label), reduction="none"
            )
            row_weights = data.tensor(weights[label])
            yield (losses * row_weights).mean()

    def predict(self, rows: IntArray) -> FloatArray:
        """Return the log-probabilities of some rows, (rows, classes)."""
        scores = np.empty((len(self.data.label), self.config.classes))
        lengths = self.data.table.lengths[rows]
        with torch.inference_mode():
            for batch in sorted_batches(rows, lengths, SCORING_BATCH):
                logits = self.logits(batch).double()
                scores[batch] = logits.log_softmax(dim=1).cpu().numpy()
        return scores[rows]

    def loss(self, scores: FloatArray, rows: IntArray) -> float:
        """Return the cross-entropy of log-probabilities, averaged over the classes."""
        return balanced_loss(scores, self.data.label[rows])


def balanced_loss(scores: FloatArray, label: IntArray) -> float:
    """Return the cross-entropy of log-probabilities (rows, classes), averaged over the classes."""
    losses = -scores[np.arange(len(label)), label]  # of each row's own class
    classes = np.unique(label)
    means = [losses[label == number].mean() for number in classes]
    return float(np.mean(means))
