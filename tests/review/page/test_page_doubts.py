"""Annotations of recordings that are corrected in Chromium."""

import csv
import io

import numpy as np
import pytest
import soundfile

from label_pages import open_tabs
from review_pages import PANEL_MS, expect, settle
from served_review import serve

TABLE = "start_s,end_s,label\n1,2,roar\n1.1,2,roar\n3,4,<script>hoot\n3.5,4.5,roar\n"


@pytest.fixture
def corpus(tmp_path):
    signal = 0.1 * np.random.default_rng(0).standard_normal(80_000)
    soundfile.write(tmp_path / "a.wav", signal, 8000)
    (tmp_path / "a.csv").write_text(TABLE)
    return tmp_path


def test_annotations_are_filtered_corrected_and_exported(laptop, corpus):
    with serve(corpus) as (client, _), open_tabs(laptop) as open_tab:
        tab = open_tab(client.address)
        page = tab.page
        page.keyboard.press("f")
        page.locator("#filter-doubt").select_option("overlapping")
        expect(page, "#shown").to_contain_text("2 calls")
        page.locator("#filter-doubt").select_option("duplicate")
        expect(page, "#shown").to_contain_text("2 calls: not reviewed, annotated twice")
        expect(page, "#where .doubt").to_have_text("annotated twice")
        expect(page, ".tag").to_have_count(3)
        page.locator("#main").focus()
        tab.settle()
        page.keyboard.press("n")
        expect(page, "#shown").to_contain_text("1 call:")
        settle(page, PANEL_MS)
        expect(page, "#panel").to_contain_text("Export corrected annotations")
        with page.expect_download() as download:
            page.locator("[data-format=csv]").click()
        text = download.value.path().read_text()
        rows = [
            (row["start_s"], row["label"]) for row in csv.DictReader(io.StringIO(text))
        ]
        assert len(rows) == 3
        assert ("3.0", "<script>hoot") in rows
        assert (corpus / "a.csv").read_text() == TABLE
