"""The grid, phones and walls, in Chromium."""

import re

import pytest

from review_pages import expect

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def open_grid(seen):
    seen.press("g")
    expect(seen.page, ".tile").to_have_count(24)


def actions(seen):
    """Return the actions of all items, as the server knows them."""
    ids = ",".join(str(number) for number in range(24))
    items = seen.get("/api/items", ids=ids)["items"]
    return [item["decision"]["action"] if item["decision"] else None for item in items]


def test_several_calls_are_decided_by_one_key_arrows_move_and_enter_opens(visit):
    with visit() as seen:
        page = seen.page
        posts = []
        page.on(
            "request",
            lambda one: posts.append(one.url) if one.method == "POST" else None,
        )
        open_grid(seen)
        # Tiles show where their call begins and ends.
        frames = page.locator(".tile .frame[style]")
        expect(frames).to_have_count(24)
        shares = frames.evaluate_all(
            "all => all.map((one) => [one.style.left, one.style.width].map(parseFloat))"
        )
        # Calls of 1.5 s with 2 s of sound before and after.
        assert shares == [pytest.approx([200 / 5.5, 150 / 5.5], abs=0.01)] * 24
        tiles = page.locator(".tile")
        tiles.nth(1).click()
        tiles.nth(4).click(modifiers=["Shift"])
        tiles.nth(2).click()
        expect(page, "#chosen").to_have_text("3 calls chosen")
        expect(page, ".tile[aria-selected=true]").to_have_count(3)
        page.keyboard.press("n")
        expect(page, ".tile[data-state=saved][data-action=reject]").to_have_count(3)
        seen.settle()
        assert actions(seen).count("reject") == 3
        assert len(posts) == 1
        page.keyboard.press("Control+a")
        expect(page, "#chosen").to_have_text("24 calls chosen")
        question = page.locator("#question")
        page.keyboard.press("y")
        expect(question).to_contain_text("Say yes to 24 calls at once?")
        page.keyboard.press("y")
        expect(question).to_contain_text("24 calls will count as confirmed")
        page.keyboard.press("Escape")
        expect(question).to_be_hidden()
        seen.settle()
        assert actions(seen).count("reject") == 3
        assert len(posts) == 1
        page.keyboard.press("y")
        expect(question).to_contain_text("Say yes to 24 calls at once?")
        page.keyboard.press("y")
        expect(question).to_contain_text("24 calls will count as confirmed")
        page.keyboard.press("y")
        expect(question).to_be_hidden()
        expect(page, ".tile[data-state=saved][data-action=confirm]").to_have_count(24)
        seen.settle()
        page.keyboard.press("u")
        expect(page, ".tile[data-action=confirm]").to_have_count(0)
        expect(page, ".tile[data-action=reject]").to_have_count(3)
        page.keyboard.press("u")
        expect(page, ".tile[data-state=none]").to_have_count(24)
        seen.settle()
        assert set(actions(seen)) == {None}
        ids = seen.get("/api/queue", order="best", state="undecided")["ids"]
        focused = page.locator(".tile.focused")
        columns = page.evaluate(
            "getComputedStyle(document.querySelector('#tiles'))"
            ".gridTemplateColumns.split(' ').length"
        )
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")
        expect(focused).to_have_attribute("data-id", str(ids[columns + 1]))
        page.keyboard.press("Shift+ArrowRight")
        expect(page, "#chosen").to_have_text("2 calls chosen")
        page.keyboard.press("m")
        expect(page, "#chosen").to_have_text("1 call chosen")
        seen.press("l")  # else the sound may have ended before a look at the page
        page.keyboard.press(" ")
        expect(page, ".tile[data-playing=true]").to_have_count(1)
        page.keyboard.press(" ")
        expect(page, ".tile[data-playing=true]").to_have_count(0)
        page.keyboard.press("Enter")
        expect(page, "#card").to_be_visible()
        expect(page, "#pane").to_have_attribute("data-item", str(ids[columns + 2]))


def test_a_phone_shows_the_card_and_a_finger_decides(visit):
    phone = {
        "viewport": {"width": 360, "height": 740},
        "has_touch": True,
        "is_mobile": True,
    }
    with visit(**phone) as seen:
        page = seen.page
        assert page.evaluate(OVERFLOW) <= 0
        for name in ("Undo", "No", "Yes", "Skip"):
            box = (
                page.locator("#verdicts")
                .get_by_role("button", name=name)
                .bounding_box()
            )
            assert box["height"] >= 44
            assert box["y"] + box["height"] <= 740
        first = seen.shown()
        page.locator("#verdicts .yes").tap()
        expect(page, "#pane").not_to_have_attribute("data-item", str(first))
        seen.settle()
        assert seen.item(first)["decision"]["action"] == "confirm"
        seen.press("l")  # else the sound may have ended before a look at the page
        page.locator("#play").tap()
        expect(page, "#play").to_have_text(re.compile("^Stop"))
        page.locator("#verdicts .undo").tap()
        expect(page, "#pane").to_have_attribute("data-item", str(first))
        seen.settle()
        page.locator("#mode-grid").tap()
        seen.settle()
        page.locator(".tile").nth(0).tap()
        page.locator(".tile").nth(1).tap()
        expect(page, "#chosen").to_have_text("2 calls chosen")
        seen.settle()
        assert page.evaluate(OVERFLOW) <= 0
        page.locator("#help-button").tap()
        expect(page, "#help").to_be_visible()
        assert page.evaluate(OVERFLOW) <= 0
