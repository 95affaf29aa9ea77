"""Paths in buckets and on servers: a text comes in, a path goes out that is used as a Path is.

    to_path("recordings")            a Path; fsspec is not imported
    to_path("s3://bucket/2026")      a RemotePath, with the methods of Path that callshot uses

Names in a listing come from others. One that would lead out of its folder, or that no path can
have, is listed with a problem and never opened.

Files that must be on the disk, and files on their way to a store:

    home()/remote/<16 hex digits>/NAME    a copy, by its URL and version; checked, never changed
    home()/uploads/                       files that are being written

Copies may be removed at any time. Beyond a limit ($CALLSHOT_COPIES_GB, by default 20) the
least recently used ones are removed.
"""

import hashlib
import io
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NoReturn, TypeGuard, cast

from callshot.errors import CallshotError, OptionError, printable
from callshot.storage.requests import (
    UNKNOWN_VERSION,
    RangeReader,
    call_store,
    hide_in_log,
    hide_secrets,
    map_requests,
)

Info = dict[str, Any]

PROTOCOL = re.compile(r"([a-z][a-z0-9+.-]+):")  # two letters or more: C: is a disk
SIGNATURE = re.compile(
    r"[?&]([\w-]*[_-])?(sig|signature|token|credential|secret|password)=", re.IGNORECASE
)
LOCAL = ("file", "local")
WEB = ("http", "https")
S3 = ("s3", "s3a")
# What changes when a file does, as the stores name it; the first that is there counts.
# fmt: off
CONTENT_KEYS = (
    "ETag", "etag", "md5Hash", "md5", "content_md5", "Content-MD5", "Digest", "generation",
)
TIME_KEYS = (
    "LastModified", "last_modified", "Last-Modified", "updated", "mtime", "modified", "created",
)
# fmt: on
VERSION_KEYS = CONTENT_KEYS + TIME_KEYS
CONNECT_S = 10.0  # to a web server
ANSWER_S = 30.0  # without a byte of an answer
SET_ELSEWHERE = "set it in the environment or a configuration file"
NO_URL = "expected a path on this machine, got a URL"
READ_ONLY = "a web server takes no files"
TEST_FILE = ".callshot-write-test"
COPIES = "remote"
UPLOADS = "uploads"
DEFAULT_GB = 20.0
CHECK_EVERY = 64  # copies between two looks at the limit
# A store that shows a file once it is whole; elsewhere it gets another name first.
OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "memory")


_copies_made = 0
# The queries of signed URLs, which are part of no path.
_signatures: dict[str, str] = {}


# Texts and paths


def is_remote(path: PurePath) -> TypeGuard["RemotePath"]:
    """Return whether a path is remote: the URL of a file or folder."""
    return isinstance(path, RemotePath)


def check_no_url(path: Path) -> None:
    """Raise OptionError where a URL is given and only local paths are supported."""
    for number, part in enumerate(path.parts):
        if PROTOCOL.fullmatch(part):
            url = f"{part}//{'/'.join(path.parts[number + 1 :])}"
            raise OptionError(f"{hide_secrets(url)}: {NO_URL}")


def to_path(place: PurePath | str) -> Path:
    """Return a path of this machine, or a RemotePath for a URL, which has the same methods.

    A Path made of a URL, such as `s3:/bucket/x`, is taken for the URL. Raises OptionError if a
    package is missing, the protocol is unknown, or a URL has a password, or a signature outside the
    web.
    """
    if isinstance(place, RemotePath):
        return cast(Path, place)
    path = Path(place)
    first, *parts = path.parts or ("",)
    match = PROTOCOL.fullmatch(first.lower())
    if match is None or not parts:
        return path
    protocol = match[1]
    if protocol in LOCAL:
        return Path("/", *parts)
    name = "/".join(parts)
    query = ""
    if protocol in WEB or SIGNATURE.search(name):
        name, mark, rest = name.partition("?")
        query = mark + rest
    remote = RemotePath(f"{protocol}:", name)
    server = remote.parts[1]  # or bucket
    user, _, _ = server.rpartition("@")
    problem = ""  # why the URL is not accepted
    if query and protocol not in WEB:
        problem = f"only https:// URLs may have a signature; {SET_ELSEWHERE}"
    elif ":" in user or (user and protocol in WEB):
        problem = f"a password in a URL ends up in logs; {SET_ELSEWHERE}"
    else:
        problem = _why_not_supported(protocol)
    if problem:
        raise OptionError(f"{hide_secrets(str(remote))}: {problem}")
    if query:
        add_signatures({str(remote): query})
    return cast(Path, remote)


def _why_not_supported(protocol: str) -> str:
    """Return why URLs of a protocol cannot be opened; empty if they can."""
    try:
        import fsspec
    except ImportError:
        return "URLs need fsspec; pip install 'callshot[storage]'"
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        first_line, _, _ = str(error).partition("\n")
        return f"a package is missing ({first_line})"
    except ValueError:
        return (
            f"unknown protocol {protocol}; expected s3, gs, az, https, sftp or another"
        )
    return ""


# Files and folders


@dataclass(frozen=True)
class RemoteStatus:
    """What `Path.stat` returns, of a remote file; `st_mtime_ns` stands for its ETag or the like."""

    st_size: int
    st_mtime_ns: int
    st_mode: int
    st_ctime_ns: int = 0


class RemotePath(PurePosixPath):
    """A file or folder behind a URL. It has no path on this machine: `open(path)` fails."""

    _info: Info | None = None  # of a file in a listing
    _listed: dict[str, Info] | None = None  # of a folder: its files, by name
    problem: str = ""  # why a name in a listing must not be opened

    def __truediv__(self, name: os.PathLike[str] | str) -> "RemotePath":
        path = super().__truediv__(name)
        if self._listed is not None:  # others are asked for when they are needed
            path._info = self._listed.get(str(name))
        return path

    def __str__(self) -> str:
        protocol = "".join(self.parts[:1])  # empty above all URLs
        return f"{protocol}//{'/'.join(self.parts[1:])}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Take the signatures of the URLs below along to another process; no text has them."""
        folder = f"{self}/"
        signatures = {
            url: query
            for url, query in _signatures.items()
            if f"{url}/".startswith(folder)
        }
        return _restore, (self.parts, signatures)

    def __fspath__(self) -> NoReturn:
        raise CallshotError(f"{self}: {NO_URL}")

    def __getattr__(self, name: str) -> NoReturn:
        """Say that a method of Path is for files of this machine."""
        if name.startswith("_") or not hasattr(Path, name):
            raise AttributeError(f"RemotePath has no attribute {name}")
        raise CallshotError(f"{self}: {NO_URL}")

    @property
    def protocol(self) -> str:
        """The text before the colon."""
        return self.parts[0].removesuffix(":")

    def as_posix(self) -> str:
        """Return the URL."""
        return str(self)

    def relative_to(self, *other: Any) -> PurePosixPath:  # type: ignore[override]
        """Return the name below another path, which is no URL."""
        return PurePosixPath(*super().relative_to(*other).parts)

    def absolute(self) -> "RemotePath":
        """Return the path: URLs are absolute."""
        return self

    def resolve(self, strict: bool = False) -> "RemotePath":
        """Return the path: there are no links."""
        return self

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def kind(self) -> str:
        """Return "file", or "directory" for a folder with files; empty if there is neither."""
        try:
            return str(self.info()["type"])
        except FileNotFoundError:
            return ""

    def exists(self) -> bool:
        """Return whether there is a file, or a folder with files."""
        return self.kind() != ""

    def is_file(self) -> bool:
        """Return whether there is a file."""
        return self.kind() == "file"

    def is_dir(self) -> bool:
        """Return whether there is a folder with files."""
        return self.kind() == "directory"

    def stat(self) -> RemoteStatus:
        """Return size and kind, and in place of the time a number that changes with the file."""
        info = self.info()
        if info["type"] == "directory":
            return RemoteStatus(0, 0, stat.S_IFDIR)
        size = int(info.get("size") or 0)
        version = next((info[key] for key in VERSION_KEYS if info.get(key)), None)
        if version is None:
            return RemoteStatus(size, UNKNOWN_VERSION, stat.S_IFREG)
        digest = hashlib.sha256(str(version).encode()).digest()
        return RemoteStatus(size, int.from_bytes(digest[:7], "big"), stat.S_IFREG)

    def has_exact_version(self) -> bool:
        """Return whether every change gives another version; web servers make an ETag of a time."""
        if self.protocol in WEB:
            return False
        info = self.info()
        return any(info.get(key) for key in CONTENT_KEYS)

    def info(self) -> Info:
        """Return what the store says, or said in a listing: `type`, `size` and others."""
        if self._info is not None:
            return self._info
        is_server = len(self.parts) == 2
        if self.protocol in WEB and (is_server or not self.suffix):
            return {"type": "directory"}  # to ask would be to download the page
        store, _ = self.find_store()
        store.invalidate_cache()
        return dict(self.call("info"))

    def with_info(self) -> "RemotePath":
        """Return the path with what the store says now, which is not asked for again."""
        path = RemotePath(self)
        path._info = self.info()
        return path

    def with_listing(self, files: Iterable["RemotePath"]) -> "RemotePath":
        """Return a folder that knows its files from a listing.

        Only in S3, which refuses to send a part of a file that is no longer the one that was
        listed.
        """
        folder = RemotePath(self)
        if self.protocol in S3:
            folder._listed = {}
            for path in files:  # there may be a million: only what is needed is kept
                info = path.info()
                facts = {key: info[key] for key in ("name", "type", "size", "ETag")}
                folder._listed[str(path.relative_to(self))] = facts
        return folder

    def open_stream(self) -> Any:
        """Open a file to read ranges of it, without a cache; in S3 of the known version."""
        store, place = self.find_store()
        info = self.info()
        if self.protocol not in (*S3, *WEB):
            return store.open(place, "rb", cache_type="none")
        stream = store.open(place, "rb", cache_type="none", size=info["size"])
        if self.protocol in S3:
            stream.details = info
            stream.read_kw = {**stream.read_kw, "IfMatch": info["ETag"]}
        return stream

    def open(self, mode: str = "rb") -> RangeReader:
        """Open a file to read ranges of it."""
        if mode != "rb":
            raise io.UnsupportedOperation(f"{self}: opened for reading only")
        return RangeReader(self)

    def read_bytes(self) -> bytes:
        """Return the content of a small file."""
        # S3's library would ask for the size first, to read parts at once.
        options = {"max_concurrency": 1} if self.protocol in S3 else {}
        return bytes(self.call("cat_file", **options))

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the content of a small file as text."""
        return self.read_bytes().decode(encoding)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file."""
        try:
            self.call("rm_file")
        except FileNotFoundError:
            if not missing_ok:
                raise

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """Yield the files below whose relative names have the parts of a pattern."""
        patterns = pattern.split("/")
        for path in self.list_files():
            parts = path.relative_to(self).parts
            if len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns)):
                yield path

    def list_files(self) -> list["RemotePath"]:
        """Return all files below, sorted by name; one that must not be opened has a `problem`."""
        store, place = self.find_store()
        store.invalidate_cache()
        root = place.rstrip("/") + "/"  # all names must begin with it
        top = root if self.protocol in WEB else root.rstrip("/")  # what fsspec lists
        options: Info = {"detail": True}
        if self.protocol in S3:  # whose library asks more of a folder than of a prefix
            top, _, options["prefix"] = root.partition("/")
        found = dict(call_store(self, lambda: store.find(top, **options)))
        files = []
        for name, info in sorted(found.items()):
            if info["type"] != "file" or name.endswith("/"):  # a mark of a folder
                continue
            relative = name.removeprefix(root)
            problem = ""
            if not name.startswith(root):
                problem = "is outside the folder"
            elif not is_safe_name(relative):
                problem = (
                    "its name has empty parts, dots or control characters; rename it"
                )
            if problem:  # a name to show, which leads nowhere
                relative = printable(relative).replace("/", "∕")
            listed = self / relative
            listed.problem = problem
            if info.get("size") is not None:  # a page with links has no sizes
                listed._info = info
            files.append(listed)
        return files

    def call(self, method: str, *values: Any, **options: Any) -> Any:
        """Call a method of fsspec's file system with the name of this file there, with retries."""
        store, place = self.find_store()
        return call_store(
            self, lambda: getattr(store, method)(place, *values, **options)
        )

    def find_store(self) -> tuple[Any, str]:
        """Return the file system of fsspec, and the name of this file there.

        fsspec's own functions for URLs would take two colons in a name for a chain of URLs, which
        may lead anywhere.
        """
        from fsspec import get_filesystem_class

        url = str(self) + _signatures.get(str(self), "")
        kind = get_filesystem_class(self.protocol)
        options = {**kind._get_kwargs_from_urls(url), **_store_options(self.protocol)}
        store = call_store(self, lambda: kind(**options))
        if hasattr(store, "retries"):
            store.retries = 1
        return store, str(kind._strip_protocol(url))


def _restore(parts: tuple[str, ...], signatures: dict[str, str]) -> RemotePath:
    """Return a path that was sent from another process, whose signatures are known now."""
    add_signatures(signatures)
    return RemotePath(*parts)


def add_signatures(signatures: dict[str, str]) -> None:
    """Register the queries of signed URLs, and hide them in fsspec's log."""
    _signatures.update(signatures)
    logging.getLogger("fsspec.http").addFilter(hide_in_log)


def _store_options(protocol: str) -> Info:
    """Return options for a file system of fsspec: no retries of its own, and short waits.

    What the user has set in fsspec's configuration or the environment is not replaced.
    """
    from fsspec.config import conf

    if protocol in S3:
        has_config = "config_kwargs" in conf.get("s3", {})
        if has_config or "AWS_MAX_ATTEMPTS" in os.environ:
            return {}
        return {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
    if protocol in WEB and "client_kwargs" not in conf.get(protocol, {}):
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=ANSWER_S)
        return {"client_kwargs": {"timeout": timeout}}
    return {}


def is_safe_name(name: str) -> bool:
    """Return whether a relative name stays below its folder, and has no control characters."""
    parts = name.split("/")
    return not {"", ".", ".."}.intersection(parts) and name.isprintable()


def know_files(folder: Path, names: Iterable[str]) -> Path:
    """Prefetch size and version of some files of a folder in S3; return a folder that knows them.

    A file that does not exist is an error only when it is opened. For use within one command.
    """
    if not is_remote(folder) or folder.protocol not in S3:
        return folder

    def ask(path: RemotePath) -> RemotePath | None:
        """Return a file with what the store says about it; None if it does not exist."""
        try:
            known = path.with_info()
        except OSError:
            return None
        return known if known.is_file() else None

    paths = [folder / name for name in dict.fromkeys(names)]
    answers = map_requests(ask, paths, together=True)
    known = [path for path in answers if path is not None]
    return cast(Path, folder.with_listing(known))


def why_not_writable_remote(folder: RemotePath) -> str:
    """Return why files cannot be written to a folder, by writing a small one; empty if they can."""
    if folder.protocol in WEB:
        return READ_ONLY
    path = folder / TEST_FILE
    try:
        path.call("pipe_file", b"callshot\n")
    except OSError as error:
        return str(error.strerror or error)
    with suppress(OSError):  # files may be written but not removed
        path.unlink()
    return ""


# Files on the disk


def home() -> Path:
    """Return the folder of callshot's own files: $CALLSHOT_HOME, else in the user's cache."""
    folder = os.environ.get("CALLSHOT_HOME")
    if folder:
        return Path(folder).expanduser().absolute()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("callshot", appauthor=False))


def local_copy(path: Path, checksum: str | None = None) -> Path:
    """Return a local file as it is, and a local copy of a remote one.

    A copy is made once for each version of the file, or every time if the server names no version.
    With `checksum` (SHA-256, in hexadecimal) the server is not asked for the version, and a copy
    with another checksum is made again.
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
    is_whole = is_known and copy.is_file()
    if is_whole and checksum is not None:
        with copy.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
        is_whole = digest.hexdigest() == checksum
    if not is_whole:
        _download(remote, copy)
    with suppress(OSError):
        os.utime(copy)  # used now
    return copy


def _download(remote: RemotePath, copy: Path) -> None:
    """Copy a remote file to the disk, whole or not at all; now and then remove old copies."""
    global _copies_made
    if _copies_made % CHECK_EVERY == 0:
        _remove_oldest(copy.parents[1])  # the folder of all copies
    _copies_made += 1
    copy.parent.mkdir(parents=True, exist_ok=True)
    temporary = copy.with_name(f".{secrets.token_hex(8)}.part")
    try:
        remote.call("get_file", str(temporary))
        temporary.replace(copy)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_oldest(folder: Path) -> None:
    """Remove the least recently used copies until the others are within the limit."""
    files = []  # when it was used, its size and path
    for path in folder.glob("*/*"):
        with suppress(OSError):  # another process removes them too
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    text = os.environ.get("CALLSHOT_COPIES_GB") or DEFAULT_GB
    try:
        limit = float(text) * 1e9
    except ValueError:
        raise OptionError(
            f"the variable CALLSHOT_COPIES_GB: expected a number, got {text!r}"
        ) from None
    excess = sum(size for _, size, _ in files) - limit
    hour_ago = time.time() - 3600  # younger ones may be in use
    for used, size, path in sorted(files):
        if excess <= 0 or used > hour_ago:
            return
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()
        excess -= size


def staging_folder() -> Path:
    """Return the folder in which files are written before they are uploaded."""
    folder = home() / UPLOADS
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def upload_file(source: Path, target: RemotePath) -> None:
    """Upload a file to a store; it appears there only when it is whole."""
    if target.protocol in WEB:
        raise OSError(None, READ_ONLY, str(target))
    store, place = target.find_store()
    if target.protocol in OBJECT_STORES:
        call_store(target, lambda: store.put_file(str(source), place))
        return
    hidden = target.with_name(f".{secrets.token_hex(8)}.part")
    _, hidden_place = hidden.find_store()
    parent, _, _ = place.rpartition("/")
    call_store(target, lambda: store.makedirs(parent, exist_ok=True))
    call_store(target, lambda: store.put_file(str(source), hidden_place))
    call_store(target, lambda: store.mv(hidden_place, place))
