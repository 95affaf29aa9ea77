"""A classifier of spectrogram frames: log-mel frames → log-odds of each output.

    log-mel frames → patches of 16 × 16 → encoder → mean over the 8 patches of a column → linear

A column lasts 160 ms and is what AERD calls a frame. The score of a segment is the mean of the
log-odds of its columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from callshot.baselines.beats import BeatsConfig
from callshot.baselines.sequence_batches import BoolArray, Frames
from callshot.baselines.spectrogram import (
    COLUMN_PATCHES,
    PATCH,
    Crops,
    batch_crops,
    crop_index,
    random_crops,
    window_crops,
)
from callshot.baselines.training_task import (
    Dropout,
    TrainingConfig,
    TrainingTask,
    no_dropout,
)
from callshot.baselines.transformer import AstConfig, Mask
from callshot.records import FloatArray, IntArray

SCORING_BATCH = 32  # crops
DEFAULT_ENCODER = AstConfig()  # of networks that are trained from scratch


@dataclass(frozen=True, kw_only=True)
class FrameConfig(TrainingConfig):
    """Everything that decides a network and its training, except the rows.

    `init` is the hash of the pretrained weights, if there are any.
    """

    encoder: AstConfig | BeatsConfig
    outputs: int
    init: str | None = None
    batch_size: int = 16
    learning_rate: float = 5e-4
    warmup_steps: int = 20
    weight_decay: float = 5e-2
    dropout: float = 0.1
    epochs: int = 60
    patience: int = 8


class FrameClassifier(nn.Module):
    """An encoder of patches and a linear layer."""

    def __init__(self, config: FrameConfig) -> None:
        super().__init__()
        self.encoder = config.encoder.build()
        self.head = nn.Linear(config.encoder.width, config.outputs)

    def forward(
        self, frames: Tensor, mask: Mask = None, dropout: Dropout = no_dropout
    ) -> Tensor:
        """Return log-odds (crops, columns, outputs) of frames (crops, 16 × columns, 128).

        `mask` is (crops, columns); None if all columns are real. On a GPU the encoder computes in
        bfloat16.
        """
        columns = frames.unflatten(1, (-1, PATCH))
        bands = columns.unflatten(-1, (COLUMN_PATCHES, PATCH))
        patches = bands.transpose(2, 3).flatten(-2)
        with torch.autocast("cuda", torch.bfloat16, enabled=frames.is_cuda):
            tokens = self.encoder(patches, mask, dropout)
        column_means = tokens.float().mean(dim=2)
        return self.head(column_means)


@dataclass(frozen=True)
class FrameTask(TrainingTask):
    """Train a frame classifier on targets; `weights` are pretrained weights of its encoder."""

    config: FrameConfig
    weights: Mapping[str, Any] | None = None

    def build(self) -> FrameClassifier:
        """Return a network without weights."""
        return FrameClassifier(self.config)

    def initialize(self, network: FrameClassifier, rows: IntArray) -> None:
        """Load or draw the first weights of the encoder; the head starts with zeros."""
        if self.weights is None:
            generator = torch.Generator()
            generator.manual_seed(self.config.stream_seed("weights"))
            network.encoder.initialize(generator)
        else:
            network.encoder.load_state_dict(self.weights)
        nn.init.zeros_(network.head.weight)
        nn.init.zeros_(network.head.bias)

    def log_odds(
        self, network: FrameClassifier, crops: Crops, dropout: Dropout = no_dropout
    ) -> tuple[Tensor, Mask]:
        """Return the log-odds of crops, (crops, columns, outputs), and a mask of real columns."""
        index, columns = crop_index(self.data.table, crops)
        frames = self.data.frames[self.data.tensor(index)]
        mask = None if columns.all() else self.data.tensor(columns)
        return network(frames, mask, dropout), mask

    def row_weights(self, rows: IntArray) -> Frames:
        """Return weights with which positives and negatives of each output count the same."""
        label = self.data.label
        return balanced_weights(label[rows], label).astype(np.float32)

    def batch_loss(
        self,
        network: FrameClassifier,
        batch: IntArray,
        weights: Any,
        rng: np.random.Generator,
        dropout: Dropout,
    ) -> Tensor:
        """Return the loss of one random crop per row; every frame has the targets of its row."""
        crops = random_crops(self.data.table.lengths, batch, rng)
        log_odds, mask = self.log_odds(network, crops, dropout)
        label = self.data.label[batch]
        truth = self.data.tensor(label.astype(np.float32))
        batch_weights = self.data.tensor(weights[batch])
        return frame_loss(log_odds, mask, truth, batch_weights)

    def predict(self, network: FrameClassifier, rows: IntArray) -> FloatArray:
        """Return the log-odds of some rows, (rows, outputs), averaged over all of their columns."""
        total = np.zeros(self.data.label.shape)
        count = np.zeros((len(total), 1))
        crops = window_crops(self.data.table.lengths, rows)
        for batch in batch_crops(crops, SCORING_BATCH):
            np.add.at(total, batch.row, self._sum_log_odds(network, batch))
            np.add.at(count, batch.row, batch.columns[:, None])
        means: FloatArray = total[rows] / count[rows]
        return means

    def _sum_log_odds(self, network: FrameClassifier, crops: Crops) -> FloatArray:
        """Return the sum over the real columns of each crop, (crops, outputs)."""
        with torch.inference_mode():
            log_odds, mask = self.log_odds(network, crops)
            log_odds = log_odds.double()
            if mask is not None:
                log_odds = log_odds * mask[:, :, None]
            sums: FloatArray = log_odds.sum(dim=1).cpu().numpy()
        return sums

    def loss(self, scores: FloatArray, rows: IntArray) -> float:
        """Return the cross-entropy of scores, balanced over outputs and their two sides."""
        truth = self.data.label[rows]
        losses = np.logaddexp(0.0, np.where(truth, -scores, scores))
        weights = balanced_weights(truth, truth)
        return float(np.average(losses, weights=weights))


def balanced_weights(truth: BoolArray, label: BoolArray) -> FloatArray:
    """Return weights for `label` with which both sides of each output of `truth` count the same.

    >>> balanced_weights(np.array([[True], [False], [False], [False]]), np.array([[True], [False]]))
    array([[2.        ],
           [0.66666667]])
    """
    rows = len(truth)
    positives = truth.sum(axis=0)
    negatives = rows - positives
    counts = np.where(label, positives, negatives)
    weights: FloatArray = rows / 2.0 / np.maximum(counts, 1)
    return weights


def frame_loss(log_odds: Tensor, mask: Mask, truth: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted cross-entropy of log-odds (crops, columns, outputs).

    `truth` and `weights` are (crops, outputs). The mean is over the real columns, then the rest.
    """
    target = truth[:, None].expand_as(log_odds)
    losses = nn.functional.binary_cross_entropy_with_logits(
        log_odds, target, reduction="none"
    )
    if mask is None:
        means = losses.mean(dim=1)
    else:
        total = (losses * mask[:, :, None]).sum(dim=1)
        count = mask.sum(dim=1)
        means = total / count[:, None]
    return (means * weights).mean()
