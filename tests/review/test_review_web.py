from served_review import serve


def test_a_scan_is_served_with_its_items_sounds_and_pictures(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (client, review):
        session = client.get("/api/session")
        assert session["total"] == len(review.items) > 20
        ids = client.get("/api/queue?order=best")["ids"]
        scores = [
            one["score"]
            for one in client.get("/api/items?ids=" + ",".join(map(str, ids[:50])))[
                "items"
            ]
        ]
        assert scores == sorted(scores, reverse=True)
        status, headers, content = client.ask(
            "GET", f"/api/sound?item={ids[0]}&speed=2"
        )
        assert status == 200
        assert content[:4] == b"RIFF"
        assert headers["x-speed"] == "2"
        status, _, content = client.ask("GET", f"/api/spectrogram?item={ids[0]}")
        assert content[:4] == b"\x89PNG"


def test_a_decision_is_there_after_the_server_was_started_again(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (client, _):
        client.decide(3, "confirm")
        client.decide(4, "reject")
    with serve(scan, tmp_path / "review") as (client, _):
        actions = [
            one["decision"]["action"]
            for one in client.get("/api/items?ids=3,4")["items"]
        ]
        assert actions == ["confirm", "reject"]
        assert 3 not in client.get("/api/queue?order=time&limit=500")["ids"]
