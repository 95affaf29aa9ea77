"""Everything that touches a disk or a store: atomic writes, locks, checksums and safe paths.

A file is written under a hidden name, brought to the disk and renamed, or uploaded whole: after a
crash at any moment either the whole file is there or nothing under its name.
"""

import errno
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from callshot.errors import InputError, OptionError, OutputError
from callshot.storage import (
    RangeReader,
    check_no_url,
    hide_secrets,
    is_remote,
    staging_folder,
    to_path,
    upload_file,
    why_not_writable_remote,
)

PART_SUFFIX = ".part"
WORK_FOLDER = ".callshot"  # beside a study file: the results of its steps
PART_NAME = re.compile(r"\.(\d+)-[0-9a-f]{8}\.part(\.[^.]*)?")
STEM_LENGTH = 40  # of temporary names, so that none is too long for the file system
OWN_PREFIX = ".callshot"  # of hidden files and folders in results
LOCK_NAME = ".lock"
NETWORKS = "networks"  # in results: networks whose training may have been interrupted
NETWORK_NAME = re.compile(r"-[0-9a-f]{16}\.safetensors")
# Of programs that show folders
LITTER = (".DS_Store", "Thumbs.db", "desktop.ini", ".gitkeep", ".gitignore")
SCAN_FACTS = "scan.json"  # the list of results of callshot scan
DECISIONS = "decisions.jsonl"  # of a review
FOUND = "found"  # folder beside a journal of callshot label: its searches for all calls
# Files that list results. Those of scans list detections, which may serve as annotations.
MANIFESTS = (
    "provenance.json",
    "segments.json",
    "folds.json",
    "band-coverage.json",
)
RESULTS_OF_SCANS = (SCAN_FACTS, "export.json")
# The files by which a folder of results is known, and a key that those in JSON have; "" for others.
MARKERS = {
    **dict.fromkeys((*MANIFESTS, *RESULTS_OF_SCANS), "files"),
    "index.json": "fingerprint",
    DECISIONS: "",
}
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_path(
    target: Path, *, errors: tuple[type[Exception], ...] = ()
) -> Iterator[Path]:
    """Yield a temporary path with the same suffix, which replaces `target` if the block succeeds.

    What a killed process of this machine left of the same target is removed first: temporary names
    have the process and the machine. OSError, and the `errors` of the writer, become an
    OutputError.
    """
    writer_errors: tuple[type[Exception], ...] = (OSError, *errors)
    temporary = None
    try:
        folder = staging_folder() if is_remote(target) else target.parent
        stem = target.stem[:STEM_LENGTH]
        machine = sha256_text(socket.gethostname())[:4]
        remove_unfinished(folder, f"{glob.escape(stem)}.*-{machine}*")
        token = f"{os.getpid()}-{machine}{secrets.token_hex(2)}"
        temporary = folder / f".{stem}.{token}{PART_SUFFIX}{target.suffix}"
        yield temporary
        replace_file(temporary, target)
    except writer_errors as error:
        if isinstance(error, OutputError):
            raise
        hint = ""
        if getattr(error, "errno", None) in DISK_FULL:
            hint = "; free some disk space and run again"
        raise OutputError(
            f"{target}: cannot be written ({error_reason(error)}){hint}"
        ) from error
    finally:
        if temporary is not None:
            remove_path(temporary)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, where they do not exist; a store has none to make."""
    if is_remote(folder):
        return
    check_no_url(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be made ({error_reason(error)}); choose another folder"
        ) from error


def write_atomic(path: Path, content: str | bytes | memoryview) -> None:
    """Write a whole file, or nothing; text is encoded as UTF-8 with `\\n` at the end of lines."""
    if isinstance(content, str):
        content = content.encode("utf-8")
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def replace_file(temporary: Path, target: Path) -> None:
    """Bring a finished file to the disk, then rename it to `target`; or upload it."""
    if is_remote(target):
        upload_file(temporary, target)
        return
    sync_file(temporary)
    temporary.replace(target)
    sync_folder(target.parent)


def remove_unfinished(folder: Path, pattern: str = "*") -> None:
    """Remove what dead processes left unfinished in a folder; `pattern` limits the names.

    Processes of other machines count as dead: in a folder that they share, hold a lock.
    """
    if is_remote(folder):
        return
    for path in folder.glob(f".{pattern}{PART_SUFFIX}*"):
        owner = PART_NAME.search(path.name)
        if owner is not None and not is_process_alive(int(owner[1])):
            remove_path(path)


def remove_path(path: Path) -> None:
    """Remove a file, or a folder with everything in it; nothing where that fails."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


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


def sync_file(path: Path) -> None:
    """Bring the content of a file to the disk."""
    # Windows syncs only files that are open for writing.
    with path.open("rb+") as stream:
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
        if isinstance(stream, RangeReader):
            stream.expect(1.0)
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_regular_file(path: Path) -> None:
    """Check that a path is a file, or a link to one; to read a pipe or a device may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise InputError(
            f"{path}: expected a regular file, got a folder, pipe or device"
        )


def sha256_text(text: str) -> str:
    """Return the SHA-256 of a text as hexadecimal text; half surrogates in file names are kept."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def describe_file(path: Path, **facts: Any) -> dict[str, Any]:
    """Return the name and checksum of a file, and facts about it, for provenance files."""
    return {"file": path.name, "sha256": sha256_file(path), **facts}


class LockBusy(TimeoutError):
    """Another process or thread holds a lock."""


@contextmanager
def hold_lock(path: Path, *, timeout_s: float = -1.0) -> Iterator[None]:
    """Hold a lock file while the block runs; wait `timeout_s`, forever if negative, or LockBusy.

    The system frees the lock when the process ends. On a network drive without locks, a file names
    the process that holds it, and counts while that process lives. A store has no locks: what two
    processes write there at once must not depend on who is first.
    """
    if is_remote(path):
        yield
        return
    from filelock import FileLock, SoftFileLock, Timeout

    lock = FileLock(path, timeout=timeout_s)
    try:
        try:
            lock.acquire()
        except OSError as error:
            if error.errno != errno.ENOLCK:
                raise
            lock = SoftFileLock(path.with_name(f"{path.name}.owner"), timeout=timeout_s)
            lock.acquire()
    except Timeout:  # apart from a network drive that does not answer
        raise LockBusy(f"{path}: another process holds this lock") from None
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be locked ({error_reason(error)})"
        ) from error
    try:
        yield
    finally:
        lock.release()


def share_lock(path: Path, when_alone: Callable[[], None]) -> BinaryIO | None:
    """Share a lock with other processes until the returned file is closed.

    If no other process holds it, `when_alone` is called first, while others wait; never where the
    file cannot be written or the system has no shared locks. None if it cannot even be read.
    """
    for mode in ("ab", "rb"):  # to make the file if need be, or else only to read it
        try:
            stream = path.open(mode)
        except OSError:
            continue
        if stream.writable() and _lock_file(stream, alone=True):
            when_alone()
        _lock_file(stream, alone=False)
        return stream
    return None


def _lock_file(stream: BinaryIO, *, alone: bool) -> bool:
    """Lock a file, alone and without waiting or together with others; return whether it worked."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
    except OSError:
        return False
    return True


def is_inside(folder: Path, name: str) -> bool:
    """Return whether a relative name from a foreign file stays inside a folder.

    Absolute names, `..`, links to folders outside and names with a NUL are outside. The last part
    may be a link: files are replaced and removed, never written through.
    """
    path = Path(name)
    if path.anchor or ".." in path.parts or "\0" in name:
        return False
    if is_remote(folder):
        return True
    try:
        parent = Path(os.path.realpath((folder / path).parent))
        return parent.is_relative_to(os.path.realpath(folder))
    except (OSError, ValueError):
        return False


def check_writable(folder: Path) -> None:
    """Check, before any work, that files can be written to a folder, which need not exist yet."""
    reason = why_not_writable(folder)
    if reason:
        raise OutputError(
            f"{folder}: cannot be written to ({reason}); choose another folder"
        )


def check_new_file(path: Path, what: str, is_own: Callable[[Path], bool]) -> None:
    """Check, before any work, that a file can be written and replaces only one that `is_own`.

    `what` names what the file will be.
    """
    reason = why_not_writable(path.absolute().parent)
    if reason:
        raise OutputError(
            f"{path}: cannot be written ({reason}); choose another folder"
        )
    if not path_exists(path):
        return
    if not path.is_file() or not is_own(path):
        raise OutputError(
            f"{path}: exists, and is no {what} that callshot wrote; "
            "move it, or choose another name"
        )


def path_exists(path: Path) -> bool:
    """Return whether there is a file, a folder, or a link of that name, wherever it leads."""
    return path.exists() if is_remote(path) else os.path.lexists(path)


def has_header(path: Path, columns: Iterable[str]) -> bool:
    """Return whether a CSV file begins with the names of certain columns."""
    header = ",".join(columns).encode()
    try:
        with path.open("rb") as stream:
            with_line_end = stream.readline(len(header) + 2)  # \r\n
            return with_line_end.rstrip() == header
    except OSError:
        return False


def find_existing(folder: Path) -> Path:
    """Return a folder that need not exist yet, or the nearest one above it that does."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def why_not_writable(folder: Path) -> str:
    """Return what prevents files in a folder, which need not exist yet; empty if nothing does."""
    if is_remote(folder):
        return why_not_writable_remote(folder)
    check_no_url(folder)
    try:
        tempfile.TemporaryFile(dir=find_existing(folder)).close()
    except OSError as error:
        return error_reason(error)
    return ""


def check_results_folder(name: str) -> Path:
    """Return the path of a folder for results; OptionError if none may go there."""
    if not name.strip():
        raise OptionError("out: expected the name of a folder, got an empty one")
    path = to_path(name)
    if is_remote(path):
        return cast(Path, path)  # has the methods of Path that callshot uses
    place = Path(os.path.realpath(path))
    problem = ""
    if place == place.parent:
        problem = "is the root of a disk"
    elif place == Path(os.path.realpath(Path("~").expanduser())):
        problem = "is your home folder"
    elif WORK_FOLDER in place.parts:
        problem = f"is in {WORK_FOLDER}, where callshot stores the steps of studies"
    if problem:
        raise OptionError(f"out: {name} {problem}; choose another folder")
    return path


def check_own_folder(folder: Path, *, is_review: bool = False) -> None:
    """Check, before any work, that a folder for results is new, empty, or has results already.

    So results never end up among foreign files. Unfinished results of a killed run count.
    """
    if is_remote(folder):
        return
    try:
        entries = sorted(folder.iterdir())
    except (OSError, ValueError):  # it does not exist, or others say what is wrong
        return
    if not is_review and (folder / DECISIONS).is_file():
        raise OutputError(
            f"{folder}: has the decisions of a review; name another folder"
        )
    if _has_marker(folder):
        return
    unknown = [path.name for path in entries if not _is_own(path)]
    if unknown:
        more = f" and {len(unknown) - 1} more" if unknown[1:] else ""
        raise OutputError(
            f"{folder}: has {unknown[0]}{more}, not written by callshot; "
            "name a new folder"
        )


def _is_own(path: Path) -> bool:
    """Return whether a killed run may have left a file or folder; an empty folder counts."""
    name = path.name
    if name.startswith(OWN_PREFIX) or name in (LOCK_NAME, *LITTER):
        return True
    if PART_NAME.search(name) or _has_marker(path):
        return True
    with suppress(OSError):
        entries = list(path.iterdir())
        if name == NETWORKS:
            return all(NETWORK_NAME.search(network.name) for network in entries)
        return all(map(_is_own, entries))
    return False


def _has_marker(folder: Path) -> bool:
    """Return whether a folder has one of MARKERS, which callshot writes with results."""
    for name, key in MARKERS.items():
        path = folder / name
        with suppress(OSError, ValueError, RecursionError):
            if path.is_file() and (not key or key in json.loads(path.read_bytes())):
                return True
    return False


@contextmanager
def explain_unreadable(path: Path | str) -> Iterator[None]:
    """Turn an error of the system while a file is read into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error_reason(error)})") from error


def error_reason(error: BaseException) -> str:
    """Return in one line what a library says in many; only its first paragraph counts."""
    strerror = getattr(error, "strerror", None)
    if strerror:
        return str(strerror)
    paragraph = hide_secrets(str(error)).strip().partition("\n\n")[0]
    text = " ".join(paragraph.split())
    return text[:300] or type(error).__name__
