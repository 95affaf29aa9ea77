"""Annotations of recordings that are corrected in Chromium, from `callshot label`."""

import csv
import io

import numpy as np
import pytest
import soundfile

from review_pages import PANEL_MS, ReviewServer, open_window, settle

expect = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed"
).expect

TABLE = "start_s,end_s,label\n1,2,roar\n1.1,2,roar\n3,4,<script>hoot\n3.5,4.5,roar\n"


@pytest.fixture
def corpus(browser, tmp_path):
    pytest.importorskip("uvicorn", reason="pip install 'callshot[review]'")
    signal = 0.1 * np.random.default_rng(0).standard_normal(80_000)
    soundfile.write(tmp_path / "a.wav", signal, 8000)
    (tmp_path / "a.csv").write_text(TABLE)
    return tmp_path


def test_annotations_are_filtered_corrected_and_exported(browser, corpus):
    server = ReviewServer(corpus, command="label")
    server.start()
    context = open_window(browser)
    page = context.new_page()
    try:
        page.goto(server.address)
        settle(page)
        page.keyboard.press("f")
        page.locator("#filter-doubt").select_option("overlapping")
        expect(page.locator("#shown")).to_contain_text("2 calls")
        page.locator("#filter-doubt").select_option("duplicate")
        expect(page.locator("#shown")).to_contain_text(
            "2 calls: not reviewed, annotated twice"
        )
        expect(page.locator("#where .doubt")).to_have_text("annotated twice")
        expect(page.locator(".tag")).to_have_count(3)
        page.locator("#main").focus()
        settle(page)
        page.keyboard.press("n")
        expect(page.locator("#shown")).to_contain_text("1 call:")
        settle(page, PANEL_MS)
        expect(page.locator("#panel")).to_contain_text("Export corrected annotations")
        with page.expect_download() as download:
            page.locator("[data-format=csv]").click()
        text = download.value.path().read_text()
        rows = [
            (row["start_s"], row["label"]) for row in csv.DictReader(io.StringIO(text))
        ]
        assert len(rows) == 3
        assert ("3.0", "<script>hoot") in rows
        assert (corpus / "a.csv").read_text() == TABLE
    finally:
        context.close()
        server.kill()
