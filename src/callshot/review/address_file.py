"""The port and the token of a review, in a file that only its owner may read: address.json."""

import json
import os
import re
import secrets
import sys
from pathlib import Path

from callshot.files import atomic_path, sha256_text

ADDRESS = "address.json"


def read_address(folder: Path) -> tuple[int | None, str]:
    """Return the port and the token of the last time, so that open pages go on; or a new token."""
    try:
        with (folder / ADDRESS).open("rb") as stream:
            if not _is_private(os.fstat(stream.fileno())):
                return None, secrets.token_urlsafe(32)
            content = json.load(stream)
        port = content["port"]
        token = content["token"]
        is_same = content["sha256"] == _hash_address(port, token)
        if is_same and re.fullmatch(r"[\w-]{43}", token) and type(port) is int:
            return port, token
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return None, secrets.token_urlsafe(32)


def has_address(folder: Path) -> bool:
    """Return whether a folder has the address of the last time."""
    port, _ = read_address(folder)
    return port is not None


def _is_private(status: os.stat_result) -> bool:
    """Return whether a file is ours alone: others may know the token of a copied or planted one."""
    if sys.platform == "win32":  # which has no such modes
        return True
    return status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0


def write_address(folder: Path, port: int, token: str) -> None:
    """Keep the port and the token in a file that only its owner may read."""
    with atomic_path(folder / ADDRESS) as temporary:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            checksum = _hash_address(port, token)
            json.dump({"port": port, "token": token, "sha256": checksum}, stream)


def _hash_address(port: int, token: str) -> str:
    return sha256_text(f"{port} {token}")
