"""Boxes on recordings without annotations: saved at once, undone, checked, and used."""

import json
import shutil
import uuid
from itertools import product

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from callshot.cli import app
from callshot.detection.model import load_model
from callshot.errors import InputError, OutputError
from callshot.review import server
from callshot.review.journal import JOURNAL, read_journal
from callshot.review.labels import is_marked
from callshot.review.results import read_review, verify_review
from callshot.review.server import ServerOptions, open_labelling
from callshot.review.similar import SearchOptions
from field_recordings import write_site
from served_review import serve_labels

RATE_HZ = 8000
NAME = "SITE_20260314_053000.wav"
NOTHING = dict.fromkeys(("low_freq_hz", "high_freq_hz", "label"))
RIGHT_TO_LEFT = "קריאה של ינשוף"


@pytest.fixture
def recordings(tmp_path):
    folder = tmp_path / "recordings"
    folder.mkdir()
    rng = np.random.default_rng(0)
    soundfile.write(folder / NAME, 0.01 * rng.standard_normal(10 * RATE_HZ), RATE_HZ)
    soundfile.write(folder / "b.flac", 0.01 * rng.standard_normal(RATE_HZ), RATE_HZ)
    return folder


def make_box(**changes):
    box = {"id": str(uuid.uuid4()), "recording": NAME, "start_s": 1.0, "end_s": 2.0}
    band = {"low_freq_hz": 500.0, "high_freq_hz": 900.0}
    return {**box, **band, "label": "hoot", **changes}


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def list_boxes(client, recording=NAME):
    boxes = client.get(f"/api/recording?recording={recording}")["boxes"]
    return {box["id"]: (box["label"], box["start_s"], box["end_s"]) for box in boxes}


def test_boxes_are_added_changed_deleted_undone_and_there_after_a_restart(recordings):
    box = make_box()
    with serve_labels(recordings) as (client, _):
        answer = client.send("add", box)
        assert answer["names"] == ["hoot"]
        client.send("change", box | {"start_s": 1.25, "label": "growl"})
        changed = {box["id"]: ("growl", 1.25, 2.0)}
        assert list_boxes(client) == changed
        assert client.send("delete", box)["gone"] == [box["id"]]
        assert list_boxes(client) == {}
        client.undo()
        assert list_boxes(client) == changed
        client.undo()
        assert list_boxes(client) == {box["id"]: ("hoot", 1.0, 2.0)}
        client.undo(action="redo")
    labels = recordings / "labels"
    with (labels / JOURNAL).open("ab") as stream:
        stream.write(b'{"batch":"a killed')
    assert len(read_review(labels).events) == 1
    with serve_labels(recordings) as (client, _):
        assert list_boxes(client) == changed
        assert len(read_journal(labels).entries) == 6
        for _ in range(2):
            client.undo()
        assert list_boxes(client) == {}
        assert client.undo()["nothing"]


def test_two_people_see_each_other_and_undo_only_what_is_theirs(recordings):
    mine, theirs = make_box(), make_box(start_s=4.0, end_s=5.0, label="bark")
    with serve_labels(recordings) as (ada, _):
        bob = ada.as_person("bob")
        ada.send("add", mine)
        seq = bob.send("add", theirs)["seq"]
        ada.send("change", theirs | {"end_s": 5.5})
        seen = bob.get(f"/api/changes?after={seq}")
        assert [box["end_s"] for box in seen["boxes"]] == [5.5]
        bob.undo()  # the change of the other person stands
        assert list_boxes(bob)[theirs["id"]] == ("bark", 4.0, 5.5)
        ada.undo()
        assert list(list_boxes(ada)) == [mine["id"]]
        # What is done again is as old as it was: a later change of another person stands.
        bob.send("change", mine | {"end_s": 3.0})
        ada.undo()
        ada.undo(action="redo")
        assert list_boxes(ada) == {mine["id"]: ("hoot", 1.0, 3.0)}


def test_a_request_that_comes_twice_is_saved_once(recordings):
    box = make_box()
    first, last = f"{1:032x}", f"{2:032x}"
    with serve_labels(recordings) as (client, session):
        for _ in range(2):
            client.send("add", box, uuid=first)
        for _ in range(2):
            assert client.send("delete", box, uuid=last)["gone"] == [box["id"]]
        assert session.seq == 2
        client.send("add", box)
        client.send("add", box, 409)


WRONG = [
    {"start_s": float("nan")},
    {"end_s": float("inf")},
    {"start_s": -0.1},
    {"start_s": True},
    {"start_s": "1"},
    {"end_s": 10**400},
    {"end_s": 1.0},
    {"end_s": 10.1},
    {"start_s": 10.0, "end_s": 10.0005},
    {"low_freq_hz": float("nan")},
    {"low_freq_hz": None},
    {"low_freq_hz": 900.0},
    {"low_freq_hz": -1.0},
    {"low_freq_hz": 4000.0, "high_freq_hz": 5000.0},
    {"label": ""},
    {"label": "x" * 201},
    {"label": "a\nb"},
    {"label": ["a"]},
    {"id": "x"},
    {"id": None},
]


def test_boxes_that_make_no_sense_are_refused_and_nothing_is_saved(recordings):
    known = make_box()
    with serve_labels(recordings) as (client, session):
        client.send("add", known)
        before = session.seq
        for changes in WRONG:
            answer = client.send("add", make_box(**changes), 400)
            assert list(answer) == ["error"]
        for body in ([], {}, {"action": "add"}, {"action": "add", "box": 3}):
            client.post("/api/boxes", body, 400)
        client.send("move", known, 400)
        for name in ("../secret.wav", "absent.wav", None, 3, ["a"]):
            client.send("add", make_box(recording=name), 404)
        for action in ("change", "delete"):
            client.send(action, make_box(), 404)
        span = {"uuid": str(uuid.uuid4()), "recording": NAME, "start_s": 3, "end_s": 99}
        client.post("/api/listened", span, 400)
        assert session.seq == before
        assert list(list_boxes(client)) == [known["id"]]


def test_names_may_be_anything_that_can_be_printed(recordings):
    names = ["<script>alert(1)</script>", RIGHT_TO_LEFT, "x" * 200, "=cmd|' /C'!A0"]
    with serve_labels(recordings) as (client, _):
        for name in names:
            client.send("add", make_box(label=f" {name} "))
        assert {label for label, _, _ in list_boxes(client).values()} == {*names}
    assert set(read_review(recordings / "labels").events["label"]) == {*names}


ODD = [
    "/api/tile?recording=..%2fx.wav&level=3&number=0&height=64&window_s=0.03&max_hz=4000",
    f"/api/tile?recording={NAME}&level=99&number=0&height=64&window_s=0.03&max_hz=4000",
    f"/api/tile?recording={NAME}&level=3&number=-1&height=64&window_s=0.03&max_hz=4000",
    f"/api/tile?recording={NAME}&level=3&number=0&height=9999&window_s=0.03&max_hz=4000",
    f"/api/tile?recording={NAME}&level=3&number=0&height=64&window_s=nan&max_hz=4000",
    f"/api/tile?recording={NAME}&level=3",
    "/api/sound?recording=/etc/passwd",
    f"/api/sound?recording={NAME}&start_s=5&end_s=4",
    f"/api/sound?recording={NAME}&start_s=99",
    "/api/recording",
    "/api/export/exe",
    "/api/decisions",
    "/api/similar",
    "/api/similar?box=..%2f",
    "/api/similar?box=<script>",
    f"/api/similar?box={uuid.uuid4()}",
    "/review/1/",
    "/review/1/api/session",
    "/review/..%2f/",
    "/review/99999999999999999999/",
    "/api/spectrogram?recording=..%2fx.wav",
    f"/api/spectrogram?recording={NAME}&start_s=3&end_s=2",
    f"/api/spectrogram?recording={NAME}&width=1e9",
]
PATHS = (
    "/",
    "/api/recordings",
    f"/api/recording?recording={NAME}",
    *ODD[:2],
    "/api/similar?box=x",
    "/api/tasks",
    "/review/1/",
    "/api/kinds",
    "/api/order",
    "/pointmap.js",
)
FOREIGN = ({"Cookie": None}, {"Host": "evil"}, {"Origin": "http://evil"})


def test_odd_addresses_get_one_sentence_and_strangers_nothing(recordings):
    with serve_labels(recordings) as (client, session):
        for path in ODD:
            status, headers, content = client.ask("GET", path)
            assert status in (400, 404), path
            assert headers["content-type"] == "application/json"
            assert list(json.loads(content)) == ["error"]
        for path, headers in product(PATHS, FOREIGN):
            assert client.ask("GET", path, headers=headers)[0] == 403
        posts = ("/api/find", "/api/find/stop", "/review/1/api/decisions")
        for path, headers in product(posts, FOREIGN):
            assert client.ask("POST", path, {}, headers)[0] == 403
        body = {"uuid": str(uuid.uuid4()), "action": "add", "box": make_box()}
        for headers in ({"Origin": None}, {"Cookie": None}):
            assert client.ask("POST", "/api/boxes", body, headers)[0] == 403
        assert session.seq == 0


def test_recordings_that_cannot_be_shown_are_listed_with_the_reason(recordings):
    (recordings / "empty.wav").touch()
    (recordings / "no_sound.wav").write_bytes(b"RIFF\x00\x00\x00\x00WAVE")
    soundfile.write(recordings / "silent.wav", np.zeros(0), RATE_HZ)
    (recordings / "phone.m4a").write_bytes(b"x")
    whole = (recordings / NAME).read_bytes()
    (recordings / "cut.wav").write_bytes(whole[: len(whole) // 2])
    with serve_labels(recordings) as (client, session):
        session._thread.join()
        answer = client.get("/api/recordings")
        assert answer["pending"] == 0
        rows = {row["name"].rpartition("/")[2]: row for row in answer["recordings"]}
        for name in ("empty.wav", "no_sound.wav", "silent.wav", "phone.m4a"):
            assert rows[name]["problem"], name
        assert rows[NAME]["clock"] == "2026-03-14T05:30:00"
        assert rows["b.flac"]["duration_s"] == 1.0
        assert "cut short" in rows["cut.wav"]["note"]
        client.get("/api/recording?recording=empty.wav", 404)
        client.send("add", make_box(recording="silent.wav"), 404)
        # A recording goes while the page is open: the others stay, and so does what was saved.
        client.send("add", make_box())
        (recordings / NAME).unlink()
        tile = "level=3&number=0&height=64&window_s=0.03&max_hz=4000"
        answer = client.get(f"/api/tile?recording={NAME}&{tile}", 404)
        assert "moved" in answer["error"]
        assert len(list_boxes(client)) == 1
        assert client.ask("GET", f"/api/tile?recording=b.flac&{tile}")[0] == 200


def test_folders_that_cannot_be_used_are_refused(recordings, tmp_path):
    options = ServerOptions()
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "file").touch()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.doc").touch()
    for path, out, error, words in (
        (empty, None, InputError, "no recordings found"),
        (tmp_path / "absent", None, InputError, "absent"),
        (recordings, mine, OutputError, "thesis.doc"),
        (recordings, tmp_path / "file" / "x", OutputError, "choose another folder"),
    ):
        with pytest.raises(error, match=words), open_labelling(path, options, out):
            pass
    with (
        open_labelling(recordings, options),
        pytest.raises(OutputError, match="another callshot"),
        open_labelling(recordings, options),
    ):
        pass


def test_an_answer_in_a_recording_without_the_frequencies_of_the_call_is_saved(
    recordings,
):
    soundfile.write(recordings / "low.wav", np.zeros(2000), 1000)
    place = {"recording": "low.wav", "low_freq_hz": 600.0}
    with serve_labels(recordings) as (client, session):
        client.send("add", make_box(low_freq_hz=600.0))
        client.send("add", make_box(**place), tight=True)
        client.send("no", make_box(**place))
        call = session.labels.calls[1]
        assert (call["low_freq_hz"], call["high_freq_hz"]) == (0.0, 500.0)
        (refused,) = session.labels.refused.values()
        assert refused["low_freq_hz"] < refused["high_freq_hz"] <= 500.0
        client.send("add", make_box(**place), 400)  # drawn by a person


def test_only_a_call_with_a_name_can_be_cut_to_its_sound(recordings):
    with serve_labels(recordings) as (client, session):
        client.send("add", make_box())
        answer = client.send("add", make_box(**NOTHING), 400, tight=True)
        assert answer["error"] == "label: expected the name of the call to be cut out"
        assert session.seq == 1


def test_labels_stay_open_beside_a_study_that_was_made_of_them(recordings, monkeypatch):
    opened = []
    monkeypatch.setattr(server, "serve", lambda session, *_: opened.append(session))
    with open_labelling(recordings, ServerOptions()):
        pass
    (recordings / "study.toml").touch()
    server.serve_labelling(recordings, ServerOptions(), SearchOptions())
    assert opened[0].labels.calls == []
    (recordings / "study.toml").rename(recordings.parent / "study.toml")
    with pytest.raises(InputError, match="no segments yet"):
        server.serve_labelling(recordings.parent, ServerOptions(), SearchOptions())


def test_annotations_of_recordings_are_reviewed_instead(recordings, monkeypatch):
    opened = []
    monkeypatch.setattr(server, "serve", lambda session, *_: opened.append(session))
    (recordings / "b.csv").write_text("start_s,end_s,label\n0.1,0.4,roar\n")
    server.serve_labelling(recordings, ServerOptions(), SearchOptions())
    assert opened[0].source.annotations == "csv"


def test_options_of_the_command_are_those_of_the_search(recordings, monkeypatch):
    opened = []
    monkeypatch.setattr(server, "serve", lambda session, *_: opened.append(session))
    words = ["--encoder", "mfcc", "--window", "0.5"]
    result = run("label", recordings, *words, "--no-browser")
    assert result.exit_code == 0, result.exception
    assert opened[0].search.arguments == words


def test_recordings_may_be_moved_but_not_be_other_ones(recordings, tmp_path):
    out = tmp_path / "labels"
    with serve_labels(recordings, out) as (client, _):
        client.send("add", make_box())
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(recordings / "b.flac", other)
    with (
        pytest.raises(InputError, match="SITE_2026"),
        open_labelling(other, ServerOptions(), out),
    ):
        pass
    recordings.rename(tmp_path / "moved")
    with serve_labels(tmp_path / "moved", out) as (client, _):
        assert len(list_boxes(client)) == 1
    assert read_review(out).roots == {NAME: tmp_path / "moved"}


def test_one_recording_can_be_labelled_alone(recordings):
    with serve_labels(recordings / "b.flac") as (client, _):
        (row,) = client.get("/api/recordings")["recordings"]
        assert row["name"] == "b.flac"
    assert (recordings / "labels" / JOURNAL).is_file()


def test_calls_are_exported_with_their_frequencies(recordings, tmp_path):
    with serve_labels(recordings) as (client, _):
        client.send("add", make_box())
        client.send("add", make_box(start_s=3.0, end_s=9.0, **NOTHING))
        status, headers, content = client.ask("GET", "/api/export/csv")
        assert (status, "labels.csv" in headers["content-disposition"]) == (200, True)
        header, row = content.decode().splitlines()
        values = dict(zip(header.split(","), row.split(","), strict=True))
        assert float(values["low_freq_hz"]) == 500.0
        assert values["clock"] == "2026-03-14T05:30:01.000"
        assert client.ask("GET", "/api/export/raven")[0] == 200
    folder = recordings / "labels"
    for name in ("raven", "audacity", "csv", "kaleidoscope"):
        result = run("convert", folder, "--to", name, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
    result = run("convert", recordings, "--to", "csv", "--out", tmp_path / "none")
    assert f"callshot convert {folder} " in str(result.exception)
    (table,) = (tmp_path / "raven").rglob("*.txt")
    assert "500" in table.read_text()
    words = ("score", tmp_path / "csv", "--reviewed", folder, "--out", tmp_path / "s")
    result = run(*words)
    assert "no decisions on detections" in str(result.exception)
    assert {one.state for one in verify_review(folder)} == {"ok"}


def test_a_model_is_learned_with_the_background_that_was_listened_to(tmp_path):
    recordings = tmp_path / "recordings"
    write_site(recordings, ("a", "b", "c"), calls=4, seed=2)
    tables = {path.stem: path.read_text() for path in recordings.glob("*.txt")}
    for path in recordings.glob("*.txt"):
        path.unlink()
    (recordings / "broken.wav").write_bytes(b"RIFF")  # has no call
    with serve_labels(recordings) as (client, session):
        for name in "ab":
            for line in tables[name].splitlines():
                start_s, end_s, label = line.split("\t")
                span = {"start_s": float(start_s), "end_s": float(end_s)}
                box = make_box(recording=f"{name}.wav", label=label, **span)
                client.send("add", box)
        length_s = session.find_recording("a.wav").duration_s
        for start_s, end_s in ((0.0, 3.0), (2.0, length_s / 2)):
            span = {"recording": "a.wav", "start_s": start_s, "end_s": end_s}
            client.post("/api/listened", span)
        client.send("add", make_box(recording="c.wav", end_s=4.0, **NOTHING))
        rows = client.get("/api/recordings")["recordings"]
        assert {row["name"]: row["listened"] for row in rows} == {
            "a.wav": [[0.0, length_s / 2]],
            "b.wav": [],
            "broken.wav": [],
            "c.wav": [[1.0, 4.0]],
        }
    words = ["learn", recordings / "labels", "--encoder", "mfcc", "--window", "0.5"]
    result = run(*words, "--out", tmp_path / "calls.npz", "--store", tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert "left out" not in result.output
    assert "band" in result.output  # which boxes have
    model = load_model(tmp_path / "calls.npz")
    assert len(model.examples) == sum(
        len(text.splitlines()) for text in (tables["a"], tables["b"])
    )
    assert not model.examples.spans.frame["reviewed"].any()
    windows = model.background.windows.spans.frame
    assert windows["recording"].n_unique() == 2  # a and c
    inside_c = windows.filter(end_s=4.0)
    assert len(inside_c) == 1
    latest_s = max(4.0, length_s / 2)
    assert windows["end_s"].max() <= latest_s
    # Windows of a that a call touches are no background, though they were listened to.
    sha256 = windows.filter(windows["start_s"] < 1.0)["recording"][0]
    of_a = windows.filter(recording=sha256).select("start_s", "end_s").rows()
    for line in tables["a"].splitlines():
        start_s, end_s = map(float, line.split("\t")[:2])
        assert not any(start < end_s and end > start_s for start, end in of_a)


def test_only_events_about_as_long_as_a_call_count_as_marked():
    call = {"recording": "a.wav", "start_s": 1.0, "end_s": 1.2, "label": "hoot"}
    for start_s, end_s, label, is_known in (
        (1.0, 1.2, "hoot", True),
        (1.05, 1.15, "hoot", True),  # the box has some silence in it
        (0.95, 1.3, "hoot", True),
        (0.9, 1.4, "hoot", False),  # other calls, too
        (1.11, 1.4, "hoot", False),
        (1.0, 1.2, "bark", False),
    ):
        event = {**call, "start_s": start_s, "end_s": end_s, "label": label}
        assert is_marked([call], event) == is_known
    assert not is_marked([call], {**call, "recording": "b.wav"})
