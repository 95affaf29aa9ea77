"""The page to label recordings: tabs with it, and its server."""

import re
from contextlib import contextmanager

from callshot.review.results import read_review
from review_pages import expect, open_window, settle, use_page
from served_review import serve_labels

PHONE = {"width": 390, "height": 844}
NOISE = re.compile("Failed to load resource|ERR_CONNECTION")  # a killed server


class Tab:
    """A tab with the page."""

    def __init__(self, page, address):
        self.page = page
        self.messages = []
        page.on("console", lambda one: self.messages.append(one.text))
        page.on("pageerror", lambda one: self.messages.append(str(one)))
        page.on("dialog", lambda one: self.messages.append(one.message))
        page.goto(address)
        self.settle()

    def settle(self):
        """Wait until everything is saved, loaded and drawn."""
        settle(self.page)

    def wait_for_index(self):
        expect(self.page, "#ready").to_have_text("Ready to search")

    def drag(self, start, end):
        """Drag from a place in the picture to another, as shares of its width and height."""
        area = self.page.locator("#pane").bounding_box()
        places = [
            (area["x"] + x * area["width"], area["y"] + y * area["height"])
            for x, y in (start, end)
        ]
        self.page.mouse.move(*places[0])
        self.page.mouse.down()
        self.page.mouse.move(*places[1], steps=4)
        self.page.mouse.up()

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
            self.settle()

    def mark(self, span, name):
        """Drag a low box around a span of seconds, and name it."""
        start_s, end_s = self.times()
        shares = [(one - start_s) / (end_s - start_s) for one in span]
        self.drag((shares[0], 0.9), (shares[1], 0.98))
        self.page.keyboard.type(name)
        self.press("Enter")

    def times(self):
        """Return the first and the last time in the picture."""
        pane = self.page.locator("#pane")
        return [float(pane.get_attribute(f"data-{name}")) for name in ("from", "to")]

    @property
    def names(self):
        return self.page.locator(".box .name").all_inner_texts()


@contextmanager
def open_tabs(laptop):
    """Yield a function that opens a tab at an address; no tab had an unexpected message.

    Without a window or its options, it is the page of `laptop`, a window that tests share.
    """
    tabs = []
    contexts = []

    def open_tab(address, context=None, **options):
        page = shared
        if options:
            context = open_window(laptop.browser, **options)
            contexts.append(context)
        if context is not None:
            page = context.new_page()
        tabs.append(Tab(page, address))
        return tabs[-1]

    with use_page(laptop) as shared:
        try:
            yield open_tab
        finally:
            for context in contexts:
                context.close()
    for tab in tabs:
        assert [one for one in tab.messages if not NOISE.search(one)] == []


@contextmanager
def serve_label(laptop, recordings, out, searching=None):
    """Serve the page in this process; yield a function that opens a tab, and one that reads calls.

    `searching` are SearchOptions; without them, similar sounds are not searched.
    """

    def open_page(**options):
        return open_tab(client.address, **options)

    def read_calls(rejected=False):
        return read_review(out, rejected=rejected).events

    with (
        serve_labels(recordings, out, searching) as (client, _),
        open_tabs(laptop) as open_tab,
    ):
        yield open_page, read_calls
