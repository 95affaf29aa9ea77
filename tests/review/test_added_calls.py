"""Calls that a person marks on the card of an event: inside it, or beside it."""

import io
import random
import zipfile

import pytest
from typer.testing import CliRunner

from callshot.cli import app
from callshot.detection.model import load_model
from callshot.review.decisions import Decisions
from callshot.review.results import read_review
from rows_of_spans import read_annotations
from served_review import serve

BAND = {"low_freq_hz": 500.0, "high_freq_hz": 900.0}


def add(client, review, item, *, shift_s=0.0, label=None, status=200, **more):
    """Mark a call in the second half of an item, or later; return the answer."""
    start_s, end_s = review.decisions.find_span(item, "ada")
    span = {
        "start_s": (start_s + end_s) / 2 + shift_s,
        "end_s": end_s + shift_s,
        "label": label or review.items["label"][item],
    }
    return client.decide(item, "add", status, **span | more)


def test_a_call_inside_an_event_divides_it_and_is_confirmed(scan, tmp_path):
    out = tmp_path / "review"
    with serve(scan, out) as (client, review):
        sources = len(review.items)
        answer = add(client, review, 0, **BAND)
        add(client, review, 0, shift_s=-0.2)
        event, call = answer["items"]
        assert (event["id"], event["decision"]["action"]) == (0, "split")
        assert (call["id"], call["parent"], call["added"]) == (sources, 0, True)
        assert call["decision"]["action"] == "confirm"
        assert (call["score"], call["low_freq_hz"]) == (None, 500.0)
        assert client.get("/api/progress")["done"] == 3
        events = read_review(out).events
        assert set(events["label"]) == {event["label"]}
        assert events["added"].to_list() == ["yes", "yes"]
        review.ask_scores().result()
        assert client.items(sources)[0]["score"] is None


def test_a_call_beside_an_event_or_of_another_kind_leaves_it_undecided(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (client, review):
        client.post("/api/labels", {"name": "growl"})
        add(client, review, 0, label="growl")
        add(client, review, 1, shift_s=-1.0)
        items = client.items(0, 1)
        assert [item["decision"] for item in items] == [None, None]
        sources = review.decisions.source_count
        calls = client.items(sources, sources + 1)
        assert calls[0]["label"] == "growl"
        assert calls[1]["end_s"] == pytest.approx(items[1]["end_s"] - 1.0)
        if items[1]["clock"] is not None:
            assert calls[1]["clock"] < items[1]["clock"]


def test_an_added_call_is_undone_redone_and_there_after_a_restart(scan, tmp_path):
    out = tmp_path / "review"
    with serve(scan, out) as (client, review):
        number = len(review.items)
        add(client, review, 0)
        undone = client.undo()
        assert undone["gone"] == [number]
        assert [one["id"] for one in undone["items"]] == [0]
        assert undone["items"][0]["decision"] is None
        assert client.items(number) == []
        assert len(read_review(out).events) == 0
        client.undo(action="redo")
        before = client.items(0, number)
        assert before[0]["decision"]["action"] == "split"
    with serve(scan, out) as (client, _):
        assert client.items(0, number) == before
        assert len(read_review(out).events) == 1


WRONG = [
    {"label": "unknown"},
    {"label": ["hoot"]},
    {"start_s": -1.0},
    {"start_s": None},
    {"end_s": 1e9},
    {"low_freq_hz": 5.0},
    {"low_freq_hz": 900.0, "high_freq_hz": 100.0},
    {"low_freq_hz": True, "high_freq_hz": 100.0},
]


def test_a_call_that_was_saved_or_makes_no_sense_is_not_saved(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (client, review):
        for wrong in WRONG:
            add(client, review, 0, status=400, **wrong)
        span = {"start_s": 0.5, "end_s": 0.7, "label": review.items["label"][0]}
        first, again = (
            client.decide(0, "add", uuid=f"{1:032x}", **span)["items"] for _ in range(2)
        )
        assert len(first) == 2
        assert first == again
        assert len(review.items) == review.decisions.source_count + 1


def test_added_calls_are_in_all_exports_and_in_a_model(scan, tmp_path):
    out = tmp_path / "review"
    with serve(scan, out) as (client, review):
        client.decide(1, "confirm")
        client.decide(2, "reject")
        add(client, review, 0, **BAND)
        label = "<script>growl"
        client.post("/api/labels", {"name": label})
        add(client, review, 3, shift_s=-1.0, label=label)
        mistaken = add(client, review, 4)["items"][-1]["id"]
        client.decide(mistaken, "reject")
        table = client.table("csv?rejected=1")
        assert table["added"].to_list().count("yes") == 2
        assert len(table) == 4
        assert label in set(table["label"])
        archive = zipfile.ZipFile(io.BytesIO(client.export("raven")))
        archive.extractall(tmp_path)
        paths = [tmp_path / name for name in archive.namelist()]
        assert sum(len(read_annotations(path).annotations) for path in paths) == 3
        assert any("\t500.0\t900.0\t" in path.read_text() for path in paths)
    words = ("learn", "--add", str(out), "--out", str(tmp_path / "better.npz"), "-q")
    result = CliRunner().invoke(app, [*words, "--store", str(tmp_path / "store")])
    assert result.exit_code == 0, result.output
    before = load_model(scan.parent / "calls.npz")
    after = load_model(tmp_path / "better.npz")
    assert len(after.examples) == len(before.examples) + 3
    assert label in after.classes
    # Only verdicts on what the model found say how often it is right.
    assert sum(after.examples.spans["reviewed"]) == 1
    assert len(after.rejected) == 1


@pytest.mark.parametrize("seed", range(3))
def test_rows_applied_anew_give_the_same_decisions(scan, tmp_path, seed):
    draw = random.Random(seed)
    with serve(scan, tmp_path / "review") as (client, review):
        people = (client, client.as_person("bob"))
        for _ in range(40):
            person = draw.choice(people)
            item = draw.randrange(6)
            what = draw.choice(("add", "add", "undo", "redo", "confirm", "new"))
            if what == "add":
                add(person, review, item, shift_s=draw.choice((0.0, -1.0)))
            elif what == "confirm":
                person.decide(item, "confirm")
            elif what == "new" and len(review.items) > review.decisions.source_count:
                person.decide(len(review.items) - 1, draw.choice(("reject", "confirm")))
            elif what in ("undo", "redo"):
                person.undo(action=what)
        fresh = Decisions(review.source.items)
        review.journal.replay(fresh.apply)
        kept = review.decisions
        assert fresh.gone == kept.gone
        assert fresh.verdicts == kept.verdicts
        assert fresh.conflicts == kept.conflicts
        for name in kept.status:
            assert fresh.get_status(name).tolist() == kept.get_status(name).tolist()
        # The slow way: what is in effect is what was not taken back.
        adding = sum(row.action == "add" for row in review.journal.entries)
        assert len(kept.items) == kept.source_count + adding
        for item in range(len(kept.items)):
            labels = {verdict["label"] for verdict in kept.find_verdicts(item)}
            has_verdict = len(labels) == 1 and item not in kept.gone
            assert (item in kept.verdicts) == has_verdict


def test_the_card_knows_its_neighbours_and_its_place_among_its_label(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (client, review):
        call = add(client, review, 0)["items"][-1]["id"]
        nearby = client.get("/api/items/0/nearby")["items"]
        frame = review.items.frame
        same = frame["recording"] == frame["recording"][0]
        near = same & (frame["start_s"] < frame["end_s"][0] + 60.0)
        assert [one["id"] for one in nearby] == near.arg_true().to_list()[1:]
        assert call in {one["id"] for one in nearby}
        client.get("/api/items/9999/nearby", 404)
        for item in client.items(*range(6)):
            scores = frame.filter(added=False, label=item["label"])["score"]
            assert item["rank"] == sum(score > item["score"] for score in scores) + 1
            assert item["rank_of"] == len(scores)
        assert client.items(call)[0]["rank"] is None


def test_a_picture_is_fitted_to_the_calls_of_its_label(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (client, review):
        frame = review.items.frame
        item = frame["low_freq_hz"].is_not_null().arg_true()[0]
        own = frame.filter(label=frame["label"][item])
        address = f"/api/spectrogram?item={item}&max_hz=8000"
        _, whole, _ = client.ask("GET", address)
        status, fitted, content = client.ask("GET", f"{address}&fit=1")
        assert (status, content[:4]) == (200, b"\x89PNG")
        assert float(whole["x-max-hz"]) > float(fitted["x-max-hz"])
        low_hz = own["low_freq_hz"].median()
        high_hz = own["high_freq_hz"].median()
        assert 0 <= float(fitted["x-min-hz"]) < low_hz
        assert high_hz < float(fitted["x-max-hz"]) < high_hz + (high_hz - low_hz)


def test_a_blind_reviewer_sees_others_only_as_agreement_at_the_end(scan, tmp_path):
    with serve(scan, tmp_path / "review", blind=True) as (ada, review):
        bob = ada.as_person("bob")
        ada.decide(0, "confirm")
        ada.decide(1, "confirm")
        bob.decide(0, "reject")
        bob.decide(2, "confirm")
        (item,) = bob.items(0)
        assert (item["others"], item["settled"]) == ([], None)
        assert review.decisions.conflicts == {0}
        assert bob.queue(state="conflict") == []
        bob.get("/api/queue?state=all&reviewer=ada", 409)
        assert sorted(bob.queue(state="all", reviewer="bob")) == [0, 2]
        assert bob.get("/api/session")["reviewers"] == ["bob"]
        assert bob.table()["reviewer"].to_list() == ["bob"]
        bob.settle(0, None, 409)
        hidden = {"pairs": 0, "agreed": 0, "kappa": None, "conflicts": []}
        assert bob.get("/api/progress")["agreement"] == hidden
        for number in {*range(1, len(review.items))} - {2}:
            bob.decide(number, "skip")
        agreement = bob.get("/api/progress")["agreement"]
        assert (agreement["pairs"], agreement["agreed"]) == (1, 0)
        assert agreement["conflicts"] == []


def list_confirmed(client, item):
    classes = client.get(f"/api/items/{item}/examples")["classes"]
    calls = [one for known in classes for one in known["examples"]]
    return [one for one in calls if one["confirmed"]]


def test_calls_that_others_confirmed_are_no_examples_in_a_blind_review(scan, tmp_path):
    with serve(scan, tmp_path / "review", blind=True) as (ada, review):
        first, *others = review.items.frame.filter(label="hoot")["row"]
        for item in others:
            ada.decide(item, "confirm")
        review.ask_scores().result()
        assert list_confirmed(ada, first)
        assert list_confirmed(ada.as_person("bob"), first) == []


def test_parts_of_a_split_that_was_undone_are_not_exported(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (ada, review):
        bob = ada.as_person("bob")
        sources = len(review.items)
        start_s, end_s = review.decisions.find_span(0, "ada")
        ada.decide(0, "split", at_s=(start_s + end_s) / 2)
        bob.decide(sources, "confirm")
        ada.decide(sources, "reject")
        bob.decide(sources + 1, "confirm")
        ada.undo(2)
        ada.decide(0, "confirm")
        assert len(ada.table()) == 1
        assert list(review.decisions.verdicts) == [0]
        ada.undo()
        assert review.decisions.verdicts == {}
