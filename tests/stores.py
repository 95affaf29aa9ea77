"""An S3 server on this machine, and a proxy before it that fails, waits and counts bytes."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, unquote

import s3fs
from botocore.loaders import JSONFileLoader
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

BUCKET = "recorders"
SECRET = "wJalrXUtnFEMI-not-for-logs"
DENIED = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>no</Message></Error>'
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}

Fault = Callable[[str, str, int], str]
"""Method, path and number of a request → "", "503", "403", "drop" or "cut"."""


class Proxy(ThreadingHTTPServer):
    """Passes requests on; `fault` decides which ones fail.

    sent, requests  bytes of audio in answers, and how many requests there were
    """

    def __init__(self, target: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _PassOn)
        self.target = target
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Pass everything on, and count from 0."""
        self.fault: Fault = lambda *_: ""
        self.latency_s = 0.0
        self.sent = 0
        self.requests = 0
        self.failed = 0

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: connections end in the middle on purpose."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(
        self, status: int, headers: dict[str, str], content: bytes, is_cut: bool = False
    ) -> None:
        length = str(len(content))
        self.send_response(status)
        for name, value in headers.items():
            if self.command == "HEAD" and name.lower() == "content-length":
                length = value
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if is_cut:
            content = content[: len(content) // 2]
            self.close_connection = True
        if self.command != "HEAD":
            self.wfile.write(content)


class _PassOn(_Handler):
    server: Proxy

    def _pass_on(self) -> None:
        proxy = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with proxy.lock:
            proxy.requests += 1
            number = proxy.requests
        time.sleep(proxy.latency_s)
        fault = proxy.fault(self.command, self.path, number)
        with proxy.lock:
            proxy.failed += bool(fault)
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
        elif fault in ("403", "503"):
            self.answer(int(fault), {}, DENIED if fault == "403" else b"")
        else:
            status, headers, content = self._ask(body)
            kinds = [headers[one] for one in headers if one.lower() == "content-type"]
            if self.command == "GET" and "audio/x" in kinds:
                with proxy.lock:
                    proxy.sent += len(content)
            self.answer(status, headers, content, is_cut=fault == "cut")

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection(*self.server.target, timeout=30)
        try:
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on


class _Files(_Handler):
    """A web server with ranges over `folder`, and with pages that list it."""

    folder: Path

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        file = self.folder / unquote(path).strip("/")
        if not file.exists() or "sig=wrong" in query:
            self.answer(404 if not file.exists() else 403, {}, b"")
        elif file.is_dir():
            names = [one.name + "/" * one.is_dir() for one in file.iterdir()]
            links = "".join(f'<a href="{quote(name)}">x</a>' for name in names)
            self.answer(200, {"Content-Type": "text/html"}, links.encode())
        else:
            content = file.read_bytes()
            headers = {"Accept-Ranges": "bytes", "ETag": f'"{file.stat().st_mtime_ns}"'}
            span = self.headers.get("Range")
            if span is not None:
                first, last = span.removeprefix("bytes=").split("-")
                end = min(len(content), int(last) + 1)
                headers["Content-Range"] = f"bytes {first}-{end - 1}/{len(content)}"
                content = content[int(first) : end]
            self.answer(200 if span is None else 206, headers, content)

    do_HEAD = do_GET


@contextmanager
def _run(server: ThreadingHTTPServer) -> Iterator[None]:
    """Run a server in a thread while the block runs."""
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def serve_files(folder: Path) -> Iterator[str]:
    """Serve a folder; yield the URL."""
    handler = type("Handler", (_Files,), {"folder": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    with _run(server):
        yield f"http://127.0.0.1:{server.server_port}"


@contextmanager
def serve_s3() -> Iterator[Proxy]:
    """Start an S3 server with a proxy before it; yield the proxy."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    # Each new client would parse the same files again, which takes longer than most tests.
    parse = cache(JSONFileLoader().load_file)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    proxy = Proxy(server.get_host_and_port())
    quick = patch.object(JSONFileLoader, "load_file", lambda _, path: parse(path))
    with _run(proxy), quick:
        yield proxy
    server.stop()


def s3_environment(proxy: Proxy) -> dict[str, str]:
    """Return where tools of S3 find the server and their credentials."""
    return {
        "AWS_ENDPOINT_URL": proxy.url,
        "AWS_ACCESS_KEY_ID": "recorder",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }


def open_bucket(proxy: Proxy, name: str = BUCKET) -> s3fs.S3FileSystem:
    """Return a client of the server, with an empty bucket; the next clients are new."""
    with suppress(HTTPException):
        connection = HTTPConnection(*proxy.target)
        connection.request("POST", "/moto-api/reset")
        connection.getresponse().read()
        connection.close()
    s3fs.S3FileSystem.clear_instance_cache()
    store = s3fs.S3FileSystem()
    store.mkdir(name)
    return store


def upload(store: s3fs.S3FileSystem, folder: Path, place: str) -> None:
    """Put all files below a folder into a bucket, with their types."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = f"{place}/{path.relative_to(folder).as_posix()}"
            kind = "audio/x" if path.suffix in (".wav", ".flac", ".ogg") else "text/x"
            store.pipe_file(name, path.read_bytes(), ContentType=kind)
