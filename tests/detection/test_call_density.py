"""Call density: the posterior of each bin, and its sum."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from callshot.detection import score
from callshot.detection.events import complete_events
from callshot.detection.score import estimate_density, find_verdicts, quantile_edges
from callshot.errors import InputError


def make_events(scores, confirmed):
    count = len(scores)
    frame = pl.DataFrame(
        {
            "recording": ["a.wav"] * count,
            "start_s": np.arange(count) * 2.0,
            "end_s": np.arange(count) * 2.0 + 1,
            "label": ["roar"] * count,
            "score": scores,
            "confirmed": pl.Series(confirmed, dtype=pl.Boolean),
        }
    )
    return complete_events(frame)


def estimate(detections, reviewed, bins, seed):
    verdicts = find_verdicts(detections, reviewed)
    return estimate_density(detections, verdicts, bins, seed)


def test_each_bin_has_a_beta_posterior_and_the_total_is_their_sum():
    scores = list(np.arange(100.0))
    confirmed: list[bool | None] = [None] * 100
    for place in (1, 5, 9, 60, 70, 80, 90):
        confirmed[place] = place >= 60
    confirmed[65] = False
    events = make_events(scores, confirmed)
    density = estimate(events, events, 2, 0)
    low, high, total = density.iter_rows(named=True)
    assert (low["reviewed"], low["confirmed"], low["detections"]) == (3, 0, 50)
    assert (high["reviewed"], high["confirmed"], high["detections"]) == (5, 4, 50)
    posterior = stats.beta(4.5, 1.5)
    assert high["share"] == pytest.approx(posterior.mean())
    assert high["share_p01"] == pytest.approx(posterior.ppf(0.01))
    assert high["share_p99"] == pytest.approx(posterior.ppf(0.99))
    assert total["calls"] == pytest.approx(low["calls"] + high["calls"])
    generator = np.random.default_rng(1)
    sums = 50 * generator.beta(0.5, 3.5, 200_000) + 50 * generator.beta(
        4.5, 1.5, 200_000
    )
    expected = np.percentile(sums, [1, 99])
    assert total["calls_p01"] == pytest.approx(expected[0], abs=1.0)
    assert total["calls_p99"] == pytest.approx(expected[1], abs=1.0)


def test_the_interval_holds_the_true_number_of_calls_nearly_always(monkeypatch):
    monkeypatch.setattr(score, "SAMPLES", 1000)
    generator = np.random.default_rng(0)
    inside = 0
    for seed in range(20):
        scores = generator.uniform(size=400)
        is_call = generator.uniform(size=400) < scores**2
        chosen = generator.permutation(400)[:60]
        confirmed: list[bool | None] = [None] * 400
        for place in chosen:
            confirmed[place] = bool(is_call[place])
        events = make_events(scores.tolist(), confirmed)
        total = estimate(events, events, 4, seed).row(-1, named=True)
        inside += total["calls_p01"] <= is_call.sum() <= total["calls_p99"]
    assert inside >= 18


def test_bins_have_equal_numbers_and_equal_scores_share_one():
    assert quantile_edges(np.array([1.0, 1.0, 1.0, 2.0]), 4).tolist() == [
        1.0,
        1.25,
        2.0,
    ]
    assert quantile_edges(np.array([3.0, 3.0]), 4).tolist() == [3.0, 3.0]


def test_no_verdict_on_a_detection_is_an_error():
    without = make_events([1.0], [None])
    with pytest.raises(InputError, match="no row has yes or no in its column conf"):
        find_verdicts(without, without)
    events = make_events([1.0], [True])
    with pytest.raises(InputError, match="none of the 1 reviewed events"):
        find_verdicts(events.clear(), events)


def test_a_detection_with_a_new_label_is_no_call_of_its_own_and_one_of_the_other():
    detections = make_events([0.1, 0.2, 0.3, 0.4], [None] * 4)
    renamed = pl.Series(["roar", "growl", "roar", "roar"])
    reviewed = detections.with_columns(
        label=renamed,
        confirmed=pl.Series([True, True, False, None]),
        score=pl.lit(None, pl.Float64),
    )
    density = estimate(detections, reviewed, 1, 0)
    growl = density.filter(label="growl").row(-1, named=True)
    roar = density.filter(label="roar").row(-1, named=True)
    assert (roar["reviewed"], roar["confirmed"], roar["relabelled"]) == (3, 1, 0)
    assert (growl["detections"], growl["relabelled"], growl["calls"]) == (0, 1, 1.0)


def test_calls_of_other_labels_are_added_to_the_total_of_a_class():
    detections = make_events([0.1, 0.2, 0.3, 0.4], [True, True, False, None])
    labels = pl.Series(["hoot", "roar", "roar", "roar"])
    named = detections.with_columns(label=labels)
    before = estimate(named.tail(3), named.tail(3), 1, 0).row(-1, named=True)
    reviewed = named.with_columns(label=pl.lit("roar"))
    after = estimate(named, reviewed, 1, 0)
    roar = after.filter(label="roar").row(-1, named=True)
    assert roar["relabelled"] == 1
    for name in ("calls", "calls_p01", "calls_p99"):
        assert roar[name] == pytest.approx(before[name] + 1)
    hoot = after.filter(label="hoot").row(-1, named=True)
    assert (hoot["reviewed"], hoot["confirmed"]) == (1, 0)


def test_parts_and_moved_spans_are_brought_back_to_their_detection():
    detections = make_events([0.1, 0.2, 0.3], [None] * 3)
    parts = [
        ("a.wav", 0.0, 0.5, "roar", True),  # of the first
        ("a.wav", 0.5, 1.0, "growl", True),
        ("a.wav", 2.2, 2.9, "roar", False),  # the second, cut
        ("a.wav", 4.0, 5.0, "growl", False),  # nothing on the third
        ("a.wav", 90.0, 91.0, "roar", True),
    ]
    columns = ["recording", "start_s", "end_s", "label", "confirmed"]
    reviewed = complete_events(pl.DataFrame(parts, columns, orient="row"))
    verdicts = find_verdicts(detections, reviewed)
    assert verdicts.detections["confirmed"].to_list() == [True, False]
    assert verdicts.detections["score"].to_list() == [0.1, 0.2]
    assert dict(verdicts.relabelled) == {"growl": 1}
    assert verdicts.elsewhere == 2
