"""More like this, and find all calls: searched, answered, undone, learned, reviewed."""

import io
import time
import uuid
import zipfile

import pytest
from typer.testing import CliRunner

from callshot.cli import app
from callshot.corpus.segment_table import read_segments
from callshot.detection.model import load_model
from callshot.errors import OptionError
from callshot.fewshot import label_budget
from callshot.results import format_provenance
from callshot.review.finding import Finding
from callshot.review.results import read_review, verify_review
from callshot.review.server import ServerOptions, open_labelling
from callshot.review.similar import SearchOptions
from field_recordings import write_site
from served_review import Client, send, serve_labels, undo

SEARCH = SearchOptions("mfcc", window_s=0.5)
LIMIT_S = 120


@pytest.fixture
def site(tmp_path):
    """Return recordings, and the calls in them: recording → [(start_s, end_s, label)]."""
    folder = write_site(tmp_path / "recordings", calls=4, seed=2)
    calls = {}
    for path in folder.glob("*.txt"):
        lines = [line.split("\t") for line in path.read_text().splitlines()]
        calls[f"{path.stem}.wav"] = [(float(a), float(b), name) for a, b, name in lines]
        path.unlink()
    return folder, calls


def wait(client, name, *states):
    """Return a task when it is in one of some states."""
    for _ in range(LIMIT_S * 10):
        task = client.get("/api/tasks")[name]
        if task["state"] in states:
            return task
        time.sleep(0.1)
    raise AssertionError(task)


def wait_for_index(client):
    return wait(client, "index", "done", "failed")


def make_box(recording, span, label, band=(200.0, 4000.0)):
    return {
        "id": str(uuid.uuid4()),
        "recording": recording,
        "start_s": span[0],
        "end_s": span[1],
        "low_freq_hz": band[0],
        "high_freq_hz": band[1],
        "label": label,
    }


def answer_card(client, card, label, action="add"):
    box = make_box(card["recording"], (card["start_s"], card["end_s"]), label)
    return send(client, action, box, tight=action == "add")


def find_true(calls, card):
    """Return the name of the call in the window of a card."""
    for start_s, end_s, label in calls[card["recording"]]:
        if min(end_s, card["end_s"]) - max(start_s, card["start_s"]) >= 0.2:
            return label
    return None


def similar(client, box, status=200):
    return client.get(f"/api/similar?box={box['id']}", status)


def test_one_call_leads_to_more_of_its_kind_and_answers_sharpen_the_list(site):
    folder, calls = site
    start_s, end_s, label = calls["a.wav"][0]
    first = make_box("a.wav", (start_s, end_s), label)
    with serve_labels(folder, searching=SEARCH) as (client, session):
        send(client, "add", first)
        assert wait_for_index(client)["error"] == ""
        answer = similar(client, first)
        cards = answer["cards"]
        assert (answer["label"], answer["examples"], answer["refused"]) == (label, 1, 0)
        assert 6 <= len(cards) <= 12
        assert sum(find_true(calls, card) == label for card in cards[:6]) >= 5
        assert cards[0]["likeness"] == "very similar"
        seen = set()
        for card in cards:
            is_call = find_true(calls, card) == label
            changed = answer_card(client, card, label, "add" if is_call else "no")
            place = (card["recording"], card["start_s"])
            seen.add(place)
            if is_call:  # the box ends with the sound
                (saved,) = changed["boxes"]
                assert saved["end_s"] - saved["start_s"] <= 0.5 + 1e-6
                assert saved["start_s"] >= card["start_s"] - 1e-6
        again = similar(client, first)
        assert seen.isdisjoint(
            (card["recording"], card["start_s"]) for card in again["cards"]
        )
        assert again["examples"] + again["refused"] == 1 + len(cards)
        boxes = session.labels.calls
        spans = [(one["recording"], one["start_s"], one["end_s"]) for one in boxes]
        for card in again["cards"]:
            assert not any(
                card["recording"] == name
                and card["start_s"] < end
                and card["end_s"] > start
                for name, start, end in spans
            )
    with serve_labels(folder, searching=SEARCH) as (client, session):  # nothing is lost
        assert len(session.labels.calls) == len(boxes)
        assert len(session.labels.refused) == again["refused"]


def test_a_yes_is_tightened_to_the_sound(site):
    folder, calls = site
    start_s, end_s, label = calls["a.wav"][1]
    with serve_labels(folder) as (client, _):
        send(client, "add", make_box("b.wav", calls["b.wav"][1][:2], label))
        wide = make_box("a.wav", (start_s - 0.6, end_s + 0.5), label, (1300.0, 1700.0))
        (saved,) = send(client, "add", wide, tight=True)["boxes"]
        assert saved["start_s"] == pytest.approx(start_s, abs=0.06)
        assert saved["end_s"] == pytest.approx(end_s, abs=0.06)


def test_a_no_is_saved_undone_and_used_by_learn(site, tmp_path):
    folder, calls = site
    with serve_labels(folder) as (client, session):
        for start_s, end_s, label in calls["a.wav"]:
            send(client, "add", make_box("a.wav", (start_s, end_s), label))
        refused = make_box("b.wav", calls["b.wav"][0][:2], "bark")
        count = len(session.labels.boxes)
        one = str(uuid.uuid4())
        for _ in range(2):  # sent twice, saved once
            send(client, "no", refused, uuid=one)
        assert [*session.labels.refused] == [refused["id"]]
        assert len(session.labels.boxes) == count
        undo(client)
        assert not session.labels.refused
        undo(client, "redo")
        assert [*session.labels.refused] == [refused["id"]]
        send(client, "no", refused, 409)
        send(client, "add", refused, 409)
        send(client, "change", refused, 404)
        send(client, "no", make_box("b.wav", (1, 2), None), 400)
        send(client, "no", make_box("absent.wav", (1, 2), "bark"), 404)
        client.ask("GET", "/api/export/csv")
        other = Client(client.port, "bob")
        assert undo(other)["nothing"]
    results = read_review(folder / "labels", rejected=True).events
    assert results["confirmed"].to_list().count(False) == 1
    assert read_review(folder / "labels").events["confirmed"].all()
    for options in (["--set", "band=none"], []):
        arguments = ["learn", folder / "labels", "--encoder", "mfcc", "--window", "0.5"]
        arguments += ["--out", tmp_path / "calls.npz", "--store", tmp_path / "store"]
        result = CliRunner().invoke(app, [str(part) for part in [*arguments, *options]])
        assert result.exit_code == 0, result.output
        model = load_model(tmp_path / "calls.npz")
        assert model.rejected.spans["label"] == ["bark"]
        assert len(model.examples) == len(calls["a.wav"])


def test_a_call_is_embedded_where_the_index_does_not_reach_yet(site):
    folder, calls = site
    first = make_box("a.wav", calls["a.wav"][0][:2], calls["a.wav"][0][2])
    with serve_labels(folder, searching=SEARCH) as (client, session):
        send(client, "add", first)
        wait_for_index(client)
        known = similar(client, first)["cards"]
        windows = session.search.windows
        parts = windows._state[1]
        for key in [key for key, part in parts.items() if part.recording == "a.wav"]:
            del parts[key]
        cards = similar(client, first)["cards"]
        assert {card["recording"] for card in cards} == {"b.wav", "c.wav"}
        assert find_true(calls, cards[0]) == first["label"]
        assert len(known) >= len(cards)


def test_without_an_encoder_the_page_works_and_says_what_to_install(site, monkeypatch):
    folder, calls = site
    monkeypatch.setattr(
        "callshot.encoders.install.list_needs", lambda spec: ["pip install 'x'"]
    )
    first = make_box("a.wav", calls["a.wav"][0][:2], "hoot")
    for searching, words in ((SEARCH, "pip install 'x'"), (None, "not searched")):
        with serve_labels(folder, searching=searching) as (client, _):
            if searching:
                send(client, "add", first)
            task = client.get("/api/tasks")["index"]
            assert (task["state"], words in task["note"]) == ("none", True)
            assert words in similar(client, first, 409)["error"]
            body = {"uuid": str(uuid.uuid4())}
            assert words in client.post("/api/find", body, 409)["error"]


def test_an_index_that_is_there_is_used_and_another_encoder_is_refused(site, tmp_path):
    folder, calls = site
    index = tmp_path / "index"
    arguments = [
        "index",
        folder,
        "--encoder",
        "mfcc",
        "--window",
        "0.5",
        "--hop",
        "0.25",
    ]
    result = CliRunner().invoke(app, [str(one) for one in [*arguments, "--out", index]])
    assert result.exit_code == 0, result.output
    searching = SearchOptions(None, index=index)
    first = make_box("a.wav", calls["a.wav"][0][:2], calls["a.wav"][0][2])
    with serve_labels(folder, searching=searching) as (client, session):
        send(client, "add", first)
        while not session.search.windows or not len(session.search.windows):
            time.sleep(0.05)
        assert find_true(calls, similar(client, first)["cards"][0]) == first["label"]
        assert wait(client, "index", "done", "failed")["state"] == "done"
        learn, _ = client.get("/api/session")["commands"]
        assert "labels --encoder mfcc --window 0.5 --out" in learn
    with (
        pytest.raises(OptionError, match="is an index of mfcc"),
        open_labelling(
            folder, ServerOptions(), None, SearchOptions("birdnet-v2.4", index=index)
        ),
    ):
        pass


def test_all_calls_are_found_reviewed_and_count_in_the_next_round(site):
    folder, calls = site
    body = {"uuid": str(uuid.uuid4())}
    with serve_labels(folder, searching=SEARCH) as (client, _):
        assert client.post("/api/find", body, 409)["error"] == "Mark a call first."
        box = make_box("c.wav", calls["c.wav"][0][:2], "one")
        send(client, "add", box)
        assert "only one call of one" in client.post("/api/find", body, 409)["error"]
        send(client, "delete", box)
        for start_s, end_s, label in calls["a.wav"]:
            send(client, "add", make_box("a.wav", (start_s, end_s), label))
        wait_for_index(client)
        client.post("/api/find", body)
        assert "already" in client.post("/api/find", body, 409)["error"]
        task = wait(client, "find", "done", "failed", "stopped")
        assert (task["state"], task["error"]) == ("done", "")
        assert "Nothing has changed" in client.post("/api/find", body, 409)["error"]
        found = task["found"]
        assert (found["number"], {*found["calls"]}) == (1, {"hoot", "bark", "trill"})
        assert sum(found["calls"].values()) >= 6
        assert found["trust"].startswith("based on 12 examples")
        assert "callshot" not in found["trust"]
        # The review of what was found is a page of the same server.
        assert client.ask("GET", "/review/1/")[0] == 200
        session = client.get("/review/1/api/session")
        assert session["title"]
        # What has a box is confirmed already.
        review = folder / "labels" / "found" / "1" / "detections" / "review"
        known = read_review(review)
        assert {*known.events["recording"]} == {"a.wav"}
        items = client.get("/review/1/api/queue?limit=50&state=undecided")["ids"]
        assert len(items) >= 6
        for item, action in zip(items, ("confirm", "reject", "reject"), strict=False):
            decision = {"uuid": str(uuid.uuid4()), "item": item, "action": action}
            client.post("/review/1/api/decisions", {"decisions": [decision]})
        # It is saved with the labels.
        client.get("/api/session")
        labels = read_review(folder / "labels", rejected=True).events
        assert labels["confirmed"].sum() == 13
        assert len(labels) == 15
        decided = read_review(review, rejected=True).events
        reviewed = labels.filter(labels["added"].is_null())
        assert {*decided["reviewed_at"]} >= {*reviewed["reviewed_at"]}
        client.post("/review/1/api/undo", {"uuid": str(uuid.uuid4())})
        client.post("/review/1/api/undo", {"uuid": str(uuid.uuid4())})
        client.get("/api/session")
        assert len(read_review(folder / "labels", rejected=True).events) == 13
        client.post("/review/1/api/redo", {"uuid": str(uuid.uuid4())})
        client.post("/review/1/api/redo", {"uuid": str(uuid.uuid4())})
        client.post("/api/find", body)
        task = wait(client, "find", "done", "failed", "stopped")
        assert (task["state"], task["error"]) == ("done", "")
        assert task["found"]["number"] == 2
        model = load_model(folder / "labels" / "found" / "2" / "calls.npz")
        assert len(model.examples) == 13
        assert sum(model.examples.spans["reviewed"]) == 1
        assert len(model.rejected) == 2
        assert client.ask("GET", "/review/2/")[0] == 200
        # A box that a person deletes does not come back.
        own = labels.filter(labels["confirmed"] & labels["added"].is_null())
        assert len(own) == 1
        name = own["recording"][0]
        [box] = [
            one
            for one in client.get(f"/api/recording?recording={name}")["boxes"]
            if one["reviewed"]
        ]
        send(client, "delete", box)
        client.get("/api/session")
        assert len(read_review(folder / "labels").events) == 12
    with serve_labels(folder, searching=SEARCH) as (client, _):  # it is still there
        assert client.get("/api/tasks")["find"]["found"]["number"] == 2
        assert client.ask("GET", "/review/1/")[0] == 200
    assert {one.state for one in verify_review(folder / "labels")} == {"ok"}


def test_labels_become_segments_and_a_study(site, tmp_path):
    folder, calls = site
    with serve_labels(folder) as (client, _):
        exports = client.get("/api/session")["exports"]
        assert {*exports} >= {
            "raven",
            "audacity",
            "csv",
            "kaleidoscope",
            "segments",
            "study",
        }
        start_s, end_s, label = calls["a.wav"][0]
        send(client, "add", make_box("a.wav", (start_s, end_s), label))
        assert "two recordings" in client.get("/api/export/study", 409)["error"]
        for name in "ab":
            for start_s, end_s, label in calls[f"{name}.wav"][1:]:
                send(client, "add", make_box(f"{name}.wav", (start_s, end_s), label))
        _, headers, content = client.ask("GET", "/api/export/kaleidoscope")
        assert "labels-kaleidoscope.csv" in headers["content-disposition"]
        assert b"TOP1MATCH" in content
        content = client.ask("GET", "/api/export/segments")[2]
        (tmp_path / "segments.parquet").write_bytes(content)
        assert len(read_segments(tmp_path / "segments.parquet")) == 23
        content = client.ask("GET", "/api/export/study")[2]
        zipfile.ZipFile(io.BytesIO(content)).extractall(tmp_path / "study")
    arguments = ["run", str(tmp_path / "study" / "study.toml"), "--dry-run"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output


def test_finding_can_be_stopped_and_says_why_it_failed(site):
    folder, calls = site
    body = {"uuid": str(uuid.uuid4())}
    with serve_labels(folder, searching=SEARCH) as (client, session):
        for start_s, end_s, _ in calls["a.wav"][0:4:3]:
            send(client, "add", make_box("a.wav", (start_s, end_s), "hoot"))
        wait_for_index(client)
        client.post("/api/find", body)
        task = client.post("/api/find/stop", body)["find"]
        assert (task["state"], task["found"]) == ("stopped", None)
        session.search.arguments = ["--encoder", "absent"]
        client.post("/api/find", body)
        task = wait(client, "find", "done", "failed")
        assert task["state"] == "failed"
        assert "absent" in task["error"]
        assert "\n" not in task["error"]


def test_a_round_that_found_nothing_or_is_damaged_is_not_reviewed(tmp_path):
    finding = Finding(tmp_path, open_labelling)
    folder = tmp_path / "found" / "1" / "detections"
    folder.mkdir(parents=True)
    for events, number in ((0, None), (2, 1)):
        facts = {"files": {}, "classes": [{"label": "hüt", "events": events}]}
        (folder / "scan.json").write_bytes(format_provenance(facts))
        found = finding.describe()["found"]
        assert (found["number"], found["calls"]) == (number, {"hüt": events})
    (folder / "scan.json").write_bytes(b"\xff")
    assert finding.describe() == {"state": "none", "found": None}


def wait_for_advice(client, expected):
    """Wait until the page advises on a box, given by its id, or on nothing if it is None."""
    for _ in range(LIMIT_S * 10):
        advice = client.get("/api/tasks")["advice"]
        if (advice and advice["id"]) == expected:
            return
        time.sleep(0.1)
    pytest.fail(f"expected {expected}, got {advice}")


def test_the_latest_call_of_the_name_that_gains_most_is_named(site, monkeypatch):
    folder, calls = site
    budgets = []

    def recommend(budget):
        budgets.append(budget)
        rows = budget.filter(label="growl").rows(named=True)
        return rows[0] if len(budgets) > 1 else None

    monkeypatch.setattr(label_budget, "recommended_class", recommend)
    names = ("hoot", "growl")
    boxes = [
        make_box(recording, span[:2], names[number % 2])
        for recording in sorted(calls)
        for number, span in enumerate(calls[recording])
    ]
    with serve_labels(folder, searching=SEARCH) as (client, _):
        wait_for_index(client)
        for box in boxes[:2]:
            send(client, "add", box)
        wait_for_advice(client, None)
        assert budgets == []  # two calls are too few
        for box in boxes[2:]:
            send(client, "add", box)
        while not budgets:
            wait_for_advice(client, None)
        assert set(budgets[0]["label"]) == set(names)
        later = boxes[0] | {"label": "growl", "end_s": boxes[0]["end_s"] + 0.1}
        send(client, "change", later)
        wait_for_advice(client, later["id"])
