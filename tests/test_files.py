"""Files: whole or absent after any failure, locked between processes, inside their folder."""

import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from hashlib import sha256
from types import SimpleNamespace

import pytest

from callshot import files
from callshot.errors import OutputError
from callshot.files import (
    atomic_path,
    describe_file,
    error_reason,
    hold_lock,
    is_inside,
    is_process_alive,
    remove_unfinished,
    sha256_file,
    sha256_text,
    share_lock,
    write_atomic,
)

posix = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no such signals or locks"
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def child(script, *arguments):
    """Run a Python script in another process, and end it with the block."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process):
    assert process.stdout is not None
    return process.stdout.readline().strip()


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_text_and_bytes_are_written_whole_and_nothing_else_stays(tmp_path):
    long = "é" * 120 + ".parquet"  # as the file system allows
    contents = {
        "a.txt": "ä\nb\n",
        "b.bin": b"\0\1",
        "c.bin": memoryview(b"\2"),
        long: "x",
    }
    for name, content in contents.items():
        write_atomic(tmp_path / name, content)
    assert (tmp_path / "a.txt").read_bytes() == b"\xc3\xa4\nb\n"
    assert (tmp_path / "b.bin").read_bytes() == b"\0\1"
    assert (tmp_path / "c.bin").read_bytes() == b"\2"
    assert names(tmp_path) == sorted(contents)


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_a_failure_keeps_the_old_file_and_removes_the_temporary_one(tmp_path, error):
    def write_half():
        with atomic_path(target) as temporary:
            assert temporary.parent == tmp_path
            assert temporary.name.startswith(".a.")
            assert temporary.suffix == ".txt"
            temporary.write_text("half")
            raise error

    target = tmp_path / "a.txt"
    target.write_text("old")
    with pytest.raises(type(error)):
        write_half()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_is_one_error_with_a_hint_and_keeps_the_old_file(
    tmp_path, monkeypatch
):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    target = tmp_path / "a.txt"
    target.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OutputError, match=r"\(No space left .*\); free some disk space"
    ):
        write_atomic(target, "new")
    assert target.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_errors_of_a_writer_that_are_named_become_output_errors(tmp_path):
    with (
        pytest.raises(OutputError, match=r"a\.csv: cannot be written \(no memory\)"),
        atomic_path(tmp_path / "a.csv", errors=(LookupError,)),
    ):
        raise LookupError("no memory")
    for error in (LookupError("no memory"), OutputError("inner")):
        with (
            pytest.raises(type(error), match=str(error)),
            atomic_path(tmp_path / "a.csv"),
        ):
            raise error


@pytest.mark.parametrize("name", ["missing/a.txt", "file/a.txt", "folder"])
def test_a_place_that_cannot_be_written_is_an_output_error(tmp_path, name):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match=f"{name}: cannot be written"):
        write_atomic(tmp_path / name, "x")
    assert names(tmp_path) == ["file", "folder"]


def test_the_content_is_on_the_disk_before_the_name(tmp_path, monkeypatch):
    target = tmp_path / "a.txt"
    synced: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(target.exists()))
    write_atomic(target, "x")
    # The file, then its folder
    assert synced == ([False] if sys.platform == "win32" else [False, True])


ENDLESS = """
import sys
from pathlib import Path
from callshot.files import write_atomic
for number in range(10**9):
    write_atomic(Path(sys.argv[1]), str(number % 10) * 100_000)
    print(number, flush=True)
"""


@posix
def test_a_process_killed_while_it_writes_leaves_a_whole_file(tmp_path):
    target = tmp_path / "a.txt"
    with child(ENDLESS, target) as process:
        assert read_line(process) == "0"
        time.sleep(0.003)
        process.send_signal(signal.SIGKILL)
    content = target.read_text()
    assert len(content) == 100_000
    assert len(set(content)) == 1
    remove_unfinished(tmp_path)
    assert names(tmp_path) == ["a.txt"]


def test_only_unfinished_files_of_dead_processes_are_removed(tmp_path):
    dead = dead_pid()
    removed = [f".a.{dead}-01234567.part.parquet", f".b.part.{dead}-89abcdef.part"]
    kept = [f".a.{os.getpid()}-01234567.part.parquet", f"a.{dead}-01234567.part"]
    kept += [f".a.{dead}.part", ".a.x-01234567.part", ".a.part", "a.parquet"]
    for name in (*removed, *kept):
        (tmp_path / name).touch()
    remove_unfinished(tmp_path, "b*")
    assert names(tmp_path) == sorted([removed[0], *kept])
    remove_unfinished(tmp_path)
    assert names(tmp_path) == sorted(kept)
    remove_unfinished(tmp_path / "missing")


def test_the_next_write_of_a_file_removes_what_killed_processes_left(tmp_path):
    dead = dead_pid()
    with atomic_path(tmp_path / "a[1].txt") as temporary:
        machine = temporary.name.split("-")[1][:4]
        temporary.touch()
    left = tmp_path / f".a[1].{dead}-{machine}4567.part.txt"
    left.touch()
    folder = left.with_suffix(".folder")
    folder.mkdir()
    (folder / "1.parquet").touch()
    other = "0000" if machine != "0000" else "1111"
    kept = [
        f".a[1].{dead}-{other}4567.part.txt",  # another machine may still write it
        f".a[1].{os.getpid()}-{machine}4567.part.txt",
        f".b.{dead}-{machine}4567.part.txt",
    ]
    for name in kept:
        (tmp_path / name).touch()
    write_atomic(tmp_path / "a[1].txt", "whole")
    assert names(tmp_path) == sorted(["a[1].txt", *kept])


def test_checksums_are_those_of_sha256(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"abc")
    digest = sha256(b"abc").hexdigest()
    assert sha256_file(tmp_path / "a.csv") == sha256_text("abc") == digest
    expected = {"file": "a.csv", "sha256": digest, "role": "table"}
    assert describe_file(tmp_path / "a.csv", role="table") == expected
    # A name that is not UTF-8
    assert sha256_text(os.fsdecode(b"\xff")) == sha256(b"\xff").hexdigest()


HOLDER = """
import sys
from pathlib import Path
from callshot.files import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_lock_excludes_another_process_until_that_ends(tmp_path):
    lock = tmp_path / ".lock"
    with child(HOLDER, lock) as process:
        assert read_line(process) == "held"
        with pytest.raises(TimeoutError), hold_lock(lock, timeout_s=0):
            pass
        process.kill()
        process.wait()
        with hold_lock(lock, timeout_s=10):
            pass
    with pytest.raises(OutputError, match="cannot be locked"), hold_lock(lock / "x"):
        pass


def test_a_lock_excludes_another_thread_and_is_free_after_an_error(tmp_path):
    lock = tmp_path / ".lock"
    refused: list[bool] = []

    def attempt():
        try:
            with hold_lock(lock, timeout_s=0):
                refused.append(False)
        except TimeoutError:
            refused.append(True)

    def fail():
        with hold_lock(lock):
            thread = threading.Thread(target=attempt)
            thread.start()
            thread.join()
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    attempt()
    assert refused == [True, False]


SHARER = """
import sys
from pathlib import Path
from callshot.files import share_lock
stream = share_lock(Path(sys.argv[1]), lambda: print("alone", flush=True))
print("shared", flush=True)
sys.stdin.readline()
"""


@posix
def test_whoever_shares_a_lock_first_is_alone_and_the_others_are_not(tmp_path):
    lock = tmp_path / ".lock"
    calls: list[str] = []
    with child(SHARER, lock) as process:
        assert [read_line(process), read_line(process)] == ["alone", "shared"]
        stream = share_lock(lock, lambda: calls.append("alone"))
        assert calls == []
    with stream, child(SHARER, lock) as process:
        assert read_line(process) == "shared"
    share_lock(lock, lambda: calls.append("alone")).close()
    assert calls == ["alone"]
    assert share_lock(tmp_path, lambda: calls.append("alone")) is None
    assert calls == ["alone"]


def test_this_process_is_alive_and_one_that_ended_is_not(monkeypatch):
    assert is_process_alive(os.getpid())
    for pid in (dead_pid(), 0, -1, 10**30):
        assert not is_process_alive(pid)

    def deny(pid, number):
        raise PermissionError  # a process of another user

    monkeypatch.setattr(os, "kill", deny)
    monkeypatch.setattr(sys, "platform", "linux")
    assert is_process_alive(123)


@pytest.mark.parametrize(
    ("handle", "code", "alive"), [(0, 0, False), (7, 259, True), (7, 1, False)]
)
def test_windows_is_asked_without_sending_a_signal(monkeypatch, handle, code, alive):
    closed: list[int] = []

    def exit_code(process, reference):
        reference._obj.value = code
        return 1

    kernel32 = SimpleNamespace(
        OpenProcess=lambda access, inherit, pid: handle,
        GetExitCodeProcess=exit_code,
        CloseHandle=closed.append,
    )
    windll = SimpleNamespace(kernel32=kernel32)
    monkeypatch.setattr(ctypes, "windll", windll, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "kill", None)
    assert files.is_process_alive(123) is alive
    assert closed == [handle] * bool(handle)


def test_names_are_inside_a_folder_unless_they_lead_out_of_it(tmp_path):
    folder = make_links(tmp_path)
    for name in ("a", "a/b", "a/./b", "missing/a", "inner/a", "link", "..a", "a.."):
        assert is_inside(folder, name), name
    outside = ("..", "../a", "a/../../b", "a/..", "/etc/passwd", "outer/a")
    for name in (*outside, "a\0/b", "a/b\0"):
        assert not is_inside(folder, name), name


def make_links(tmp_path):
    """Make a folder, reached through a link, with links to folders inside and outside of it."""
    folder = tmp_path / "real"
    (folder / "a").mkdir(parents=True)
    (folder / "inner").symlink_to(folder / "a")
    (folder / "outer").symlink_to(tmp_path)
    (folder / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to(folder)
    return tmp_path / "folder"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOENT, "No such file"), "No such file"),
        (ValueError("bad\n  value"), "bad value"),
        (ValueError("bad value\n\nlong plan\nof the library"), "bad value"),
        (ValueError(""), "ValueError"),
        (ValueError("x" * 400), "x" * 300),
    ],
)
def test_the_reason_of_an_error_is_one_line(error, reason):
    assert error_reason(error) == reason
