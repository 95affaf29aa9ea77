"""Save and load trainings, so that nothing is trained twice and an interrupted training resumes.

    NAME.checkpoint.safetensors   network and optimizer after the last epoch
    NAME.search.json              loss of the held-out rows after each epoch
    NAME.safetensors              weights of a finished network
    NAME.json                     the key, which is everything that decides them; written last

A name ends in a hash of the key: another corpus, configuration or version has other files.
Files are checked before anything is trained; a damaged one is an error and never overwritten.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from callshot.errors import InputError
from callshot.files import atomic_path, error_reason, remove_unfinished, sha256_text

Tensors = Mapping[str, Any]
Facts = Mapping[str, Any]

HEADER = "callshot"  # one entry only: safetensors writes several in random order

WEIGHTS = ".safetensors"
CHECKPOINT = ".checkpoint.safetensors"
FINISHED = ".json"
SEARCH = ".search.json"


@dataclass(frozen=True)
class Checkpoint:
    """A training after an epoch; `phase` is `search` or `all`."""

    phase: str
    epoch: int
    losses: list[float]
    tensors: Tensors = field(repr=False)


@dataclass(frozen=True)
class SavedTraining:
    """What earlier runs left of a training."""

    losses: list[float] | None = None
    is_finished: bool = False
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True)
class CheckpointStore:
    """The files of one training; without a folder it saves nothing."""

    folder: Path | None
    name: str
    key: Mapping[str, Any]

    def path(self, suffix: str) -> Path:
        """Return the path of one of the files."""
        digest = sha256_text(json.dumps(self.key, sort_keys=True))
        return Path(self.folder or ".") / f"{self.name}-{digest[:16]}{suffix}"

    def read(self) -> SavedTraining:
        """Return what earlier runs left, after checking it; remove their unfinished files."""
        if self.folder is None:
            return SavedTraining()
        remove_unfinished(self.folder, f"{self.path('').name}*")
        losses = self._read_losses()
        if self._read_json(FINISHED) is None or not self.path(WEIGHTS).exists():
            return SavedTraining(losses, checkpoint=self._read_checkpoint())
        self.read_weights()
        return SavedTraining(losses, is_finished=True)

    def read_weights(self) -> Tensors:
        """Return the weights of a finished network."""
        return self._read_tensors(WEIGHTS)[0]

    def save_search(self, losses: list[float]) -> None:
        """Save the losses of a finished search."""
        self._write_json(SEARCH, {"losses": losses})

    def save_weights(self, weights: Tensors, facts: Facts) -> None:
        """Save a finished network and facts about its training."""
        self._write_tensors(WEIGHTS, weights, {})
        self._write_json(FINISHED, facts)

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Save the state of a training in place of the previous one."""
        facts = {
            "phase": checkpoint.phase,
            "epoch": checkpoint.epoch,
            "losses": checkpoint.losses,
        }
        self._write_tensors(CHECKPOINT, checkpoint.tensors, facts)

    def _read_checkpoint(self) -> Checkpoint | None:
        if not self.path(CHECKPOINT).exists():
            return None
        tensors, facts = self._read_tensors(CHECKPOINT)
        return Checkpoint(**facts, tensors=tensors)

    def _read_losses(self) -> list[float] | None:
        content = self._read_json(SEARCH)
        if content is None:
            return None
        losses = content.get("losses")
        if not isinstance(losses, list) or not all(type(loss) is float for loss in losses):
            raise _unusable(self.path(SEARCH), "expected losses, a list of numbers")
        return losses

    def _read_json(self, suffix: str) -> dict[str, Any] | None:
        path = self.path(suffix)
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text("utf-8"))
            key = content["key"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise _unusable(path, f"cannot be read ({error_reason(error)})") from error
        if key != json.loads(json.dumps(self.key)):
            raise _unusable(path, "expected the key that its name ends in, got another key")
        return dict(content)

    def _read_tensors(self, suffix: str) -> tuple[Tensors, dict[str, Any]]:
        """Return tensors and facts from the header, after checking their checksum."""
        from safetensors import safe_open

        path = self.path(suffix)
        try:
            with safe_open(path, framework="pt") as file:
                names = file.keys()
                # Copies, because the tensors themselves would keep the file open.
                tensors = {name: file.get_tensor(name).clone() for name in names}
                facts = json.loads(file.metadata()[HEADER])
            checksum = facts.pop("sha256")
        except Exception as error:  # safetensors has its own errors
            raise _unusable(path, f"cannot be read ({error_reason(error)})") from error
        if checksum != self._checksum(tensors, facts):
            raise _unusable(path, "expected the checksum in its header, got another content")
        return tensors, facts

    def _checksum(self, tensors: Tensors, facts: Facts) -> str:
        """Return a hash of tensors and facts that no other training shares."""
        text = json.dumps(facts, sort_keys=True)
        digest = sha256(f"{self.path('').name} {text}".encode())
        for name in sorted(tensors):
            digest.update(f"{name} {tuple(tensors[name].shape)}".encode())
            digest.update(tensors[name].numpy().tobytes())
        return digest.hexdigest()

    def _write_tensors(self, suffix: str, tensors: Tensors, facts: Facts) -> None:
        if self.folder is None:
            return
        from safetensors.torch import save

        arrays = {name: tensor.cpu() for name, tensor in tensors.items()}
        header = {**facts, "sha256": self._checksum(arrays, facts)}
        self._write(suffix, save(arrays, {HEADER: json.dumps(header, sort_keys=True)}))

    def _write_json(self, suffix: str, facts: Facts) -> None:
        """Write facts of a finished phase, then remove the checkpoint that led there."""
        if self.folder is None:
            return
        text = json.dumps({"key": self.key, **facts}, indent=1, sort_keys=True)
        self._write(suffix, f"{text}\n".encode())
        with suppress(OSError):
            self.path(CHECKPOINT).unlink()

    def _write(self, suffix: str, content: bytes) -> None:
        path = self.path(suffix)
        with atomic_path(path) as temporary:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content)


def _unusable(path: Path, problem: str) -> InputError:
    return InputError(f"{path}: {problem}; remove it to train again")
