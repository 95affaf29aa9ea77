"""Jobs → trained networks, by epochs that can be taken up where they ended.

A training has two phases. `search` leaves an inner fold of recordings out, until the loss on it has stopped falling:
that tells how many epochs. `all` trains anew on the whole support side, for as many. What is kept of either is not done
again. Every draw is a function of (seed, purpose, epoch), so that a state is its tensors and its epoch, and a training
that was stopped ends in the weights that it would have had.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from callshot.records import FloatArray, IntArray
from callshot.rivals.jobs import Job, Watch
from callshot.rivals.keeping import Checkpoint
from callshot.rivals.network import (
    MEMORY,
    Arrays,
    Feed,
    Recipe,
    build,
    forward,
    give_weights,
    log_probabilities,
    need_torch,
    weights_of,
)
from callshot.rivals.sequences import deal_batches, frame_scale

EPOCHS = 20  # where nothing can be held out


@dataclass
class State:
    """A training between two epochs; `losses` are those of the rows held out, after each."""

    network: Any
    optimiser: Any
    epoch: int = 0
    losses: list[float] = field(default_factory=list)

    def is_stale(self, patience: int) -> bool:
        """Say whether the loss has not fallen for that many epochs."""
        return bool(self.losses) and self.epoch - best_epoch(self.losses) >= patience


After = Callable[[State], None]


def search(job: Job, watch: Watch) -> Sequence[float]:
    """Return the loss of the rows held out after each epoch; nothing where none can be."""
    if job.found.losses is not None:
        return job.found.losses
    losses = list[float]()
    if job.held.any():
        rows, held = job.side.rows[~job.held], job.side.rows[job.held]
        losses = _train(job, watch, "search", rows, held, job.recipe.epochs).losses
    job.shelf.save_search(losses)
    return losses


def learn(job: Job, watch: Watch) -> tuple[Any, int]:
    """Return a network that is trained on the whole support side, and its epochs."""
    losses = search(job, watch)
    epochs = best_epoch(losses) if losses else EPOCHS
    if job.found.weights is not None:
        network = build(job.recipe)
        give_weights(network, job.found.weights)
        return network.to(job.side.feed.frames.device), epochs
    network = _train(job, watch, "all", job.side.rows, job.side.rows[:0], epochs).network
    facts = {"epochs": epochs, "parameters": job.recipe.parameters, "losses": list(losses)}
    job.shelf.save_weights(weights_of(network), facts)
    return network, epochs


def _train(job: Job, watch: Watch, phase: str, rows: IntArray, held: IntArray, epochs: int) -> State:
    """Train from the start, or from the last epoch that was kept of this phase."""
    state, kept = start_state(job.side.feed, rows, job.recipe), job.found.checkpoint
    if kept is not None and kept.phase == phase:
        take_up(state, kept.arrays, kept.epoch, kept.losses)

    def after(state: State) -> None:
        arrays = {**weights_of(state.network), **memory_of(state)}
        job.shelf.save_checkpoint(Checkpoint(phase, state.epoch, state.losses, arrays))
        watch.report(0.0, f"{job.title}, {phase}: epoch {state.epoch}")
        watch.go_on()

    run_epochs(job.side.feed, rows, held, job.recipe, state, epochs, after)
    return state


def start_state(feed: Feed, rows: IntArray, recipe: Recipe) -> State:
    """Draw a network's first weights, and take the scale of its input from the rows that it will learn."""
    torch = need_torch()
    network, (mean, scale) = build(recipe), frame_scale(feed.table, rows)
    draw = torch.Generator().manual_seed(_stream(recipe, "weights"))
    with torch.no_grad():
        for name, tensor in network.named_parameters():
            bound = 1.0 / math.sqrt(recipe.dimension if name.startswith("narrow") else recipe.hidden)
            tensor.uniform_(-bound, bound, generator=draw)
        network.mean.copy_(torch.from_numpy(mean))
        network.scale.copy_(torch.from_numpy(scale))
    network.to(feed.frames.device)
    settings = {"lr": recipe.learning_rate, "weight_decay": recipe.decay, "fused": True}
    return State(network, torch.optim.AdamW(network.parameters(), **settings))


def run_epochs(
    feed: Feed, rows: IntArray, held: IntArray, recipe: Recipe, state: State, epochs: int, after: After
) -> None:
    """Go on until there are so many epochs, or the loss of the rows held out has not fallen for `patience` of them."""
    weight = len(rows) / (recipe.classes * np.bincount(feed.label[rows], minlength=recipe.classes))
    while state.epoch < epochs and not state.is_stale(recipe.patience):
        _run_epoch(feed, rows, weight, recipe, state)
        state.epoch += 1
        if held.size:
            state.losses.append(balanced_loss(log_probabilities(feed, held, state.network), feed.label[held]))
        after(state)


def _run_epoch(feed: Feed, rows: IntArray, weight: FloatArray, recipe: Recipe, state: State) -> None:
    torch, device = need_torch(), feed.frames.device
    order = np.random.default_rng(_stream(recipe, "order", state.epoch))
    draw = torch.Generator(device).manual_seed(_stream(recipe, "dropout", state.epoch))
    weights = torch.from_numpy(weight.astype(np.float32)).to(device)
    for batch in deal_batches(feed.table, rows, recipe.batch, order):
        logits = forward(feed, batch, state.network, recipe.dropout, draw)
        label = torch.from_numpy(feed.label[batch]).to(device)
        losses = torch.nn.functional.cross_entropy(logits, label, reduction="none")
        state.optimiser.zero_grad()
        (losses * weights[label]).mean().backward()
        torch.nn.utils.clip_grad_norm_(state.network.parameters(), recipe.clip)
        state.optimiser.step()


def best_epoch(losses: Sequence[float]) -> int:
    """Return the number of epochs after which the loss was lowest.

    >>> best_epoch([1.1, 0.8, 0.9])
    2
    """
    return int(np.argmin(losses)) + 1


def balanced_loss(scores: FloatArray, label: IntArray) -> float:
    """Return the mean cross-entropy of each class that is there, averaged over them; `scores` are log-probabilities."""
    losses = -scores[np.arange(len(label)), label]
    return float(np.mean([losses[label == n].mean() for n in np.unique(label)]))


def memory_of(state: State) -> Arrays:
    """Return what the optimiser remembers."""
    found: dict[str, Any] = {}
    for name, tensor in state.network.named_parameters():
        found |= {f"{part}.{name}": state.optimiser.state[tensor][part].cpu().numpy() for part in MEMORY}
    return found


def take_up(state: State, arrays: Arrays, epoch: int, losses: Sequence[float]) -> None:
    """Bring a state to where another was."""
    torch = need_torch()
    give_weights(state.network, arrays)
    for name, tensor in state.network.named_parameters():
        kept = {part: torch.from_numpy(arrays[f"{part}.{name}"]).to(tensor.device) for part in MEMORY}
        state.optimiser.state[tensor] = kept
    state.epoch, state.losses = epoch, list(losses)


def _stream(recipe: Recipe, *purpose: object) -> int:
    """Return the seed of the draws for one purpose."""
    return int.from_bytes(sha256(repr((recipe.seed, recipe.member, *purpose)).encode()).digest()[:8], "little") >> 1
