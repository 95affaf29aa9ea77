"""For tests of a cluster: functions of jobs, which workers import by name, and files to compare."""

import errno
import os
import signal
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from callshot.detection.index.index_recordings import Piece
from callshot.errors import InputError, OutputError
from callshot.files import explain_unreadable
from callshot.jobs import Job, Outcome, TryLater

TLS = "distributed.comm.tls"


def list_certificates(security) -> dict[str, str]:
    """Return settings of Dask with which others can connect to a local cluster."""
    settings = {f"{TLS}.ca-file": security.tls_ca_file}
    for role in ("client", "worker"):
        settings[f"{TLS}.{role}.cert"] = getattr(security, f"tls_{role}_cert")
        settings[f"{TLS}.{role}.key"] = getattr(security, f"tls_{role}_key")
    return settings


def name_variables(settings: dict[str, str]) -> dict[str, str]:
    """Return settings of Dask as variables of the environment."""
    variables = {}
    for name, value in settings.items():
        words = name.replace(".", "__").replace("-", "_")
        variables[f"DASK_{words.upper()}"] = value
    return variables


@contextmanager
def use_certificate(security):
    """Have Dask use the certificate of a local cluster in this process."""
    import dask

    with dask.config.set(list_certificates(security)):
        yield


def make_job(folder: Path, items: list[str], **changes) -> Job:
    options = {
        "kind": "test",
        "prepare": open_folder,
        "function": work,
        "common": folder,
        "items": items,
        "names": items,
        "sizes": [1.0] * len(items),
    }
    return Job(**options | changes)


def list_files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a folder, without locks."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def open_folder(folder: Path, threads: int) -> Path:
    return folder


def fail_to_open(folder: Path, threads: int) -> Path:
    raise InputError("no weights for birdnet; run callshot encoders get birdnet")


def fail_to_open_once(folder: Path, threads: int) -> Path:
    if _count_try(folder, f"opened-{os.getpid()}") == 1:
        raise OSError(errno.EIO, "the storage failed: 503", "s3://b/model.npz")
    return folder


def fail_on_first_worker(folder: Path, threads: int) -> Path:
    first = folder / "first"
    with suppress(FileExistsError), first.open("x") as stream:
        stream.write(str(os.getpid()))
    if first.read_text() in ("", str(os.getpid())):
        raise OSError(errno.ESTALE, "Stale file handle", "/disk/index")
    return folder


def fail_to_read(folder: Path, threads: int) -> Path:
    _count_try(folder, "opened")
    with explain_unreadable("s3://b/index.json"):
        raise OSError(errno.EIO, "the storage failed: 503", "s3://b/index.json")


def work(folder: Path, item: str) -> str:
    """Do what the name of an item says; note that it was tried."""
    tries = _count_try(folder, item)
    what = item.partition(" ")[0]
    if what == "dies" or (what == "dies-once" and tries == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "fails" or (what == "fails-once" and tries == 1):
        raise InputError(f"{item}: cannot be read")
    if what == "unwritten":
        raise OutputError(f"{item}: cannot be written (No space left on device)")
    if what == "breaks":
        raise ZeroDivisionError("a fault in the program")
    if what == "busy" and tries == 1:
        raise TryLater
    if what == "process":
        time.sleep(0.1)
        return str(os.getpid())
    return item.upper()


def _count_try(folder: Path, item: str) -> int:
    with (folder / item).open("a") as stream:
        stream.write("x")
    return len((folder / item).read_text())


class ClusterHere:
    """Runs the items of a job in this process, the last first, and each of them twice.

    `spans` are those of long recordings that were begun; after `most` of them comes Ctrl-C.
    """

    def __init__(self, most=None):
        self.most = most
        self.audio_s = 0.0
        self.spans = []

    def run(self, job):
        state = job.prepare(job.common, 1)
        for number in reversed(range(len(job.items))):
            item = job.items[number]
            if isinstance(item, Piece) and item.count > 1:
                self.spans.append(item)
            if self.most is not None and len(self.spans) > self.most:
                raise KeyboardInterrupt
            try:
                job.function(state, item)
                yield Outcome(number, job.function(state, item))
            except InputError as error:
                yield Outcome(number, reason=str(error))

    def add_audio(self, seconds):
        self.audio_s += seconds
