"""Annotations to correct: what may be wrong with them, and what is exported."""

import io
import random
import zipfile

import numpy as np
import pytest
import soundfile

from callshot.detection.events import events_frame
from callshot.review.items import find_doubts, make_items
from callshot.review.sources import has_annotations
from served_review import serve

RATE_HZ = 8000
TABLE = """Selection\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tHigh Freq (Hz)\tAnnotation
1\t1.0\t2.0\t100\t900\troar
2\t1.1\t2.0\t100\t900\troar
3\t3.0\t4.0\t100\t900\troar
4\t3.5\t4.5\t200\t900\thoot
5\t3.5\t4.5\t2000\t3000\tsqueak
6\t6.0\t7.0\t100\t900\thoot
7\t9.0\t10.0\t100\t900\troar
"""


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    signal = 0.1 * np.random.default_rng(0).standard_normal(10 * RATE_HZ)
    signal[6 * RATE_HZ + 50] = 1.0
    soundfile.write(folder / "a.wav", signal, RATE_HZ)
    (folder / "a.Table.1.selections.txt").write_text(TABLE)
    return folder


def find_slowly(frame):
    """Compare every pair of items."""
    doubts = [set() for _ in range(len(frame))]
    rows = list(frame.iter_rows(named=True))
    for one, first in enumerate(rows):
        for two, second in enumerate(rows):
            shared = min(first["end_s"], second["end_s"])
            shared -= max(first["start_s"], second["start_s"])
            is_other = first["recording"] != second["recording"]
            if one == two or is_other or shared <= 0:
                continue
            low = [row["low_freq_hz"] for row in (first, second)]
            high = [row["high_freq_hz"] for row in (first, second)]
            if None not in low and None not in high and max(low) >= min(high):
                continue
            union = max(first["end_s"], second["end_s"])
            union -= min(first["start_s"], second["start_s"])
            is_same = first["label"] == second["label"] and shared / union >= 0.5
            doubts[one].add("duplicate" if is_same else "overlapping")
    return [" ".join(sorted(names)) for names in doubts]


@pytest.mark.parametrize("seed", range(8))
def test_doubts_are_those_of_all_pairs(seed):
    draw = random.Random(seed)
    rows = []
    for _ in range(40):
        start_s = draw.randrange(40) / 4
        low_hz = draw.choice((None, 100.0, 500.0))
        row = {"recording": draw.choice("ab"), "label": draw.choice("xy")}
        row |= {"start_s": start_s, "end_s": start_s + draw.randrange(1, 9) / 4}
        row["low_freq_hz"] = low_hz
        row["high_freq_hz"] = None if low_hz is None else low_hz + 400.0
        rows.append(row)
    frame = make_items(events_frame(rows)).frame
    assert find_doubts(frame) == find_slowly(frame)


def test_annotations_of_recordings_are_listed_by_what_may_be_wrong(corpus, tmp_path):
    with serve(corpus, tmp_path / "review") as (client, review):
        review.worker.submit(lambda: None).result()  # after the sound was read
        session = client.get("/api/session")
        assert session["annotations"] == "raven"
        assert list(session["doubts"]) == ["duplicate", "overlapping", "clipped"]
        for doubt, starts_s in {
            "duplicate": [1.0, 1.1],
            "overlapping": [3.0, 3.5],
            "clipped": [6.0, 9.0],
        }.items():
            items = client.items(*client.queue(doubt=doubt))
            assert [item["start_s"] for item in items] == starts_s


def list_calls(client):
    table = client.table("csv?all=1").sort("start_s", "label")
    return table.select("start_s", "end_s", "label").rows()


def test_corrected_annotations_are_exported_and_the_own_files_stay(corpus, tmp_path):
    with serve(corpus, tmp_path / "review") as (client, review):
        starts_s = review.items["start_s"]
        client.decide(starts_s.index(1.1), "reject")
        client.decide(starts_s.index(6.0), "relabel", label="roar")
        span = {"start_s": 9.2, "end_s": 9.8}
        client.decide(starts_s.index(9.0), "span", **span)
        client.decide(starts_s.index(3.0), "split", at_s=3.4)
        added = {"start_s": 7.5, "end_s": 8.0, "label": "squeak"}
        client.decide(starts_s.index(6.0), "add", **added)
        assert list_calls(client) == [
            (1.0, 2.0, "roar"),
            (3.0, 3.4, "roar"),
            (3.4, 4.0, "roar"),
            (3.5, 4.5, "hoot"),
            (3.5, 4.5, "squeak"),
            (6.0, 7.0, "roar"),
            (7.5, 8.0, "squeak"),
            (9.2, 9.8, "roar"),
        ]
        content = client.export("raven?all=1")
        (name,) = zipfile.ZipFile(io.BytesIO(content)).namelist()
        assert name == "a.Table.1.selections.txt"
    assert (corpus / name).read_text() == TABLE


def test_a_blind_reviewer_exports_all_annotations_without_what_others_decided(
    corpus, tmp_path
):
    with serve(corpus, tmp_path / "review", blind=True) as (ada, review):
        bob = ada.as_person("bob")
        starts_s = review.items["start_s"]
        ada.decide(starts_s.index(1.0), "confirm")
        ada.decide(starts_s.index(1.1), "reject")
        ada.decide(starts_s.index(3.0), "split", at_s=3.4)
        added = {"start_s": 7.5, "end_s": 8.0, "label": "squeak"}
        ada.decide(starts_s.index(6.0), "add", **added)
        bob.decide(starts_s.index(1.1), "relabel", label="hoot")
        bob.decide(starts_s.index(9.0), "split", at_s=9.5)
        assert list_calls(bob) == [
            (1.0, 2.0, "roar"),
            (1.1, 2.0, "hoot"),
            (3.0, 4.0, "roar"),
            (3.5, 4.5, "hoot"),
            (3.5, 4.5, "squeak"),
            (6.0, 7.0, "hoot"),
            (9.0, 9.5, "roar"),
            (9.5, 10.0, "roar"),
        ]


def test_recordings_without_annotation_files_have_nothing_to_correct(corpus):
    assert has_annotations(corpus)
    (corpus / "a.Table.1.selections.txt").unlink()
    assert not has_annotations(corpus)
    (corpus / "notes.txt").write_text("Rain all day.")
    assert not has_annotations(corpus)
    folder = corpus / "card 1"
    folder.mkdir()
    (corpus / "a.wav").rename(folder / "a.wav")
    assert not has_annotations(corpus)
