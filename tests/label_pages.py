"""A server of the page to label recordings, a tab with it, and a check of its colours."""

import re
from contextlib import contextmanager

from callshot.review.results import read_review
from review_pages import ReviewServer, open_window, settle

LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
NOISE = re.compile("Failed to load resource|ERR_CONNECTION")  # a killed server

CONTRASTS = """() => {
    const read = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = (colour) => {
        const parts = colour.slice(0, 3).map((one) => one / 255);
        const linear = parts.map(
            (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
    };
    const ground = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const colour = read(getComputedStyle(one).backgroundColor);
            if (colour.length === 3 || colour[3] > 0.7) return colour;
        }
        return [255, 255, 255];
    };
    const texts = [...document.querySelectorAll("p, span, bdi, kbd, h1, h2, code, a, label")];
    const shown = texts.filter((one) => one.checkVisibility() && one.textContent.trim());
    return shown.map((one) => {
        const both = [light(read(getComputedStyle(one).color)), light(ground(one))];
        const lights = both.sort((a, b) => b - a);
        return [one.textContent, (lights[0] + 0.05) / (lights[1] + 0.05)];
    }).filter(([, ratio]) => ratio < 4.5);
}"""


def find_low_contrasts(page):
    """Return the texts that are hard to read on a dark or a light ground."""
    found = []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found += page.evaluate(CONTRASTS)
    return found


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
        from playwright.sync_api import expect

        expect(self.page.locator("#ready")).to_have_text("Ready to search")

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

    def times(self):
        """Return the first and the last time in the picture."""
        pane = self.page.locator("#pane")
        return [float(pane.get_attribute(f"data-{name}")) for name in ("from", "to")]

    @property
    def names(self):
        return self.page.locator(".box .name").all_inner_texts()


@contextmanager
def serve_label(browser, recordings, out, *options):
    """Give a function that opens a tab, the server, and a function that reads the calls."""
    server = ReviewServer(recordings, "--out", str(out), *options, command="label")
    server.start()
    tabs = []
    contexts = []

    def open_tab(context=None, **options):
        if context is None:
            context = open_window(browser, **{"viewport": LAPTOP, **options})
            contexts.append(context)
        tabs.append(Tab(context.new_page(), server.address))
        return tabs[-1]

    def read_calls(rejected=False):
        return read_review(out, rejected=rejected).events

    yield open_tab, server, read_calls
    server.kill()
    for context in contexts:
        context.close()
    for tab in tabs:
        assert [one for one in tab.messages if not NOISE.search(one)] == []
