"""URLs beside paths: what is one, what it needs, and what is never written of it."""

import builtins
import os
import pickle
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePosixPath

import fsspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot import index_recordings
from callshot.corpus.audio import open_recording
from callshot.errors import CallshotError, InputError, OptionError
from callshot.files import atomic_path, make_folder, sha256_file, write_atomic
from callshot.storage import (
    RangeReader,
    hide_secrets,
    is_remote,
    local_copy,
    remote_path,
    requests,
    to_path,
)
from callshot.storage.remote_path import RemotePath, is_safe_name
from sounds import record
from stores import serve_files


@pytest.fixture(autouse=True)
def own_home(monkeypatch, tmp_path):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(requests, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(requests, "_failures", 0)


@pytest.mark.parametrize(
    "text", ["a.wav", "/data/x", "C:/data", "C:", "a:b/c.wav", "", "x://", "é://x/y"]
)
def test_paths_stay_paths(text):
    assert to_path(text) == Path(text)
    assert type(to_path(text)) is type(Path())


def test_a_url_is_joined_and_compared_as_a_path_is():
    folder = to_path("S3://bucket/2026/")
    assert is_remote(folder)
    path = folder / "site" / "a.wav"
    url = "s3://bucket/2026/site/a.wav"
    assert str(path) == f"{path}" == url
    assert path.name == "a.wav"
    assert str(path.with_suffix(".txt")) == "s3://bucket/2026/site/a.txt"
    assert str(path.parent) == "s3://bucket/2026/site"
    assert path.relative_to(folder) == PurePosixPath("site/a.wav")
    assert path == to_path(url) == to_path(path) == to_path(Path(url))
    assert pickle.loads(pickle.dumps(path)) == path  # noqa: S301
    assert to_path("file:///data/x") == Path("/data/x")
    assert str(to_path("ftp://me@host/x")) == "ftp://me@host/x"
    assert to_path("memory://b/what?design=3.wav").name == "what?design=3.wav"


def test_no_function_of_the_system_takes_a_url_for_a_path(tmp_path, monkeypatch):
    path = to_path("s3://bucket/a.wav")
    acts = (
        lambda: open(path),  # noqa: PTH123, SIM115
        lambda: path.mkdir(),
        lambda: path.rename("x"),
        lambda: make_folder(Path("s3://bucket/a.wav").absolute()),
    )
    monkeypatch.chdir(tmp_path)
    for act in acts:
        with pytest.raises(CallshotError, match=r"s3://bucket/a\.wav: expected a path"):
            act()
    assert list(tmp_path.iterdir()) == []


PASSWORD = "a password in a URL ends up in logs"
SIGNED = "only https:// URLs may have a sig"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("foo://bucket/x", "foo://bucket/x: unknown protocol foo; expected s3, gs"),
        ("s3://key:pw@bucket/x", f"^s3://bucket/x: {PASSWORD}"),
        ("https://pw@host/x", f"^https://host/x: {PASSWORD}"),
        ("https://a@pw@host/x", f"^https://host/x: {PASSWORD}"),
        ("az://c/x.wav?sv=1&sig=pw'pw", rf"^az://c/x\.wav: {SIGNED}"),
        ("s3://b/x?X-Amz-Signature=pw", f"^s3://b/x: {SIGNED}"),
        ("gs://b/x?access_token=pw", f"^gs://b/x: {SIGNED}"),
        ("foo://pw@host/x?key=pw", "^foo://host/x: unknown protocol foo"),
    ],
)
def test_urls_that_cannot_be_opened_are_one_line(url, message):
    with pytest.raises(OptionError, match=message) as caught:
        to_path(url)
    assert "pw" not in str(caught.value).replace("password", "")


def test_a_missing_package_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **options):
        if name.split(".")[0] in missing:
            raise ImportError(f"No module named {name}")
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    missing = {"fsspec"}
    with pytest.raises(
        OptionError, match=r"need fsspec; pip install 'callshot\[storage"
    ):
        to_path("s3://bucket/x")
    assert to_path("plain/path") == Path("plain/path")
    missing = {"gcsfs"}
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(OptionError, match=r"gs://bucket/x: .*gcsfs"):
        to_path("gs://bucket/x")


def test_two_colons_in_a_name_lead_nowhere_else(memory, tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("of this machine")
    chained = to_path("memory://d") / "absent::file:" / secret.relative_to("/")
    with pytest.raises(FileNotFoundError):
        chained.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "403, message='Forbidden', url='https://h/a.wav?X-Amz-Signature=SECRET&b=1'",
        "https://user:SECRET@h/x",
        "GET https://h/a?sig=SECRET failed",
        "AccountKey=SECRET; x",
        "token: SECRET",
    ],
)
def test_secrets_are_hidden(text):
    assert "SECRET" not in hide_secrets(text)


ODD_NAMES = ["a b.wav", "c#1.wav", "d?x.wav", "e%2Ff.wav", "g&h;i.wav", "ü.wav"]


def test_a_web_server_is_read_in_ranges_and_listed_whatever_the_names(tmp_path):
    record(tmp_path / "in/a.wav", 60, 16000)
    for seed, name in enumerate(ODD_NAMES):
        record(tmp_path / "in" / name, 2, 16000, seed=seed)
    with serve_files(tmp_path) as url:
        result = index_recordings(f"{url}/in", tmp_path / "index", "mfcc", window_s=1)
        assert result.rejects == []
        assert len(result.added) == 1 + len(ODD_NAMES)
        with open_recording(to_path(f"{url}/in/a.wav")) as remote:
            signal = remote.read(50.0, 51.0, rate_hz=16000)
        with pytest.raises(InputError, match="no such file, folder or bucket"):
            index_recordings(f"{url}/c.wav", tmp_path / "i", "mfcc", window_s=1)
    with open_recording(tmp_path / "in/a.wav") as local:
        assert np.array_equal(signal, local.read(50.0, 51.0, rate_hz=16000))


@given(
    content=st.binary(max_size=600),
    reads=st.lists(st.tuples(st.integers(0, 700), st.integers(0, 300)), max_size=12),
)
def test_any_order_of_reads_returns_the_bytes_of_the_file(content, reads):
    fsspec.filesystem("memory").pipe_file("/reads/x", content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "FIRST_BYTES", 16)
        patch.setattr(requests, "MAX_BYTES", 64)
        requests.forget_ranges()
        with to_path("memory://reads/x").open("rb") as stream:
            for position, count in reads:
                stream.seek(position)
                part = content[position : position + count]
                assert stream.read(count) == part
                assert stream.tell() == position + len(part)


def test_a_file_read_from_start_to_end_is_asked_for_in_few_ranges(memory, monkeypatch):
    content = bytes(range(256)) * 2**16
    memory.pipe_file("/x", content)
    ranges = []
    real = RangeReader._request

    def request(self, start, end):
        ranges.append((start, end))
        return real(self, start, end)

    monkeypatch.setattr(RangeReader, "_request", request)
    with to_path("memory://x").open("rb") as stream:
        read = b"".join(iter(lambda: stream.read(8192), b""))
    assert read == content
    assert len(ranges) < 14
    assert [end for _, end in ranges[:-1]] == [start for start, _ in ranges[1:]]


def test_files_are_written_whole_or_not_at_all(memory):
    target = to_path("memory://out/a.txt")
    with suppress(ZeroDivisionError), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert not target.exists()
    write_atomic(target, "whole\n")
    assert memory.cat_file("/out/a.txt") == b"whole\n"
    assert sha256_file(target) == sha256_file(local_copy(target))
    assert list((remote_path.home() / "uploads").iterdir()) == []


def test_a_copy_is_made_once_for_each_version(memory, monkeypatch):
    path = to_path("memory://d/x.npz")
    memory.pipe_file("/d/x.npz", b"one")
    first = local_copy(path)
    assert first.read_bytes() == b"one"
    assert local_copy(path) == first
    memory.pipe_file("/d/x.npz", b"three")
    assert local_copy(path).read_bytes() == b"three"
    checksum = sha256(b"three").hexdigest()
    local_copy(path, checksum).write_bytes(b"damaged")
    assert local_copy(path, checksum).read_bytes() == b"three"
    monkeypatch.setattr(remote_path, "VERSION_KEYS", ())  # a server that names none
    for content in (b"one", b"two"):
        memory.pipe_file("/d/x.npz", content)
        assert local_copy(path).read_bytes() == content
        with path.open("rb") as stream:
            assert stream.read() == content


@pytest.mark.parametrize(("limit_gb", "kept"), [("0.0000015", 2), ("0.000002", 3)])
def test_copies_that_were_not_used_for_longest_go_beyond_the_limit(
    memory, monkeypatch, limit_gb, kept
):
    monkeypatch.setattr(remote_path, "CHECK_EVERY", 1)
    monkeypatch.setenv("CALLSHOT_COPIES_GB", limit_gb)
    copies = []
    for number in range(4):
        memory.pipe_file(f"/d/{number}", bytes(1000))
        copies.append(local_copy(to_path(f"memory://d/{number}")))
        os.utime(copies[-1], (number, number))  # long ago
    exist = [copy.exists() for copy in copies]
    assert exist == [False] * (4 - kept) + [True] * kept
    monkeypatch.setenv("CALLSHOT_COPIES_GB", "many")
    memory.pipe_file("/d/x", b"1")
    with pytest.raises(OptionError, match="CALLSHOT_COPIES_GB: expected a number"):
        local_copy(to_path("memory://d/x"))


@given(st.text(alphabet="ab./\x00\n\\é", min_size=1, max_size=12))
def test_a_safe_name_stays_inside_its_folder(name):
    if is_safe_name(name):
        path = RemotePath("s3://b/in") / name
        assert str(path) == f"s3://b/in/{name}"
        assert str(path.parent).startswith("s3://b/in")


def test_transient_errors_are_retried_and_permanent_ones_are_not(monkeypatch):
    waits: list[float] = []
    monkeypatch.setattr(requests, "FIRST_WAIT_S", 1.0)
    monkeypatch.setattr(requests.time, "sleep", waits.append)
    for error, attempts in (
        (ConnectionResetError("gone"), 5),
        (TimeoutError(), 5),
        (FileNotFoundError("x"), 1),
        (PermissionError("x"), 1),
    ):
        calls = []

        def call(error=error, calls=calls):
            calls.append(1)
            raise error

        with pytest.raises(OSError):
            requests.call_store("s3://b/x", call)
        assert len(calls) == attempts
    assert len(waits) == 8
    assert sum(waits[:4]) <= 15


def test_storage_that_is_gone_costs_little_time_for_each_file():
    calls: list[int] = []

    def call():
        calls.append(1)
        raise ConnectionRefusedError

    for _ in range(10):
        with pytest.raises(OSError):
            requests.call_store("s3://b/x", call)
    assert len(calls) == 3 * 5 + 7
    assert requests.call_store("s3://b/x", lambda: 1) == 1
    with pytest.raises(OSError):
        requests.call_store("s3://b/x", call)
    assert len(calls) == 3 * 5 + 7 + 5
