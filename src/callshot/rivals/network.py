"""A recipe → a recurrent network; frames of rows → their log-probabilities.

    frames → standardised → (linear, where they are wide) → Elman, GRU or LSTM → mean over time → linear over classes

torch is imported when it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError, OptionError
from callshot.records import FloatArray, IntArray
from callshot.rivals.sequences import Table, in_batches, line_up

CELLS = {"elman": ("RNN", 1), "gru": ("GRU", 3), "lstm": ("LSTM", 4)}  # torch's name, and matrices of each kind
HIDDEN = {"elman": 128, "gru": 64, "lstm": 56}  # with which the three have about as many parameters
NARROW, NARROW_WEIGHTS = 64, 50_000  # a wider input is brought to that width, or to as much as these weights allow
FARTHEST = 10.0  # standard deviations from the mean, beyond which a value is cut
TOGETHER = 64  # rows that are scored at once
MEMORY = ("step", "exp_avg", "exp_avg_sq")  # what AdamW remembers of a parameter
Arrays = Mapping[str, NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]


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
        return self.dimension if self.dimension <= NARROW else max(1, min(NARROW, NARROW_WEIGHTS // self.dimension))

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


@dataclass(frozen=True)
class Feed:
    """Frames, also on a device, and the label of each row."""

    table: Table
    frames: Any
    label: IntArray


def need_torch() -> Any:
    """Import torch, or say how to get it, and safetensors."""
    try:
        import_module("safetensors")
        return import_module("torch")
    except ImportError as error:
        raise InputError(f"recurrent rivals: {error.name} is missing; pip install 'callshot[rivals]'") from error


def open_feed(table: Table, label: IntArray, device: str) -> Feed:
    """Put the frames on a device."""
    torch = need_torch()
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise OptionError("device: cuda is not there for torch; use cpu")
    return Feed(table, torch.from_numpy(table.frames).to(device), label)


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


def forward(feed: Feed, rows: IntArray, network: Any, dropout: float = 0.0, draw: Any = None) -> Any:
    """Return the logits of rows; with a generator, a share of what passes is dropped.

    Rows are filled up behind, and left out of the mean there: what counts is as in a batch that torch packs, whose
    backward pass takes 3 to 18 times as long on a CPU.
    """
    torch, device = need_torch(), feed.frames.device
    places, there = (torch.from_numpy(array).to(device) for array in line_up(feed.table, rows))
    frames = ((feed.frames[places] - network.mean) * network.scale).clamp(-FARTHEST, FARTHEST)
    if "narrow" in network:
        frames = network["narrow"](_drop(frames, dropout, draw))
    outputs, _ = network["cell"](frames)
    pooled = (outputs * there[:, :, None]).sum(dim=0) / there.sum(dim=0)[:, None]
    return network["head"](_drop(pooled, dropout, draw))


def _drop(values: Any, share: float, draw: Any) -> Any:
    if draw is None:
        return values
    kept = need_torch().rand(values.shape, generator=draw, device=values.device) >= share
    return values * kept / (1.0 - share)


def log_probabilities(feed: Feed, rows: IntArray, network: Any) -> FloatArray:
    """Return the log-probabilities of some rows, (rows, classes), in their order."""
    torch = need_torch()
    found = np.empty((len(feed.label), network["head"].out_features))
    with torch.inference_mode():
        for batch in in_batches(feed.table, rows, TOGETHER):
            logits = forward(feed, batch, network)
            found[batch] = torch.log_softmax(logits.double(), dim=1).cpu().numpy()
    return found[rows]


def shapes(recipe: Recipe) -> tuple[Shapes, Shapes]:
    """Return the shapes of a network's tensors, and of what its optimiser remembers."""
    network = build(recipe)
    weights = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    memory: Shapes = {}
    for name, tensor in network.named_parameters():
        memory |= {f"{part}.{name}": () if part == "step" else tuple(tensor.shape) for part in MEMORY}
    return weights, memory


def weights_of(network: Any) -> Arrays:
    """Return a network's tensors."""
    return {name: tensor.cpu().numpy() for name, tensor in network.state_dict().items()}


def give_weights(network: Any, weights: Arrays) -> None:
    """Put tensors into a network."""
    torch = need_torch()
    with torch.no_grad():
        for name, tensor in network.state_dict().items():
            tensor.copy_(torch.from_numpy(weights[name]))
