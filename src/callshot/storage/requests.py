"""One call to a store comes in; its answer goes out, after retries, or an OSError of one line.

What may pass is tried again, up to 5 times over about 6 seconds: no answer, a dropped connection,
too many requests, errors of the server. What will not pass is not: no such file, no permission.
Once 3 calls in a row have failed for good, the storage counts as gone: until a call succeeds, each
is tried once, so that the rejects of many recordings do not take hours.
"""

import errno
import logging
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from callshot.errors import CallshotError
from callshot.jobs import Pool

Answer = TypeVar("Answer")
Item = TypeVar("Item")

ATTEMPTS = 5
FAILURES_OF_GONE = 3
TOGETHER = 16  # requests, where nothing but the answer is waited for
FIRST_WAIT_S = 0.5  # doubled each time
LASTING = (
    CallshotError,
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
PASSING_STATUS = (408, 425, 429)  # of HTTP, beside 500 and above
NO_RANGES = "support range requests"
URL_IN_TEXT = re.compile(
    r"([a-z][a-z0-9+.-]+://)([^\s'\"/?]*@)?([^\s'\"?]*)(\?[^\s'\")]*)?"
)
NAMED_SECRET = re.compile(
    r"((?:signature|sig|token|credential|secret|password|accountkey|accesskeyid)[\w-]*\s*[=:]\s*)"
    r"[^\s&,;'\"]+",
    re.IGNORECASE,
)


_failures = 0  # calls in a row that failed after all attempts


def call_store(name: object, call: Callable[[], Answer]) -> Answer:
    """Return what a call returns; `name` is the file or folder in the error.

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
            if not may_pass(error):
                raise make_error(name, error) from None
            if attempt == attempts:
                _failures += 1
                raise make_error(name, error) from None
        else:
            _failures = 0
            return answer
        _wait(attempt)
    raise AssertionError


def _wait(attempt: int) -> None:
    """Wait twice as long after each attempt, and not all clients for the same time."""
    wait_s = FIRST_WAIT_S * 2 ** (attempt - 1)
    time.sleep(wait_s * random.uniform(0.5, 1.0))


def may_pass(error: Exception) -> bool:
    """Return whether the same call may succeed a little later."""
    status = _find_status(error)
    if status is not None:
        return status >= 500 or status in PASSING_STATUS
    if _is_expired(error) or _lacks_credentials(error):
        return False
    if type(error.__cause__).__module__.startswith("aiohttp"):
        return True  # fsspec calls a web server that does not answer "not found"
    return not isinstance(error, LASTING)


def make_error(name: object, error: Exception) -> OSError:
    """Return an error of the system with a reason of one line."""
    status = _find_status(error)
    if _lacks_credentials(error):
        reason = "no credentials; set them in the environment or a configuration file"
        return PermissionError(errno.EACCES, reason, str(name))
    if isinstance(error, PermissionError) or status in (401, 403):
        reason = "no permission; check the credentials, the rights of this account and the clock"
        return PermissionError(errno.EACCES, reason, str(name))
    if _is_expired(error) or status == 412:
        return OSError(errno.ESTALE, "the file changed while it was read", str(name))
    if may_pass(error):
        return OSError(errno.EIO, f"the storage failed: {_one_line(error)}", str(name))
    if isinstance(error, FileNotFoundError) or status == 404:
        reason = "no such file, folder or bucket"
        return FileNotFoundError(errno.ENOENT, reason, str(name))
    if NO_RANGES in str(error):
        reason = "the server sends whole files only; download it first"
        return OSError(errno.ENOTSUP, reason, str(name))
    return OSError(errno.EIO, f"the storage failed: {_one_line(error)}", str(name))


def _is_expired(error: Exception) -> bool:
    """Return whether a file is another one than it was when it was opened."""
    return type(error).__name__ == "FileExpired"


def map_requests(
    function: Callable[[Item], Answer], items: Iterable[Item], *, together: bool
) -> Iterator[Answer]:
    """Yield what a function returns for items, in order; several at once if `together`."""
    if not together:
        yield from map(function, items)
        return
    with Pool(TOGETHER) as pool:
        yield from pool.map(function, items)


def hide_secrets(text: str) -> str:
    """Return a text without the passwords and signatures of the URLs in it.

    >>> hide_secrets("GET https://me:pw@host/a.wav?sig=abc failed")
    'GET https://host/a.wav failed'
    """
    text = URL_IN_TEXT.sub(lambda match: match[1] + match[3], text)
    return NAMED_SECRET.sub(r"\1…", text)


def hide_in_log(record: logging.LogRecord) -> bool:
    """Hide the secrets of an entry in a log."""
    record.msg = hide_secrets(record.getMessage())
    record.args = ()
    return True


def _lacks_credentials(error: Exception) -> bool:
    return "credential" in type(error).__name__.lower()


def _find_status(error: Exception) -> int | None:
    """Return the status of HTTP in the exceptions of aiohttp, Google, Azure and botocore."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        facts = response.get("ResponseMetadata", {})
        return _as_status(facts.get("HTTPStatusCode"))
    if type(error).__module__.startswith("aiohttp.http"):
        return None  # an answer that ends early, which aiohttp numbers 400
    for name in ("status", "status_code", "code"):
        status = _as_status(getattr(error, name, None))
        if status is not None:
            return status
    cause = error.__cause__
    return _find_status(cause) if isinstance(cause, Exception) else None


def _as_status(value: object) -> int | None:
    return value if isinstance(value, int) and 400 <= value < 600 else None


def _one_line(error: Exception) -> str:
    text = " ".join(hide_secrets(str(error)).split())
    return text[:200] or type(error).__name__
