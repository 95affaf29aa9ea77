"""Tensors on a device ↔ arrays by name, for all rivals that torch trains. torch is imported when it is used."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from numpy.typing import NDArray

from callshot.baselines.sequence_batches import Table
from callshot.errors import InputError, OptionError
from callshot.records import IntArray

MEMORY = ("step", "exp_avg", "exp_avg_sq")  # what AdamW remembers of a parameter
Arrays = Mapping[str, NDArray[Any]]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class BatchData:
    """Frames, also on a device, and what is to be learnt of each row: a label, or a truth for each output."""

    table: Table
    frames: Any
    label: NDArray[Any]


def need_torch() -> Any:
    """Import torch, or say how to get it, and safetensors."""
    try:
        import_module("safetensors")
        return import_module("torch")
    except ImportError as error:
        raise InputError(
            f"trained rivals: {error.name} is missing; pip install 'callshot[rivals]'"
        ) from error


def open_feed(table: Table, label: NDArray[Any], device: str) -> BatchData:
    """Put the frames on a device."""
    torch = need_torch()
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise OptionError("device: cuda is not there for torch; use cpu")
    return BatchData(table, torch.from_numpy(table.frames).to(device), label)


def tell_rows(feed: BatchData, rows: IntArray, groups: IntArray) -> list[tuple[str, Any, int]]:
    """Tell all of some rows that decides a training: a hash of the frames, what is learnt of them, the recording.

    A recording, of which `groups` has one for each row of the feed, is told as the first of these rows that is its own,
    so that no number of theirs matters.
    """
    first = {group: n for n, group in reversed([*enumerate(groups[rows].tolist())])}
    return [
        (feed.table.hashes[row], feed.label[row].tolist(), first[int(groups[row])])
        for row in rows.tolist()
    ]


def drop(values: Any, share: float, draw: Any) -> Any:
    """Set a share of the values to 0 and raise the others; all stay as they are without a generator."""
    if draw is None:
        return values
    kept = need_torch().rand(values.shape, generator=draw, device=values.device) >= share
    return values * kept / (1.0 - share)


def shapes(network: Any) -> tuple[Shapes, Shapes]:
    """Return the shapes of a network's tensors, and of what its optimiser remembers."""
    weights = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    memory: Shapes = {}
    for name, tensor in network.named_parameters():
        memory |= {
            f"{part}.{name}": () if part == "step" else tuple(tensor.shape) for part in MEMORY
        }
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


def memory_of(network: Any, optimiser: Any) -> Arrays:
    """Return what an optimiser remembers of a network."""
    found: dict[str, Any] = {}
    for name, tensor in network.named_parameters():
        found |= {f"{part}.{name}": optimiser.state[tensor][part].cpu().numpy() for part in MEMORY}
    return found


def give_memory(network: Any, optimiser: Any, arrays: Arrays) -> None:
    """Let an optimiser remember what another did."""
    torch = need_torch()
    for name, tensor in network.named_parameters():
        kept = {
            part: torch.from_numpy(arrays[f"{part}.{name}"]).to(tensor.device) for part in MEMORY
        }
        optimiser.state[tensor] = kept
