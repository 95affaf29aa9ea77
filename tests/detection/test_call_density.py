"""Call density: the posterior of each bin, and its sum."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from callshot.detection.events.events import complete_events
from callshot.detection.scores.call_density import estimate_density, quantile_edges
from callshot.errors import InputError


def make_events(scores: list[float], confirmed: list[bool | None]) -> pl.DataFrame:
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


def test_each_bin_has_a_beta_posterior_and_the_total_is_their_sum() -> None:
    scores = list(np.arange(100.0))
    confirmed: list[bool | None] = [None] * 100
    for place in (1, 5, 9, 60, 70, 80, 90):
        confirmed[place] = place >= 60
    confirmed[65] = False
    events = make_events(scores, confirmed)
    density = estimate_density(events, events, 2, 0)
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


def test_the_interval_holds_the_true_number_of_calls_nearly_always() -> None:
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
        total = estimate_density(events, events, 4, seed).row(-1, named=True)
        inside += total["calls_p01"] <= is_call.sum() <= total["calls_p99"]
    assert inside >= 18


def test_bins_have_equal_numbers_and_equal_scores_share_one() -> None:
    assert quantile_edges(np.array([1.0, 1.0, 1.0, 2.0]), 4).tolist() == [
        1.0,
        1.25,
        2.0,
    ]
    assert quantile_edges(np.array([3.0, 3.0]), 4).tolist() == [3.0, 3.0]


def test_a_file_without_verdicts_is_an_error() -> None:
    events = make_events([1.0], [None])
    with pytest.raises(
        InputError, match="no row has yes or no in its column confirmed"
    ):
        estimate_density(events, events, 4, 0)


def test_reviewed_events_of_a_class_without_detections_are_an_error() -> None:
    events = make_events([1.0], [True])
    with pytest.raises(InputError, match="no detection is labelled 'roar'"):
        estimate_density(events.clear(), events, 4, 0)
