"""Where the centroid passes a rival that has all labels, and where a rival at every k passes the centroid."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.fewshot.crossover import MIN_SAMPLES, find_crossovers
from callshot.records import Baseline, Values

LUCK = np.linspace(-0.1, 0.1, 101)


def values(
    table: Any,
    classifier: str = "centroid",
    k: Sequence[int] = (),
    encoder: str = "a",
    spread: str = "shared",
) -> Values:
    """Return values of a classifier, (shots, draws), from k = 1."""
    found = np.array(table, float)
    shots = np.array(k or range(1, len(found) + 1))
    return Values("herd", encoder, classifier, "all", "map", spread, shots, found)


def around(means: Sequence[float], wide: float | Sequence[float] = 1.0, **more: Any) -> Values:
    """Return values that lie around means, as wide as 0.1 times a number to each side."""
    return values(
        np.array(means)[:, None] + np.outer(np.broadcast_to(wide, len(means)), LUCK), **more
    )


def baseline(
    value: float, encoder: str = "a", metric: str = "map", scoring: str = "all"
) -> Baseline:
    """Return a rival on an encoder."""
    return Baseline("herd", encoder, "logistic", "LR", scoring, metric, value)


def test_the_first_k_whose_mean_is_above_is_told_even_if_a_later_one_is_not() -> None:
    (found,) = find_crossovers([around([0.5, 0.7, 0.6, 0.8])], [baseline(0.65)])
    assert (found.k, found.k_clear) == (2, 4)


def test_surely_means_that_no_later_interval_reaches_down() -> None:
    (found,) = find_crossovers([around([0.9] * 4, [1, 3, 1, 1])], [baseline(0.65)])
    assert (found.k, found.k_clear) == (1, 3)


def test_an_equal_value_is_not_passed() -> None:
    (found,) = find_crossovers([around([0.625, 0.625], 0)], [baseline(0.625)])
    assert (found.k, found.k_clear) == (None, None)


def test_a_value_that_is_undefined_passes_nothing() -> None:
    (found,) = find_crossovers([around([np.nan, 0.9])], [baseline(0.65)])
    assert (found.k, found.k_clear) == (2, 2)
    (found,) = find_crossovers([around([0.9, np.nan])], [baseline(0.65)])
    assert (found.k, found.k_clear) == (1, None)


@pytest.mark.parametrize("draws", [1, MIN_SAMPLES - 1])
def test_few_samples_are_sure_of_nothing(draws: int) -> None:
    (found,) = find_crossovers([values(np.full((2, draws), 0.9) + LUCK[:draws])], [baseline(0.65)])
    assert (found.k, found.k_clear) == (1, None)


def test_samples_that_are_all_alike_are_no_interval_unless_they_are_perfect() -> None:
    (found,) = find_crossovers([around([0.6, 0.7, 0.9], [1, 1, 0])], [baseline(0.65)])
    assert (found.k, found.k_clear) == (2, None)
    (found,) = find_crossovers([around([0.6, 0.7, 1.0], [1, 1, 0])], [baseline(0.65)])
    assert (found.k, found.k_clear) == (2, 3)


def test_beyond_k_star_nothing_is_sure() -> None:
    curve = around([0.6, 0.7, 0.9, 0.9])
    assert find_crossovers([curve], [baseline(0.65)])[0].k_clear == 3
    assert find_crossovers([curve], [baseline(0.65)], complete=2)[0].k_clear is None
    assert find_crossovers([curve], [baseline(0.65)], complete=2)[0].k == 2


def test_a_rival_meets_its_own_encoder_metric_and_scoring_alone() -> None:
    curves = [around([0.9]), around([0.9], encoder="b")]
    assert [c.encoder for c in find_crossovers(curves, [baseline(0.5)])] == ["a"]
    assert [c.encoder for c in find_crossovers(curves, [baseline(0.5, "")])] == ["a", "b"]
    assert (
        find_crossovers(curves, [baseline(0.5, metric="auroc"), baseline(0.5, scoring="reduced")])
        == []
    )


def test_each_spread_has_a_crossing_of_its_own() -> None:
    curves = [around([0.5, 0.9]), around([0.9, 0.9], spread="per-query")]
    assert {(c.spread, c.k) for c in find_crossovers(curves, [baseline(0.7)])} == {
        ("shared", 2),
        ("per-query", 1),
    }


def test_at_every_k_the_rival_is_held_against_the_same_draws() -> None:
    """The draws differ by far more than the two classifiers do."""
    luck = np.linspace(0.1, 0.8, 100)
    little = 1e-3 * np.sin(np.arange(100))
    centroid = values([np.append(luck, 9.0)] * 3)  # a draw that the rival never met
    part = np.where(np.arange(100) < 30, -1, 1)
    trained = values([luck - 0.01, luck + 0.01 * part, luck + 0.01 + little], "logistic")
    (found,) = find_crossovers([centroid], [], [trained])
    assert (found.baseline, found.labels, found.k, found.k_clear) == ("logistic", "k", 2, 3)


def test_only_shots_that_both_have_count() -> None:
    centroid, trained = (
        around([0.5] * 3, 0, k=(1, 2, 4)),
        around([0.7, 0.3], k=(2, 9), classifier="logistic"),
    )
    (found,) = find_crossovers([centroid], [], [trained])
    assert (found.k, found.k_clear) == (2, 2)


@pytest.mark.parametrize("other", [{"encoder": "b"}, {"k": (7, 8, 9)}])
def test_what_has_nothing_in_common_does_not_cross(other: dict[str, Any]) -> None:
    found = find_crossovers(
        [around([0.5] * 3)], [], [around([0.6] * 3, classifier="logistic", **other)]
    )
    assert [(c.k, c.k_clear) for c in found] in ([], [(None, None)])


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_a_literal_walk_from_the_end_finds_the_same(ahead: list[list[float]]) -> None:
    table = np.repeat(ahead, 40, axis=1)
    (found,) = find_crossovers([values(np.zeros(table.shape))], [], [values(table, "logistic")])
    sure = [
        row
        for row in enumerate(table, 1)
        if np.percentile(row[1], 99) - np.percentile(row[1], 1) > 1e-9
    ]
    for told, rows, level in (
        (found.k, list(enumerate(table, 1)), np.mean),
        (found.k_clear, sure, lambda row: np.percentile(row, 1)),
    ):
        wanted = None
        for shots, row in reversed(rows):
            if not level(row) > 0:
                break
            wanted = shots
        assert told == wanted
