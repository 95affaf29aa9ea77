"""Sound and picture in Chromium: playback, speed, zoom, settings that stay, what is made ready."""

import re
import struct
from urllib.parse import parse_qs, urlencode, urlsplit

from review_pages import RATE_HZ, expect, wait_until


class Requests:
    """What the page asked the server for, since the last look."""

    def __init__(self, page):
        self.urls = []
        page.on("request", lambda request: self.urls.append(request.url))

    def take(self, path):
        """Return the queries of a path since the last look."""
        urls = [url for url in self.urls if urlsplit(url).path == path]
        self.urls.clear()
        return [
            {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
            for url in urls
        ]


def read_rate(seen, query):
    """Return the rate in the header of the sound that the page asked for."""
    _, _, content = seen.client.ask("GET", f"/api/sound?{urlencode(query)}")
    return struct.unpack_from("<I", content, 24)[0]


def wait_for_query(seen, requests, path, *names, **values):
    """Return the first query of a path that has these names and values."""
    found = []

    def is_wanted(query):
        return set(names) <= query.keys() and values.items() <= query.items()

    def look():
        found.extend(filter(is_wanted, requests.take(path)))
        return found

    wait_until(seen.page, look)
    return found[0]


NOTE_PLAYING = """(element) => {
    window.played = 0;
    const note = (changes) => {
        const begun = changes.filter((one) => one.target.dataset.playing === "true");
        window.played += begun.length;
    };
    const options = { subtree: true, attributes: true, attributeFilter: ["data-playing"] };
    new MutationObserver(note).observe(element, options);
}"""


def note_playing(page, selector):
    """Count in `played` what begins to play: a sound may have ended before a look at the page."""
    page.locator(selector).evaluate(NOTE_PLAYING)


def test_space_plays_and_stops_and_a_click_plays_from_there(visit):
    with visit() as seen:
        page = seen.page
        play = page.locator("#play")
        seen.press("l")
        page.keyboard.press(" ")
        expect(play).to_have_text(re.compile("^Stop"))
        expect(page, "#playhead").to_be_visible()
        page.keyboard.press(" ")
        expect(play).to_have_text(re.compile("^Play"))
        page.keyboard.press("l")
        page.locator("#speed").select_option("16")
        page.locator("#main").focus()
        seen.settle()
        note_playing(page, "#transport")
        page.keyboard.press(" ")
        page.wait_for_function("() => window.played > 0")
        expect(play).to_have_text(re.compile("^Play"))  # after a third of a second
        page.keyboard.press("l")
        page.keyboard.press(" ")
        expect(play).to_have_text(re.compile("^Stop"))
        page.wait_for_timeout(600)
        expect(play).to_have_text(re.compile("^Stop"))
        seen.press("y")
        expect(play).to_have_text(re.compile("^Play"))
        page.locator("#speed").select_option("0.0625")  # the rest lasts many seconds
        seen.settle()
        box = page.locator("#pane").bounding_box()
        page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 50)
        expect(page, "#play").to_have_text(re.compile("^Stop"))
        left = page.evaluate(
            "parseFloat(document.querySelector('#playhead').style.left)"
        )
        assert 79 <= left <= 100
        assert seen.get("/api/progress")["done"] == 1


def test_speed_gain_band_and_selection_are_made_by_the_server(visit):
    with visit() as seen:
        page = seen.page
        requests = Requests(page)
        page.reload()
        seen.settle()
        page.locator("#speed").select_option("1")
        page.locator("#main").focus()
        seen.press("l")  # at 16 times the speed it ends at once
        queries = []
        for key, speed in (("+", 2), ("+", 4), ("+", 8), ("+", 16), ("-", 8)):
            page.keyboard.press(key)
            expect(page, "#speed").to_have_value(str(speed))
            page.keyboard.press(" ")
            expect(page, "#play").to_have_text(re.compile("^Stop"))
            page.keyboard.press(" ")
            queries += requests.take("/api/sound")
        asked = {query["speed"]: query for query in queries if query["item"] == "0"}
        assert {"2", "4", "8", "16"} <= asked.keys()
        for speed, query in asked.items():
            rate_hz = min(96000, max(8000, RATE_HZ * int(speed)))
            assert read_rate(seen, query) == rate_hz
        page.keyboard.press("o")
        query = wait_for_query(
            seen, requests, "/api/sound", speed="8", start_s="2", end_s="3.5"
        )
        assert query["before"] == "0"
        page.locator(".more summary").click()
        page.locator("#gain").select_option("12")
        wait_for_query(seen, requests, "/api/sound", gain_db="12")
        page.keyboard.press("b")
        wait_for_query(seen, requests, "/api/sound", "high_hz", gain_db="12")
        expect(page.get_by_role("button", name="Band")).to_have_attribute(
            "aria-pressed", "true"
        )


def test_settings_hold_for_all_pictures_and_keys_change_what_is_seen(visit):
    with visit() as seen:
        page = seen.page
        requests = Requests(page)
        page.keyboard.press(",")
        page.locator("[data-preset=infrasound]").click()
        page.locator("#setting-max_hz").fill("333")
        page.locator("#setting-max_hz").press("Enter")
        page.locator("#setting-scale").select_option("log")
        page.locator("#setting-colours").select_option("cividis")
        wait_for_query(
            seen,
            requests,
            "/api/spectrogram",
            max_hz="333",
            scale="log",
            colours="cividis",
        )
        page.keyboard.press("Escape")
        seen.settle()
        assert "100" in page.locator("#frequency-axis .tick").all_inner_texts()
        page.reload()
        seen.settle()
        queries = requests.take("/api/spectrogram")
        assert {query["colours"] for query in queries[-2:]} == {"cividis"}
        page.keyboard.press("g")
        expect(page.locator(".tile img[src]").first).to_be_visible()
        seen.settle()
        queries = requests.take("/api/spectrogram")
        assert queries
        assert {query["max_hz"] for query in queries} == {"333"}
        page.keyboard.press(",")
        page.locator("[data-preset=audible]").click()
        expect(page, "#setting-scale").to_have_value("linear")
        expect(page, "[data-preset=audible]").to_have_attribute("aria-pressed", "true")
        page.keyboard.press("Escape")
        page.keyboard.press("g")
        seen.settle()
        pane = page.locator("#pane")
        spans = {"c": ("0", "8.5"), "x": ("0", "5.5"), "z": ("1.88", "3.62")}
        for key, (start, end) in spans.items():
            seen.press(key)
            expect(pane).to_have_attribute("data-from", start)
            expect(pane).to_have_attribute("data-to", end)
        seen.press("z")
        expect(pane).to_have_attribute("data-to", "5.5")
        seen.press("x")
        expect(pane).to_have_attribute("data-from", "1")
        times = page.locator("#time-axis .tick").all_inner_texts()
        assert times[0] == "0:01.0"


def test_the_next_cards_are_ready_and_confirmed_calls_are_examples(visit):
    with visit() as seen:
        page = seen.page
        requests = Requests(page)
        page.reload()
        seen.settle()
        first, *later = seen.get("/api/queue", order="best", state="undecided")["ids"]
        ready = requests.take("/api/spectrogram")
        assert {str(one) for one in (first, *later[:3])} == {
            one["item"] for one in ready
        }
        seen.press("y")
        assert seen.shown() == later[0]
        asked = {one["item"] for one in requests.take("/api/spectrogram")}
        assert str(later[0]) not in asked

        seen.press("y", "y", "y", "y", "y", "y")
        page.locator("#order").select_option("time")
        seen.settle()
        tile = page.locator("#examples .example").first
        expect(tile).to_be_visible()
        expect(tile, "img[src]").to_be_visible()
        note_playing(page, "#examples")
        page.keyboard.press("e")
        page.wait_for_function("() => window.played > 0")
        assert page.evaluate("window.played") == 1


def test_dark_light_and_the_switch(visit):
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(251, 251, 249)", "rgb(20, 22, 24)"
    with visit() as seen:
        page = seen.page
        page.emulate_media(color_scheme="dark")
        assert page.evaluate(paper) == dark
        page.locator("#theme-button").click()
        assert page.evaluate(paper) == light
        page.reload()
        seen.settle()
        assert page.evaluate(paper) == light
        page.locator("#theme-button").click()
        assert page.evaluate(paper) == dark
        page.emulate_media(color_scheme="light")
        assert page.evaluate(paper) == dark
        page.locator("#theme-button").click()
        assert page.evaluate(paper) == light
