"""Where the centroid passes a rival that has all labels, and where a rival at every k passes the centroid."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.fewshot.crossing import find_crossings
from callshot.records import Curve, Rival, Values


def points(means: Sequence[float], lows: Sequence[float], encoder: str = "a", spread: str = "shared") -> list[Curve]:
    """Return a curve by its means and first percentiles, from k = 1."""
    return [
        Curve("herd", encoder, "centroid", "all", "map", spread, k, mean, low, mean, mean, mean, mean, 0.3, True, 0, 0)
        for k, (mean, low) in enumerate(zip(means, lows, strict=True), 1)
    ]


def rival(value: float, encoder: str = "a", metric: str = "map", scoring: str = "all") -> Rival:
    """Return a rival on an encoder."""
    return Rival("herd", encoder, "logistic", "LR", scoring, metric, value)


def values(table: Sequence[Any], classifier: str, k: Sequence[int] = (1, 2, 3), encoder: str = "a") -> Values:
    """Return values of a classifier, (shots, draws)."""
    return Values("herd", encoder, classifier, "all", "map", "shared", np.array(k), np.array(table, float))


def test_the_first_k_whose_mean_is_above_is_told_even_if_a_later_one_is_not() -> None:
    (found,) = find_crossings(points([0.5, 0.7, 0.6, 0.8], [0.4] * 4), [rival(0.65)])
    assert (found.k, found.surely) == (2, None)


def test_surely_means_that_no_later_interval_reaches_down() -> None:
    (found,) = find_crossings(points([0.9] * 4, [0.7, 0.6, 0.7, 0.7]), [rival(0.65)])
    assert (found.k, found.surely) == (1, 3)


def test_an_equal_value_is_not_passed() -> None:
    (found,) = find_crossings(points([0.65, 0.65], [0.65, 0.65]), [rival(0.65)])
    assert (found.k, found.surely) == (None, None)


def test_a_value_that_is_undefined_passes_nothing() -> None:
    (found,) = find_crossings(points([np.nan, 0.9], [np.nan, 0.9]), [rival(0.65)])
    assert (found.k, found.surely) == (2, 2)


def test_a_rival_meets_its_own_encoder_metric_and_scoring_alone() -> None:
    curve = [*points([0.9], [0.9]), *points([0.9], [0.9], "b")]
    assert [c.encoder for c in find_crossings(curve, [rival(0.5)])] == ["a"]
    assert [c.encoder for c in find_crossings(curve, [rival(0.5, "")])] == ["a", "b"]
    assert find_crossings(curve, [rival(0.5, metric="auroc"), rival(0.5, scoring="reduced")]) == []


def test_each_spread_has_a_crossing_of_its_own() -> None:
    curve = [*points([0.5, 0.9], [0.5, 0.9]), *points([0.9, 0.9], [0.9, 0.9], spread="per-query")]
    assert {(c.spread, c.k) for c in find_crossings(curve, [rival(0.7)])} == {("shared", 2), ("per-query", 1)}


def test_at_every_k_the_rival_is_held_against_the_same_draws() -> None:
    """The draws differ by far more than the two classifiers do."""
    luck = np.linspace(0.1, 0.8, 100)
    centroid = values([np.append(luck, 9.0)] * 3, "centroid")  # a draw that the rival never met
    trained = values([luck - 0.01, luck + 0.01 * np.where(np.arange(100) < 30, -1, 1), luck + 0.01], "logistic")
    (found,) = find_crossings([], [], [centroid], [trained])
    assert (found.rival, found.labels, found.k, found.surely) == ("logistic", "k", 2, 3)


def test_only_shots_that_both_have_count() -> None:
    centroid, trained = values([[0.5]] * 3, "centroid", (1, 2, 4)), values([[0.6], [0.4]], "logistic", (2, 9))
    (found,) = find_crossings([], [], [centroid], [trained])
    assert (found.k, found.surely) == (2, 2)


@pytest.mark.parametrize("other", [{"encoder": "b"}, {"k": (7, 8, 9)}])
def test_what_has_nothing_in_common_does_not_cross(other: dict[str, object]) -> None:
    found = find_crossings([], [], [values([[0.5]] * 3, "centroid")], [values([[0.6]] * 3, "logistic", **other)])  # type: ignore[arg-type]
    assert [(c.k, c.surely) for c in found] in ([], [(None, None)])


@given(st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_a_literal_walk_from_the_end_finds_the_same(ahead: list[list[float]]) -> None:
    k = tuple(range(1, len(ahead) + 1))
    flat = values([[0.0] * 3] * len(ahead), "centroid", k)
    (found,) = find_crossings([], [], [flat], [values(ahead, "logistic", k)])
    for told, level in ((found.k, np.mean), (found.surely, lambda row: np.percentile(row, 1))):
        wanted = None
        for shots, row in reversed(list(zip(k, ahead, strict=True))):
            if not level(np.array(row)) > 0:
                break
            wanted = shots
        assert told == wanted
