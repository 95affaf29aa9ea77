"""One server for all tests; each starts without decisions and ends without messages."""

import json
import shutil
import uuid
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from callshot.review.similar import SearchOptions
from field_recordings import index_site, write_site
from label_pages import serve_label
from review_pages import REDRAW_MS, ReviewServer, make_scan, open_window, settle

LAPTOP = {"width": 1280, "height": 800}


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
        context = page.context
        context.on("request", lambda request: self.requests.append(request.url))
        context.on("console", self._note_message)
        context.on("weberror", lambda one: self.messages.append(str(one.error)))
        page.on("dialog", lambda dialog: self.messages.append(dialog.message))

    def _note_message(self, message):
        self.messages.append(f"{message.type}: {message.text} {message.location}")

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
        is_other = bool(options or reviewer)
        options = {"viewport": LAPTOP, **options}
        context = open_window(browser, **options) if is_other else laptop
        page = context.new_page()
        seen = Visit(page, server)
        seen.open(reviewer)
        yield seen
        seen.close(silent)
        seen.page.evaluate("localStorage.clear()")
        for page in context.pages:
            page.close()
        if is_other:
            context.close()

    return open_page


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return recordings, with an index beside them, and the spans of the calls in the first one."""
    folder = write_site(tmp_path_factory.mktemp("site") / "recordings", calls=4)
    lines = (folder / "a.txt").read_text().splitlines()
    index_site(folder)
    return folder, [tuple(map(float, line.split("\t")[:2])) for line in lines]


@pytest.fixture
def served_site(browser, site, tmp_path):
    """Serve the page to label these recordings, which are ready to be searched."""
    folder, _ = site
    shutil.copytree(folder.parent / "index", tmp_path / "index")
    searching = SearchOptions("mfcc", window_s=0.5)
    with serve_label(browser, folder, tmp_path, searching) as parts:
        yield parts
