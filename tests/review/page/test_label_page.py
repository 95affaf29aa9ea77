"""The page to label recordings in Chromium: boxes by mouse and keys, names, undo, two tabs."""

import numpy as np
import pytest
import soundfile

from callshot.review.results import read_review
from label_pages import PHONE, open_tabs, serve_label
from review_pages import HOSTILE, HOSTILE_FILE, ReviewServer, expect, find_low_contrasts

RATE_HZ = 8000
SECOND = "second_20260301_170000.wav"
RIGHT_TO_LEFT = "קריאה של ינשוף"
COLOURS = """() => {
    const context = document.querySelector("#picture").getContext("2d");
    const { width, height } = context.canvas;
    const pixels = new Uint32Array(context.getImageData(0, 0, width, height).data.buffer);
    return new Set(pixels).size;
}"""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("label") / "recordings"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in (HOSTILE_FILE, SECOND):
        signal = 0.01 * rng.standard_normal(60 * RATE_HZ)
        soundfile.write(folder / name, signal, RATE_HZ)
    (folder / "broken.wav").write_bytes(b"RIFF")
    return folder


@pytest.fixture
def served(laptop, recordings, tmp_path):
    with serve_label(laptop, recordings, tmp_path) as parts:
        yield parts


def test_boxes_are_drawn_named_repeated_moved_deleted_and_undone(served):
    open_tab, read_calls = served
    tab = open_tab()
    page = tab.page
    assert page.evaluate(COLOURS) > 20
    start_s, end_s = tab.times()
    length_s = end_s - start_s
    tab.drag((0.2, 0.5), (0.3, 0.75))
    page.keyboard.type(HOSTILE)
    tab.press("Enter")
    assert tab.names == [HOSTILE]
    (call,) = read_calls().rows(named=True)
    assert call["recording"] == HOSTILE_FILE
    assert call["start_s"] == pytest.approx(0.2 * length_s, abs=0.01 * length_s)
    assert call["end_s"] == pytest.approx(0.3 * length_s, abs=0.01 * length_s)
    assert call["low_freq_hz"] == pytest.approx(1000, abs=40)
    assert call["high_freq_hz"] == pytest.approx(2000, abs=40)
    # The last name is in the field, so that Enter is enough; or r gives it to a chosen box.
    tab.drag((0.5, 0.5), (0.6, 0.75))
    tab.press("Enter")
    tab.drag((0.7, 0.5), (0.8, 0.75))
    page.keyboard.type(RIGHT_TO_LEFT)
    tab.press("Enter")
    assert tab.names == [HOSTILE, HOSTILE, RIGHT_TO_LEFT]
    tab.drag((0.55, 0.6), (0.55, 0.6))
    tab.settle()
    tab.press("r")
    assert tab.names == [HOSTILE, RIGHT_TO_LEFT, RIGHT_TO_LEFT]
    # A box is moved as a whole, then by the handle at its right end.
    tab.drag((0.75, 0.6), (0.85, 0.6))
    tab.settle()
    tab.drag((0.9, 0.625), (0.95, 0.625))
    tab.settle()
    call = read_calls().rows(named=True)[2]
    assert call["start_s"] == pytest.approx(0.8 * length_s, abs=0.01 * length_s)
    assert call["end_s"] == pytest.approx(0.95 * length_s, abs=0.015 * length_s)
    assert call["low_freq_hz"] == pytest.approx(1000, abs=40)
    tab.press("Delete")
    assert len(read_calls()) == 2
    tab.press("u")
    assert read_calls().rows(named=True)[2] == call | {
        "reviewed_at": read_calls().rows(named=True)[2]["reviewed_at"]
    }
    tab.press("u", "u")
    call = read_calls().rows(named=True)[2]
    assert call["end_s"] == pytest.approx(0.8 * length_s, abs=0.01 * length_s)
    tab.press("Shift+U")
    page.reload()
    tab.settle()
    assert sorted(tab.names) == [HOSTILE, RIGHT_TO_LEFT, RIGHT_TO_LEFT]
    # With the same name switched on, a drag is all.
    tab.press("s")
    tab.drag((0.05, 0.2), (0.1, 0.3))
    tab.settle()
    assert len(read_calls()) == 4
    # Esc drops a box that has no name yet.
    tab.press("s")
    tab.drag((0.35, 0.2), (0.4, 0.3))
    expect(page, "#name").to_be_focused()
    tab.press("Escape")
    expect(page, "#name").to_be_hidden()
    assert len(tab.names) == 4
    recording = page.locator(".recording", has_text="broken.wav")
    expect(recording).to_be_disabled()
    expect(page, ".recording[aria-current]").to_contain_text("4 calls")


def test_new_boxes_get_the_name_that_the_button_says(served):
    open_tab, read_calls = served
    tab = open_tab()
    page = tab.page
    page.keyboard.press(" ")  # what was played counts as listened to
    expect(page, "#play").to_have_attribute("data-playing", "true")
    page.wait_for_function(
        "() => parseFloat(document.querySelector('#playhead').style.left) > 10"
    )
    tab.press(" ")
    expect(page, "#play").to_have_attribute("data-playing", "false")
    expect(page, "#overview .heard").to_have_count(1)
    left = page.locator("#playhead").evaluate("one => parseFloat(one.style.left)")
    assert left > 5
    button = page.locator("#same span")
    expect(button).to_have_text("Same name")
    for start, name in ((0.1, "upsweep"), (0.3, "moan")):
        tab.drag((start, 0.5), (start + 0.1, 0.75))
        page.keyboard.type(name)
        tab.press("Enter")
    expect(button).to_have_text("Same name: moan")
    tab.press("k")  # the box before
    expect(button).to_have_text("Same name: upsweep")
    tab.press("s")
    tab.drag((0.5, 0.5), (0.6, 0.75))
    tab.press("Escape")
    assert tab.names == ["upsweep", "moan", "upsweep"]
    tab.press("j", "j", "Delete", "k", "Delete")  # the last one is gone
    assert len(read_calls()) == 1
    expect(button).to_have_text(f"Same name: {tab.names[0]}")

    # A drag from a name draws a box, and moves none.
    tab.press("s", "Shift+J")
    tab.drag((0.2, 0.5), (0.22, 0.75))
    page.keyboard.type("a name that is much wider than its box")
    tab.press("Enter", "Escape")
    before = read_calls()
    width = "one => one.getBoundingClientRect().width"
    assert page.locator(".box .name").evaluate(width) < 100
    tab.drag((0.23, 0.48), (0.4, 0.3))
    tab.press("Enter")
    assert len(read_calls()) == len(before) + 1
    assert before.rows()[-1] in read_calls().rows()


def test_everything_can_be_done_by_keys(served):
    open_tab, read_calls = served
    tab = open_tab()
    page = tab.page
    before = tab.times()
    tab.press("ArrowRight", "z")
    after = tab.times()
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx((before[1] - before[0]) / 2)
    page.keyboard.press("a")
    expect(page, "#name").to_be_focused()
    page.keyboard.type("hoot")
    tab.press("Enter")
    (first,) = read_calls().rows(named=True)
    length_s = after[1] - after[0]
    tab.press("[", "]", ">", "ArrowUp", "Shift+ArrowDown")
    (call,) = read_calls().rows(named=True)
    assert call["start_s"] == pytest.approx(
        first["start_s"], abs=0.001
    )  # earlier, then moved
    assert call["end_s"] == pytest.approx(first["end_s"] + 0.02 * length_s, abs=0.001)
    assert call["high_freq_hz"] == pytest.approx(first["high_freq_hz"] + 40)
    assert call["low_freq_hz"] == pytest.approx(first["low_freq_hz"] - 40)
    tab.press("Enter")
    page.keyboard.type("growl")
    tab.press("Enter")
    assert read_calls()["label"].to_list() == ["growl"]
    tab.press("Escape")
    expect(page, ".box.chosen").to_have_count(0)
    tab.press("j")
    expect(page, ".box.chosen").to_have_count(1)
    tab.press("Escape", "PageDown", "n")
    assert tab.names[-1] == "nothing here"
    assert len(read_calls()) == 1
    expect(page, ".recording[aria-current]").to_contain_text("heard")
    tab.press("u", "w")
    assert tab.times() == pytest.approx([0, 60])  # it fills the width
    tab.press("Shift+J")
    expect(page, "#file").to_have_text(SECOND)
    assert tab.names == []
    top = page.locator("#pane").get_attribute("data-top")
    page.keyboard.press("g")
    expect(page, "#pane").not_to_have_attribute("data-top", top)
    page.keyboard.press("?")
    expect(page, "#help").to_be_visible()
    page.keyboard.press("?")
    expect(page, "#help").to_be_hidden()
    # Focus is seen, and boxes can be reached by Tab.
    tab.press("Shift+K", "j", "Escape")
    page.locator("#overview").focus()
    page.keyboard.press("Shift+Tab")
    expect(page, ".box").to_be_focused()
    expect(page, ".box").to_have_attribute("aria-pressed", "true")
    outline = "one => getComputedStyle(one).outlineWidth"
    assert page.locator(".box").evaluate(outline) == "3px"


def test_two_tabs_follow_each_other_and_a_killed_server_loses_nothing(
    laptop, recordings, tmp_path
):
    options = ("--out", str(tmp_path), "--encoder", "none")
    server = ReviewServer(recordings, *options, command="label")
    server.start()
    try:
        with open_tabs(laptop) as open_tab:
            tab = open_tab(server.address)
            other = open_tab(server.address, tab.page.context)
            tab.drag((0.2, 0.5), (0.3, 0.75))
            tab.page.keyboard.type("hoot")
            tab.press("Enter")
            expect(other.page, ".box .name").to_have_text(["hoot"])
            other.settle()
            other.press("j", "Delete")
            expect(tab.page, ".box").to_have_count(0)
            tab.settle()
            other.settle()
            server.kill()
            tab.drag((0.5, 0.5), (0.6, 0.75))
            tab.page.keyboard.type("late")
            tab.page.keyboard.press("Enter")
            expect(tab.page, "#saved").to_have_text("1 change not saved yet")
            expect(tab.page, "#banner").to_be_visible()
            server.start()
            tab.settle()
            assert read_review(tmp_path).events["label"].to_list() == ["late"]
            expect(other.page, ".box .name").to_have_text(["late"])
    finally:
        server.kill()


def test_it_fits_phones_and_can_be_read(served):
    open_tab, _ = served
    for options in ({}, {"viewport": PHONE, "has_touch": True}):
        tab = open_tab(**options)
        tab.drag((0.2, 0.5), (0.4, 0.75))
        tab.page.keyboard.type("hoot")
        tab.press("Enter")
        assert find_low_contrasts(tab.page) == []
        width = tab.page.evaluate("document.documentElement.scrollWidth")
        assert width <= tab.page.viewport_size["width"]
        for button in tab.page.locator("#transport button").all():
            assert not options or button.bounding_box()["height"] >= 38
