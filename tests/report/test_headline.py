"""The first screen: what its sentences promise, and how long sentences are."""

import numpy as np
import polars as pl
import pytest

from callshot.fewshot.protocol import Protocol
from callshot.report.methods import describe_methods, list_references
from callshot.report.summary import write_summary
from corpus_results import make_corpus_results, make_tables, replace_frames
from summaries import (
    NOISE,
    RISING,
    class_budget,
    make,
    make_trained,
    with_rare,
)


def test_the_headline_says_how_many_more_examples_reach_the_next_level():
    headline = write_summary(
        make({"mfcc": (0.4, 0.5, 0.55, 0.58, 0.61, 0.72)})
    ).headline
    assert headline.sentence == (
        "With 5 examples per call type, mfcc reaches mAP 0.61; label 5 more of each to reach 0.70."
    )
    assert (headline.k, headline.next_k) == (5, 10)


def test_a_smaller_level_or_a_target_is_named_if_it_is_reached():
    means = {"mfcc": (0.4, 0.5, 0.55, 0.58, 0.61, 0.66)}
    headline = write_summary(make(means)).headline
    assert headline.sentence.endswith("label 5 more of each to reach 0.65.")
    headline = write_summary(make({"mfcc": RISING}), 0.62).headline
    assert headline.sentence.endswith("label 5 more of each to reach 0.62.")
    missed = write_summary(make({"mfcc": RISING}), 0.9).headline
    assert missed.sentence.endswith("; it is 0.64 with 10, the largest number tested.")
    level = (0.4, 0.5, 0.6, 0.605, 0.607, 0.608)
    headline = write_summary(make({"mfcc": level})).headline
    assert headline.sentence.endswith("; up to 10 bring no clear gain.")


def test_no_level_is_promised_if_samples_do_not_rise():
    noise = {"mfcc": np.where(np.arange(101) % 10 == 0, -0.2, 0.01)}
    means = {"mfcc": (0.4, 0.5, 0.55, 0.58, 0.61, 0.72)}
    rises = write_summary(make(means, noise=noise)).headline
    assert rises.next_k == 10  # every sample rises by the same
    results = make(means, noise=noise)
    values = results.evaluation.values
    samples = values["value"].to_list()
    samples[-1] = [*samples[-1][5:], *samples[-1][:5]]
    mixed = values.with_columns(value=pl.Series(samples))
    headline = write_summary(replace_frames(results, values=mixed)).headline
    assert headline.next_k is None
    assert headline.sentence.endswith(
        "; it is 0.71 with 10, the largest number tested."
    )
    assert headline.details[0] == "10 are better than 5 in 89 % of samples."


def test_beyond_k_star_the_headline_names_the_call_type_with_too_few():
    headline = write_summary(make({"mfcc": RISING}, classes=with_rare(4))).headline
    assert headline.sentence == "With 4 examples per call type, mfcc reaches mAP 0.58."
    assert headline.details[0] == (
        "More than 4 of every call type cannot be tested: 'bark' has 9 examples, and one fold "
        "leaves 4."
    )


def test_few_samples_promise_nothing():
    few = {"mfcc": NOISE[:99]}
    headline = write_summary(make({"mfcc": RISING}, noise=few)).headline
    assert headline.next_k is None
    assert headline.details == ["A random ranking gives 0.20."]


def test_the_share_of_right_names_is_below_the_headline_where_it_was_measured():
    results = make_corpus_results(make_tables(encoders={"mfcc": 2.0}, recordings=10))
    headline = write_summary(results).headline
    curve = results.evaluation.curve.filter(
        metric="accuracy", scoring="all", spread="total", k=headline.k
    )
    share = f"names the right type {100 * curve['mean'][0]:.0f} % of the time"
    assert share in headline.details[-1]
    assert "always naming" in headline.details[-1]


def test_the_card_of_encoders_names_both_if_the_difference_is_not_clear():
    worse = [mean - 0.05 for mean in RISING]
    clear = write_summary(make({"mfcc": worse, "perch": RISING})).cards[0]
    assert clear.answer == "perch"
    mixed = make({"mfcc": worse, "perch": RISING}, noise={"perch": NOISE[::-1]})
    card = write_summary(mixed).cards[0]
    assert card.answer == "perch or mfcc"
    assert card.text.endswith("(98 % interval: −0.146 to 0.246): not clear.")


@pytest.mark.parametrize(
    ("lead", "answer"),
    [
        ((-0.2, -0.15, 0.05, 0.05, 0.15, 0.2), "From 5 examples on"),
        ((0.05,) * 6, "Not clearly"),
        ((-0.05,) * 6, "No"),
    ],
)
def test_the_card_of_training_says_from_when_it_is_clear(lead, answer):
    assert write_summary(make_trained(lead)).cards[1].answer == answer


def test_the_card_of_call_types_names_the_one_that_stands_out():
    rows = [class_budget("roar", 0.01), class_budget("bark", 0.02, recommended=True)]
    card = write_summary(make({"mfcc": RISING}, budget=rows)).cards[2]
    assert card.answer == "bark"
    assert "0.020 of AP from 4 to 5 (98 % interval: 0.010 to 0.030)" in card.text


def test_methods_name_the_protocol_and_the_references():
    results = make_corpus_results(make_tables(encoders=("mfcc", "birdnet-v2.4")))
    protocol = Protocol(seed=7)
    text = " ".join(describe_methods(results, protocol))
    assert "The seed was 7" in text
    assert f"{protocol.bootstraps:,} bootstrap samples" in text
    references = list_references(results)
    assert [line[:3] for line in references] == ["[1]", "[2]", "[3]", "[4]"]
    assert "Kahl" in references[-1]
