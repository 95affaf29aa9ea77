"""More like this and find all calls, in Chromium: keys, clicks, undo, review, export."""

import re

from label_pages import PHONE
from review_pages import PANEL_MS, expect, find_low_contrasts, settle

HOSTILE = "<img src=x onerror=alert(1)>"


def open_similar(tab):
    tab.wait_for_index()
    tab.page.keyboard.press("m")
    expect(tab.page, ".found").to_have_count(12)
    tab.settle()


def test_similar_sounds_are_answered_by_keys_and_answers_are_undone(served_site, site):
    open_tab, read_calls = served_site
    tab = open_tab()
    page = tab.page
    page.keyboard.press("m")
    expect(page, "#notes").to_contain_text("Choose a call")
    tab.mark(site[1]["a.wav"][0][:2], "hoot")
    page.locator("#speed").select_option("0.0625")  # a sound lasts some seconds
    open_similar(tab)
    card = page.locator(".found").first
    expect(card).to_be_focused()
    outline = "one => getComputedStyle(one).outlineWidth"
    assert card.evaluate(outline) == "3px"
    expect(card, "img").to_have_js_property("naturalWidth", 360)
    expect(card, ".likeness").to_have_text(re.compile("similar"))
    # A button plays a sound, and shows that it plays.
    other = page.locator(".found").nth(1)
    other.locator(".play").click()
    expect(other).to_have_class(re.compile("playing"))
    expect(page, ".found.playing").to_have_count(1)
    other.get_by_role("button", name="Stop").click()
    expect(page, ".found.playing").to_have_count(0)
    expect(other, ".play").to_have_accessible_name("Play")
    card.focus()
    page.keyboard.press(" ")
    expect(card).to_have_class(re.compile("playing"))
    page.keyboard.press("y")
    tab.settle()
    expect(card).to_have_attribute("data-answer", "yes")
    assert len(read_calls()) == 2
    expect(page, "#counts").to_have_text("2 calls")
    page.keyboard.press("n")
    expect(page, "#counts").to_have_text("2 calls, 1 answered with no")
    tab.settle()
    page.keyboard.press("o")
    page.keyboard.type("<b>growl")
    page.keyboard.press("Enter")
    tab.settle()
    assert sorted(read_calls()["label"]) == ["<b>growl", "hoot", "hoot"]
    assert len(read_calls(rejected=True)) == 4
    expect(page.locator(".found .said").nth(2)).to_have_text("<b>growl")
    page.keyboard.press("o")  # the last other name is there
    page.keyboard.press("Enter")
    tab.settle()
    expect(page.locator(".found .said").nth(3)).to_have_text("<b>growl")
    one, other = read_calls().filter(label="<b>growl").rows(named=True)
    assert one["low_freq_hz"] == other["low_freq_hz"]
    page.keyboard.press("u")
    tab.settle()
    page.keyboard.press("u")
    tab.settle()
    expect(page.locator(".found").nth(2)).to_have_attribute("data-answer", "")
    expect(page.locator(".found").nth(2)).to_be_focused()
    page.keyboard.press("u")
    tab.settle()
    assert len(read_calls(rejected=True)) == 2
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".found").nth(1)).to_be_focused()
    before = page.locator(".found").first.get_attribute("aria-label")
    page.keyboard.press("x")  # without what was answered
    expect(page, "#counts").to_have_text("2 calls")
    expect(card).to_have_attribute("data-answer", "")
    tab.settle()
    assert page.locator(".found").first.get_attribute("aria-label") != before
    # By mouse: a list that is answered leads to the next one.
    for number in range(12):
        one = page.locator(".found").nth(number)
        one.locator("button", has_text="Yes" if number < 3 else "No").click()
    expect(page, "#counts").to_have_text("5 calls, 9 answered with no")
    tab.settle()
    expect(page, '.found[data-answer="yes"]').to_have_count(0)  # the next list
    page.locator(".found").first.focus()
    page.keyboard.press("?")
    expect(page, "#help").to_contain_text("yes, it is one")
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    expect(page, "#similar").to_be_hidden()
    tab.settle()
    page.reload()
    tab.settle()
    expect(page, "#shown").to_contain_text("5 calls")
    assert len(read_calls(rejected=True)) == 14


def test_all_calls_are_found_reviewed_and_exported(served_site, site, own_jobs):
    open_tab, read_calls = served_site
    tab = open_tab()
    page = tab.page
    for span in site[1]["a.wav"][0:4:3]:
        tab.mark(span[:2], "hoot")
    tab.wait_for_index()
    page.keyboard.press("Shift+F")
    expect(page, "#stop-finding").to_be_visible()
    page.keyboard.press("Shift+F")  # stops
    expect(page, "#finding").to_contain_text("Stopped")
    page.keyboard.press("Shift+F")
    expect(page, "#found-calls").to_contain_text("hoot", timeout=90_000)
    expect(page, "#finding").to_contain_text("Based on 2 examples")
    tab.settle()
    with page.expect_download() as download:
        page.locator('[data-format="raven"]').click()
    assert download.value.suggested_filename.startswith("labels")
    tab.settle()
    page.locator('[data-format="study"]').click()
    expect(page, "#notes").to_contain_text("two such call types")
    page.keyboard.press("Shift+R")
    expect(page, "#back").to_be_visible()
    tab.settle()
    expect(page, "#panel").to_contain_text("2 of")  # what was marked
    tab.press("y")
    settle(page, PANEL_MS)
    expect(page, "#panel").to_contain_text("3 of")
    with page.expect_download() as download:
        page.locator('#panel [data-format="csv"]').click()
    # One table of all calls, with those that were marked.
    assert download.value.suggested_filename == "labels.csv"
    assert len(download.value.path().read_text().splitlines()) == 4
    page.locator("#back").click()
    expect(page, "#review-found").to_be_visible()
    tab.settle()
    expect(page, "#shown").to_contain_text("3 calls")
    assert len(read_calls()) == 3


def test_the_call_that_helps_most_is_one_click_away_and_it_fits_phones(
    served_site, site
):
    open_tab, _ = served_site
    tab = open_tab()
    page = tab.page
    tab.mark(site[1]["a.wav"][0][:2], HOSTILE)
    tab.wait_for_index()
    expect(page, "#more-recommended").to_have_count(0)
    (box,) = page.evaluate(
        "fetch('/api/recording?recording=a.wav').then((one) => one.json())"
    )["boxes"]
    tasks = page.evaluate("fetch('/api/tasks').then((one) => one.json())")
    answer = {**tasks, "advice": box}
    page.route("**/api/tasks", lambda route: route.fulfill(json=answer))
    text = page.locator("#advice")
    expect(text).to_contain_text(f"One more example of {HOSTILE} improves")
    page.locator("#more-recommended").click()
    expect(page, "#similar-title").to_have_text(f"More like {HOSTILE}")
    expect(page, ".found").to_have_count(12)
    page.unroute("**/api/tasks")
    tab.settle()
    for options in ({}, {"viewport": PHONE}):
        tab = open_tab(**options)
        page = tab.page
        tab.press("j")
        tab.wait_for_index()
        page.locator("#more-like").click()
        expect(page, ".found").to_have_count(12)
        tab.settle()
        tab.press("y", "n")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= page.viewport_size["width"]
        inside = "one => one.scrollWidth - one.clientWidth"
        assert page.locator("#similar").evaluate(inside) <= 0
        assert find_low_contrasts(page) == []
        for button in page.locator(".found .answers button:visible").all():
            assert button.bounding_box()["height"] >= 38
