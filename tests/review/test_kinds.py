"""Kinds of sounds over HTTP: recordings in order, sounds on a map, cards that become boxes."""

import shutil
import uuid
from dataclasses import replace

import numpy as np
import pytest
import soundfile

from callshot.review import kinds
from field_recordings import index_site
from served_review import serve_labels

NAMES = ["a.wav", "b.wav", "c.wav"]


@pytest.fixture(scope="module")
def served(site, ready_index, tmp_path_factory):
    """A client of recordings whose index is ready, and the session."""
    out = tmp_path_factory.mktemp("kinds")
    shutil.copytree(site[0].parent / "index", out / "index")
    with serve_labels(site[0], out, ready_index) as (client, session):
        session.search._thread.join()
        yield client, session


def make_box(sound, label):
    """Return a box of a sound, without frequencies."""
    place = {name: sound[name] for name in ("recording", "start_s", "end_s")}
    return {"id": str(uuid.uuid4()), **place, "label": label}


def test_recordings_are_ordered_by_what_they_add(served):
    client, _ = served
    order = client.get("/api/order")["recordings"]
    assert sorted(name for name, _ in order) == NAMES
    shares = [share for _, share in order]
    assert sum(shares) == pytest.approx(1)
    assert shares == sorted(shares, reverse=True)
    assert client.get("/api/order")["recordings"] == order


def test_what_is_named_or_heard_is_on_the_map_and_not_in_the_list(served):
    client, session = served
    first = client.get("/api/kinds")
    sounds = first["sounds"]
    assert len(sounds) == len(session.search.windows)
    assert all(
        0 <= x <= 1000 and 0 <= y <= 1000 for x, y in (s["point"] for s in sounds)
    )
    assert len({*first["order"]}) == len(first["order"]) > 12
    named, heard, empty = first["order"][:3]
    for one, label in ((named, "hoot"), (empty, None)):
        client.send("add", make_box(sounds[one], label), tight=label is not None)
    client.post("/api/listened", sounds[heard])
    again = client.get("/api/kinds")
    assert again["sounds"][named]["label"] == "hoot"
    assert again["sounds"][heard]["listened"]
    assert again["sounds"][empty]["listened"]
    assert {named, heard, empty}.isdisjoint(again["order"])
    assert not first["sounds"][heard]["listened"]
    client.undo()
    client.undo()
    assert client.get("/api/kinds")["sounds"][named]["label"] is None


def test_a_named_sound_has_the_frequencies_of_its_name(served):
    client, session = served
    sounds = client.get("/api/kinds")["sounds"]
    (box,) = client.send("add", make_box(sounds[2], "growl"), tight=True)["boxes"]
    top_hz = session.recordings[box["recording"]].rate_hz / 2
    assert (box["low_freq_hz"], box["high_freq_hz"]) == (0.0, top_hz)
    known = make_box(sounds[9], "bark") | {"low_freq_hz": 300.0, "high_freq_hz": 1500.0}
    client.send("add", known)
    (box,) = client.send("add", make_box(sounds[30], "bark"), tight=True)["boxes"]
    assert (box["low_freq_hz"], box["high_freq_hz"]) == (300.0, 1500.0)
    assert sounds[30]["start_s"] <= box["start_s"] < box["end_s"] <= sounds[30]["end_s"]
    client.send("add", make_box(sounds[40], "bark"), 400)  # not asked to guess
    client.send("add", make_box(sounds[40], "x" * 500), 400, tight=True)
    absent = make_box(sounds[40], "bark") | {"recording": "../absent.wav"}
    client.send("add", absent, 404, tight=True)
    for _ in range(3):
        client.undo()


def test_silent_recordings_have_no_kinds_of_sounds(tmp_path, ready_index, monkeypatch):
    folder = tmp_path / "recordings"
    folder.mkdir()
    soundfile.write(folder / "a.wav", np.zeros(8000), 8000)
    options = replace(ready_index, index=index_site(folder))
    with serve_labels(folder, tmp_path / "labels", options) as (client, session):
        session.search._thread.join()
        assert client.get("/api/kinds", 409) == {"error": kinds.SILENT}
        # They are not measured again while there is nothing new.
        monkeypatch.setattr("callshot.detection.ready_windows.sample_windows", None)
        assert client.get("/api/kinds", 409) == {"error": kinds.SILENT}


def test_a_shorter_list_is_the_start_of_the_longer_one(served, monkeypatch):
    client, _ = served
    whole = client.get("/api/kinds")["order"]
    monkeypatch.setattr(kinds, "MAX_ORDER", 5)
    assert client.get("/api/kinds")["order"] == whole[:5]
