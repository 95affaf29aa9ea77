"""Save and load trainings, so that nothing is trained twice and an interrupted training resumes.

A training is one safetensors file. Its header has the key, which is everything that decides the
weights, and how far the training is. The name ends in a hash of the key: another corpus,
configuration or version has another file. Files are checked before anything is trained; a damaged
one is an error and never overwritten.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from callshot.errors import InputError
from callshot.files import atomic_path, error_reason, remove_unfinished, sha256_text

Tensors = Mapping[str, Any]
HEADER = "callshot"  # one entry only: safetensors writes several in random order


@dataclass(frozen=True)
class Checkpoint:
    """How far a training is.

    `phase` is `search` (for the number of epochs), `searched`, `all` (training on all rows) or
    `finished`, `epoch` the number of epochs of this phase. `losses` are those of the held-out rows
    after each epoch of the search.
    """

    phase: str = "search"
    epoch: int = 0
    losses: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class CheckpointStore:
    """The file of one training; without a folder nothing is saved."""

    folder: Path | None
    name: str
    key: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """The path of the file."""
        digest = sha256_text(json.dumps(self.key, sort_keys=True))
        return Path(self.folder or "") / f"{self.name}-{digest[:16]}.safetensors"

    def read(self) -> Checkpoint:
        """Return how far earlier runs got, after checking the file; remove unfinished files."""
        if self.folder is None:
            return Checkpoint()
        remove_unfinished(self.folder, f"{self.path.stem}*")
        if not self.path.exists():
            return Checkpoint()
        facts, _ = self._read_file()
        return Checkpoint(**facts)

    def read_tensors(self) -> Tensors:
        """Return the tensors of the file."""
        _, tensors = self._read_file()
        return tensors

    def save(self, checkpoint: Checkpoint, tensors: Tensors) -> None:
        """Write the file in place of the previous one."""
        if self.folder is None:
            return
        from safetensors.torch import save

        arrays = {name: tensor.cpu() for name, tensor in tensors.items()}
        facts = asdict(checkpoint)
        header = {"key": self.key, **facts, "sha256": self._checksum(facts, arrays)}
        with atomic_path(self.path) as temporary:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(
                save(arrays, {HEADER: json.dumps(header, sort_keys=True)})
            )

    def _read_file(self) -> tuple[dict[str, Any], Tensors]:
        from safetensors import safe_open

        try:
            with safe_open(self.path, framework="pt") as file:
                names = file.keys()
                # Copies, because the tensors themselves would keep the file open.
                tensors = {name: file.get_tensor(name).clone() for name in names}
                facts = json.loads(file.metadata()[HEADER])
            del facts["key"]
            checksum = facts.pop("sha256")
        except Exception as error:  # safetensors has its own errors
            raise self._error(f"cannot be read ({error_reason(error)})") from error
        if checksum != self._checksum(facts, tensors):
            raise self._error(
                "expected content with the checksum in its header, got another"
            )
        return facts, tensors

    def _checksum(self, facts: Mapping[str, Any], tensors: Tensors) -> str:
        """Return a hash of the content and the name, which has a hash of the key."""
        text = json.dumps(facts, sort_keys=True)
        digest = sha256(f"{self.path.name} {text}".encode())
        for name, tensor in sorted(tensors.items()):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()

    def _error(self, problem: str) -> InputError:
        return InputError(f"{self.path}: {problem}; remove it to train again")
