"""A step of a study: what decides its outcome, whether that is there already, and how it is made.

A step is done when the note it left (`step.json`, in its folder) has its key, and its files are what the note says.
The key is a hash of the step's options and of the contents of its inputs: a changed line of the study, or of a file,
makes anew what depends on it, and where the outcome is the same as before, nothing after it.
"""

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from callshot.corpus.annotation_sources import find_input_files
from callshot.corpus.recordings import AUDIO_SUFFIXES
from callshot.errors import OutputError
from callshot.records import Progress
from callshot.version import __version__

Input = Path | Callable[[], str]
NOTE = "step.json"


@dataclass(frozen=True)
class Step:
    """One step: `make` writes files to `folder` and returns their names; `after` are the steps whose files it reads.

    An input is a file, a folder, or what tells in a few letters which part of these matters. `notes` is where the note
    is kept.
    """

    kind: str
    corpus: str
    encoder: str
    folder: Path
    notes: Path
    options: Mapping[str, Any]
    inputs: Sequence[Input]
    make: Callable[[Progress], Sequence[str]]
    after: Sequence["Step"] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """What the step is called on screen."""
        return " ".join(part for part in (self.kind, self.corpus, self.encoder) if part)

    def key(self) -> str:
        """Return the hash of everything that decides the outcome, as it is now."""
        parts = {"step": self.kind, "callshot": __version__, "options": self.options}
        parts |= {"inputs": [look(one) if isinstance(one, Path) else one() for one in self.inputs]}
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()

    def done(self) -> bool:
        """Tell whether the outcome is there and belongs to the inputs as they are now."""
        note = self.note()
        whole = all(
            look(self.folder / name) == digest for name, digest in note.get("files", {}).items()
        )
        return bool(note) and whole and note["key"] == self.key()

    def note(self) -> dict[str, Any]:
        """Return what the step told when it was done; nothing where it was not."""
        with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
            found = json.loads((self.notes / NOTE).read_text(encoding="utf-8"))
            return {
                "key": str(found["key"]),
                "seconds": float(found["seconds"]),
                "files": dict(found["files"]),
            }
        return {}

    def run(self, progress: Progress) -> None:
        """Make the outcome, and then the note; without that, the step was not done."""
        start_s, key = time.monotonic(), self.key()
        try:
            self.notes.mkdir(parents=True, exist_ok=True)
            (self.notes / NOTE).unlink(missing_ok=True)
            names = self.make(progress)
            files = {name: look(self.folder / name) for name in names}
            told = {"key": key, "seconds": round(time.monotonic() - start_s, 3), "files": files}
            _replace(
                self.notes / NOTE,
                json.dumps(told, indent=2, sort_keys=True, ensure_ascii=False) + "\n",
            )
        except OutputError:  # is told already
            raise
        except OSError as error:
            raise OutputError(
                f"{self.name}: {error.filename or self.notes}: {error.strerror or error}"
            ) from error


def look(path: Path, but: Sequence[Path] = ()) -> str:
    """Return what a file or folder is, in a few letters: by content, but recordings by size and time.

    A folder is everything in it that may matter to a corpus, `but` some files and folders; what callshot wrote there
    does not.
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            files = find_input_files(path, audio=True, exclude=but)
            return digest([(str(file.relative_to(path)), look(file)) for file in files])
        if not stat.S_ISREG(status.st_mode):
            return "no file"
        if path.suffix.lower() in AUDIO_SUFFIXES:
            return f"{status.st_size} bytes of {status.st_mtime_ns}, {status.st_ctime_ns}"
        return _sha256(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    except (OSError, ValueError):
        return "nothing"


def digest(what: object) -> str:
    """Return the hash of how Python writes something."""
    return hashlib.sha256(repr(what).encode("utf-8", "surrogateescape")).hexdigest()


def maybe(path: Path | None) -> list[Path]:
    """Return a place as a list, of none where it is not given."""
    return [] if path is None else [path]


def safe_name(name: str) -> str:
    """Return a name that can be a folder's, and is another for another name."""
    plain = re.sub(r"[^\w.-]+", "_", name)
    return plain if plain == name else f"{plain[:60]}-{digest(name)[:8]}"


@lru_cache(maxsize=4096)
def _sha256(path: Path, *_: int) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _replace(path: Path, text: str) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
