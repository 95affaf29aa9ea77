"""Networks that can be trained: configuration, data, epochs.

Every random draw is a function of (seed, purpose, epoch), so the state of a training is its tensors
and its epoch, and an interrupted training ends with the same weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from callshot.baselines.checkpoints import Checkpoint, Tensors
from callshot.baselines.sequence_batches import (
    BatchData,
    BoolArray,
    held_out_rows,
    random_batches,
)
from callshot.records import FloatArray, IntArray

OPTIMIZER_STATE = ("step", "exp_avg", "exp_avg_sq")  # of AdamW, for each parameter
Dropout = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything that decides a training, except the network and the rows.

    `member` is the number of a network among those that are averaged: each has its own random
    streams and its own inner fold.
    """

    seed: int = 0
    member: int = 0
    inner_folds: int = 4
    batch_size: int
    learning_rate: float
    warmup_steps: int = 1
    weight_decay: float
    dropout: float
    clip_norm: float = 1.0
    epochs: int
    patience: int

    @property
    def peak_learning_rate(self) -> float:
        """The learning rate after the warm-up."""
        return self.learning_rate

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of a step; the first step is 1."""
        warmup = min(1.0, step / self.warmup_steps)
        return self.peak_learning_rate * warmup

    def stream_seed(self, *purpose: object) -> int:
        """Return the seed of the random stream for one purpose."""
        text = repr((self.seed, self.member, *purpose))
        digest = sha256(text.encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1

    def held_out(self, label: IntArray, groups: IntArray) -> BoolArray:
        """Return a mask of the rows that the search holds out."""
        number = self.member % self.inner_folds
        return held_out_rows(label, groups, self.inner_folds, number)


@dataclass
class State:
    """A training between two epochs; `losses` are those of the held-out rows after each."""

    network: Any
    optimizer: Any
    epoch: int = 0
    losses: list[float] = field(default_factory=list)

    def is_stale(self, patience: int) -> bool:
        """Return whether the loss has not fallen for `patience` epochs."""
        return self.epoch - best_epoch(self.losses) >= patience

    def take_step(self, loss: Any, config: TrainingConfig, step: int) -> None:
        """Change the weights by the gradient of a loss."""
        import torch

        parameters = self.network.parameters()
        self.optimizer.param_groups[0]["lr"] = config.learning_rate_at(step)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm)
        self.optimizer.step()

    def tensors(self) -> Tensors:
        """Return all tensors of the network and the optimizer."""
        tensors = dict(self.network.state_dict())
        slots = self.optimizer.state_dict()["state"]
        for number, values in slots.items():
            for name in OPTIMIZER_STATE:
                tensors[f"optimizer.{number}.{name}"] = values[name]
        return tensors

    def resume(self, checkpoint: Checkpoint, tensors: Tensors) -> None:
        """Continue from a checkpoint and its tensors."""
        self.epoch = checkpoint.epoch
        self.losses = checkpoint.losses
        weights = {}
        for name in self.network.state_dict():
            weights[name] = tensors[name]
        self.network.load_state_dict(weights)
        optimizer = self.optimizer.state_dict()
        for number in optimizer["param_groups"][0]["params"]:
            slots = {}
            for name in OPTIMIZER_STATE:
                slots[name] = tensors[f"optimizer.{number}.{name}"]
            optimizer["state"][number] = slots
        self.optimizer.load_state_dict(optimizer)


def best_epoch(losses: list[float]) -> int:
    """Return the number of epochs with the lowest finite loss; 0 if no loss is finite.

    >>> best_epoch([1.1, 0.8, 0.9]), best_epoch([float("nan"), 0.8]), best_epoch([])
    (2, 2, 0)
    """
    if not np.isfinite(losses).any():
        return 0
    return int(np.nanargmin(losses)) + 1


@dataclass(frozen=True)
class TrainingTask(ABC):
    """A kind of network, its configuration, and the rows it is trained on."""

    data: BatchData
    config: Any  # a TrainingConfig with the sizes of the network

    @abstractmethod
    def build(self) -> Any:
        """Return a network without weights."""

    @abstractmethod
    def initialize(self, network: Any, rows: IntArray) -> None:
        """Set the first weights of a network that will be trained on some rows."""

    @abstractmethod
    def row_weights(self, rows: IntArray) -> Any:
        """Return weights for all rows of the data that balance the classes of some rows."""

    @abstractmethod
    def batch_loss(
        self,
        network: Any,
        batch: IntArray,
        weights: Any,
        rng: np.random.Generator,
        dropout: Dropout,
    ) -> Any:
        """Return the training loss of a batch of rows."""

    @abstractmethod
    def predict(self, network: Any, rows: IntArray) -> FloatArray:
        """Return the scores of some rows, (rows, outputs)."""

    @abstractmethod
    def loss(self, scores: FloatArray, rows: IntArray) -> float:
        """Return the balanced loss of scores of held-out rows."""

    @property
    def device(self) -> Any:
        """The device it runs on."""
        return self.data.frames.device

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        import torch

        with torch.device("meta"):  # shapes without memory
            network = self.build()
        return sum(tensor.numel() for tensor in network.parameters())

    def start(self, rows: IntArray) -> State:
        """Return a network with its first weights, and an optimizer."""
        import torch

        network = self.build()
        with torch.no_grad():
            self.initialize(network, rows)
        network.to(self.device)
        optimizer = torch.optim.AdamW(
            network.parameters(),
            weight_decay=self.config.weight_decay,
            fused=True,
        )
        return State(network, optimizer)

    def run_epoch(self, rows: IntArray, state: State) -> None:
        """Train for one epoch."""
        config = self.config
        rng = np.random.default_rng(config.stream_seed("order", state.epoch))
        dropout = self._dropout(state.epoch)
        weights = self.row_weights(rows)
        batches = random_batches(self.data.table, rows, config.batch_size, rng)
        step = state.epoch * len(batches)
        for batch in batches:
            step += 1
            loss = self.batch_loss(state.network, batch, weights, rng, dropout)
            state.take_step(loss, config, step)
        state.epoch += 1

    def _dropout(self, epoch: int) -> Dropout:
        import torch

        generator = torch.Generator(self.device)
        generator.manual_seed(self.config.stream_seed("dropout", epoch))
        return partial(drop, share=self.config.dropout, generator=generator)


def drop(values: Any, share: float, generator: Any) -> Any:
    """Set a random share of the values to 0 and scale up the others."""
    import torch

    random = torch.rand(values.shape, generator=generator, device=values.device)
    return values * (random >= share) / (1.0 - share)


def no_dropout(values: Any) -> Any:
    """Return the values: dropout outside training."""
    return values
