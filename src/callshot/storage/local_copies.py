"""Files that must be on the disk: copies of files in a store, and files on their way to one.

    home()/remote/<16 hex digits>/NAME    a copy, by its URL and version; checked, never changed
    home()/uploads/                       files that are being written

Copies may be removed at any time. Beyond a limit ($CALLSHOT_COPIES_GB, by default 20) those that
were not used for longest go first.
"""

import hashlib
import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from callshot.errors import OptionError
from callshot.storage.range_reader import UNKNOWN_VERSION
from callshot.storage.remote_path import WEB, RemotePath, is_remote
from callshot.storage.requests import call_store

COPIES = "remote"
UPLOADS = "uploads"
DEFAULT_GB = 20.0
CHECK_EVERY = 64  # copies between two looks at the limit
# A store that shows a file once it is whole; elsewhere it gets another name first.
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "memory")

_copies_made = 0


def home() -> Path:
    """Return the folder of callshot's own files: $CALLSHOT_HOME, else in the user's cache."""
    folder = os.environ.get("CALLSHOT_HOME")
    if folder:
        return Path(folder).expanduser().absolute()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("callshot", appauthor=False))


def local_copy(path: Path, checksum: str | None = None) -> Path:
    """Return a file of this machine as it is, and a copy of one behind a URL.

    A copy is made once for each version of the file, and each time if the server names none. With
    `checksum` (SHA-256, in hexadecimal) the version is not asked for, and a copy that differs is
    made again.

    Raises
    ------
    OSError
        If the file cannot be read, or no copy can be written.
    """
    if not is_remote(path):
        return path
    remote = path
    is_known = True
    version = checksum
    if version is None:
        status = remote.stat()
        is_known = status.st_mtime_ns != UNKNOWN_VERSION
        version = f"{status.st_size} {status.st_mtime_ns}"
    key = hashlib.sha256(f"{remote} {version}".encode()).hexdigest()[:16]
    copy = home() / COPIES / key / remote.name
    if not is_known or not _is_whole(copy, checksum):
        _download(remote, copy)
    with suppress(OSError):
        os.utime(copy)  # used now
    return copy


def _is_whole(copy: Path, checksum: str | None) -> bool:
    if not copy.is_file():
        return False
    if checksum is None:
        return True
    with copy.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == checksum


def _download(remote: RemotePath, copy: Path) -> None:
    """Copy a file of a store to the disk, whole or not at all."""
    global _copies_made
    if _copies_made % CHECK_EVERY == 0:
        _remove_oldest(copy.parents[1])
    _copies_made += 1
    copy.parent.mkdir(parents=True, exist_ok=True)
    temporary = copy.with_name(f".{secrets.token_hex(8)}.part")
    store, place = remote.find_store()
    try:
        call_store(remote, lambda: store.get_file(place, str(temporary)))
        temporary.replace(copy)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_oldest(folder: Path) -> None:
    """Remove the copies that were not used for longest, as far as all exceed the limit."""
    files = []
    for path in folder.glob("*/*"):
        with suppress(OSError):  # another process removes them too
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    excess = sum(size for _, size, _ in files) - _limit_bytes()
    hour_ago = time.time() - 3600  # younger ones may be in use
    for used, size, path in sorted(files):
        if excess <= 0 or used > hour_ago:
            return
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()
        excess -= size


def _limit_bytes() -> float:
    text = os.environ.get("CALLSHOT_COPIES_GB", "")
    try:
        return float(text or DEFAULT_GB) * 1e9
    except ValueError:
        raise OptionError(
            f"the variable CALLSHOT_COPIES_GB: expected a number, got {text!r}"
        ) from None


def staging_folder() -> Path:
    """Return the folder in which files are written before they are uploaded."""
    folder = home() / UPLOADS
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def upload_file(source: Path, target: RemotePath) -> None:
    """Write a whole file to a store; nobody sees a part of it."""
    if target.protocol in WEB:
        raise OSError(None, "a web server takes no files", str(target))
    store, place = target.find_store()
    if target.protocol in OBJECT_STORES:
        call_store(target, lambda: store.put_file(str(source), place))
        return
    hidden = target.with_name(f".{secrets.token_hex(8)}.part")
    _, hidden_place = hidden.find_store()
    call_store(target, lambda: store.makedirs(_parent(place), exist_ok=True))
    call_store(target, lambda: store.put_file(str(source), hidden_place))
    call_store(target, lambda: store.mv(hidden_place, place))


def _parent(place: str) -> str:
    return place.rpartition("/")[0]
