"""A small scan, and a review of it behind a real server in a thread."""

import json
import shutil
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import polars as pl
import uvicorn

from callshot.detection.learn import learn
from callshot.detection.scan_files import scan_files
from callshot.review.server import (
    LOOPBACK,
    ServerOptions,
    listen,
    open_labelling,
    open_review,
)
from callshot.review.sources import SourceOptions
from callshot.review.web import make_app
from callshot.review.web_safety import Access
from field_recordings import write_site

TOKEN = "a-token-of-the-tests"


def make_scan(folder: Path) -> Path:
    """Write recordings of a site, a model of some of them and a scan of the others."""
    write_site(folder / "examples", ("x", "y"), seed=1)
    names = ("SITE_20260314_053000", "SITE_20260314_220000", "c")
    write_site(folder / "recordings", names, calls=4, seed=2)
    for path in (folder / "recordings").glob("*.txt"):
        path.rename(folder / path.name)
    learned = learn(
        folder / "examples", "mfcc", window_s=0.5, store=folder / "store", threads=1
    )
    learned.write(folder / "calls.npz")
    scan_files(
        folder / "calls.npz",
        folder / "recordings",
        folder / "scan",
        false_alarms=60.0,
        hop_s=0.25,
        threads=1,
        formats=(),
    )
    shutil.rmtree(folder / "store")
    return folder / "scan"


@dataclass
class Client:
    """A person who asks the server."""

    port: int
    reviewer: str | None = None
    token: str = TOKEN

    @property
    def address(self):
        """The address that opens the page."""
        return f"http://{LOOPBACK}:{self.port}/?token={self.token}"

    def ask(self, method, path, body=None, headers=None):
        """Return the status, the headers and the content of an answer."""
        host = f"{LOOPBACK}:{self.port}"
        cookies = [f"callshot_review_{self.port}={self.token}"]
        if self.reviewer is not None:
            name = self.reviewer.encode().hex()
            cookies.append(f"callshot_reviewer_{self.port}={name}")
        sent = {"Cookie": "; ".join(cookies)}
        if method == "POST":
            sent |= {"Content-Type": "application/json", "Origin": f"http://{host}"}
            body = json.dumps(body)
        sent |= headers or {}
        kept = {name: value for name, value in sent.items() if value is not None}
        connection = HTTPConnection(LOOPBACK, self.port, timeout=60)
        try:
            connection.request(method, path, body, kept)
            answer = connection.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            connection.close()

    def get(self, path, status=200):
        """Return an answer in JSON."""
        code, _, content = self.ask("GET", path)
        assert code == status, content
        return json.loads(content)

    def post(self, path, body, status=200):
        """Send JSON with a new uuid; return the answer."""
        if isinstance(body, dict):
            body = {"uuid": str(uuid.uuid4()), **body}
        code, _, content = self.ask("POST", path, body)
        assert code == status, content
        return json.loads(content)

    def decide(self, item, action, status=200, **more):
        """Send one decision."""
        decision = {"uuid": str(uuid.uuid4()), "item": item, "action": action, **more}
        return self.post("/api/decisions", {"decisions": [decision]}, status)

    def undo(self, count=1, action="undo"):
        """Take back what was done last, or bring it back."""
        return self.post(f"/api/{action}", {"count": count})

    def settle(self, item, label, status=200):
        """Settle a conflict."""
        return self.post("/api/settle", {"item": item, "label": label}, status)

    def items(self, *ids):
        """Return what is known of items."""
        return self.get(f"/api/items?ids={','.join(map(str, ids))}")["items"]

    def queue(self, **query):
        """Return the numbers of items, by time if nothing else is asked for."""
        return self.get(f"/api/queue?{urlencode(query)}")["ids"]

    def export(self, query="csv"):
        """Return the content of an export."""
        return self.ask("GET", f"/api/export/{query}")[2]

    def table(self, query="csv"):
        """Return an export as a data frame."""
        return pl.read_csv(self.export(query))

    def as_person(self, reviewer):
        """Return another person at the same server."""
        return Client(self.port, reviewer)

    def send(self, action, box, status=200, **more):
        """Send a change of a box."""
        return self.post("/api/boxes", {"action": action, "box": box, **more}, status)


@contextmanager
def serve(path: Path, out: Path | None = None, sources=None, **options):
    """Serve a review in a thread; yield a client and the review."""
    chosen = ServerOptions(reviewer="ada", **options)
    with (
        open_review(path, sources or SourceOptions(), chosen, out) as review,
        serve_session(review) as client,
    ):
        yield client, review


@contextmanager
def serve_labels(path: Path, out: Path | None = None, searching=None):
    """Serve recordings to label in a thread; yield a client and the session."""
    with (
        open_labelling(path, ServerOptions(reviewer="ada"), out, searching) as session,
        serve_session(session) as client,
    ):
        yield client, session


@contextmanager
def serve_session(session):
    """Serve an open review or labelling in a thread; yield a client."""
    with listen(ServerOptions(port=0)) as listener:
        port = listener.getsockname()[1]
        access = Access(TOKEN, LOOPBACK, port, session.reviewer)
        config = uvicorn.Config(
            make_app(session, access),
            log_level="error",
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            yield Client(port)
        finally:
            server.should_exit = True
            thread.join()
