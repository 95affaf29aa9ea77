"""From verdicts on detections to the probability that a detection is right."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from callshot.detection.background import measure_covariance
from callshot.detection.detector import find_curves, make_scorer
from callshot.detection.events import events_frame
from callshot.detection.nearest import Site
from callshot.detection.verdicts import (
    calibrate,
    check_precision,
    drop_rejected,
    find_probabilities,
    fit_logistic,
)
from callshot.vectors import Vectors
from rows_of_spans import DIMENSION, make_row, make_small_model, make_spans


def literal_fit(scores, is_right):
    """Maximise the likelihood times the root of the determinant of the information."""

    def penalised(coefficients):
        total = 0.0
        information = np.zeros((2, 2))
        for score, right in zip(scores, is_right, strict=True):
            p = expit(coefficients[0] + coefficients[1] * score)
            total += np.log(p if right else 1 - p)
            row = np.array([1.0, score])
            information += p * (1 - p) * np.outer(row, row)
        return -total - 0.5 * np.log(np.linalg.det(information))

    options = {"xatol": 1e-10, "fatol": 1e-12, "maxiter": 10000}
    return minimize(penalised, [0.0, 0.0], method="Nelder-Mead", options=options).x


@pytest.mark.parametrize("separated", [False, True])
def test_the_curve_is_the_one_of_firth(separated):
    rng = np.random.default_rng(0)
    scores = rng.normal(0.5, 0.3, 30)
    is_right = (
        scores > 0.5 if separated else rng.uniform(size=30) < expit(5 * scores - 2)
    )
    curve = fit_logistic(scores, is_right)
    np.testing.assert_allclose(
        curve.coefficients, literal_fit(scores, is_right), rtol=1e-4
    )
    shifted = fit_logistic(1000 + 50 * scores, is_right)
    np.testing.assert_allclose(
        shifted.probability(1000 + 50 * scores), curve.probability(scores), rtol=1e-6
    )


def test_a_higher_score_is_never_less_likely_to_be_right():
    scores = np.linspace(0.6, 2.0, 34)
    is_right = np.ones(34, bool)
    is_right[-4:] = False  # the highest
    curve = fit_logistic(scores, is_right)
    probability, low, high = curve.probability(np.array([-1.0, 0.6, 2.0, 5.0])).T
    np.testing.assert_allclose(probability, 30.5 / 35)  # with the prior of Jeffreys
    assert (low < probability).all()
    assert (probability < high).all()
    assert (low == low[0]).all()
    rising = fit_logistic(scores, ~is_right)
    assert rising.coefficients[1] > 0


def test_intervals_hold_the_true_probability():
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(150):
        scores = rng.uniform(0, 1, 60)
        curve = fit_logistic(scores, rng.uniform(size=60) < expit(6 * scores - 3))
        _, low, high = curve.probability(np.array([0.7]))[0]
        inside += low <= expit(6 * 0.7 - 3) <= high
    assert 0.9 <= inside / 150 <= 0.99


def test_classes_with_few_verdicts_share_a_curve():
    rng = np.random.default_rng(2)
    scores = rng.normal(0, 1, 40)
    is_right = rng.uniform(size=40) < expit(2 * scores)
    label = ["many"] * 30 + ["few"] * 10
    is_right[30:] = True  # no wrong one
    curves = calibrate(scores, is_right, label)
    own = fit_logistic(scores[:30], is_right[:30])
    np.testing.assert_array_equal(curves["many"].coefficients, own.coefficients)
    common = fit_logistic(scores, is_right)
    np.testing.assert_array_equal(curves["few"].coefficients, common.coefficients)
    assert calibrate(scores[30:], is_right[30:], label[30:]) == {}
    names = np.array(["few", "other"], object)
    probability = find_probabilities(curves, names, np.zeros(2))
    np.testing.assert_allclose(probability[0], common.probability(np.zeros(1))[0])
    assert np.isnan(probability[1]).all()


@pytest.mark.parametrize(("count", "is_asked"), [(40, True), (4000, False)])
def test_more_verdicts_are_asked_for_until_the_interval_is_short(count, is_asked):
    rng = np.random.default_rng(3)
    scores = rng.uniform(0, 1, count)
    curve = fit_logistic(scores, rng.uniform(size=count) < expit(9 * scores - 4))
    notes = check_precision(["owl"], {"owl": curve}, 0.8)
    assert (len(notes) == 1 and "more verdicts" in notes[0]) == is_asked


@pytest.mark.parametrize("slope", [-1.0, 0.2])
def test_no_number_of_verdicts_is_asked_for_where_the_curve_is_flat(slope):
    rng = np.random.default_rng(4)
    scores = rng.uniform(0, 1, 400)
    curve = fit_logistic(scores, rng.uniform(size=400) < expit(slope * scores))
    curves = {"gull": curve, "owl": curve}
    (note,) = check_precision(list(curves), curves, 0.9)
    assert "verdicts do not show" in note
    assert "more verdicts" not in note


def list_verdicts(model, background, monkeypatch):
    """Return scores, verdicts and labels that the curves of a model are fitted to."""
    seen = []
    monkeypatch.setattr(
        "callshot.detection.detector.calibrate", lambda *facts: seen.append(facts) or {}
    )
    find_curves(model, background)
    [verdicts] = seen
    return verdicts


@pytest.mark.parametrize("kind", ["site", "covariance", "nothing"])
def test_confirmed_calls_are_scored_by_the_others_of_their_class(kind, monkeypatch):
    rng = np.random.default_rng(4)
    model = make_small_model(rng)
    background = None
    if kind == "site":
        background = Site(np.ones(DIMENSION), rng.normal(0, 1, DIMENSION), 10)
    if kind == "covariance":
        background = measure_covariance(rng.normal(0, 1, (50, DIMENSION)))
    reviewed = [False, True, True, False, True, False, False]
    spans = model.examples.spans.with_columns(reviewed=np.array(reviewed))
    examples = replace(model.examples, spans=spans)
    rejected = examples.take(np.array([0, 5]))
    rejected = replace(rejected, matrix=rng.normal(1, 1, (2, DIMENSION)))
    model = replace(model, examples=examples, rejected=rejected)
    scores, is_right, label = list_verdicts(model, background, monkeypatch)
    expected = []
    for row in (1, 2, 4):
        alike = [n for n in range(7) if model.label[n] == model.label[row] and n != row]
        mean = np.mean(examples.matrix[alike].astype(float), axis=0)
        scorer = make_scorer(mean[None], background)
        expected.append(scorer.score(examples.matrix[row][None].astype(float))[0, 0])
    scorer = make_scorer(model.means, background)
    expected += [scorer.score(rejected.matrix)[n, n] for n in (0, 1)]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert is_right.tolist() == [True] * 3 + [False] * 2
    assert label == ["a", "a", "b", "a", "b"]


def test_a_confirmed_call_that_is_alone_in_its_class_is_not_scored(monkeypatch):
    model = make_small_model(np.random.default_rng(4), counts=(1, 4))
    spans = model.examples.spans.with_columns(reviewed=np.ones(5, bool))
    examples = replace(model.examples, spans=spans)
    model = replace(model, examples=examples, rejected=examples.take(np.array([1])))
    scores, is_right, label = list_verdicts(model, None, monkeypatch)
    assert np.isfinite(scores).all()
    assert is_right.tolist() == [True] * 4 + [False]
    assert label == ["b"] * 5


def test_events_that_are_at_least_half_in_a_rejected_detection_of_their_label_are_dropped():
    rng = np.random.default_rng(3)
    places = ("recording", "start_s", "end_s", "label")

    def draw(count, length_s):
        start_s = rng.integers(0, 40, count) / 4
        names = rng.choice(["a.wav", "b.wav"], count)
        ends_s = start_s + rng.integers(1, 4 * length_s, count) / 4
        labels = rng.choice(["roar", "hoot"], count)
        return list(zip(names, start_s, ends_s, labels, strict=True))

    events = draw(60, 2)
    rejected = draw(8, 4)
    expected = []
    for event in events:
        _, start_s, end_s, _ = event
        shared_s = [
            min(end_s, last_s) - max(start_s, first_s)
            for name, first_s, last_s, label in rejected
            if (name, label) == (event[0], event[3])
        ]
        if max(shared_s, default=-1) < (end_s - start_s) / 2:
            expected.append(event)
    assert 10 < len(expected) < 55
    frame = events_frame([dict(zip(places, event, strict=True)) for event in events])
    rows = [make_row(*place, label=label) for *place, label in rejected]
    spans = make_spans(rows).with_columns(root="/here")
    vectors = Vectors(spans, np.zeros((len(rows), DIMENSION), np.float32), "mfcc")
    model = replace(make_small_model(np.random.default_rng(0)), rejected=vectors)
    here, elsewhere = (
        [SimpleNamespace(path=path, root=root) for path in ("a.wav", "b.wav")]
        for root in ("/here", "/there")
    )
    kept = drop_rejected(frame, model, here)
    assert sorted(kept.select(places).rows()) == sorted(expected)
    assert kept.columns == frame.columns
    assert len(drop_rejected(frame, model, elsewhere)) == len(frame)
    confirmed = replace(vectors, spans=spans.with_columns(reviewed=True))
    assert len(drop_rejected(frame, replace(model, examples=confirmed), here)) == 60
    assert drop_rejected(frame, replace(model, rejected=None), here) is frame
