"""Calls that are marked on the card in Chromium, the fitted picture, and the end of a review."""

import csv
import io
import re

import pytest

from review_pages import HOSTILE, PANEL_MS, expect, find_low_contrasts

SHOWN_S = 5.5  # 2 s, the call from 2 to 3.5 s, 2 s
SNORT = "<script>snort"


def drag_box(page, from_s, to_s, top=0.3, bottom=0.8):
    """Drag a box over times of the first card, and shares of its height."""
    area = page.locator("#marks").bounding_box()
    left = area["x"] + from_s / SHOWN_S * area["width"]
    right = area["x"] + to_s / SHOWN_S * area["width"]
    page.mouse.move(left, area["y"] + top * area["height"])
    page.mouse.down()
    page.mouse.move(right, area["y"] + bottom * area["height"], steps=4)
    page.mouse.up()


def name_box(seen, name=""):
    """Type the name of a box; without one, take the first that is offered."""
    expect(seen.page, "#label-dialog").to_be_visible()
    seen.page.keyboard.type(name)
    seen.page.keyboard.press("Enter")
    expect(seen.page, "#label-dialog").to_be_hidden()
    seen.settle()


def added(seen):
    """Return the marked calls around the first card, as the server knows them."""
    nearby = seen.get("/api/items/0/nearby")["items"]
    return [item for item in nearby if item["added"]]


def read_export(seen):
    return list(csv.DictReader(io.StringIO(seen.client.export().decode())))


def test_an_event_is_split_by_dragging_and_a_missed_call_is_added(visit):
    with visit() as seen:
        page = seen.page
        assert seen.shown() == 0
        drag_box(page, 2.2, 2.7, 0.0, 0.8)  # to the top of the picture
        name_box(seen)
        expect(page, "#verdict").to_have_text("split · saved")
        (call,) = added(seen)
        address = f"/api/spectrogram?item={call['id']}&fit=1"
        _, headers, _ = seen.client.ask("GET", address)
        assert float(headers["x-max-hz"]) > call["high_freq_hz"]
        assert float(headers["x-min-hz"]) == 0.0
        drag_box(page, 2.9, 3.3)
        name_box(seen)
        drag_box(page, 4.4, 5.0, 0.5, 0.5)
        name_box(seen, SNORT)
        expect(page, ".mark.known").to_have_count(3)
        expect(page, "#notes .note").to_have_count(0)
        assert page.locator("#play").inner_text().startswith("Play")
        first, second, missed = added(seen)
        assert first["label"] == second["label"] == "rumble"
        assert first["start_s"] == pytest.approx(2.2, abs=0.02)
        assert first["end_s"] == pytest.approx(2.7, abs=0.02)
        # The picture reaches from 0 to 120 Hz: the band of rumbles and a margin.
        assert first["low_freq_hz"] == pytest.approx(24, abs=1)
        assert first["high_freq_hz"] == pytest.approx(120, abs=1)
        assert second["high_freq_hz"] == pytest.approx(84, abs=1)
        assert (missed["label"], missed["low_freq_hz"]) == (SNORT, None)
        rows = read_export(seen)
        assert [row["label"] for row in rows] == ["rumble", "rumble", SNORT]
        assert {row["added"] for row in rows} == {"yes"}
        page.keyboard.press("ArrowRight")
        expect(page, "#pane").not_to_have_attribute("data-item", "0")
        seen.settle()
        assert seen.item(0)["decision"]["action"] == "split"  # not skipped

        page.reload()
        seen.settle()
        page.locator("#filter-button").click()
        page.locator("#filter-state").select_option("all")
        seen.settle()
        expect(page, "#pane").to_have_attribute("data-item", "0")
        expect(page, ".mark.known").to_have_count(3)
        page.locator("#clear-filters").click()
        page.locator("#filter-button").click()
        seen.settle()

        for count in (2, 1):
            page.keyboard.press("u")
            expect(page, ".mark.known").to_have_count(count)
            seen.settle()
            assert len(added(seen)) == count
        page.keyboard.press("u")
        expect(page, "#verdict").to_have_text("not reviewed")
        seen.settle()
        assert read_export(seen) == []
        page.keyboard.press("r")
        expect(page, ".mark.known").to_have_count(1)


def test_a_short_drag_plays_and_keys_alone_mark_a_call(visit):
    with visit() as seen:
        page = seen.page
        drag_box(page, 2.2, 2.7)
        expect(page, ".mark.draft").to_have_count(1)
        page.keyboard.press("Escape")
        expect(page, ".mark.draft").to_have_count(0)
        page.locator("#speed").select_option("1")
        seen.press("l")  # else the sound may have ended before a look at the page
        page.wait_for_timeout(400)  # the click that ends a drag plays nothing
        drag_box(page, 4.0, 4.01)
        expect(page, "#play").to_have_text(re.compile("^Stop"))
        seen.settle()
        assert added(seen) == []
        assert seen.get("/api/progress")["done"] == 0

        page.keyboard.press("i")
        name_box(seen, "trum")
        (call,) = added(seen)
        assert seen.shown() == call["id"]
        assert call["label"] == "trumpet"
        expect(page, "#scores").to_have_text("marked by hand")
        seen.press("[")
        assert added(seen)[0]["start_s"] < call["start_s"]
        expect(page, "#pane").to_have_attribute("data-item", str(call["id"]))
        tag = page.locator(".tag[data-id='0']")
        tag.focus()
        page.keyboard.press("Enter")
        expect(page, "#pane").to_have_attribute("data-item", "0")
        seen.settle()
        assert seen.item(0)["decision"] is None


def test_a_picture_shows_the_band_of_its_label_and_the_end_what_came_of_it(visit):
    with visit() as seen:
        page = seen.page
        top = page.locator("#frequency-axis .tick").last
        expect(top).to_have_text("120")
        expect(page, ".mark.own").to_be_visible()
        box = page.locator(".mark.own").bounding_box()
        area = page.locator("#marks").bounding_box()
        assert box["height"] / area["height"] == pytest.approx(80 / 120, abs=0.02)
        seen.press("w")
        expect(top).to_have_text("250")
        button = page.get_by_role("button", name="Fit frequencies")
        expect(button).to_have_attribute("aria-pressed", "false")
        page.reload()
        seen.settle()
        expect(top).to_have_text("250")
        seen.press("w")
        expect(top).to_have_text("120")
        page.keyboard.press("f")
        page.locator("#filter-label").select_option("trumpet")
        expect(top).to_have_text("1.5k")
        page.locator("#filter-label").select_option(HOSTILE)  # its band is not known
        expect(top).to_have_text("250")

        page.locator("#filter-label").select_option("rumble")
        page.locator("#filter-min_score").fill("0.85")
        page.locator("#filter-min_score").press("Enter")
        expect(page, "#shown").to_contain_text("2 calls")
        page.locator("#main").focus()
        seen.settle()
        seen.press("y", "y")
        expect(page, "#confirmed").to_have_text("2 calls are confirmed, and saved.")
        expect(page, "#done .command").to_contain_text("callshot learn")
        with page.expect_download() as download:
            page.locator("#done").get_by_text("Raven selection tables").click()
        assert download.value.suggested_filename == "review-raven.zip"


def test_everything_can_be_read_on_any_screen(visit):
    with visit() as seen:
        page = seen.page
        drag_box(page, 2.5, 3.0)
        name_box(seen, SNORT)
        page.locator(".more summary").click()
        for width in (360, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            expect(page.locator(".tag").first).to_be_visible()
            seen.settle(PANEL_MS)
            assert find_low_contrasts(page) == []
            overflow = "document.documentElement.scrollWidth - innerWidth"
            assert page.evaluate(overflow) <= 0
        assert "journal" not in page.locator("body").inner_text().lower()
        assert page.locator("body script, img[onerror]").count() == 0
        page.keyboard.press("?")
        expect(page, "#help").to_be_visible()
        seen.settle()
        assert find_low_contrasts(page) == []
