"""Recurrent networks: frames of segments → log-probabilities of classes.

frames → standardise → linear (if wide) → Elman, GRU or LSTM → mean over time → linear
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from callshot.baselines.sequence_batches import (
    frame_scaling,
    padded_index,
    sorted_batches,
)
from callshot.baselines.training_task import (
    Dropout,
    TrainingConfig,
    TrainingTask,
    no_dropout,
)
from callshot.records import FloatArray, IntArray

CELLS = {"elman": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
HIDDEN = {"elman": 128, "gru": 64, "lstm": 56}  # about the same number of parameters
MAX_WIDTH = 64  # wider input is projected to this width, or less:
MAX_PROJECTION_WEIGHTS = 50_000
CLIP_DEVIATIONS = 10.0  # standard deviations from the mean at which input is clipped
SCORING_BATCH = 64  # rows


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
        """The width of the input of the recurrent layer.

        >>> RecurrentConfig(cell="gru", dimension=1024, classes=12, hidden=64).width
        48
        """
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

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.cell = CELLS[config.cell](config.width, config.hidden)
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

        Padding is left out of the mean over time. The result is that of a packed batch, whose
        backward pass takes 3 to 18 times as long on a CPU.
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


@dataclass(frozen=True)
class RecurrentTask(TrainingTask):
    """Train a recurrent network on classes."""

    config: RecurrentConfig

    def build(self) -> RecurrentNetwork:
        """Return a network without weights."""
        return RecurrentNetwork(self.config)

    def initialize(self, network: RecurrentNetwork, rows: IntArray) -> None:
        """Draw the first weights; scale the input by the rows of the training."""
        generator = torch.Generator()
        generator.manual_seed(self.config.stream_seed("weights"))
        for name, tensor in network.named_parameters():
            is_projection = name.startswith("projection")
            inputs = self.config.dimension if is_projection else self.config.hidden
            bound = 1.0 / math.sqrt(inputs)
            tensor.uniform_(-bound, bound, generator=generator)
        mean, scale = frame_scaling(self.data.table, rows)
        network.mean.copy_(torch.from_numpy(mean))
        network.scale.copy_(torch.from_numpy(scale))

    def logits(
        self, network: RecurrentNetwork, rows: IntArray, dropout: Dropout = no_dropout
    ) -> Tensor:
        """Return the logits of a batch of rows."""
        index, mask = padded_index(self.data.table, rows)
        frames = self.data.frames[self.data.tensor(index)]
        return network(frames, self.data.tensor(mask), dropout)

    def row_weights(self, rows: IntArray) -> Tensor:
        """Return weights with which all classes count the same."""
        label = self.data.label
        classes = self.config.classes
        counts = np.bincount(label[rows], minlength=classes)
        weights = len(rows) / (classes * counts)
        return self.data.tensor(weights.astype(np.float32)[label])

    def batch_loss(
        self,
        network: RecurrentNetwork,
        batch: IntArray,
        weights: Tensor,
        rng: np.random.Generator,
        dropout: Dropout,
    ) -> Tensor:
        """Return the weighted cross-entropy of a batch."""
        logits = self.logits(network, batch, dropout)
        label = self.data.tensor(self.data.label[batch])
        losses = nn.functional.cross_entropy(logits, label, reduction="none")
        batch_weights = weights[self.data.tensor(batch)]
        return (losses * batch_weights).mean()

    def predict(self, network: RecurrentNetwork, rows: IntArray) -> FloatArray:
        """Return the log-probabilities of some rows, (rows, classes)."""
        scores = np.empty((len(self.data.label), self.config.classes))
        batches = sorted_batches(self.data.table, rows, SCORING_BATCH)
        with torch.inference_mode():
            for batch in batches:
                logits = self.logits(network, batch).double()
                scores[batch] = logits.log_softmax(dim=1).cpu().numpy()
        return scores[rows]

    def loss(self, scores: FloatArray, rows: IntArray) -> float:
        """Return the cross-entropy of log-probabilities, averaged over the classes."""
        return balanced_loss(scores, self.data.label[rows])


def balanced_loss(scores: FloatArray, label: IntArray) -> float:
    """Return the mean cross-entropy of each class, averaged over the classes."""
    losses = -scores[np.arange(len(label)), label]
    means = [losses[label == number].mean() for number in np.unique(label)]
    return float(np.mean(means))
