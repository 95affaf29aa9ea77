"""A file behind a URL comes in; ranges of its bytes go out, few and large where it is read on.

libsndfile reads 8 kB at a time, and each request takes a round trip. The first range is small,
because a header is often all that is needed. Each range is as long as what is expected to be read,
and while reads follow each other at least twice as long as the one before. The latest ranges stay
in memory: readers go back by a margin or a window. The starts of files stay in memory for other
readers of the same version, since a recording is opened several times; so do the latest ranges of
small files in a store whose versions are exact.
"""

import errno
import io
import math
import threading
from collections import OrderedDict, deque
from typing import Any, Protocol

from callshot.storage.requests import call_store

FIRST_BYTES = 2**14
MAX_BYTES = 2**22
RANGES_KEPT = 3  # of a file
KEPT_STARTS = 2**24  # bytes
KEPT_RANGES = 2**26  # bytes
SMALL_BYTES = 2**23  # of a file whose ranges are kept

UNKNOWN_VERSION = 0  # of a file, where a server names none

FileVersion = tuple[str, int, int]  # URL or path, size, version or time of change


class RangeMemory:
    """The ranges of the latest files, up to a number of bytes, for all threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._ranges: OrderedDict[FileVersion, list[tuple[int, bytes]]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, file: FileVersion, position: int) -> bytes | None:
        """Return what is known of a file from a position on, None if nothing is."""
        with self._lock:
            ranges = self._ranges.get(file, [])
            for start, content in ranges:
                if start <= position < start + len(content):
                    self._ranges.move_to_end(file)
                    return content[position - start :]
        return None

    def keep(self, file: FileVersion, position: int, content: bytes) -> None:
        """Keep a range; forget the files that were not read for longest."""
        end = position + len(content)
        with self._lock:
            ranges = self._ranges.setdefault(file, [])
            self._ranges.move_to_end(file)
            if any(
                start <= position and end <= start + len(kept) for start, kept in ranges
            ):
                return  # another thread was faster
            ranges.append((position, content))
            self._size += len(content)
            while self._size > self._most:
                _, ranges = self._ranges.popitem(last=False)
                self._size -= sum(len(content) for _, content in ranges)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._ranges.clear()
            self._size = 0


_starts = RangeMemory(KEPT_STARTS)
_latest = RangeMemory(KEPT_RANGES)


def forget_ranges() -> None:
    """Forget what is in memory of files, as if nothing had been read."""
    _starts.clear()
    _latest.clear()


class FileStatus(Protocol):
    """The size of a file, and a number that changes with its content."""

    @property
    def st_size(self) -> int:
        """The number of bytes."""

    @property
    def st_mtime_ns(self) -> int:
        """A number that changes with the content."""


class StoredFile(Protocol):
    """A file in a store; its text is the URL without secrets."""

    def stat(self) -> FileStatus:
        """Return size and version."""

    def with_info(self) -> "StoredFile":
        """Return the file with what the store says now, which is not asked for again."""

    def has_exact_version(self) -> bool:
        """Return whether every change gives another version."""

    def open_stream(self) -> Any:
        """Open the file to read ranges of it."""


class RangeReader(io.RawIOBase):
    """A file to read from, for one thread at a time; `name` is its URL without secrets.

    With `keep_errors`, a failed read returns no bytes and `error` is what happened: libsndfile
    calls back from C, where nothing can be raised.
    """

    def __init__(self, path: StoredFile, *, keep_errors: bool = False) -> None:
        super().__init__()
        self.name = str(path)
        self.error: BaseException | None = None
        self._path = path.with_info()
        self._keeps_errors = keep_errors
        self._position = 0
        self._step = FIRST_BYTES
        self._expected = 0  # bytes that will be read in order
        self._ranges: deque[tuple[int, bytes]] = deque(maxlen=RANGES_KEPT)
        self._stream: Any = None
        status = self._path.stat()
        self.size = status.st_size
        self.version = (self.name, status.st_size, status.st_mtime_ns)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte, from the start, the position or the end."""
        bases = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}
        position = bases[whence] + offset
        if position < 0:
            raise OSError(errno.EINVAL, "a negative position", self.name)
        self._position = position
        return position

    def close(self) -> None:
        """Forget what was read."""
        self._ranges.clear()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, as far as the file goes."""
        target = memoryview(buffer).cast("B")
        count = 0
        try:
            while count < len(target) and self._position < self.size:
                part = self._find_bytes(len(target) - count)
                target[count : count + len(part)] = part
                count += len(part)
                self._position += len(part)
        except BaseException as error:
            if not self._keeps_errors:
                raise
            self.error = error
            return 0
        return count

    def expect(self, share: float) -> None:
        """Note that a share of the file, about, will be read in order."""
        self._expected = math.ceil(share * self.size)

    def load_start(self) -> None:
        """Have the first bytes in memory."""
        if self.size > 0:
            self._find_bytes(1)

    def _find_bytes(self, count: int) -> bytes:
        """Return at least one byte at the position, from memory or from the store."""
        for start, content in reversed(self._ranges):
            offset = self._position - start
            if 0 <= offset < len(content):
                return content[offset : offset + count]
        content = self._load_range()
        self._ranges.append((self._position, content))
        return content[:count]

    def _load_range(self) -> bytes:
        """Return the range that begins at the position."""
        known = self._find_known()
        if known is not None:
            return known
        follows = False
        if self._ranges:
            start, content = self._ranges[-1]
            follows = start + len(content) == self._position
        least = 2 * self._step if follows else FIRST_BYTES
        self._step = min(max(least, self._expected), MAX_BYTES)
        end = min(self._position + self._step, self.size)
        content = call_store(self.name, lambda: self._request(self._position, end))
        if len(content) != end - self._position:
            raise OSError(
                errno.ESTALE, "the file became shorter while it was read", self.name
            )
        self._expected = max(0, self._expected - len(content))
        self._keep(content)
        return content

    def _find_known(self) -> bytes | None:
        """Return what is in memory of the file at the position."""
        for memory in (_latest, _starts):
            content = memory.find(self.version, self._position)
            if content is not None:
                return content
        return None

    def _keep(self, content: bytes) -> None:
        """Keep a range at the position for other readers of this version of the file."""
        if self.version[2] == UNKNOWN_VERSION:
            return
        if self._position == 0:
            _starts.keep(self.version, 0, content[:FIRST_BYTES])
        if self.size <= SMALL_BYTES and self._path.has_exact_version():
            _latest.keep(self.version, self._position, content)

    def _request(self, start: int, end: int) -> bytes:
        """Ask for a range; after an error the next call asks with a new connection."""
        try:
            if self._stream is None:
                self._stream = self._path.open_stream()
            self._stream.seek(start)
            return bytes(self._stream.read(end - start))
        except BaseException:
            self._stream = None
            raise
