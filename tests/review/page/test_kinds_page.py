"""Where to listen first, in Chromium: the order of recordings, kinds of sounds, the map."""

import re

from label_pages import PHONE
from review_pages import expect, find_low_contrasts, settle


def open_kinds(page):
    expect(page, "#ready").to_have_text("Ready to search")
    page.keyboard.press("e")
    expect(page, ".found").to_have_count(12)
    settle(page)


def test_recordings_are_ordered_and_kinds_of_sounds_become_boxes(served_site):
    open_tab, read_calls = served_site
    tab = open_tab()
    page = tab.page
    names = page.locator(".recording bdi")
    tab.wait_for_index()
    expect(page, ".news").to_have_count(3)
    tab.settle()
    expect(page, "#shown").to_have_text(re.compile(r"0 of \d+ min listened to"))
    assert names.all_inner_texts() == ["a.wav", "b.wav", "c.wav"]
    tab.press("o")
    expect(page, "#order").to_have_value("hear")
    expect(page, "#order-text").to_contain_text("of the different sounds")
    ordered = names.all_inner_texts()
    assert sorted(ordered) == ["a.wav", "b.wav", "c.wav"]
    bars = page.locator(".news .bar span").evaluate_all(
        "all => all.map((one) => parseFloat(one.style.width))"
    )
    assert bars == sorted(bars, reverse=True)
    assert bars[0] == 100
    page.locator(f'[data-name="{ordered[0]}"]').click()
    tab.settle()
    page.keyboard.press("Shift+J")  # the next one of this order
    expect(page, "#file").to_have_text(ordered[1])
    tab.settle()
    page.reload()
    tab.settle()
    expect(page, "#order").to_have_value("hear")
    page.locator("#order").select_option("time")
    expect(names).to_have_text(["a.wav", "b.wav", "c.wav"])

    # Kinds of sounds are named by keys and become boxes.
    page.locator("#main").focus()
    tab.settle()
    open_kinds(page)
    cards = page.locator(".found")
    expect(cards.first).to_be_focused()
    page.keyboard.press(" ")
    expect(page, "#counts").to_contain_text("1 listened to")
    page.keyboard.press("y")  # there is no last name yet
    page.keyboard.type("<b>hoot")
    page.keyboard.press("Enter")
    page.keyboard.press("y")
    page.keyboard.press("n")
    expect(cards.nth(2)).to_have_attribute("data-answer", "no")
    expect(cards.nth(1).locator(".said")).to_have_text("<b>hoot")
    expect(cards.nth(5).locator(".answers button").first).to_have_text("<b>hoot")
    tab.settle()
    assert read_calls()["label"].to_list() == ["<b>hoot", "<b>hoot"]
    expect(page, "#counts").to_contain_text("2 named")
    page.keyboard.press("u")  # nothing
    page.keyboard.press("u")
    expect(cards.nth(1)).to_have_attribute("data-answer", "")
    expect(page, "#counts").to_contain_text("1 named")
    tab.settle()
    before = cards.evaluate_all("all => all.map((one) => one.ariaLabel)")
    page.keyboard.press("x")
    expect(cards.first).to_have_attribute("data-answer", "")
    expect(cards.first).to_be_focused()
    tab.settle()
    after = cards.evaluate_all("all => all.map((one) => one.ariaLabel)")
    places = [
        {re.sub("Sound [0-9]+", "", one) for one in part} for part in (before, after)
    ]
    assert places[0].isdisjoint(places[1])
    page.keyboard.press("g")  # in its recording
    expect(page, "#similar").to_be_hidden()
    tab.settle()
    page.keyboard.press("?")
    expect(page, "#help").to_contain_text("each kind of sound once")


def test_points_of_the_map_become_cards_by_keys_click_and_lasso(served_site):
    open_tab, read_calls = served_site
    tab = open_tab()
    page = tab.page
    open_kinds(page)
    cards = page.locator(".found")
    canvas = page.locator("#map")
    page.keyboard.press("m")
    expect(canvas).to_be_focused()
    tab.settle()
    assert canvas.evaluate("one => getComputedStyle(one).outlineWidth") == "3px"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page, "#live").to_contain_text("a.wav, 0:00.5")
    page.keyboard.press("Enter")
    expect(cards.first).to_have_attribute("aria-label", re.compile("a.wav, 0:00.5"))
    expect(cards.first).to_be_focused()
    expect(page, "#counts").to_contain_text("1 listened to")
    tab.settle()
    page.keyboard.press("o")
    page.keyboard.type("bark")
    page.keyboard.press("Enter")
    tab.settle()
    assert read_calls()["label"].to_list() == ["bark"]
    box = canvas.bounding_box()
    corners = [(0.01, 0.01), (0.99, 0.01), (0.99, 0.99), (0.01, 0.99)]
    places = [
        (box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners
    ]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=4)
    page.mouse.up()
    expect(cards).to_have_count(60)  # all of them would be too many
    expect(page.locator(".found .said", has_text="bark")).to_have_count(1)
    tab.settle()
    # By a click, at the place of the first card on the map.
    point = page.evaluate("fetch('/api/kinds').then((one) => one.json())")["sounds"][
        20
    ]["point"]
    side = canvas.evaluate("one => one.clientWidth")
    canvas.click(
        position={
            "x": 1 + 24 + point[0] * (side - 48) / 1000,
            "y": 1 + side - 24 - point[1] * (side - 48) / 1000,
        }
    )
    expect(cards).to_have_count(12)
    page.keyboard.press("Escape")
    expect(page, "#similar").to_be_hidden()
    expect(page, "#shown").to_contain_text("1 call ")


def test_it_fits_and_can_be_read(served_site):
    open_tab, _ = served_site
    for options in ({}, {"viewport": PHONE}):
        tab = open_tab(**options)
        page = tab.page
        tab.wait_for_index()
        expect(page, ".news").to_have_count(3)
        tab.press("o")
        assert find_low_contrasts(page) == []
        page.locator("#kinds").click()
        expect(page, ".found").to_have_count(12)
        tab.settle()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= page.viewport_size["width"]
        inside = "one => one.scrollWidth - one.clientWidth"
        assert page.locator("#similar").evaluate(inside) <= 0
        assert find_low_contrasts(page) == []
        for button in page.locator(".found .answers button:visible").all():
            assert button.bounding_box()["height"] >= 38
