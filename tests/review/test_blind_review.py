import uuid

from served_review import Client, serve


def list_confirmed(client, item):
    classes = client.get(f"/api/items/{item}/examples")["classes"]
    calls = [one for known in classes for one in known["examples"]]
    return [one for one in calls if one["confirmed"]]


def test_a_blind_reviewer_sees_others_only_as_agreement_at_the_end(scan, tmp_path):
    with serve(scan, tmp_path / "review", blind=True) as (ada, review):
        bob = Client(ada.port, "bob")
        ada.decide(0, "confirm")
        ada.decide(1, "confirm")
        bob.decide(0, "reject")
        bob.decide(2, "confirm")
        item = bob.get("/api/items?ids=0")["items"][0]
        assert (item["others"], item["settled"]) == ([], None)
        assert review.decisions.conflicts == {0}
        assert bob.get("/api/queue?order=time&state=conflict")["ids"] == []
        bob.get("/api/queue?order=time&state=all&reviewer=ada", 409)
        own = bob.get("/api/queue?order=time&state=all&reviewer=bob")["ids"]
        assert sorted(own) == [0, 2]
        assert bob.get("/api/session")["reviewers"] == ["bob"]
        bob.get("/api/export/csv?reviewer=ada", 409)
        rows = bob.ask("GET", "/api/export/csv")[2].decode().splitlines()[1:]
        assert len(rows) == 1
        assert ",bob," in rows[0]
        settlement = {"uuid": str(uuid.uuid4()), "item": 0, "label": None}
        bob.post("/api/settle", settlement, 409)
        hidden = {"pairs": 0, "agreed": 0, "kappa": None, "conflicts": []}
        assert bob.get("/api/progress")["agreement"] == hidden
        for item in {*range(1, len(review.items))} - {2}:
            bob.decide(item, "skip")
        agreement = bob.get("/api/progress")["agreement"]
        assert (agreement["pairs"], agreement["agreed"]) == (1, 0)
        assert agreement["conflicts"] == []


def test_calls_that_others_confirmed_are_no_examples_in_a_blind_review(scan, tmp_path):
    with serve(scan, tmp_path / "review", blind=True) as (ada, review):
        bob = Client(ada.port, "bob")
        labels = review.items["label"]
        hoots = [n for n, label in enumerate(labels) if label == "hoot"]
        for item in hoots[1:]:
            ada.decide(item, "confirm")
        review.ask_scores().result()
        assert list_confirmed(ada, hoots[0])
        assert list_confirmed(bob, hoots[0]) == []


def test_parts_of_a_split_that_was_undone_are_not_exported(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (ada, review):
        bob = Client(ada.port, "bob")
        sources = len(review.items)
        start_s, end_s = review.decisions.find_span(0, "ada")
        ada.decide(0, "split", at_s=(start_s + end_s) / 2)
        bob.decide(sources, "confirm")
        ada.decide(sources, "reject")
        bob.decide(sources + 1, "confirm")
        step = {"uuid": str(uuid.uuid4()), "count": 2}
        ada.post("/api/undo", step)
        ada.decide(0, "confirm")
        rows = ada.ask("GET", "/api/export/csv")[2].decode().splitlines()[1:]
        assert len(rows) == 1
        assert list(review.decisions.verdicts) == [0]
        ada.post("/api/undo", {"uuid": str(uuid.uuid4())})
        assert review.decisions.verdicts == {}
