"""Everything that touches a disk: atomic writes, locks, checksums, and paths that stay inside their folder.

A file is written under a hidden name, brought to the disk and renamed: after a crash at any moment
either the whole file is there or nothing under its name.
"""

import hashlib
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from callshot.errors import OutputError

PART_SUFFIX = ".part"


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; on success it replaces `target`, on failure it is removed.

    The temporary name keeps the suffix of the target, because many writers choose a format by it.

    Raises
    ------
    OutputError
        If the file cannot be written.
    """
    token = f"{os.getpid()}-{secrets.token_hex(4)}"
    temporary = target.with_name(f".{target.stem}.{token}{PART_SUFFIX}{target.suffix}")
    try:
        yield temporary
        sync_file(temporary)
        temporary.replace(target)
        sync_folder(target.parent)
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error_reason(error)})") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_atomic(path: Path, content: str | bytes | memoryview) -> None:
    """Write a whole file, or nothing; text is encoded as UTF-8 with `\\n` at the end of lines."""
    if isinstance(content, str):
        content = content.encode("utf-8")
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def remove_unfinished(folder: Path, pattern: str = "*") -> None:
    """Remove what dead processes left unfinished in a folder; `pattern` limits the names."""
    for path in folder.glob(f".{pattern}{PART_SUFFIX}*"):
        _, _, owner = path.name.partition(PART_SUFFIX)[0].rpartition(".")
        pid = owner.partition("-")[0]
        if pid.isdecimal() and not is_process_alive(int(pid)):
            with suppress(OSError):
                path.unlink()


def sync_file(path: Path) -> None:
    """Bring the content of a file to the disk."""
    with path.open("rb+") as stream:  # Windows syncs only files that are open for writing
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system can do that (Windows cannot)."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sha256_file(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal text."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_text(text: str) -> str:
    """Return the SHA-256 of a text as hexadecimal text; half surrogates in file names are kept."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def describe_file(path: Path, **facts: Any) -> dict[str, Any]:
    """Return the name and checksum of a file, and facts about it, for provenance files."""
    return {"file": path.name, "sha256": sha256_file(path), **facts}


@contextmanager
def hold_lock(path: Path, *, timeout_s: float = -1.0) -> Iterator[None]:
    """Hold a lock file while the block runs; wait `timeout_s` for it, forever where that is negative.

    The system frees the lock when the process ends, however it ends.

    Raises
    ------
    TimeoutError
        If another process still holds the lock after `timeout_s`.
    """
    from filelock import FileLock

    with FileLock(path, timeout=timeout_s):
        yield


def is_process_alive(pid: int) -> bool:
    """Return whether a process with this number runs on this machine."""
    if pid <= 0:
        return False
    if sys.platform == "win32":
        return _is_alive_on_windows(pid)
    try:
        os.kill(pid, 0)
    except PermissionError:  # it belongs to another user
        return True
    except (OSError, OverflowError):
        return False
    return True


def _is_alive_on_windows(pid: int) -> bool:
    """Ask Windows for the process: `os.kill(pid, 0)` would send it CTRL_C there."""
    import ctypes

    query_limited_information = 0x1000
    still_active = 259
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009, absent on other systems
    handle = kernel32.OpenProcess(query_limited_information, False, pid)
    if not handle:
        return False
    try:
        code = ctypes.c_ulong()
        answered = kernel32.GetExitCodeProcess(handle, ctypes.byref(code))
        return bool(answered) and code.value == still_active
    finally:
        kernel32.CloseHandle(handle)


def is_inside(folder: Path, name: str) -> bool:
    """Return whether a relative name, as a file of somebody else gives it, stays inside a folder.

    Links are followed; absolute names, `..` and names that the system cannot have are outside.
    """
    path = Path(name)
    if path.anchor or ".." in path.parts:
        return False
    try:
        parent = Path(os.path.realpath((folder / path).parent))
        return parent.is_relative_to(os.path.realpath(folder))
    except (OSError, ValueError):
        return False


def error_reason(error: BaseException) -> str:
    """Return in one line what a library says in many."""
    strerror = getattr(error, "strerror", None)
    if strerror:
        return str(strerror)
    text = " ".join(str(error).split())
    return text[:300] or type(error).__name__
