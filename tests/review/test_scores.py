"""Scores follow decisions."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.linalg import lu_factor

from callshot.detection.background import Covariance
from callshot.detection.model import AudioSettings, load_model, make_model
from callshot.review import session
from callshot.review.sound import make_example_clip
from callshot.review.sources import ModelScores
from callshot.spans import concat_spans
from callshot.vectors import Vectors
from rows_of_spans import make_examples
from served_review import serve


@pytest.fixture
def served(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (client, review):
        review.ask_scores().result()
        assert review.scores is not None, review.why_no_scores
        yield client, review


def test_scores_from_the_vectors_are_those_of_the_scan(served):
    _, review = served
    items = review.source.items.frame
    ranking = review.scores.rank(items["label"], review.decisions.labels)
    np.testing.assert_allclose(ranking["score"], items["score"], rtol=1e-4)
    np.testing.assert_allclose(
        ranking["runner_up_score"], items["runner_up_score"], rtol=1e-3, atol=1e-3
    )
    assert ranking["runner_up"].equals(items["runner_up"])


def test_the_model_after_some_decisions_is_that_of_all_examples_at_once(served, scan):
    client, review = served
    client.decide(0, "confirm")
    client.decide(1, "relabel", label="hoot")
    client.decide(2, "reject")
    client.decide(5, "confirm")
    client.decide(6, "confirm")
    client.undo()
    review.ask_scores().result()
    model = load_model(scan.parent / "calls.npz")
    rows = [0, 1, 5]
    labels = [review.decisions.verdicts[row]["label"] for row in rows]
    added = [
        (label, "r", "r", float(row), row + 1.0)
        for label, row in zip(labels, rows, strict=True)
    ]
    whole = make_model(
        Vectors(
            concat_spans([model.examples.spans, make_examples(added)]),
            np.concatenate([model.examples.matrix, review.scores.vectors[rows]]),
        ),
        encoder=model.encoder,
        fingerprint=model.fingerprint,
        settings=model.settings,
        licence=model.licence,
    )
    np.testing.assert_array_equal(review.scores.means, whole.means)


def test_undoing_the_only_call_of_a_new_label_changes_only_the_other_scores():
    rng = np.random.default_rng(0)
    examples = [("ab"[n % 2], "r", "r", float(n), n + 1.0) for n in range(6)]
    model = make_model(
        Vectors(make_examples(examples), rng.normal(size=(6, 4)).astype(np.float32)),
        encoder="mfcc",
        fingerprint={},
        settings=AudioSettings(),
        licence="none",
    )
    vectors = rng.normal(size=(10, 4)).astype(np.float32)
    background = Covariance(np.zeros(4), lu_factor(np.eye(4)))
    scores = ModelScores(model, vectors, background)
    scores.update({"b": [3], "new": [1, 2]})
    scores.update({"a": [1]})
    expected = ModelScores(model, vectors, background)
    expected.update({"a": [1]})
    assert scores.labels == ["a", "b", "new"]
    assert not np.isfinite(scores.means[2]).any()
    items = pl.Series([*"aaaaabbbbb"])
    before = expected.rank(items, ["a", "b"])
    after = scores.rank(items, ["a", "b"])
    assert after["score"].equals(before["score"])
    assert scores.find_best(0, 3) == expected.find_best(0, 3)


def test_the_nearest_examples_of_the_two_best_classes_have_a_sound(served):
    client, review = served
    client.decide(3, "confirm")
    classes = client.get("/api/items/0/examples")["classes"]
    assert len(classes) == 2
    assert classes[0]["label"] == review.items["label"][0]
    for one in classes:
        distances = [call["distance"] for call in one["examples"]]
        assert 0 < len(distances) <= 4
        assert distances == sorted(distances)
        for call in one["examples"]:
            sound = client.ask("GET", f"/api/sound?example={call['example']}")
            assert (sound[0], sound[2][:4]) == (200, b"RIFF")


@pytest.mark.parametrize("speed", [1.0, 2.0, 0.5])
def test_the_sound_of_an_example_lasts_as_long_as_the_call(speed):
    samples = np.arange(round(16000 * 1.5 / speed), dtype=np.int16)
    spans = make_examples([("hoot", "a.wav", "a.wav", 2.0, 3.5)])
    spans = replace(spans, frame=spans.frame.with_columns(clip=samples.tobytes()))
    model = make_model(
        Vectors(spans, np.ones((1, 4), np.float32)),
        encoder="mfcc",
        fingerprint={"encoder": "mfcc", "options": {"speed": speed}},
        settings=AudioSettings(),
        licence="none",
        clip_rate_hz=16000,
    )
    clip = make_example_clip(model, 0)
    assert len(clip.signal) / clip.rate_hz == pytest.approx(1.5)
    assert clip.start_s == pytest.approx(2.0)


def test_decisions_that_follow_each_other_are_scored_together(served, monkeypatch):
    client, review = served
    monkeypatch.setattr(session, "PAUSE_S", 0.2)
    updates = []
    update = review.scores.update
    review.scores.update = lambda confirmed: updates.append(1) or update(confirmed)
    for item in range(5):
        client.decide(item, "confirm")
    review.ask_scores().result()
    assert 0 < len(updates) < 5
