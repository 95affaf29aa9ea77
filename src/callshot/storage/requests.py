"""What a store is asked for: one call with retries, or ranges of the bytes of a file.

Transient errors are retried, up to 5 times over about 6 seconds: no answer, a dropped connection,
too many requests, errors of the server. Permanent ones are not: no such file, no permission. Once
3 calls in a row have failed for good, the storage counts as gone: until a call succeeds, each is
tried once, so that the rejects of many recordings do not take hours.

libsndfile reads 8 kB at a time, and each request takes a round trip. The first range is small,
because a header is often all that is needed. Each range is as long as what is expected to be read,
and while reads follow each other at least twice as long as the one before. The latest ranges stay
in memory: readers go back by a margin or a window. The starts of files stay in memory for other
readers of the same version, since a recording is opened several times; so do the latest ranges of
small files in a store whose versions are exact.
"""

import errno
import io
import logging
import math
import random
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from callshot.errors import CallshotError
from callshot.jobs import Pool

Answer = TypeVar("Answer")
Item = TypeVar("Item")
FileVersion = tuple[str, int, int]  # URL or path, size, version or time of change

ATTEMPTS = 5
FAILURES_OF_GONE = 3
TOGETHER = 16  # requests, where nothing but the answer is waited for
FIRST_WAIT_S = 0.5  # doubled each time
PERMANENT = (
    FileExistsError,
    FileNotFoundError,
    ImportError,
    IsADirectoryError,
    NotADirectoryError,
    NotImplementedError,
    PermissionError,
    TypeError,
    ValueError,
)
TRANSIENT_STATUS = (408, 425, 429)  # of HTTP, beside 500 and above
NO_RANGES = "support range requests"
URL_IN_TEXT = re.compile(
    r"([a-z][a-z0-9+.-]+://)([^\s'\"/?]*@)?([^\s'\"?]*)(\?[^\s'\")]*)?"
)
NAMED_SECRET = re.compile(
    r"((?:signature|sig|token|credential|secret|password|accountkey|accesskeyid)[\w-]*\s*[=:]\s*)"
    r"[^\s&,;'\"]+",
    re.IGNORECASE,
)

FIRST_BYTES = 2**14
MAX_BYTES = 2**22
RANGES_KEPT = 3  # of a file
MAX_MEMORY = 2**26  # bytes of ranges that are kept for other readers
SMALL_BYTES = 2**23  # of a file whose ranges are kept

UNKNOWN_VERSION = 0  # of a file, where a server names none

_failures = 0  # calls in a row that failed after all attempts


# Calls


def call_store(name: object, call: Callable[[], Answer]) -> Answer:
    """Call a store, and retry if the error is transient; return what the call returns.

    `name` is the file or folder in the error.

    Raises
    ------
    FileNotFoundError, PermissionError, OSError
        With one line as `strerror`, without secrets.
    """
    global _failures
    attempts = 1 if _failures >= FAILURES_OF_GONE else ATTEMPTS
    for attempt in range(1, attempts + 1):
        try:
            answer = call()
        except CallshotError:
            raise
        except Exception as error:  # every store has its own exceptions
            explained, is_transient = _explain(name, error)
            if is_transient and attempt == attempts:
                _failures += 1
            if not is_transient or attempt == attempts:
                raise explained from None
        else:
            _failures = 0
            return answer
        # Random, so that not all clients try again at the same time.
        time.sleep(FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))
    raise AssertionError


def _explain(name: object, error: Exception) -> tuple[OSError, bool]:
    """Return an OSError with a message of one line for any error of a store.

    The second value is whether the error is transient, so that the call may succeed later.
    """
    status = _find_status(error)
    kind = type(error).__name__
    # fsspec calls a web server that does not answer "not found".
    is_silent = type(error.__cause__).__module__.startswith("aiohttp")
    is_transient = is_silent or not isinstance(error, PERMANENT)
    if status is not None:
        is_transient = status >= 500 or status in TRANSIENT_STATUS
    number = errno.EIO
    if "credential" in kind.lower():
        number = errno.EACCES
        reason = "no credentials; set them in the environment or a configuration file"
    elif isinstance(error, PermissionError) or status in (401, 403):
        number = errno.EACCES
        reason = "no permission; check the credentials, the rights of this account and the clock"
    elif kind == "FileExpired" or status == 412:
        number = errno.ESTALE
        reason = "the file changed while it was read"
    elif not is_transient and (isinstance(error, FileNotFoundError) or status == 404):
        number = errno.ENOENT
        reason = "no such file, folder or bucket"
    elif not is_transient and NO_RANGES in str(error):
        reason = "the server sends whole files only; download it first"
    else:
        text = " ".join(hide_secrets(str(error)).split())[:200] or kind
        return OSError(number, f"the storage failed: {text}", str(name)), is_transient
    return OSError(number, reason, str(name)), False


def _find_status(error: BaseException) -> int | None:
    """Return the HTTP status in an exception of aiohttp, Google, Azure or botocore, or its cause.

    Return None if there is none.
    """
    names = ("status", "status_code", "code")
    values: Iterable[object] = (getattr(error, name, None) for name in names)
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        values = [response.get("ResponseMetadata", {}).get("HTTPStatusCode")]
    elif type(error).__module__.startswith("aiohttp.http"):
        return None  # an answer that ends early, which aiohttp numbers 400
    for value in values:
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return None if error.__cause__ is None else _find_status(error.__cause__)


def map_requests(
    function: Callable[[Item], Answer], items: Iterable[Item], *, together: bool
) -> Iterator[Answer]:
    """Yield what a function returns for items, in order; several at once if `together`."""
    if not together:
        yield from map(function, items)
        return
    with Pool(TOGETHER) as pool:
        yield from pool.map(function, items)


# Secrets


def hide_secrets(text: str) -> str:
    """Return a text without the passwords and signatures of the URLs in it.

    >>> hide_secrets("GET https://me:pw@host/a.wav?sig=abc failed")
    'GET https://host/a.wav failed'
    """
    text = URL_IN_TEXT.sub(lambda match: match[1] + match[3], text)
    return NAMED_SECRET.sub(r"\1…", text)


def hide_in_log(record: logging.LogRecord) -> bool:
    """Hide the secrets in a log record; a filter of `logging`, which keeps every record."""
    record.msg = hide_secrets(record.getMessage())
    record.args = ()
    return True


# Ranges


class RangeMemory:
    """The ranges of the latest files, up to a number of bytes, for all threads."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self.clear()

    def find(self, file: FileVersion, position: int) -> bytes | None:
        """Return bytes of a file from a position on, as far as they are in memory, or None."""
        with self._lock:
            for start, content in self._ranges.get(file, []):
                if start <= position < start + len(content):
                    self._ranges.move_to_end(file)
                    return content[position - start :]
        return None

    def keep(self, file: FileVersion, position: int, content: bytes) -> None:
        """Keep a range; forget the files that were not read for longest."""
        with self._lock:
            self._ranges.setdefault(file, []).append((position, content))
            self._ranges.move_to_end(file)
            self._size += len(content)
            while self._size > self._max_bytes:
                _, ranges = self._ranges.popitem(last=False)
                self._size -= sum(len(content) for _, content in ranges)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._ranges: OrderedDict[FileVersion, list[tuple[int, bytes]]]
            self._ranges = OrderedDict()
            self._size = 0


_memory = RangeMemory(MAX_MEMORY)
find_range = _memory.find
keep_range = _memory.keep
forget_ranges = _memory.clear


class RangeReader(io.RawIOBase):
    """A file to read from, for one thread at a time; `name` is its URL without secrets.

    With `keep_errors`, a failed read returns no bytes and `error` is what happened: libsndfile
    calls back from C, where nothing can be raised.
    """

    def __init__(self, path: Any, *, keep_errors: bool = False) -> None:
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
        self.size: int = status.st_size
        self.version = (self.name, status.st_size, status.st_mtime_ns)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

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
        """Prefetch the start of the file."""
        if self.size > 0:
            self._find_bytes(1)

    def _find_bytes(self, count: int) -> bytes:
        """Return 1 to `count` bytes from the position on, from memory or from the store."""
        for start, content in reversed(self._ranges):
            offset = self._position - start
            if 0 <= offset < len(content):
                return content[offset : offset + count]
        known = find_range(self.version, self._position)
        content = self._load_range() if known is None else known
        self._ranges.append((self._position, content))
        return content[:count]

    def _load_range(self) -> bytes:
        """Request the range of bytes that begins at the position, and return it.

        It is as long as what is expected to be read. If it follows the range before, it is at least
        twice as long as that one.
        """
        continues = False
        if self._ranges:
            start, content = self._ranges[-1]
            continues = start + len(content) == self._position
        minimum = 2 * self._step if continues else FIRST_BYTES
        self._step = min(max(minimum, self._expected), MAX_BYTES)
        end = min(self._position + self._step, self.size)
        content = call_store(self.name, lambda: self._request(self._position, end))
        if len(content) != end - self._position:
            raise OSError(
                errno.ESTALE, "the file became shorter while it was read", self.name
            )
        self._expected = max(0, self._expected - len(content))
        # For other readers of this version of the file.
        if self.size <= SMALL_BYTES and self._path.has_exact_version():
            keep_range(self.version, self._position, content)
        elif self._position == 0 and self.version[2] != UNKNOWN_VERSION:
            keep_range(self.version, 0, content[:FIRST_BYTES])
        return content

    def _request(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`; after an error, the next call reconnects."""
        try:
            if self._stream is None:
                self._stream = self._path.open_stream()
            self._stream.seek(start)
            return bytes(self._stream.read(end - start))
        except BaseException:
            self._stream = None
            raise
