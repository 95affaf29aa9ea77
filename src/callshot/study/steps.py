"""A step of a study: what decides its result, whether the result is there, and how it is made.

A step is done when its record (`step.json`, in its folder) has its key, a hash of its options and
the contents of its inputs, and its files are as in the record.
"""

import json
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from callshot.corpus.recordings import AUDIO_SUFFIXES, find_input_files
from callshot.errors import InputError, OutputError
from callshot.fewshot.dataset import describe_equal
from callshot.files import sha256_file, sha256_text, write_atomic
from callshot.records import Progress
from callshot.tables.embedding_tables import stored_checksum
from callshot.version import __version__

Input = Path | Callable[[], str]
Value = TypeVar("Value")
# Kinds in the order in which they run; all baselines follow. Sequences come before vectors: in
# the store, most vectors come with them.
FIRST_KINDS = ("segment", "sequence", "embed", "fold", "evaluate")
RECORD_FILE = "step.json"
EMBEDDINGS = "embeddings.parquet"
SAME_AS = "same_as.json"
MAX_NAME_LENGTH = 60  # of a folder, without its checksum


@dataclass(frozen=True)
class Step:
    """One step: `make`, which gets `progress`, writes files to a folder.

    An input is a file, a folder, or a function that returns a fingerprint of what matters in one.
    `after` are the steps whose files it reads. A step with a `record_folder` has its record there:
    its folder may have other files, and `make` returns the names of its own.
    """

    kind: str
    corpus: str
    encoder: str
    folder: Path
    options: Mapping[str, Any]
    inputs: Sequence[Input]
    make: Callable[..., Any]
    after: Sequence["Step"] = field(default=(), repr=False)
    record_folder: Path | None = None

    @property
    def name(self) -> str:
        """The name of the step on screen."""
        parts = (self.kind, self.corpus, self.encoder)
        return " ".join(filter(None, parts))

    @property
    def table(self) -> Path:
        """The table of embeddings, if it is a step that embeds."""
        return self.folder / EMBEDDINGS

    @property
    def record_path(self) -> Path:
        """The file that says that the step is done."""
        return (self.record_folder or self.folder) / RECORD_FILE

    def key(self) -> str:
        """Return the hash of everything that decides the result, as it is now."""
        inputs = [
            fingerprint(source) if isinstance(source, Path) else source()
            for source in self.inputs
        ]
        parts = {
            "step": self.kind,
            "callshot": __version__,
            "options": self.options,
            "inputs": inputs,
        }
        return sha256_text(json.dumps(parts, sort_keys=True, default=str))

    def is_done(self) -> bool:
        """Return whether the result is there and belongs to the inputs as they are now."""
        record = self.read_record()
        if not record:
            return False
        for name, digest in record["files"].items():
            if fingerprint(self.folder / name) != digest:
                return False
        return bool(record["key"] == self.key())

    def read_record(self) -> dict[str, Any]:
        """Return the record of a finished step; empty where there is none."""
        with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
            record = read_json(self.record_path)
            return {
                "key": str(record["key"]),
                "seconds": float(record["seconds"]),
                "files": dict(record["files"]),
            }
        return {}

    def run(self, progress: Progress) -> None:
        """Make the result, and then the record; without a record, the step is not done."""
        start_s = time.monotonic()
        key = self.key()
        try:
            self.record_path.parent.mkdir(parents=True, exist_ok=True)
            self.record_path.unlink(missing_ok=True)
            # Of its files, if others are there too.
            names = self.make(progress=progress)
            if self.record_folder is None:
                files = [path.name for path in self.folder.iterdir() if path.is_file()]
                # Copies of damaged files are no results.
                names = [name for name in files if ".before" not in name]
            record = {
                "key": key,
                "seconds": round(time.monotonic() - start_s, 3),
                "files": {name: fingerprint(self.folder / name) for name in names},
            }
            text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False)
            write_atomic(self.record_path, text + "\n")
        except OutputError:
            raise
        except OSError as error:
            where = error.filename or self.record_path.parent
            raise OutputError(
                f"{self.name}: {where}: {error.strerror or error}"
            ) from error


def fingerprint(
    path: Path, excluded: Sequence[Path] = (), *, follow_links: bool = False
) -> str:
    """Return a short text that changes when a file or folder does.

    A recording counts by its size and times, another file by its content, a folder with everything
    in it that may matter to a corpus, without `excluded` files and what callshot wrote there. What
    cannot be read is "nothing".
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            files = find_input_files(
                path, audio=True, exclude=excluded, follow_links=follow_links
            )
            return digest(
                [(str(file.relative_to(path)), fingerprint(file)) for file in files]
            )
        if not stat.S_ISREG(status.st_mode):
            return "no file"
        size = status.st_size
        times = (status.st_mtime_ns, status.st_ctime_ns)
        if path.suffix.lower() in AUDIO_SUFFIXES:
            return f"{size} bytes of {times[0]}, {times[1]}"
        return _cached_sha256(path, (size, *times, status.st_ino))
    except (OSError, ValueError):
        return "nothing"


@lru_cache(maxsize=4096)
def _cached_sha256(path: Path, identity: tuple[int, ...]) -> str:
    """Return the checksum of a file; `identity` changes when the file does."""
    return sha256_file(path)


def digest(value: object) -> str:
    """Return the hash of the representation of a value."""
    return sha256_text(repr(value))


def optional(value: Value | None) -> list[Value]:
    """Return a value as a list, empty where there is none."""
    return [] if value is None else [value]


def folder_name(name: str) -> str:
    """Return a safe name for a folder, different for different names."""
    plain = re.sub(r"[^\w.-]+", "_", name).lstrip(".")
    if plain == name and len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{plain[:MAX_NAME_LENGTH]}-{digest(name)[:8]}"


def measure_once(step: Step, embed: Step, earlier: Sequence[Step]) -> Step:
    """Return a step on the table of `embed` that does no work if an earlier table is the same.

    With speed=auto, vectors are those of the plain encoder where the chosen speed is 1. If one of
    the `earlier` steps of other encoders wrote the same vectors, the step writes the name of its
    encoder to the file SAME_AS instead of results. It runs again when that changes.
    """
    if not earlier:
        return step

    def find_equal() -> str:
        """Return the name of the first encoder with the same table, or nothing."""
        with suppress(InputError):  # a missing or damaged table is made again
            checksum = stored_checksum(embed.table)
            for other in earlier:
                with suppress(InputError):
                    if stored_checksum(other.table) == checksum:
                        return other.encoder
        return ""

    def make(progress: Progress) -> None:
        """Write results, or the name of the equal encoder."""
        marker = step.folder / SAME_AS
        first = find_equal()
        if not first:
            marker.unlink(missing_ok=True)
            step.make(progress=progress)
            return
        step.folder.mkdir(parents=True, exist_ok=True)
        facts = {"encoder": step.encoder, "same_as": first}
        write_atomic(marker, json.dumps(facts, ensure_ascii=False) + "\n")

    return replace(step, inputs=[*step.inputs, find_equal], make=make)


def is_measured(folder: Path) -> bool:
    """Return whether a step wrote results to its folder, not the name of an equal encoder."""
    return not (folder / SAME_AS).exists()


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file that a step wrote."""
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return facts


def describe_equal_encoders(folders: Sequence[Path]) -> list[str]:
    """Return a note for every encoder that was not measured, because an earlier one is the same."""
    pairs = [read_json(path / SAME_AS) for path in folders if not is_measured(path)]
    return [describe_equal(facts["encoder"], facts["same_as"]) for facts in pairs]
