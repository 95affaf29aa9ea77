"""Examples are searched with those of other recordings, at the thresholds of a scan."""

from dataclasses import replace

import numpy as np
import pytest

from callshot.detection.background import (
    UNLABELLED,
    WITHOUT_CALLS,
    Background,
    make_windows,
    score_held_out,
    split_background,
)
from callshot.detection.detector import find_thresholds, make_detector
from callshot.detection.learn import learn
from callshot.detection.model_summary import (
    describe_model,
    expect_recall,
    expect_scan,
    explain_unknown,
    predict_rate,
    predict_share,
)
from field_recordings import write_site
from rows_of_spans import list_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recall")
    site = write_site(folder / "site", calls=3)
    return learn(site, "mfcc", window_s=0.5, store=folder / "store").model


def test_recall_is_what_leaving_one_recording_out_gives(model):
    expected = expect_scan(model, 60.0)
    found = dict.fromkeys(model.classes, 0)
    for row, example in enumerate(list_rows(model.examples.spans)):
        others = [
            n
            for n, other in enumerate(model.examples.spans["recording"])
            if other != example.recording
        ]
        part = replace(model, examples=model.examples.take(others))
        detector = make_detector(part, model.background, 60.0)
        [scores] = detector.score(model.examples.matrix[row : row + 1])
        best = int(np.argmax(scores))
        if scores[best] >= detector.thresholds[best]:
            found[example.label] += detector.classes[best] == example.label
    assert expected.hits.tolist() == [found[name] for name in model.classes]
    assert expected.testable.tolist() == model.counts.tolist()
    assert expected.recall.max() > 0
    assert expected.tested.tolist() == [3, 3, 3]


def test_false_alarms_are_background_windows_that_reach_a_threshold(model):
    expected = expect_scan(model, 2400.0)
    background = model.background
    scores = score_held_out(model.means, background, background.covariances)
    count = 0
    for inside in split_background(background):
        rest = scores[~inside]
        thresholds = find_thresholds(rest, 2400.0 * len(rest) * background.hop_s / 3600)
        for row in scores[inside]:
            best = int(np.argmax(row))
            count += row[best] >= thresholds[best]
    own_count = 0
    for row in scores:
        best = int(np.argmax(row))
        own_count += row[best] >= expected.detector.thresholds[best]
    assert own_count != count
    both = [predict_rate(int(n), background.hours) for n in (own_count, count)]
    assert expected.alarms.value == (both[0].value + both[1].value) / 2
    assert expected.alarms.low == min(both[0].low, both[1].low)
    assert expected.alarms.high == max(both[0].high, both[1].high)


def test_half_of_the_calls_cost_the_background_above_their_median(model):
    expected = expect_scan(model, 60.0)
    background = model.background
    covariances = background.covariances
    for number, name in enumerate(model.classes):
        own = []
        for row, example in enumerate(list_rows(model.examples.spans)):
            if example.label == name:
                others = [
                    model.examples.matrix[n].astype(float)
                    for n, other in enumerate(list_rows(model.examples.spans))
                    if other.label == name and other.recording != example.recording
                ]
                mean = np.mean(others, axis=0)
                layer = covariances.whole.find_discriminants(mean[None])
                own.append(float(layer(model.examples.matrix[row])[0]))
        scores = score_held_out(model.means, background, covariances)[:, number]
        count = int(np.sum(scores >= np.median(own)))
        assert expected.costs[number] == predict_rate(count, background.hours)


def test_what_is_seen_lies_in_19_of_20_intervals():
    """Both the share that was measured and the one that is seen are of finite samples."""
    rng = np.random.default_rng(0)
    shares, rates = [], []
    for _ in range(200):
        chance = rng.uniform(0.2, 0.95)
        measured, seen = rng.binomial(25, chance, 2) / 25
        expected = predict_share(measured, 25)
        shares.append(expected.low <= seen <= expected.high)
        rate = rng.uniform(0.5, 5.0)
        measured, seen = rng.poisson(2.0 * rate, 2)
        expected = predict_rate(int(measured), 2.0)
        rates.append(expected.low <= seen / 2.0 <= expected.high)
    assert 0.93 < np.mean(shares) < 0.99
    assert 0.93 < np.mean(rates) < 0.99


def repeat_background(model, times, **changes):
    """Return a model with its background several times, as of other recordings."""
    background = model.background
    count = len(background.vectors)
    recordings = [
        replace(one, sha256=f"{one.sha256} {n}", place=f"{one.place} {n}", **changes)
        for n in range(times)
        for one in background.recordings
    ]
    names = [
        f"{name} {n}" for n in range(times) for name in background.windows.recording
    ]
    start_s = np.tile(background.windows.spans["start_s"], times)
    matrix = np.tile(background.vectors, (times, 1))
    noise = np.random.default_rng(0).normal(0, 1e-3, (times * count, matrix.shape[1]))
    windows = make_windows(
        names, start_s, background.window_s, (matrix + noise).astype(np.float32)
    )
    longer = Background(
        tuple(recordings), windows, background.window_s, background.hop_s
    )
    return replace(model, background=longer)


def test_recall_is_stated_only_with_an_hour_of_background_and_calls_in_recordings(
    model,
):
    assert explain_unknown(model) == "little background"
    times = int(1 / model.background.hours) + 1
    known = repeat_background(model, times, origin=WITHOUT_CALLS)
    assert explain_unknown(known) == ""
    expected = expect_scan(known, 1.0)
    recall = expect_recall(known, expected)
    assert recall == predict_share(expected.recall.mean(), 9)
    text = "\n".join(describe_model(known))
    assert "expected recall of a scan: " in text
    assert "expected false alarms: " in text
    unlabelled = repeat_background(model, times, origin=UNLABELLED)
    assert explain_unknown(unlabelled) == "no labels"
    assert explain_unknown(replace(model, background=None)) == "no background"
    frame = known.examples.spans.frame.with_columns(start_s=0.0)
    clips = replace(known.examples, spans=replace(known.examples.spans, frame=frame))
    assert explain_unknown(replace(known, examples=clips)) == "clips"
    one = known.examples.take(
        np.flatnonzero(
            np.array(known.examples.recording) == known.examples.recording[0]
        )
    )
    alone = replace(known, examples=one)
    assert expect_recall(alone, expect_scan(alone, 1.0)) is None


def test_a_class_of_one_recording_is_not_tested(model):
    rows = [
        n
        for n, example in enumerate(list_rows(model.examples.spans))
        if example.label != "hoot" or example.path == "a.wav"
    ]
    part = replace(model, examples=model.examples.take(rows))
    expected = expect_scan(part, 60.0)
    hoot = part.classes.index("hoot")
    assert expected.testable[hoot] == 0
    assert np.isnan(expected.recall[hoot])
