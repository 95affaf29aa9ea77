"""The file that lists a set of results: their checksums, and one of its own.

Its own checksum is the value of `own_sha256`: the sha256 of the file with "" in its place.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from callshot.errors import InputError
from callshot.files import explain_unreadable, is_inside, sha256_file

KEY = "own_sha256"
BLANK = (
    f'\n  "{KEY}": ""'.encode()
)  # no text in JSON has a newline, so it is there once
SEALED = re.compile(rf'\n  "{KEY}": "([0-9a-f]{{64}})"'.encode())
DAMAGED = "damaged, or edited since it was written"


def format_provenance(content: Mapping[str, Any]) -> bytes:
    """Return the content of a provenance file, with its own checksum.

    >>> is_intact(format_provenance({"files": {}}))
    True
    """
    blank_content = {**content, KEY: ""}
    text = json.dumps(blank_content, sort_keys=True, indent=2, ensure_ascii=False)
    # Half surrogates are escaped, as in JSON.
    blank = f"{text}\n".encode("utf-8", "backslashreplace")
    checksum = sha256(blank).hexdigest()
    return blank.replace(BLANK, f'\n  "{KEY}": "{checksum}"'.encode(), 1)


def is_intact(content: bytes) -> bool:
    """Return whether the content of a provenance file has its own checksum."""
    found = SEALED.search(content)
    if found is None:
        return False
    blank = content[: found.start(1)] + content[found.end(1) :]
    return sha256(blank).hexdigest().encode() == found[1]


def read_intact_provenance(path: Path) -> dict[str, Any]:
    """Return the content of a provenance file; raise InputError if it is not as it was written."""
    with explain_unreadable(path):
        content = path.read_bytes()
    if is_intact(content):
        with suppress(ValueError, LookupError, TypeError, RecursionError):
            provenance = json.loads(content)
            if isinstance(provenance["files"], dict):
                return dict(provenance)
    raise InputError(f"{path}: {DAMAGED}, or not from callshot; make the results again")


def check_result(path: Path, provenance_names: Iterable[str]) -> None:
    """Raise InputError if a file of results is damaged, or a folder has a damaged one.

    Files are compared with the provenance beside them, and those of a folder with the one in it.
    Files that no provenance lists are those of the user.
    """
    is_folder = path.is_dir()
    folder = path if is_folder else path.parent
    for provenance_name in provenance_names:
        provenance = folder / provenance_name
        if not provenance.is_file():
            continue
        for name, checksum in _list_files(provenance):
            if is_folder or name == path.name:
                _check_file(folder / name, checksum, provenance_name)


def _list_files(provenance: Path) -> Iterator[tuple[str, str]]:
    for name, checksum in read_intact_provenance(provenance)["files"].items():
        if is_inside(provenance.parent, name):
            yield name, checksum


def _check_file(path: Path, checksum: str, provenance_name: str) -> None:
    with explain_unreadable(path):
        if not path.is_file() or sha256_file(path) == checksum:
            return
    raise InputError(
        f"{path}: differs from its checksum in {provenance_name}: {DAMAGED}; make the results "
        "again, or, if you edited it on purpose, use a copy in another folder"
    )
