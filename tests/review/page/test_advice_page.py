"""The call of which one more example helps most, in Chromium."""

import shutil

import pytest

from field_recordings import index_site, write_site
from label_pages import serve_label

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed"
).expect

OPTIONS = ("--encoder", "mfcc", "--window", "0.5")
HOSTILE = "<img src=x onerror=alert(1)>"


def test_more_of_the_call_that_helps_most_is_one_click_away(browser, tmp_path):
    folder = write_site(tmp_path / "recordings", calls=4)
    line = (folder / "a.txt").read_text().splitlines()[0]
    index_site(folder)
    shutil.copytree(folder.parent / "index", tmp_path / "labels" / "index")
    with serve_label(browser, folder, tmp_path / "labels", *OPTIONS) as parts:
        tab = parts[0]()
        page = tab.page
        start_s, end_s = tab.times()
        call_s = [float(one) for one in line.split("\t")[:2]]
        places = [(one - start_s) / (end_s - start_s) for one in call_s]
        tab.drag((places[0], 0.9), (places[1], 0.98))
        page.keyboard.type(HOSTILE)
        tab.press("Enter")
        tab.wait_for_index()
        expect(page.locator("#more-recommended")).to_have_count(0)
        boxes = page.evaluate(
            "fetch('/api/recording?recording=a.wav').then((r) => r.json())"
        )
        (box,) = boxes["boxes"]
        tasks = page.evaluate("fetch('/api/tasks').then((r) => r.json())")
        answer = {**tasks, "advice": box}
        page.route("**/api/tasks", lambda route: route.fulfill(json=answer))
        text = page.locator("#advice")
        expect(text).to_contain_text(f"One more example of {HOSTILE} improves")
        page.locator("#more-recommended").click()
        expect(page.locator("#similar-title")).to_have_text(f"More like {HOSTILE}")
        expect(page.locator(".found")).to_have_count(12)
