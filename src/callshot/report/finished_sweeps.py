"""Finished parts of an evaluation → files beside its results, until these are written.

The files are in the hidden folder `.callshot-sweeps` of the results. A run that was stopped left
them, and the next run takes from them what did not change.
"""

import io
import re
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from callshot.errors import OutputError
from callshot.fewshot.finished_sweeps import Arrays
from callshot.files import make_folder, remove_unfinished, write_atomic
from callshot.storage import is_remote

FOLDER = ".callshot-sweeps"
SUFFIX = ".npz"
NAME = re.compile(r"[0-9a-f]{64}")
DAMAGED = (
    OSError,
    TypeError,
    ValueError,
    EOFError,
    RuntimeError,
    MemoryError,  # a header with a huge shape
    zipfile.BadZipFile,
    zlib.error,
)


@dataclass(frozen=True)
class FinishedSweeps:
    """Arrays by name, in files below a folder of results."""

    results: Path

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return self.results / FOLDER

    def find(self, name: str) -> Arrays | None:
        """Return what was added under a name; None if there is nothing, or it is damaged."""
        with suppress(*DAMAGED):
            if self.folder.is_symlink():
                return None
            content = (self.folder / f"{name}{SUFFIX}").read_bytes()
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                arrays = dict(file)
            if all(isinstance(array, np.ndarray) for array in arrays.values()):
                return arrays
        return None

    def add(self, name: str, arrays: Arrays) -> None:
        """Write arrays to a file: a whole one, or none."""
        if self.folder.is_symlink():
            raise OutputError(
                f"{self.folder}: a link leads to another folder; "
                "remove the link or choose another folder"
            )
        make_folder(self.folder)
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        write_atomic(self.folder / f"{name}{SUFFIX}", content.getbuffer())

    def remove(self) -> None:
        """Remove all that was added, also by earlier runs; files of others stay."""
        with suppress(OSError):
            if self.folder.is_symlink():
                return
            for path in list(self.folder.glob(f"*{SUFFIX}")):
                if NAME.fullmatch(path.stem):
                    path.unlink(missing_ok=True)
            remove_unfinished(self.folder)
            if not is_remote(self.folder):
                self.folder.rmdir()
