"""The card in Chromium: what it shows, keys, undo, limits, splits, labels, filters, orders."""

import re

import pytest

from review_pages import FILES, HOSTILE, HOSTILE_FILE, PANEL_MS, expect, wait_until

PICTURE_SIZE = """() => {
    const image = document.querySelector("#spectrogram");
    const box = image.getBoundingClientRect();
    return [image.naturalWidth, image.naturalHeight, Math.round(box.width), Math.round(box.height)];
}"""


def decision_of(visit, number):
    decision = visit.item(number)["decision"]
    return None if decision is None else decision["action"]


def test_the_first_card_is_the_best_call_and_each_key_decides(visit):
    keys = {"ArrowUp": "confirm", "y": "confirm", "ArrowDown": "reject", "n": "reject"}
    keys |= {"ArrowRight": "skip", "s": "skip"}
    with visit() as seen:
        page = seen.page
        expect(page, "#label").to_have_text("rumble")
        expect(page, "#scores").to_have_text("best of 8or trumpet")
        expect(page, "#where").to_contain_text(HOSTILE_FILE)
        expect(page, "#where").to_contain_text("0:02.00 – 0:03.50 (1.50 s)")
        expect(page, "#place").to_have_text("Call 1 of 24")
        width, height, shown_width, shown_height = page.evaluate(PICTURE_SIZE)
        assert (width, height) == (shown_width, shown_height)
        assert page.locator("#frequency-axis .tick").all_inner_texts()[0] == "0"
        times = page.locator("#time-axis .tick").all_inner_texts()
        assert {"0:01", "0:02", "0:03"} <= {time.partition(".")[0] for time in times}

        for count, (key, action) in enumerate(keys.items(), start=1):
            number = seen.shown()
            seen.press(key)
            assert seen.shown() != number
            assert decision_of(seen, number) == action
            left = seen.page.locator("#shown")
            expect(left).to_have_text(f"{24 - count} calls: not reviewed")
        labels = seen.get("/api/session")["labels"]
        for label in labels:
            number = seen.shown()
            own = seen.item(number)["label"]
            seen.press(label["key"])
            decision = seen.item(number)["decision"]
            action = "confirm" if label["name"] == own else "relabel"
            assert decision["action"] == action
            assert decision["label"] == label["name"]


def test_undo_is_unlimited_fast_and_works_after_the_last_item(visit):
    with visit() as seen:
        page = seen.page
        pane = page.locator("#pane")
        order = []
        for key in ("y", "n", "y"):
            order.append(seen.shown())
            seen.press(key)
        present = seen.shown()
        held = []
        page.route("**/api/undo", lambda route: held.append(route))
        for _ in order:
            page.keyboard.press("u")
        for number in reversed(order):
            # The next undo is not sent, and the card stays, until the answer is shown.
            wait_until(page, lambda: held)
            page.wait_for_timeout(100)
            assert len(held) == 1
            assert seen.shown() == present
            held.pop().continue_()
            expect(pane).to_have_attribute("data-item", str(number))
            present = number
        page.unroute("**/api/undo")
        seen.settle()
        assert seen.shown() == order[0]
        assert [decision_of(seen, number) for number in order] == [None] * 3

        page.keyboard.press("f")
        page.locator("#filter-label").select_option("trumpet")
        page.locator("#filter-min_score").fill("0.7")
        page.locator("#filter-min_score").press("Enter")
        expect(page, "#shown").to_contain_text("4 calls: not reviewed, trumpet")
        page.keyboard.press("Escape")
        page.locator("#main").focus()
        seen.settle()
        order = []
        for key in ("y", "n", "s"):
            order.append(seen.shown())
            seen.press(key)
        order.append(seen.shown())
        page.keyboard.press("y")
        expect(page, "#done").to_be_visible()
        seen.settle()
        for number in reversed(order):
            page.keyboard.press("ArrowLeft")
            expect(page, "#pane").to_have_attribute("data-item", str(number))
            seen.settle()
            assert decision_of(seen, number) is None
        page.keyboard.press("u")
        expect(page, "#notes").to_have_text("There is nothing left to undo.")
        seen.press("r")
        assert decision_of(seen, order[0]) == "confirm"


def drag(page, share, by_px):
    """Drag what is at a share of the picture's width."""
    box = page.locator("#pane").bounding_box()
    x = box["x"] + share * box["width"]
    y = box["y"] + box["height"] / 3
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by_px, y, steps=5)
    page.mouse.up()


def test_the_span_can_be_changed_and_split_and_a_label_be_added(visit):
    with visit() as seen:
        page = seen.page
        number = seen.shown()
        before = seen.item(number)
        width = seen.page.locator("#pane").bounding_box()["width"]
        shown_s = 5.5  # 2 s, the call, 2 s
        drag(seen.page, 3.5 / shown_s - 2 / width, 0.5 / shown_s * width)
        seen.settle()
        expect(seen.page, "#where").to_contain_text("limits changed")
        after = seen.item(number)
        assert after["start_s"] == pytest.approx(before["start_s"])
        assert after["end_s"] == pytest.approx(before["end_s"] + 0.5, abs=0.05)
        seen.press("u")
        assert seen.item(number)["end_s"] == before["end_s"]
        seen.press("[", "]")
        after = seen.item(number)
        assert after["start_s"] < before["start_s"]
        assert after["end_s"] > before["end_s"]
        seen.press("{", "}")
        last = seen.item(number)
        assert last["start_s"] > after["start_s"]
        assert last["end_s"] < after["end_s"]
        assert seen.shown() == number
        seen.press("u", "u", "u", "u")
        total = seen.get("/api/queue", state="undecided")["total"]
        seen.page.keyboard.press("t")
        expect(seen.page, "#where").to_contain_text("part of a split call")
        seen.settle()
        part = seen.item(seen.shown())
        assert part["parent"] == number
        assert part["end_s"] == pytest.approx(2.75, abs=0.01)
        assert seen.get("/api/queue", state="undecided")["total"] == total + 1
        seen.press("y")
        assert seen.item(seen.shown())["start_s"] == pytest.approx(2.75, abs=0.01)
        seen.press("u", "u")
        assert seen.shown() == number
        expect(seen.page, "#where").to_contain_text("(1.50 s)")

        number = seen.shown()
        page.keyboard.press("a")
        page.keyboard.type("<b>snort</b>")
        page.keyboard.press("Enter")
        expect(page, "#labels").to_contain_text("<b>snort</b>")
        seen.settle()
        assert seen.item(number)["decision"]["label"] == "<b>snort</b>"
        page.keyboard.press("a")
        page.keyboard.type("trum")
        page.keyboard.press("Enter")
        seen.settle()
        labels = [one["name"] for one in seen.get("/api/session")["labels"]]
        assert "trum" not in labels
        done = seen.get("/api/progress")["done"]
        seen.page.keyboard.press("a")
        seen.page.keyboard.type("yn su")
        seen.page.keyboard.press("Escape")
        seen.page.keyboard.press("f")
        seen.page.locator("#filter-min_score").focus()
        seen.page.keyboard.type("-")
        seen.settle()
        assert seen.get("/api/progress")["done"] == done


def test_filters_hide_others_and_say_so_and_orders_are_those_of_the_server(visit):
    with visit() as seen:
        page = seen.page
        shown = page.locator("#shown")
        page.locator("#filter-button").click()
        page.locator("#filter-recording").select_option(FILES[1])
        expect(shown).to_have_text(f"12 calls: not reviewed, {FILES[1]}")
        page.locator("#filter-min_score").fill("0.5")
        page.locator("#filter-min_score").press("Enter")
        expect(shown).to_contain_text("score ≥ 0.5")
        expect(shown).to_contain_text("9 calls")
        page.locator("#clear-filters").click()
        page.locator("#filter-from_hour").fill("12")
        page.locator("#filter-from_hour").press("Enter")
        expect(shown).to_have_text("12 calls: not reviewed, from 12 h")
        page.locator("#clear-filters").click()
        page.locator("#filter-button").click()
        expect(shown).to_have_text("24 calls: not reviewed")
        seen.settle()
        seen.press("y", "n", "s")
        page.locator("#filter-button").click()
        for state, count in (("decided", 2), ("skipped", 1), ("all", 24)):
            page.locator("#filter-state").select_option(state)
            expect(shown).to_contain_text(re.compile(f"^{count} call"))
        page.locator("#clear-filters").click()
        seen.settle()
        for order in ("novel", "sample", "time"):
            page.locator("#order").select_option(order)
            first = seen.get("/api/queue", order=order, state="undecided")["ids"][0]
            expect(page, "#pane").to_have_attribute("data-item", str(first))
            seen.settle()


def test_the_label_that_gains_most_is_one_click_away_and_stays_text(visit):
    with visit() as seen:
        page = seen.page
        progress = seen.get("/api/progress")
        curve = {"k": [1, 2], "map": [0.5, 0.6], "recommended": HOSTILE}
        answer = {**progress, "curve": curve}
        page.route("**/api/progress", lambda route: route.fulfill(json=answer))
        seen.press("s")
        seen.settle(PANEL_MS)
        panel = page.locator("#panel")
        expect(panel).to_contain_text(f"One more example of {HOSTILE} improves")
        page.locator("#review-recommended").click()
        shown = page.locator("#shown")
        expect(shown).to_have_text(f"8 calls: not reviewed, {HOSTILE}")
        expect(page, "#label").to_have_text(HOSTILE)
        # Labels and file names are text.
        expect(page, "#labels").to_contain_text(HOSTILE)
        seen.settle()
        page.locator("#mode-grid").click()
        expect(page.locator(".tile-label").first).to_have_text(HOSTILE)
        seen.settle()
        foreign = "body script, img[onerror], body b script, [style*=onerror]"
        assert page.locator(foreign).count() == 0


def test_the_help_shows_all_keys_and_the_focus_is_seen(visit):
    with visit() as seen:
        page = seen.page
        page.keyboard.press("?")
        wanted = {"space", *"↑↓→←ynsuzcx+-lobedtgrafp?[]"}
        assert wanted <= set(page.locator("#help kbd").all_inner_texts())
        page.keyboard.press("Escape")
        expect(page, "#help").to_be_hidden()
        first = seen.shown()
        seen.press("PageDown", "j")
        assert seen.shown() != first
        seen.press("k", "PageUp")
        assert seen.shown() == first
        assert seen.get("/api/progress")["done"] == 0
        # Everything has a name, and the focus is seen and left.
        page.locator("body").evaluate("() => document.activeElement.blur()")
        nameless = """() => [...document.querySelectorAll("button, select, input, a, img[src]")]
            .filter((one) => !one.ariaLabel && !one.textContent.trim() && !one.labels?.length
                && one.alt === undefined && !one.title)
            .map((one) => one.outerHTML)"""
        assert page.evaluate(nameless) == []
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(style) == "solid"
        expect(page, "#live").to_have_attribute("aria-live", "polite")
        page.locator("#main").focus()
        seen.press("y")
        expect(page, "#live").to_have_text("Saved: yes.")
        page.locator("#verdicts .yes").click()
        seen.settle()
        seen.press("l")  # else the sound may have ended before a look at the page
        page.keyboard.press(" ")
        expect(page, "#play").to_contain_text("Stop")
        assert seen.get("/api/progress")["done"] == 2
