from itertools import count

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.metrics import cohen_kappa_score

from callshot.detection.events import events_frame
from callshot.review.decisions import Decisions
from callshot.review.estimates import (
    SCORE_BINS,
    cohen_kappa,
    compute_curve,
    describe_precision,
    draw_sample,
    estimate_precision,
    find_obstacle,
    measure_agreement,
    wilson_interval,
)
from callshot.review.items import make_items
from callshot.review.journal import Entry

NUMBERS = count(1)


def make(size, labels=("hoot", "bark"), seed=0):
    rng = np.random.default_rng(seed)
    rows = [
        {
            "recording": f"{n % 5}.wav",
            "start_s": float(n),
            "end_s": n + 1.0,
            "label": labels[n % len(labels)],
            "score": float(rng.normal()),
        }
        for n in range(size)
    ]
    return make_items(events_frame(rows))


def decide(decisions, item, action, reviewer="ada", **body):
    seq = next(NUMBERS)
    body |= {"item": item}
    decisions.apply(Entry(seq, str(seq), str(seq), reviewer, "now", action, body))


@pytest.mark.parametrize(
    ("hits", "count"), [(0, 1), (1, 1), (9, 10), (50, 400), (7, 7)]
)
def test_the_interval_is_that_of_scipy(hits, count):
    expected = binomtest(hits, count).proportion_ci(method="wilson")
    assert wilson_interval(hits, count) == pytest.approx(tuple(expected), abs=1e-12)


def test_kappa_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    for _ in range(50):
        first = rng.choice(["a", "b", "c"], 30).tolist()
        second = [one if rng.random() < 0.6 else "a" for one in first]
        assert cohen_kappa(first, second) == pytest.approx(
            cohen_kappa_score(first, second)
        )
    assert cohen_kappa(["a"], ["a"]) is None
    assert cohen_kappa([], []) is None


def test_agreement_is_counted_over_the_items_that_two_reviewers_decided():
    decisions = Decisions(make(10))
    said = {
        "ada": ["hoot", "hoot", "bark", "bark"],
        "bob": ["hoot", "hoot", "bark", "hoot"],
    }
    for name, labels in said.items():
        for item, label in enumerate(labels):
            decide(decisions, item, "confirm", name, verdict=label)
    decide(decisions, 7, "reject", "ada")
    decide(decisions, 8, "skip", "bob")
    agreement = measure_agreement(decisions)
    assert agreement == {"pairs": 4, "agreed": 3, "kappa": 0.5}
    assert decisions.conflicts == {3}


def test_precision_uses_the_beginning_of_the_random_order_only():
    items = make(200)
    decisions = Decisions(items)
    sample = draw_sample(items, 0)
    label = items.frame["label"].to_numpy()
    hoots = sample[label[sample] == "hoot"]
    order = hoots.tolist()
    for item in order[:10]:
        decide(decisions, item, "confirm", verdict="hoot")
    decide(decisions, order[3], "reject")
    decide(decisions, order[5], "skip")
    best = order[50:80]  # chosen for another reason: they would bias the estimate
    for item in best:
        decide(decisions, item, "confirm", verdict="hoot")
    estimate = estimate_precision(hoots, "hoot", decisions)
    counts = [estimate[name] for name in ("reviewed", "confirmed", "detections")]
    assert counts == [9, 8, 100]


def test_the_random_order_takes_every_class_and_score_in_turn():
    items = make(400)
    sample = draw_sample(items, 3)
    assert sorted(sample.tolist()) == list(range(400))
    assert (draw_sample(items, 3) == sample).all()
    assert (draw_sample(items, 4) != sample).any()
    first = sample[: 2 * SCORE_BINS * 5]
    label = items.frame["label"].to_numpy()
    score = items.frame["score"].to_numpy()
    for name in ("hoot", "bark"):
        scores = score[first[label[first] == name]]
        limits = np.quantile(score[label == name], [0.25, 0.5, 0.75])
        assert np.bincount(np.searchsorted(limits, scores)).tolist() == [5] * SCORE_BINS


def test_the_number_of_reviews_that_are_left_gives_the_interval_that_was_asked_for():
    more = describe_precision(40, 36, 10_000)["more_for_5_percent"]
    for extra, is_enough in ((more, True), (more - 1, False)):
        count = 40 + extra
        low, high = wilson_interval(0.9 * count, count)
        assert (high - low <= 0.1) == is_enough
    assert describe_precision(0, 0, 7)["more_for_5_percent"] == 7
    whole = describe_precision(7, 5, 7)
    assert (whole["low"], whole["high"]) == (5 / 7, 5 / 7)
    assert whole["more_for_5_percent"] == 0


def test_the_curve_rises_with_labels_that_differ_and_says_what_is_missing():
    rng = np.random.default_rng(0)
    recording = np.arange(60) // 6
    vectors = rng.normal(size=(60, 8)).astype(np.float32)
    vectors[:30, 0] += 4
    confirmed = {"hoot": [*range(30)], "bark": [*range(30, 60)], "rare": [5]}
    curve = compute_curve(confirmed, recording, vectors)
    assert curve["k"][0] == 1
    assert curve["map"] == sorted(curve["map"])
    assert curve["map"][-1] > 0.95
    assert find_obstacle(confirmed, recording) == ""
    assert "2 labels" in find_obstacle({"hoot": [0, 1, 2, 3]}, recording)
    apart = {"hoot": [0, 1, 2, 3], "bark": [6, 12, 18, 24]}
    assert "hoot in 2 recordings" in find_obstacle(apart, recording)
