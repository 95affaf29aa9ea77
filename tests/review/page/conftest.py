"""One server for all tests; each starts without decisions and ends without messages."""

from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit

import pytest

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
from served_review import Client


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

    def __init__(self, page, server, reviewer):
        self.page = page
        self.client = Client(server.port, reviewer, server.token)
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
        self.client.undo(10_000)
        name = f"&reviewer={reviewer}" if reviewer else ""
        self.page.goto(server.address + name)
        self.settle()

    def close(self, silent):
        """Take all decisions back; the page wrote no message and asked only its own server."""
        self.client.undo(10_000)
        for event, listener in self.listeners.items():
            self.page.context.remove_listener(event, listener)
        if silent:
            assert self.messages == []
        hosts = {urlsplit(url).netloc for url in self.requests if url[:4] == "http"}
        assert hosts == {f"127.0.0.1:{self.client.port}"}

    def get(self, path, **query):
        return self.client.get(f"{path}?{urlencode(query)}")

    def item(self, number):
        (item,) = self.client.items(number)
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
            seen = Visit(page, server, reviewer)
            yield seen
            seen.close(silent)

    return open_page


@pytest.fixture
def served_site(laptop, site, out, ready_index):
    """Serve the page to label these recordings, which are ready to be searched."""
    with serve_label(laptop, site[0], out, ready_index) as parts:
        yield parts
