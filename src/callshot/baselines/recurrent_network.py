"""A recipe → a recurrent network and its lesson; frames of rows → their log-probabilities.

    frames → standardised → (linear, where they are wide) → Elman, GRU or LSTM → mean over time → linear over classes

torch is imported when it is used.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from callshot.baselines.executor import CheckCancelled
from callshot.baselines.sequence_batches import deal_batches, frame_scale, in_batches, line_up
from callshot.baselines.torch_arrays import BatchData, drop, need_torch
from callshot.baselines.train_loop import State, stream
from callshot.records import FloatArray, IntArray

CELLS = {
    "elman": ("RNN", 1),
    "gru": ("GRU", 3),
    "lstm": ("LSTM", 4),
}  # torch's name, and matrices of each kind
HIDDEN = {"elman": 128, "gru": 64, "lstm": 56}  # with which the three have about as many parameters
NARROW, NARROW_WEIGHTS = (
    64,
    50_000,
)  # a wider input is brought to that width, or to as much as these weights allow
FARTHEST = 10.0  # standard deviations from the mean, beyond which a value is cut
TOGETHER = 64  # rows that are scored at once


@dataclass(frozen=True)
class Recipe:
    """All that decides a network and its training, but for the rows."""

    cell: str
    dimension: int
    classes: int
    hidden: int
    seed: int = 0  # of all draws
    member: int = 0  # of those that are averaged: each has its own draws, and its own inner fold
    inner_folds: int = 4
    batch: int = 32
    rate: float = 2e-3  # of learning; a quarter of it where the input is wide
    decay: float = 1e-2
    dropout: float = 0.5
    clip: float = 1.0
    epochs: int = 100
    patience: int = 10

    @property
    def width(self) -> int:
        """What the cell is fed: the dimension itself up to 64; beyond, 64 or as many as 50,000 weights allow.

        >>> [Recipe("gru", d, 12, 64).width for d in (40, 768, 1024, 1280, 1536)]
        [40, 64, 48, 39, 32]
        """
        return (
            self.dimension
            if self.dimension <= NARROW
            else max(1, min(NARROW, NARROW_WEIGHTS // self.dimension))
        )

    @property
    def learning_rate(self) -> float:
        """How far a step of training goes: many weights on few rows would be learnt by heart within an epoch."""
        return self.rate if self.width == self.dimension else self.rate / 4

    @property
    def parameters(self) -> int:
        """How many numbers are trained.

        >>> [Recipe(cell, 40, 12, HIDDEN[cell]).parameters for cell in CELLS]
        [23308, 21132, 22636]
        """
        narrow = 0 if self.width == self.dimension else (self.dimension + 1) * self.width
        cell = CELLS[self.cell][1] * self.hidden * (self.width + self.hidden + 2)
        return narrow + cell + (self.hidden + 1) * self.classes


def build(recipe: Recipe) -> Any:
    """Make a network whose weights are still to come."""
    torch = need_torch()
    parts = {"cell": getattr(torch.nn, CELLS[recipe.cell][0])(recipe.width, recipe.hidden)}
    if recipe.width != recipe.dimension:
        parts["narrow"] = torch.nn.Linear(recipe.dimension, recipe.width)
    network = torch.nn.ModuleDict({**parts, "head": torch.nn.Linear(recipe.hidden, recipe.classes)})
    network.register_buffer("mean", torch.zeros(recipe.dimension))
    network.register_buffer("scale", torch.zeros(recipe.dimension))
    return network


def forward(
    feed: BatchData, rows: IntArray, network: Any, dropout: float = 0.0, draw: Any = None
) -> Any:
    """Return the logits of rows; with a generator, a share of what passes is dropped.

    Rows are filled up behind, and left out of the mean there: what counts is as in a batch that torch packs, whose
    backward pass takes 3 to 18 times as long on a CPU.
    """
    torch, device = need_torch(), feed.frames.device
    places, there = (torch.from_numpy(array).to(device) for array in line_up(feed.table, rows))
    frames = ((feed.frames[places] - network.mean) * network.scale).clamp(-FARTHEST, FARTHEST)
    if "narrow" in network:
        frames = network["narrow"](drop(frames, dropout, draw))
    outputs, _ = network["cell"](frames)
    pooled = (outputs * there[:, :, None]).sum(dim=0) / there.sum(dim=0)[:, None]
    return network["head"](drop(pooled, dropout, draw))


def log_probabilities(
    feed: BatchData, rows: IntArray, network: Any, check_cancelled: CheckCancelled = lambda: None
) -> FloatArray:
    """Return the log-probabilities of some rows, (rows, classes), in their order."""
    torch = need_torch()
    found = np.empty((len(feed.label), network["head"].out_features))
    with torch.inference_mode():
        for batch in in_batches(feed.table, rows, TOGETHER):
            check_cancelled()
            logits = forward(feed, batch, network)
            found[batch] = torch.log_softmax(logits.double(), dim=1).cpu().numpy()
    return found[rows]


@dataclass(frozen=True)
class RecurrentLesson:
    """One network on the frames of a feed, `step` of which were averaged."""

    feed: BatchData
    recipe: Recipe
    step: int

    def build(self) -> Any:
        """Make a network whose weights are still to come."""
        return build(self.recipe)

    def start(self, rows: IntArray) -> State:
        """Draw the first weights, and take the scale of the input from the rows that will be learnt."""
        return start_state(self.feed, rows, self.recipe)

    def run_epoch(
        self, rows: IntArray, state: State, check_cancelled: CheckCancelled = lambda: None
    ) -> None:
        """Learn all rows once, every class alike."""
        torch, recipe, device = need_torch(), self.recipe, self.feed.frames.device
        weight = len(rows) / (
            recipe.classes * np.bincount(self.feed.label[rows], minlength=recipe.classes)
        )
        order = np.random.default_rng(stream(recipe.seed, recipe.member, "order", state.epoch))
        draw = torch.Generator(device).manual_seed(
            stream(recipe.seed, recipe.member, "dropout", state.epoch)
        )
        weights = torch.from_numpy(weight.astype(np.float32)).to(device)
        for batch in deal_batches(self.feed.table, rows, recipe.batch, order):
            check_cancelled()
            logits = forward(self.feed, batch, state.network, recipe.dropout, draw)
            label = torch.from_numpy(self.feed.label[batch]).to(device)
            losses = torch.nn.functional.cross_entropy(logits, label, reduction="none")
            state.optimiser.zero_grad()
            (losses * weights[label]).mean().backward()
            torch.nn.utils.clip_grad_norm_(state.network.parameters(), recipe.clip)
            state.optimiser.step()

    def loss(
        self, rows: IntArray, network: Any, check_cancelled: CheckCancelled = lambda: None
    ) -> float:
        """Return the class-balanced cross-entropy of some rows."""
        return balanced_loss(
            log_probabilities(self.feed, rows, network, check_cancelled), self.feed.label[rows]
        )


def start_state(feed: BatchData, rows: IntArray, recipe: Recipe) -> State:
    """Draw a network's first weights, and take the scale of its input from the rows that it will learn."""
    torch = need_torch()
    network, (mean, scale) = build(recipe), frame_scale(feed.table, rows)
    draw = torch.Generator().manual_seed(stream(recipe.seed, recipe.member, "weights"))
    with torch.no_grad():
        for name, tensor in network.named_parameters():
            bound = 1.0 / math.sqrt(
                recipe.dimension if name.startswith("narrow") else recipe.hidden
            )
            tensor.uniform_(-bound, bound, generator=draw)
        network.mean.copy_(torch.from_numpy(mean))
        network.scale.copy_(torch.from_numpy(scale))
    network.to(feed.frames.device)
    settings = {"lr": recipe.learning_rate, "weight_decay": recipe.decay, "fused": True}
    return State(network, torch.optim.AdamW(network.parameters(), **settings))


def balanced_loss(scores: FloatArray, label: IntArray) -> float:
    """Return the mean cross-entropy of each class that is there, averaged over them; `scores` are log-probabilities."""
    losses = -scores[np.arange(len(label)), label]
    return float(np.mean([losses[label == n].mean() for n in np.unique(label)]))
