"""More like this and find all calls, in Chromium: keys, clicks, undo, review, export."""

import re
import shutil

import pytest

from field_recordings import index_site, write_site
from label_pages import LAPTOP, PHONE, find_low_contrasts, serve_label
from review_pages import PANEL_MS, settle

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed"
).expect

OPTIONS = ("--encoder", "mfcc", "--window", "0.5")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return recordings with an index, and the times of the calls in the first one."""
    folder = write_site(tmp_path_factory.mktemp("similar") / "recordings", calls=4)
    first = (folder / "a.txt").read_text().splitlines()
    index_site(folder)
    return folder, [tuple(map(float, line.split("\t")[:2])) for line in first]


@pytest.fixture
def served(browser, site, tmp_path):
    folder, _ = site
    shutil.copytree(folder.parent / "index", tmp_path / "index")
    with serve_label(browser, folder, tmp_path, *OPTIONS) as parts:
        yield parts


def mark(tab, span, name):
    """Drag a box around a call, name it, and open more like it."""
    start_s, end_s = tab.times()
    places = [(one - start_s) / (end_s - start_s) for one in span]
    tab.drag((places[0], 0.9), (places[1], 0.98))
    tab.page.keyboard.type(name)
    tab.press("Enter")


def open_similar(tab):
    tab.wait_for_index()
    tab.page.keyboard.press("m")
    expect(tab.page.locator(".found")).to_have_count(12)
    tab.settle()


def test_similar_sounds_are_answered_by_keys_and_answers_are_undone(served, site):
    open_tab, _, read_calls = served
    tab = open_tab()
    page = tab.page
    page.keyboard.press("m")
    expect(page.locator("#notes")).to_contain_text("Choose a call")
    mark(tab, site[1][0], "hoot")
    open_similar(tab)
    card = page.locator(".found").first
    expect(card).to_be_focused()
    outline = "one => getComputedStyle(one).outlineWidth"
    assert card.evaluate(outline) == "3px"
    expect(card.locator("img")).to_have_js_property("naturalWidth", 360)
    expect(card.locator(".likeness")).to_have_text(re.compile("similar"))
    page.keyboard.press(" ")  # plays
    page.wait_for_timeout(100)
    page.keyboard.press("y")
    tab.settle()
    expect(card).to_have_attribute("data-answer", "yes")
    assert len(read_calls()) == 2
    expect(page.locator("#counts")).to_have_text("2 calls")
    page.keyboard.press("n")
    expect(page.locator("#counts")).to_have_text("2 calls, 1 answered with no")
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
    expect(page.locator("#counts")).to_have_text("2 calls")
    expect(card).to_have_attribute("data-answer", "")
    tab.settle()
    assert page.locator(".found").first.get_attribute("aria-label") != before
    # By mouse: a list that is answered leads to the next one.
    for number in range(12):
        one = page.locator(".found").nth(number)
        one.locator("button", has_text="Yes" if number < 3 else "No").click()
    expect(page.locator("#counts")).to_have_text("5 calls, 9 answered with no")
    tab.settle()
    expect(page.locator('.found[data-answer="yes"]')).to_have_count(0)  # the next list
    page.locator(".found").first.focus()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("yes, it is one")
    page.keyboard.press("?")
    page.keyboard.press("Escape")
    expect(page.locator("#similar")).to_be_hidden()
    tab.settle()
    page.reload()
    tab.settle()
    expect(page.locator("#shown")).to_contain_text("5 calls")
    assert len(read_calls(rejected=True)) == 14


def test_a_button_plays_a_sound_and_shows_that_it_plays(served, site):
    tab = served[0]()
    page = tab.page
    mark(tab, site[1][0], "hoot")
    page.locator("#speed").select_option("0.0625")  # it lasts some seconds
    open_similar(tab)
    card = page.locator(".found").nth(1)
    card.locator(".play").click()
    expect(card).to_have_class(re.compile("playing"))
    expect(page.locator(".found.playing")).to_have_count(1)
    card.get_by_role("button", name="Stop").click()
    expect(page.locator(".found.playing")).to_have_count(0)
    expect(card.locator(".play")).to_have_accessible_name("Play")


def test_all_calls_are_found_reviewed_and_exported(served, site):
    open_tab, _, read_calls = served
    tab = open_tab()
    page = tab.page
    for span in site[1][0:4:3]:
        mark(tab, span, "hoot")
    tab.wait_for_index()
    page.keyboard.press("Shift+F")
    expect(page.locator("#stop-finding")).to_be_visible()
    page.keyboard.press("Shift+F")  # stops
    expect(page.locator("#finding")).to_contain_text("Stopped")
    page.keyboard.press("Shift+F")
    expect(page.locator("#found-calls")).to_contain_text("hoot", timeout=90_000)
    expect(page.locator("#finding")).to_contain_text("Based on 2 examples")
    tab.settle()
    with page.expect_download() as download:
        page.locator('[data-format="raven"]').click()
    assert download.value.suggested_filename.startswith("labels")
    tab.settle()
    page.locator('[data-format="study"]').click()
    expect(page.locator("#notes")).to_contain_text("two such call types")
    page.keyboard.press("Shift+R")
    expect(page.locator("#back")).to_be_visible()
    tab.settle()
    expect(page.locator("#panel")).to_contain_text("2 of")  # what was marked
    tab.press("y")
    settle(page, PANEL_MS)
    expect(page.locator("#panel")).to_contain_text("3 of")
    with page.expect_download() as download:
        page.locator('#panel [data-format="csv"]').click()
    # One table of all calls, with those that were marked.
    assert download.value.suggested_filename == "labels.csv"
    assert len(download.value.path().read_text().splitlines()) == 4
    page.locator("#back").click()
    expect(page.locator("#review-found")).to_be_visible()
    tab.settle()
    expect(page.locator("#shown")).to_contain_text("3 calls")
    assert len(read_calls()) == 3


def test_it_fits_phones_and_can_be_read(served, site):
    open_tab, _, _ = served
    mark(open_tab(), site[1][0], "hoot")
    for viewport in (LAPTOP, PHONE):
        tab = open_tab(viewport=viewport)
        page = tab.page
        tab.press("j")
        tab.wait_for_index()
        page.locator("#more-like").click()
        expect(page.locator(".found")).to_have_count(12)
        tab.settle()
        tab.press("y", "n")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= viewport["width"]
        inside = page.locator("#similar").evaluate(
            "one => one.scrollWidth - one.clientWidth"
        )
        assert inside <= 0
        assert find_low_contrasts(page) == []
        for button in page.locator(".found .answers button:visible").all():
            assert button.bounding_box()["height"] >= 38
