"""A URL comes in; a path goes out that is used as a Path is: joined, listed, read, removed.

Names in a listing come from others. One that would lead out of its folder, or that no path can
have, is listed with a problem and never opened.
"""

import io
import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NoReturn, TypeGuard, cast

from callshot.errors import CallshotError, printable
from callshot.storage.range_reader import UNKNOWN_VERSION, RangeReader
from callshot.storage.requests import call_store, hide_in_log, map_requests

Info = dict[str, Any]

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
NO_URL = "expected a path on this machine, got a URL"
TEST_FILE = ".callshot-write-test"

# The queries of signed URLs, which are part of no path.
_signatures: dict[str, str] = {}


@dataclass(frozen=True)
class RemoteStatus:
    """What `Path.stat` returns, of a file behind a URL.

    `st_mtime_ns` is no time: it stands for the ETag, or whatever changes with the file; it is
    UNKNOWN_VERSION where a server names nothing of that kind.
    """

    st_size: int
    st_mtime_ns: int
    st_mode: int
    st_ctime_ns: int = 0


class RemotePath(PurePosixPath):
    """A file or folder behind a URL. It has no path on this machine: `open(path)` fails."""

    _info: Info | None = None  # of a file in a listing
    _listed: Mapping[str, Info] | None = None  # of a folder: its files, by name
    problem: str = ""  # why a name in a listing must not be opened

    def __truediv__(self, name: os.PathLike[str] | str) -> "RemotePath":
        path = super().__truediv__(name)
        if self._listed is not None:
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

    def exists(self) -> bool:
        """Return whether there is a file, or a folder with files."""
        try:
            self.info()
        except FileNotFoundError:
            return False
        return True

    def is_file(self) -> bool:
        """Return whether there is a file."""
        try:
            return bool(self.info()["type"] == "file")
        except FileNotFoundError:
            return False

    def is_dir(self) -> bool:
        """Return whether there is a folder with files."""
        try:
            return bool(self.info()["type"] == "directory")
        except FileNotFoundError:
            return False

    def stat(self) -> RemoteStatus:
        """Return the size, and a number that changes with the file."""
        info = self.info()
        if info["type"] == "directory":
            return RemoteStatus(0, 0, stat.S_IFDIR)
        size = int(info.get("size") or 0)
        version = next((info[key] for key in VERSION_KEYS if info.get(key)), None)
        if version is None:
            return RemoteStatus(size, UNKNOWN_VERSION, stat.S_IFREG)
        digest = sha256(str(version).encode()).digest()
        return RemoteStatus(size, int.from_bytes(digest[:7], "big"), stat.S_IFREG)

    def has_exact_version(self) -> bool:
        """Return whether every change gives another version.

        A time may be in whole seconds, and web servers make an ETag of it.
        """
        if self.protocol in WEB:
            return False
        info = self.info()
        return any(info.get(key) for key in CONTENT_KEYS)

    def info(self) -> Info:
        """Return what the store says about a file or folder; of a listed file, what it said."""
        if self._info is not None:
            return self._info
        is_server = len(self.parts) == 2
        if self.protocol in WEB and (is_server or not self.suffix):
            return {"type": "directory"}  # to ask would be to download the page
        store, place = self.find_store()
        store.invalidate_cache()
        return dict(call_store(self, lambda: self._ask(store, place)))

    def _ask(self, store: Any, place: str) -> Info:
        """Ask for a file or folder; in S3 one name may be both, and without suffix is a folder."""
        info: Info = store.info(place)
        if self.protocol not in S3 or info["type"] != "file" or self.suffix:
            return info
        bucket, _, key = place.partition("/")
        found = store.call_s3(
            "list_objects_v2", Bucket=bucket, Prefix=f"{key}/", MaxKeys=1
        )
        return {"type": "directory"} if found["KeyCount"] else info

    def with_info(self) -> "RemotePath":
        """Return the path with what the store says now, which is not asked for again."""
        path = RemotePath(self)
        path._info = self.info()
        return path

    def with_listing(self, files: Iterable["RemotePath"]) -> "RemotePath":
        """Return a folder that knows its files from a listing, where that is safe.

        S3 alone refuses to send a part of a file that is no longer the one that was listed.
        """
        folder = RemotePath(self)
        if self.protocol in S3:
            folder._listed = {
                str(path.relative_to(self)): _shorten(path.info()) for path in files
            }
        return folder

    def with_files(self, names: Iterable[str]) -> "RemotePath":
        """Return a folder that knows some of its files, where that is safe; each is asked for once.

        Those that cannot be asked for are not known: the error comes when they are opened.
        """
        if self.protocol not in S3:
            return self
        paths = [self / name for name in dict.fromkeys(names)]
        answers = map_requests(_ask_for_file, paths, together=True)
        return self.with_listing(path for path in answers if path is not None)

    def open_stream(self) -> Any:
        """Open a file to read ranges of it as they come, if it is still the one that is known."""
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
        store, place = self.find_store()
        # S3's library would ask for the size first, to read parts at once.
        options = {"max_concurrency": 1} if self.protocol in S3 else {}
        return bytes(call_store(self, lambda: store.cat_file(place, **options)))

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the content of a small file as text."""
        return self.read_bytes().decode(encoding)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove a file."""
        store, place = self.find_store()
        try:
            call_store(self, lambda: store.rm_file(place))
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
        """Return all files below, by name; one with a bad name has a `problem`."""
        store, place = self.find_store()
        store.invalidate_cache()
        root = place.rstrip("/") + "/"
        found = call_store(self, lambda: self._find(store, root))
        files = []
        for name, info in sorted(found.items()):
            if info["type"] == "file" and not name.endswith("/"):  # a mark of a folder
                files.append(self._make_listed(name, root, info))
        return files

    def _find(self, store: Any, root: str) -> dict[str, Info]:
        """Return what a store says about all files below."""
        if self.protocol in S3:
            # Of an empty folder S3's library would ask more, unless it is given as a prefix.
            bucket, _, prefix = root.partition("/")
            return dict(store.find(bucket, prefix=prefix, detail=True))
        place = root if self.protocol in WEB else root.rstrip("/")
        return dict(store.find(place, detail=True))

    def _make_listed(self, name: str, root: str, info: Info) -> "RemotePath":
        """Return a file of a listing."""
        relative = name.removeprefix(root)
        problem = ""
        if not name.startswith(root):
            problem = "is outside the folder"
        elif not is_safe_name(relative):
            problem = "its name has empty parts, dots or control characters; rename it"
        if problem:
            relative = printable(relative).replace("/", "∕")
        listed = self / relative
        listed.problem = problem
        if info.get("size") is not None:  # a page with links has no sizes
            listed._info = info
        return listed

    def find_store(self) -> tuple[Any, str]:
        """Return the file system of fsspec, and the name of this file there.

        Two colons in a name would be a chain of URLs in fsspec's own functions, which may lead
        anywhere: they are not used.
        """
        from fsspec import get_filesystem_class

        url = str(self) + _signatures.get(str(self), "")
        kind = get_filesystem_class(self.protocol)
        options = {**kind._get_kwargs_from_urls(url), **_store_options(self.protocol)}
        store = call_store(self, lambda: kind(**options))
        if hasattr(store, "retries"):
            store.retries = 1
        return store, str(kind._strip_protocol(url))


def _ask_for_file(path: RemotePath) -> RemotePath | None:
    """Return a file with what the store says; None if it is none."""
    try:
        known = path.with_info()
    except OSError:
        return None
    return known if known.is_file() else None


def _restore(parts: tuple[str, ...], signatures: dict[str, str]) -> RemotePath:
    """Return a path that was sent from another process, whose signatures are known now."""
    add_signatures(signatures)
    return RemotePath(*parts)


def add_signatures(signatures: dict[str, str]) -> None:
    """Know the queries of signed URLs from now on; fsspec's log would have them."""
    _signatures.update(signatures)
    logging.getLogger("fsspec.http").addFilter(hide_in_log)


def _shorten(info: Info) -> Info:
    """Return what is needed of a file of S3: there may be a million in a listing."""
    return {key: info[key] for key in ("name", "type", "size", "ETag")}


def _store_options(protocol: str) -> Info:
    """Return options that the user did not set: no retries but callshot's, and short waits."""
    from fsspec.config import conf

    if protocol in S3:
        is_set = "AWS_MAX_ATTEMPTS" in os.environ or "config_kwargs" in conf.get(
            "s3", {}
        )
        return (
            {} if is_set else {"config_kwargs": {"retries": {"total_max_attempts": 1}}}
        )
    if protocol in WEB and "client_kwargs" not in conf.get(protocol, {}):
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(None, sock_connect=CONNECT_S, sock_read=ANSWER_S)
        return {"client_kwargs": {"timeout": timeout}}
    return {}


def is_safe_name(name: str) -> bool:
    """Return whether a relative name leads to a file below, and has nothing a terminal obeys.

    >>> [is_safe_name(name) for name in ("a/b.wav", "../a.wav", "a//b.wav", "a\\x1b.wav")]
    [True, False, False, False]
    """
    parts = name.split("/")
    return not {"", ".", ".."}.intersection(parts) and name.isprintable()


def is_remote(path: PurePath) -> TypeGuard["RemotePath"]:
    """Return whether a path is behind a URL."""
    return isinstance(path, RemotePath)


def know_files(folder: Path, names: Iterable[str]) -> Path:
    """Return a folder that knows some of its files if it is behind a URL; another one as it is.

    To be used within one command: what it knows may be old in the next one.
    """
    if not is_remote(folder):
        return folder
    return cast(Path, folder.with_files(names))


def why_not_writable_remote(folder: RemotePath) -> str:
    """Return what prevents files in a folder; empty if nothing does. A small file is tried."""
    if folder.protocol in WEB:
        return "a web server takes no files"
    path = folder / TEST_FILE
    try:
        store, place = path.find_store()
        call_store(path, lambda: store.pipe_file(place, b"callshot\n"))
    except OSError as error:
        return str(error.strerror or error)
    try:
        path.unlink()
    except OSError:
        return ""  # files may be written but not removed
    return ""
