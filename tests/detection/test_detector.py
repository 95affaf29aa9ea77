"""Scores are standard deviations of the background; thresholds meet an aim on other background."""

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf

from callshot.detection.background import (
    Background,
    BackgroundRecording,
    make_windows,
    measure_covariance,
    score_held_out,
)
from callshot.detection.detector import (
    choose_thresholds,
    find_robust_thresholds,
    find_thresholds,
    make_detector,
    trim_background,
)
from callshot.errors import InputError, OptionError
from rows_of_spans import DIMENSION, make_small_model


def make_background(vectors, recordings=5, hop_s=3.0, origin="without calls"):
    number = np.arange(len(vectors)) * recordings // max(len(vectors), 1)
    names = tuple(
        BackgroundRecording(str(n), len(vectors), (), origin) for n in range(recordings)
    )
    start_s = hop_s * np.arange(len(vectors))
    rows = np.asarray(vectors, np.float32)
    recording = [names[n].sha256 for n in number]
    windows = make_windows(recording, start_s, hop_s, rows)
    return Background(names, windows, hop_s, hop_s)


def draw_noise(rng, count):
    mixing = np.random.default_rng(7).normal(0, 1, (DIMENSION, DIMENSION))
    return rng.normal(0, 1, (count, DIMENSION)) @ mixing + 3.0


def test_scores_are_the_definition_written_out():
    rng = np.random.default_rng(0)
    model = make_small_model(rng)
    background = make_background(draw_noise(rng, 60))
    rows = background.vectors.astype(np.float64)
    centre = rows.mean(axis=0)
    inverse = np.linalg.inv(ledoit_wolf(rows)[0])
    windows = rng.normal(0, 3, (5, DIMENSION))
    scores = make_detector(model, background, 1.0).score(windows)
    for mean, column in zip(model.means, scores.T, strict=True):
        towards = inverse @ (mean - centre)
        expected = (windows - centre) @ towards / ((mean - centre) @ towards) ** 0.5
        assert column == pytest.approx(expected)


def test_held_out_scores_never_use_the_recording_of_the_window():
    """The literal way: for each window, fit on all windows of other parts."""
    rng = np.random.default_rng(2)
    model = make_small_model(rng)
    background = make_background(draw_noise(rng, 40), recordings=5)
    scores = score_held_out(model.means, background, background.covariances)
    for row, number in enumerate(background.number):
        others = background.vectors[background.number != number]
        layer = measure_covariance(others).find_discriminants(model.means)
        expected = layer(background.vectors[row])
        np.testing.assert_allclose(scores[row], expected, atol=1e-5)


def test_false_alarms_on_other_background_are_within_a_factor_of_two():
    rng = np.random.default_rng(3)
    model = make_small_model(rng)
    aim = 20.0
    rates = []
    for _ in range(8):
        background = make_background(draw_noise(rng, 200))
        detector = make_detector(model, background, aim)
        unseen = draw_noise(rng, 20000)
        alarms = (detector.score(unseen) >= detector.thresholds).sum(axis=0)
        rates.append(alarms / (20000 * 3.0 / 3600))
    assert aim / 2 < np.mean(rates) < 2 * aim


def test_thresholds_are_those_of_an_exponential_tail():
    """Twin: the 50 highest of a class, beyond the next one, have a mean excess."""
    rng = np.random.default_rng(4)
    scores = rng.exponential(2.0, (5000, 2))
    for allowed in (0.1, 1.0, 30.0):
        thresholds = find_thresholds(scores, allowed)
        for column, threshold in zip(scores.T, thresholds, strict=True):
            ordered = sorted(column.tolist(), reverse=True)
            excess = sum(one - ordered[50] for one in ordered[:50]) / 50
            expected = ordered[50] + excess * np.log(50 / allowed)
            too_many = ordered[int(allowed)]
            assert threshold == pytest.approx(max(expected, too_many))
    thresholds = find_thresholds(scores, 120.5)
    ordered = sorted(scores[:, 0].tolist(), reverse=True)
    assert ordered[120] < thresholds[0] < ordered[119]


def test_no_more_background_reaches_a_threshold_than_the_aim_allows():
    """Some loud sounds fall off more slowly than an exponential tail with their mean excess."""
    rng = np.random.default_rng(5)
    scores = np.concatenate([rng.normal(0, 1, 3000), rng.normal(30, 3, 15)])[:, None]
    for allowed in (0.5, 1.0, 2.9, 12.0, 49.0, 50.0, 80.0):
        [threshold] = find_thresholds(scores, allowed)
        assert (scores >= threshold).sum() <= allowed


def test_robust_thresholds_are_extrapolated_from_two_quantiles():
    scores = np.random.default_rng(11).exponential(2.0, (4000, 1))
    ordered = np.sort(scores[:, 0])
    median = (ordered[1999] + ordered[2000]) / 2
    ninth = ordered[3599] + 0.1 * (ordered[3600] - ordered[3599])
    # half of the windows lie above the median, a fifth of these above the quantile 0.9
    scale = (ninth - median) / np.log(5)
    for allowed in (0.3, 5.0, 400.0):
        expected = median + scale * np.log(2000 / allowed)
        [threshold] = find_robust_thresholds(scores, allowed)
        assert threshold == pytest.approx(expected, rel=1e-3)
        assert threshold == pytest.approx(2.0 * np.log(4000 / allowed), rel=0.1)


def test_calls_among_unlabelled_windows_are_found_all_the_same():
    """With the tail of the highest scores, no call would reach the threshold."""
    rng = np.random.default_rng(12)
    model = make_small_model(rng, shift=40.0)
    noise = draw_noise(rng, 1000)
    noise[::20] = model.means[0] + rng.normal(0, 1, (50, DIMENSION))
    calls = noise[::20]
    found = {}
    for origin in ("without calls", "annotated", "unlabelled"):
        background = make_background(noise, origin=origin)
        detector = make_detector(model, background, 1.0)
        found[origin] = (detector.score(calls) >= detector.thresholds)[:, 0].mean()
    assert found["without calls"] < 0.1
    assert found["annotated"] == found["unlabelled"] == 1.0


def test_thresholds_of_annotated_background_are_lower_only_where_examples_are_missed():
    scores = np.random.default_rng(14).normal(0, 1, (1000, 2))
    scores[:50] += 20
    background = make_background(np.zeros((1000, 1)), origin="annotated")
    allowed = background.hours
    typical = np.array([15.0, 1000.0])
    low, high = choose_thresholds(scores, 1.0, background, typical)
    assert low == find_robust_thresholds(scores, allowed)[0]
    assert high == find_thresholds(scores, allowed)[1] > 20


def test_annotated_background_is_used_whole_unless_calls_were_missed():
    """A third of it has rain; without that, b and S would take new rain for calls."""
    rng = np.random.default_rng(15)
    model = make_small_model(rng, shift=40.0)
    rain = rng.normal(0, 12, (1, DIMENSION))

    def draw_rainy(count):
        strength = np.where(rng.random(count) < 1 / 3, rng.exponential(1, count), 0)
        return draw_noise(rng, count) + strength[:, None] * rain

    noise = draw_rainy(1500)
    annotated = make_detector(model, make_background(noise, origin="annotated"), 1.0)
    from_site = make_detector(model, make_background(noise), 1.0)
    np.testing.assert_array_equal(annotated.layer.weight, from_site.layer.weight)
    np.testing.assert_array_equal(annotated.thresholds, from_site.thresholds)
    alarms = annotated.score(draw_rainy(20_000)) >= annotated.thresholds
    allowed = 20_000 * make_background(noise).hop_s / 3600
    assert alarms.sum(axis=0).max() <= 2 * allowed
    centre = noise.mean(axis=0)
    noise[::40] = centre + 0.7 * (model.means[0] - centre)  # weaker than the examples
    missed = make_background(noise, origin="annotated")
    detector = make_detector(model, missed, 1.0)
    keep = trim_background(model.means, missed)
    covariance = measure_covariance(missed.vectors[keep])
    layer = covariance.find_discriminants(model.means)
    np.testing.assert_array_equal(detector.layer.weight, layer.weight)


def test_the_windows_with_the_highest_scores_are_trimmed():
    rng = np.random.default_rng(13)
    model = make_small_model(rng, shift=40.0)
    noise = draw_noise(rng, 400)
    noise[:20] = model.means[1]
    keep = trim_background(model.means, make_background(noise, origin="annotated"))
    assert not keep[:20].any()
    assert keep.sum() == 240
    assert trim_background(model.means, make_background(noise)).all()


AIMS_PER_H = np.geomspace(0.01, 3600.0, 9)


@pytest.mark.parametrize("origin", ["without calls", "annotated", "unlabelled"])
@pytest.mark.parametrize("recordings", [1, 7])
def test_no_class_has_a_higher_threshold_at_a_looser_aim(origin, recordings):
    """Of each detector by itself, as scans make them, with calls among the background or not."""
    for seed in range(2):
        rng = np.random.default_rng(seed)
        model = make_small_model(rng, shift=float(rng.choice([1.0, 6.0, 40.0])))
        count = max(recordings, int(rng.choice([2, 5, 17, 60, 400])))
        noise = draw_noise(rng, count)
        calls = rng.random(count) < rng.choice([0.0, 0.02, 0.3])
        strength = rng.uniform(0.3, 2.0, (int(calls.sum()), 1))
        noise[calls] += strength * model.means[rng.integers(2)]
        background = make_background(noise, recordings, origin=origin)
        detectors = [make_detector(model, background, aim) for aim in AIMS_PER_H]
        thresholds = np.array([detector.thresholds for detector in detectors])
        assert not np.isnan(thresholds).any()
        assert (thresholds[1:] <= thresholds[:-1]).all()


def test_without_background_the_score_is_the_distance_to_the_class_mean():
    rng = np.random.default_rng(6)
    model = make_small_model(rng)
    for background in (None, make_background(np.zeros((0, DIMENSION)))):
        detector = make_detector(model, background, 1.0)
        window = rng.normal(0, 1, (1, DIMENSION))
        expected = [-((window[0] - mean) ** 2).sum() for mean in model.means]
        np.testing.assert_allclose(detector.score(window)[0], expected)
        np.testing.assert_allclose(
            detector.distances(window)[0] ** 2, -np.array(expected)
        )
        for number, threshold in enumerate(detector.thresholds):
            own = model.distances[model.label == number]
            assert threshold == -(own.max() ** 2)


def test_one_example_without_background_and_an_aim_out_of_range_are_errors():
    model = make_small_model(np.random.default_rng(7), counts=(1, 3))
    with pytest.raises(InputError, match="a has one example and there is no backgr"):
        make_detector(model, None, 1.0)
    for aim in (0.0, -1.0, 4000.0, np.nan):
        with pytest.raises(OptionError, match="false_alarms: expected more than 0"):
            make_detector(model, None, aim)


def test_the_origin_says_whether_thresholds_are_extrapolated():
    rng = np.random.default_rng(9)
    model = make_small_model(rng)
    background = make_background(draw_noise(rng, 600))
    assert make_detector(model, background, 1.0).origin == (
        "600 windows without calls, 0.50 hours, extrapolated beyond the highest score"
    )
    assert make_detector(model, background, 10.0).origin == (
        "600 windows without calls, 0.50 hours"
    )


def test_silence_as_background_does_not_fail():
    model = make_small_model(np.random.default_rng(10))
    background = make_background(np.zeros((30, DIMENSION)))
    detector = make_detector(model, background, 1.0)
    assert np.isfinite(detector.score(model.examples.matrix)).all()
    assert (detector.thresholds > 0.0).all()  # silence is none of the classes
    assert (detector.thresholds < 1e-9).all()
