"""One server for all tests; each starts without decisions and ends without messages."""

import json
import shutil
import uuid
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from callshot.review import similar
from callshot.review.children import DONE
from callshot.review.similar import SearchOptions
from field_recordings import index_site, write_site
from label_pages import serve_label
from review_pages import (
    LAPTOP,
    REDRAW_MS,
    ReviewServer,
    make_scan,
    open_window,
    settle,
    use_own_page,
    use_page,
)


@pytest.fixture(scope="session")
def server(browser, tmp_path_factory):
    """Serve a small scan until the tests end."""
    for package in ("starlette", "uvicorn"):
        pytest.importorskip(package, reason="pip install 'callshot[review]'")
    server = ReviewServer(make_scan(tmp_path_factory.mktemp("review")))
    server.start()
    yield server
    server.kill()


class Visit:
    """A page of the review, and the questions that tests ask."""

    def __init__(self, page, server):
        self.page = page
        self.server = server
        self.messages = []
        self.requests = []
        note = self.messages.append
        self.listeners = {
            "request": lambda request: self.requests.append(request.url),
            "console": lambda one: note(f"{one.type}: {one.text} {one.location}"),
            "weberror": lambda one: note(str(one.error)),
            "dialog": lambda dialog: note(dialog.message),
        }
        for event, listener in self.listeners.items():
            page.context.on(event, listener)

    def open(self, reviewer):
        """Open the page as somebody who has decided nothing yet."""
        name = f"&reviewer={reviewer}" if reviewer else ""
        self.page.request.get(self.server.address + name)
        self.undo_all()
        self.page.goto(self.server.address + name)
        self.settle()

    def close(self, silent):
        """Take all decisions back; the page wrote no message and asked only its own server."""
        self.undo_all()
        for event, listener in self.listeners.items():
            self.page.context.remove_listener(event, listener)
        if silent:
            assert self.messages == []
        hosts = {urlsplit(url).netloc for url in self.requests if url[:4] == "http"}
        assert hosts == {f"127.0.0.1:{self.server.port}"}

    def get(self, path, **query):
        """Ask the server as the page does."""
        answer = self.page.request.get(f"{self.origin}{path}", params=query)
        assert answer.ok, answer.text()
        return answer.json()

    def post(self, path, body):
        """Send to the server as the page does."""
        headers = {"Content-Type": "application/json", "Origin": self.origin}
        answer = self.page.request.post(
            f"{self.origin}{path}", data=json.dumps(body), headers=headers
        )
        assert answer.ok, answer.text()
        return answer.json()

    @property
    def origin(self):
        return f"http://127.0.0.1:{self.server.port}"

    def item(self, number):
        (item,) = self.get("/api/items", ids=number)["items"]
        return item

    def shown(self):
        """Return the number of the item whose picture is on the card."""
        return int(self.page.locator("#pane").get_attribute("data-item"))

    def press(self, *keys):
        """Press keys; wait after each until everything is saved, loaded and drawn."""
        for key in keys:
            self.page.keyboard.press(key)
            self.settle()

    def settle(self, longest_ms=REDRAW_MS):
        """Wait until everything is saved, loaded and drawn; longer timers do not count."""
        settle(self.page, longest_ms)

    def undo_all(self):
        """Take back what this reviewer decided."""
        self.post("/api/undo", {"uuid": str(uuid.uuid4()), "count": 10_000})


@pytest.fixture(scope="session")
def laptop(browser):
    """Keep one window for the tests that need no other: windows are slow to open."""
    context = open_window(browser, viewport=LAPTOP)
    yield context
    context.close()


@pytest.fixture
def visit(browser, server, laptop):
    """Return a function that opens the page; it was silent and asked only its own server."""

    @contextmanager
    def open_page(reviewer=None, silent=True, **options):
        opened = use_page(laptop)
        if options or reviewer:
            window = open_window(browser, **{"viewport": LAPTOP, **options})
            opened = use_own_page(window)
        with opened as page:
            seen = Visit(page, server)
            seen.open(reviewer)
            yield seen
            seen.close(silent)

    return open_page


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return recordings, with an index beside them, and the spans of the calls in the first one."""
    folder = write_site(tmp_path_factory.mktemp("site") / "recordings", calls=4)
    lines = (folder / "a.txt").read_text().splitlines()
    index_site(folder)
    return folder, [tuple(map(float, line.split("\t")[:2])) for line in lines]


class EndedJob:
    """The job that makes an index, where there is nothing left to do."""

    state = DONE

    def __init__(self, steps):
        self.steps = steps

    def describe(self):
        return {"state": DONE, "text": "", "share": 1.0, "left": "", "error": ""}

    def stop(self):
        """It runs no more."""


@pytest.fixture
def served_site(laptop, site, tmp_path, monkeypatch):
    """Serve the page to label these recordings, which are ready to be searched."""
    monkeypatch.setattr(similar, "Job", EndedJob)
    folder, _ = site
    shutil.copytree(folder.parent / "index", tmp_path / "index")
    searching = SearchOptions("mfcc", window_s=0.5)
    with serve_label(laptop, folder, tmp_path, searching) as parts:
        yield parts
