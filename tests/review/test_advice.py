"""Of which call one more example helps most, on the page that labels recordings."""

import time
import uuid

import pytest

from callshot.fewshot import label_budget
from callshot.review.similar import SearchOptions
from field_recordings import write_site
from served_review import send, serve_labels

LIMIT_S = 60


def make_box(recording, start_s, end_s, label):
    place = {"recording": recording, "start_s": start_s, "end_s": end_s}
    band = {"low_freq_hz": 200.0, "high_freq_hz": 4000.0}
    return {"id": str(uuid.uuid4()), **place, **band, "label": label}


def wait_for_index(client):
    end_s = time.monotonic() + LIMIT_S
    while client.get("/api/tasks")["index"]["state"] != "done":
        assert time.monotonic() < end_s
        time.sleep(0.1)


def wait_for_advice(client, expected):
    """Wait until the page advises on a box, or on nothing if it is None."""
    end_s = time.monotonic() + LIMIT_S
    while time.monotonic() < end_s:
        advice = client.get("/api/tasks")["advice"]
        if (advice and advice["id"]) == expected:
            return
        time.sleep(0.1)
    pytest.fail(f"expected {expected}, got {advice}")


def test_the_latest_call_of_the_name_that_gains_most_is_named(tmp_path, monkeypatch):
    budgets = []

    def recommend(budget):
        budgets.append(budget)
        rows = budget.filter(label="growl").rows(named=True)
        return rows[0] if len(budgets) > 1 else None

    monkeypatch.setattr(label_budget, "recommended_class", recommend)
    folder = write_site(tmp_path / "recordings", calls=4, seed=2)
    names = ("hoot", "growl")
    boxes = []
    for path in sorted(folder.glob("*.txt")):
        for number, line in enumerate(path.read_text().splitlines()):
            start_s, end_s, _ = line.split("\t")
            name = f"{path.stem}.wav"
            label = names[number % 2]
            boxes.append(make_box(name, float(start_s), float(end_s), label))
        path.unlink()
    searching = SearchOptions("mfcc", window_s=0.5)
    with serve_labels(folder, searching=searching) as (client, _):
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
