"""The port and the token of the page, kept so that open pages go on."""

import json
import os
import secrets
import sys
from pathlib import Path

from callshot.files import atomic_path, sha256_text

ADDRESS = "address.json"


def read_address(folder: Path) -> tuple[int | None, str]:
    """Return the port and the token of the last time, so that open pages go on; or a new token.

    Others may know the token of a copied or planted file: it must be ours alone.
    """
    try:
        with (folder / ADDRESS).open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = json.load(stream)
        port = content["port"]
        token = content["token"]
        checksum = sha256_text(f"{port} {token}")
        is_same = content["sha256"] == checksum
        is_private = sys.platform == "win32" or (  # which has no such modes
            status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0
        )
        if is_private and is_same and type(port) is int:
            return port, str(token)
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return None, secrets.token_urlsafe(32)


def write_address(folder: Path, port: int, token: str) -> None:
    """Keep the port and the token in a file that only its owner may read."""
    checksum = sha256_text(f"{port} {token}")
    with atomic_path(folder / ADDRESS) as temporary:
        temporary.touch(0o600, exist_ok=False)
        with temporary.open("w") as stream:
            json.dump({"port": port, "token": token, "sha256": checksum}, stream)
