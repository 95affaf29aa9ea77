"""An encoder of patches → a classifier of frames, and its lesson; frames of rows → the log-odds of each output.

    log-mel frames → patches of 16 × 16 → encoder → mean over the 8 patches of a column → linear → sigmoid

A column is what is called a frame there: 160 ms. The linear layer and the mean change places without changing anything.
The score of a segment is the mean of its frames' log-odds.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.crops import (
    HEIGHT,
    Crops,
    cut_by_chance,
    cut_whole,
    in_even_batches,
    line_up_cuts,
)
from callshot.baselines.executor import CheckCancelled
from callshot.baselines.sequence_batches import deal_batches
from callshot.baselines.spectrogram import PATCH, FrontEnd
from callshot.baselines.torch_arrays import Arrays, BatchData, drop, give_weights, need_torch
from callshot.baselines.train_loop import State, stream
from callshot.baselines.transformer import Dropout
from callshot.records import FloatArray, IntArray

TOGETHER = 32  # cuts that are scored at once


class Encoder(Protocol):
    """A family of networks with its sizes."""

    @property
    def title(self) -> str: ...  # noqa: D102

    @property
    def width(self) -> int: ...  # noqa: D102

    @property
    def front(self) -> FrontEnd: ...  # noqa: D102

    def build(self) -> Any:
        """Make the modules, whose weights are still to come."""

    def encode(self, parts: Any, patches: Any, there: Any, loosen: Dropout) -> Any:
        """Return tokens (cuts, columns, 8, width) of patches (cuts, columns, 8, 256)."""

    def draw(self, parts: Any, draw: Any) -> None:
        """Give first weights."""


@dataclass(frozen=True)
class Recipe:
    """All that decides a network and its training, but for the rows."""

    encoder: Encoder
    outputs: int
    init: str | None = None  # hash of the weights that it begins with
    seed: int = 0  # of all draws
    member: int = 0  # of those that are averaged: each has its own draws, and its own inner fold
    inner_folds: int = 4
    batch: int = 16
    rate: float = 5e-4
    warm: int = 20  # steps in which the rate rises
    decay: float = 5e-2
    dropout: float = 0.1
    clip: float = 1.0
    epochs: int = 60
    patience: int = 8

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return sum(tensor.numel() for tensor in outline(self).parameters())


def outline(recipe: Recipe) -> Any:
    """Make a network that has shapes and no numbers, which takes neither time nor memory."""
    with need_torch().device("meta"):
        return build(recipe)


def build(recipe: Recipe) -> Any:
    """Make a network whose weights are still to come."""
    torch = need_torch()
    head = torch.nn.Linear(recipe.encoder.width, recipe.outputs)
    return torch.nn.ModuleDict({"encoder": recipe.encoder.build(), "head": head})


def frame_log_odds(
    encoder: Encoder,
    network: Any,
    frames: Any,
    there: Any = None,
    loosen: Dropout = lambda values: values,
) -> Any:
    """Return log-odds (cuts, columns, outputs) of frames (cuts, 16 × columns, 128); `there` is (cuts, columns).

    On a GPU the encoder works with bfloat16.
    """
    torch = need_torch()
    patches = (
        frames.unflatten(1, (-1, PATCH)).unflatten(-1, (HEIGHT, PATCH)).transpose(2, 3).flatten(-2)
    )
    with torch.autocast("cuda", torch.bfloat16) if frames.is_cuda else nullcontext():
        tokens = encoder.encode(network["encoder"], patches, there, loosen)
    return network["head"](tokens.float().mean(dim=2))


def log_odds(
    feed: BatchData,
    rows: IntArray,
    encoder: Encoder,
    network: Any,
    check_cancelled: CheckCancelled = lambda: None,
) -> FloatArray:
    """Return the log-odds of some rows, (rows, outputs): of each, the mean over all of its frames."""
    torch = need_torch()
    total, count = (
        np.zeros((len(feed.label), network["head"].out_features)),
        np.zeros((len(feed.label), 1)),
    )
    with torch.inference_mode():
        for cuts in in_even_batches(cut_whole(feed.table.lengths, rows), TOGETHER):
            check_cancelled()
            frames, there = _load(feed, cuts)
            found = frame_log_odds(encoder, network, frames, there).double()
            found = found.sum(dim=1) if there is None else (found * there[:, :, None]).sum(dim=1)
            np.add.at(total, cuts.row, found.cpu().numpy())
            np.add.at(count, cuts.row, cuts.columns[:, None])
    return np.asarray(total[rows] / count[rows])


def _load(feed: BatchData, cuts: Crops) -> tuple[Any, Any]:
    """Return the frames of cuts, on the device, and which columns are there; None where all are."""
    torch, device = need_torch(), feed.frames.device
    places, there = line_up_cuts(feed.table, cuts)
    frames = feed.frames[torch.from_numpy(places).to(device)]
    return frames, None if there.all() else torch.from_numpy(there).to(device)


@dataclass(frozen=True)
class FrameLesson:
    """A network on the frames of a feed; `first` are the weights that its encoder begins with, if it has any."""

    feed: BatchData
    recipe: Recipe
    first: Arrays | None = None

    def build(self) -> Any:
        """Make a network whose weights are still to come."""
        return build(self.recipe)

    def start(self, rows: IntArray) -> State:
        """Take the encoder's first weights, or draw them; the head begins with zeros."""
        torch, recipe, network = need_torch(), self.recipe, self.build()
        if self.first is None:
            draw = torch.Generator().manual_seed(stream(recipe.seed, recipe.member, "weights"))
            recipe.encoder.draw(network["encoder"], draw)
        else:
            give_weights(network["encoder"], self.first)
        for tensor in network["head"].parameters():
            torch.nn.init.zeros_(tensor)
        network.to(self.feed.frames.device)
        settings = {"lr": recipe.rate, "weight_decay": recipe.decay, "fused": True}
        return State(network, torch.optim.AdamW(network.parameters(), **settings))

    def run_epoch(
        self, rows: IntArray, state: State, check_cancelled: CheckCancelled = lambda: None
    ) -> None:
        """Learn a piece of every row once; every frame has the truth of its segment."""
        torch, recipe = need_torch(), self.recipe
        steps = state.epoch * -(-len(rows) // recipe.batch)
        weights = balance(self.feed.label[rows])
        for n, (cuts, frames, there, loosen) in enumerate(self._batches(rows, state)):
            check_cancelled()
            state.optimiser.param_groups[0]["lr"] = recipe.rate * min(
                1.0, (steps + n + 1) / recipe.warm
            )
            found = frame_log_odds(recipe.encoder, state.network, frames, there, loosen)
            state.optimiser.zero_grad()
            frame_loss(found, there, self.feed.label[cuts.row], weights).backward()
            torch.nn.utils.clip_grad_norm_(state.network.parameters(), recipe.clip)
            state.optimiser.step()

    def _batches(self, rows: IntArray, state: State) -> Iterator[tuple[Crops, Any, Any, Dropout]]:
        """Yield cuts by chance, their frames, which columns are there, and what drops values."""
        torch, recipe, device = need_torch(), self.recipe, self.feed.frames.device
        rng = np.random.default_rng(stream(recipe.seed, recipe.member, "order", state.epoch))
        draw = torch.Generator(device).manual_seed(
            stream(recipe.seed, recipe.member, "dropout", state.epoch)
        )
        for batch in deal_batches(self.feed.table, rows, recipe.batch, rng):
            cuts = cut_by_chance(self.feed.table.lengths, batch, rng)
            frames, there = _load(self.feed, cuts)
            yield cuts, frames, there, lambda values: drop(values, recipe.dropout, draw)

    def loss(
        self, rows: IntArray, network: Any, check_cancelled: CheckCancelled = lambda: None
    ) -> float:
        """Return the cross-entropy of some rows by their scores, every output and its two sides alike."""
        scores, truth = (
            log_odds(self.feed, rows, self.recipe.encoder, network, check_cancelled),
            self.feed.label[rows],
        )
        return float(
            np.average(
                np.logaddexp(0.0, np.where(truth, -scores, scores)), weights=_side_weight(truth)
            )
        )


def balance(truth: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """Return what a positive and a negative of each output weigh, so that both sides of it weigh alike.

    >>> balance(np.array([[True], [False], [False], [False]]))
    (array([2.]), array([0.66666667]))
    """
    positive = truth.sum(axis=0)
    half = len(truth) / 2.0
    return half / np.maximum(positive, 1), half / np.maximum(len(truth) - positive, 1)


def _side_weight(truth: NDArray[np.bool_]) -> FloatArray:
    return np.asarray(np.where(truth, *balance(truth)))


def frame_loss(
    found: Any, there: Any, truth: NDArray[np.bool_], weights: tuple[FloatArray, FloatArray]
) -> Any:
    """Return the weighted cross-entropy of log-odds (cuts, columns, outputs): mean over frames, then over the rest."""
    torch = need_torch()
    weight = torch.from_numpy(np.where(truth, *weights).astype(np.float32)).to(found.device)
    wanted = torch.from_numpy(truth.astype(np.float32)).to(found.device)[:, None].expand_as(found)
    losses = torch.nn.functional.binary_cross_entropy_with_logits(found, wanted, reduction="none")
    if there is None:
        return (losses.mean(dim=1) * weight).mean()
    return ((losses * there[:, :, None]).sum(dim=1) / there.sum(dim=1)[:, None] * weight).mean()
