"""Trainings ↔ files, so that nothing is trained twice, and what was interrupted goes on where it was.

    NAME.checkpoint.safetensors   weights, and what AdamW remembers, after the last epoch; its header tells of it
    NAME.search.json              the losses of the rows held out, by epoch
    NAME.safetensors              the weights of a finished network
    NAME.json                     the key, which is all that decides them; written last, and nothing without them

A name ends in the hash of the key, so that another corpus, recipe or version finds nothing of this one. Files are read
and checked before anything is trained; one that is not what it must be is refused, never overwritten.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError, OutputError

Arrays = Mapping[str, NDArray[Any]]
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Checkpoint:
    """A training after an epoch: `phase` is `search` or `all`."""

    phase: str
    epoch: int
    losses: Sequence[float]
    arrays: Arrays


@dataclass(frozen=True)
class Found:
    """What is there of a training; weights were checked, and are read again when they are used: they may be many."""

    losses: Sequence[float] | None
    weights: Callable[[], Arrays] | None
    checkpoint: Checkpoint | None


@dataclass(frozen=True)
class CheckpointStore:
    """Where one training is kept."""

    folder: Path
    name: str
    key: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """The finished weights; the other files are named after them."""
        digest = sha256(json.dumps(self.key, sort_keys=True).encode()).hexdigest()[:16]
        return self.folder / f"{self.name}-{digest}.safetensors"

    def read(self, weights: Shapes, memory: Shapes) -> Found:
        """Return what is there, checked; the shapes are those that the weights and the optimiser's memory have."""
        losses = self._losses()
        if self._told(".json") is None or not self.path.exists():
            return Found(losses, None, self._checkpoint({**weights, **memory}))
        finished = partial(_read_weights, self.path, weights)
        finished()
        return Found(losses, finished, None)

    def save_search(self, losses: Sequence[float]) -> None:
        """Keep the losses of a search that is over."""
        self._write(".search.json", _json({"key": self.key, "losses": list(losses)}))
        self._drop_checkpoint()

    def save_weights(self, weights: Arrays, facts: Mapping[str, Any]) -> None:
        """Keep a finished network."""
        self._write(".safetensors", _pack_arrays(weights, {}))
        self._write(".json", _json({"key": self.key, **facts}))
        self._drop_checkpoint()

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Keep where a training stands, in place of where it stood."""
        about = {
            "phase": checkpoint.phase,
            "epoch": checkpoint.epoch,
            "losses": list(checkpoint.losses),
        }
        self._write(".checkpoint.safetensors", _pack_arrays(checkpoint.arrays, about))

    def _checkpoint(self, shapes: Shapes) -> Checkpoint | None:
        path = self.path.with_suffix(".checkpoint.safetensors")
        if not path.exists():
            return None
        arrays, about = _read_arrays(path, shapes)
        try:
            return Checkpoint(
                str(about["phase"]), int(about["epoch"]), _numbers(about["losses"]), arrays
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise _refusal(path, "wanted a checkpoint of callshot's") from error

    def _losses(self) -> list[float] | None:
        told = self._told(".search.json")
        try:
            return None if told is None else _numbers(told["losses"])
        except (KeyError, TypeError, OverflowError) as error:
            raise _refusal(
                self.path.with_suffix(".search.json"), "wanted losses, a list of numbers"
            ) from error

    def _told(self, suffix: str) -> dict[str, Any] | None:
        path = self.path.with_suffix(suffix)
        if not path.exists():
            return None
        try:
            told = json.loads(path.read_text("utf-8"))
            if told["key"] == json.loads(json.dumps(self.key)):
                return dict(told)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise _refusal(path, f"cannot be read ({error})") from error
        raise _refusal(path, "wanted the key that its name ends in, found another")

    def _write(self, suffix: str, content: bytes) -> None:
        path = self.path.with_suffix(suffix)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._drop_leftovers()
            with part.open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())  # or a power loss may leave the name without the content
            part.replace(path)
        except OSError as error:
            raise OutputError(
                f"{path}: cannot be written ({error.strerror}); make room and run again"
            ) from error
        finally:
            with suppress(OSError):
                part.unlink()

    def _drop_leftovers(self) -> None:
        """Remove what processes left that died while they wrote files of this training."""
        for part in self.folder.glob(f".{self.path.stem}.*.part"):
            if not _is_another_alive(part.suffixes[-2][1:]):
                with suppress(OSError):
                    part.unlink()

    def _drop_checkpoint(self) -> None:
        with suppress(OSError):
            self.path.with_suffix(".checkpoint.safetensors").unlink()


def _is_another_alive(number: str) -> bool:
    """Say whether a process of that number runs, other than this one, which writes one file of a training at a time."""
    if not number.isdecimal() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        return True
    return True


def _numbers(found: Any) -> list[float]:
    """Return losses as they were told; a TypeError where they are others than numbers."""
    if not isinstance(found, list) or not all(type(value) in (int, float) for value in found):
        raise TypeError
    return [float(value) for value in found]


def _json(told: Mapping[str, Any]) -> bytes:
    return (json.dumps(told, indent=1, sort_keys=True) + "\n").encode()


def _pack_arrays(arrays: Arrays, about: Mapping[str, Any]) -> bytes:
    """Make a file of tensors, with what is told of them, and their hash, in its header."""
    plain = {name: np.asarray(array, order="C") for name, array in sorted(arrays.items())}
    header = json.dumps({**about, "sha256": _digest(plain)}, sort_keys=True)
    return bytes(import_module("safetensors.numpy").save(plain, metadata={"callshot": header}))


def _read_arrays(path: Path, shapes: Shapes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read tensors and what is told of them; refuse others than those wanted."""
    try:
        with import_module("safetensors").safe_open(path, framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = dict(json.loads(file.metadata()["callshot"]))
    except Exception as error:  # safetensors has its own
        raise _refusal(path, f"cannot be read ({' '.join(str(error).split())[:200]})") from error
    found = {name: array.shape for name, array in arrays.items()}
    for name in sorted({*found, *shapes}):
        if found.get(name) != shapes.get(name):
            raise _refusal(
                path, f"wanted {name} of shape {shapes.get(name)}, found {found.get(name)}"
            )
    if _digest(arrays) != about.get("sha256"):
        raise _refusal(path, "wanted tensors of the hash in its header, found others")
    return arrays, about


def _read_weights(path: Path, shapes: Shapes) -> Arrays:
    return _read_arrays(path, shapes)[0]


def _digest(arrays: Arrays) -> str:
    return sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


def _refusal(path: Path, why: str) -> InputError:
    return InputError(f"{path}: {why}; remove it to train anew")
