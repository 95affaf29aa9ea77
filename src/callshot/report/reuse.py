"""Files of the earlier report that are still right → copies, instead of the same work again.

A file is right if its key is: a hash of what it shows, of the code that makes it, and of the
libraries. Keys and checksums are in one JSON file, beside the notes of the study's steps.
"""

import hashlib
import io
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import polars as pl

from callshot.files import make_folder, sha256_file, sha256_text, write_atomic

LIBRARIES = ("callshot", "matplotlib", "numpy", "pillow", "polars", "scipy")
CODE = Path(__file__).parent


@dataclass
class EarlierFiles:
    """What an earlier report left in a folder, and the keys of its files in `key_file`.

    Without `key_file`, nothing is used again.
    """

    folder: Path = Path()
    key_file: Path | None = None
    keys: dict[str, str] = field(default_factory=dict)  # of the new files

    def copy(self, name: str, key: str, folder: Path) -> bool:
        """Copy a file to a folder if it has this key and did not change; return whether it did."""
        self.keys[name] = key
        earlier = self._entries.get(name)
        source = self.folder / name
        if earlier is None or not source.is_file():  # reading from a pipe would block
            return False
        with suppress(OSError):
            if earlier == [key, sha256_file(source)]:
                make_folder((folder / name).parent)
                shutil.copyfile(source, folder / name)
                return True
        return False

    def beside(self, name: str) -> Path | None:
        """Return the path of a file next to the keys, for work that no result shows as it is."""
        return None if self.key_file is None else self.key_file.with_name(name)

    def save(self) -> None:
        """Write the keys of the new files, which are in place now."""
        if self.key_file is None:
            return
        entries = {}
        for name, key in self.keys.items():
            entries[name] = [key, sha256_file(self.folder / name)]
        make_folder(self.key_file.parent)
        write_atomic(
            self.key_file, json.dumps(entries, indent=2, sort_keys=True) + "\n"
        )

    @property
    def _entries(self) -> Mapping[str, object]:
        if self.key_file is not None:
            with suppress(OSError, ValueError, RecursionError):
                entries = json.loads(self.key_file.read_text(encoding="utf-8"))
                if isinstance(entries, dict):
                    return entries
        return {}


def content_key(*values: Any) -> str:
    """Return a hash of values, of the code of reports and of the libraries that it uses."""
    content = hashlib.sha256(_code_key().encode())
    for value in values:
        for part in _parts(value):
            content.update(len(part).to_bytes(8, "little"))
            content.update(part)
    return content.hexdigest()


@cache
def _code_key() -> str:
    """Return a hash of the code of reports and the versions of libraries."""
    texts = [f"{name} {version(name)}" for name in LIBRARIES]
    texts += [sha256_file(path) for path in sorted(CODE.rglob("*.py"))]
    return sha256_text("\n".join(texts))


def _parts(value: Any) -> Iterator[bytes]:
    """Yield what makes a value, so that different values have different parts."""
    yield type(value).__name__.encode()
    if is_dataclass(value):
        for part in fields(value):
            yield from _parts(getattr(value, part.name))
    elif isinstance(value, pl.DataFrame | pl.Series):
        yield from _frame_parts(value)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, FunctionType):
        yield f"{value.__module__} {value.__qualname__}".encode()
    elif isinstance(value, Mapping):
        yield from _member_parts(list(value.items()))
    elif isinstance(value, set | frozenset):
        yield from _member_parts(sorted(value))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from _member_parts(value)
    else:
        yield repr(value).encode()


def _member_parts(members: Sequence[Any]) -> Iterator[bytes]:
    yield str(len(members)).encode()
    for member in members:
        yield from _parts(member)


def _frame_parts(frame: pl.DataFrame | pl.Series) -> Iterator[bytes]:
    """Yield the names, types and values of a frame, whatever it was cut from."""
    whole = frame.to_frame() if isinstance(frame, pl.Series) else frame
    content = io.BytesIO()
    whole.rechunk().write_parquet(content, compression="uncompressed", statistics=False)
    yield repr(whole.schema).encode()
    yield content.getvalue()
