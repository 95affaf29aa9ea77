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
from callshot.review.children import Job
from callshot.review.finding import Finding
from callshot.review.results import read_review, verify_review
from callshot.review.server import ServerOptions, open_labelling
from callshot.review.similar import SearchOptions
from field_recordings import write_site
from served_review import serve_labels

LIMIT_S = 120


@pytest.fixture
def served(site, out, ready_index):
    """A client of the recordings, whose index is ready, and the session."""
    with serve_labels(site[0], out, ready_index) as (client, session):
        session.search._thread.join()
        yield client, session


def wait(client, name, *states):
    """Return a task when it is in one of some states."""
    for _ in range(LIMIT_S * 20):
        task = client.get("/api/tasks")[name]
        if task["state"] in states:
            return task
        time.sleep(0.05)
    raise AssertionError(task)


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
    return client.send(action, box, tight=action == "add")


def find_true(calls, card):
    """Return the name of the call in the window of a card."""
    for start_s, end_s, label in calls[card["recording"]]:
        if min(end_s, card["end_s"]) - max(start_s, card["start_s"]) >= 0.2:
            return label
    return None


def similar(client, box, status=200):
    return client.get(f"/api/similar?box={box['id']}", status)


def test_one_call_leads_to_more_of_its_kind_and_answers_sharpen_the_list(
    served, site, out
):
    client, session = served
    _, calls = site
    start_s, end_s, label = calls["a.wav"][0]
    first = make_box("a.wav", (start_s, end_s), label)
    client.send("add", first)
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
        seen.add((card["recording"], card["start_s"]))
        if is_call:  # the box ends with the sound
            (saved,) = changed["boxes"]
            assert saved["end_s"] - saved["start_s"] <= 0.5 + 1e-6
            assert saved["start_s"] >= card["start_s"] - 1e-6
    again = similar(client, first)
    assert again["examples"] + again["refused"] == 1 + len(cards)
    for card in again["cards"]:
        assert (card["recording"], card["start_s"]) not in seen
        for box in session.labels.calls:
            assert (
                card["recording"] != box["recording"]
                or card["start_s"] >= box["end_s"]
                or card["end_s"] <= box["start_s"]
            )
    results = read_review(out, rejected=True).events  # nothing is lost
    assert results["confirmed"].sum() == len(session.labels.calls)
    assert len(results) == 1 + len(cards)


def test_a_call_is_embedded_where_the_index_does_not_reach_yet(served, site):
    client, session = served
    _, calls = site
    first = make_box("a.wav", calls["a.wav"][0][:2], calls["a.wav"][0][2])
    client.send("add", first)
    known = similar(client, first)["cards"]
    parts = session.search.windows._state[1]
    for key in [key for key, part in parts.items() if part.recording == "a.wav"]:
        del parts[key]
    cards = similar(client, first)["cards"]
    assert {card["recording"] for card in cards} == {"b.wav", "c.wav"}
    assert find_true(calls, cards[0]) == first["label"]
    assert len(known) >= len(cards)


def test_an_index_is_made_meanwhile_and_another_encoder_is_refused(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("callshot.review.similar.Job", Job)
    folder = write_site(tmp_path / "recordings", ("a", "b"), calls=1)
    searching = SearchOptions("mfcc", window_s=0.5)
    box = make_box("a.wav", (1.0, 2.0), "hoot")
    with serve_labels(folder, tmp_path / "labels", searching) as (client, _):
        client.send("add", box)
        assert "ready" in similar(client, box, 409)["error"]
        assert wait(client, "index", "done", "failed")["error"] == ""
        assert similar(client, box)["cards"]
        learn, _ = client.get("/api/session")["commands"]
        assert "labels --encoder mfcc --window 0.5 --out" in learn
    options = SearchOptions("birdnet-v2.4")
    with (
        pytest.raises(OptionError, match="is an index of mfcc"),
        open_labelling(folder, ServerOptions(), tmp_path / "labels", options),
    ):
        pass


def test_without_an_encoder_the_page_works_and_says_what_to_install(
    site, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        "callshot.encoders.install.list_needs", lambda spec: ["pip install 'x'"]
    )
    first = make_box("a.wav", (1.0, 2.0), "hoot")
    options = SearchOptions("mfcc", window_s=0.5)
    for searching, words in ((options, "pip install 'x'"), (None, "not searched")):
        with serve_labels(site[0], tmp_path, searching) as (client, _):
            if searching:
                client.send("add", first)
            task = client.get("/api/tasks")["index"]
            assert (task["state"], words in task["note"]) == ("none", True)
            assert words in similar(client, first, 409)["error"]
            assert words in client.post("/api/find", {}, 409)["error"]
            assert client.get("/api/order") == {"recordings": []}
            assert words in client.get("/api/kinds", 409)["error"]


def test_a_yes_is_tightened_to_the_sound(site, tmp_path):
    folder, calls = site
    start_s, end_s, label = calls["a.wav"][1]
    with serve_labels(folder, tmp_path) as (client, _):
        client.send("add", make_box("b.wav", calls["b.wav"][1][:2], label))
        wide = make_box("a.wav", (start_s - 0.6, end_s + 0.5), label, (1300.0, 1700.0))
        (saved,) = client.send("add", wide, tight=True)["boxes"]
        assert saved["start_s"] == pytest.approx(start_s, abs=0.06)
        assert saved["end_s"] == pytest.approx(end_s, abs=0.06)


def test_a_no_is_saved_undone_and_used_by_learn(site, tmp_path):
    folder, calls = site
    out = tmp_path / "labels"
    with serve_labels(folder, out) as (client, session):
        for start_s, end_s, label in calls["a.wav"]:
            client.send("add", make_box("a.wav", (start_s, end_s), label))
        refused = make_box("b.wav", calls["b.wav"][0][:2], "bark")
        count = len(session.labels.boxes)
        for _ in range(2):  # sent twice, saved once
            client.send("no", refused, uuid=f"{1:032x}")
        assert [*session.labels.refused] == [refused["id"]]
        assert len(session.labels.boxes) == count
        client.undo()
        assert not session.labels.refused
        client.undo(action="redo")
        assert [*session.labels.refused] == [refused["id"]]
        client.send("no", refused, 409)
        client.send("add", refused, 409)
        client.send("change", refused, 404)
        client.send("no", make_box("b.wav", (1, 2), None), 400)
        client.send("no", make_box("absent.wav", (1, 2), "bark"), 404)
        assert client.as_person("bob").undo()["nothing"]
    results = read_review(out, rejected=True).events
    assert results["confirmed"].to_list().count(False) == 1
    assert read_review(out).events["confirmed"].all()
    for options in (["--set", "band=none"], []):
        arguments = ["learn", out, "--encoder", "mfcc", "--window", "0.5", *options]
        arguments += ["--out", tmp_path / "calls.npz", "--store", tmp_path / "store"]
        result = CliRunner().invoke(app, [str(part) for part in arguments])
        assert result.exit_code == 0, result.output
        model = load_model(tmp_path / "calls.npz")
        assert model.rejected.spans["label"] == ["bark"]
        assert len(model.examples) == len(calls["a.wav"])


def test_all_calls_are_found_reviewed_and_count_in_the_next_round(
    served, site, out, request
):
    client, session = served
    _, calls = site
    assert client.post("/api/find", {}, 409)["error"] == "Mark a call first."
    box = make_box("c.wav", calls["c.wav"][0][:2], "one")
    client.send("add", box)
    assert "only one call of one" in client.post("/api/find", {}, 409)["error"]
    client.send("delete", box)
    for start_s, end_s, label in calls["a.wav"]:
        client.send("add", make_box("a.wav", (start_s, end_s), label))
    client.post("/api/find", {})
    assert "already" in client.post("/api/find", {}, 409)["error"]
    task = client.post("/api/find/stop", {})["find"]
    assert (task["state"], task["found"]) == ("stopped", None)
    right = session.search.arguments
    session.search.arguments = ["--encoder", "absent"]
    client.post("/api/find", {})
    task = wait(client, "find", "done", "failed")
    assert (task["state"], "absent" in task["error"]) == ("failed", True)
    assert "\n" not in task["error"]
    session.search.arguments = right
    request.getfixturevalue("own_jobs")
    client.post("/api/find", {})
    task = wait(client, "find", "done", "failed", "stopped")
    assert (task["state"], task["error"]) == ("done", "")
    assert "Nothing has changed" in client.post("/api/find", {}, 409)["error"]
    found = task["found"]
    assert (found["number"], {*found["calls"]}) == (1, {"hoot", "bark", "trill"})
    assert sum(found["calls"].values()) >= 6
    assert found["trust"].startswith("based on 12 examples")
    assert "callshot" not in found["trust"]
    # The review of what was found is a page of the same server; what has a box is confirmed.
    assert client.ask("GET", "/review/1/")[0] == 200
    assert client.get("/review/1/api/session")["title"]
    review = out / "found" / "1" / "detections" / "review"
    assert {*read_review(review).events["recording"]} == {"a.wav"}
    items = client.get("/review/1/api/queue?limit=50&state=undecided")["ids"]
    assert len(items) >= 6
    for item, action in zip(items, ("confirm", "reject", "reject"), strict=False):
        decision = {"uuid": str(uuid.uuid4()), "item": item, "action": action}
        client.post("/review/1/api/decisions", {"decisions": [decision]})
    client.get("/api/session")  # saves it with the labels
    labels = read_review(out, rejected=True).events
    assert (labels["confirmed"].sum(), len(labels)) == (13, 15)
    decided = read_review(review, rejected=True).events
    reviewed = labels.filter(labels["added"].is_null())
    assert {*decided["reviewed_at"]} >= {*reviewed["reviewed_at"]}
    client.post("/review/1/api/undo", {"count": 2})
    client.get("/api/session")
    assert len(read_review(out, rejected=True).events) == 13
    client.post("/review/1/api/redo", {})
    client.post("/api/find", {})
    task = wait(client, "find", "done", "failed", "stopped")
    assert (task["state"], task["error"]) == ("done", "")
    assert task["found"]["number"] == 2
    model = load_model(out / "found" / "2" / "calls.npz")
    assert len(model.examples) == 13
    assert sum(model.examples.spans["reviewed"]) == 1
    assert len(model.rejected) == 2
    # A box that a person deletes does not come back.
    own = labels.filter(labels["confirmed"] & labels["added"].is_null())
    (name,) = own["recording"]
    boxes = client.get(f"/api/recording?recording={name}")["boxes"]
    (box,) = [one for one in boxes if one["reviewed"]]
    client.send("delete", box)
    client.get("/api/session")
    assert len(read_review(out).events) == 12
    session.finding.close()
    assert {one.state for one in verify_review(out)} == {"ok"}
    again = Finding(out, session.finding._open_review)
    assert again.describe()["found"]["number"] == 2
    assert again.find_rounds() == [1, 2]


def test_labels_become_segments_and_a_study(site, tmp_path, own_jobs):
    folder, calls = site
    with serve_labels(folder, tmp_path / "labels") as (client, _):
        client.send("add", make_box("a.wav", calls["a.wav"][0][:2], "hoot"))
        assert "two recordings" in client.get("/api/export/study", 409)["error"]
        for name in ("a.wav", "b.wav"):
            for start_s, end_s, label in calls[name][1:]:
                client.send("add", make_box(name, (start_s, end_s), label))
        _, headers, content = client.ask("GET", "/api/export/kaleidoscope")
        assert "labels-kaleidoscope.csv" in headers["content-disposition"]
        assert b"TOP1MATCH" in content
        table = tmp_path / "segments.parquet"
        table.write_bytes(client.export("segments"))
        assert len(read_segments(table)) == 23
        content = io.BytesIO(client.export("study"))
        zipfile.ZipFile(content).extractall(tmp_path / "study")
    arguments = ["run", str(tmp_path / "study" / "study.toml"), "--dry-run"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output


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
    for _ in range(LIMIT_S * 20):
        advice = client.get("/api/tasks")["advice"]
        if (advice and advice["id"]) == expected:
            return
        time.sleep(0.05)
    pytest.fail(f"expected {expected}, got {advice}")


def test_the_latest_call_of_the_name_that_gains_most_is_named(
    served, site, monkeypatch
):
    client, _ = served
    _, calls = site
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
    for box in boxes[:2]:
        client.send("add", box)
    wait_for_advice(client, None)
    assert budgets == []  # two calls are too few
    for box in boxes[2:]:
        client.send("add", box)
    while not budgets:
        wait_for_advice(client, None)
    assert set(budgets[0]["label"]) == set(names)
    later = boxes[0] | {"label": "growl", "end_s": boxes[0]["end_s"] + 0.1}
    client.send("change", later)
    wait_for_advice(client, later["id"])
